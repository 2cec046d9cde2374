"""The dropout node and its gradient. Source: ``MPSNNGraphNodes.h`` [doc]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpsref.arguments.arrays import Array
from mpsref.kernels import Dropout
from mpsref.mps.core.types import MTLSize
from mpsref.mps.dropout import _mask_stride
from mpsref.mps.graph.nodes import Call, FunctionNode, MPSNNGradientFilterNode, MPSNNImageNode, MPSNNStateNode, Step

STRIDES = (1, 1, 1)


class _Parameters:
    """Keep probability, seed and mask strides (x, y, channel), as they were given when the node was made."""

    function: Dropout

    @property
    def keep_probability(self) -> float:
        """The probability that a value is kept."""
        return self.function.keep_probability

    @property
    def seed(self) -> int:
        """The seed of the masks."""
        return self.function.seed

    @property
    def mask_stride_in_pixels(self) -> MTLSize:
        """1 where each position of the axis has a mask value of its own, 0 where one is for all."""
        y, x, c = self.function.mask_strides
        return MTLSize(x, y, c)


def _function(keep_probability: float, seed: int, mask_stride_in_pixels: Any) -> Dropout:
    x, y, c = _mask_stride("mask_stride_in_pixels", mask_stride_in_pixels)
    return Dropout(keep_probability, seed, (y, x, c))


class MPSCNNDropoutGradientNode(_Parameters, MPSNNGradientFilterNode):
    """The gradient of dropout, with the mask of the forward pass; its parameters are those of the forward node."""

    reads_pixels = False

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        keep_probability: float = 0.5,
        seed: int = 0,
        mask_stride_in_pixels: Any = STRIDES,
        **properties: Any,
    ) -> None:
        """Make a node; ``ValueError`` if the parameters are not those of the forward node."""
        self._dropout = _function(keep_probability, seed, mask_stride_in_pixels)
        super().__init__(source_gradient, source_image, gradient_state, **properties)
        forward = self.forward
        assert isinstance(forward, MPSCNNDropoutNode)
        if forward.function != self._dropout:
            raise ValueError(
                f"the parameters are those of {self._dropout}; the forward node has those of {forward.function}: a "
                "mask is drawn once, in the forward pass"
            )

    @property
    def function(self) -> Dropout:  # type: ignore[override]
        """The functional form."""
        return self._dropout

    def _compute(self, call: Call, *images: Array) -> Array:
        return self._dropout.gradient(images[0], call.state["mask"], backend=call.backend)


class MPSCNNDropoutNode(_Parameters, FunctionNode):
    """Dropout, which is active wherever it is in a program; each run draws other masks.

    >>> MPSCNNDropoutNode(MPSNNImageNode(), keep_probability=0.75).mask_stride_in_pixels
    MTLSize(width=1, height=1, depth=1)
    """

    kind = "drop"
    spec_class = Dropout
    gradient_class = MPSCNNDropoutGradientNode

    def __init__(
        self,
        source: MPSNNImageNode,
        keep_probability: float = 0.5,
        seed: int = 0,
        mask_stride_in_pixels: Any = STRIDES,
        **properties: Any,
    ) -> None:
        """Make a node; ``ValueError`` for a probability outside (0, 1), a seed outside [0, 2**64), other strides."""
        self._dropout = _function(keep_probability, seed, mask_stride_in_pixels)
        super().__init__(source, **properties)

    @property
    def function(self) -> Dropout:  # type: ignore[override]
        """The functional form."""
        return self._dropout

    def _methods(self, step: Step) -> Sequence[str]:
        return "mask", "forward"

    def _compute(self, call: Call, *images: Array) -> Array:
        mask = self._dropout.mask(images[0].shape, call.sequence, backend=call.backend)
        call.state["mask"] = mask
        return self._dropout.forward(images[0], mask, backend=call.backend)

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        return MPSCNNDropoutGradientNode(
            source_gradient,
            self.source_images[0],
            self._state,
            self.keep_probability,
            self.seed,
            self.mask_stride_in_pixels,
        )
