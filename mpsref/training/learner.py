"""One optimizer for all parameters of a network."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.mps import MPSNNOptimizer
from mpsref.mps.convolution_loading import immutable

__all__ = ["Learned", "Learner"]


class Learned:
    """What the data sources of a learner have in common: arrays with names, the first two of which are learned."""

    names: ClassVar[tuple[str, ...]]
    learner: Learner

    @property
    def parameters(self) -> tuple[Array, Array]:
        """The two arrays that are learned."""
        first, second = self.learned().values()
        return first, second

    @parameters.setter
    def parameters(self, values: tuple[Array, Array]) -> None:
        for name, value in zip(self.names[:2], values, strict=True):
            setattr(self, f"{name}_array", value)

    def learned(self) -> dict[str, Array]:
        """Return the two arrays by name."""
        return {name: getattr(self, f"{name}_array") for name in self.names[:2]}

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Yield everything that a checkpoint must hold, by name."""
        for name in self.names:
            yield name, getattr(self, f"{name}_array")


class Learner:
    """An optimizer, and the parameters of several data sources in one vector.

    A graph gives each data source its gradients as soon as they are there, and takes over the new parameters of all of
    them when the run ends. When the last gradients have come, one step is made for all parameters. As each number is
    stepped for itself, it is the step that each data source would make with an optimizer of its own, and nothing has
    changed if a run breaks off before.
    """

    def __init__(self, optimizer: MPSNNOptimizer, sources: Sequence[Learned]) -> None:
        """Become the ``learner`` of the data sources."""
        self.optimizer, self.sources = optimizer, sources
        self.join()
        self.moments = {name.removesuffix("s"): np.zeros_like(self.values) for name in optimizer.moments}
        """What the optimizer remembers, by the name of its operand."""
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
        self.values, closed = values, immutable(values)
        parts, end = [], 0
        for shape in self._shapes:
            start, end = end, end + math.prod(shape)
            parts.append(closed[start:end].reshape(shape))
        for k, source in enumerate(self.sources):
            source.parameters = parts[2 * k], parts[2 * k + 1]

    def update(self, source: Learned, gradients: Sequence[Array]) -> None:
        """Note the gradients of a data source; when those of all have come, make a step."""
        self._gradients[self._numbers[id(source)]] = gradients
        if len(self._gradients) == len(self.sources):
            self._step()

    def _step(self) -> None:
        gradient = _joined([self._gradients[k] for k in range(len(self.sources))])
        self._gradients.clear()
        operands: dict[str, Any] = {
            "input_gradient_vector": gradient,
            "input_values_vector": self.values,
            **self.moments,
        }
        self._share(self.optimizer.encode(**operands))


def _joined(pairs: Sequence[Sequence[Array]]) -> Array:
    return np.concatenate([part.ravel() for pair in pairs for part in pair])
