"""Cases that failed once in long random runs, with the cause of each group (bounds and properties)."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpsref import registry
from mpsref.conformance import families
from mpsref.conformance.case import Case
from mpsref.conformance.runner import run_case

LINES = Path(__file__).with_name("found_by_random_cases.txt").read_text("utf-8").splitlines()
CASES = [line for line in LINES if line and not line.startswith("#")]

FAST_MATH = "nonfinite"
"""The data on which backends with fast math do not run."""


@pytest.mark.parametrize(
    ("text", "backend"),
    [(text, name) for text in CASES for name in ("cpu", "metal:clang") if name == "cpu" or FAST_MATH not in text],
)
def test_a_case_that_failed_once(text: str, backend: str) -> None:
    case = Case.parse(text)
    assert str(case) == text
    outcome = run_case(case, registry.get_backend(backend), families.properties(case.problem.operation))
    assert outcome.status == "passed", outcome.message
