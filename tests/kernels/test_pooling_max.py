"""Max pooling: worked numbers, brute force, ties, what zeros outside win, NaN, dilation, differentiation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from mpsref import PoolingMax
from mpsref.arguments.arrays import Array
from tests.kernels import oracle_pooling
from tests.kernels import oracle_pooling_values as oracle
from tests.kernels.oracle_pooling_values import calls, dtypes, image, images, pools, quarters, same, sizes

thorough = settings(max_examples=100, deadline=None)
INF, NAN = np.inf, np.nan


@pytest.fixture(scope="module")
def backend(backend: str) -> str:
    return oracle.require(backend, PoolingMax)


@pytest.fixture(scope="module")
def ieee_backend(ieee_backend: str) -> str:
    return oracle.require(ieee_backend, PoolingMax)


def line(kernel: int, stride: int = 1, offset: int = 0, edge: Any = "zero", dilation: int = 1) -> PoolingMax:
    """A pool along x alone."""
    return PoolingMax((1, kernel), (1, stride), (0, offset), edge, (1, dilation))


def pooled(pool: PoolingMax, x: Array, g: Array, backend: str) -> tuple[Array, Array]:
    return pool.forward(x, g.shape[1:3], backend=backend), pool.gradient(g, x, backend=backend)


@pytest.mark.parametrize(("edge", "out", "dx"), [("zero", [0, 4, 0], [0, 10]), ("clamp", [2, 4, 4], [1, 110])])
def test_windows_wholly_outside(backend: str, edge: Any, out: Any, dx: Any) -> None:
    y, gradient = pooled(line(2, 3, -1, edge), image([2, 4]), image([1, 10, 100]), backend)
    same(y, out)
    same(gradient, dx)


@pytest.mark.parametrize(
    ("edge", "out", "dx"), [("zero", [0, -1, 0], [10, 0, 0]), ("clamp", [-1, -1, -2], [11, 100, 0])]
)
def test_zeros_outside_beat_negative_values(backend: str, edge: Any, out: Any, dx: Any) -> None:
    y, gradient = pooled(line(3, edge=edge), image([-1, -2, -3]), image([1, 10, 100]), backend)
    same(y, out)
    same(gradient, dx)


@pytest.mark.parametrize(("edge", "dx"), [("zero", [0, 0, 10, 0]), ("clamp", [1, 0, 10, 0])])
def test_a_zero_outside_that_comes_first_wins_the_tie(backend: str, edge: Any, dx: Any) -> None:
    y, gradient = pooled(line(3, 2, 0, edge), image([0, 0, 5, 0]), image([1, 10]), backend)
    same(y, [0, 5])
    same(gradient, dx)


def test_a_zero_outside_that_comes_last_loses_the_tie(backend: str) -> None:
    y, gradient = pooled(line(3, 2, 2), image([1, 0, 0, 0]), image([1, 10]), backend)  # taps {1, 2, 3}, {3, 4, 5}
    same(y, [0, 0])
    same(gradient, [0, 1, 0, 10])


@pytest.mark.parametrize("edge", ["zero", "clamp"])
def test_the_first_of_equal_values_in_raster_order_is_selected(backend: str, edge: Any) -> None:
    x = image([[1, 1, 0], [1, 1, 0], [0, 0, 0]])
    g = image([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    _, gradient = pooled(PoolingMax(2, 1, 1, edge), x, g, backend)
    same(gradient, [[1, 2, 3], [4, 5, 6], [7, 8, 9]])


def test_a_row_comes_before_a_column(backend: str) -> None:
    """Of the taps (0, 1) and (1, 0) the first in raster order is (0, 1)."""
    _, gradient = pooled(PoolingMax(2, 2, 1), image([[0, 7], [7, 0]]), image([[1]]), backend)
    same(gradient, [[0, 1], [0, 0]])


@pytest.mark.parametrize(
    ("x", "offset", "edge", "out", "dx"),
    [
        ([5, 1, 2, 9, 3, 4, 0], (3, 2), "zero", [9, 3, 4, 9], [0, 0, 0, 1001, 10, 100, 0]),
        ([5, 1, 2, 9, 3, 4, 0], (3, 2), "clamp", [9, 3, 4, 9], [0, 0, 0, 1001, 10, 100, 0]),
        ([7, 1, 2, 3], (2, 0), "zero", [1, 7, 3, 2], [10, 1, 1000, 100]),
        ([7, 1, 2, 3], (2, 0), "clamp", [7, 7, 3, 3], [11, 0, 0, 1100]),
    ],
)
def test_dilated_windows(backend: str, x: Any, offset: Any, edge: Any, out: Any, dx: Any) -> None:
    dilation, first = offset
    y, gradient = pooled(line(2, 1, first, edge, dilation), image(x), image([1, 10, 100, 1000]), backend)
    same(y, out)
    same(gradient, dx)


def test_a_dilated_window_reads_an_edge_pixel_that_is_no_tap_of_it(backend: str) -> None:
    """Taps -1 and 1 with "clamp": pixel 0 is read; to ignore what is outside would give 1."""
    assert line(2, edge="clamp", dilation=2).forward(image([7, 1, 2]), (1, 1), backend=backend).item() == 7


@pytest.mark.parametrize(
    ("kernel", "offset", "out"),
    [
        (2, 0, [[0, 3, 6], [24, 27, 30]]),
        (2, 1, [[9, 12, 15], [33, 36, 39]]),
        (3, 1, [[18, 21, 23], [34, 37, 39]]),
    ],
)
@pytest.mark.parametrize("edge", ["zero", "clamp"])
def test_the_placements_drawn_in_the_header(backend: str, edge: Any, kernel: int, offset: int, out: Any) -> None:
    x = image(np.arange(40).reshape(5, 8))
    same(PoolingMax(kernel, 3, offset, edge).forward(x, (2, 3), backend=backend), out)


@pytest.mark.parametrize(
    ("call", "dx"),
    [
        ({}, [0, 0, 3, 0, 0, 0, 0, 30, 0]),
        ({"clip": ((0, 1), (1, 8))}, [0, 0, 3, 0, 0, 0, 0, 30, 0]),
        ({"clip": ((0, 3), (1, 5))}, [0, 0, 0, 0, 0, 0, 0, 30, 0]),
        ({"clip": ((0, 1), (1, 8)), "kernel_offset": (0, -1)}, [0, 0, 3, 0, 0, 0, 0, 30, 0]),
        ({"kernel_offset": (0, -1)}, [0, 3, 0, 0, 0, 0, 30, 0, 0]),
        ({"primary_offset": (0, 1)}, [0, 0, 30, 0, 0, 0, 0, 0, 0]),
        ({"primary_offset": (0, -1)}, [0, 0, 0, 0, 0, 0, 0, 3, 0]),
        ({"source_size": (1, 1)}, [0, 0, 3, 0, 0, 0, 0, 0, 0]),
        ({"source_size": (1, 0)}, [0] * 9),
        ({"primary_offset": (0, 2)}, [0] * 9),
        ({"clip": ((0, 1), (0, 8))}, [0] * 9),
    ],
)
def test_alignment_of_a_gradient(backend: str, call: dict[str, Any], dx: list[int]) -> None:
    x = image([9, 1, 5, 2, 9, 3, 4, 6, 9])  # windows {1, 2, 3} and {5, 6, 7} select pixels 2 and 7
    same(line(3, 4, 2).gradient(image([3, 30]), x, **call, backend=backend), dx)


@thorough
@given(pool=pools(PoolingMax), shape=images, size=sizes, dtype=dtypes)
def test_forward_is_the_brute_force(
    backend: str, pool: PoolingMax, shape: tuple[int, ...], size: tuple[int, int], dtype: str
) -> None:
    x = quarters(shape, dtype)
    y = pool.forward(x, size, backend=backend)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, oracle.forward(pool, x, size).value)


@thorough
@given(pool=pools(PoolingMax), shape=images, size=sizes, dtype=dtypes, call=calls)
def test_gradient_is_the_brute_force(
    backend: str, pool: PoolingMax, shape: tuple[int, ...], size: tuple[int, int], dtype: str, call: dict[str, Any]
) -> None:
    x, g = quarters(shape, dtype), quarters((shape[0], *size, shape[3]), dtype, seed=1)
    dx = pool.gradient(g, x, **call, backend=backend)
    assert dx.dtype == dtype
    oracle_pooling.assert_close(dx, oracle.gradient(pool, g, x, **call), backend)


@given(pool=pools(PoolingMax), shape=images, size=sizes)
def test_with_clamp_the_whole_gradient_is_handed_on(
    backend: str, pool: PoolingMax, shape: tuple[int, ...], size: tuple[int, int]
) -> None:
    x, g = quarters(shape), quarters((shape[0], *size, shape[3]), seed=1)
    clamp = PoolingMax(pool.kernel_size, pool.strides, pool.offset, "clamp", pool.dilations)
    dx = clamp.gradient(g, x, backend=backend)
    np.testing.assert_array_equal(dx.sum(axis=(1, 2)), g.sum(axis=(1, 2)))  # multiples of 1/4: sums are exact


@pytest.mark.parametrize(
    ("x", "out", "dx"),
    [
        ([1, NAN, 2, 3], [NAN, NAN, NAN, 3], [0, 111, 0, 1000]),
        ([NAN, 5, NAN, 3], [NAN, NAN, NAN, NAN], [11, 0, 1100, 0]),
        ([-INF, NAN, INF, 0], [NAN, NAN, NAN, INF], [0, 111, 1000, 0]),
    ],
)
@pytest.mark.parametrize("edge", ["zero", "clamp"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_first_nan_is_selected(ieee_backend: str, dtype: str, edge: Any, x: Any, out: Any, dx: Any) -> None:
    source, g = image(x).astype(dtype), image([1, 10, 100, 1000]).astype(dtype)
    y, gradient = pooled(line(3, edge=edge), source, g, ieee_backend)
    np.testing.assert_array_equal(y[0, 0, :, 0], out)
    np.testing.assert_array_equal(gradient[0, 0, :, 0], dx)


@pytest.mark.parametrize("row", range(3))
@pytest.mark.parametrize("kernel", [2, 3, (3, 4)])
def test_nan_is_found_in_any_row_of_a_window(ieee_backend: str, kernel: Any, row: int) -> None:
    """Of channels that are compared together, one has a NaN."""
    x = np.random.default_rng(0).integers(-4, 5, (1, 3, 5, 20)).astype(np.float32)
    x[0, row, 2, 5] = NAN
    pool = PoolingMax(kernel)
    g = np.arange(1, 1 + x.size, dtype=np.float32).reshape(x.shape)
    np.testing.assert_array_equal(pool.gradient(g, x, backend=ieee_backend), pool.gradient(g, x))


@pytest.mark.parametrize("low", [-INF, np.finfo(np.float32).min])
def test_no_sentinel_leaks_where_everything_is_as_low_as_can_be(ieee_backend: str, low: float) -> None:
    x, g = image([low] * 4), image([1, 10, 100, 1000])
    y, gradient = pooled(line(3, 1, 0, "clamp"), x, g, ieee_backend)
    np.testing.assert_array_equal(y[0, 0, :, 0], [low] * 4)
    same(gradient, [11, 100, 1000, 0])
    y, gradient = pooled(line(3, 1, 0, "zero"), x, g, ieee_backend)
    np.testing.assert_array_equal(y[0, 0, :, 0], [0, low, low, 0])
    same(gradient, [10, 100, 0, 0])


def test_negative_and_positive_zero_are_a_tie(backend: str) -> None:
    _, gradient = pooled(line(2, 2, 1), image([-0.0, 0.0, 0.0, -0.0]), image([1, 10]), backend)
    same(gradient, [1, 0, 10, 0])


def test_pixels_that_no_window_reads_get_exactly_zero(backend: str) -> None:
    """Windows of two taps, three apart, at every eighth pixel."""
    x, g = quarters((2, 16, 16, 5)) + 4, np.ones((2, 2, 2, 5), np.float32)
    dx = PoolingMax(2, 8, 2, dilations=3).gradient(g, x, backend=backend)
    read = np.isin(np.arange(16) % 8, [0, 3])
    assert not dx[:, ~np.logical_and.outer(read, read)].any()
    assert dx.sum() == g.sum()


@pytest.mark.parametrize("channels", [1, 7, 8, 11, 20, 43])
@pytest.mark.parametrize(
    ("kernel", "stride", "edge"), [(2, 2, "clamp"), (3, 2, "clamp"), (3, 1, "zero"), (5, 1, "clamp")]
)
def test_any_number_of_channels(backend: str, channels: int, kernel: int, stride: int, edge: Any) -> None:
    """Vectors of channels, whole and in part, of windows that overlap, and of some that do not."""
    pool = PoolingMax(kernel, stride, kernel // 2, edge)
    x = quarters((2, 9, 6, channels))
    g = quarters((2, *pool.default_outputs(x.shape), channels), seed=1)
    dx = pool.gradient(g, x, backend=backend)
    oracle_pooling.assert_close(dx, oracle.gradient(pool, g, x), backend)


@pytest.mark.parametrize("far", [-(2**61), -1000, 1000, 2**61])
def test_far_windows_read_zeros_or_the_corner(backend: str, far: int) -> None:
    x, g = quarters((2, 4, 5, 3)), quarters((2, 2, 3, 3), seed=1)
    for offset in [(far, 0), (0, far), (far, -far)]:
        y, dx = pooled(PoolingMax(3, 1, offset), x, g, backend)
        assert not y.any()
        assert not dx.any()
    y, dx = pooled(PoolingMax(3, 1, (far, far), "clamp"), x, g, backend)
    corner = (slice(None), 0, 0) if far < 0 else (slice(None), -1, -1)
    np.testing.assert_array_equal(y, np.broadcast_to(x[corner][:, None, None], y.shape))
    np.testing.assert_array_equal(dx[corner], g.sum(axis=(1, 2)))
    assert np.count_nonzero(dx.any(axis=(0, 3))) == 1


def test_the_axes_are_not_mixed_up(backend: str) -> None:
    """Each parameter in turn differs between the axes: swapping the axes of everything swaps those of the result."""
    x, g = np.random.default_rng(0).standard_normal((2, 9, 11, 3)).astype(np.float32), quarters((2, 4, 3, 3), seed=1)
    plain: dict[str, Any] = {"kernel_size": (3, 3), "strides": (2, 2), "offset": (0, 0), "dilations": (1, 1)}
    for name, pair in [("kernel_size", (2, 5)), ("strides", (1, 3)), ("offset", (-1, 2)), ("dilations", (1, 3))]:
        y, dx = pooled(PoolingMax(**plain | {name: pair}), x, g, backend)
        swapped = PoolingMax(**plain | {name: pair[::-1]})
        y_swapped, dx_swapped = pooled(swapped, x.swapaxes(1, 2), g.swapaxes(1, 2), backend)
        np.testing.assert_array_equal(y, y_swapped.swapaxes(1, 2))
        np.testing.assert_array_equal(dx, dx_swapped.swapaxes(1, 2))
        assert not np.array_equal(y, PoolingMax(**plain).forward(x, (4, 3), backend=backend))


def test_a_large_window_is_the_maximum_of_the_image(backend: str) -> None:
    x, g = quarters((2, 6, 7, 5)), np.ones((2, 1, 1, 5), np.float32)
    y, dx = pooled(PoolingMax(99, 1, 3, "clamp"), x, g, backend)
    np.testing.assert_array_equal(y[:, 0, 0], x.max(axis=(1, 2)))
    first = x.reshape(2, -1, 5).argmax(axis=1)
    np.testing.assert_array_equal(dx.reshape(2, -1, 5).argmax(axis=1), first)
    assert dx.sum() == 10


def test_the_gradient_needs_the_image(backend: str) -> None:
    with pytest.raises(
        TypeError, match=r"x is the shape \(1, 4, 4, 1\); PoolingMax.gradient reads its values: pass the array itself"
    ):
        PoolingMax(2).gradient(np.ones((1, 4, 4, 1), np.float32), (1, 4, 4, 1), backend=backend)
