"""Nodes with a data source, and their parameters in a compiled graph.

A graph reads each data source once, when it is compiled. All steps of a run use the parameters that were in force when
it began; updates take effect when the run has ended, for all nodes together or, if anything fails, for none [choice].

Apple's graph calls each data source for new parameters by itself, and each returns a state [doc]. A data source of a
convolution or of a batch normalization may have a method ``joint_update`` in place of these callbacks [choice]:

``joint_update(gradients)``
    with the gradients of weights and biases, for a convolution
``joint_update(gradients, statistics)``
    with those of gamma and beta, and mean and variance of the batch (``None`` with stored statistics)

Its arguments are arrays, which it must not change. It returns a function that the graph calls when the run has ended,
and which returns the new arrays by name: ``{"weights": ..., "biases": ...}``, or some of gamma, beta, mean and
variance. So one optimizer can step the parameters of all data sources at once, after the last gradients; a state for
each of them costs more than the step.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import OrderError, ShapeError, UnsupportedError
from mpsref.mps.core.state import ForwardRecord, MPSState, SourceProperties
from mpsref.mps.core.types import MTLOrigin, MTLRegion, MTLSize
from mpsref.mps.graph.nodes import MPSNNFilterNode, MPSNNGradientFilterNode, MPSNNTrainableNode, MPSNNTrainingStyle

JOINT_UPDATE = "joint_update"


class NodeParameters(abc.ABC):
    """The parameters of one forward node in one graph."""

    updates_together: ClassVar[bool] = False
    """Whether the data source may have ``joint_update``."""
    callback_names: ClassVar[Mapping[MPSNNTrainingStyle, tuple[str, ...]]]
    """The methods of the data source that each style calls, in order."""

    def __init__(self, kernel: Any, name: str) -> None:
        """Keep the kernel that has loaded them; ``name`` is that of the node, for messages."""
        self.kernel, self.name = kernel, name
        self._records: dict[tuple[Shape, Shape], ForwardRecord] = {}

    @property
    def data_source(self) -> Any:
        """Where the parameters come from."""
        return self.kernel.data_source

    def record(
        self, shapes: tuple[Shape, Shape], extras: Mapping[str, Any], source: SourceProperties | None = None
    ) -> ForwardRecord:
        """Return the record of a forward pass on whole images, from the first of ``shapes`` to the second."""
        if shapes not in self._records:
            source_shape, (n, height, width, channels) = shapes
            properties = self.kernel._source_properties(0) if source is None else source
            clip = MTLRegion(MTLOrigin(0, 0, 0), MTLSize(width, height, n))
            self._records[shapes] = ForwardRecord(
                type(self.kernel), (properties,), (source_shape,), shapes[1], clip, 0, channels, extras
            )
        return self._records[shapes]

    @abc.abstractmethod
    def arrays(self) -> Mapping[str, Array | None]:
        """Return the arrays in force; they never change, but others may take their place."""

    @property
    def form(self) -> Any:
        """Parameters of steps in addition to the arrays; if they change, shapes are inferred again."""
        return None

    @abc.abstractmethod
    def restore(self, before: Any) -> None:
        """Restore the result of :meth:`snapshot`."""

    @abc.abstractmethod
    def snapshot(self) -> Any:
        """Return the parameters in force, to be restored if an update fails."""

    @abc.abstractmethod
    def reload(self) -> None:
        """Read the data source again."""

    @abc.abstractmethod
    def state(self, step_state: Mapping[str, Any]) -> MPSState:
        """Return a synchronized state with the gradients of one run, for callbacks and for the caller."""

    def update(self, style: MPSNNTrainingStyle, step_state: Mapping[str, Any]) -> Callable[[], None] | None:
        """Call the data source; return a function that puts the new parameters in force, ``None`` for no update."""
        joint = self._joint_update(style)
        if joint is not None:
            return self._update_together(joint, step_state)
        return self._update(style, self.state(step_state))

    def _joint_update(self, style: MPSNNTrainingStyle) -> Callable[..., Any] | None:
        """Return ``joint_update`` of the data source, if the style calls it."""
        if style is not MPSNNTrainingStyle.GPU or not self.updates_together:
            return None
        method = getattr(self.data_source, JOINT_UPDATE, None)
        return method if callable(method) else None

    @abc.abstractmethod
    def _update(self, style: MPSNNTrainingStyle, state: MPSState) -> Callable[[], None] | None:
        """Call the callbacks of the style."""

    def _update_together(self, joint: Any, step_state: Mapping[str, Any]) -> Callable[[], None]:
        """Call ``joint_update``."""
        raise NotImplementedError

    def _joint_result(self, answer: Any, known: Mapping[str, Array]) -> dict[str, Array]:
        """Return the arrays of a joint update, read-only.

        Raises ``ShapeError`` for one of another shape than that of its name in ``known``, ``TypeError`` for any other
        dtype than float32 (float64 stays, for work in float64) and for other types than such a mapping.
        """
        what = f"{JOINT_UPDATE} of the data source of {self.name!r}"
        if not isinstance(answer, Mapping) or not answer.keys() <= known.keys():
            raise TypeError(f"{what} answered {answer!r}; it must be a mapping with some of {', '.join(known)}")
        found = {}
        for name, array in answer.items():
            if not isinstance(array, np.ndarray) or array.dtype not in (np.float32, np.float64):
                raise TypeError(f"{what} answered with {name} = {array!r}; it must be an array of dtype float32")
            if array.shape != known[name].shape:
                raise ShapeError(f"{what} answered with {name} of shape {array.shape}; it must be {known[name].shape}")
            found[name] = array.copy() if array.flags.writeable else array
            found[name].setflags(write=False)
        return found

    def callbacks(self, style: MPSNNTrainingStyle) -> dict[str, Callable[..., Any]]:
        """Return the callbacks of the style that the data source has."""
        methods = {name: getattr(self.data_source, name, None) for name in self.callback_names[style]}
        return {name: method for name, method in methods.items() if callable(method)}

    def check_style(self, node: MPSNNFilterNode, style: MPSNNTrainingStyle) -> None:
        """Raise ``UnsupportedError`` for a data source without any callback of the style."""
        if style is MPSNNTrainingStyle.NONE:
            return
        if self._joint_update(style) is None and not self.callbacks(style):
            names = self.callback_names[style]
            raise UnsupportedError(
                f"{type(node).__name__} {node.name!r} has the training style {style!r}, and its data source, a "
                f"{type(self.data_source).__name__}, has no method {' or '.join(names)}; write it, choose another "
                "training_style, or MPSNNTrainingStyle.NONE for no updates"
            )


class WeightedNode(MPSNNTrainableNode):
    """A forward node whose parameters come from a data source; not a class of Apple's."""

    _abstract = True
    _differentiable = (0,)

    @abc.abstractmethod
    def _load(self) -> NodeParameters:
        """Read the data source, once for each graph that the node is compiled in."""


class TrainableGradientNode(MPSNNTrainableNode, MPSNNGradientFilterNode):
    """The gradient node of a trainable node, whose training style it has; not a class of Apple's."""

    def __init__(self, *args: Any, **properties: Any) -> None:
        """Take over the training style unless another is given."""
        super().__init__(*args, **properties)
        if "training_style" not in properties and isinstance(self.forward, MPSNNTrainableNode):
            self.training_style = self.forward.training_style

    def _parameters(self, forward: NodeParameters) -> NodeParameters:
        """Return the parameters that the gradient for the source reads: those of the forward node."""
        return forward


def accumulate(state: dict[str, Any], name: str, gradients: tuple[Array, ...]) -> None:
    """Add the gradients of parameters to those of other gradient steps of the same forward step."""
    if name in state:
        gradients = tuple(map(np.add, state[name], gradients))
    state[name] = gradients


def updated(answer: Any, name: str, method: str) -> bool:
    """Check the result of a callback for the CPU; ``OrderError`` for a failure."""
    if not isinstance(answer, bool):
        raise TypeError(f"{method} of the data source of {name!r} returned {answer!r}; it must return True or False")
    if not answer:
        raise OrderError(f"{method} of the data source of {name!r} returned False: it could not update its weights")
    return answer
