"""Pixelwise kernels: each result pixel depends on one source pixel, with an offset and an edge mode.

Pixel ``i`` of the clip region is computed from source pixel ``offset + i``. Outside the source it is computed from 0,
or with ``Clamp`` from the nearest pixel [doc]. The gradient of a source pixel is the sum of ``g[i]`` over all ``i``
that are computed from it; the gradients of zeros outside the source are dropped [math].
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from mpsref.arguments.arrays import Array, DType, Shape
from mpsref.arguments.parameters import Pair
from mpsref.errors import ShapeError
from mpsref.mps.core.call import Computation, problem_of
from mpsref.mps.core.gradient_kernel import MPSCNNGradientKernel, WindowedGradient
from mpsref.mps.core.image_arguments import ImageArgument
from mpsref.mps.core.image_kernels import MPSCNNKernel
from mpsref.mps.core.types import MPSImageEdgeMode
from mpsref.registry import Backend, Spec


def positions(first: int, n: int, length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return ``first ... first + n - 1``, clipped to an axis of ``length``, and a mask of those that are inside."""
    position = max(-n, min(first, length)) + np.arange(n)  # farther positions are clipped to the same pixel
    return np.clip(position, 0, length - 1), (position >= 0) & (position < length)


def read(x: Array, first: Pair, size: Pair, clamp: bool) -> Array:
    """Return ``size`` pixels of ``x`` starting at ``first``; pixels outside are the nearest ones, or zeros."""
    if first == (0, 0) and size == x.shape[1:3]:
        return x
    (rows, in_rows), (columns, in_columns) = (positions(*axis) for axis in zip(first, size, x.shape[1:3], strict=True))
    found = x[:, rows[:, None], columns]
    if not clamp:
        found[:, ~(in_rows[:, None] & in_columns)] = 0
    return found


def at_sources(results: Array, first: Pair, size: Pair, clamp: bool, add: bool = False) -> Array:
    """Return an image of ``size`` with result pixel ``u`` at pixel ``first + u``; the other pixels are 0.

    With ``add``, several results for one pixel are added; otherwise one of them is used.
    """
    for axis in (1, 2):
        start, n, length = first[axis - 1], results.shape[axis], size[axis - 1]
        if (start, n) != (0, length):
            index, inside = positions(start, n, length)
            used = np.flatnonzero(inside | clamp)
            rows = np.moveaxis(results, axis, 0)
            scattered = np.zeros((length, *rows.shape[1:]), results.dtype)
            if add:
                np.add.at(scattered, index[used], rows[used])
            else:
                scattered[index[used]] = rows[used]
            results = np.moveaxis(scattered, 0, axis)
    return results


class Pixelwise(MPSCNNKernel):
    """A pixelwise forward kernel."""

    _form: Any
    """The functional form."""

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        ((n, *image, channels),), first = shapes, (self.offset.y, self.offset.x)
        problem = problem_of(self._form, "forward", (n, *size, channels))
        if first == (0, 0) and size == tuple(image):
            return Computation(problem)
        clamp = self._clamps
        return Computation(problem, source=lambda x: read(x, first, size, clamp))

    @property
    def _clamps(self) -> bool:
        """Whether pixels outside the source are the nearest ones, not zeros."""
        return self.edge_mode is MPSImageEdgeMode.Clamp


def is_shifted(kernel: MPSCNNGradientKernel) -> bool:
    """Return whether a gradient kernel has an offset."""
    offsets = *kernel.primary_offset[:2], *kernel.secondary_offset[:2], kernel.kernel_offset_x, kernel.kernel_offset_y
    return any(offsets)


def at_the_source(kernel: MPSCNNGradientKernel, shapes: Sequence[Shape], size: Pair) -> bool:
    """Return whether pixel q of the region of ``size``, of the source gradient and of the other image are the same."""
    return not is_shifted(kernel) and all(shape[1:3] == size for shape in shapes)


class PixelwiseGradient(WindowedGradient):
    """The gradient of a pixelwise kernel, computed from the source gradient and one other image."""

    _form: Any
    """The functional form, or another object with its ``gradient``."""

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        """Raise ``ShapeError`` if the images differ in size without an offset, a clip rectangle or a state."""
        shape, dtype = super()._place(sources, asked, state)
        if state is not None or self.clip_rect is not None or is_shifted(self):
            return shape, dtype
        sizes = [source.array.shape[1:3] for source in sources] + [shape[1:3]]
        if len(set(sizes)) > 1:
            raise ShapeError(
                f"source_gradient, source_image and destination_gradient have the sizes {sizes} (height, width); they "
                "must be equal unless an offset, a clip_rect or a gradient_state is given"
            )
        return shape, dtype

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        form = self._form
        if isinstance(form, Spec) and at_the_source(self, shapes, size):
            return Computation(problem_of(form, "gradient", shapes[1]))
        return Computation(compute=partial(self._shifted, size))

    def _shifted(self, part: Pair, images: Sequence[Array], backend: str | Backend | None) -> Array:
        """Return, at pixel ``q`` of a part, the gradient of source pixel ``secondary_offset + kernel_offset + q``."""
        g, other = images
        clamp, offset = self.secondary_edge_mode is MPSImageEdgeMode.Clamp, self.secondary_offset
        first = offset.y - self.primary_offset.y, offset.x - self.primary_offset.x
        begin = offset.y + self.kernel_offset_y, offset.x + self.kernel_offset_x
        _, height, width, _ = self._shape if self._reads_result else other.shape
        size = height, width
        total = at_sources(g.astype(np.result_type(g, np.float32)), first, size, clamp, add=True)
        known = np.ones((1, *size, 1), bool)
        if self._reads_result:
            other = at_sources(other, first, size, clamp)
            known = at_sources(np.ones((1, *g.shape[1:3], 1), bool), first, size, clamp)
        total, other = (read(image, begin, part, clamp=True) for image in (total, other))
        return np.where(read(known, begin, part, clamp=False), self._form.gradient(total, other, backend=backend), 0)
