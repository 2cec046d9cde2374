"""Comparison of two images: what holds for equal, near, infinite and NaN numbers; strides; bad input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mpsref import Compare, ShapeError
from mpsref.arguments.arrays import Array
from mpsref.kernels.compare import COMPARISONS

F32 = np.float32


def row(*numbers: float, dtype: Any = F32) -> Array:
    return np.array(numbers, dtype).reshape(1, 1, -1, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("equal", [0, 1, 0]),
        ("notequal", [1, 0, 1]),
        ("less", [1, 0, 0]),
        ("lessorequal", [1, 1, 0]),
        ("greater", [0, 0, 1]),
        ("greaterorequal", [0, 1, 1]),
    ],
)
def test_each_comparison(backend: str, kind: Any, expected: list[int], dtype: Any) -> None:
    x, y = row(1, 2, 3, dtype=dtype), row(2, 2, 2, dtype=dtype)
    r = Compare(kind).forward(x, y, backend=backend)
    assert r.dtype == dtype
    assert r.ravel().tolist() == expected


@pytest.mark.parametrize(
    ("threshold", "expected"), [(0.0, [0, 0, 1, 0, 0]), (0.5, [0, 1, 1, 1, 0]), (1.0, [1] * 5), (math.inf, [1] * 5)]
)
def test_a_threshold_counts_for_equality_alone(backend: str, threshold: float, expected: list[int]) -> None:
    x, y = row(1, 1.5, 2, 2.5, 3), row(2, 2, 2, 2, 2)
    assert Compare("equal", threshold).forward(x, y, backend=backend).ravel().tolist() == expected
    assert Compare("notequal", threshold).forward(x, y, backend=backend).ravel().tolist() == [1 - e for e in expected]
    assert Compare("less", threshold).forward(x, y, backend=backend).ravel().tolist() == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("kind", COMPARISONS)
def test_a_comparison_with_nan_does_not_hold(ieee_backend: str, kind: Any) -> None:
    x, y = row(math.nan, 1, math.nan), row(1, math.nan, math.nan)
    expected = float(kind == "notequal")
    assert Compare(kind, 3.0).forward(x, y, backend=ieee_backend).ravel().tolist() == [expected] * 3


def test_infinities_are_ordered_and_their_difference_is_none(ieee_backend: str) -> None:
    x, y = row(math.inf, -math.inf), row(math.inf, 1)
    results = {kind: Compare(kind).forward(x, y, backend=ieee_backend).ravel().tolist() for kind in COMPARISONS}
    assert results["lessorequal"] == [1, 1]
    assert results["greater"] == [0, 0]
    assert results["equal"] == [0, 0]  # |inf - inf| is NaN


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="axis W x has 3 and y 2"):
        Compare().forward(row(1, 2, 3), row(1, 2))
