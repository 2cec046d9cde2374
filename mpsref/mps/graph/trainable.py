"""Nodes with a data source, and their parameters in a compiled graph.

A graph reads each data source once, when it is compiled. All steps of a run use the same parameters; updates take
effect after the run, for all nodes or, after an error, for none [choice graph-updates].

An MPS graph calls the callbacks of each data source separately, and each returns a state [doc]. A data source of a
convolution or of a batch normalization can have a method ``joint_update`` in place of these callbacks [choice
graph-updates]:

``joint_update(gradients)``
    with the gradients of weights and biases, for a convolution
``joint_update(gradients, statistics)``
    with those of gamma and beta, and mean and variance of the batch (``None`` with stored statistics)

It must not change its arguments. It returns a function that the graph calls after the run, and that returns the new
arrays by name: ``{"weights": ..., "biases": ...}``, or some of gamma, beta, mean and variance. With it, one optimizer
step can update the parameters of all data sources after the last gradients.
"""

from __future__ import annotations

import abc
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array, is_array, is_writable
from mpsref.arguments.text import shown
from mpsref.errors import OrderError, ShapeError, UnsupportedError
from mpsref.mps.core.properties import Alias
from mpsref.mps.core.state import MPSState
from mpsref.mps.graph.nodes import (
    MPSNNFilterNode,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
    MPSNNStateNode,
    MPSNNTrainableNode,
    MPSNNTrainingStyle,
    StepState,
)

JOINT_UPDATE = "joint_update"

JointUpdate: TypeAlias = Callable[..., Callable[[], object]]
"""``joint_update`` of a data source."""


class LoadedKernel(Protocol):
    """A kernel that has loaded its parameters from a data source."""

    @property
    def data_source(self) -> object:
        """The data source of the parameters."""


class NodeParameters(abc.ABC):
    """The parameters of one forward node in one graph.

    Parameters
    ----------
    kernel : LoadedKernel
        The kernel that has loaded them.
    name : str
        The name of the node, for messages.
    """

    updates_together: ClassVar[bool] = False
    """Whether the data source can have ``joint_update``."""
    callback_names: ClassVar[Mapping[MPSNNTrainingStyle, tuple[str, ...]]]
    """The methods of the data source that each style calls, in order."""

    def __init__(self, kernel: LoadedKernel, name: str) -> None:
        self.kernel, self.name = kernel, name

    data_source: Alias[object] = Alias("kernel.data_source", "The data source of the parameters.")

    @abc.abstractmethod
    def arrays(self) -> Mapping[str, Array | None]:
        """Return the current arrays, which are immutable."""

    @property
    def form(self) -> object:
        """Parameters of steps in addition to the arrays; shapes are inferred again if they change."""
        return None

    def snapshot(self) -> Mapping[str, object]:
        """Return all attributes of the kernel, to be restored if an update fails."""
        return dict(vars(self.kernel))

    def restore(self, before: Mapping[str, object]) -> None:
        """Restore the result of :meth:`snapshot`."""
        vars(self.kernel).clear()
        vars(self.kernel).update(before)

    @abc.abstractmethod
    def reload(self) -> None:
        """Read the data source again."""

    @abc.abstractmethod
    def state(self, step_state: StepState) -> MPSState:
        """Return a synchronized state with the gradients of a run, for callbacks and for the caller."""

    def update(self, style: MPSNNTrainingStyle, step_state: StepState) -> Callable[[], None] | None:
        """Call the data source; return a function that sets the new parameters, or ``None`` for no update."""
        joint = self._joint_update(style)
        if joint is not None:
            return self._update_together(joint, step_state)
        return self._update(style, self.state(step_state))

    def _joint_update(self, style: MPSNNTrainingStyle) -> JointUpdate | None:
        """Return ``joint_update`` of the data source if the style uses it."""
        if style is not MPSNNTrainingStyle.GPU or not self.updates_together:
            return None
        method = getattr(self.data_source, JOINT_UPDATE, None)
        return method if callable(method) else None

    @abc.abstractmethod
    def _update(self, style: MPSNNTrainingStyle, state: MPSState) -> Callable[[], None] | None:
        """Call the callbacks of the style."""

    def _update_together(self, joint: JointUpdate, step_state: StepState) -> Callable[[], None]:
        """Call ``joint_update``."""
        raise NotImplementedError

    def _joint_result(self, answer: object, known: Mapping[str, Array]) -> dict[str, Array]:
        """Return the arrays of a joint update, read-only.

        Raises ``ShapeError`` for an array of another shape than the array in ``known``, and ``TypeError`` for another
        dtype than float32 or float64 and for other types than a mapping of arrays.
        """
        what = f"{JOINT_UPDATE} of the data source of {self.name!r}"
        if not isinstance(answer, Mapping) or not answer.keys() <= known.keys():
            raise TypeError(f"{what} returned {shown(answer)}; it must be a mapping with some of {', '.join(known)}")
        found = {}
        for name, array in answer.items():
            if not is_array(array) or array.dtype not in (np.float32, np.float64):
                raise TypeError(f"{what} returned {name} = {shown(array)}; it must be an array of dtype float32")
            if array.shape != known[name].shape:
                raise ShapeError(f"{what} returned {name} of shape {array.shape}; it must be {known[name].shape}")
            found[name] = array.copy() if is_writable(array) else array
            found[name].setflags(write=False)
        return found

    def callbacks(self, style: MPSNNTrainingStyle) -> dict[str, Callable[..., object]]:
        """Return the callbacks of the style that the data source has."""
        methods = {name: getattr(self.data_source, name, None) for name in self.callback_names[style]}
        return {name: method for name, method in methods.items() if callable(method)}

    def check_style(self, node: MPSNNFilterNode, style: MPSNNTrainingStyle) -> None:
        """Raise ``UnsupportedError`` for a data source without any callback of the style."""
        if style is MPSNNTrainingStyle.NONE:
            return
        for name, callback in self.callbacks(style).items():
            _check_order(f"{name} of the data source of {node.name!r}, a {type(self.data_source).__name__},", callback)
        if self._joint_update(style) is None and not self.callbacks(style):
            names = self.callback_names[style]
            raise UnsupportedError(
                f"{type(node).__name__} {node.name!r} has the training style {style!r}, and its data source, a "
                f"{type(self.data_source).__name__}, has no method {' or '.join(names)}; write it, choose another "
                "training_style, or MPSNNTrainingStyle.NONE for no updates"
            )


def _check_order(name: str, callback: Callable[..., object]) -> None:
    """Raise ``TypeError`` for a callback whose first parameter is the command buffer, as in Apple's protocols."""
    try:
        parameters = list(inspect.signature(callback).parameters)
    except (TypeError, ValueError):  # a callable without a signature
        return
    if parameters[:1] == ["command_buffer"]:
        others = ", ".join(parameters[1:])
        raise TypeError(
            f"{name} has the parameters (command_buffer, {others}), in Apple's order; the command buffer is passed by "
            f"keyword: write ({others}, command_buffer=None)"
        )


class WeightedNode(MPSNNTrainableNode):
    """A forward node with a data source; not a class of MPS."""

    _abstract = True
    _differentiable = (0,)

    _parameters_class: ClassVar[type[NodeParameters]]

    def _load(self) -> NodeParameters:
        """Read the data source; called when a graph is compiled."""
        return self._parameters_class(self._kernel(), self.name)


class TrainableGradientNode(MPSNNTrainableNode, MPSNNGradientFilterNode):
    """The gradient node of a trainable node, with the same ``training_style`` by default; not a class of MPS."""

    _abstract = True

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        **properties: Any,
    ) -> None:
        super().__init__(source_gradient, source_image, gradient_state, **properties)
        if "training_style" not in properties and isinstance(self.forward, MPSNNTrainableNode):
            self.training_style = self.forward.training_style

    def _parameters(self, forward: NodeParameters) -> NodeParameters:
        """Return the parameters that the step reads: by default those of the forward node."""
        return forward


def accumulate(state: StepState, name: str, gradients: tuple[Array, ...]) -> None:
    """Add gradients of parameters to those of earlier gradient steps of the same forward step."""
    if name in state:
        gradients = tuple(map(operator.add, state[name], gradients))
    state[name] = gradients


def updated(answer: object, name: str, method: str) -> bool:
    """Return the result of a CPU callback, ``True``; raise ``OrderError`` if it is ``False``."""
    if not isinstance(answer, bool):
        raise TypeError(
            f"{method} of the data source of {name!r} returned {shown(answer)}; it must return True or False"
        )
    if not answer:
        raise OrderError(f"{method} of the data source of {name!r} returned False: it could not update its weights")
    return answer
