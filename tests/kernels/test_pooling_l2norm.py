"""L2-norm pooling: worked numbers, brute force, the zero norm, where PyTorch is another operation."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from mpsref import PoolingL2Norm
from mpsref.arguments.arrays import Array
from tests.kernels import oracle_pooling
from tests.kernels import oracle_pooling_values as oracle
from tests.kernels.oracle_pooling_values import calls, dtypes, image, images, pools, quarters, same, sizes

thorough = settings(max_examples=60, deadline=None)
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


@pytest.mark.parametrize(
    ("edge", "out", "dx"),
    [("zero", [0, 4, 0], [0, 10]), ("clamp", [8**0.5, 32**0.5, 32**0.5], [2**0.5, 110 * 2**0.5])],
)
def test_windows_wholly_outside(backend: str, edge: Any, out: Any, dx: Any) -> None:
    y, gradient = pooled(line(2, 3, -1, edge), image([2, 4]), image([1, 10, 100]), backend)
    same(y, out)
    same(gradient, dx)


@pytest.mark.parametrize(
    ("call", "dx"),
    [
        ({}, [0, 3, 0, 4, 0, 0, 5, 12, 0]),
        ({"clip": ((0, 1), (1, 8))}, [0, 3, 0, 4, 0, 0, 5, 12, 0]),
        ({"clip": ((0, 3), (1, 4))}, [0, 0, 0, 4, 0, 0, 5, 0, 0]),
        ({"clip": ((0, 1), (1, 8)), "kernel_offset": (0, -1)}, [0, 3, 0, 4, 0, 0, 5, 12, 0]),
        ({"kernel_offset": (0, -1)}, [3, 0, 4, 0, 0, 5, 12, 0, 0]),
        ({"primary_offset": (0, 1)}, [0, 7.8, 0, 10.4, 0, 0, 0, 0, 0]),
        ({"primary_offset": (0, -1)}, [0, 0, 0, 0, 0, 0, 25 / 13, 60 / 13, 0]),
        ({"source_size": (1, 1)}, [0, 3, 0, 4, 0, 0, 0, 0, 0]),
        ({"source_size": (1, 0)}, [0] * 9),
        ({"primary_offset": (0, 2)}, [0] * 9),
        ({"clip": ((0, 1), (0, 8))}, [0] * 9),
    ],
)
def test_alignment_of_a_gradient(backend: str, call: dict[str, Any], dx: list[float]) -> None:
    x = image([9, 3, 0, 4, 9, 0, 5, 12, 9])  # windows {1, 2, 3} and {5, 6, 7}, of norm 5 and 13
    same(line(3, 4, 2).gradient(image([5, 13]), x, **call, backend=backend), dx)


@thorough
@given(pool=pools(PoolingL2Norm), shape=images, size=sizes, dtype=dtypes)
def test_forward_is_the_brute_force(
    pool: PoolingL2Norm, shape: tuple[int, ...], size: tuple[int, int], dtype: str
) -> None:
    x = quarters(shape, dtype)
    y = pool.forward(x, size)
    assert y.dtype == dtype
    oracle_pooling.assert_close(y, oracle.forward(pool, x, size), "reference")


@thorough
@given(pool=pools(PoolingL2Norm), shape=images, size=sizes, dtype=dtypes, call=calls)
def test_gradient_is_the_brute_force(
    pool: PoolingL2Norm, shape: tuple[int, ...], size: tuple[int, int], dtype: str, call: dict[str, Any]
) -> None:
    x, g = quarters(shape, dtype), quarters((shape[0], *size, shape[3]), dtype, seed=1)
    dx = pool.gradient(g, x, **call)
    assert dx.dtype == dtype
    oracle_pooling.assert_close(dx, oracle.gradient(pool, g, x, **call), "reference")


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


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    module: ModuleType = pytest.importorskip("torch", reason="the oracle of these tests is PyTorch")
    return module


def test_lp_pool2d_with_ceil_mode_is_another_operation(torch: ModuleType, backend: str) -> None:
    """PyTorch scales the sum of a window that is cut off up to the size of a whole one."""
    x = image([1, 2, 3, 4, 5])
    theirs = torch.nn.functional.lp_pool2d(torch.from_numpy(x).permute(0, 3, 1, 2), 2, (1, 2), (1, 2), ceil_mode=True)
    np.testing.assert_allclose(theirs.numpy().ravel(), [5**0.5, 5, 50**0.5], rtol=1e-6)
    same(line(2, 2, 1).forward(x, (1, 3), backend=backend), [5**0.5, 5, 5])
