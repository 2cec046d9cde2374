"""Where instance and group normalization get their parameters: what a data source must have, and ready ones.

>>> source = InstanceNormalizationDataSource(2, gamma=[1.0, 2.0])
>>> source.number_of_feature_channels, source.gamma().tolist(), source.beta()
(2, [1.0, 2.0], None)

Source: ``MPSCNNInstanceNormalization.h``, ``MPSCNNGroupNormalization.h`` [doc].
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import integer
from mpsref.errors import OrderError
from mpsref.kernels.normalization import FLT_MIN, real
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.core.serialization import SecureCoding, secure_coding
from mpsref.mps.normalization_states import MPSCNNNormalizationGammaAndBetaState, frozen_vector

__all__ = [
    "GroupNormalizationDataSource",
    "InstanceNormalizationDataSource",
    "LoadedParameters",
    "MPSCNNGroupNormalizationDataSource",
    "MPSCNNInstanceNormalizationDataSource",
    "load",
]


@runtime_checkable
class MPSCNNInstanceNormalizationDataSource(Protocol):
    """What a data source of instance normalization must have.

    Beside these it may have ``epsilon()``, ``load()`` and ``purge()``, and for training
    ``update_gamma_and_beta(state, command_buffer=None)``, which returns a pair state to reload, or ``None`` for no
    change, and its CPU form ``update_gamma_and_beta_cpu(state)``, which returns whether it changed what the data source
    delivers. ``state`` holds the gradients of each image; an update adds them up.
    """

    @property
    def number_of_feature_channels(self) -> int:
        """C: every image normalized with it has so many channels."""

    def gamma(self) -> Any:
        """Return the scale (C,), or ``None`` for 1 [choice]."""

    def beta(self) -> Any:
        """Return the shift (C,), or ``None`` for 0 [choice]."""

    def label(self) -> str | None:
        """Return a name for messages, or ``None``."""


@runtime_checkable
class MPSCNNGroupNormalizationDataSource(MPSCNNInstanceNormalizationDataSource, Protocol):
    """What a data source of group normalization must have: the same, and the number of groups.

    Apple's protocol has no ``load`` and ``purge``; where they exist they are called here too [choice].
    """

    number_of_groups: int
    """How many groups of channels are normalized, each by itself; it divides the number of channels."""


@dataclass(frozen=True, eq=False)
class LoadedParameters:
    """What a kernel uses: copies (C,) that never change, ``None`` where the data source has none."""

    channels: int
    groups: int
    gamma: Array | None
    beta: Array | None
    epsilon: float = FLT_MIN
    from_data_source: bool = True
    """Whether the data source delivered them; otherwise a state did."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoadedParameters) and self._numbers() == other._numbers()

    __hash__ = None  # type: ignore[assignment]

    def _numbers(self) -> tuple[Any, ...]:
        vectors = (None if vector is None else vector.tolist() for vector in (self.gamma, self.beta))
        return self.channels, self.groups, *vectors


def load(source: Any, grouped: bool) -> LoadedParameters:
    """Return copies of what a data source delivers, between ``load`` and ``purge`` if it has them.

    Without groups of its own every channel is one. Raises ``TypeError`` for a missing member and for what are no
    numbers, ``OrderError`` if ``load`` does not return true, ``ValueError`` (or ``ShapeError``) for another length, a
    negative epsilon, and groups that do not divide the channels.
    """
    missing = [name for name in ("gamma", "beta", "label") if not callable(getattr(source, name, None))]
    values = ("number_of_feature_channels", *(("number_of_groups",) if grouped else ()))
    missing += [name for name in values if not hasattr(source, name)]
    if missing:
        kind = "Group" if grouped else "Instance"
        raise TypeError(
            f"data_source is of type {type(source).__name__}, which lacks {', '.join(missing)}; use a "
            f"{kind}NormalizationDataSource, or a class with all members of MPSCNN{kind}NormalizationDataSource"
        )
    try:
        ready = source.load() if callable(getattr(source, "load", None)) else True
        if not ready:
            raise OrderError(f"data_source.load() returned {ready!r}; it must return True once the data is ready")
        return _read(source, grouped)
    finally:
        if callable(getattr(source, "purge", None)):
            source.purge()


def _read(source: Any, grouped: bool) -> LoadedParameters:
    channels = integer("data_source.number_of_feature_channels", source.number_of_feature_channels, low=1)
    groups = channels
    if grouped:
        groups = _divisor("data_source.number_of_groups", source.number_of_groups, channels)
    gamma, beta = (
        None if value is None else frozen_vector(f"data_source.{name}()", value, channels)
        for name, value in (("gamma", source.gamma()), ("beta", source.beta()))
    )
    epsilon = source.epsilon() if callable(getattr(source, "epsilon", None)) else FLT_MIN
    return LoadedParameters(channels, groups, gamma, beta, real("data_source.epsilon()", epsilon, low=0))


def _divisor(name: str, value: Any, channels: int) -> int:
    groups = integer(name, value, low=1)
    if channels % groups:
        raise ValueError(f"{name} is {groups}; it must divide number_of_feature_channels, {channels}")
    return groups


@secure_coding(version=1, arguments=("number_of_feature_channels", "gamma", "beta", "epsilon", "optimizer"))
class InstanceNormalizationDataSource(SecureCoding):
    """A data source that holds its vectors, and may learn with an optimizer.

    ``gamma_array`` and ``beta_array`` are the vectors, float32, or ``None`` for 1 and 0; a kernel sees a change when it
    reloads. An update is one step of ``optimizer`` on both, with their gradients summed over the images; its moments
    are kept here.
    """

    def __init__(
        self,
        number_of_feature_channels: int,
        gamma: Any = None,
        beta: Any = None,
        epsilon: float = FLT_MIN,
        optimizer: Any = None,
    ) -> None:
        """Copy the vectors (C,); raises ``TypeError`` or ``ValueError`` for what does not fit."""
        self._channels = integer("number_of_feature_channels", number_of_feature_channels, low=1)
        self._epsilon = real("epsilon", epsilon, low=0)
        self.gamma_array, self.beta_array = (
            None if value is None else frozen_vector(name, value, self._channels)
            for name, value in (("gamma", gamma), ("beta", beta))
        )
        if optimizer is not None and not (
            callable(getattr(optimizer, "encode", None)) and hasattr(optimizer, "moments")
        ):
            raise TypeError(
                f"optimizer is of type {type(optimizer).__name__}; it must be an optimizer with encode and moments, "
                "such as an MPSNNOptimizerStochasticGradientDescent, or None"
            )
        self.optimizer = optimizer
        self._moments: dict[str, Array] = {}

    @property
    def number_of_feature_channels(self) -> int:
        """C."""
        return self._channels

    def gamma(self) -> Array | None:
        """Return the scale, or ``None`` for 1."""
        return self.gamma_array

    def beta(self) -> Array | None:
        """Return the shift, or ``None`` for 0."""
        return self.beta_array

    def epsilon(self) -> float:
        """Return what is added to a variance."""
        return self._epsilon

    def label(self) -> str | None:
        """Return ``None``: it has no name."""
        return None

    def update_gamma_and_beta(
        self, state: Any, command_buffer: MPSCommandBuffer | None = None
    ) -> MPSCNNNormalizationGammaAndBetaState | None:
        """Let the optimizer make a step; return its result for a reload, or ``None`` without an optimizer.

        ``state`` is the gradient state of a batch, or a list of the states of its images. Raises ``OrderError`` before
        the gradient has been encoded.
        """
        if self.optimizer is None:
            return None
        gradient = self._total(state, command_buffer)
        values = np.concatenate(
            [
                np.full(self._channels, default, np.float32) if vector is None else vector
                for vector, default in ((self.gamma_array, 1), (self.beta_array, 0))
            ]
        )
        moments = {name.removesuffix("s"): np.zeros(values.size, np.float32) for name in self.optimizer.moments}
        self._moments = moments | self._moments
        result = self.optimizer.encode(
            input_gradient_vector=gradient, input_values_vector=values, **self._moments, command_buffer=command_buffer
        )
        self.gamma_array, self.beta_array = (
            frozen_vector(name, vector) for name, vector in zip(("gamma", "beta"), np.split(result, 2), strict=True)
        )
        return MPSCNNNormalizationGammaAndBetaState(self.gamma_array, self.beta_array)

    def update_gamma_and_beta_cpu(self, state: Any) -> bool:
        """Do the same for a synchronized state; return whether there is an optimizer."""
        if self.optimizer is not None:
            for one in state:
                _ = one.gradient_for_gamma  # raises where the host may not read it
        return self.update_gamma_and_beta(state) is not None

    def _total(self, states: Iterable[Any], command_buffer: MPSCommandBuffer | None) -> Array:
        """Return the gradients for gamma and beta, one after the other, summed over the images."""
        total = np.zeros(2 * self._channels)
        for one in states:
            known = one.device_read(command_buffer)
            if known.gradient_for_gamma is None:
                raise OrderError("state has no gradients yet; encode the gradient kernel with it before the update")
            total += np.concatenate([known.gradient_for_gamma, known.gradient_for_beta])
        return total.astype(np.float32)

    def saved_values(self) -> dict[str, Any]:
        """Return what is saved: numbers, vectors as tuples; moments of an optimizer are not."""
        gamma, beta = (
            None if value is None else tuple(value.tolist()) for value in (self.gamma_array, self.beta_array)
        )
        return {
            "number_of_feature_channels": self._channels,
            "gamma": gamma,
            "beta": beta,
            "epsilon": self._epsilon,
            "optimizer": self.optimizer,
        }

    def __eq__(self, other: object) -> bool:
        """Whether both deliver the same."""
        return self.saved_values() == other.saved_values() if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # vectors change

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._channels} channels, epsilon={self._epsilon!r}>"


@secure_coding(
    version=1, arguments=("number_of_feature_channels", "number_of_groups", "gamma", "beta", "epsilon", "optimizer")
)
class GroupNormalizationDataSource(InstanceNormalizationDataSource):
    """The same for group normalization; ``number_of_groups`` may be set, and a kernel sees it when it reloads."""

    def __init__(
        self,
        number_of_feature_channels: int,
        number_of_groups: int = 1,
        gamma: Any = None,
        beta: Any = None,
        epsilon: float = FLT_MIN,
        optimizer: Any = None,
    ) -> None:
        """Copy the vectors (C,); raises ``TypeError`` or ``ValueError`` for what does not fit."""
        super().__init__(number_of_feature_channels, gamma, beta, epsilon, optimizer)
        self.number_of_groups = number_of_groups

    @property
    def number_of_groups(self) -> int:
        """How many groups of channels there are; it divides the number of channels."""
        return self._groups

    @number_of_groups.setter
    def number_of_groups(self, value: int) -> None:
        self._groups = _divisor("number_of_groups", value, self._channels)

    def saved_values(self) -> dict[str, Any]:
        """Return what is saved: the groups too."""
        return super().saved_values() | {"number_of_groups": self._groups}
