"""Upsampling nodes and their gradients; no padding policy changes them [doc]."""

from __future__ import annotations

from typing import Any, ClassVar

from mpsref.kernels import UpsamplingBilinear, UpsamplingNearest
from mpsref.mps.graph.nodes import (
    FunctionGradientNode,
    FunctionNode,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
    MPSNNStateNode,
)


class _Scaled:
    """Scale factors, as they were given when the node was made."""

    _scaling: UpsamplingNearest | UpsamplingBilinear

    @property
    def scale_factor_x(self) -> float:
        """How many times as wide the result is."""
        return float(self._scaling.scale[1])  # type: ignore[index]

    @property
    def scale_factor_y(self) -> float:
        """How many times as high the result is."""
        return float(self._scaling.scale[0])  # type: ignore[index]

    @property
    def align_corners(self) -> bool:
        """Whether the first and last pixels of source and result coincide."""
        return getattr(self._scaling, "align_corners", False)


class _Gradient(_Scaled, FunctionGradientNode):
    reads_pixels = False

    @property
    def function(self) -> UpsamplingNearest | UpsamplingBilinear:
        return self._scaling


class MPSCNNUpsamplingNearestGradientNode(_Gradient):
    """The gradient of nearest upsampling."""

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        scale_factor_x: int,
        scale_factor_y: int,
        **properties: Any,
    ) -> None:
        """Make a node with the scale factors of the forward node."""
        self._scaling = UpsamplingNearest((scale_factor_y, scale_factor_x))
        super().__init__(source_gradient, source_image, gradient_state, **properties)


class MPSCNNUpsamplingBilinearGradientNode(_Gradient):
    """The gradient of bilinear upsampling."""

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        scale_factor_x: int,
        scale_factor_y: int,
        align_corners: bool = False,
        **properties: Any,
    ) -> None:
        """Make a node with the scale factors of the forward node."""
        self._scaling = UpsamplingBilinear((scale_factor_y, scale_factor_x), align_corners)
        super().__init__(source_gradient, source_image, gradient_state, **properties)


class _Node(_Scaled, FunctionNode):
    gradient_class: ClassVar[type[Any]]

    @property
    def function(self) -> UpsamplingNearest | UpsamplingBilinear:
        return self._scaling

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        y, x = self._scaling.scale  # type: ignore[misc]
        more = [self.align_corners] if isinstance(self._scaling, UpsamplingBilinear) else []
        node: MPSNNGradientFilterNode = self.gradient_class(
            source_gradient, self.source_images[0], self._state, x, y, *more
        )
        return node


class MPSCNNUpsamplingNearestNode(_Node):
    """Nearest upsampling by integers."""

    kind = "near"
    spec_class = UpsamplingNearest
    gradient_class = MPSCNNUpsamplingNearestGradientNode

    def __init__(
        self, source: MPSNNImageNode, integer_scale_factor_x: int, integer_scale_factor_y: int, **properties: Any
    ) -> None:
        """Make a node; scale factors are integers >= 1."""
        self._scaling = UpsamplingNearest((integer_scale_factor_y, integer_scale_factor_x))
        super().__init__(source, **properties)


class MPSCNNUpsamplingBilinearNode(_Node):
    """Bilinear upsampling by integers; outside the image there are zeros."""

    kind = "bilin"
    spec_class = UpsamplingBilinear
    gradient_class = MPSCNNUpsamplingBilinearGradientNode

    def __init__(
        self,
        source: MPSNNImageNode,
        integer_scale_factor_x: int,
        integer_scale_factor_y: int,
        align_corners: bool = False,
        **properties: Any,
    ) -> None:
        """Make a node; scale factors are integers >= 1."""
        self._scaling = UpsamplingBilinear((integer_scale_factor_y, integer_scale_factor_x), align_corners)
        super().__init__(source, **properties)
