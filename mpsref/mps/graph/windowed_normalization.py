"""Spatial, local contrast and cross channel normalization nodes, and their gradients [doc].

The kernel size of a node is 5 unless it is given: documented for the cross channel one, for the others [choice].
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import number
from mpsref.kernels import CrossChannelNormalization, LocalContrastNormalization, SpatialNormalization
from mpsref.mps.core.properties import Property, at_least
from mpsref.mps.graph.nodes import (
    Bound,
    BoundState,
    Call,
    MPSNNFilterNode,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
    MPSNNStateNode,
)
from mpsref.mps.windowed_normalization import (
    MPSCNNLocalContrastNormalization,
    MPSCNNSpatialNormalization,
)

SIZE = 5


def _number(default: float, doc: str) -> Property[float]:
    return Property(number, default, doc)


def _size(doc: str) -> Property[int]:
    return Property(at_least(1), SIZE, doc)


class _Powers:
    """What the base of the power is made of."""

    alpha = _number(1.0, "The factor of the sum of squares.")
    beta = _number(5.0, "The exponent.")
    delta = _number(1.0, "What is added before the power.")


class _Window:
    kernel_width = _size("Width of the window.")
    kernel_height = _size("Height of the window.")


class _Contrast(_Window, _Powers):
    beta = _number(0.5, "The exponent.")
    delta = _number(1 / 1024, "What is added before the power.")
    p0 = _number(1.0, "The factor of the mean that is subtracted.")
    pm = _number(0.0, "What is added to the result.")
    ps = _number(1.0, "The factor of the result.")

    @property
    def _function(self) -> LocalContrastNormalization:
        numbers = {name: getattr(self, name) for name in ("alpha", "beta", "delta", "p0", "pm", "ps")}
        return LocalContrastNormalization((self.kernel_height, self.kernel_width), **numbers)


class _Spatial(_Window, _Powers):
    @property
    def _function(self) -> SpatialNormalization:
        return SpatialNormalization((self.kernel_height, self.kernel_width), self.alpha, self.beta, self.delta)


class _CrossChannel(_Powers):
    kernel_size_in_feature_channels = _size("How many channels a window has.")

    @property
    def _function(self) -> CrossChannelNormalization:
        return CrossChannelNormalization(self.kernel_size_in_feature_channels, self.alpha, self.beta, self.delta)


class MPSCNNNormalizationNode(MPSNNFilterNode):
    """Base of the three nodes."""

    _abstract = True
    gradient_class: ClassVar[type[_Gradient]]
    _differentiable = (0,)
    copied: ClassVar[tuple[str, ...]] = ("kernel_width", "kernel_height", "alpha", "beta", "delta")
    """The properties that a gradient node takes over."""

    def __init__(self, source: MPSNNImageNode, kernel_size: int | None = None, **properties: Any) -> None:
        """Make a node; ``kernel_size`` is for both axes."""
        if kernel_size is not None:
            for name in self.copied:
                if name.startswith("kernel"):
                    properties.setdefault(name, kernel_size)
        super().__init__((source,), **properties)
        assert self._function is not None  # errors belong here

    @property
    @abc.abstractmethod
    def _function(self) -> Any:
        """The functional form."""

    def _compute(self, call: Call, *images: Array) -> Array:
        return call.spec.forward(images[0], call.result_shape[1:3], backend=call.backend)  # type: ignore[no-any-return]

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        parameters = {name: getattr(self, name) for name in self.copied}
        return self.gradient_class(source_gradient, self.source_images[0], self._state, **parameters)


class _WindowedNode(MPSCNNNormalizationNode):
    _abstract = True
    kernel_class: ClassVar[type[MPSCNNSpatialNormalization | MPSCNNLocalContrastNormalization]]

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        spec = self._function
        height, width = spec.kernel_size
        kernel = self.kernel_class(width, height, padding=self.padding_policy, backend="reference")
        shape = kernel.infer_padding(shapes[0])
        return Bound(dataclasses.replace(spec, offset=(kernel.offset.y, kernel.offset.x)), shape)


class _Gradient(MPSNNGradientFilterNode):
    @property
    @abc.abstractmethod
    def _function(self) -> Any:
        """The functional form; the offset is that of the forward pass."""

    def _compute(self, call: Call, *images: Array) -> Array:
        g, x = images
        return self._on(call.spec).gradient(g, x, backend=call.backend)  # type: ignore[no-any-return]

    def _on(self, spec: Any) -> Any:
        """Return the function of this node with the forward offset; usually the forward function itself."""
        own = self._function
        if hasattr(spec, "offset"):
            own = dataclasses.replace(own, offset=spec.offset)
        return own


class MPSCNNSpatialNormalizationGradientNode(_Spatial, _Gradient):
    """The gradient of spatial normalization."""

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        kernel_size: int = SIZE,
        **properties: Any,
    ) -> None:
        """Make a node with the numbers of the forward node."""
        properties = {"kernel_width": kernel_size, "kernel_height": kernel_size, **properties}
        super().__init__(source_gradient, source_image, gradient_state, **properties)


class MPSCNNLocalContrastNormalizationGradientNode(_Contrast, _Gradient):
    """The gradient of local contrast normalization; built by hand its alpha is 0, unlike that of the forward node."""

    alpha = _number(0.0, "The factor of the variance.")

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        kernel_width: int = SIZE,
        kernel_height: int = SIZE,
        **properties: Any,
    ) -> None:
        """Make a node with the numbers of the forward node."""
        properties = {"kernel_width": kernel_width, "kernel_height": kernel_height, **properties}
        super().__init__(source_gradient, source_image, gradient_state, **properties)


class MPSCNNCrossChannelNormalizationGradientNode(_CrossChannel, _Gradient):
    """The gradient of cross channel normalization."""

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        kernel_size: int = SIZE,
        **properties: Any,
    ) -> None:
        """Make a node with the numbers of the forward node."""
        properties = {"kernel_size_in_feature_channels": kernel_size, **properties}
        super().__init__(source_gradient, source_image, gradient_state, **properties)


class MPSCNNSpatialNormalizationNode(_Spatial, _WindowedNode):
    """Spatial normalization."""

    kind = "snorm"
    kernel_class = MPSCNNSpatialNormalization
    spec_class = SpatialNormalization
    gradient_class = MPSCNNSpatialNormalizationGradientNode


class MPSCNNLocalContrastNormalizationNode(_Contrast, _WindowedNode):
    """Local contrast normalization; alpha is 1, where that of the kernel class is 0 [doc]."""

    kind = "lcn"
    kernel_class = MPSCNNLocalContrastNormalization
    spec_class = LocalContrastNormalization
    gradient_class = MPSCNNLocalContrastNormalizationGradientNode
    copied = (*MPSCNNNormalizationNode.copied, "p0", "pm", "ps")


class MPSCNNCrossChannelNormalizationNode(_CrossChannel, MPSCNNNormalizationNode):
    """Cross channel normalization."""

    kind = "lrn"
    spec_class = CrossChannelNormalization
    gradient_class = MPSCNNCrossChannelNormalizationGradientNode
    copied = ("kernel_size_in_feature_channels", "alpha", "beta", "delta")

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        return Bound(self._function, shapes[0])

    def _compute(self, call: Call, *images: Array) -> Array:
        return call.spec.forward(images[0], backend=call.backend)  # type: ignore[no-any-return]
