"""Kernels that resample, combine or rearrange whole images: the result has the size that the kernel's rule gives it.

Offsets, clip rectangles and ranges of channels do not apply to them [choice]: Apple does not define them there.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from mpsref import registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.mps.core import image_arguments
from mpsref.mps.core.clip_regions import Region
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.core.gradient_kernel import MPSCNNGradientKernel
from mpsref.mps.core.image_arguments import ImageArgument, ImageLike
from mpsref.mps.core.kernel import Encoding, MPSCNNKernel
from mpsref.mps.core.properties import properties_of
from mpsref.registry import Problem, Spec

SOURCE = "offset", "edge_mode", "source_feature_channel_offset", "source_feature_channel_max_count"
DESTINATION = "clip_rect", "destination_feature_channel_offset"
IMAGE = (*SOURCE, *DESTINATION)
"""The properties of a kernel with one source that must keep their defaults."""


def require_defaults(kernel: Any, *names: str) -> None:
    """Raise ``UnsupportedError`` for a property that does not have its default."""
    known = properties_of(type(kernel))
    for name in names:
        value, default = getattr(kernel, name), known[name].initial(kernel)
        if value != default:
            raise UnsupportedError(
                f"{name} is {value!r}; {type(kernel).__name__} runs with {default!r} alone: slice or pad the images"
            )


def whole(shape: Shape) -> Region:
    """Return all of an image of ``shape``."""
    n, height, width, channels = shape
    return Region(slice(0, n), slice(0, height), slice(0, width), slice(0, channels))


def require_whole(kernel: Any, destination: str, region: Region, shape: Shape) -> None:
    """Raise ``ShapeError`` unless the part of the destination that is written has the shape of the result."""
    if region.shape != shape:
        raise ShapeError(
            f"{destination} has room for {region.shape}; the result of {type(kernel).__name__} has shape {shape}"
        )


class WholeImageKernel(MPSCNNKernel):
    """A kernel with one source whose result is that of a functional form, in full."""

    fixed: ClassVar[tuple[str, ...]] = IMAGE
    """The properties that must keep their defaults."""

    @abc.abstractmethod
    def _function(self) -> Any:
        """Return the functional form."""

    def _result_shape(self, source: Shape) -> Shape:
        function = self._function()
        shape: Shape = function.problems["forward"](function, source).result_shapes[0]
        return shape

    def _infer_padding(self, sources: Sequence[ImageArgument]) -> tuple[Shape, Any]:
        return self._result_shape(sources[0].array.shape), sources[0].array.dtype.newbyteorder("=")

    def _destination_shape(self, sources: Sequence[ImageArgument], size: Any) -> Shape:
        n, *_, channels = self._result_shape(sources[0].array.shape)
        return n, *size, channels

    def _run(
        self, sources: Sequence[ImageArgument], given: ImageArgument | None, shape: Shape, dtype: Any
    ) -> tuple[Array, Region]:
        require_defaults(self, *self.fixed)
        require_whole(self, self.destination_name, whole(shape), self._result_shape(sources[0].array.shape))
        target = arrays.empty(self.destination_name, shape, np.dtype(dtype)) if given is None else given.array
        region = whole(shape)
        self._compute_in_one_dtype([sources[0].array], target, region)
        return target, region

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        self._function().forward(*parts, out=destination, backend=self.backend)

    def _extras(self) -> Mapping[str, Any]:
        return {"function": self._function()}


class WholeImageGradient(MPSCNNGradientKernel):
    """The gradient of a kernel whose result is that of a functional form, in full."""

    fixed: ClassVar[tuple[str, ...]] = (
        *DESTINATION,
        "kernel_offset_x",
        "kernel_offset_y",
        *(prefix + name for prefix in ("primary_", "secondary_") for name in SOURCE),
    )
    """The properties that must keep their defaults."""

    def encode(  # type: ignore[override]  # Apple's gradient kernels have other selectors than their parent, too
        self,
        source_gradient: ImageLike,
        source_image: ImageLike,
        gradient_state: Any = None,
        destination_gradient: ImageLike | None = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Any:
        """Return the gradient from ``source_gradient``, of the kind that the latter is.

        With a ``destination_gradient`` it is written there. A ``gradient_state`` brings the parameters of the forward
        pass. Nothing is written, and no property changed, when an error is raised: ``ValueError`` or ``TypeError`` for
        arguments that do not fit, ``OrderError`` for a committed ``command_buffer``.
        """
        g, source = (
            image_arguments.source("source_gradient", source_gradient),
            image_arguments.source("source_image", source_image),
        )
        if gradient_state is not None:
            self._check_state(gradient_state)
        with Encoding(self, command_buffer):
            problem = self._problem(g.array.shape, source.array.shape, gradient_state)
            require_defaults(self, *self.fixed)
            expected = problem.input_shapes["g"]
            if g.array.shape != expected:
                raise ShapeError(
                    f"source_gradient has shape {g.array.shape}; the result of the forward pass has {expected}"
                )
            (shape,) = problem.result_shapes
            given = None
            if destination_gradient is not None:
                given = image_arguments.destination(self.destination_name, destination_gradient, (g, source))
                require_whole(self, self.destination_name, whole(given.array.shape), shape)
            result = self._gradient(problem, g.array, source.array, gradient_state)
            if given is None:
                return image_arguments.like(source_gradient, result)
            with np.errstate(over="ignore"):  # storing in float16 may overflow to infinity
                given.array[...] = result
            return image_arguments.written(given)

    encode_batch = encode

    def _problem(self, g: Shape, source: Shape, state: Any) -> Problem:
        """Return the problem: by default the gradient of ``_function``, for the shape of the source image."""
        if state is not None and source != state.record.source_shapes[0]:
            raise ShapeError(
                f"source_image has shape {source}; that of the forward pass was {state.record.source_shapes[0]}"
            )
        function = self._function(g, state)
        problem: Problem = function.problems["gradient"](function, source)
        return problem

    @abc.abstractmethod
    def _function(self, g: Shape, state: Any) -> Spec:
        """Return the functional form; set the properties that a state determines."""

    def _gradient(self, problem: Problem, g: Array, source: Array, state: Any) -> Array:
        """Return the gradient; ``source`` is the source image, which most kernels do not read."""
        return registry.run_one(problem, g, backend=self.backend)

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        raise NotImplementedError("a gradient of a whole image is computed by _gradient")
