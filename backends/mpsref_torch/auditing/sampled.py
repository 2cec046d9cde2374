"""The part of a layer that an audit computes again: images, channels and blocks of pixels, drawn with a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.frameworks.adapter import Tensor
from mpsref.geometry import Window

WORK = 2**20
"""Products of a convolution that are computed for one comparison."""

ELEMENTS = 2**12
"""Elements of an operation that computes each by itself."""

VALUES = 2**17
"""Elements over which a normalization takes means, as far as whole channels allow."""

ALL = 2**22
"""Elements of an operation that needs all of them, such as the sum of a loss; beyond, it is not compared."""

WINDOWS = 100
"""Windows of pooling."""

Range: TypeAlias = tuple[int, int]
"""First index, and the one after the last."""


class Block(NamedTuple):
    """A rectangle of pixels."""

    rows: Range
    columns: Range


class Crop(NamedTuple):
    """A part of an axis on which a kernel with windows computes some of its results."""

    source: Range
    """Pixels of the source image."""
    windows: Range
    """Windows, the pixels of the result."""
    offset: int
    """Offset of the windows in the part."""


class Draw:
    """Draws parts with a seed; the first and the last of everything are always among them."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def some(self, n: int, number: int) -> list[int]:
        """Return ``number`` different indices below n in ascending order, or all."""
        number = max(1, number)
        if n <= number:
            return list(range(n))
        if number == 1:
            return [int(self._random.integers(n))]
        inner = 1 + self._random.choice(n - 2, number - 2, replace=False)
        return sorted({0, n - 1, *inner.tolist()})

    def flat(self, size: int, number: int) -> Array:
        """Return ``number`` indices below the size in ascending order, or all."""
        if size <= number:
            return np.arange(size)
        ends = np.arange(number + 1) * size // number  # one in each part
        flat = self._random.integers(ends[:-1], ends[1:])
        flat[0], flat[-1] = 0, size - 1
        return flat

    def positions(self, shape: Sequence[int], number: int) -> tuple[Any, ...]:
        """Return an index of ``number`` elements of a shape, or of all."""
        flat = self.flat(math.prod(shape), number)
        return np.unravel_index(flat, shape) if shape else ()

    def blocks(self, size: Sequence[int], pixels: int) -> list[Block]:
        """Return the whole rectangle, or blocks at both of its ends and inside with ``pixels`` pixels in all."""
        height, width = size
        if height * width <= pixels:
            return [Block((0, height), (0, width))]
        side = max(1, math.isqrt(max(1, pixels // 3)))
        rows, columns = min(height, side), min(width, max(1, pixels // 3 // min(height, side)))
        inside = int(self._random.integers(height - rows + 1)), int(self._random.integers(width - columns + 1))
        corners = {(0, 0), (height - rows, width - columns), inside}
        return [Block((y, y + rows), (x, x + columns)) for y, x in sorted(corners)]


def array(tensor: Tensor) -> Array:
    """Return the values of a tensor, those of types that NumPy lacks or that are less precise in float32."""
    tensor = tensor.detach().cpu()
    found: Array = (tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor).numpy()
    return found


def positions_on(tensor: Tensor, index: Any) -> Tensor:
    """Return indices as a tensor on the device of another, whose own type may not have all integers."""
    import torch

    return torch.as_tensor(np.asarray(index), dtype=torch.long, device=tensor.device)


def image(
    tensor: Tensor, images: list[int], channels: list[int], rows: Range | None = None, columns: Range | None = None
) -> Array:
    """Return a part of a tensor (N, C, H, W) as an image (N, H, W, C), with zeros for pixels outside of the tensor."""
    part, outside = tensor.detach(), []
    for axis, pixels in ((2, rows), (3, columns)):
        length = part.shape[axis]
        low, high = pixels or (0, length)
        begin = min(max(low, 0), length)
        inside = max(0, min(high, length) - begin)
        before = min(max(0, -low), high - low)
        outside.append((before, high - low - before - inside))
        part = part if inside == length else part.narrow(axis, begin, inside)
    for axis, indices in enumerate((images, channels)):
        if len(indices) < part.shape[axis]:
            part = part.index_select(axis, positions_on(part, indices))
    found = array(part).transpose(0, 2, 3, 1)
    return np.pad(found, ((0, 0), *outside, (0, 0))) if any(map(any, outside)) else found


def elements(tensor: Tensor, flat: Array) -> Array:
    """Return some elements, by their numbers in order, as an image (1, 1, number, 1)."""
    return array(tensor.detach().take(positions_on(tensor, flat))).reshape(1, 1, -1, 1)


def rows(tensor: Tensor, axis: int, index: tuple[Any, ...]) -> Array:
    """Return all elements along an axis at some positions of the other axes, as an image (positions, 1, 1, C)."""
    moved = tensor.detach().movedim(axis, -1)
    picked = moved[tuple(positions_on(moved, one) for one in index)] if index else moved[None]
    return array(picked)[:, None, None]


def forward(window: Window, length: int, windows: Range) -> Crop:
    """Return the part of the source that some windows read; where it ends inside the image, no tap leaves it."""
    first, last = window.start(windows[0]), window.tap(windows[1] - 1, window.kernel - 1)
    low = min(max(first, 0), length - 1)
    high = max(low + 1, min(last + 1, length))
    return Crop((low, high), windows, window.offset + window.stride * windows[0] - low)


def touching(window: Window, count: int, pixels: Range) -> Range:
    """Return the windows, of ``count``, that may read some pixels; at least one."""
    begin = min(window.cover(pixels[0], count).start, count - 1)
    return begin, max(begin + 1, window.cover(pixels[1] - 1, count).stop)


def both(window: Window, count: int, length: int, pixels: Range) -> Crop:
    """Return the windows that may read some pixels, over everything that these windows read."""
    crop = forward(window, length, touching(window, count, pixels))
    low, high = min(crop.source[0], pixels[0]), max(crop.source[1], pixels[1])
    return Crop((low, high), crop.windows, crop.offset + crop.source[0] - low)
