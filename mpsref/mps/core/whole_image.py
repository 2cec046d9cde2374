"""Kernels on whole images: they resample, combine or rearrange, and the kernel determines the size of the result.

Offsets, clip rectangles and ranges of channels must keep their defaults [design normalization-whole-images], since MPS
does not define their effect on these kernels.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import ItemsView, Sequence
from typing import Any, ClassVar

from mpsref.arguments.arrays import DType, Shape
from mpsref.arguments.parameters import Pair
from mpsref.arguments.text import shown
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.mps.core.call import Computation, problem_of
from mpsref.mps.core.encode import ImageKernel, part
from mpsref.mps.core.gradient_kernel import MPSCNNGradientKernel
from mpsref.mps.core.image_arguments import ImageArgument
from mpsref.mps.core.image_kernels import MPSCNNKernel
from mpsref.mps.core.kernel import MPSKernel
from mpsref.mps.core.properties import properties_of

SOURCE = "offset", "edge_mode", "source_feature_channel_offset", "source_feature_channel_max_count"
DESTINATION = "clip_rect", "destination_feature_channel_offset"
IMAGE = (*SOURCE, *DESTINATION)
"""The properties of a kernel with one source that must keep their defaults."""


def require_defaults(kernel: MPSKernel, *names: str) -> None:
    """Raise ``UnsupportedError`` for a property with another value than its default."""
    if vars(kernel).items() >= _defaults(type(kernel), names):
        return
    known = properties_of(type(kernel))
    for name in names:
        value, default = getattr(kernel, name), known[name].initial(kernel)
        if value != default:
            raise UnsupportedError(
                f"{name} is {shown(value)}; {type(kernel).__name__} runs with {default!r} alone: slice or pad the "
                "images"
            )


@functools.cache
def _defaults(kind: type[MPSKernel], names: tuple[str, ...]) -> ItemsView[str, object]:
    known = properties_of(kind)
    return {name: known[name].default for name in names}.items()


def require_whole(kernel: ImageKernel, asked: Shape | Pair | None, shape: Shape) -> None:
    """Raise ``ShapeError`` unless a destination, given or of a size, has the shape of the result."""
    if asked is not None:
        room = asked if len(asked) == 4 else (shape[0], *asked, shape[3])
        if room != shape:
            raise ShapeError(
                f"{kernel.destination_name} has room for {room}; the result of {type(kernel).__name__} has shape "
                f"{shape}"
            )


class WholeImage(ImageKernel):
    """A kernel that reads whole images, and writes the whole result of a functional form; not a class of MPS."""

    fixed: ClassVar[tuple[str, ...]]
    """The properties that must keep their defaults."""
    recorded: ClassVar[tuple[str, ...]] = ("_function",)
    _is_whole = True

    @abc.abstractmethod
    def _function(self) -> Any:
        """Return the functional form."""

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        return Computation(problem_of(self._function(), "forward", *shapes))

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        shapes = [source.array.shape for source in sources]
        parts = [part(shape, index) for shape, index in zip(shapes, self._parts(*shapes), strict=True)]
        self._computation = self._problem(parts, (0, 0))
        shape = self._computation.result_shape
        require_defaults(self, *self.fixed)
        require_whole(self, asked, shape)
        return shape, sources[0].array.dtype


class WholeImageKernel(WholeImage, MPSCNNKernel):
    """A kernel with one source that writes the whole result of a functional form."""

    fixed: ClassVar[tuple[str, ...]] = IMAGE


class WholeImageGradient(MPSCNNGradientKernel):
    """The gradient of a kernel that writes the whole result of a functional form."""

    fixed: ClassVar[tuple[str, ...]] = (
        *DESTINATION,
        "kernel_offset_x",
        "kernel_offset_y",
        *(prefix + name for prefix in ("primary_", "secondary_") for name in SOURCE),
    )
    """The properties that must keep their defaults."""
    _is_whole = True

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        g, source = (source.array.shape for source in sources)
        if state is not None:
            self._configure(state, g, source)
        computation = self._computation = self._problem((g, source), source[1:3])
        shape = computation.result_shape
        expected = g if computation.problem is None else computation.problem.input_shapes.get("g", g)
        if g != expected:
            raise ShapeError(f"source_gradient has shape {g}; the result of the forward pass has {expected}")
        require_defaults(self, *self.fixed)
        require_whole(self, asked, shape)
        return shape, sources[0].array.dtype
