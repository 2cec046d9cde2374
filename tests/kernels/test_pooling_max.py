"""Max pooling: worked numbers, ties, what zeros outside win, NaN, dilation, differentiation."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mpsref import PoolingMax
from mpsref.arguments.arrays import Array
from tests.kernels import oracle_pooling as oracle
from tests.kernels.oracle_pooling import image, same

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


LINES_WITH_NAN = (
    ([1, NAN, 2, 3], [1, 2, 3, 3], [1, 0, 2, 12]),
    ([5, NAN, NAN, NAN, NAN], [5, 5, -INF, -INF, -INF], [3, 0, 0, 0, 0]),
    ([NAN, NAN, -INF, NAN, NAN], [-INF] * 5, [0, 0, 14, 0, 0]),
    ([-INF, NAN, -INF, INF, NAN], [-INF, -INF, INF, INF, INF], [3, 0, 0, 28, 0]),
    ([NAN] * 5, [-INF] * 5, [0] * 5),
)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("channels", [1, 3, 8, 21, 40])  # scalars, vectors, and vectors that overlap
def test_maxima_skip_nan(ieee_backend: str, dtype: Any, channels: int) -> None:
    """The window is the whole image high, of which one row has the numbers."""
    for high, (x, out, dx) in itertools.product((1, 2, 9), LINES_WITH_NAN):  # by taps, and by keys
        source = np.full((1, high, len(x), channels), NAN, dtype)
        source[0, high // 2] = np.array(x, dtype)[:, None]
        source[..., channels // 2 + 1 :] = 0.5  # other channels select other pixels
        g = np.repeat(image([1, 2, 4, 8, 16][: len(x)]), channels, axis=3).astype(dtype)
        pool, of = PoolingMax((high, 3), offset=(high // 2, 0), edge_mode="clamp"), f"{x}, {high} rows"
        y = pool.forward(source, (1, len(x)), backend=ieee_backend)
        gradient = pool.gradient(g, source, backend=ieee_backend)
        for c in range(channels // 2 + 1):
            np.testing.assert_array_equal(y[0, 0, :, c], out, of)
            np.testing.assert_array_equal(gradient[0, high // 2, :, c], dx, of)
        assert np.count_nonzero(gradient[..., : channels // 2 + 1]) == np.count_nonzero(dx) * (channels // 2 + 1), of


@pytest.mark.parametrize(
    ("spec", "x", "out", "dx"),
    [
        (line(3), [-1, NAN, -2, NAN], [0, -1, -2, 0], [10, 0, 100, 0]),  # zeros outside are numbers
        (line(3), [NAN] * 4, [0, -INF, -INF, 0], [0] * 4),
        (line(3, edge="clamp", dilation=2), [NAN, 4, 3, NAN], [3, 4, 3, 4], [0, 1010, 101, 0]),
        (line(7, edge="clamp", dilation=2), [NAN, 4, NAN, 3], [3, 4, 3, 4], [0, 1010, 0, 101]),
    ],
)
def test_nan_beside_taps_outside(ieee_backend: str, spec: Any, x: Any, out: Any, dx: Any) -> None:
    y, gradient = pooled(spec, image(x), image([1, 10, 100, 1000]), ieee_backend)
    np.testing.assert_array_equal(y[0, 0, :, 0], out)
    np.testing.assert_array_equal(gradient[0, 0, :, 0], dx)


def test_a_clip_leaves_out_windows_of_nan(ieee_backend: str) -> None:
    x, g = image([1, NAN, NAN, NAN, 2, NAN]), image([1, 10, 100, 1000, 10000, 100000])
    gradient = line(3, edge="clamp").gradient(g, x, clip=((0, 1), (1, 4)), backend=ieee_backend)
    np.testing.assert_array_equal(gradient[0, 0, :, 0], [0, 0, 0, 0, 111000, 0])


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


def test_the_gradient_needs_the_image(backend: str) -> None:
    with pytest.raises(
        TypeError, match=r"x is the shape \(1, 4, 4, 1\); PoolingMax.gradient reads its values: pass the array itself"
    ):
        PoolingMax(2).gradient(np.ones((1, 4, 4, 1), np.float32), (1, 4, 4, 1), backend=backend)
