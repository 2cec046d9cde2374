"""Nodes of graphs: images, states and filters.

Nodes have no pixels and no weights. A network is built by passing the result of one filter to the next;
:class:`~mpsref.mps.graph.MPSNNGraph` compiles the nodes that a result depends on. The filter nodes of a kernel family
are in the module of its kernels, for example :mod:`mpsref.mps.softmax`. Source: ``MPSNNGraphNodes.h`` [doc].
"""

from __future__ import annotations

import abc
import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from anymetal.fork_safe import cached_property
from mpsref.arguments.arrays import Array, DType, Shape
from mpsref.arguments.parameters import flag, integer
from mpsref.arguments.text import shown
from mpsref.errors import MultipleGradientsError, NoGradientError, ShapeError, UnsupportedError
from mpsref.mps.core.call import Call
from mpsref.mps.core.encode import ImageKernel, of_zeros
from mpsref.mps.core.padding import DEFAULT_PADDING, MPSNNDefaultPadding, MPSNNPadding, policy
from mpsref.mps.core.properties import (
    Alias,
    Argument,
    ConstructorSignature,
    Property,
    PropertyHolder,
    arguments_of,
    backend_like,
    check_keywords,
    constructed,
    describe_parameters,
    initialize,
    instance_of,
    label_like,
    make_constructor,
    optional,
)
from mpsref.mps.core.state import ForwardRecord
from mpsref.mps.core.types import Enumeration, MPSImageFeatureChannelFormat, channel_format, member
from mpsref.registry import Backend, Operation, OperationKey, Spec

Format: TypeAlias = MPSImageFeatureChannelFormat | Literal["float64"]
"""Storage of an image; ``"float64"`` is for checks on the reference, and not in MPS [design graph-format]."""


def image_format(name: str, value: object) -> Format:
    """Check a storage format: a member, its number, its name in lower case, or ``"float64"``."""
    return "float64" if isinstance(value, str) and value == "float64" else channel_format(name, value)


CustomPolicy: TypeAlias = Literal["followed", "ignored", "refused"]

Allocator: TypeAlias = Callable[[Shape, DType], Array]
"""``allocator(shape, dtype)`` returns a writable array."""

NodeHandler: TypeAlias = "Callable[[MPSNNFilterNode, MPSNNFilterNode | None, MPSNNImageNode, MPSNNImageNode], object]"
"""``handler(new node, forward node or None, the image it is the gradient of, source gradient)``; False prunes."""

StepState: TypeAlias = dict[str, Any]
"""Values that a forward step shares with its gradient steps: statistics, masks, labels, gradients of parameters."""


def _handle(name: str, value: object) -> Hashable:
    if not isinstance(value, Hashable):
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be hashable, for example a str")
    return value


def allocator(name: str, value: Allocator | None) -> Allocator | None:
    """Return ``value`` if it is callable or ``None``; raise ``TypeError`` otherwise."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be a function (shape, dtype) -> array")
    return value


class Node(PropertyHolder):
    """Base class of nodes, which are compared by identity."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__  # type: ignore[assignment]


# --- symbols: images and states ---------------------------------------------------------------------------------------


class Symbol(Node):
    """An image or a state of a graph."""

    handle: Property[Hashable] = Property(
        optional(_handle),
        None,
        "A key of the application, and of an input of a run: a str, or an object with a ``label``, names the symbol.",
    )
    export_from_graph = Property(flag, False, "Whether a run returns it.")
    synchronize_resource = Property(
        flag, False, "No effect, since results of a run can be read at once [design objects-options]."
    )

    _producer: MPSNNFilterNode | None = None

    @property
    def producer(self) -> MPSNNFilterNode | None:
        """The filter node that computes it, or ``None`` for an input of the graph."""
        return self._producer

    @property
    def label(self) -> str | None:
        """The label of the handle, or ``None``."""
        label = self.handle if isinstance(self.handle, str) else getattr(self.handle, "label", None)
        return label if isinstance(label, str) else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name in tables, drawings and errors."""


@describe_parameters
class MPSNNImageNode(Symbol):
    """An image of a graph, without pixels.

    An image without a producer is an input of the graph. Changes of properties apply to graphs that are compiled
    later.

    Examples
    --------
    >>> x = MPSNNImageNode("pixels")
    >>> x.name, x.producer, x.format
    ('pixels', None, MPSImageFeatureChannelFormat.NONE)
    """

    format: Property[Format] = Property(
        image_format,
        MPSImageFeatureChannelFormat.NONE,
        'Storage, MPSImageFeatureChannelFormat or ``"float64"``; ``NONE``: that of the graph.',
    )
    image_allocator = Property(
        allocator, None, "``(shape, dtype) -> array``; results use the allocator of the graph [doc]."
    )
    stop_gradient = Property(flag, False, "Whether training graphs stop at this image.")

    def __init__(self, handle: Hashable = None, **properties: object) -> None:
        initialize(self, {"handle": handle, **properties})
        self._number = 0

    @classmethod
    def exported_node_with_handle(cls, handle: Hashable) -> Self:
        """Return an image node with ``export_from_graph``."""
        return cls(handle, export_from_graph=True)

    @property
    def name(self) -> str:
        """The label; without one, the name of the producer and ``.out``, or ``input`` and a number."""
        if self.label is not None:
            return self.label
        if self._producer is not None:
            return f"{self._producer.name}.out"
        return f"input{self._number}" if self._number else "input"


class MPSNNStateNode(Symbol):
    """A state of a graph: the values that a forward kernel keeps for its gradient.

    It is the ``result_state`` of a filter node, or the ``input_labels`` of a loss node.
    """

    def __init__(self, *args: object) -> None:
        raise TypeError(
            f"{type(self).__name__} cannot be made; take the result_state of a filter node, or the input_labels of a "
            "loss node"
        )

    @classmethod
    def _of(cls, producer: MPSNNFilterNode) -> Self:
        """Return a new state of a filter node."""
        state = cls.__new__(cls)
        initialize(state, {})
        state._producer = producer
        return state

    def check(self, value: object) -> object:
        """Check the value of an input state."""
        return value

    @property
    def name(self) -> str:
        """The label, or the name of the producer and ``.state``."""
        assert self._producer is not None
        return self.label or f"{self._producer.name}.state"


class MPSNNGradientStateNode(MPSNNStateNode):
    """The state of a filter with one source."""


class MPSNNBinaryGradientStateNode(MPSNNStateNode):
    """The state of a filter with two sources."""


class MPSNNMultiaryGradientStateNode(MPSNNStateNode):
    """The state of a filter with any number of sources."""


def image_node(name: str, value: object) -> MPSNNImageNode:
    """Return ``value`` if it is an image node; raise ``TypeError`` otherwise."""
    if not isinstance(value, MPSNNImageNode):
        hint = "; take its result_image" if hasattr(value, "result_image") else ""
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be an MPSNNImageNode{hint}")
    return value


def state_node(name: str, value: object) -> MPSNNStateNode:
    """Return ``value`` if it is a state node; raise ``TypeError`` otherwise."""
    return instance_of(name, value, MPSNNStateNode)


# --- steps of a compiled graph ----------------------------------------------------------------------------------------


class MPSNNTrainingStyle(Enumeration):
    """How the parameters of a trainable node are updated. Source: ``MPSNNGraphNodes.h`` [doc]."""

    NONE = 0
    CPU = 1
    GPU = 2


@dataclass(slots=True)
class StepCall:
    """The arguments of one step of a run. A gradient step has the state of its forward step."""

    call: Call
    """What the step runs; of a gradient step without a kernel that of its forward step, with its own shape."""
    backend: Backend
    parameters: Mapping[str, Array | None]
    """Parameters such as weights and biases, at the start of the run."""
    state: StepState = field(default_factory=dict)
    result_is_needed: bool = True
    trains: bool = False
    """Whether a gradient step reads the state; of a gradient step, whether to compute the gradients of parameters."""
    sequence: int = 0
    """The number of the run, which selects random masks."""
    place: Callable[[Array], Array] = field(default=lambda array: array)
    """Returns an array where the images of the run are: on a device, or as it is."""
    prepared: Sequence[Array | None] = ()
    """The result of ``_step_inputs``."""


@dataclass(frozen=True)
class Step:
    """One node of a program."""

    number: int
    node: MPSNNFilterNode
    forward: MPSNNFilterNode
    """The node whose state the step uses: the forward node of a gradient node, or the node itself."""
    compiled: MPSNNFilterNode
    """A copy of the node at compile time: later changes of the node have no effect on the graph."""
    result_is_needed: bool
    """Whether a step or the caller reads the result, or it is exported."""
    result_is_kept: bool
    """Whether the run returns the result."""
    state_is_read: bool
    """Whether another step reads the state."""
    trains: bool
    """Whether a gradient step reads the state; of a gradient step, whether the gradients of parameters are read."""
    updates: MPSNNTrainingStyle
    """For the last gradient step of a trainable node, how its parameters are updated."""
    pixels: tuple[MPSNNImageNode, ...]
    """The images whose pixels the step reads; it needs only the size of the others."""
    released: tuple[MPSNNImageNode, ...] = ()
    """The images to release after the step, which is their last reader."""

    @cached_property
    def result_image(self) -> MPSNNImageNode:
        """The result of the node."""
        return self.node.result_image

    @property
    def kind(self) -> str:
        """ "forward", "gradient", or "inserted" for an addition of a training graph."""
        return "inserted" if self.node._inserted else self.node.form


# --- filters ----------------------------------------------------------------------------------------------------------


@describe_parameters
@constructed(init=False, kw_only=True)
class MPSNNFilterNode(Node, metaclass=abc.ABCMeta):
    """A kernel call in a graph: it reads images and states, and returns an image and a state for the gradient.

    Only the properties of a filter node can be changed. A node without a label receives a generated one, its kind and a
    number, when it is first compiled.

    Raises
    ------
    TypeError
        If a source is not a node of its type, or the class is abstract.

    Notes
    -----
    ``MPSNNFilterNode`` in ``MPSNNGraphNodes.h`` [doc].
    """

    kind: ClassVar[str]
    """The prefix of generated labels."""
    spec_class: ClassVar[type[Spec] | None] = None
    """The functional form whose operations the node runs; ``None`` for a node without arithmetic."""
    gradient_class: ClassVar[type[MPSNNGradientFilterNode] | None] = None
    """The class of the gradient nodes."""
    gradient_properties: ClassVar[Sequence[str]] = ()
    """The properties that its gradient nodes have, with the same values."""
    state_class: ClassVar[type[MPSNNStateNode] | None] = MPSNNGradientStateNode
    kernel_class: ClassVar[Any] = None
    """The class of its kernel, which the node makes; ``None``: the gradients of several are computed at once."""
    why_no_gradient: ClassVar[str] = "MPS has no gradient kernel for it"
    """The reason in messages for a filter without gradient."""
    custom_policy: ClassVar[CustomPolicy] = "refused"
    """What a custom padding policy does: it is followed or ignored as by the kernel, or the node cannot have one."""
    result_is_gradient: ClassVar[bool] = False
    """Whether the result is the gradient of the first source, so that a training graph can start with it."""
    form: ClassVar[str] = "forward"
    """``"forward"`` or ``"gradient"``, in tables."""

    label: Property[str | None] = Property(label_like, None, "The name in tables and errors.")
    padding_policy: Property[MPSNNPadding] = Property(
        policy, DEFAULT_PADDING, "The padding policy, which sets the offsets of windows and the size of the result."
    )
    backend: Property[str | Backend | None] = Property(
        optional(backend_like), None, "The backend; ``None`` for the backend of the graph."
    )

    _abstract: ClassVar[bool] = True
    """Of a class itself, not of those that derive from it."""
    _inserted = False
    """Whether a training graph inserted the node, to add gradients."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls._connected:
            make_constructor(cls, next(base for base in cls.__mro__ if "_connected" in vars(base)), cls._connected)
        describe_parameters(cls)

    _connected: ClassVar[tuple[str, ...]] = ()
    """The parameters of a constructor that is made, before the arguments: the nodes that it connects."""

    __signature__ = ConstructorSignature()

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Raise ``TypeError`` for an abstract class."""
        if inspect.isabstract(cls) or vars(cls).get("_abstract", False):
            raise TypeError(f"{cls.__name__} is abstract; make a node of a class that derives from it")
        check_keywords(cls, kwargs)
        return super().__new__(cls)

    def __init__(
        self,
        source_images: Sequence[MPSNNImageNode],
        source_states: Sequence[MPSNNStateNode] = (),
        **properties: object,
    ) -> None:
        self._source_images = tuple(image_node(f"source_images[{k}]", image) for k, image in enumerate(source_images))
        self._source_states = tuple(state_node(f"source_states[{k}]", state) for k, state in enumerate(source_states))
        initialize(self, properties)
        self._result_image = MPSNNImageNode(format=self._source_images[0].format)
        self._result_image._producer = self
        self._result_state: MPSNNStateNode | None = None

    source_images: Alias[tuple[MPSNNImageNode, ...]] = Alias(
        "_source_images", "The images that the node reads, in the order of the kernel."
    )
    source_states: Alias[tuple[MPSNNStateNode, ...]] = Alias("_source_states", "The states that the node reads.")
    result_image: Alias[MPSNNImageNode] = Alias("_result_image", "The image that the node writes.")

    @property
    def result_state(self) -> MPSNNStateNode | None:
        """The state for the gradient, created on first use, or ``None``."""
        if self._result_state is None and self.state_class is not None:
            self._result_state = self.state_class._of(self)
        return self._result_state

    @property
    def result_states(self) -> list[MPSNNStateNode] | None:
        """:attr:`result_state` as a list, or ``None``."""
        return None if self.result_state is None else [self.result_state]

    @property
    def name(self) -> str:
        """The label, or :attr:`kind` before there is one."""
        return self.label or self.kind

    @property
    def derived_label(self) -> str | None:
        """A label derived from other nodes, or ``None``."""
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
        """The numbers of the sources that have gradients in training graphs."""
        return self._differentiable

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        """Return a new gradient node for one differentiable source."""
        assert self.gradient_class is not None
        properties = {name: getattr(self, name) for name in self.gradient_properties}
        arguments = arguments_of(self.gradient_class).items()
        properties |= {one.alias or name: getattr(self, name) for name, (one, _) in arguments}
        properties |= {"source_index": source_index} if self.gradient_class._of_each else {}
        image = self.result_image if self.gradient_class._reads_result else self.source_images[source_index]
        return self.gradient_class(source_gradient, image, self._state, **properties)

    def gradient_filters_with_source(self, source_gradient: MPSNNImageNode) -> list[MPSNNGradientFilterNode]:
        """Return new gradient nodes, one for each differentiable source.

        Parameters
        ----------
        source_gradient : MPSNNImageNode
            The gradient of ``result_image``.

        Returns
        -------
        list of MPSNNGradientFilterNode

        Raises
        ------
        NoGradientError
            If the filter has no gradient.

        Notes
        -----
        ``gradientFiltersWithSource:`` in ``MPSNNGraphNodes.h`` [doc].
        """
        image_node("source_gradient", source_gradient)
        if not self.differentiable_sources:
            raise NoGradientError(f"{type(self).__name__} {self.name!r} has no gradient: {self.why_no_gradient}")
        return [self._gradient_node(source_gradient, k) for k in self.differentiable_sources]

    def gradient_filter_with_source(self, source_gradient: MPSNNImageNode) -> MPSNNGradientFilterNode:
        """Return a new gradient node of a filter with one differentiable source.

        Parameters
        ----------
        source_gradient : MPSNNImageNode
            The gradient of ``result_image``.

        Returns
        -------
        MPSNNGradientFilterNode

        Raises
        ------
        MultipleGradientsError
            If the filter has several differentiable sources.
        NoGradientError
            If the filter has no gradient.

        Notes
        -----
        ``gradientFilterWithSource:`` in ``MPSNNGraphNodes.h`` [doc].

        Examples
        --------
        >>> from mpsref.mps import graph
        >>> relu = graph.MPSCNNNeuronReLUNode(graph.MPSNNImageNode("x"), label="relu")
        >>> relu.gradient_filter_with_source(graph.MPSNNImageNode("g"))
        <MPSCNNNeuronGradientNode grad>
        """
        if self._several_gradients:
            raise MultipleGradientsError(
                f"{type(self).__name__} {self.name!r} has a gradient for each of its sources; "
                "call gradient_filters_with_source"
            )
        return self.gradient_filters_with_source(source_gradient)[0]

    def gradient_filter_with_sources(self, source_gradients: Iterable[MPSNNImageNode]) -> MPSNNGradientFilterNode:
        """Call :meth:`gradient_filter_with_source` with the only item of ``source_gradients``."""
        return self.gradient_filter_with_source(_one(source_gradients))

    def gradient_filters_with_sources(
        self, source_gradients: Iterable[MPSNNImageNode]
    ) -> list[MPSNNGradientFilterNode]:
        """Call :meth:`gradient_filters_with_source` with the only item of ``source_gradients``."""
        return self.gradient_filters_with_source(_one(source_gradients))

    def training_graph_with_source_gradient(
        self, gradient_image: MPSNNImageNode | None = None, node_handler: NodeHandler | None = None
    ) -> list[MPSNNFilterNode]:
        """Build the training graph of the nodes that lead to this one; return its termini.

        Parameters
        ----------
        gradient_image : MPSNNImageNode, optional
            The gradient of the result.
        node_handler : callable, optional
            Called for each new node.

        Returns
        -------
        list of MPSNNFilterNode
            The new nodes whose results no new node reads.

        Raises
        ------
        NoGradientError
            If a node on the way has no gradient.

        See Also
        --------
        mpsref.mps.graph.training_graph : Describes the arguments, and returns all new nodes.
        """
        from mpsref.mps import graph  # not at import: training graphs need the nodes of families

        return graph.training_graph(self, gradient_image, node_handler).termini

    _all_gradients: ClassVar[Sequence[int]] = ()
    """The sources with a gradient node, if there are more than in training graphs."""
    _has_several: ClassVar[bool | None] = None
    """Whether there is a gradient node for each source; ``None``: if several are differentiable."""

    @property
    def _several_gradients(self) -> bool:
        return len(self.differentiable_sources) > 1 if self._has_several is None else self._has_several

    # --- used by compiled graphs -------------------------------------------------------------------------------------

    _called: Sequence[str] = ("forward",)
    """The methods of the functional form, its own or that of the forward node, that a step calls."""

    def _methods(self, step: Step) -> Sequence[str]:
        """Return what ``_called`` says; some nodes call other methods where parameters are trained."""
        return self._called

    def _operations(self, step: Step) -> Sequence[OperationKey]:
        """Return the operations of a step, which the graph checks when it is compiled."""
        spec_class = self.spec_class or step.forward.spec_class
        return () if spec_class is None else [Operation(spec_class, name) for name in self._methods(step)]

    def _check_policy(self) -> None:
        """Raise ``UnsupportedError`` for a custom padding policy that the kernel follows, and the node does not."""
        if self.custom_policy == "refused" and not isinstance(self.padding_policy, MPSNNDefaultPadding):
            raise UnsupportedError(
                f"{type(self).__name__} {self.name!r} has the padding_policy {shown(self.padding_policy)}; in a graph "
                "pooling, spatial and local contrast normalization and convolutions alone follow a custom policy: set "
                "an MPSNNDefaultPadding, or move the image by a node of its own"
            )

    def check_labels(self, labels: Any, shape: Shape) -> None:
        """Check the value of an input state for a source of ``shape``; only loss nodes have input states."""

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[Call]) -> Call:
        """Return the call for all runs on sources of these shapes; ``ShapeError`` for illegal shapes.

        ``parameters`` are the :class:`~mpsref.mps.graph.trainable.NodeParameters` of a node with a data source, and
        ``states`` are the calls of the producers of the source states.
        """
        return placed_call(self._compiled if parameters is None else parameters.kernel, shapes)

    _settings: ClassVar[Mapping[str, object]] = {}
    """The properties of the kernel that the node sets."""
    _renamed: ClassVar[Mapping[str, str]] = {}
    """The properties of the kernel with another name in the node."""

    @classmethod
    @functools.cache
    def _shared(cls) -> Mapping[str, str]:
        """Return the properties of the kernel that the node has, too, and their names there."""
        coding = cls.kernel_class._coding
        names = {name: cls._renamed.get(name, name) for name in (*coding.arguments, *coding.properties)}
        return {name: own for name, own in names.items() if hasattr(cls, own) and name not in cls._settings}

    def _kernel(self) -> Any:
        """Return a new kernel with the properties of the node."""
        properties: dict[str, Any] = {name: getattr(self, own) for name, own in self._shared().items()}
        if self.custom_policy == "followed":
            properties["padding"] = self.padding_policy
        return self.kernel_class(**(properties | dict(self._settings)))

    @cached_property
    def _compiled(self) -> Any:
        """The kernel of a node that does not change: a graph has copies of its nodes."""
        return self._kernel()

    def _step_inputs(self, call: StepCall, like: Array) -> Sequence[Array | None]:
        """Return what ``_compute`` reads in addition to images and parameters: labels, or a random mask.

        The arrays are where ``like`` is, an image of the run. ``_compute`` reads neither the number of the run nor
        arrays of the caller, since a device may repeat its launches.
        """
        return ()

    _after_images: ClassVar[Sequence[str]] = ()
    """The parameters, or values of the state, that the kernel reads after the images."""

    def _compute(self, step: StepCall, *images: Array) -> Array | None:
        """Run the kernel; ``None`` if the result is not needed and was not computed."""
        if not self._after_images:
            return step.call.run(images, None, step.backend)
        values = [step.parameters[name] if name in step.parameters else step.state[name] for name in self._after_images]
        return step.call.run(images, None, step.backend, values)


class MPSNNTrainableNode(MPSNNFilterNode):
    """A filter whose parameters can be trained. Source: the protocol ``MPSNNTrainableNode`` [doc]."""

    _abstract = True
    training_style: Property[MPSNNTrainingStyle] = Property(
        functools.partial(member, kind=MPSNNTrainingStyle), MPSNNTrainingStyle.GPU, "How its parameters are updated."
    )


class MPSNNGradientFilterNode(MPSNNFilterNode):
    """A gradient kernel in a graph: it computes the gradient of a forward source.

    There are no second derivatives: methods that return gradient nodes raise ``NoGradientError``.

    Raises
    ------
    TypeError
        If ``gradient_state`` is not a state of a forward node with this class of gradient nodes.
    ValueError
        If the source has no gradient.

    Notes
    -----
    ``MPSNNGradientFilterNode`` in ``MPSNNGraphNodes.h`` [doc].
    """

    _abstract, kind = True, "grad"
    state_class = None
    custom_policy = "ignored"
    form = "gradient"
    why_no_gradient = "it is a gradient node, and MPS has no second derivatives"
    reads_pixels: ClassVar[bool] = True
    """Whether the kernel reads the pixels of the forward image, and not only its size."""
    _of_each: ClassVar[bool] = False
    """Whether ``source_index`` is an argument."""
    _reads_result: ClassVar[bool] = False
    """Whether the forward image is the result in place of the source."""
    _called = ("gradient",)

    _connected = ("source_gradient", "source_image", "gradient_state")

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        *others: MPSNNImageNode,
        source_index: int = 0,
        **properties: object,
    ) -> None:
        producer = gradient_state.producer if isinstance(gradient_state, MPSNNStateNode) else None
        if producer is None:
            raise TypeError(
                f"gradient_state is of type {type(gradient_state).__name__}; it must be the result_state of the "
                "forward node"
            )
        image_node("source_gradient", source_gradient)
        image_node("source_image", source_image)
        if producer.gradient_class is None or type(self) is not producer.gradient_class:
            own = (
                "has no gradient" if producer.gradient_class is None else f"needs a {producer.gradient_class.__name__}"
            )
            raise TypeError(
                f"gradient_state is that of a {type(producer).__name__}, which {own}, not a {type(self).__name__}"
            )
        source_index = integer("source_index", source_index)
        known = producer._all_gradients or producer.differentiable_sources
        if source_index not in known:
            raise ValueError(
                f"source_index is {source_index}; {type(producer).__name__} has gradients of the sources {list(known)}"
            )
        self._forward, self._source_index = producer, source_index
        self._image_index = source_index  # of the forward source that is the source image
        super().__init__((source_gradient, source_image, *others), (gradient_state,), **properties)

    forward: Alias[MPSNNFilterNode] = Alias("_forward", "The forward node.")
    source_index: Alias[int] = Alias("_source_index", "The number of the forward source whose gradient is the result.")

    @property
    def forward_source(self) -> MPSNNImageNode:
        """The forward source whose gradient is the result."""
        return self._forward.source_images[self._source_index]

    source_gradient: Alias[MPSNNImageNode] = Alias(
        "_source_images", "The gradient of the forward result.", operator.itemgetter(0)
    )
    gradient_state: Alias[MPSNNStateNode] = Alias(
        "_source_states", "The state of the forward node.", operator.itemgetter(0)
    )

    @property
    def derived_label(self) -> str | None:
        """The name of the forward node and ``.grad``, with the number of the source if there are several."""
        several = f"[{self._source_index}]" if self._forward._several_gradients else ""
        return f"{self._forward.name}.grad{several}"

    def training_graph_with_source_gradient(
        self, gradient_image: MPSNNImageNode | None = None, node_handler: NodeHandler | None = None
    ) -> list[MPSNNFilterNode]:
        """Raise ``NoGradientError``."""
        raise NoGradientError(f"{type(self).__name__} {self.name!r} has no gradient: {self.why_no_gradient}")

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[Call]) -> Call:
        """Return the call of the forward step, with the shape of its source."""
        return states[0]._replace(shape=self._checked_record(shapes, states[0]).source_shapes[self._source_index])

    def _checked_record(self, shapes: Sequence[Shape], forward: Call) -> ForwardRecord:
        """Return the record of the forward step; ``ShapeError`` if the sources are not those that it needs."""
        record: ForwardRecord = forward.record
        if shapes[0] != forward.shape:
            raise ShapeError(
                f"the source gradient {self.source_gradient.name!r} has shape {shapes[0]}; the result of "
                f"{self.forward.name!r} has {forward.shape}: both must be equal"
            )
        expected = forward.shape if self._reads_result else record.source_shapes[self._image_index]
        if shapes[1] != expected:
            raise ShapeError(
                f"the source image {self.source_images[1].name!r} has shape {shapes[1]}; the state of "
                f"{self.forward.name!r} requires {expected}: both must be equal"
            )
        return record


def _one(images: Iterable[MPSNNImageNode]) -> MPSNNImageNode:
    found = list(itertools.islice(images, 2))
    if len(found) != 1:
        has = "more than one image" if found else "no image"
        raise ValueError(f"source_gradients has {has}; it must have 1, since a filter has one result")
    return found[0]


# --- filters that are a kernel with wires -----------------------------------------------------------------------------


def placed_call(kernel: ImageKernel, shapes: Sequence[Shape], asked: Shape | None = None) -> Call:
    """Return the call of a kernel on sources of these shapes, into a destination ``asked`` for or its own."""
    call = kernel._to_configure()._placed(of_zeros(*shapes), asked)
    if call.computation is None:
        raise ShapeError(
            f"the padding policy sets the clip_rect {tuple(map(tuple, call.region.clip_rect))}, limited to the result "
            f"{call.shape}: there is nothing to compute; make both overlap"
        )
    return call


@constructed(init=False)
class ForwardKernelNode(MPSNNFilterNode):
    """A forward node with one source; not a class of MPS."""

    _abstract = True
    _differentiable: ClassVar[Sequence[int]] = (0,)
    _connected = ("source",)
    if TYPE_CHECKING:
        source: Argument[MPSNNImageNode] = Argument(image_node)

    def __init__(self, source: MPSNNImageNode, **properties: object) -> None:
        super().__init__((source,), (), **properties)


@constructed(init=False)
class GradientKernelNode(MPSNNGradientFilterNode):
    """The gradient of a node with a kernel; not a class of MPS."""

    _abstract = True
    if TYPE_CHECKING:
        source_gradient: Argument[MPSNNImageNode] = Argument(image_node)
        source_image: Argument[MPSNNImageNode] = Argument(image_node)
        gradient_state: Argument[MPSNNStateNode] = Argument(state_node)

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[Call]) -> Call:
        record: Any = self._checked_record(shapes, states[0])
        state = record.kernel_class.state_class(record)
        return self._compiled._to_configure(state)._placed(of_zeros(*shapes), None, state)  # type: ignore[no-any-return]
