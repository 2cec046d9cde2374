"""Reduction nodes; of all of them only the spatial mean has a gradient. Source: ``MPSNNGraphNodes.h`` [doc]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from mpsref.kernels import Reduce
from mpsref.mps.core import types
from mpsref.mps.core.properties import Property
from mpsref.mps.graph.nodes import FunctionGradientNode, FunctionNode, MPSNNGradientFilterNode, MPSNNImageNode


class _Reduction(FunctionNode):
    kind = "reduce"
    _differentiable: ClassVar[Sequence[int]] = ()
    spec_class = Reduce
    reduces: ClassVar[tuple[str, str]]
    """What, and over which axes."""

    clip_rect_source = Property(types.region, None, "The part of the source that is read; ``None`` is all of it.")

    def __init__(self, source: MPSNNImageNode, **properties: Any) -> None:
        """Make a node."""
        super().__init__(source, **properties)

    @property
    def function(self) -> Reduce:
        """The functional form."""
        operation, over = self.reduces
        region = self.clip_rect_source
        clip = region and ((region.origin.y, region.origin.x), (region.size.height, region.size.width))
        return Reduce(operation, over, clip=clip)  # type: ignore[arg-type]


class MPSNNReductionSpatialMeanGradientNode(FunctionGradientNode):
    """The gradient of the spatial mean."""

    reads_pixels = False


class MPSNNReductionSpatialMeanNode(_Reduction):
    """The mean over all pixels of each channel, (N, 1, 1, C)."""

    kind = "mean"
    gradient_class = MPSNNReductionSpatialMeanGradientNode
    _differentiable = (0,)
    reduces = ("mean", "spatial")

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        return MPSNNReductionSpatialMeanGradientNode(source_gradient, self.source_images[0], self._state)


class MPSNNReductionRowMinNode(_Reduction):
    """The smallest value of each row, (N, H, 1, C)."""

    reduces = ("min", "row")


class MPSNNReductionRowMaxNode(_Reduction):
    """The largest value of each row, (N, H, 1, C)."""

    reduces = ("max", "row")


class MPSNNReductionRowMeanNode(_Reduction):
    """The mean of each row, (N, H, 1, C)."""

    reduces = ("mean", "row")


class MPSNNReductionRowSumNode(_Reduction):
    """The sum of each row, (N, H, 1, C)."""

    reduces = ("sum", "row")


class MPSNNReductionColumnMinNode(_Reduction):
    """The smallest value of each column, (N, 1, W, C)."""

    reduces = ("min", "column")


class MPSNNReductionColumnMaxNode(_Reduction):
    """The largest value of each column, (N, 1, W, C)."""

    reduces = ("max", "column")


class MPSNNReductionColumnMeanNode(_Reduction):
    """The mean of each column, (N, 1, W, C)."""

    reduces = ("mean", "column")


class MPSNNReductionColumnSumNode(_Reduction):
    """The sum of each column, (N, 1, W, C)."""

    reduces = ("sum", "column")


class MPSNNReductionFeatureChannelsMinNode(_Reduction):
    """The smallest value over the channels of each pixel, (N, H, W, 1)."""

    reduces = ("min", "featurechannels")


class MPSNNReductionFeatureChannelsMaxNode(_Reduction):
    """The largest value over the channels of each pixel, (N, H, W, 1)."""

    reduces = ("max", "featurechannels")


class MPSNNReductionFeatureChannelsMeanNode(_Reduction):
    """The mean over the channels of each pixel, (N, H, W, 1)."""

    reduces = ("mean", "featurechannels")


class MPSNNReductionFeatureChannelsSumNode(_Reduction):
    """The sum over the channels of each pixel, (N, H, W, 1)."""

    reduces = ("sum", "featurechannels")


class MPSNNReductionFeatureChannelsArgumentMinNode(_Reduction):
    """The channel of the smallest value of each pixel, as a float; the first of equal ones."""

    reduces = ("argumentmin", "featurechannels")


class MPSNNReductionFeatureChannelsArgumentMaxNode(_Reduction):
    """The channel of the largest value of each pixel, as a float; the first of equal ones."""

    reduces = ("argumentmax", "featurechannels")
