from .case import Case as Case
from .checker import check as check
from .comparator import Mismatch as Mismatch
from .pytest_plugin import conformance_test as conformance_test
from .runner import run_case as run_case

CASES: int
