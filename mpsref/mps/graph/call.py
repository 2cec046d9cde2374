"""What a filter node gets to know when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mpsref.arguments.arrays import Array, Shape
from mpsref.registry import Backend, Spec

__all__ = ["Bound", "BoundState", "Call"]


class Bound(NamedTuple):
    """A forward node on sources of known shapes: the same for every run on them."""

    spec: Spec | None
    """The function, with the offsets and edge modes that the padding policy chose; ``None``: only data move."""
    shape: Shape
    """Of the result."""
    details: Any = None
    """What else the node wants to know when it runs."""


class BoundState(NamedTuple):
    """A forward step whose state another step reads."""

    bound: Bound
    source_shapes: tuple[Shape, ...]


@dataclass(slots=True)
class Call:
    """One step of one run. A gradient step has the function and the state of its forward step."""

    spec: Any
    details: Any
    shapes: tuple[Shape, ...]
    """Of the source images of the step."""
    result_shape: Shape
    backend: Backend
    parameters: Mapping[str, Array | None]
    """Weights, biases and so on, as they were when the run began."""
    state: dict[str, Any] = field(default_factory=dict)
    """Shared by a forward step and its gradient steps: statistics, masks, gradients of parameters."""
    forward_shapes: tuple[Shape, ...] = ()
    """Of the source images of the forward step."""
    result_is_needed: bool = True
    trains: bool = False
    """Whether a gradient step of this program reads the state; of a gradient step, whether its parameters count."""
    sequence: int = 0
    """Which run this is, for random masks."""
