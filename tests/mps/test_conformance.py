"""The object layer as a whole.

Whatever way a forward kernel ran, the gradient kernel that its state configures computes the exact adjoint; and by hand
a gradient kernel does what its properties say.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.errors import ShapeError
from mpsref.kernels import PoolingAverage, PoolingL2Norm, PoolingMax
from tests import examples

AVERAGE, MAX, NORM, DILATED = "average", "max", "norm", "dilated"
FORWARD: dict[str, Any] = {
    AVERAGE: mps.MPSCNNPoolingAverage,
    MAX: mps.MPSCNNPoolingMax,
    NORM: mps.MPSCNNPoolingL2Norm,
    DILATED: mps.MPSCNNDilatedPoolingMax,
}
GRADIENT: dict[str, Any] = {
    AVERAGE: mps.MPSCNNPoolingAverageGradient,
    MAX: mps.MPSCNNPoolingMaxGradient,
    NORM: mps.MPSCNNPoolingL2NormGradient,
    DILATED: mps.MPSCNNDilatedPoolingMaxGradient,
}
METHODS = [a | r | s for a in (0, 1, 2) for r in (0, 4, 8, 12) for s in (0, 0x10, 0x20)]


class Numbers(NamedTuple):
    """A pooling kernel, in Apple's order (x, y)."""

    kind: str
    size: tuple[int, int]
    dilation: tuple[int, int]
    stride: tuple[int, int]
    ring: tuple[int, int]

    @property
    def arguments(self) -> tuple[int, ...]:
        return (*self.size, *(self.dilation if self.kind == DILATED else ()), *self.stride)

    def spec(self, offset: Any, edge_mode: int) -> Any:
        """The functional form of it."""
        call: dict[str, Any] = {
            "kernel_size": self.size[::-1],
            "strides": self.stride[::-1],
            "offset": (offset[1], offset[0]),
            "edge_mode": ("zero", "clamp")[edge_mode],
        }
        if self.kind == AVERAGE:
            return PoolingAverage(**call, zero_pad_size=self.ring[::-1])
        return PoolingL2Norm(**call) if self.kind == NORM else PoolingMax(**call, dilations=self.dilation[::-1])


class Pass(NamedTuple):
    """A forward pass: its kernel, what it reads, and in which way it runs."""

    numbers: Numbers
    pool: Any
    x: Array
    call: dict[str, Any]
    read: tuple[slice, slice]
    """Images and channels that are read."""


def pairs(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@st.composite
def kernels(draw: st.DrawFn, kinds: tuple[str, ...]) -> Numbers:
    kind = draw(st.sampled_from(kinds))
    sizes = st.sampled_from([1, 2, 4]) if kind == AVERAGE else st.integers(1, 4)  # areas that divide exactly
    return Numbers(
        kind,
        draw(st.tuples(sizes, sizes)),
        draw(pairs(1, 3)) if kind == DILATED else (1, 1),
        draw(pairs(1, 4)),
        draw(pairs(0, 2)) if kind == AVERAGE else (0, 0),
    )


@st.composite
def passes(draw: st.DrawFn, kinds: tuple[str, ...], pixels: int = 8, channels: int = 10) -> Pass:
    """Any policy or offset, clip, channels, images, edge mode; any way to get a destination."""
    numbers = draw(kernels(kinds))
    n, (width, height), c = draw(st.integers(1, 3)), draw(pairs(1, pixels)), draw(st.integers(1, channels))
    z = draw(st.integers(0, n - 1))
    first = 4 * draw(st.integers(0, (c - 1) // 4))
    count = draw(st.none() | st.integers(1, 9))
    read = min(count or c, c - first)
    pool = FORWARD[numbers.kind](
        *numbers.arguments,
        offset=(*draw(pairs(-4, 6)), z),
        edge_mode=draw(st.sampled_from([0, 1])),
        source_feature_channel_offset=first,
        source_feature_channel_max_count=count,
        destination_feature_channel_offset=4 * draw(st.integers(0, 2)),
        padding=mps.MPSNNDefaultPadding.padding_with_method(draw(st.sampled_from(METHODS))),
    )
    if numbers.kind == AVERAGE:
        pool.zero_pad_size_x, pool.zero_pad_size_y = numbers.ring
    depth, corner = n - z, 0
    if draw(st.booleans()):
        depth, corner = draw(st.integers(0, n - z)), draw(st.integers(0, 2))
        pool.clip_rect = ((*draw(pairs(0, 3)), corner), (*draw(pairs(0, 7)), depth))
    way = draw(st.sampled_from(["padding", "size", "image"]))
    call: dict[str, Any] = {}
    if way == "size":
        call["destination_size"] = draw(pairs(1, 7))
    elif way == "image":
        more, wide = (
            (draw(st.integers(0, 2)), draw(st.integers(0, 2))) if pool.clip_rect else (0, draw(st.integers(0, 2)))
        )
        shape = (corner + depth + more, *draw(pairs(1, 7)), pool.destination_feature_channel_offset + read + wide)
        call["destination_image"] = np.full(shape, 99, np.float32)
    x = exact(draw, (n, height, width, c))
    return Pass(numbers, pool, x, call, (slice(z, z + depth), slice(first, first + read)))


def exact(draw: st.DrawFn, shape: tuple[int, ...]) -> Array:
    """Distinct small integers in any order, or a few that repeat: sums of products of them are exact in float32."""
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    if draw(st.booleans()):
        return generator.integers(-2, 3, shape).astype(np.float32)
    return (generator.permutation(int(np.prod(shape))).reshape(shape) % 61 - 30).astype(np.float32)


def run(one: Pass) -> tuple[Array, Any]:
    """Run the forward pass; draw again where no window fits."""
    try:
        result: tuple[Array, Any] = one.pool.encode(one.x, **one.call, return_state=True)
    except ShapeError as error:
        assert "no window fits" in str(error)  # noqa: PT017  # any other error is a failure
        assume(False)
        raise
    return result


def written(pool: Any, shape: tuple[int, ...], channels: int) -> tuple[slice, ...]:
    """Images, rows, columns and channels of the destination that the clip rectangle covers."""
    (x, y, z), (w, h, d) = pool.clip_rect or ((0, 0, 0), (99, 99, shape[0]))
    c = pool.destination_feature_channel_offset
    return (
        slice(z, z + d),
        slice(y, max(y, min(y + h, shape[1]))),
        slice(x, max(x, min(x + w, shape[2]))),
        slice(c, c + channels),
    )


def source_gradient(data: st.DataObject, shape: tuple[int, ...], cut: tuple[slice, ...]) -> tuple[Array, Array]:
    """A source gradient for the whole destination or, axis by axis, for the clip alone; and the part that counts."""
    whole = exact(data.draw, shape)
    shown = [part.stop > part.start and data.draw(st.booleans()) for part in cut]  # no image is 0 pixels wide
    return whole[tuple(s if only else slice(None) for s, only in zip(cut, shown, strict=True))], whole[cut]


FAMILIES = [(AVERAGE,), (MAX, DILATED), (NORM,)]


@pytest.mark.parametrize("kinds", FAMILIES, ids="-".join)
def test_a_configured_gradient_is_the_adjoint_of_the_forward_pass(kinds: tuple[str, ...]) -> None:

    @examples(30)
    @given(passes(kinds), st.data())
    def check(one: Pass, data: st.DataObject) -> None:
        y, state = run(one)
        images, channels = one.read
        region = written(one.pool, y.shape, channels.stop - channels.start)
        g, part = source_gradient(data, y.shape, region)
        gradient = GRADIENT[one.numbers.kind](*one.numbers.arguments)
        dx = gradient.encode(g, one.x, state)

        spec = one.numbers.spec(one.pool.offset, one.pool.edge_mode)
        inside = one.x[images, :, :, channels]
        forward, backward = np.full_like(y, 99 if "destination_image" in one.call else 0), np.zeros_like(one.x)
        if part.size:
            forward[region] = spec.forward(inside, part.shape[1:3])
            backward[images, :, :, channels] = spec.gradient(part, inside)
        np.testing.assert_array_equal(y, forward)
        np.testing.assert_array_equal(dx, backward)

        left, right = (a.astype(np.float64) * b for a, b in ((y[region], part), (dx, one.x)))
        exact_sums = one.numbers.kind in (MAX, DILATED) or (one.numbers.kind == AVERAGE and one.pool.edge_mode == 0)
        slack = 0 if exact_sums else 1e-5 * (np.abs(left).sum() + np.abs(right).sum())
        assert abs(left.sum() - right.sum()) <= slack

    check()


@examples(25)
@given(passes((AVERAGE,), pixels=4, channels=5), st.data())
def test_the_adjoint_is_the_transposed_matrix(one: Pass, data: st.DataObject) -> None:
    """Column j of the matrix is what the forward kernel makes of the j-th unit image."""
    start = one.pool.copy()
    if "destination_image" in one.call:
        one.call["destination_image"] = np.zeros_like(one.call["destination_image"], np.float64)
    y, state = run(one._replace(x=one.x.astype(np.float64)))
    g = exact(data.draw, y.shape).astype(np.float64)
    units = np.eye(one.x.size).reshape(-1, *one.x.shape)
    columns = [start.copy().encode(unit, **one.call).ravel().copy() for unit in units]
    expected = (np.array(columns) @ g.ravel()).reshape(one.x.shape)
    dx = GRADIENT[AVERAGE](*one.numbers.arguments).encode(g, one.x.astype(np.float64), state)
    np.testing.assert_allclose(dx, expected, rtol=1e-12, atol=1e-12)


class Manual(NamedTuple):
    """A gradient pass whose properties are all set by hand."""

    numbers: Numbers
    gradient: Any
    g: Array
    x: Array
    dx: Array


@st.composite
def manual_passes(draw: st.DrawFn, kinds: tuple[str, ...]) -> Manual:
    numbers = draw(kernels(kinds))
    depth, channels = draw(st.integers(1, 2)), draw(st.integers(1, 5))
    z = [draw(st.integers(0, 1)) for _ in range(3)]
    first = [4 * draw(st.integers(0, 1)) for _ in range(3)]
    offsets = st.integers(-9, 9)
    gradient = GRADIENT[numbers.kind](
        *numbers.arguments,
        primary_offset=(*draw(pairs(-2, 3)), z[0]),
        secondary_offset=(*draw(pairs(-3, 6)), z[1]),
        secondary_edge_mode=draw(st.sampled_from([0, 1])),
        primary_source_feature_channel_offset=first[0],
        secondary_source_feature_channel_offset=first[1],
        destination_feature_channel_offset=first[2],
        primary_source_feature_channel_max_count=channels,
        secondary_source_feature_channel_max_count=channels,
        source_size=draw(st.none() | st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))),
        kernel_offset_x=draw(offsets),
        kernel_offset_y=draw(offsets),
        clip_rect=((*draw(pairs(0, 4)), z[2]), (*draw(pairs(0, 9)), depth)),
    )
    if numbers.kind == AVERAGE:
        gradient.zero_pad_size_x, gradient.zero_pad_size_y = numbers.ring
    g, x, dx = (exact(draw, (z[k] + depth, *draw(pairs(1, 7)), first[k] + channels)) for k in range(3))
    return Manual(numbers, gradient, g, x, dx)


def represented(offset: int, size: int, dilation: int, kernel_offset: int) -> int:
    """The source pixel of the first pixel of the clip."""
    extent = (size - 1) * dilation + 1
    return max(0, offset - extent // 2) + kernel_offset


@pytest.mark.parametrize("kinds", FAMILIES, ids="-".join)
def test_by_hand_a_gradient_does_what_its_properties_say(kinds: tuple[str, ...]) -> None:

    @examples(30)
    @given(manual_passes(kinds))
    def check(one: Manual) -> None:
        kernel, numbers = one.gradient, one.numbers
        was, before = kernel.copy(), one.dx.copy()
        assert kernel.encode(one.g, one.x, None, one.dx) is one.dx
        assert kernel == was

        (px, py, pz), (sx, sy, sz) = kernel.primary_offset, kernel.secondary_offset
        (cx, cy, cz), (width, height, depth) = kernel.clip_rect
        counts = [array.shape[3] for array in (one.g, one.x, one.dx)]
        g = one.g[pz : pz + depth, :, :, kernel.primary_source_feature_channel_offset : counts[0]]
        x = one.x[sz : sz + depth, :, :, kernel.secondary_source_feature_channel_offset : counts[1]]
        size = kernel.source_size and (kernel.source_size.height, kernel.source_size.width)
        spec = numbers.spec((sx, sy), kernel.secondary_edge_mode)
        full = spec.gradient(g, x, (py, px), size)
        jx = represented(sx, numbers.size[0], numbers.dilation[0], kernel.kernel_offset_x)
        jy = represented(sy, numbers.size[1], numbers.dilation[1], kernel.kernel_offset_y)
        expected = before
        for row in range(min(height, one.dx.shape[1] - cy)):
            for column in range(min(width, one.dx.shape[2] - cx)):
                there = 0 <= jy + row < x.shape[1] and 0 <= jx + column < x.shape[2]
                value = full[:, jy + row, jx + column] if there else 0
                channel = kernel.destination_feature_channel_offset
                expected[cz : cz + depth, cy + row, cx + column, channel:] = value
        np.testing.assert_array_equal(one.dx, expected)

    check()
