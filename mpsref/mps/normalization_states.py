"""The parameters of normalization kernels as pairs of vectors: gamma and beta, mean and variance.

A data source returns one after an update, an optimizer writes one, a reload reads one.

>>> state = MPSCNNNormalizationGammaAndBetaState([1.0, 2.0], [0.0, 0.5])
>>> state.gamma.tolist(), state.number_of_feature_channels
([1.0, 2.0], 2)
>>> state.device_write([3.0, 4.0], [0.0, 0.0])
>>> state.gamma
Traceback (most recent call last):
mpsref.errors.NotSynchronizedError: MPSCNNNormalizationGammaAndBetaState.gamma cannot be read: ...
>>> state.synchronize()
>>> state.gamma.tolist()
[3.0, 4.0]

Source: ``MPSCNNNormalizationWeights.h`` and ``MPSCNNBatchNormalization.h`` [doc].
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import integer
from mpsref.errors import ShapeError
from mpsref.kernels.batch_normalization_problems import not_negative
from mpsref.mps.core.command_buffer import MPSCommandBuffer, SynchronizedState, check_encodable
from mpsref.mps.core.state import MPSState

__all__ = [
    "MPSCNNNormalizationGammaAndBetaState",
    "MPSCNNNormalizationMeanAndVarianceState",
    "NormalizationPairState",
    "frozen_vector",
    "not_negative",
]


def frozen_vector(name: str, value: Any, channels: int | None = None) -> Array:
    """Return a read-only copy of a vector, float32; a float64 array stays float64, for work in float64.

    Raises ``TypeError`` for what is no array of real numbers, ``ShapeError`` for another rank, and for another length
    than ``channels`` where that is given.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:  # a ragged list
        raise TypeError(f"{name} cannot be read as an array of numbers: {error}") from error
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} has dtype {array.dtype}; it must be an array of real numbers, float32 for example")
    if array.ndim != 1 or not array.size or channels not in (None, array.size):
        legal = "one-dimensional and not empty, (C,)" if channels is None else f"({channels},): one for each channel"
        raise ShapeError(f"{name} has shape {array.shape}; it must be {legal}")
    keeps = isinstance(value, np.ndarray) and array.dtype.itemsize == 8 and array.dtype.kind == "f"
    dtype = np.float64 if keeps else np.float32
    if array.dtype == dtype:
        copy = array.copy()
    else:
        with np.errstate(over="ignore"):
            copy = array.astype(dtype)
    copy.setflags(write=False)
    return copy


class NormalizationPairState(MPSState, SynchronizedState):
    """Two vectors with a number for each channel; not a class of Apple's.

    They may be longer than a kernel has channels, which then uses the first of them [doc]. Kernels read and write them
    with :meth:`device_read` and :meth:`device_write` in the order in which they are encoded. The host reads what it
    passed in itself at any time, and what a kernel has written after :meth:`synchronize`.
    """

    names: ClassVar[tuple[str, str]]

    def __init__(self, first: Any, second: Any) -> None:
        """Copy the vectors; raise ``TypeError`` for what are no numbers, ``ShapeError`` for unequal lengths."""
        self._vectors = self._checked(first, second)
        self._readable_version = self._version

    @classmethod
    def temporary_state(cls, command_buffer: MPSCommandBuffer, number_of_feature_channels: int) -> Self:
        """Return a state of zeros for one command buffer; here it never expires.

        Raises ``OrderError`` for a committed command buffer, ``ValueError`` for fewer than one channel.
        """
        channels = integer("number_of_feature_channels", number_of_feature_channels, low=1)
        check_encodable(command_buffer)
        return cls(np.zeros(channels, np.float32), np.zeros(channels, np.float32))

    @property
    def number_of_feature_channels(self) -> int:
        """Length of both vectors."""
        return len(self._vectors[0])

    def device_read(
        self, channels: int | None = None, command_buffer: MPSCommandBuffer | None = None
    ) -> tuple[Array, Array]:
        """Return what a kernel that is encoded now reads: two read-only arrays, which do not change later.

        With ``channels``, as many from the start; ``ShapeError`` where there are fewer. ``OrderError`` for a committed
        command buffer. No synchronization is needed.
        """
        check_encodable(command_buffer)
        first, second = self._vectors
        if channels is None:
            return first, second
        if len(first) < channels:
            raise ShapeError(
                f"{type(self).__name__} has {len(first)} channels; a kernel with {channels} needs at least as many"
            )
        return first[:channels], second[:channels]

    def device_write(self, first: Any, second: Any = None, *, command_buffer: MPSCommandBuffer | None = None) -> None:
        """Write what a kernel that is encoded now has computed; ``second=None`` keeps that vector.

        Raises ``ShapeError`` for another length than the state has, errors as at construction, ``OrderError`` for a
        committed command buffer; then nothing is written.
        """
        check_encodable(command_buffer)
        vectors = self._checked(first, self._vectors[1] if second is None else second)
        if len(vectors[0]) != self.number_of_feature_channels:
            raise ShapeError(
                f"{self.names[0]} has {len(vectors[0])} values; the state has {self.number_of_feature_channels}"
            )
        self._vectors = vectors
        self.written()

    def _checked(self, first: Any, second: Any) -> tuple[Array, Array]:
        vectors = frozen_vector(self.names[0], first), frozen_vector(self.names[1], second)
        lengths = len(vectors[0]), len(vectors[1])
        if lengths[0] != lengths[1]:
            raise ShapeError(
                f"{self.names[0]} has {lengths[0]} values and {self.names[1]} {lengths[1]}; both must have as many"
            )
        return vectors

    def _read(self, k: int) -> Array:
        self.check_readable(self.names[k])
        return self._vectors[k]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.number_of_feature_channels} channels>"


class MPSCNNNormalizationGammaAndBetaState(NormalizationPairState):
    """Scale and shift of a normalization: ``gamma`` and ``beta``, (C,) each."""

    names = ("gamma", "beta")

    @property
    def gamma(self) -> Array:
        """The scale, read-only; ``NotSynchronizedError`` if a kernel has written it since the last synchronization."""
        return self._read(0)

    @property
    def beta(self) -> Array:
        """The shift, read-only; errors as for ``gamma``."""
        return self._read(1)


class MPSCNNNormalizationMeanAndVarianceState(NormalizationPairState):
    """Statistics of a normalization: ``mean`` and ``variance``, (C,) each; a negative variance is refused [choice]."""

    names = ("mean", "variance")

    @property
    def mean(self) -> Array:
        """The mean, read-only; ``NotSynchronizedError`` if a kernel has written it since the last synchronization."""
        return self._read(0)

    @property
    def variance(self) -> Array:
        """The variance, read-only; errors as for ``mean``."""
        return self._read(1)

    def _checked(self, first: Any, second: Any) -> tuple[Array, Array]:
        mean, variance = super()._checked(first, second)
        return mean, not_negative("variance", variance)
