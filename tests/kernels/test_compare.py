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


@pytest.mark.parametrize("strides", [(0, 0, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1)])
def test_strides_and_offsets(backend: str, strides: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (2, 4, 3, 5)).astype(F32)
    y = rng.integers(-2, 3, (2, *(1 + n if t else 2 for n, t in zip((4, 3, 5), strides, strict=True)))).astype(F32)
    spec = Compare("less", secondary_strides=strides, secondary_offset=(1, 1, 1))
    part = y[:, 1:, 1:, 1:]
    np.testing.assert_array_equal(spec.forward(x, y, backend=backend), x < part)


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        ({"comparison_type": "almost"}, ValueError, "comparison_type is 'almost'"),
        ({"threshold": -0.5}, ValueError, "threshold is -0.5"),
        ({"threshold": math.nan}, ValueError, "threshold is nan"),
        ({"threshold": np.broadcast_to(np.float32(1), (2**20, 2**20))}, TypeError, "threshold is"),
        ({"threshold": "0"}, TypeError, "threshold is '0'"),
        ({"primary_strides": (0, 0, 3)}, ValueError, r"primary_strides\[2\] is 3"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Compare(**parameters)


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="axis W x has 3 and y 2"):
        Compare().forward(row(1, 2, 3), row(1, 2))
