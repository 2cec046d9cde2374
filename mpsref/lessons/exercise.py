"""An exercise: the function to write, its cases, and usual wrong answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array

Arguments = Mapping[str, Any]

Function = Callable[..., Any]


class Wrong(NamedTuple):
    """A usual wrong answer."""

    cause: str
    """The mistake, in a sentence: the first hint."""
    function: Function
    """An implementation with the mistake, and the signature of the exercise."""


class Exercise(NamedTuple):
    """A function to fill in."""

    name: str
    """The name of the function."""
    lesson: int
    cases: st.SearchStrategy[Arguments]
    """Arguments by name; integers, texts and arrays."""
    expected: Function
    """Returns the right result, an array or a number, from the reference or the definition."""
    idea: str
    """The second hint: what the result is."""
    formula: str
    """The third hint."""
    wrong: tuple[Wrong, ...]
    case_string: Callable[[Arguments], str] = lambda arguments: ""
    """The case of the conformance suite with these arguments, for the explorer; may be empty."""


def differing(got: Any, expected: Any) -> Array | None:
    """Return where a result differs from the expected one; ``None`` if its shape does, or it has no numbers."""
    try:
        actual, right = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    except (TypeError, ValueError):
        return None
    if actual.shape != right.shape:
        return None
    size = float(np.nanmax(np.abs(right), initial=0.0))
    close = np.abs(actual - right) <= 1e-5 * np.maximum(np.abs(right), 1e-2 * size)
    wrong: Array = ~(close | (np.isnan(actual) & np.isnan(right)))  # NaN is wrong where it is not expected
    return wrong


def agrees(got: Any, expected: Any) -> bool:
    """Return whether a result is right within the rounding of float32."""
    wrong = differing(got, expected)
    return wrong is not None and not wrong.any()
