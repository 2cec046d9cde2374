"""Pooling by brute force: one window, one tap and one pixel at a time, as the definitions read.

Nothing here calls the code under test: of a spec only the parameters are read. Also what the tests draw: windows in all
the odd places, images, gradient parameters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st

from mpsref import PoolingAverage, PoolingL2Norm, PoolingMax, registry
from mpsref.arguments.arrays import Array
from mpsref.geometry import EDGE_MODES

Pool = PoolingAverage | PoolingMax | PoolingL2Norm
Pixel = tuple[int, int]


class Answer(NamedTuple):
    """A result in float64, the sum of the absolute values of its terms, and how many there are."""

    value: Array
    magnitude: Array
    terms: Array


class Axis(NamedTuple):
    kernel: int
    stride: int
    dilation: int
    offset: int
    edge: str
    ring: int | None
    """Zeros around the image that an average counts; None: another kernel, which reads the border again for "clamp"."""

    @property
    def extent(self) -> int:
        return self.dilation * (self.kernel - 1) + 1

    def taps(self, i: int) -> list[int]:
        """The coordinates that window i reads, inside the image or not."""
        return [self.offset + self.stride * i - self.extent // 2 + self.dilation * tap for tap in range(self.kernel)]

    def reads(self, i: int, length: int) -> list[int | None]:
        """What each tap of window i reads; None is a zero outside the image."""
        again = self.edge == "clamp" and self.ring is None
        return [min(max(j, 0), length - 1) if again or 0 <= j < length else None for j in self.taps(i)]


def axes(pool: Pool) -> list[Axis]:
    """The parameters of y and those of x."""
    dilations, rings = getattr(pool, "dilations", (1, 1)), getattr(pool, "zero_pad_size", (None, None))
    numbers: Any = zip(
        pool.kernel_size, pool.strides, dilations, pool.offset, (pool.edge_mode,) * 2, rings, strict=True
    )
    return [Axis(*one) for one in numbers]


def divisor_of(axis: Axis, i: int, length: int) -> int:
    """What the sum of window i of an average is divided by."""
    ring = axis.ring or 0
    return axis.kernel if axis.edge == "zero" else sum(-ring <= j < length + ring for j in axis.taps(i))


def inside(axis: Axis, i: int, length: int) -> list[int]:
    return [j for j in axis.taps(i) if 0 <= j < length]


def included(length: int, p0: int, size: int | None) -> list[int]:
    """The gradient pixels that count."""
    return [u for u in range(length) if u >= p0 and (size is None or u < p0 + size)]


def divisor(pool: Pool, shape: tuple[int, ...], a: int, b: int) -> int:
    y, x = axes(pool)
    return divisor_of(y, a, shape[1]) * divisor_of(x, b, shape[2])


def taps(pool: Pool, shape: tuple[int, ...], a: int, b: int) -> list[Pixel | None]:
    """The pixel of each tap of window (a, b), in raster order."""
    rows, columns = (axis.reads(i, n) for axis, i, n in zip(axes(pool), (a, b), shape[1:3], strict=True))
    return [None if y is None or x is None else (y, x) for y in rows for x in columns]


def value(x: Array, pixel: Pixel | None) -> Array:
    """What a tap reads, of all images and channels (N, C)."""
    return np.zeros((x.shape[0], x.shape[3])) if pixel is None else x[:, pixel[0], pixel[1]].astype(np.float64)


def selected(x: Array, window: list[Pixel | None]) -> tuple[Array, Array]:
    """The largest number and its tap: a later one must be larger. Of NaN alone they are -inf and -1."""
    best, which = np.full((x.shape[0], x.shape[3]), -np.inf), np.full((x.shape[0], x.shape[3]), -1)
    for tap, pixel in enumerate(window):
        v = value(x, pixel)
        better = (v > best) | ((v == best) & (which < 0))
        best, which = np.where(better, v, best), np.where(better, tap, which)
    return best, which


def norm(x: Array, window: list[Pixel | None]) -> Array:
    total = np.zeros((x.shape[0], x.shape[3]))
    for pixel in window:
        total += value(x, pixel) ** 2
    return np.sqrt(total)


def shares(pool: Pool, x: Any, a: int, b: int) -> Iterator[tuple[Pixel, Array]]:
    """Yield each pixel of window (a, b) and d output / d pixel, (N, C)."""
    window = taps(pool, shape_of(x), a, b)
    if isinstance(pool, PoolingAverage):
        for pixel in window:
            if pixel is not None:
                yield pixel, np.float64(1 / divisor(pool, shape_of(x), a, b))
    elif isinstance(pool, PoolingMax):
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
    return -(-height * width // 2) if isinstance(pool, PoolingL2Norm) else 0


def shape_of(x: Any) -> tuple[int, ...]:
    """Of an image, or a shape in place of it."""
    return x if isinstance(x, tuple) else x.shape


def forward(pool: Pool, x: Array, output_size: Pixel) -> Answer:
    answer = Answer(*(np.zeros((x.shape[0], *output_size, x.shape[3])) for _ in range(3)))
    for a, b in np.ndindex(output_size):
        window = taps(pool, x.shape, a, b)
        if isinstance(pool, PoolingMax):
            answer.value[:, a, b], _ = selected(x, window)  # of no magnitude: nothing is rounded
        elif isinstance(pool, PoolingAverage):
            for pixel in filter(None, window):
                term = value(x, pixel) / divisor(pool, x.shape, a, b)
                for total, part in zip(answer, (term, np.abs(term), 1), strict=True):
                    total[:, a, b] += part
        else:
            answer.value[:, a, b] = answer.magnitude[:, a, b] = norm(x, window)
    if isinstance(pool, PoolingAverage):
        return answer
    return answer._replace(terms=(roundings(pool) + 4) * (answer.magnitude > 0))


def gradient(
    pool: Pool,
    g: Array,
    x: Any,
    primary_offset: Pixel = (0, 0),
    source_size: Pixel | None = None,
    kernel_offset: Pixel | None = None,
    clip: tuple[Pixel, Pixel] | None = None,
) -> Answer:
    """Scatter each included gradient pixel into the whole source, then move the clip's pixels to their place."""
    shape = shape_of(x)
    whole = Answer(*(np.zeros(shape) for _ in range(3)))
    for u in included(g.shape[1], primary_offset[0], source_size and source_size[0]):
        for v in included(g.shape[2], primary_offset[1], source_size and source_size[1]):
            for (row, column), share in shares(pool, x, u - primary_offset[0], v - primary_offset[1]):
                term = g[:, u, v].astype(np.float64) * share
                for total, part in zip(whole, (term, np.abs(term), share != 0), strict=True):
                    total[:, row, column] += part
    whole = whole._replace(terms=whole.terms + (roundings(pool) + 12) * (whole.terms > 0) * (roundings(pool) > 0))
    origin, size = clip or ((0, 0), shape[1:3])
    placed = Answer(*(np.zeros(shape) for _ in range(3)))
    inside = (max(0, min(n, length - at)) for n, length, at in zip(size, shape[1:3], origin, strict=True))
    for q in np.ndindex(*inside):
        to = tuple(at + k for at, k in zip(origin, q, strict=True))
        source = to
        if kernel_offset is not None:
            source = tuple(
                k + ko + axis.offset - (1 - axis.extent % 2)
                for k, ko, axis in zip(q, kernel_offset, axes(pool), strict=True)
            )
        if all(0 <= j < length for j, length in zip(source, shape[1:3], strict=True)):
            for moved, full in zip(placed, whole, strict=True):
                moved[:, to[0], to[1]] = full[:, source[0], source[1]]
    return placed


def unit_roundoff(backend: str, dtype: Any) -> float:
    """Half the spacing at 1 of the arithmetic that a backend computes in: float32, but for the reference."""
    if backend == "reference":
        return 2.0**-53
    if backend == "reference:input-dtype":
        return float(np.finfo(dtype).eps) / 2
    return 2.0**-24


def assert_close(actual: Array, answer: Answer, backend: str) -> None:
    """Require the bound ``gamma(m) * sum |terms| + ulp / 2`` with m = terms + 4, and exact zeros where nothing is read.

    The brute force itself rounds like float64, hence a second gamma.
    """
    assert actual.shape == answer.value.shape
    m = answer.terms + 4
    limit = np.full(actual.shape, 0.0)
    for u in (unit_roundoff(backend, actual.dtype), 2.0**-53):
        limit += m * u / (1 - m * u) * answer.magnitude
    larger = np.maximum(np.abs(actual), np.abs(answer.value)).astype(actual.dtype)
    limit += np.where(answer.terms > 0, np.spacing(larger).astype(np.float64) / 2, 0)
    error = np.abs(actual.astype(np.float64) - answer.value)
    worst = np.unravel_index(np.argmax(error - limit), error.shape)
    assert (error <= limit).all(), f"at {worst}: {actual[worst]}, brute force says {answer.value[worst]}"


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
    own = {"dilations": pairs(st.integers(1, 4), st.integers(1, 4)), "zero_pad_size": pairs(*[st.integers(0, 3)] * 2)}
    offsets = pairs(near, near) | pairs(*[st.sampled_from([-1000, 1000, 2**40])] * 2)
    more = {field.name: draw(own[field.name]) for field in fields(spec_type) if field.name in own}
    edge = st.sampled_from(EDGE_MODES)
    return spec_type(draw(pairs(small, small)), draw(sizes), draw(offsets), draw(edge), **more)
