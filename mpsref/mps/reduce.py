"""Reductions with Apple's names: along rows, columns or feature channels, with weights, and as nodes.

>>> import numpy as np
>>> x = np.arange(1, 13, dtype=np.float32).reshape(1, 2, 3, 2)
>>> MPSNNReduceRowSum().encode(x)[0, :, 0].tolist(), MPSNNReduceColumnSum().encode(x).shape
([[9.0, 12.0], [27.0, 30.0]], (1, 1, 3, 2))
>>> MPSNNReduceFeatureChannelsMax().encode(x)[0, :, :, 0].tolist()
[[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]

Two images, the second of weights:

>>> x = np.array([[1, 2, 3], [4, 5, 6]], np.float32).reshape(1, 1, 2, 3)
>>> w = np.array([[1, 0, 2], [0, 0, 0]], np.float32).reshape(1, 1, 2, 3)
>>> MPSNNReduceFeatureChannelsAndWeightsSum().encode(x, w).ravel().tolist()
[7.0, 0.0]
>>> MPSNNReduceFeatureChannelsAndWeightsSum(do_weighted_sum_by_non_zero_weights=True).encode(x, w).ravel().tolist()
[3.5, 0.0]

Products and sums of weighted reductions are those of :class:`mpsref.Arithmetic` and :class:`mpsref.Reduce` on the
kernel's backend, in float32 for float16 images, and rounded once when they are stored.

Source: ``MPSNNReduce.h``, ``MPSNNGraphNodes.h`` [doc]; of weighted reductions, the sum over pixels without a weight is
0, the mean divides by the number of channels, and both images have one shape [choice reduction-weights]. The only
gradient is that of the node of the spatial mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from mpsref import registry
from mpsref.arguments.arrays import Array, Shape, empty
from mpsref.arguments.parameters import Clip, Pair, flag, number
from mpsref.errors import ShapeError
from mpsref.kernels import Arithmetic, Reduce
from mpsref.kernels import reduce as kernels
from mpsref.mps.core import types
from mpsref.mps.core.call import Computation, Index, problem_of
from mpsref.mps.core.clip_regions import count, whole
from mpsref.mps.core.image_kernels import MPSCNNBinaryKernel
from mpsref.mps.core.properties import Argument, Property, constructed
from mpsref.mps.core.types import MTLRegion
from mpsref.mps.core.whole_image import DESTINATION, SOURCE, WholeImage, WholeImageGradient, WholeImageKernel
from mpsref.mps.graph.nodes import CustomPolicy, ForwardKernelNode, GradientKernelNode
from mpsref.registry import Backend


def _clip(rect: MTLRegion | None) -> Clip | None:
    """Return the region of the functional form."""
    return None if rect is None else ((rect.origin.y, rect.origin.x), (rect.size.height, rect.size.width))


class MPSNNReduceUnary(WholeImageKernel):
    """Base class of the reductions: :class:`mpsref.Reduce` of the region ``clip_rect_source`` of an image.

    The result has the size of the region, and length 1 along the axis that is reduced. ``offset`` is ignored [doc].
    """

    fixed = tuple(name for name in WholeImageKernel.fixed if name != "offset")
    clip_rect_source = Property(
        types.region, None, "The region of the source that is read, MTLRegion; ``None``: all. It is cut to the image."
    )


class _Reduction(MPSNNReduceUnary):
    """A reduction that the functional form has."""

    operation: ClassVar[kernels.Reduction]
    over: ClassVar[kernels.Over]

    def __init_subclass__(cls, operation: kernels.Reduction | None = None, over: kernels.Over | None = None) -> None:
        super().__init_subclass__()
        if operation is not None:
            cls.operation = operation
        if over is not None:
            cls.over = over

    def _weight(self) -> float:
        """Return the factor of the sum."""
        return 1.0

    def _function(self) -> Reduce:
        return Reduce(self.operation, self.over, self._weight(), _clip(self.clip_rect_source))

    def _images(self, number: int) -> slice:
        """Return the images of a batch that are read."""
        rect = self.clip_rect_source
        if rect is None:
            return slice(0, number)
        stop = min(number, rect.origin.z + rect.size.depth)
        if rect.origin.z >= stop:
            raise ValueError(
                f"clip_rect_source is {rect} and source_image has {number} images: nothing lies in both; its origin.z "
                "and size.depth must name one of them"
            )
        return slice(rect.origin.z, stop)

    def _parts(self, *shapes: Shape) -> Sequence[Index]:
        (shape,) = shapes
        return [whole(shape)._replace(images=self._images(shape[0]))]


class _OverRows(_Reduction, over="row"):
    """One value for each row and channel: (N, H, 1, C)."""


class _OverColumns(_Reduction, over="column"):
    """One value for each column and channel: (N, 1, W, C)."""


class _OverChannels(_Reduction, over="featurechannels"):
    """One value for each pixel: (N, H, W, 1)."""


class MPSNNReduceRowMin(_OverRows, operation="min"):
    """The smallest value of each row."""


class MPSNNReduceRowMax(_OverRows, operation="max"):
    """The largest value of each row."""


class MPSNNReduceRowMean(_OverRows, operation="mean"):
    """The mean of each row."""


class MPSNNReduceRowSum(_OverRows, operation="sum"):
    """The sum of each row."""


class MPSNNReduceColumnMin(_OverColumns, operation="min"):
    """The smallest value of each column."""


class MPSNNReduceColumnMax(_OverColumns, operation="max"):
    """The largest value of each column."""


class MPSNNReduceColumnMean(_OverColumns, operation="mean"):
    """The mean of each column."""


class MPSNNReduceColumnSum(_OverColumns, operation="sum"):
    """The sum of each column."""


class MPSNNReduceFeatureChannelsMin(_OverChannels, operation="min"):
    """The smallest channel of each pixel."""


class MPSNNReduceFeatureChannelsMax(_OverChannels, operation="max"):
    """The largest channel of each pixel."""


class MPSNNReduceFeatureChannelsMean(_OverChannels, operation="mean"):
    """The mean of the channels of each pixel."""


class MPSNNReduceFeatureChannelsSum(_OverChannels, operation="sum"):
    """``weight`` times the sum of the channels of each pixel."""

    weight = Property(number, 1.0, "The factor of the sum.")

    def _weight(self) -> float:
        return self.weight


class MPSNNReduceFeatureChannelsArgumentMin(_OverChannels, operation="argumentmin"):
    """The index, as a float, of the smallest channel of each pixel; the lowest of equal ones [obs reduction-tie]."""


class MPSNNReduceFeatureChannelsArgumentMax(_OverChannels, operation="argumentmax"):
    """The index, as a float, of the largest channel of each pixel; the lowest of equal ones [obs reduction-tie]."""


# --- weighted reductions ----------------------------------------------------------------------------------------------


MULTIPLY = Arithmetic("multiply")
DIVIDE = Arithmetic("divide")


@constructed(init=False, kw_only=True)
class MPSNNReduceBinary(WholeImage, MPSCNNBinaryKernel):
    """Base class: the primary image times the secondary one, the weights, reduced along the channels.

    The result is (N, H, W, 1), with the size of the regions that are read, which must have one shape.
    """

    fixed = (*DESTINATION, *(prefix + name for prefix in MPSCNNBinaryKernel.prefixes for name in SOURCE))

    primary_source_clip_rect: Property[MTLRegion | None] = Property(
        types.region,
        None,
        "The region of the primary image that is read, MTLRegion; ``None``: all. It is cut to the image.",
    )
    secondary_source_clip_rect: Property[MTLRegion | None] = Property(
        types.region, None, "The same for the secondary image."
    )

    def _parts(self, *shapes: Shape) -> Sequence[Index]:
        """Return the regions of both images that are read; raise ``ShapeError`` unless they have one shape."""
        rects = self.primary_source_clip_rect, self.secondary_source_clip_rect
        parts = [
            _part(f"{prefix}source_clip_rect", f"{prefix}image", shape, rect)
            for prefix, shape, rect in zip(self.prefixes, shapes, rects, strict=True)
        ]
        x, w = (tuple(map(count, part)) for part in parts)
        if x != w:
            raise ShapeError(
                f"{type(self).__name__} reads {x} of primary_image and {w} of secondary_image; there must be a weight "
                "for each element"
            )
        return parts

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        return Computation(compute=self._computed, shape=(*shapes[0][:3], 1))

    def _computed(self, images: Sequence[Array], backend: str | Backend | None) -> Array:
        x, w = (image.astype(np.result_type(image, np.float32), copy=False) for image in images)
        return self._reduced(MULTIPLY.forward(x, w, backend=backend), w, backend)

    def _reduced(self, products: Array, weights: Array, backend: str | Backend | None) -> Array:
        """Return the result from the products of each element with its weight."""
        return self._function().forward(products, backend=backend)  # type: ignore[no-any-return]


def _part(name: str, image: str, shape: Shape, rect: MTLRegion | None) -> Index:
    """Return the region ``rect`` of an image; raise ``ValueError`` if it does not overlap the image."""
    n, height, width, channels = shape
    (x, y, z), (columns, rows, depth) = rect or ((0, 0, 0), (width, height, n))
    ends = zip((z, y, x), (depth, rows, columns), (n, height, width), strict=True)
    part = [slice(*slice(first, first + length).indices(axis)[:2]) for first, length, axis in ends]
    if rect is not None and any(one.stop <= one.start for one in part):
        raise ValueError(f"{name} is {rect} and {image} has shape {shape}: nothing lies in both; they must overlap")
    return *part, slice(0, channels)


@constructed()
class MPSNNReduceFeatureChannelsAndWeightsSum(MPSNNReduceBinary):
    """The sum of ``x[c] w[c]`` over the channels c of each pixel."""

    do_weighted_sum_by_non_zero_weights: Argument[bool] = Argument(
        flag, "Whether a sum is divided by the number of its weights that are not 0.", default=False
    )

    def _function(self) -> Reduce:
        return Reduce("sum", "featurechannels")

    def _reduced(self, products: Array, weights: Array, backend: str | Backend | None) -> Array:
        total = super()._reduced(products, weights, backend)
        if not self.do_weighted_sum_by_non_zero_weights:
            return total
        used = np.maximum(np.count_nonzero(weights, axis=3, keepdims=True), 1)  # without any, the sum is 0
        return DIVIDE.forward(total, used.astype(total.dtype), backend=backend)


class MPSNNReduceFeatureChannelsAndWeightsMean(MPSNNReduceBinary):
    """The sum of ``x[c] w[c]`` over the channels c of each pixel, divided by the number of channels."""

    def _function(self) -> Reduce:
        return Reduce("mean", "featurechannels")


# --- nodes ------------------------------------------------------------------------------------------------------------


class MPSNNUnaryReductionNode(ForwardKernelNode):
    """Base class of the reduction nodes."""

    _abstract = True
    kind = "reduce"
    custom_policy: ClassVar[CustomPolicy] = "ignored"
    _differentiable: ClassVar[Sequence[int]] = ()
    spec_class = Reduce

    clip_rect_source = MPSNNReduceUnary.clip_rect_source

    def __init_subclass__(cls, kernel: type[_Reduction] | None = None) -> None:
        super().__init_subclass__()
        if kernel is not None:
            cls.kernel_class = kernel


class _SpatialMean(_Reduction, operation="mean", over="spatial"):
    """The kernel of the node, which MPS does not have."""

    recorded = ("_function", "clip_rect_source")


class _SpatialMeanGradient(WholeImageGradient):
    forward_class = _SpatialMean

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        record, x = self._state.record, shapes[1]
        first, number = 0, record.destination_shape[0]
        if (rect := record.extras["clip_rect_source"]) is not None:
            first = rect.origin.z
        problem = problem_of(record.extras["function"], "gradient", (number, *x[1:]))
        if number == x[0]:
            return Computation(problem)

        def compute(images: Sequence[Array], backend: str | Backend | None) -> Array:
            """Return 0 for the images that are not read."""
            dx = empty("the result", x, images[0].dtype, images)
            dx.fill(0)
            dx[first : first + number] = registry.run_one(problem, images[0], backend=backend)
            return dx

        return Computation(problem, compute=compute, shape=x)


class MPSNNReductionSpatialMeanGradientNode(GradientKernelNode):
    """The gradient of the spatial mean."""

    kernel_class, reads_pixels = _SpatialMeanGradient, False


class MPSNNReductionSpatialMeanNode(MPSNNUnaryReductionNode, kernel=_SpatialMean):
    """The mean over all pixels of each channel, (N, 1, 1, C)."""

    kind = "mean"
    gradient_class = MPSNNReductionSpatialMeanGradientNode
    _differentiable = (0,)


class MPSNNReductionRowMinNode(MPSNNUnaryReductionNode, kernel=MPSNNReduceRowMin):
    """The smallest value of each row, (N, H, 1, C)."""


class MPSNNReductionRowMaxNode(MPSNNUnaryReductionNode, kernel=MPSNNReduceRowMax):
    """The largest value of each row, (N, H, 1, C)."""


class MPSNNReductionRowMeanNode(MPSNNUnaryReductionNode, kernel=MPSNNReduceRowMean):
    """The mean of each row, (N, H, 1, C)."""


class MPSNNReductionRowSumNode(MPSNNUnaryReductionNode, kernel=MPSNNReduceRowSum):
    """The sum of each row, (N, H, 1, C)."""


class MPSNNReductionColumnMinNode(MPSNNUnaryReductionNode, kernel=MPSNNReduceColumnMin):
    """The smallest value of each column, (N, 1, W, C)."""


class MPSNNReductionColumnMaxNode(MPSNNUnaryReductionNode, kernel=MPSNNReduceColumnMax):
    """The largest value of each column, (N, 1, W, C)."""


class MPSNNReductionColumnMeanNode(MPSNNUnaryReductionNode, kernel=MPSNNReduceColumnMean):
    """The mean of each column, (N, 1, W, C)."""


class MPSNNReductionColumnSumNode(MPSNNUnaryReductionNode, kernel=MPSNNReduceColumnSum):
    """The sum of each column, (N, 1, W, C)."""


class MPSNNReductionFeatureChannelsMinNode(MPSNNUnaryReductionNode, kernel=MPSNNReduceFeatureChannelsMin):
    """The smallest value over the channels of each pixel, (N, H, W, 1)."""


class MPSNNReductionFeatureChannelsMaxNode(MPSNNUnaryReductionNode, kernel=MPSNNReduceFeatureChannelsMax):
    """The largest value over the channels of each pixel, (N, H, W, 1)."""


class MPSNNReductionFeatureChannelsMeanNode(MPSNNUnaryReductionNode, kernel=MPSNNReduceFeatureChannelsMean):
    """The mean over the channels of each pixel, (N, H, W, 1)."""


class MPSNNReductionFeatureChannelsSumNode(MPSNNUnaryReductionNode, kernel=MPSNNReduceFeatureChannelsSum):
    """The sum over the channels of each pixel, times ``weight``, (N, H, W, 1)."""

    weight = MPSNNReduceFeatureChannelsSum.weight


class MPSNNReductionFeatureChannelsArgumentMinNode(
    MPSNNUnaryReductionNode, kernel=MPSNNReduceFeatureChannelsArgumentMin
):
    """The channel of the smallest value of each pixel, as a float; the first of equal ones."""


class MPSNNReductionFeatureChannelsArgumentMaxNode(
    MPSNNUnaryReductionNode, kernel=MPSNNReduceFeatureChannelsArgumentMax
):
    """The channel of the largest value of each pixel, as a float; the first of equal ones."""
