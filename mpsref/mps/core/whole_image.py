"""Kernels on whole images: they resample, combine or rearrange, and the kernel determines the size of the result.

Offsets, clip rectangles and ranges of channels must keep their defaults [design normalization-whole-images], since MPS
does not define their effect on these kernels.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from mpsref import registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, DType, Shape
from mpsref.arguments.parameters import Pair
from mpsref.arguments.text import shown
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.mps.core.clip_regions import Region
from mpsref.mps.core.gradient_kernel import MPSCNNGradientKernel
from mpsref.mps.core.image_arguments import ImageArgument, SourcePair
from mpsref.mps.core.kernel import (
    Destination,
    ImageKernel,
    MPSCNNKernel,
    MPSKernel,
    Plan,
    PlannedKernel,
    Prepared,
    problem_of,
)
from mpsref.mps.core.properties import properties_of
from mpsref.mps.core.state import ForwardRecord
from mpsref.registry import Problem, Spec

SOURCE = "offset", "edge_mode", "source_feature_channel_offset", "source_feature_channel_max_count"
DESTINATION = "clip_rect", "destination_feature_channel_offset"
IMAGE = (*SOURCE, *DESTINATION)
"""The properties of a kernel with one source that must keep their defaults."""


def require_defaults(kernel: MPSKernel, *names: str) -> None:
    """Raise ``UnsupportedError`` for a property with another value than its default."""
    known = properties_of(type(kernel))
    for name in names:
        value, default = getattr(kernel, name), known[name].initial(kernel)
        if value != default:
            raise UnsupportedError(
                f"{name} is {shown(value)}; {type(kernel).__name__} runs with {default!r} alone: slice or pad the "
                "images"
            )


def whole(shape: Shape) -> Region:
    """Return all of an image of ``shape``."""
    n, height, width, channels = shape
    return Region(slice(0, n), slice(0, height), slice(0, width), slice(0, channels))


def require_whole(kernel: MPSKernel, destination: str, region: Region, shape: Shape) -> None:
    """Raise ``ShapeError`` unless the region of the destination that is written has the shape of the result."""
    if region.shape != shape:
        raise ShapeError(
            f"{destination} has room for {region.shape}; the result of {type(kernel).__name__} has shape {shape}"
        )


def computed(kernel: ImageKernel, sources: Sequence[ImageArgument], destination: Destination, *operands: Any) -> Array:
    """Return the given destination, or a new one, after all of it was computed from all of the sources."""
    given, shape, dtype = destination
    images = [source.array for source in sources]
    new = np.dtype(dtype).newbyteorder("=")
    target = arrays.empty(kernel.destination_name, shape, new, images) if given is None else given.array
    kernel._compute_in_one_dtype(images, target, whole(shape), *operands)
    return target


class WholeImage(ImageKernel):
    """A kernel that reads whole images, and determines the shape of its result; not a class of MPS."""

    fixed: ClassVar[tuple[str, ...]]
    """The properties that must keep their defaults."""

    @abc.abstractmethod
    def _result_shape(self, sources: Sequence[ImageArgument]) -> Shape:
        """Return the shape of the result."""

    def _indices(self, sources: Sequence[ImageArgument], shape: Shape) -> tuple[list[tuple[slice, ...]], Region]:
        return [whole(source.array.shape) for source in sources], whole(shape)

    def _infer_padding(self, sources: Sequence[ImageArgument]) -> tuple[Shape, DType]:
        return self._result_shape(sources), sources[0].array.dtype.newbyteorder("=")

    def _destination_shape(self, sources: Sequence[ImageArgument], size: Pair) -> Shape:
        n, *_, channels = self._result_shape(sources)
        return n, *size, channels

    def _run(self, sources: Sequence[ImageArgument], destination: Destination) -> tuple[Array, Region]:
        require_defaults(self, *self.fixed)
        require_whole(self, self.destination_name, whole(destination.shape), self._result_shape(sources))
        return super()._run(sources, destination)


class FunctionKernel(PlannedKernel, WholeImage):
    """A kernel that writes the whole result of a functional form; not a class of MPS."""

    @abc.abstractmethod
    def _function(self) -> Any:
        """Return the functional form."""

    def _shape_from(self, *shapes: Shape) -> Shape:
        """Return the shape of the result for sources of these shapes."""
        return problem_of(self._function(), "forward", *shapes).result_shapes[0]

    def _result_shape(self, sources: Sequence[ImageArgument]) -> Shape:
        return self._shape_from(*(source.array.shape for source in sources))

    def _plan(self, shapes: Sequence[Shape], size: Pair) -> Plan:
        return Plan(problem_of(self._function(), "forward", *shapes), range(len(shapes)))

    def _extras(self) -> Mapping[str, object]:
        return {"function": self._function()}


class WholeImageKernel(FunctionKernel, MPSCNNKernel):
    """A kernel with one source that writes the whole result of a functional form."""

    fixed: ClassVar[tuple[str, ...]] = IMAGE


class WholeImageGradient(MPSCNNGradientKernel):
    """The gradient of a kernel that writes the whole result of a functional form."""

    repeats = True
    fixed: ClassVar[tuple[str, ...]] = (
        *DESTINATION,
        "kernel_offset_x",
        "kernel_offset_y",
        *(prefix + name for prefix in ("primary_", "secondary_") for name in SOURCE),
    )
    """The properties that must keep their defaults."""

    def _place(
        self, state: Any, g: ImageArgument, x: ImageArgument, given: ImageArgument | None
    ) -> tuple[SourcePair, Shape, DType]:
        if given is not None:
            return (g, x), given.array.shape, g.array.dtype
        shape = (
            x.array.shape
            if state is None
            else self._problem_for(state, (g.array.shape, x.array.shape)).result_shapes[0]
        )
        return (g, x), shape, g.array.dtype

    def _problem_for(self, state: Any, shapes: Sequence[Shape]) -> Problem:
        g, source = shapes
        problem = self._problem(g, source, state)
        expected = problem.input_shapes["g"]
        if g != expected:
            raise ShapeError(f"source_gradient has shape {g}; the result of the forward pass has {expected}")
        return problem

    def _run_with_state(self, state: Any, sources: SourcePair, destination: Destination) -> Array:
        g, x = (source.array for source in sources)
        given = destination.given
        problem = self._problem_for(state, (g.shape, x.shape))
        require_defaults(self, *self.fixed)
        if given is not None:
            require_whole(self, self.destination_name, whole(destination.shape), problem.result_shapes[0])
        result = self._gradient(problem, g, x, state)
        if given is not None:
            with np.errstate(over="ignore"):  # storing in float16 may overflow to infinity
                given.array[...] = result
        return result

    def _repetition(self, sources: Sequence[ImageArgument], shape: Shape, record: ForwardRecord) -> Prepared | None:
        shapes = [source.array.shape for source in sources]
        problem = self._problem_for(self.state_class(record), shapes)
        return Prepared(problem, tuple((k, whole(shapes[k])) for k in range(len(problem.input_shapes))), (), record)

    def _problem(self, g: Shape, source: Shape, state: Any) -> Problem:
        """Return the problem to run: by default the gradient of ``_function``, for the shape of the source image."""
        if state is not None:
            self._check_secondary(state, source)
        return problem_of(self._function(g, state), "gradient", source)

    @abc.abstractmethod
    def _function(self, g: Shape, state: Any) -> Spec:
        """Return the functional form; set the properties that a state determines."""

    def _gradient(self, problem: Problem, g: Array, source: Array, state: Any) -> Array:
        """Return the gradient; ``source`` is the source image, which most kernels do not read."""
        return registry.run_one(problem, *(g, source)[: len(problem.input_shapes)], backend=self.backend)

    def _compute(self, inputs: Sequence[Array], destination: Array, region: Region) -> None:
        raise NotImplementedError("a gradient of a whole image is computed by _gradient")
