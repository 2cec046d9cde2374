"""Parameters of batch, instance and group normalization: states with pairs of vectors, and data sources.

A data source returns such a state after an update, an optimizer writes it, a reload reads it.

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

>>> source = BatchNormalizationDataSource(2, gamma=[1.0, 2.0])
>>> source.number_of_feature_channels, source.gamma().tolist(), source.beta()
(2, [1.0, 2.0], None)

Source: ``MPSCNNNormalizationWeights.h``, ``MPSCNNBatchNormalization.h``, ``MPSCNNInstanceNormalization.h``,
``MPSCNNGroupNormalization.h`` [doc].
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from mpsref.arguments.arrays import Array, as_array, as_vector, copied, is_array, is_writable, placed_like
from mpsref.arguments.device import is_on_device, on_host
from mpsref.arguments.parameters import integer, number, real
from mpsref.arguments.text import shown
from mpsref.errors import OrderError, ShapeError
from mpsref.kernels.batch_normalization import not_negative
from mpsref.kernels.normalization import FLT_MIN
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable, check_not_a_command_buffer
from mpsref.mps.core.properties import Alias, describe_parameters, hinting
from mpsref.mps.core.serialization import SecureCoding, secure_coding
from mpsref.mps.core.state import Buffer, Synchronized, SynchronizedState, check_buffers

Kind: TypeAlias = Literal["Batch", "Instance", "Group"]


def read_only(array: Array) -> Array:
    """Make an array read-only, and return it."""
    array.setflags(write=False)
    return array


def frozen_vector(name: str, value: ArrayLike, channels: int | None = None) -> Array:
    """Return a read-only copy of a vector as float32; an array of float64 is copied as float64.

    Raises ``TypeError`` unless it is an array of real numbers, ``ShapeError`` for another rank, and for another length
    than ``channels`` where that is given.
    """
    array = as_array(name, value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} has dtype {array.dtype}; it must be an array of real numbers, float32 for example")
    if array.ndim != 1 or not array.size or channels not in (None, array.size):
        legal = "one-dimensional and not empty, (C,)" if channels is None else f"({channels},): one for each channel"
        raise ShapeError(f"{name} has shape {array.shape}; it must be {legal}")
    keeps = isinstance(value, np.ndarray) and array.dtype.itemsize == 8 and array.dtype.kind == "f"
    dtype = np.float64 if keeps else np.float32
    return read_only(copied(name, array, dtype))


def _shared(given: object, copy: Array) -> Buffer:
    """Return the buffer of a vector that a caller has given, of which there is a ``copy``."""
    if is_array(given) and is_writable(given) and given.dtype == copy.dtype:
        return Buffer.of(given, as_array("the vector", given))
    return Buffer(copy)


class NormalizationPairState(SynchronizedState):
    """Two vectors with a number for each channel; not a class of Apple's.

    The vectors may be longer than the number of channels of a kernel, which uses the first elements [doc]. Kernels read
    and write them with :meth:`device_read` and :meth:`device_write` in the order in which they are encoded. The host
    reads the initial values at any time, and values that a kernel wrote after :meth:`synchronize`. As in MPS, the state
    shares arrays that may be written, of float32 or float64; other values are copied.
    """

    names: ClassVar[tuple[str, str]]

    def __init__(self, first: ArrayLike, second: ArrayLike) -> None:
        """Share arrays that may be written, and copy others.

        Raises ``TypeError`` unless they are numbers, ``ShapeError`` for unequal lengths.
        """
        checked = self._checked(first, second)
        self._pair = [_shared(given, vector) for given, vector in zip((first, second), checked, strict=True)]
        self._readable_version = self._version

    @property
    def _vectors(self) -> tuple[Array, Array]:
        first, second = (one.array for one in self._pair)
        return first, second

    @classmethod
    def temporary_state(cls, command_buffer: MPSCommandBuffer, number_of_feature_channels: int) -> Self:
        """Return a state of zeros for one command buffer, whose ``read_count`` is 1.

        Raises ``OrderError`` for a committed command buffer, ``ValueError`` for fewer than one channel.
        """
        channels = integer("number_of_feature_channels", number_of_feature_channels, low=1)
        return cls(np.zeros(channels, np.float32), np.zeros(channels, np.float32))._as_temporary(command_buffer)

    number_of_feature_channels: Alias[int] = Alias("_vectors", "Length of both vectors.", lambda pair: len(pair[0]))

    def device_read(
        self, channels: int | None = None, command_buffer: MPSCommandBuffer | None = None
    ) -> tuple[Array, Array]:
        """Return the vectors for a kernel that is encoded now, which needs no synchronization.

        Parameters
        ----------
        channels : int, optional
            The number of values to return; by default all.
        command_buffer : MPSCommandBuffer, optional
            The command buffer to encode on.

        Returns
        -------
        first, second : ndarray
            Read-only arrays (channels,), which later writes do not change.

        Raises
        ------
        ShapeError
            If the state has fewer than ``channels`` values.
        OrderError
            For a committed command buffer.
        """
        check_encodable(command_buffer)
        self._read_by_kernel(command_buffer)
        first, second = self._vectors
        if any(one.is_shared for one in self._pair):  # the caller may have written others
            first, second = self._checked(first, second)
        if channels is None:
            return first, second
        if len(first) < channels:
            raise ShapeError(
                f"{type(self).__name__} has {len(first)} channels; a kernel with {channels} needs at least as many"
            )
        return first[:channels], second[:channels]

    def device_write(
        self, first: ArrayLike, second: ArrayLike | None = None, *, command_buffer: MPSCommandBuffer | None = None
    ) -> None:
        """Write the results of a kernel that is encoded now; ``second=None`` keeps that vector.

        Raises ``ShapeError`` for another length than that of the state, ``TypeError`` for other types than numbers,
        ``OrderError`` for a committed command buffer, ``ValueError`` for shared vectors that overlap. No error changes
        the state.
        """
        check_encodable(command_buffer)
        self._check_usable(command_buffer)
        second = self._vectors[1] if second is None else second
        new = self._checked(first, second, self.number_of_feature_channels)
        check_buffers(**dict(zip(self.names, self._pair, strict=True)))
        self._pair = [one.written(values) for one, values in zip(self._pair, new, strict=True)]
        self.written()

    def _checked(self, first: ArrayLike, second: ArrayLike, channels: int | None = None) -> tuple[Array, Array]:
        """Return copies of two vectors of equal lengths."""
        vector = frozen_vector(self.names[0], first, channels)
        return vector, frozen_vector(self.names[1], second, len(vector))

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.number_of_feature_channels} channels>"


class MPSCNNNormalizationGammaAndBetaState(NormalizationPairState):
    """Scale and shift of a normalization: ``gamma`` and ``beta``, (C,) each."""

    names = ("gamma", "beta")

    def __init__(self, gamma: ArrayLike, beta: ArrayLike) -> None:
        super().__init__(gamma, beta)

    gamma: Synchronized[Array] = Synchronized(
        "_vectors",
        "The scale, read-only; ``NotSynchronizedError`` if a kernel has written it since the last synchronization.",
        itemgetter(0),
    )
    beta: Synchronized[Array] = Synchronized(
        "_vectors", "The shift, read-only; errors as for ``gamma``.", itemgetter(1)
    )


class MPSCNNNormalizationMeanAndVarianceState(NormalizationPairState):
    """Statistics: ``mean`` and ``variance``, (C,) each; a negative variance is refused [design batch-errors]."""

    names = ("mean", "variance")

    def __init__(self, mean: ArrayLike, variance: ArrayLike) -> None:
        super().__init__(mean, variance)

    mean: Synchronized[Array] = Synchronized(
        "_vectors",
        "The mean, read-only; ``NotSynchronizedError`` if a kernel has written it since the last synchronization.",
        itemgetter(0),
    )
    variance: Synchronized[Array] = Synchronized(
        "_vectors", "The variance, read-only; errors as for ``mean``.", itemgetter(1)
    )

    def _checked(self, first: ArrayLike, second: ArrayLike, channels: int | None = None) -> tuple[Array, Array]:
        mean, variance = super()._checked(first, second, channels)
        return mean, not_negative("variance", variance)


# --- protocols and loading -------------------------------------------------------------------------------------------


@runtime_checkable
class MPSCNNInstanceNormalizationDataSource(Protocol):
    """The members of a data source of instance normalization.

    Optional members are ``epsilon()``, ``load()`` and ``purge()``, and for training
    ``update_gamma_and_beta(state, command_buffer=None)``, which returns a pair state to reload, or ``None`` for no
    change, and its CPU form ``update_gamma_and_beta_cpu(state)``, which returns whether the vectors have changed.
    ``state`` has the gradients of each image, which an update sums.
    """

    @property
    def number_of_feature_channels(self) -> int:
        """C: the number of channels of every image."""

    def gamma(self) -> ArrayLike | None:
        """Return the scale (C,), or ``None`` for 1 [choice batch-gamma]."""

    def beta(self) -> ArrayLike | None:
        """Return the shift (C,), or ``None`` for 0 [choice batch-gamma]."""

    def label(self) -> str | None:
        """Return a name for messages, or ``None``."""


@runtime_checkable
class MPSCNNGroupNormalizationDataSource(MPSCNNInstanceNormalizationDataSource, Protocol):
    """The members of a data source of group normalization.

    ``load`` and ``purge``, which Apple's protocol does not have, are optional [choice data-source-calls].
    """

    number_of_groups: int
    """The number of groups of channels that are normalized separately; it divides the number of channels."""


@runtime_checkable
class MPSCNNBatchNormalizationDataSource(MPSCNNInstanceNormalizationDataSource, Protocol):
    """The members of a data source of batch normalization.

    ``load`` is called before anything is read, ``purge`` after each ``load``. Optional members are ``epsilon()``, and
    for training ``update_gamma_and_beta(state, command_buffer=None)`` and ``update_mean_and_variance(state,
    command_buffer=None)``, which return a pair state to reload, or ``None`` for no change, and their CPU forms
    ``update_gamma_and_beta_cpu(state)`` and ``update_mean_and_variance_cpu(state)``, which return whether the vectors
    have changed.
    """

    def mean(self) -> ArrayLike | None:
        """Return the initial mean (C,), or ``None`` together with ``variance``."""

    def variance(self) -> ArrayLike | None:
        """Return the initial variance (C,), >= 0, or ``None`` together with ``mean``."""

    def load(self) -> bool:
        """Make the data ready; return whether that succeeded."""

    def purge(self) -> None:
        """Release the data until the next ``load``."""


MEMBERS: dict[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Batch": (("gamma", "beta", "mean", "variance", "load", "purge", "label"), ("number_of_feature_channels",)),
    "Instance": (("gamma", "beta", "label"), ("number_of_feature_channels",)),
    "Group": (("gamma", "beta", "label"), ("number_of_feature_channels", "number_of_groups")),
}
"""The methods and the properties that a data source must have."""

VECTORS = "gamma", "beta", "mean", "variance"


@dataclass(frozen=True, eq=False)
class LoadedParameters:
    """The parameters of a kernel: read-only copies (C,), ``None`` where the data source has none."""

    number_of_feature_channels: int
    number_of_groups: int
    gamma: Array | None = None
    beta: Array | None = None
    mean: Array | None = None
    variance: Array | None = None
    epsilon: float = FLT_MIN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoadedParameters) and self._numbers() == other._numbers()

    __hash__ = None  # type: ignore[assignment]

    def _numbers(self) -> list[object]:
        return [None if value is None else np.asarray(value).tolist() for value in vars(self).values()]


def load(source: Any, kind: Kind) -> LoadedParameters:
    """Return copies of the parameters of a data source, read between ``load`` and ``purge`` if it has these methods.

    Without groups each channel is a group. Raises ``TypeError`` for a missing member and for other types than
    numbers, ``OrderError`` if ``load`` does not return true, ``ValueError`` (or ``ShapeError``) for another length, a
    negative variance or epsilon, one of mean and variance without the other, and groups that do not divide the
    channels.
    """
    methods, values = MEMBERS[kind]
    missing = [name for name in methods if not callable(getattr(source, name, None))]
    if not hasattr(type(source), "__getattr__"):  # properties are not read before load()
        missing += [name for name in values if inspect.getattr_static(source, name, None) is None]
    if missing:
        raise TypeError(
            f"data_source is of type {type(source).__name__}, which lacks {', '.join(missing)}; use a "
            f"{kind}NormalizationDataSource, or a class with all members of MPSCNN{kind}NormalizationDataSource"
        )
    try:
        ready = source.load() if callable(getattr(source, "load", None)) else True
        if not ready:
            raise OrderError(f"data_source.load() returned {shown(ready)}; it must return True once the data is ready")
        channels = integer("data_source.number_of_feature_channels", source.number_of_feature_channels, low=1)
        groups = channels
        if kind == "Group":
            groups = _divisor("data_source.number_of_groups", source.number_of_groups, channels)
        vectors = {name: getattr(source, name)() for name in VECTORS if name in methods}
        for name, value in vectors.items():
            if value is not None:
                vectors[name] = frozen_vector(f"data_source.{name}()", value, channels)
        absent = [name for name in ("mean", "variance") if vectors.get(name) is None]
        if len(absent) == 1:
            raise ValueError(
                f"data_source.{absent[0]}() returned None; mean and variance must both be given, or both be None"
            )
        if not absent:
            not_negative("data_source.variance()", vectors["variance"])
        epsilon = source.epsilon() if callable(getattr(source, "epsilon", None)) else FLT_MIN
        return LoadedParameters(channels, groups, **vectors, epsilon=real("data_source.epsilon()", epsilon, low=0))
    finally:
        if callable(getattr(source, "purge", None)):
            source.purge()


def _divisor(name: str, value: object, channels: int) -> int:
    groups = integer(name, value, low=1)
    if channels % groups:
        raise ValueError(f"{name} is {groups}; it must divide number_of_feature_channels, {channels}")
    return groups


# --- data sources with arrays -----------------------------------------------------------------------------------------


class NormalizationBuffers(NamedTuple):
    """The vectors of a state for a kernel that is encoded now: read-only, (C,), ``None`` for a missing one.

    The gradients of instance and group normalization are rows (N, C) for a batch, (C,) for one image.
    """

    gamma: Array
    """The current scale of the kernel."""
    beta: Array
    gradient_for_gamma: Array | None
    """``None`` before the gradient kernel has been encoded."""
    gradient_for_beta: Array | None
    mean: Array | None = None
    variance: Array | None = None


class _State(Protocol):
    """The members of a state of a normalization that its data source reads."""

    def device_read(self, command_buffer: MPSCommandBuffer | None = None) -> NormalizationBuffers: ...

    def check_readable(self, name: str) -> None: ...

    @property
    def gradient_for_gamma(self) -> Array | None: ...


class _Optimizer(Protocol):
    """The members of an optimizer, :class:`mpsref.mps.MPSNNOptimizer`, that a data source uses."""

    moments: ClassVar[tuple[str, ...]]

    def encode(self, *, command_buffer: MPSCommandBuffer | None = None, **operands: Any) -> Any: ...

    def copy(self) -> Self: ...


class NormalizationArrays(SecureCoding):
    """A data source with arrays of gamma and beta, and an optional optimizer; not a class of Apple's.

    ``gamma_array`` and ``beta_array`` are the vectors, float32, or ``None`` for 1 and 0; a kernel reads them when it is
    made and when it reloads.
    """

    def __init__(
        self,
        channels: int,
        gamma: ArrayLike | None,
        beta: ArrayLike | None,
        epsilon: float,
        optimizer: _Optimizer | None,
    ) -> None:
        self._channels = integer("number_of_feature_channels", channels, low=1)
        self._epsilon = real("epsilon", epsilon, low=0)
        self.gamma_array, self.beta_array = self._given("gamma", gamma), self._given("beta", beta)
        if optimizer is not None and not (
            callable(getattr(optimizer, "encode", None)) and hasattr(optimizer, "moments")
        ):
            raise TypeError(
                f"optimizer is of type {type(optimizer).__name__}; it must be an optimizer with encode and moments, "
                "such as an MPSNNOptimizerStochasticGradientDescent, or None"
            )
        self.optimizer = optimizer

    def _given(self, name: str, value: ArrayLike | None) -> Array | None:
        return None if value is None else frozen_vector(name, value, self._channels)

    number_of_feature_channels: Alias[int] = Alias("_channels", "C.")

    def gamma(self) -> Array | None:
        """Return the scale, or ``None`` for 1."""
        return self.gamma_array

    def beta(self) -> Array | None:
        """Return the shift, or ``None`` for 0."""
        return self.beta_array

    def epsilon(self) -> float:
        """Return the summand of a variance."""
        return self._epsilon

    def load(self) -> bool:
        """Return ``True``: there is nothing to load."""
        return True

    def purge(self) -> None:
        """Do nothing."""

    def label(self) -> str | None:
        """Return ``None``: it has no name."""
        return None

    def saved_values(self) -> dict[str, object]:
        """Return the values to save: numbers, vectors as tuples, and the optimizer without its moments."""
        super().saved_values()  # raises for a subclass that is not registered
        return self._contents()

    def _contents(self) -> dict[str, object]:
        found: dict[str, object] = {"epsilon": self._epsilon}
        for name in self._coding.arguments:
            if name in VECTORS:
                vector = getattr(self, f"{name}_array")
                found[name] = None if vector is None else tuple(vector.tolist())
            elif name not in found:
                found[name] = getattr(self, name)
        return found

    def __eq__(self, other: object) -> bool:
        """Whether both deliver the same."""
        return self._contents() == other._contents() if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # vectors change

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._channels} channels, epsilon={self._epsilon!r}>"


@hinting
@secure_coding(version=1, arguments=("number_of_feature_channels", "gamma", "beta", "epsilon", "optimizer"))
@describe_parameters
class InstanceNormalizationDataSource(NormalizationArrays):
    """A data source of instance normalization with arrays, and an optional optimizer.

    ``gamma_array`` and ``beta_array`` are the vectors, float32, or ``None`` for 1 and 0; a kernel reads them when it is
    made and when it reloads. An update is one step of ``optimizer`` on both, with their gradients summed over the
    images; the data source keeps the moments.
    """

    def __init__(
        self,
        number_of_feature_channels: int,
        gamma: ArrayLike | None = None,
        beta: ArrayLike | None = None,
        epsilon: float = FLT_MIN,
        optimizer: _Optimizer | None = None,
    ) -> None:
        super().__init__(number_of_feature_channels, gamma, beta, epsilon, optimizer)
        self._moments: dict[str, Array] = {}

    def update_gamma_and_beta(
        self, state: Iterable[_State], command_buffer: MPSCommandBuffer | None = None
    ) -> MPSCNNNormalizationGammaAndBetaState | None:
        """Make a step of the optimizer; return its result for a reload, or ``None`` without an optimizer.

        ``state`` is the gradient state of a batch, or a list of the states of its images. Raises ``OrderError`` if the
        gradient kernel has not been encoded.
        """
        check_not_a_command_buffer("state", state, "update_gamma_and_beta(state, command_buffer=buffer)")
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

    def update_gamma_and_beta_cpu(self, state: Iterable[_State]) -> bool:
        """Make a step with a synchronized state; return whether there is an optimizer."""
        if self.optimizer is not None:
            for image_state in state:
                _ = image_state.gradient_for_gamma  # raises where the host may not read it
        return self.update_gamma_and_beta(state) is not None

    def _total(self, states: Iterable[_State], command_buffer: MPSCommandBuffer | None) -> Array:
        """Return the gradients for gamma and beta, one after the other, summed over the images."""
        total = np.zeros(2 * self._channels)
        for state in states:
            buffers = state.device_read(command_buffer)
            if buffers.gradient_for_gamma is None or buffers.gradient_for_beta is None:
                raise OrderError("state has no gradients yet; encode the gradient kernel with it before the update")
            gradients = buffers.gradient_for_gamma, buffers.gradient_for_beta
            total += np.concatenate(
                [on_host(rows).reshape(-1, self._channels).sum(0, np.float64) for rows in gradients]
            )
        return total.astype(np.float32)


@secure_coding(
    version=1, arguments=("number_of_feature_channels", "number_of_groups", "gamma", "beta", "epsilon", "optimizer")
)
@hinting
@describe_parameters
class GroupNormalizationDataSource(InstanceNormalizationDataSource):
    """A data source of group normalization with arrays, and an optional optimizer.

    ``number_of_groups`` can be set; a kernel reads it when it reloads. Otherwise as
    :class:`InstanceNormalizationDataSource`.
    """

    def __init__(
        self,
        number_of_feature_channels: int,
        number_of_groups: int = 1,
        gamma: ArrayLike | None = None,
        beta: ArrayLike | None = None,
        epsilon: float = FLT_MIN,
        optimizer: _Optimizer | None = None,
    ) -> None:
        super().__init__(number_of_feature_channels, gamma, beta, epsilon, optimizer)
        self.number_of_groups = number_of_groups

    @property
    def number_of_groups(self) -> int:
        """The number of groups of channels; it divides the number of channels."""
        return self._groups

    @number_of_groups.setter
    def number_of_groups(self, value: int) -> None:
        self._groups = _divisor("number_of_groups", value, self._channels)


def _checked_state(state: Any) -> Any:
    check_not_a_command_buffer("state", state, "update_mean_and_variance(state, command_buffer=buffer)")
    if not (hasattr(state, "device_read") and hasattr(state, "check_readable")):
        raise TypeError(
            f"state is of type {type(state).__name__}; it must be the state of a batch normalization, an "
            "MPSCNNBatchNormalizationState"
        )
    return state


@secure_coding(
    version=1,
    arguments=("number_of_feature_channels", "gamma", "beta", "mean", "variance", "epsilon", "momentum", "optimizer"),
)
@hinting
@describe_parameters
class BatchNormalizationDataSource(NormalizationArrays):
    """A data source of batch normalization with arrays and running statistics, and an optional optimizer.

    An update of mean and (biased) variance is ``running = momentum * running + (1 - momentum) * batch value``, from 0
    and 1 where there are none yet. An update of gamma and beta is a step of ``optimizer``, if there is one; the data
    source keeps the moments. The vectors are ``gamma_array``, ``beta_array``, ``mean_array`` and ``variance_array``,
    float32; a kernel reads them when it is made and when it reloads.
    """

    def __init__(
        self,
        number_of_feature_channels: int,
        gamma: ArrayLike | None = None,
        beta: ArrayLike | None = None,
        mean: ArrayLike | None = None,
        variance: ArrayLike | None = None,
        epsilon: float = FLT_MIN,
        momentum: float = 0.9,
        optimizer: _Optimizer | None = None,
    ) -> None:
        super().__init__(number_of_feature_channels, gamma, beta, epsilon, optimizer)
        self._momentum = number("momentum", momentum, 0, 1)
        if (mean is None) != (variance is None):
            raise ValueError("one of mean and variance is None; give both, or neither")
        self.mean_array, self.variance_array = self._given("mean", mean), self._given("variance", variance)
        if self.variance_array is not None:
            not_negative("variance", self.variance_array)
        self._moments: dict[str, list[Array]] = {}

    momentum: Alias[float] = Alias(
        "_momentum", "The fraction of the running statistics that an update keeps, in [0, 1]."
    )

    def mean(self) -> Array | None:
        """Return ``mean_array``."""
        return self.mean_array

    def variance(self) -> Array | None:
        """Return ``variance_array``."""
        return self.variance_array

    def update_mean_and_variance(
        self, state: _State, command_buffer: MPSCommandBuffer | None = None
    ) -> MPSCNNNormalizationMeanAndVarianceState:
        """Move the running statistics towards those of the batch; return them for a reload.

        Raises ``OrderError`` for a state without statistics.
        """
        self.mean_array, self.variance_array = self.moved(*_checked_state(state).device_read(command_buffer)[-2:])
        return MPSCNNNormalizationMeanAndVarianceState(self.mean_array, self.variance_array)

    def update_mean_and_variance_cpu(self, state: _State) -> bool:
        """Move the running statistics towards those of a synchronized state; return ``True``."""
        checked = _checked_state(state)
        self.mean_array, self.variance_array = self.moved(checked.mean, checked.variance)
        return True

    def moved(self, mean: Array | None, variance: Array | None) -> tuple[Array, Array]:
        """Return what the running statistics are after a batch with this mean and variance, without changing them.

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
            new = as_vector("mean" if old is running[0] else "variance", new, old.shape, old)
            if is_on_device(new):
                of_batch: Any = new
                moved.append(read_only(of_batch.mixed(placed_like(old, new), 1 - kept, kept)))
                continue
            both = np.multiply(kept, old, dtype=np.float64) + np.multiply(1 - kept, new, dtype=np.float64)
            moved.append(read_only(both.astype(np.result_type(old, new))))
        return moved[0], moved[1]

    def update_gamma_and_beta(
        self, state: _State, command_buffer: MPSCommandBuffer | None = None
    ) -> MPSCNNNormalizationGammaAndBetaState | None:
        """Make a step of the optimizer; return its result for a reload, or ``None`` without an optimizer."""
        check_not_a_command_buffer("state", state, "update_gamma_and_beta(state, command_buffer=buffer)")
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

    def update_gamma_and_beta_cpu(self, state: _State) -> bool:
        """Make a step with a synchronized state; return whether there is an optimizer."""
        if self.optimizer is not None:
            _checked_state(state).check_readable("gradient_for_gamma")
        return self.update_gamma_and_beta(state) is not None

    def copy(self) -> Self:
        """Return an equal data source, with an optimizer and moments of its own; the read-only vectors are shared."""
        twin = copy.copy(self)
        twin.optimizer = None if self.optimizer is None else self.optimizer.copy()
        twin._moments = {name: [vector.copy() for vector in pair] for name, pair in self._moments.items()}
        return twin
