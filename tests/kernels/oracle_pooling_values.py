"""Max and L2-norm pooling by brute force: one window, one tap and one pixel at a time, as their definitions read.

Nothing here calls the code under test. Of a :class:`mpsref.PoolingMax` or :class:`mpsref.PoolingL2Norm` only the
parameters are read. Also what the tests of both draw: windows in all the odd places, images, gradient parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from mpsref import PoolingL2Norm, PoolingMax, registry
from mpsref.arguments.arrays import Array
from mpsref.geometry import EDGE_MODES
from tests.kernels.oracle_pooling import Answer, included

Pool = PoolingMax | PoolingL2Norm
Pixel = tuple[int, int]


class Axis(NamedTuple):
    kernel: int
    stride: int
    dilation: int
    offset: int
    edge: str

    @property
    def extent(self) -> int:
        return self.dilation * (self.kernel - 1) + 1

    def reads(self, i: int, length: int) -> list[int | None]:
        """What each tap of window i reads; None is a zero outside the image."""
        found: list[int | None] = []
        for tap in range(self.kernel):
            j = self.offset + self.stride * i - self.extent // 2 + self.dilation * tap
            if 0 <= j < length:
                found.append(j)
            elif self.edge == "clamp":
                found.append(0 if j < 0 else length - 1)
            else:
                found.append(None)
        return found


def axes(pool: Pool) -> list[Axis]:
    """The parameters of y and those of x."""
    dilations = pool.dilations if isinstance(pool, PoolingMax) else (1, 1)
    numbers: list[Any] = [pool.kernel_size, pool.strides, dilations, pool.offset]
    y, x = (
        Axis(kernel, stride, dilation, offset, pool.edge_mode)
        for kernel, stride, dilation, offset in zip(*numbers, strict=True)
    )
    return [y, x]


def taps(pool: Pool, shape: tuple[int, ...], a: int, b: int) -> list[Pixel | None]:
    """The pixel of each tap of window (a, b), in raster order."""
    rows, columns = (axis.reads(i, n) for axis, i, n in zip(axes(pool), (a, b), shape[1:3], strict=True))
    return [None if y is None or x is None else (y, x) for y in rows for x in columns]


def value(x: Array, pixel: Pixel | None) -> Array:
    """What a tap reads, of all images and channels (N, C)."""
    return np.zeros((x.shape[0], x.shape[3])) if pixel is None else x[:, pixel[0], pixel[1]].astype(np.float64)


def selected(x: Array, window: list[Pixel | None]) -> tuple[Array, Array]:
    """The largest value and the number of its tap: a later one must be larger, and nothing beats the first NaN."""
    best, which = value(x, window[0]), np.zeros((x.shape[0], x.shape[3]), int)
    for tap, pixel in enumerate(window[1:], 1):
        v = value(x, pixel)
        better = (v > best) | (np.isnan(v) & ~np.isnan(best))
        best, which = np.where(better, v, best), np.where(better, tap, which)
    return best, which


def norm(x: Array, window: list[Pixel | None]) -> Array:
    total = np.zeros((x.shape[0], x.shape[3]))
    for pixel in window:
        total += value(x, pixel) ** 2
    return np.sqrt(total)


def shares(pool: Pool, x: Array, window: list[Pixel | None]) -> Iterator[tuple[Pixel, Array]]:
    """Yield each pixel of a window and d output / d pixel, (N, C)."""
    if isinstance(pool, PoolingMax):
        _, which = selected(x, window)
        for tap, pixel in enumerate(window):
            if pixel is not None:
                yield pixel, (which == tap) * 1.0
    else:
        y = norm(x, window)
        for pixel, times in Counter(pixel for pixel in window if pixel is not None).items():
            yield pixel, np.divide(times * value(x, pixel), y, out=np.zeros_like(y), where=y > 0)


def roundings(pool: Pool) -> int:
    """How many roundings in sequence the norm of a window adds to the 4 of a sum; a selection adds none."""
    height, width = (axis.kernel for axis in axes(pool))
    return 0 if isinstance(pool, PoolingMax) else -(-height * width // 2)


def forward(pool: Pool, x: Array, output_size: Pixel) -> Answer:
    answer = Answer(*(np.zeros((x.shape[0], *output_size, x.shape[3])) for _ in range(3)))
    for a, b in np.ndindex(output_size):
        window = taps(pool, x.shape, a, b)
        if isinstance(pool, PoolingMax):
            answer.value[:, a, b], _ = selected(x, window)  # of no magnitude: nothing is rounded
        else:
            answer.value[:, a, b] = answer.magnitude[:, a, b] = norm(x, window)
    terms = (roundings(pool) + 4) * (answer.magnitude > 0)
    return answer._replace(terms=terms)


def gradient(
    pool: Pool,
    g: Array,
    x: Array,
    primary_offset: Pixel = (0, 0),
    source_size: Pixel | None = None,
    kernel_offset: Pixel | None = None,
    clip: tuple[Pixel, Pixel] | None = None,
) -> Answer:
    """Scatter each included gradient pixel into the whole source, then move the clip's pixels to their place."""
    whole = Answer(*(np.zeros(x.shape) for _ in range(3)))
    for u in included(g.shape[1], primary_offset[0], source_size and source_size[0]):
        for v in included(g.shape[2], primary_offset[1], source_size and source_size[1]):
            window = taps(pool, x.shape, u - primary_offset[0], v - primary_offset[1])
            for (row, column), share in shares(pool, x, window):
                term = g[:, u, v].astype(np.float64) * share
                for total, part in zip(whole, (term, np.abs(term), share != 0), strict=True):
                    total[:, row, column] += part
    whole = whole._replace(terms=whole.terms + (roundings(pool) + 12) * (whole.terms > 0) * (roundings(pool) > 0))
    origin, size = clip or ((0, 0), x.shape[1:3])
    placed = Answer(*(np.zeros(x.shape) for _ in range(3)))
    inside = (max(0, min(n, length - at)) for n, length, at in zip(size, x.shape[1:3], origin, strict=True))
    for q in np.ndindex(*inside):
        to = tuple(at + k for at, k in zip(origin, q, strict=True))
        source = to
        if kernel_offset is not None:
            source = tuple(
                k + ko + axis.offset - (1 - axis.extent % 2)
                for k, ko, axis in zip(q, kernel_offset, axes(pool), strict=True)
            )
        if all(0 <= j < length for j, length in zip(source, x.shape[1:3], strict=True)):
            for moved, full in zip(placed, whole, strict=True):
                moved[:, to[0], to[1]] = full[:, source[0], source[1]]
    return placed


def require(backend: str, spec_type: type[Pool]) -> str:
    """Skip, with the reason, on a backend that lacks the kernel; the reference must have it."""
    methods = ("forward", "gradient")
    reasons = [registry.get_backend(backend).why_not((spec_type, method), spec_type(1)) for method in methods]
    reason = "; ".join(reason for reason in reasons if reason)
    if reason and not backend.startswith("reference"):
        pytest.skip(reason)
    assert not reason
    return backend


def image(rows: Any) -> Array:
    """Rows of one channel of one image; a flat list is one row."""
    return np.atleast_2d(np.array(rows, np.float32))[None, :, :, None]


def same(actual: Array, rows: Any) -> None:
    """Equal to numbers that are written with seven digits."""
    np.testing.assert_allclose(actual[0, :, :, 0], np.atleast_2d(rows), rtol=6e-7, atol=0)


def quarters(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Array:
    """Multiples of 1/4 around 0: often equal, now and then 0, never so small that float16 loses them."""
    return (np.random.default_rng((seed, *shape)).integers(-12, 13, shape) / 4).astype(dtype)


pairs = st.tuples
small = st.integers(1, 5)
near = st.integers(-7, 9)
images = pairs(st.integers(1, 2), st.integers(1, 7), st.integers(1, 7), st.sampled_from([1, 3, 5]))
sizes = pairs(small, small)
dtypes = st.sampled_from(["float32", "float16"])
calls = st.fixed_dictionaries(
    {},
    optional={
        "primary_offset": pairs(st.integers(-2, 3), st.integers(-2, 3)),
        "source_size": pairs(st.integers(0, 5), st.integers(0, 5)),
        "kernel_offset": pairs(near, near),
        "clip": pairs(pairs(st.integers(0, 8), st.integers(0, 8)), pairs(st.integers(0, 9), st.integers(0, 9))),
    },
)


@st.composite
def pools(draw: st.DrawFn, spec_type: type[Any]) -> Any:
    """Windows that touch the image, leave it, or lie far outside."""
    own = {"dilations": pairs(st.integers(1, 4), st.integers(1, 4))}
    offsets = pairs(near, near) | pairs(*[st.sampled_from([-1000, 1000, 2**40])] * 2)
    more = {field.name: draw(own[field.name]) for field in fields(spec_type) if field.name in own}
    edge = st.sampled_from(EDGE_MODES)
    return spec_type(draw(pairs(small, small)), draw(sizes), draw(offsets), draw(edge), **more)
