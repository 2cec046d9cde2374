"""Average pooling: worked numbers, and windows in all the odd places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import PoolingAverage, ShapeError
from mpsref.arguments.arrays import Array
from tests.kernels import oracle_pooling as oracle
from tests.kernels.oracle_pooling import image, same

F32 = np.float32


def line(kernel: int, stride: int, offset: int, edge: Any = "zero", ring: int = 0) -> PoolingAverage:
    """A pool along x alone."""
    return PoolingAverage((1, kernel), (1, stride), (0, offset), edge, (0, ring))


SQUARE = image(np.arange(1, 17).reshape(4, 4))
SQUARE_G = image([[36, 72], [108, 144]])
NINTHS = [[14 / 9, 30 / 9], [57 / 9, 11]]
SQUARES = [
    ("zero", 0, NINTHS, [[4, 12, 8, 8], [16, 40, 24, 24], [12, 28, 16, 16], [12, 28, 16, 16]]),
    ("clamp", 1, NINTHS, [[4, 12, 8, 8], [16, 40, 24, 24], [12, 28, 16, 16], [12, 28, 16, 16]]),
    ("clamp", 0, [[3.5, 5], [9.5, 11]], [[9, 21, 12, 12], [27, 55, 28, 28], [18, 34, 16, 16], [18, 34, 16, 16]]),
]


@pytest.mark.parametrize(("edge", "ring", "out", "dx"), SQUARES)
def test_overlapping_windows_on_a_square(backend: str, edge: Any, ring: int, out: Any, dx: Any) -> None:
    pool = PoolingAverage(3, 2, 0, edge, ring)
    same(pool.forward(SQUARE, (2, 2), backend=backend), out)
    same(pool.gradient(SQUARE_G, SQUARE.shape, backend=backend), dx)


@pytest.mark.parametrize(
    ("edge", "ring", "out", "dx"),
    [
        ("zero", 0, [0.75, 3.5, 1.25], [3, 6, 3, 3, 6]),
        ("zero", 7, [0.75, 3.5, 1.25], [3, 6, 3, 3, 6]),  # the ring is ignored
        ("clamp", 0, [1.5, 3.5, 5], [6, 9, 3, 3, 15]),
        ("clamp", 1, [1, 3.5, 2.5], [4, 7, 3, 3, 9]),
        ("clamp", 2, [0.75, 3.5, 5 / 3], [3, 6, 3, 3, 7]),
    ],
)
def test_overhang_larger_than_the_ring(backend: str, edge: Any, ring: int, out: Any, dx: Any) -> None:
    x, g, pool = image([1, 2, 3, 4, 5]), image([12, 12, 12]), line(4, 3, 0, edge, ring)
    same(pool.forward(x, (1, 3), backend=backend), out)
    same(pool.gradient(g, x, backend=backend), dx)


@pytest.mark.parametrize(
    ("edge", "ring", "out", "dx"),
    [
        ("zero", 0, [0, 2, 0], [0, 5]),
        ("clamp", 0, [0, 4, 0], [0, 10]),
        ("clamp", 1, [0, 2, 0], [0, 5]),
        ("clamp", 3, [0, 2, 0], [0, 5]),
    ],
)
def test_windows_wholly_outside(backend: str, edge: Any, ring: int, out: Any, dx: Any) -> None:
    x, g, pool = image([2, 4]), image([1, 10, 100]), line(2, 3, -1, edge, ring)
    same(pool.forward(x, (1, 3), backend=backend), out)
    same(pool.gradient(g, x, backend=backend), dx)


@pytest.mark.parametrize(
    ("kernel", "offset", "zero", "clamp"),
    [
        (2, 0, [[0, 1.25, 2.75], [10, 22.5, 25.5]], [[0, 2.5, 5.5], [20, 22.5, 25.5]]),
        (2, 1, [[4.5, 7.5, 10.5], [28.5, 31.5, 34.5]], [[4.5, 7.5, 10.5], [28.5, 31.5, 34.5]]),
        (3, 1, [[9, 12, 29 / 3], [58 / 3, 64 / 3, 46 / 3]], [[9, 12, 14.5], [29, 32, 34.5]]),
    ],
)
def test_the_placements_drawn_in_the_header(backend: str, kernel: int, offset: int, zero: Any, clamp: Any) -> None:
    x = image(np.arange(40).reshape(5, 8))
    same(PoolingAverage(kernel, 3, offset, "zero").forward(x, (2, 3), backend=backend), zero)
    same(PoolingAverage(kernel, 3, offset, "clamp").forward(x, (2, 3), backend=backend), clamp)


@pytest.mark.parametrize(
    ("call", "dx"),
    [
        ({}, [0, 1, 1, 1, 0, 10, 10, 10, 0]),
        ({"clip": ((0, 1), (1, 8))}, [0, 1, 1, 1, 0, 10, 10, 10, 0]),
        ({"clip": ((0, 1), (1, 8)), "kernel_offset": (0, -1)}, [0, 1, 1, 1, 0, 10, 10, 10, 0]),
        ({"kernel_offset": (0, -1)}, [1, 1, 1, 0, 10, 10, 10, 0, 0]),
        ({"primary_offset": (0, 1)}, [0, 10, 10, 10, 0, 0, 0, 0, 0]),
        ({"source_size": (1, 1)}, [0, 1, 1, 1, 0, 0, 0, 0, 0]),
        ({"primary_offset": (0, -1)}, [0, 0, 0, 0, 0, 1, 1, 1, 0]),
        ({"primary_offset": (0, 2)}, [0] * 9),
        ({"source_size": (1, 0)}, [0] * 9),
        ({"clip": ((0, 1), (0, 8))}, [0] * 9),
        ({"clip": ((0, 9), (1, 1))}, [0] * 9),
        ({"clip": ((0, 6), (9, 99))}, [0, 0, 0, 0, 0, 0, 10, 10, 0]),
    ],
)
def test_alignment_of_a_gradient(backend: str, call: dict[str, Any], dx: list[int]) -> None:
    same(line(3, 4, 2).gradient(image([3, 30]), (1, 1, 9, 1), **call, backend=backend), dx)


def test_the_default_output_ends_with_the_last_centre_inside(backend: str) -> None:
    x = image(np.ones((5, 8)))
    sizes = [PoolingAverage(1, s, o).forward(x, backend=backend).shape[1:3] for s, o in [(1, 0), (3, 2), (2, -3)]]
    assert sizes == [(5, 8), (1, 2), (4, 6)]


def test_there_is_no_default_output_behind_the_image() -> None:
    with pytest.raises(ShapeError, match=r"offset is \(0, 8\).*behind an image of shape \(1, 5, 8, 1\).*5, 0"):
        PoolingAverage(2, offset=(0, 8)).forward(image(np.ones((5, 8))))


def noise(shape: tuple[int, ...], dtype: Any = F32, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def test_a_stride_reaches_far_windows_from_far_away(backend: str) -> None:
    far = 2**40
    pool, x = PoolingAverage(2, far, 1 - 2 * far), noise((1, 2, 2, 3))
    y = pool.forward(x, (4, 3), backend=backend)
    assert np.flatnonzero(y.any(axis=(0, 2, 3))).tolist() == [2]
    oracle.assert_close(y, oracle.forward(pool, x, (4, 3)), backend)


def test_a_window_larger_than_the_image_is_the_mean(backend: str) -> None:
    x = image(np.arange(1, 65).reshape(8, 8))
    same(PoolingAverage(99, 1, 3, "clamp").forward(x, (2, 2), backend=backend), [[32.5, 32.5], [32.5, 32.5]])
    same(PoolingAverage(16, 1, 4, "zero").forward(x, (1, 1), backend=backend), [[65 * 32 / 256]])


def test_float16_is_rounded_once_from_more_precision() -> None:
    """The sum 2048 + 1 + 1 + ... is lost in float16 arithmetic, which "reference:input-dtype" alone may use."""
    x = np.concatenate([[2048.0], np.ones(15)]).astype(np.float16).reshape(1, 1, 16, 1)
    pool = PoolingAverage((1, 16), offset=(0, 8))
    assert pool.forward(x, (1, 1)).item() == np.float16(2063 / 16)


def test_float16_overflows_to_infinity(backend: str) -> None:
    g = np.full((1, 1, 3, 1), 60000, np.float16)
    dx = line(3, 1, 0, "clamp").gradient(g, (1, 1, 1, 1), backend=backend)  # every window holds the one pixel alone
    assert dx.item() == np.inf
    assert dx.dtype == np.float16
