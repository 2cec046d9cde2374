"""What a compiled graph knows of the parameters of a trainable node.

A graph reads each data source once, when it is compiled. All steps of a run use the parameters that were in force when
it began; what updates return takes effect when the run has ended, for all nodes together or, if anything fails, for
none [choice].
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import OrderError, UnsupportedError
from mpsref.mps.core.state import ForwardRecord, MPSState, SourceProperties
from mpsref.mps.graph.nodes import MPSNNFilterNode, MPSNNGradientFilterNode, MPSNNTrainableNode, MPSNNTrainingStyle
from mpsref.mps.graph.recorded import record
from mpsref.mps.graph.together import TOGETHER

__all__ = ["Parameters", "TrainableGradientNode", "WeightedNode"]


class Parameters(abc.ABC):
    """The parameters of one forward node in one graph."""

    data_source: Any

    def __init__(self, kernel: Any, name: str) -> None:
        """Keep the kernel that has loaded them; ``name`` is that of the node, for messages."""
        self.kernel, self.name = kernel, name
        self._records: dict[tuple[Shape, Shape], ForwardRecord] = {}

    def record(
        self, shapes: tuple[Shape, Shape], extras: Mapping[str, Any], source: SourceProperties | None = None
    ) -> ForwardRecord:
        """Return the record of a forward pass from the first of ``shapes`` to the second, which all of them have."""
        if shapes not in self._records:
            self._records[shapes] = record(self.kernel, shapes, extras, source)
        return self._records[shapes]

    @abc.abstractmethod
    def arrays(self) -> Mapping[str, Array | None]:
        """Return the arrays in force; they never change, but others may take their place."""

    @property
    def form(self) -> Any:
        """What, beside the arrays, a step is bound to; equal as long as shapes need not be inferred again."""
        return None

    @abc.abstractmethod
    def restore(self, before: Any) -> None:
        """Put back what :meth:`snapshot` returned."""

    @abc.abstractmethod
    def snapshot(self) -> Any:
        """Return what is in force, to be put back if an update fails."""

    @abc.abstractmethod
    def reload(self) -> None:
        """Read the data source again."""

    @abc.abstractmethod
    def state(self, step_state: Mapping[str, Any]) -> MPSState:
        """Return a synchronized state with the gradients of one run, for callbacks and for the caller."""

    def update(self, style: MPSNNTrainingStyle, step_state: Mapping[str, Any]) -> Callable[[], None] | None:
        """Call the data source; return what puts the new parameters in force, ``None`` for no update.

        A data source that has ``update_together`` is not given a state: see :mod:`mpsref.mps.graph.together`.
        """
        together = self._together(style)
        if together is not None:
            return self._update_together(together, step_state)
        return self._update(style, self.state(step_state))

    def _together(self, style: MPSNNTrainingStyle) -> Callable[..., Any] | None:
        """Return ``update_together`` of the data source, if that is what the style calls."""
        if style is not MPSNNTrainingStyle.GPU or not self.updates_together:
            return None
        method = getattr(self.data_source, TOGETHER, None)
        return method if callable(method) else None

    @abc.abstractmethod
    def _update(self, style: MPSNNTrainingStyle, state: MPSState) -> Callable[[], None] | None:
        """Call the callbacks of the style."""

    updates_together: ClassVar[bool] = False
    """Whether the data source may have ``update_together``."""

    def _update_together(self, together: Any, step_state: Mapping[str, Any]) -> Callable[[], None]:
        """Call it."""
        raise NotImplementedError

    callback_names: ClassVar[Mapping[MPSNNTrainingStyle, tuple[str, ...]]]
    """The methods of the data source that each style calls, in order."""

    def callbacks(self, style: MPSNNTrainingStyle) -> dict[str, Callable[..., Any]]:
        """Return those of them that the data source has."""
        methods = {name: getattr(self.data_source, name, None) for name in self.callback_names[style]}
        return {name: method for name, method in methods.items() if callable(method)}

    def check_style(self, node: MPSNNFilterNode, style: MPSNNTrainingStyle) -> None:
        """Raise ``NotImplementedError`` for a data source without any callback of the style."""
        if style is MPSNNTrainingStyle.NONE:
            return
        if self._together(style) is None and not self.callbacks(style):
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
    def _load(self) -> Parameters:
        """Read the data source, once for each graph that the node is compiled in."""


class TrainableGradientNode(MPSNNTrainableNode, MPSNNGradientFilterNode):
    """The gradient node of a trainable node, whose training style it has; not a class of Apple's."""

    def __init__(self, *args: Any, **properties: Any) -> None:
        """Take over the training style unless another is given."""
        super().__init__(*args, **properties)
        if "training_style" not in properties and isinstance(self.forward, MPSNNTrainableNode):
            self.training_style = self.forward.training_style

    def _parameters(self, forward: Parameters) -> Parameters:
        """Return the parameters that the gradient for the source reads: those of the forward node."""
        return forward


def accumulate(state: dict[str, Any], name: str, gradients: tuple[Array, ...]) -> None:
    """Add the gradients of parameters to those of other gradient steps of the same forward step."""
    if name in state:
        gradients = tuple(map(np.add, state[name], gradients))
    state[name] = gradients


def updated(answer: Any, name: str, method: str) -> bool:
    """Check what a callback for the CPU returned; ``OrderError`` for a failure."""
    if not isinstance(answer, bool):
        raise TypeError(f"{method} of the data source of {name!r} returned {answer!r}; it must return True or False")
    if not answer:
        raise OrderError(f"{method} of the data source of {name!r} returned False: it could not update its weights")
    return answer
