"""Filter nodes: one kernel call each, which make the nodes of their results.

Nodes are light: no pixels, no weights, no backend. A network is written by passing one node's result to the next;
:class:`~mpsref.mps.graph.MPSNNGraph` then compiles what a result depends on. Source: ``MPSNNGraphNodes.h`` [doc].
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

from mpsref import registry
from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import MultipleGradientsError, NoGradientError, ShapeError
from mpsref.mps.core.padding import DEFAULT_PADDING, MPSNNPadding, policy
from mpsref.mps.core.properties import Property, initialize, optional
from mpsref.mps.core.types import Enumeration, member
from mpsref.mps.graph.call import Bound, BoundState, Call
from mpsref.mps.graph.places import (
    MPSNNGradientStateNode,
    MPSNNImageNode,
    MPSNNLabelsNode,
    MPSNNStateNode,
    Node,
    image_node,
)
from mpsref.mps.graph.step import Step
from mpsref.registry import Backend, Operation, OperationKey, Spec

__all__ = [
    "MPSNNFilterNode",
    "MPSNNGradientFilterNode",
    "MPSNNTrainableNode",
    "MPSNNTrainingStyle",
]


class MPSNNTrainingStyle(Enumeration):
    """Who updates the parameters of a trainable node, and when. Source: ``MPSNNGraphNodes.h`` [doc]."""

    NONE = 0
    CPU = 1
    GPU = 2


def training_style(name: str, value: Any) -> MPSNNTrainingStyle:
    """Check a training style: a member, its number, or its name in lower case."""
    return member(name, value, MPSNNTrainingStyle)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; it must be a str or None")
    return value


def _backend(name: str, value: Any) -> str | Backend:
    registry.get_backend(value)
    return value  # type: ignore[no-any-return]


class MPSNNFilterNode(Node, abc.ABC):
    """One kernel call in a graph: source images and states in, one result image, and a state for the gradient.

    Filter nodes are immutable but for their properties. A label that is not given is made up, from the kind of the node
    and a number, when a graph first meets it.
    """

    kind: ClassVar[str]
    """What made-up labels start with."""
    spec_class: ClassVar[type[Spec] | None] = None
    """Whose operations it runs; ``None`` for a node that computes nothing."""
    gradient_class: ClassVar[type[MPSNNGradientFilterNode] | None] = None
    """The class of its gradient nodes."""
    state_class: ClassVar[type[MPSNNStateNode] | None] = MPSNNGradientStateNode
    needs: ClassVar[str] = ""
    """Why there is no gradient, for the message; where there are differentiable sources it is not used."""
    result_is_gradient: ClassVar[bool] = False
    """Whether the result is the gradient of the first source: where a training graph may start."""
    form: ClassVar[str] = "forward"
    """"forward" or "gradient", in tables."""

    label = Property(optional(_text), None, "What tables and errors call it.")
    padding_policy: Property[MPSNNPadding] = Property(
        policy, DEFAULT_PADDING, "Where windows lie, once shapes are known."
    )
    backend: Property[str | Backend | None] = Property(
        optional(_backend), None, "What it runs on; ``None``: as the graph says."
    )

    _abstract: ClassVar[bool] = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse abstract classes."""
        if inspect.isabstract(cls) or vars(cls).get("_abstract", False):
            raise TypeError(f"{cls.__name__} is abstract; make a node of a class that derives from it")
        return super().__new__(cls)

    def __init__(
        self,
        source_images: Sequence[MPSNNImageNode],
        source_states: Sequence[MPSNNStateNode] = (),
        **properties: Any,
    ) -> None:
        """Connect the sources; ``TypeError`` for what is no node."""
        self._source_images = tuple(image_node(f"source_images[{k}]", image) for k, image in enumerate(source_images))
        self._source_states = tuple(source_states)
        for k, state in enumerate(self._source_states):
            if not isinstance(state, MPSNNStateNode):
                raise TypeError(f"source_states[{k}] is of type {type(state).__name__}; it must be an MPSNNStateNode")
        initialize(self, properties)
        self._result_image = MPSNNImageNode(format=self._source_images[0].format)
        self._result_image._producer = self
        self._result_state: MPSNNStateNode | None = None

    @property
    def source_images(self) -> tuple[MPSNNImageNode, ...]:
        """What it reads, in the order of its kernel."""
        return self._source_images

    @property
    def source_states(self) -> tuple[MPSNNStateNode, ...]:
        """The states it reads."""
        return self._source_states

    @property
    def result_image(self) -> MPSNNImageNode:
        """What it writes."""
        return self._result_image

    @property
    def result_state(self) -> MPSNNStateNode | None:
        """What it leaves for its gradient, made when first asked for; ``None`` for a filter without one."""
        if self._result_state is None and self.state_class is not None:
            self._result_state = self.state_class._of(self)
        return self._result_state

    @property
    def result_states(self) -> list[MPSNNStateNode] | None:
        """The same as a list."""
        return None if self.result_state is None else [self.result_state]

    @property
    def name(self) -> str:
        """The label, or what it starts with until there is one."""
        return self.label or self.kind

    @property
    def made_up_label(self) -> str | None:
        """A label that follows from the other nodes, or ``None`` where a number makes it."""
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    # --- gradients ---------------------------------------------------------------------------------------------------

    @property
    def _state(self) -> MPSNNStateNode:
        """The state of a node that has one."""
        state = self.result_state
        assert state is not None
        return state

    _differentiable: ClassVar[Sequence[int]] = ()

    @property
    def differentiable_sources(self) -> Sequence[int]:
        """The numbers of the sources that training graphs make gradients for."""
        return self._differentiable

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        """Make the gradient node of one differentiable source."""
        raise NotImplementedError

    def gradient_filters_with_source(self, source_gradient: MPSNNImageNode) -> list[MPSNNGradientFilterNode]:
        """Return a gradient node for each differentiable source; ``source_gradient`` is that of ``result_image``.

        Raises ``NoGradientError`` where there is none.
        """
        image_node("source_gradient", source_gradient)
        if not self.differentiable_sources:
            raise NoGradientError(f"{type(self).__name__} {self.name!r} has no gradient: {self._why_no_gradient}")
        return [self._gradient_node(source_gradient, k) for k in self.differentiable_sources]

    def gradient_filter_with_source(self, source_gradient: MPSNNImageNode) -> MPSNNGradientFilterNode:
        """Return the gradient node of a filter with one source; ``MultipleGradientsError`` for one with several."""
        if self._several_gradients:
            raise MultipleGradientsError(
                f"{type(self).__name__} {self.name!r} has a gradient for each of its sources; "
                "call gradient_filters_with_source"
            )
        return self.gradient_filters_with_source(source_gradient)[0]

    def gradient_filter_with_sources(self, source_gradients: Iterable[MPSNNImageNode]) -> MPSNNGradientFilterNode:
        """Like :meth:`gradient_filter_with_source`, with a list of one."""
        return self.gradient_filter_with_source(_one(source_gradients))

    def gradient_filters_with_sources(
        self, source_gradients: Iterable[MPSNNImageNode]
    ) -> list[MPSNNGradientFilterNode]:
        """Like :meth:`gradient_filters_with_source`, with a list of one."""
        return self.gradient_filters_with_source(_one(source_gradients))

    def training_graph_with_source_gradient(
        self, gradient_image: MPSNNImageNode | None = None, node_handler: Any = None
    ) -> list[MPSNNFilterNode]:
        """Return the last nodes of the training graph from here; see :func:`~mpsref.mps.graph.training`."""
        from mpsref.mps.graph.training import training_graph  # it builds on the nodes

        return training_graph(self, gradient_image, node_handler).termini

    @property
    def _gradients_of(self) -> Sequence[int]:
        """The sources that a gradient node may be made for, also by hand."""
        return self.differentiable_sources

    @property
    def _several_gradients(self) -> bool:
        return len(self.differentiable_sources) > 1

    @property
    def _why_no_gradient(self) -> str:
        return self.needs or "MPS has no gradient kernel for it"

    # --- what a compiled graph asks ----------------------------------------------------------------------------------

    def _methods(self, step: Step) -> Sequence[str]:
        """The methods of ``spec_class`` that a step of this node calls."""
        return ("forward",)

    def _operations(self, step: Step) -> Sequence[OperationKey]:
        """What a step of this node runs, so that a backend without it is refused before anything runs."""
        return () if self.spec_class is None else [Operation(self.spec_class, name) for name in self._methods(step)]

    @abc.abstractmethod
    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        """Return function and result shape for sources of these shapes; raise ``ShapeError`` for what does not fit.

        ``parameters`` are those of a node with a data source, ``states`` say what produced its source states.
        """

    @abc.abstractmethod
    def _compute(self, call: Call, *images: Array) -> Array | None:
        """Run the kernel; ``None`` for a result that is not needed and was not computed."""


class MPSNNTrainableNode(MPSNNFilterNode):
    """A filter whose parameters can be trained. Source: the protocol ``MPSNNTrainableNode`` [doc]."""

    training_style = Property(training_style, MPSNNTrainingStyle.GPU, "Who updates its parameters, and when.")


class MPSNNGradientFilterNode(MPSNNFilterNode):
    """A gradient kernel in a graph: source gradient and forward image in, the gradient of a forward source out.

    There are no second derivatives: every method that makes a gradient raises ``NoGradientError``. Source: [doc].
    """

    kind = "grad"
    state_class = None
    form = "gradient"
    needs = "it is a gradient node, and MPS has no second derivatives"
    reads_pixels: ClassVar[bool] = True
    """Whether the kernel reads the pixels of the forward image, or only needs its size."""

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        *others: MPSNNImageNode,
        source_index: int = 0,
        **properties: Any,
    ) -> None:
        """Connect; ``gradient_state`` is the ``result_state`` of the forward node, whose source is differentiated."""
        if not isinstance(gradient_state, MPSNNStateNode) or isinstance(gradient_state, MPSNNLabelsNode):
            raise TypeError(
                f"gradient_state is of type {type(gradient_state).__name__}; it must be the result_state of the "
                "forward node"
            )
        image_node("source_gradient", source_gradient)
        image_node("source_image", source_image)
        producer = gradient_state.producer
        assert producer is not None
        if producer.gradient_class is None or type(self) is not producer.gradient_class:
            own = (
                "has no gradient" if producer.gradient_class is None else f"needs a {producer.gradient_class.__name__}"
            )
            raise TypeError(
                f"gradient_state is that of a {type(producer).__name__}, which {own}, not a {type(self).__name__}"
            )
        if source_index not in producer._gradients_of:
            raise ValueError(
                f"source_index is {source_index}; {type(producer).__name__} has gradients of the sources "
                f"{list(producer._gradients_of)}"
            )
        self._forward, self._source_index = producer, source_index
        super().__init__((source_gradient, source_image, *others), (gradient_state,), **properties)

    @property
    def forward(self) -> MPSNNFilterNode:
        """The node whose gradient it is."""
        return self._forward

    @property
    def source_index(self) -> int:
        """Which source of the forward node the result is the gradient of."""
        return self._source_index

    @property
    def forward_source(self) -> MPSNNImageNode:
        """The image that the result is the gradient of."""
        return self._forward.source_images[self._source_index]

    @property
    def source_gradient(self) -> MPSNNImageNode:
        """The gradient of the forward node's result."""
        return self._source_images[0]

    @property
    def gradient_state(self) -> MPSNNStateNode:
        """The forward node's state."""
        return self._source_states[0]

    @property
    def made_up_label(self) -> str | None:
        """That of the forward node and ``.grad``, with the number of the source where there are several."""
        several = f"[{self._source_index}]" if self._forward._several_gradients else ""
        return f"{self._forward.name}.grad{several}"

    def training_graph_with_source_gradient(
        self, gradient_image: MPSNNImageNode | None = None, node_handler: Any = None
    ) -> list[MPSNNFilterNode]:
        """Raise ``NoGradientError``."""
        raise NoGradientError(f"{type(self).__name__} {self.name!r} has no gradient: {self.needs}")

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        """Return the shape of the forward source; the function is that of the forward step."""
        forward, sources = states[0]
        if shapes[0] != forward.shape:
            raise ShapeError(
                f"the source gradient {self.source_gradient.name!r} has shape {shapes[0]}; the result of "
                f"{self.forward.name!r} has {forward.shape}: both must be equal"
            )
        expected = self._image_shape(states[0])
        if shapes[1] != expected:
            raise ShapeError(
                f"the source image {self.source_images[1].name!r} has shape {shapes[1]}; what {self.forward.name!r} "
                f"left for its gradient has {expected}: both must be equal"
            )
        return Bound(forward.spec, sources[self._source_index], forward.details)

    def _image_shape(self, state: BoundState) -> Shape:
        """Return the shape that ``source_image`` must have: that of the forward source, unless a class says more."""
        return state.source_shapes[self._source_index]

    def _methods(self, step: Step) -> Sequence[str]:
        return ("gradient",)

    def _operations(self, step: Step) -> Sequence[OperationKey]:
        spec_class = self._forward.spec_class
        return () if spec_class is None else [Operation(spec_class, name) for name in self._methods(step)]


def _one(images: Iterable[MPSNNImageNode]) -> MPSNNImageNode:
    found = list(images)
    if len(found) != 1:
        raise ValueError(f"source_gradients has {len(found)} images; every filter has one result, so it must have 1")
    return found[0]
