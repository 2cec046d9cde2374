"""Where batch normalization gets its parameters: the protocol of data sources, and one that is ready to use.

>>> source = BatchNormalizationDataSource(2, gamma=[1.0, 2.0])
>>> source.number_of_feature_channels, source.gamma().tolist(), source.beta()
(2, [1.0, 2.0], None)

Source: ``MPSCNNBatchNormalizationDataSource`` in ``MPSCNNBatchNormalization.h`` [doc].
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import integer
from mpsref.errors import OrderError
from mpsref.kernels.normalization import FLT_MIN, real
from mpsref.mps.batch_normalization_state import MPSCNNBatchNormalizationState, closed
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.core.serialization import SecureCoding, secure_coding
from mpsref.mps.normalization_states import (
    MPSCNNNormalizationGammaAndBetaState,
    MPSCNNNormalizationMeanAndVarianceState,
    frozen_vector,
    not_negative,
)

__all__ = ["BatchNormalizationDataSource", "LoadedParameters", "MPSCNNBatchNormalizationDataSource", "load", "pair"]

CHANNELS = "number_of_feature_channels"
REQUIRED = ("gamma", "beta", "mean", "variance", "load", "purge", "label")


@runtime_checkable
class MPSCNNBatchNormalizationDataSource(Protocol):
    """What a data source must have. ``load`` comes before anything else is read, ``purge`` after each ``load``.

    Beside these it may have ``epsilon()``, and for training ``update_gamma_and_beta(state, command_buffer=None)`` and
    ``update_mean_and_variance(state, command_buffer=None)``, which return a pair state to reload, or ``None`` for no
    change, and their CPU forms ``update_gamma_and_beta_cpu(state)`` and ``update_mean_and_variance_cpu(state)``, which
    return whether they changed what the data source delivers.
    """

    @property
    def number_of_feature_channels(self) -> int:
        """C: every image normalized with it has so many channels."""

    def gamma(self) -> Any:
        """Return the scale (C,), or ``None`` for 1 [choice: the header allows NULL and says nothing]."""

    def beta(self) -> Any:
        """Return the shift (C,), or ``None`` for 0."""

    def mean(self) -> Any:
        """Return the initial mean (C,), or ``None`` together with ``variance``."""

    def variance(self) -> Any:
        """Return the initial variance (C,), >= 0, or ``None`` together with ``mean``."""

    def load(self) -> bool:
        """Make the data ready; ``False`` makes a kernel's construction fail."""

    def purge(self) -> None:
        """Take note that the data is not needed any more for now."""

    def label(self) -> str | None:
        """Return a name for messages, or ``None``."""


@dataclass(frozen=True, eq=False)
class LoadedParameters:
    """The vectors that a kernel uses: copies (C,) that never change, ``None`` where the data source has none."""

    channels: int
    gamma: Array | None = None
    beta: Array | None = None
    mean: Array | None = None
    variance: Array | None = None
    epsilon: float = FLT_MIN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoadedParameters) and self._numbers() == other._numbers()

    __hash__ = None  # type: ignore[assignment]

    def _numbers(self) -> tuple[Any, ...]:
        vectors = self.gamma, self.beta, self.mean, self.variance
        return self.channels, self.epsilon, *(None if vector is None else vector.tolist() for vector in vectors)


def load(source: Any) -> LoadedParameters:
    """Return copies of what a data source delivers between ``load`` and ``purge``.

    Raises ``TypeError`` for a missing method and for what are no numbers, ``OrderError`` if ``load`` does not return
    true, ``ValueError`` (or ``ShapeError``) for another length, a negative variance or epsilon, and one of mean and
    variance without the other.
    """
    missing = [name for name in REQUIRED if not callable(getattr(source, name, None))]
    if inspect.getattr_static(source, CHANNELS, None) is None and not hasattr(type(source), "__getattr__"):
        missing.append(CHANNELS)  # looked up without a read: it may be a property, and nothing is read before load()
    if missing:
        raise TypeError(
            f"data_source is of type {type(source).__name__}, which lacks {', '.join(missing)}; use a "
            "BatchNormalizationDataSource, or a class with all members of MPSCNNBatchNormalizationDataSource"
        )
    try:
        ready = source.load()
        if not ready:
            raise OrderError(f"data_source.load() returned {ready!r}; it must return True once the data is ready")
        channels = integer(f"data_source.{CHANNELS}", getattr(source, CHANNELS), low=1)
        gamma, beta = pair(source, ("gamma", "beta"), channels)
        mean, variance = pair(source, ("mean", "variance"), channels)
        epsilon = source.epsilon() if callable(getattr(source, "epsilon", None)) else FLT_MIN
        return LoadedParameters(channels, gamma, beta, mean, variance, real("data_source.epsilon()", epsilon, low=0))
    finally:
        source.purge()


def pair(source: Any, names: tuple[str, str], channels: int) -> tuple[Array | None, Array | None]:
    """Return copies of two vectors of a data source, checked."""
    given = {name: getattr(source, name)() for name in names}
    first, second = (
        None if value is None else frozen_vector(f"data_source.{name}()", value, channels)
        for name, value in given.items()
    )
    if names[1] == "variance":
        if (first is None) != (second is None):
            absent = names[0] if first is None else names[1]
            raise ValueError(
                f"data_source.{absent}() returned None; mean and variance must both be given, or both be None"
            )
        if second is not None:
            not_negative("data_source.variance()", second)
    return first, second


@secure_coding(
    version=1,
    arguments=("number_of_feature_channels", "gamma", "beta", "mean", "variance", "epsilon", "momentum", "optimizer"),
)
class BatchNormalizationDataSource(SecureCoding):
    """A data source that holds its vectors, keeps running statistics, and may learn with an optimizer.

    An update of mean and variance is ``running = momentum * running + (1 - momentum) * batch value``, alike for mean
    and (biased) variance, from 0 and 1 where there are none yet. One of gamma and beta is a step of ``optimizer``, and
    nothing where that is ``None``; its moments are kept here. The vectors are ``gamma_array`` and so on, float32; a
    kernel sees a change when it reloads.
    """

    def __init__(
        self,
        number_of_feature_channels: int,
        gamma: Any = None,
        beta: Any = None,
        mean: Any = None,
        variance: Any = None,
        epsilon: float = FLT_MIN,
        momentum: float = 0.9,
        optimizer: Any = None,
    ) -> None:
        """Copy the vectors (C,); raises ``TypeError`` or ``ValueError`` for what does not fit.

        ``momentum`` is in [0, 1]. An ``optimizer`` has ``encode`` and ``moments`` as those of :mod:`mpsref.mps` have.
        """
        self._channels = integer("number_of_feature_channels", number_of_feature_channels, low=1)
        self._epsilon = real("epsilon", epsilon, low=0)
        self._momentum = real("momentum", momentum, low=0)
        if self._momentum > 1:
            raise ValueError(f"momentum is {momentum!r}; it must be a number in [0, 1]")
        given = {"gamma": gamma, "beta": beta, "mean": mean, "variance": variance}
        vectors = {
            name: None if value is None else frozen_vector(name, value, self._channels) for name, value in given.items()
        }
        if (vectors["mean"] is None) != (vectors["variance"] is None):
            raise ValueError("one of mean and variance is None; give both, or neither")
        if vectors["variance"] is not None:
            not_negative("variance", vectors["variance"])
        self.gamma_array, self.beta_array = vectors["gamma"], vectors["beta"]
        self.mean_array, self.variance_array = vectors["mean"], vectors["variance"]
        self.optimizer = optimizer
        self._moments: dict[str, list[Array]] = {}

    @property
    def number_of_feature_channels(self) -> int:
        """C."""
        return self._channels

    @property
    def momentum(self) -> float:
        """How much of the running statistics an update keeps."""
        return self._momentum

    def gamma(self) -> Array | None:
        """Return ``gamma_array``."""
        return self.gamma_array

    def beta(self) -> Array | None:
        """Return ``beta_array``."""
        return self.beta_array

    def mean(self) -> Array | None:
        """Return ``mean_array``."""
        return self.mean_array

    def variance(self) -> Array | None:
        """Return ``variance_array``."""
        return self.variance_array

    def epsilon(self) -> float:
        """Return what is added to a variance."""
        return self._epsilon

    def load(self) -> bool:
        """Return ``True``: the vectors are always there."""
        return True

    def purge(self) -> None:
        """Do nothing: the vectors stay."""

    def label(self) -> str | None:
        """Return ``None``."""
        return None

    def update_mean_and_variance(
        self, state: MPSCNNBatchNormalizationState, command_buffer: MPSCommandBuffer | None = None
    ) -> MPSCNNNormalizationMeanAndVarianceState:
        """Move the running statistics towards those of the batch; return them for a reload.

        Raises ``OrderError`` for a state without statistics.
        """
        self.mean_array, self.variance_array = self.moved(*state.device_read(command_buffer)[-2:])
        return MPSCNNNormalizationMeanAndVarianceState(self.mean_array, self.variance_array)

    def update_mean_and_variance_cpu(self, state: MPSCNNBatchNormalizationState) -> bool:
        """Do the same with what the host reads of a synchronized state; return ``True``."""
        self.mean_array, self.variance_array = self.moved(state.mean, state.variance)
        return True

    def moved(self, mean: Array | None, variance: Array | None) -> tuple[Array, Array]:
        """Return the running statistics after a batch with this mean and variance; nothing is changed.

        Raises ``OrderError`` for ``None``.
        """
        running = (
            np.zeros(self._channels, np.float32) if self.mean_array is None else self.mean_array,
            np.ones(self._channels, np.float32) if self.variance_array is None else self.variance_array,
        )
        moved, kept = [], self._momentum
        for old, new in zip(running, (mean, variance), strict=True):
            if new is None:
                raise OrderError("state has no statistics; encode MPSCNNBatchNormalizationStatistics before an update")
            both = np.multiply(kept, old, dtype=np.float64) + np.multiply(1 - kept, new, dtype=np.float64)
            moved.append(closed(both.astype(np.result_type(old, new))))
        return moved[0], moved[1]

    def update_gamma_and_beta(
        self, state: MPSCNNBatchNormalizationState, command_buffer: MPSCommandBuffer | None = None
    ) -> MPSCNNNormalizationGammaAndBetaState | None:
        """Let the optimizer make a step; return its result for a reload, or ``None`` without an optimizer."""
        if self.optimizer is None:
            return None
        for name in self.optimizer.moments:
            if name not in self._moments:
                vectors = self.gamma_array, self.beta_array
                like = [np.dtype(np.float32) if vector is None else vector.dtype for vector in vectors]
                self._moments[name] = [np.zeros(self._channels, dtype) for dtype in like]
        result: MPSCNNNormalizationGammaAndBetaState = self.optimizer.encode(
            batch_normalization_state=state, **self._moments, command_buffer=command_buffer
        )
        self.gamma_array, self.beta_array = result.device_read(self._channels, command_buffer)
        return result

    def update_gamma_and_beta_cpu(self, state: MPSCNNBatchNormalizationState) -> bool:
        """Do the same for a synchronized state; return whether there is an optimizer."""
        if self.optimizer is not None:
            state.check_readable("gradient_for_gamma")
        return self.update_gamma_and_beta(state) is not None

    def copy(self) -> Self:
        """Return an equal data source that learns on its own: nothing but the immutable vectors is shared."""
        twin = copy.copy(self)
        twin.optimizer = None if self.optimizer is None else self.optimizer.copy()
        twin._moments = {name: [vector.copy() for vector in pair] for name, pair in self._moments.items()}
        return twin

    def saved_values(self) -> dict[str, Any]:
        """Return what is saved: numbers, vectors as tuples; moments of an optimizer are not."""
        super().saved_values()  # a subclass that is not registered cannot be saved
        return self._contents()

    def _contents(self) -> dict[str, Any]:
        vectors = {
            name: None if value is None else tuple(value.tolist())
            for name, value in (
                ("gamma", self.gamma_array),
                ("beta", self.beta_array),
                ("mean", self.mean_array),
                ("variance", self.variance_array),
            )
        }
        numbers = {"epsilon": self._epsilon, "momentum": self._momentum}
        return {"number_of_feature_channels": self._channels, **vectors, **numbers, "optimizer": self.optimizer}

    def __eq__(self, other: object) -> bool:
        """Whether both deliver the same."""
        return self._contents() == other._contents() if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # vectors change

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._channels} channels, epsilon={self._epsilon!r}>"
