"""PyTorch's kernels on images (MPSImage) for phones, launched as their host does, and what NumPy computes.

They are a string in a header. Images have 16-bit floats and four channels a slice; one of a single slice is a
``texture2d``, for which a kernel has a constant, or another kernel whose name ends in ``_nonarray``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import anymetal
from published.collection import Array, Case, Collection, Compared, Draw, blank, named

GROUP = 8, 4, 1
BOUND = 4e-3
"""Of half arithmetic with a few operations."""


class PytorchMobile(Collection):
    """Launches of the kernels of PyTorch's backend Metal."""

    name = "PyTorch, images"
    marker = "aten/src/ATen/native/metal/MetalShaders.h"
    package = "a checkout of pytorch/pytorch"

    def files(self) -> list[Path]:
        """Return the header."""
        return [self.marker_file]

    def run(
        self,
        kernel: str,
        shape: Sequence[int],
        textures: Sequence[Array],
        *buffers: Array,
        numbers: Sequence[int] = (),
        floats: Sequence[float] = (),
    ) -> None:
        """Launch a kernel for images of a shape (N, H, W, C)."""
        source = self.marker_file.read_text().split('R"PT_METAL_SHADERS(')[1].split(')PT_METAL_SHADERS"')[0]
        n, height, width, channels = shape
        constants: dict[int | str, Any] = dict.fromkeys(re.findall(r"(\w+) ?\[\[function_constant\(\d", source), 0)
        constants |= {f"ushort_arg_{i}": value for i, value in enumerate(numbers)}
        constants |= {f"float_arg_{i}": value for i, value in enumerate(floats)}
        grid = -(-width // GROUP[0]), -(-height // GROUP[1]), n * -(-channels // 4)
        self.launch(source, kernel, grid, GROUP, *buffers, constants=constants, textures=textures)


def is_array(shape: Sequence[int]) -> bool:
    """Return whether images (N, H, W, C) have several slices."""
    return shape[0] > 1 or shape[3] > 4


def stored(x: Array) -> Array:
    """Return the slices of images, or the only one; missing channels are NaN."""
    return anymetal.slices(x) if is_array(x.shape) else anymetal.slices(x)[0]


def unwritten(shape: Sequence[int]) -> Array:
    """Return the texture of images that nothing wrote."""
    return stored(blank(shape, np.float16))


def loaded(texture: Array, channels: int) -> Array:
    """Return the images of a texture."""
    return anymetal.unslice(texture.reshape(-1, *texture.shape[-3:]), channels)


def nchw(x: Array) -> Array:
    """Return images with channels in front."""
    return np.ascontiguousarray(np.moveaxis(x, -1, 1))


def sizes(x: Array) -> list[int]:
    """Return height, width, channels and number of images, as the host passes them."""
    return [*x.shape[1:], x.shape[0]]


def images(draw: Draw, n: int = 0, channels: int = 0) -> Array:
    """Return images, by default any number of them, of any number of channels."""
    shape = n or draw.number(1, 3), draw.number(1, 9), draw.number(1, 9), channels or draw.number(1, 9)
    return draw.array(*shape, dtype=np.float16, kind="plain")


def of_kind(name: str, x: Array) -> str:
    """Return the name of the kernel for images of one slice or of several."""
    return name if is_array(x.shape) else f"{name}_nonarray"


OPERATORS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}


def elementwise(name: str) -> Case:
    """Return the case of an operator on two images, one of which may have one row or column."""

    def case(torch: PytorchMobile, draw: Draw) -> Compared:
        pair = [x := images(draw), x[::-1, ::-1, ::-1] + np.copysign(np.float16(0.5), x[::-1, ::-1, ::-1])]
        rows, columns, small = draw.choice(1, 9), draw.choice(1, 9), draw.number(0, 1)
        pair[small] = pair[small][:, :rows, :columns]
        out = unwritten(x.shape)
        torch.run(of_kind(f"elementwise_{name}", x), x.shape, [*map(stored, pair), out])
        expected = OPERATORS[name](*(one.astype(np.float64) for one in pair))
        return Compared(loaded(out, x.shape[3]), expected, BOUND * (1 + abs(expected)))

    return case


FUNCTIONS: Mapping[str, tuple[Sequence[float], Callable[..., Array]]] = {
    "clamp": ((-0.5, 1.25), np.clip),
    "hardswish": ((), lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "hardshrink": ((0.5,), lambda x, limit: np.where(abs(x) > limit, x, 0)),
    "leaky_relu": ((0.25,), lambda x, slope: np.where(x < 0, x * slope, x)),
}
"""The numbers of a function of each element, and what NumPy computes."""


def function(name: str, values: Callable[[Array], Array] = lambda x: 2 * x) -> Case:
    """Return the case of a function of each element."""
    floats, formula = FUNCTIONS[name]

    def case(torch: PytorchMobile, draw: Draw) -> Compared:
        x = values(images(draw))
        n, height, width, channels = x.shape
        numbers = [channels, n] if name == "clamp" else [n, channels, height, width]
        out = unwritten(x.shape)
        torch.run(name, x.shape, [stored(x), out], numbers=numbers, floats=floats)
        expected = formula(x.astype(np.float64), *floats)
        return Compared(loaded(out, channels), expected, BOUND * (1 + abs(expected)))

    return case


def copy_nchw_to_metal(torch: PytorchMobile, draw: Draw) -> Compared:
    """Images of an array with channels in front."""
    x = images(draw)
    out = unwritten(x.shape)
    _, height, width, channels = x.shape
    buffer = nchw(x).astype(np.float32)
    torch.run(of_kind("copy_nchw_to_metal", x), x.shape, [out], buffer, numbers=[channels, height, width])
    return Compared(loaded(out, channels), x)


def copy_metal_to_nchw(torch: PytorchMobile, draw: Draw) -> Compared:
    """The array with channels in front of images."""
    x = images(draw)
    n, height, width, channels = x.shape
    out = blank((n, channels, height, width))
    torch.run(of_kind("copy_metal_to_nchw", x), x.shape, [stored(x)], out, numbers=[channels, height, width])
    return Compared(out, nchw(x))


def copy(torch: PytorchMobile, draw: Draw) -> Compared:
    """Copies of images."""
    x = images(draw)
    out = unwritten(x.shape)
    torch.run(of_kind("copy", x), x.shape, [stored(x), out])
    return Compared(loaded(out, x.shape[3]), x)


def cat_batch(torch: PytorchMobile, draw: Draw) -> Compared:
    """Images behind others."""
    x = images(draw, n=draw.number(2, 4))
    parts = np.split(x, [draw.number(1, len(x) - 1)])
    out, offset = unwritten(x.shape), 0
    for one in parts:
        torch.run(of_kind("copy_offset", one), one.shape, [stored(one), out], np.array([offset], np.uint16))
        offset += len(one) * -(-one.shape[3] // 4)
    return Compared(loaded(out, x.shape[3]), x)


def cat_feature(torch: PytorchMobile, draw: Draw) -> Compared:
    """Channels behind others, the last slice of which is kept in an image of its own."""
    x = images(draw, channels=draw.number(5, 17))
    parts = np.split(x, sorted({draw.number(1, x.shape[3] - 1) for _ in range(2)}), axis=3)
    out, last, begin = unwritten(x.shape), unwritten((*x.shape[:3], 4)), 0
    of_last, slices = [*x.shape[1:3], 4, len(x)], -(-x.shape[3] // 4)
    for one in parts:
        channels, off = one.shape[3], begin % 4
        needed = -(-(channels + off) // 4)
        numbers = [needed, slices, begin // 4, -(-channels // 4), len(x) * needed, off]
        torch.run(
            "append_features_off" if off else "append_features", (*x.shape[:3], channels + off),
            [stored(one), *[last] * (off > 0), out], np.array(numbers, np.uint16), numbers=[*of_last, *sizes(one)],
        )  # fmt: skip
        begin += channels
        offsets = np.array([begin // 4, slices], np.uint16)
        torch.run("store_features", (*x.shape[:3], 4), [out, last], offsets, numbers=of_last)
    return Compared(loaded(out, x.shape[3]), x)


def reflection_pad2d(torch: PytorchMobile, draw: Draw) -> Compared:
    """Images with reflected edges."""
    x = images(draw)
    rows, columns = ([draw.number(0, size - 1) for _ in range(2)] for size in x.shape[1:3])
    expected = np.pad(x, [(0, 0), rows, columns, (0, 0)], "reflect")
    out = unwritten(expected.shape)
    numbers = [*sizes(expected), *sizes(x), *columns, *rows]
    torch.run("reflection_pad2d", expected.shape, [stored(x), out], numbers=numbers)
    return Compared(loaded(out, x.shape[3]), expected)


def reshape(torch: PytorchMobile, draw: Draw) -> Compared:
    """The elements of images, with channels in front, in another shape."""
    x = images(draw)
    shape = [draw.choice(1, x.shape[0]), x.shape[1], x.shape[3], x.shape[2]]
    shape[0] = x.size // int(np.prod(shape[1:]))
    expected = np.moveaxis(nchw(x).reshape(shape), 1, -1)
    out = unwritten(expected.shape)
    torch.run("reshape", expected.shape, [stored(x), out], numbers=[*sizes(expected), *sizes(x)])
    return Compared(loaded(out, shape[1]), expected)


def transposed(torch: PytorchMobile, x: Array, first: int, second: int) -> Compared:
    """Return an array of three axes or more, of which two are exchanged; images have the last three."""
    expected = np.swapaxes(x, first, second)
    before, after = (np.moveaxis(one.reshape(-1, *one.shape[-3:]), 1, -1) for one in (x, expected))
    out = unwritten(after.shape)
    numbers = [first, second, x.ndim, before.shape[0], before.shape[3], after.shape[0], after.shape[3]]
    shapes = (np.array(one.shape, np.uint16) for one in (x, expected))
    torch.run("transpose", after.shape, [stored(before), out], *shapes, numbers=numbers)
    return Compared(loaded(out, after.shape[3]), after)


def transpose(torch: PytorchMobile, draw: Draw) -> Compared:
    """Three or four axes, two of which are exchanged."""
    axes = draw.choice(3, 4)
    first, step = draw.number(0, axes - 1), draw.number(1, axes - 1)
    x = nchw(images(draw, n=int(axes == 3)))
    return transposed(torch, x[0] if axes == 3 else x, first, (first + step) % axes)


def five_axes(torch: PytorchMobile, draw: Draw) -> Compared:
    """Five axes, the last two of which are exchanged."""
    return transposed(torch, draw.array(2, 1, 3, draw.number(2, 3), 4, dtype=np.float16, kind="plain"), 4, 3)


def split(*channels: int) -> Case:
    """Return the case of an image whose channels are split into two halves."""

    def case(torch: PytorchMobile, draw: Draw) -> list[Compared]:
        x = images(draw, n=1, channels=draw.choice(*channels))
        parts = np.split(x, [-(-x.shape[3] // 2)], axis=3)
        outs = [unwritten(one.shape) for one in parts]
        torch.run("split_channels", x.shape, [stored(x), *outs], numbers=[one.shape[3] for one in (x, *parts)])
        return [Compared(loaded(out, one.shape[3]), one) for out, one in zip(outs, parts, strict=True)]

    return case


def aligned(x: Array, boxes: Array, size: tuple[int, int], ratio: int) -> Array:
    """Return the means of linear samples in the cells of boxes (left, top, right, bottom), of the texels' corners."""
    found = np.empty((len(boxes), *size, x.shape[3]))
    for k, (left, top, right, bottom) in enumerate(boxes):
        places = [
            low + (np.arange(n * ratio) + 0.5) * max(high - low, 1) / (n * ratio)
            for low, high, n in ((top, bottom, size[0]), (left, right, size[1]))
        ]
        y = x[0].astype(np.float64)
        for axis, place in enumerate(places):
            place = np.clip(place - 0.5, 0, y.shape[axis] - 1)
            low = np.floor(place).astype(int)
            part = (place - low).reshape(-1, *[1] * (2 - axis))
            y = np.take(y, low, axis) * (1 - part) + np.take(y, np.minimum(low + 1, y.shape[axis] - 1), axis) * part
        found[k] = y.reshape(size[0], ratio, size[1], ratio, -1).mean((1, 3))
    return found


def align(torch: PytorchMobile, draw: Draw, x: Array, boxes: Array, scale: float) -> Compared:
    """Return the parts of an image in boxes."""
    size, ratio = (draw.number(1, 3), 2 ** draw.number(0, 2)), draw.number(1, 2)
    out = unwritten((len(boxes), *size, x.shape[3]))
    numbers = [round(10000 * scale), ratio, x.shape[3], len(x), len(boxes)]
    shape = len(boxes), *size, x.shape[3]
    torch.run("roi_align", shape, [stored(x), out], boxes.astype(np.float16), numbers=numbers)
    return Compared(loaded(out, x.shape[3]), aligned(x, boxes * scale, size, ratio), 3e-2)


def roi_align(torch: PytorchMobile, draw: Draw) -> Compared:
    """Boxes in a small image."""
    x = np.clip(images(draw, n=1), -1, 1)
    edges = np.array([[draw.number(0, 8) / 2 for _ in range(4)] for _ in range(draw.number(1, 3))])
    return align(torch, draw, x, np.concatenate([edges[:, :2], edges[:, :2] + edges[:, 2:]], 1), draw.choice(0.5, 1.0))


def far(torch: PytorchMobile, draw: Draw) -> Compared:
    """A box whose left edge is at column 1,100, where a half has no fractions."""
    x = np.broadcast_to((np.arange(1200) % 4 / 4).reshape(1, 1, -1, 1), (1, 4, 1200, 1)).astype(np.float16)
    return align(torch, draw, x, np.array([[1100.0, 0, 1101, 2]]), 1.0)


def infinite(x: Array) -> Array:
    """Return infinities."""
    return np.copysign(np.float16(np.inf), x)


CASES: Mapping[str, Case] = {
    **{f"elementwise_{name}": elementwise(name) for name in OPERATORS},
    **{name: function(name) for name in FUNCTIONS},
    **named(copy_nchw_to_metal, copy_metal_to_nchw, copy, cat_batch, cat_feature, reflection_pad2d, reshape),
    **named(transpose, roi_align),
    "split_channels": split(2, 3, 4, 7, 8, 10, 11, 12, 13, 14, 16, 17),
}

FINDINGS: Mapping[str, tuple[Case, str]] = {
    "split_channels": (split(5, 6, 9), "a second half of up to four channels is written twice: a race"),
    "hardswish": (function("hardswish", lambda x: x + np.copysign(300, x)), "NaN for numbers beyond 255"),
    "hardshrink": (function("hardshrink", infinite), "NaN for infinities"),
    "leaky_relu": (function("leaky_relu", infinite), "NaN for infinities"),
    "transpose": (five_axes, "the axes 3 and 4 of five: an element behind a vector is exchanged"),
    "roi_align": (far, "the places of samples are computed in half: whole columns from 1,024 on"),
}

OUTSIDE = "threads behind an edge, or of a slice that there is not, read 0, which no channel of the result has"
REVIEWED: Mapping[tuple[str, str], str] = {
    (kernel, "texel"): OUTSIDE for kernel in ("append_features", "store_features", "split_channels")
}

NOT_RUN: Mapping[str, str] = {}
