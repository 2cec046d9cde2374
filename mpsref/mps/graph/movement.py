"""Nodes that move pixels: concatenation, reshape and pad, and their gradients. Source: ``MPSNNGraphNodes.h`` [doc]."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import number
from mpsref.errors import ShapeError
from mpsref.kernels import Concatenation, Pad, Reshape, Slice
from mpsref.mps.core.properties import Property, at_least, fix
from mpsref.mps.core.types import MPSImageEdgeMode, edge_mode
from mpsref.mps.graph.nodes import (
    Bound,
    BoundState,
    Call,
    FunctionGradientNode,
    FunctionNode,
    MPSNNFilterNode,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
    MPSNNStateNode,
    Step,
)
from mpsref.mps.pad import coordinate
from mpsref.registry import Operation, OperationKey


class MPSNNConcatenationGradientNode(MPSNNGradientFilterNode):
    """The gradient of a concatenation for one source: its channels of the source gradient."""

    reads_pixels = False

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        source_index: int = 0,
        **properties: Any,
    ) -> None:
        """Make a node; ``source_index`` says which source's it is (not in MPS, which finds it by the image)."""
        super().__init__(source_gradient, source_image, gradient_state, source_index=source_index, **properties)

    def _operations(self, step: Step) -> Sequence[OperationKey]:
        return (Operation(Slice, "forward"),)

    def _compute(self, call: Call, *images: Array) -> Array:
        before = sum(call.spec.aligned(shape[3]) for shape in call.forward_shapes[: self.source_index])
        part = _channels(before, call.result_shape[3])
        return part.forward(images[0], backend=call.backend)


@functools.lru_cache(maxsize=64)
def _channels(first: int, count: int) -> Slice:
    return Slice((0, 0, first), (None, None, count))


class MPSNNConcatenationNode(MPSNNFilterNode):
    """Images side by side along the channels; each takes a multiple of ``channel_alignment`` channels [doc].

    >>> node = MPSNNConcatenationNode([MPSNNImageNode(), MPSNNImageNode()])
    >>> node.channel_alignment
    4
    """

    kind = "cat"
    spec_class = Concatenation
    gradient_class = MPSNNConcatenationGradientNode
    channel_alignment = Property(at_least(1), 4, "To what each source is padded with zeros; MPS has 4 alone.")

    def __init__(self, sources: Sequence[MPSNNImageNode], **properties: Any) -> None:
        """Make a node; ``ValueError`` for no source at all."""
        if not isinstance(sources, (list, tuple)):
            raise TypeError(f"sources is of type {type(sources).__name__}; it must be a list of image nodes")
        if not sources:
            raise ValueError("sources is empty; a concatenation must have at least one")
        super().__init__(sources, **properties)

    @property
    def differentiable_sources(self) -> Sequence[int]:
        """All sources."""
        return range(len(self.source_images))

    @property
    def _several_gradients(self) -> bool:
        return True  # the header marks the singular form unavailable, also for one source [doc]

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        spec = Concatenation(self.channel_alignment)
        first = shapes[0]
        for image, shape in zip(self.source_images, shapes, strict=True):
            if shape[:3] != first[:3]:
                raise ShapeError(
                    f"{image.name!r} has shape {shape}, {self.source_images[0].name!r} {first}; N, H, W must be equal"
                )
        return Bound(spec, (*first[:3], sum(spec.aligned(shape[3]) for shape in shapes)))

    def _compute(self, call: Call, *images: Array) -> Array:
        return call.spec.forward(images, backend=call.backend)  # type: ignore[no-any-return]

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        source = self.source_images[source_index]
        return MPSNNConcatenationGradientNode(source_gradient, source, self._state, source_index)


class MPSNNReshapeGradientNode(FunctionGradientNode):
    """The gradient of a reshape."""

    reads_pixels = False


class MPSNNReshapeNode(FunctionNode):
    """The same elements in another size."""

    kind = "reshape"
    spec_class = Reshape
    gradient_class = MPSNNReshapeGradientNode

    def __init__(
        self,
        source: MPSNNImageNode,
        result_width: int,
        result_height: int,
        result_feature_channels: int,
        **properties: Any,
    ) -> None:
        """Make a node; the sizes are >= 1."""
        self._function = Reshape((result_height, result_width, result_feature_channels))
        super().__init__(source, **properties)

    @property
    def function(self) -> Reshape:
        """The functional form."""
        return self._function

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        return MPSNNReshapeGradientNode(source_gradient, self.source_images[0], self._state)


class MPSNNPadGradientNode(FunctionGradientNode):
    """The gradient of a pad."""

    reads_pixels = False


class MPSNNPadNode(FunctionNode):
    """Pixels and channels around an image; sizes are (x, y, channel) [doc]."""

    kind = "pad"
    spec_class = Pad
    gradient_class = MPSNNPadGradientNode
    fill_value = Property(number, 0.0, "What the edge mode Constant fills with.")
    edge_mode = Property(
        lambda name, value: edge_mode(name, value, legal=tuple(MPSImageEdgeMode)),
        MPSImageEdgeMode.Zero,
        "What stands outside the image.",
        read_only=True,
    )

    def __init__(
        self,
        source: MPSNNImageNode,
        padding_size_before: Any,
        padding_size_after: Any,
        edge_mode: Any = MPSImageEdgeMode.Zero,
        **properties: Any,
    ) -> None:
        """Make a node; sizes are >= 0."""
        fix(self, edge_mode=edge_mode)
        bx, by, bc = coordinate("padding_size_before", padding_size_before)
        ax, ay, ac = coordinate("padding_size_after", padding_size_after)
        self._before, self._after = (by, bx, bc), (ay, ax, ac)
        super().__init__(source, **properties)
        assert self.function is not None  # errors belong here

    @property
    def function(self) -> Pad:
        """The functional form."""
        return Pad(self._before, self._after, self.edge_mode.name.lower(), self.fill_value)  # type: ignore[arg-type]

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        return MPSNNPadGradientNode(source_gradient, self.source_images[0], self._state)
