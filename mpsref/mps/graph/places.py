"""The places of images and states in a graph: no pixels, only who makes them and what they are called."""

from __future__ import annotations

import abc
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Self

from mpsref.arguments.parameters import choice, flag
from mpsref.mps.core.properties import Property, PropertyHolder, initialize, optional

if TYPE_CHECKING:
    from mpsref.mps.graph.nodes import MPSNNFilterNode

__all__ = [
    "MPSNNBinaryGradientStateNode",
    "MPSNNGradientStateNode",
    "MPSNNImageNode",
    "MPSNNLabelsNode",
    "MPSNNMultiaryGradientStateNode",
    "MPSNNStateNode",
    "Node",
    "allocator",
    "image_node",
]

FORMATS = ("none", "float16", "float32", "float64")


def _handle(name: str, value: Any) -> Hashable:
    if not isinstance(value, Hashable):
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be hashable: a str, or an object of yours")
    return value


def allocator(name: str, value: Any) -> Callable[..., Any] | None:
    """Return ``value`` if it is a function, or ``None``; ``TypeError`` if not."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be a function (shape, dtype) -> array")
    return value  # type: ignore[no-any-return]


class Node(PropertyHolder):
    """Base of all nodes: each is itself and no other, whatever its properties."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__  # type: ignore[assignment]


class _Place(Node):
    """What images and states have in common."""

    handle: Property[Hashable] = Property(
        optional(_handle), None, "What the application knows it by; its ``label``, or a str itself, is the name."
    )
    export_from_graph = Property(flag, False, "Whether a run hands it out.")
    synchronize_resource = Property(flag, False, "Kept, without effect: what a run hands out can be read [choice].")

    _producer: MPSNNFilterNode | None = None

    @property
    def producer(self) -> MPSNNFilterNode | None:
        """The filter node that makes it, or ``None`` for an input of the graph."""
        return self._producer

    @property
    def label(self) -> str | None:
        """What the handle is called, or ``None``."""
        label = self.handle if isinstance(self.handle, str) else getattr(self.handle, "label", None)
        return label if isinstance(label, str) else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What tables, drawings and errors call it."""


class MPSNNImageNode(_Place):
    """The place of an image in a graph: no pixels.

    An image without a producer is an input of the graph. What is set here about a filter's result is seen by every
    graph compiled afterwards.

    >>> x = MPSNNImageNode("pixels")
    >>> x.name, x.producer, x.format
    ('pixels', None, 'none')
    """

    format: Property[str] = Property(
        lambda name, value: choice(name, value, FORMATS), "none", 'How it is stored; "none": as the graph says.'
    )
    image_allocator = Property(allocator, None, "``(shape, dtype) -> array``; results use the graph's instead [doc].")
    stop_gradient = Property(flag, False, "Whether automatic training graphs stop here.")

    def __init__(self, handle: Hashable = None, **properties: Any) -> None:
        """Make an input; the handle is what runs know it by."""
        initialize(self, {"handle": handle, **properties})
        self._number = 0

    @classmethod
    def exported_node_with_handle(cls, handle: Hashable) -> Self:
        """Return an image node that runs hand out."""
        return cls(handle, export_from_graph=True)

    @property
    def name(self) -> str:
        """The label, else that of the producer with ``.out``, else ``input`` and a number."""
        if self.label is not None:
            return self.label
        if self._producer is not None:
            return f"{self._producer.name}.out"
        return f"input{self._number}" if self._number else "input"


class MPSNNStateNode(_Place):
    """The place of a state in a graph: what a forward kernel leaves for its gradient.

    Filter nodes make them: ``node.result_state``, and ``node.input_labels`` of a loss.
    """

    def __init__(self, *args: Any) -> None:
        """Raise ``TypeError``: states come from filter nodes."""
        raise TypeError(
            f"{type(self).__name__} cannot be made; take the result_state of a filter node, or the input_labels of a "
            "loss node"
        )

    @classmethod
    def _of(cls, producer: MPSNNFilterNode) -> Self:
        """Make the state of a filter node."""
        state = cls.__new__(cls)
        initialize(state, {})
        state._producer = producer
        return state

    def check(self, value: Any) -> Any:
        """Return what a run is given for it."""
        return value

    @property
    def name(self) -> str:
        """The label of the producer with ``.state``, or that of the handle."""
        assert self._producer is not None
        return self.label or f"{self._producer.name}.state"


class MPSNNGradientStateNode(MPSNNStateNode):
    """The state of a filter with one source."""


class MPSNNBinaryGradientStateNode(MPSNNStateNode):
    """The state of a filter with two sources."""


class MPSNNMultiaryGradientStateNode(MPSNNStateNode):
    """The state of a filter with any number of sources."""


class MPSNNLabelsNode(MPSNNStateNode):
    """The labels that a loss node compares with: an input of the graph."""

    def check(self, value: Any) -> Any:
        """Return labels if they are :class:`~mpsref.mps.MPSCNNLossLabels`; ``TypeError`` if not."""
        from mpsref.mps.loss_labels import MPSCNNLossLabels  # which needs more than nodes do

        if not isinstance(value, MPSCNNLossLabels):
            raise TypeError(f"labels for {self.name!r} are of type {type(value).__name__}; pass MPSCNNLossLabels")
        return value

    @property
    def producer(self) -> None:
        """``None``: labels come from outside."""
        return None

    @property
    def name(self) -> str:
        """The label of the loss node with ``.labels``, or that of the handle."""
        assert self._producer is not None
        return self.label or f"{self._producer.name}.labels"


def image_node(name: str, value: Any) -> MPSNNImageNode:
    """Return ``value`` if it is an image node; ``TypeError`` if not."""
    if not isinstance(value, MPSNNImageNode):
        hint = "; take its result_image" if hasattr(value, "result_image") else ""
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be an MPSNNImageNode{hint}")
    return value
