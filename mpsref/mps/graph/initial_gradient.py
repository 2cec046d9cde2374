"""Where the gradients of a graph without a loss node start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.mps.graph.nodes import Bound, BoundState, Call, MPSNNFilterNode, MPSNNImageNode


class MPSNNInitialGradientNode(MPSNNFilterNode):
    """An image of ones of the shape of its source: the gradient that a graph without a loss node starts with."""

    kind = "one"
    state_class = None
    result_is_gradient = True
    needs = "its result is the first gradient: use its result image as the source gradient"

    def __init__(self, source: MPSNNImageNode, **properties: Any) -> None:
        """Make a node."""
        super().__init__((source,), **properties)

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        return Bound(None, shapes[0])

    def _compute(self, call: Call, *images: Array) -> Array:
        return np.ones_like(images[0])
