"""Nodes whose kernel is one function of one image, and their gradients: most of them."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

from mpsref.arguments.arrays import Array, Shape
from mpsref.mps.graph.call import Bound, BoundState, Call
from mpsref.mps.graph.nodes import MPSNNFilterNode, MPSNNGradientFilterNode
from mpsref.mps.graph.places import MPSNNImageNode

__all__ = ["FunctionGradientNode", "FunctionNode"]


class FunctionNode(MPSNNFilterNode):
    """A forward node with a functional form that needs no more than the image; not a class of Apple's."""

    _differentiable: ClassVar[Sequence[int]] = (0,)

    def __init__(self, source: MPSNNImageNode, **properties: Any) -> None:
        """Make a node."""
        super().__init__((source,), **properties)

    @property
    @abc.abstractmethod
    def function(self) -> Any:
        """The functional form, with the parameters that the node has now."""

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        function = self.function
        return Bound(function, function.problems["forward"](function, shapes[0]).result_shapes[0])

    def _compute(self, call: Call, *images: Array) -> Array:
        return call.spec.forward(images[0], backend=call.backend)  # type: ignore[no-any-return]


class FunctionGradientNode(MPSNNGradientFilterNode):
    """The gradient of such a node; not a class of Apple's."""

    @property
    def function(self) -> Any:
        """The functional form; ``None`` for that of the forward pass."""
        return None

    def _compute(self, call: Call, *images: Array) -> Array:
        g, *x = images
        source = x[0] if self.reads_pixels else call.forward_shapes[0]
        return (self.function or call.spec).gradient(g, source, backend=call.backend)  # type: ignore[no-any-return]
