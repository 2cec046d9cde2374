"""The conformance suite: cases, data, bounds, guards, properties, planted faults, reports.

Test a backend of your own with three lines in a file that pytest collects::

    from mpsref.conformance import conformance_test
    from my_package import backend
    test_my_backend = conformance_test(backend)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpsref.conformance.case import Case
    from mpsref.conformance.checker import check
    from mpsref.conformance.comparator import Mismatch
    from mpsref.conformance.pytest_plugin import conformance_test
    from mpsref.conformance.runner import run_case

__all__ = ["CASES", "Case", "Mismatch", "check", "conformance_test", "run_case"]

CASES = 60
"""Random cases for each operation on each backend unless told otherwise; planted faults are caught with a margin."""

_HOMES = {
    "Case": "case",
    "Mismatch": "comparator",
    "check": "checker",
    "conformance_test": "pytest_plugin",
    "run_case": "runner",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: the pytest plug-in lives here and must cost next to nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
