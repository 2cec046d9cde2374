"""Slice: a box cut out of an image, zeros outside the image; and the adjoint.

Forward   ``out[n, i, j, c] = x[n, i + oy, j + ox, c + oc]``, 0 outside the image
Gradient  ``dx[n, i + oy, j + ox, c + oc] = g[n, i, j, c]``, 0 elsewhere

Source: MPSNNSlice in ``MPSNNSlice.h`` [doc]; a channel offset that is no multiple of 4 [design
arithmetic-channel-offset]. MPS declares no gradient; the adjoint is that of the formula [math].
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from anymetal.fork_safe import cached_property
from mpsref import codecs
from mpsref.arguments.arrays import Array, ImageShape
from mpsref.arguments.parameters import Triple, integer
from mpsref.arguments.text import shown
from mpsref.codecs import parameter
from mpsref.errors import ShapeError
from mpsref.kernels.movement import Gather, index
from mpsref.kernels.one_image import ReadsShape
from mpsref.kernels.reference import selected
from mpsref.operations import ImageProblem, cached_in_problem, operation, shape_only

Size: TypeAlias = tuple[int | None, int | None, int | None]
"""Height, width, channels; ``None`` is "to the end"."""


def _size(name: str, value: object) -> Size:
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise TypeError(f"{name} is {shown(value)}; it must be a tuple (height, width, channels), each >= 1 or None")
    height, width, channels = (None if n is None else integer(f"{name}[{k}]", n, low=1) for k, n in enumerate(value))
    return height, width, channels


_END = r"(-?\d+|end)"
_SIZE = codecs.Codec(
    "size3x3xend",
    f"size{_END}x{_END}x{_END}",
    lambda *words: tuple(None if word == "end" else int(word) for word in words),
    lambda size: "size" + "x".join("end" if length is None else str(length) for length in size),
    _size,
)


class Slice(ReadsShape):
    """A box of an image: (N, H, W, C) to (N, height, width, channels), the size of the box.

    Parameters
    ----------
    offset : tuple of int
        First element (y, x, channel); y and x are any integers, the channel is >= 0.
    size : tuple of int or None
        Size (height, width, channels), each >= 1; ``None`` is "to the end".

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(12, dtype=np.float32).reshape(1, 2, 3, 2)
    >>> Slice(offset=(0, 1, 1), size=(1, 3, None)).forward(x).ravel().tolist()
    [3.0, 5.0, 0.0]
    """

    offset: Triple = parameter(codecs.triple("o"), default=(0, 0, 0))
    size: Size = parameter(_SIZE, default=(None, None, None))

    def _check(self) -> None:
        integer("offset[2]", self.offset[2], low=0)


class SliceProblem(ImageProblem):
    """A call of a slice: the shape of the image that is cut."""

    spec: Slice

    def _check(self) -> None:
        _ = self.part_shape  # raises for a slice without elements, or with channels that do not exist

    @cached_property
    def part_shape(self) -> ImageShape:
        """The shape of the slice."""
        n, *lengths = self.source_shape
        spec, found = self.spec, []
        for axis, length, offset, size in zip("HWC", lengths, spec.offset, spec.size, strict=True):
            taken = length - offset if size is None else size
            if taken < 1 or (axis == "C" and offset + taken > length):
                raise ShapeError(
                    f"Slice: on axis {axis} the offset is {offset}, the size {'to the end' if size is None else size} "
                    f"and the image has length {length}; the slice must have a size >= 1"
                    + (", and its channels must exist" if axis == "C" else ": choose a smaller offset or name a size")
                )
            found.append(taken)
        height, width, channels = found
        return n, height, width, channels


class SliceForward(SliceProblem, method="forward", inputs={"x": "n h w c"}, results={"y": "part_shape"}):
    """``forward`` of a slice."""

    @cached_in_problem
    def gather(self) -> Gather:
        """Return what each element of the slice reads."""
        lengths = zip(self.part_shape[1:], self.spec.offset, self.source_shape[1:], strict=True)
        y, x, c = (index(np.arange(n) + offset, length) for n, offset, length in lengths)
        return y, x, c


class SliceGradient(
    SliceProblem, method="gradient", inputs={"g": "part_shape", "x": shape_only()}, results={"dx": "n h w c"}
):
    """``gradient`` of a slice."""

    @cached_in_problem
    def gather(self) -> Gather:
        """Return what each element of dx reads of g."""
        lengths = zip(self.source_shape[1:], self.spec.offset, self.part_shape[1:], strict=True)
        y, x, c = (index(np.arange(n) - offset, length) for n, offset, length in lengths)
        return y, x, c


def _overlap(problem: SliceProblem) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the index range of the slice that lies inside the image, and the same range in the image."""
    inside, of_image = [slice(None)], [slice(None)]
    for offset, size, length in zip(problem.spec.offset, problem.part_shape[1:], problem.source_shape[1:], strict=True):
        begin, end = max(0, -offset), max(0, min(size, length - offset))
        begin = min(begin, end)
        inside.append(slice(begin, end))
        of_image.append(slice(begin + offset, end + offset) if begin < end else slice(0, 0))
    return tuple(inside), tuple(of_image)


@operation(Slice, problem=SliceForward, bound=selected)
def forward(problem: SliceForward, x: Array) -> Array:
    """out[i] = x[i + o] inside the image."""
    out = np.zeros(problem.part_shape, x.dtype)
    inside, of_image = _overlap(problem)
    out[inside] = x[of_image]
    return out


@operation(Slice, problem=SliceGradient, bound=selected)
def gradient(problem: SliceGradient, g: Array) -> Array:
    """dx[i + o] = g[i]: the adjoint of the forward pass."""
    dx = np.zeros(problem.source_shape, g.dtype)
    inside, of_image = _overlap(problem)
    dx[of_image] = g[inside]
    return dx
