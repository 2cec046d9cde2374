"""A legal case of each operation: the simplest that the suite draws."""

from __future__ import annotations

from functools import cache

from mpsref.conformance import checker
from mpsref.conformance.case import Case
from mpsref.operations import Operation


@cache
def case(operation: Operation) -> Case:
    """Return the case of an operation, with inputs in float32."""
    return next(iter(checker.random_cases(operation, ("float32",), 1, 0)))
