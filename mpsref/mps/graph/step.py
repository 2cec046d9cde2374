"""One step of a program: a node, and what the program knows of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpsref.mps.graph.nodes import MPSNNFilterNode, MPSNNTrainingStyle
    from mpsref.mps.graph.places import MPSNNImageNode

__all__ = ["Step"]


@dataclass(frozen=True)
class Step:
    """One node of a program."""

    number: int
    node: MPSNNFilterNode
    forward: MPSNNFilterNode
    """The node whose state it uses: that of a gradient step is its forward node's, any other has its own."""
    kernel: MPSNNFilterNode
    """A copy of the node as it was at compile time, which runs: later changes to the node are for later graphs."""
    result_is_needed: bool
    """Whether anyone reads the result: a step, the caller, or an export."""
    result_is_kept: bool
    """Whether the run hands the result out."""
    state_is_read: bool
    """Whether another step reads the state."""
    trains: bool
    """Whether a gradient step reads the state; of a gradient step, whether anyone wants the gradients of parameters."""
    updates: MPSNNTrainingStyle
    """Of the last gradient step of a trainable node: who is to update its parameters."""
    pixels: tuple[MPSNNImageNode, ...]
    """The images whose pixels it reads; of others it needs only the size."""
    released: tuple[MPSNNImageNode, ...] = ()
    """The images whose last reader this is."""

    @cached_property
    def result_image(self) -> MPSNNImageNode:
        """What its node writes."""
        return self.node.result_image

    @property
    def kind(self) -> str:
        """ "forward", "gradient", or "inserted" for an addition of a training graph."""
        return "inserted" if getattr(self.node, "_inserted", False) else self.node.form
