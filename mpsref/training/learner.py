"""One optimizer for all parameters of a network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from mpsref.images import Array
from mpsref.mps import MPSCommandBuffer, MPSNNOptimizer

__all__ = ["Learned", "Learner"]


class Learned:
    """What the data sources of a learner have in common: arrays with names, the first two of which are learned."""

    names: ClassVar[tuple[str, ...]]
    state_class: ClassVar[type[Any]]
    """What a graph reloads the first two from."""
    learner: Learner

    @property
    def parameters(self) -> tuple[Array, Array]:
        """The two arrays that are learned."""
        first, second = (getattr(self, f"{name}_array") for name in self.names[:2])
        return first, second

    @parameters.setter
    def parameters(self, values: tuple[Array, Array]) -> None:
        for name, value in zip(self.names[:2], values, strict=True):
            setattr(self, f"{name}_array", value)

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield everything that a checkpoint must hold, by name."""
        for name in self.names:
            yield name, getattr(self, f"{name}_array")


class Learner:
    """An optimizer, and the parameters of several data sources in one vector.

    A graph asks each data source for new parameters as soon as its gradients are there, and takes over what all of them
    answered when the run ends. So an answer may be a state that is filled later: when the last gradients have come, one
    step is made for all parameters. As each number is stepped for itself, it is the step that each data source would
    make with an optimizer of its own, and nothing has changed if a run breaks off before.
    """

    def __init__(self, optimizer: MPSNNOptimizer, sources: Sequence[Learned]) -> None:
        """Become the ``learner`` of the data sources."""
        self.optimizer, self.sources = optimizer, sources
        self.join()
        self.moments = {name.removesuffix("s"): np.zeros_like(self.values) for name in optimizer.moments}
        """What the optimizer remembers, by the name of its operand."""
        self._states = [source.state_class(*source.parameters) for source in sources]
        self._numbers = {id(source): k for k, source in enumerate(sources)}
        self._gradients: dict[int, Sequence[Array]] = {}
        for source in sources:
            source.learner = self

    def join(self) -> None:
        """Take the parameters over that the data sources have now."""
        pairs = [source.parameters for source in self.sources]
        self._shapes = [part.shape for pair in pairs for part in pair]
        self._share(_joined(pairs))

    def _share(self, values: Array) -> None:
        """Set the vector of all parameters; the data sources have their parts of it, which never change."""
        self.values, parts, end = values, [], 0
        for shape in self._shapes:
            start, end = end, end + math.prod(shape)
            parts.append(values[start:end].reshape(shape))
        for k, source in enumerate(self.sources):
            source.parameters = parts[2 * k], parts[2 * k + 1]

    def update(self, source: Learned, gradients: Sequence[Array], command_buffer: MPSCommandBuffer | None) -> Any:
        """Note the gradients of a data source; return the state that will have its new parameters."""
        number = self._numbers[id(source)]
        self._gradients[number] = gradients
        if len(self._gradients) == len(self.sources):
            self._step(command_buffer)
        return self._states[number]

    def _step(self, command_buffer: MPSCommandBuffer | None) -> None:
        gradient = _joined([self._gradients[k] for k in range(len(self.sources))])
        self._gradients.clear()
        self._share(
            self.optimizer.encode(
                input_gradient_vector=gradient,
                input_values_vector=self.values,
                **self.moments,
                command_buffer=command_buffer,
            )
        )
        for source, state in zip(self.sources, self._states, strict=True):
            state.device_write(*source.parameters, command_buffer=command_buffer)


def _joined(pairs: Sequence[Sequence[Array]]) -> Array:
    return np.concatenate([part.ravel() for pair in pairs for part in pair])
