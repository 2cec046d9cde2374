"""L2-norm pooling: worked numbers, the zero norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import PoolingL2Norm
from mpsref.arguments.arrays import Array
from tests.kernels import oracle_pooling as oracle
from tests.kernels.oracle_pooling import image, quarters, same

INF, NAN = np.inf, np.nan


@pytest.fixture(scope="module")
def backend(backend: str) -> str:
    return oracle.require(backend, PoolingL2Norm)


@pytest.fixture(scope="module")
def ieee_backend(ieee_backend: str) -> str:
    return oracle.require(ieee_backend, PoolingL2Norm)


def line(kernel: int, stride: int = 1, offset: int = 0, edge: Any = "zero") -> PoolingL2Norm:
    """A pool along x alone."""
    return PoolingL2Norm((1, kernel), (1, stride), (0, offset), edge)


def pooled(pool: PoolingL2Norm, x: Array, g: Array, backend: str) -> tuple[Array, Array]:
    return pool.forward(x, g.shape[1:3], backend=backend), pool.gradient(g, x, backend=backend)


@pytest.mark.parametrize("edge", ["zero", "clamp"])
def test_windows_side_by_side(backend: str, edge: Any) -> None:
    """Two right triangles, and between them a window of zeros that hands nothing on."""
    y, dx = pooled(line(2, 2, 1, edge), image([3, 4, 0, 0, 5, 12]), image([1, 10, 13]), backend)
    same(y, [5, 0, 13])
    same(dx, [0.6, 0.8, 0, 0, 5, 12])


@pytest.mark.parametrize(
    ("edge", "out", "dx"),
    [
        ("zero", [5, 5], [1.2, 1.6]),
        ("clamp", [34**0.5, 41**0.5], [6 / 34**0.5 + 3 / 41**0.5, 4 / 34**0.5 + 8 / 41**0.5]),
    ],
)
def test_a_border_pixel_counts_once_for_each_tap_that_is_clamped_to_it(
    backend: str, edge: Any, out: Any, dx: Any
) -> None:
    y, gradient = pooled(line(3, edge=edge), image([3, 4]), image([1, 1]), backend)
    same(y, out)
    same(gradient, dx)


def test_squares_that_vanish_hand_nothing_on() -> None:
    """In float32 arithmetic the squares of 1e-30 are 0, and so is the norm: no division by it."""
    x, g = image([1e-30, 0, 1, 0]), image([1, 1])
    y, dx = pooled(line(2, 2, 1), x, g, "reference:input-dtype")
    assert y.ravel().tolist() == [0, 1]
    assert dx.ravel().tolist() == [0, 0, 1, 0]
    y, dx = pooled(line(2, 2, 1), x, g, "reference")
    same(y, [1e-30, 1])
    same(dx, [1, 0, 1, 0])


def test_nan_and_infinity_as_ieee_754_says(ieee_backend: str) -> None:
    y, dx = pooled(line(2, 2, 1), image([3, INF, NAN, 1, 3, 4]), image([1, 1, 5]), ieee_backend)
    np.testing.assert_array_equal(y[0, 0, :, 0], np.array([INF, NAN, 5], np.float32))
    np.testing.assert_allclose(dx[0, 0, :, 0], [0, NAN, NAN, NAN, 3, 4], rtol=6e-7)
    _, dx = pooled(line(3), image([3, 4, 5]), image([INF, 0, 0]), ieee_backend)
    np.testing.assert_array_equal(dx[0, 0, :, 0], [INF, INF, 0])  # pixel 2 is not read; nor does the zero outside leak


def test_float16_is_squared_in_more_precision(backend: str) -> None:
    """300 squared is no float16, but their norm is; "reference:input-dtype" alone may overflow on the way."""
    x = image([180, 240, 0.0, 0.0]).astype(np.float16)
    y, dx = pooled(line(2, 2, 1), x, image([300, 1]).astype(np.float16), backend)
    assert y.dtype == dx.dtype == np.float16
    if backend != "reference:input-dtype":
        assert y.ravel().tolist() == [300, 0]
        np.testing.assert_allclose(dx.ravel(), [180, 240, 0, 0], rtol=1e-3)
    else:
        assert y.ravel().tolist() == [INF, 0]


def test_what_no_window_reads_may_be_infinite(ieee_backend: str) -> None:
    x = quarters((2, 12, 12, 5)) + 4
    read = np.isin(np.arange(12) % 4, [0, 1])
    x[:, ~read], x[:, :, ~read] = INF, NAN
    dx = PoolingL2Norm(2, 4, 1).gradient(np.ones((2, 3, 3, 5), np.float32), x, backend=ieee_backend)
    assert np.array_equal(dx.any(axis=(0, 3)), np.logical_and.outer(read, read))
