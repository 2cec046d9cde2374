"""The forms in which optimizers are encoded: what they read, and where the results go.

Vectors or matrices; the states of a convolution; the states of a batch normalization. Each form gives one or two
*parts*, the values of weights and biases or of gamma and beta, with a gradient and moments each, and a way to hand over
all results at once, so that an error leaves everything as it was.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array, as_array
from mpsref.errors import OrderError, ShapeError
from mpsref.mps.batch_normalization_state import MPSCNNBatchNormalizationState
from mpsref.mps.convolution_state import MPSCNNConvolutionGradientState
from mpsref.mps.convolution_weights import MPSCNNConvolutionWeightsAndBiasesState
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.normalization_states import MPSCNNNormalizationGammaAndBetaState

__all__ = ["Form", "Part", "form_of", "joined_parts"]

LARGEST_JOINED = 1 << 16
"""Up to so many values two parts are put together for one step; with more, the copies would take longer."""


class Part(NamedTuple):
    """What one step works on: flat arrays of one length."""

    gradient: Array
    value: Array
    moments: tuple[Array | None, ...]
    """The arrays that the step updates; ``None`` for one that does not exist."""


def joined_parts(parts: Sequence[Part]) -> Part | None:
    """Return two small parts as one, ``None`` for others and for those that have no equal dtypes."""
    if len(parts) != 2 or parts[0].value.size + parts[1].value.size > LARGEST_JOINED:
        return None
    kinds = []
    for gradient, value, moments in parts:
        if gradient.shape != value.shape:
            return None
        kinds.append([gradient.dtype, value.dtype, *[moment is None for moment in moments]])
    if kinds[0] != kinds[1]:
        return None
    first, second = parts
    pairs = zip(first.moments, second.moments, strict=True)
    return Part(
        np.concatenate((first.gradient, second.gradient)),
        np.concatenate((first.value, second.value)),
        tuple([None if one is None or other is None else np.concatenate((one, other)) for one, other in pairs]),
    )


class Form(abc.ABC):
    """One way to call an optimizer."""

    parts: list[Part]

    @abc.abstractmethod
    def hand_over(self, values: Sequence[Array]) -> Any:
        """Write the new values of all parts and return the result."""


def form_of(
    moments: Sequence[str], optional: Sequence[str], given: Mapping[str, Any], command_buffer: MPSCommandBuffer | None
) -> Form:
    """Return the form that the keywords ``given`` make up.

    ``moments`` are the names of the moments without their ending: "input_momentum" stands for
    ``input_momentum_vector``, for ``input_momentum_matrix`` with matrices and ``input_momentum_vectors`` with states.
    Those that are ``optional`` may be missing. Raises ``TypeError`` for keywords that make up no form.
    """
    kind, names = _form_class(tuple(moments), tuple(optional), tuple(given))
    form: Form = kind({key: given.get(key) for key in (*kind.required, kind.result)}, names, given, command_buffer)
    return form


@functools.lru_cache(maxsize=64)
def _form_class(moments: tuple[str, ...], optional: tuple[str, ...], given: tuple[str, ...]) -> tuple[Any, list[str]]:
    """Return the class of the form, and the names of the moments in it."""
    for form in FORMS:
        names = [moment + form.ending for moment in moments]
        required = {*form.required, *(moment + form.ending for moment in moments if moment not in optional)}
        if required <= set(given) <= {*form.required, form.result, *names}:
            return form, names
    lines = (
        ", ".join([*form.required, *(moment + form.ending for moment in moments), f"[{form.result}]"]) for form in FORMS
    )
    raise TypeError(f"the keywords {', '.join(given) or '(none)'} are no way to encode; one is: {'; or '.join(lines)}")


def _moment_array(name: str, value: Any, size: int, dtype: np.dtype[Any]) -> Array:
    """Return a moment, which is updated in place."""
    if not isinstance(value, np.ndarray):
        raise TypeError(
            f"{name} is of type {type(value).__name__}; it is updated in place, so it must be a NumPy array"
        )
    if not value.flags.writeable:
        raise ValueError(f"{name} is read-only; it is updated in place: pass an array that may be written")
    if value.dtype != dtype:
        raise TypeError(f"{name} has dtype {value.dtype}; it must have that of the values, {dtype}")
    if value.size != size:
        raise ShapeError(f"{name} has {value.size} elements; it must have as many as there are values, {size}")
    return value


class _Arrays(Form):
    """Vectors: gradient, values and result are arrays of one shape."""

    required: tuple[str, ...] = ("input_gradient_vector", "input_values_vector")
    result = "result_values_vector"
    ending = "_vector"
    rank = 1

    def __init__(
        self, given: Mapping[str, Any], names: Sequence[str], all_given: Mapping[str, Any], _: MPSCommandBuffer | None
    ) -> None:
        gradient, value = (self._array(name, given[name]) for name in self.required)
        if gradient.shape != value.shape:
            raise ShapeError(
                f"{self.required[0]} has shape {gradient.shape}; it must have that of the values, {value.shape}"
            )
        moments = {
            name: None
            if all_given.get(name) is None
            else _moment_array(name, self._array(name, all_given[name]), value.size, value.dtype)
            for name in names
        }
        others: dict[str, Array | None] = {self.required[0]: gradient, **moments}
        target = given[self.result]
        self._target = None if target is None else self._checked_target(target, value, others)
        _check_apart(others | {self.required[1]: value}, moments)
        self.parts = [Part(gradient, value, tuple(moments.values()))]

    def _array(self, name: str, value: Any) -> Array:
        array = value if isinstance(value, np.ndarray) else as_array(name, value)
        if array.dtype not in (np.float32, np.float64):
            raise TypeError(f"{name} has dtype {array.dtype}; it must be float32")
        if array.ndim != self.rank:
            raise ShapeError(f"{name} has shape {array.shape}; it must have {self.rank} axis/axes")
        return array

    def _checked_target(self, target: Any, value: Array, others: Mapping[str, Array | None]) -> Array:
        found = _moment_array(self.result, target, value.size, value.dtype)
        if found.shape != value.shape:
            raise ShapeError(f"{self.result} has shape {found.shape}; it must have that of the values, {value.shape}")
        for name, other in others.items():
            if other is not None and np.shares_memory(found, other):
                raise ValueError(
                    f"{self.result} shares memory with {name}; it may be the array of the values, or another one"
                )
        return found

    def hand_over(self, values: Sequence[Array]) -> Any:
        made = values[0].reshape(self.parts[0].value.shape)
        if self._target is None:
            return made
        self._target[...] = made
        return self._target


class _Matrices(_Arrays):
    """Matrices: the same with two axes."""

    required = ("input_gradient_matrix", "input_values_matrix")
    result = "result_values_matrix"
    ending = "_matrix"
    rank = 2


class _States(Form):
    """States: lists of moments, whose first entry belongs to the first part and whose second to the second."""

    required: tuple[str, ...]
    result = "result_state"
    ending = "_vectors"

    def _set_parts(
        self, gradients: Sequence[Array], values: Sequence[Array | None], names: Sequence[str], given: Mapping[str, Any]
    ) -> None:
        """Make a part of each pair of values and gradients that is to be updated."""
        lists = {name: given.get(name) for name in names}
        count = 1 if values[1] is None else 2
        lengths = set()
        for name, vectors in lists.items():
            if vectors is None:
                continue
            if not isinstance(vectors, (list, tuple)):
                raise TypeError(f"{name} is of type {type(vectors).__name__}; it must be a list of one or two vectors")
            if len(vectors) not in (1, 2):
                raise ValueError(f"{name} has {len(vectors)} vectors; it must have one or two")
            lengths.add(len(vectors))
        if len(lengths) > 1:
            raise ValueError(f"{', '.join(lists)} have different lengths; each must have one vector, or each two")
        updated = min(count, *lengths) if lengths else count
        self._kept = values[updated:]
        self.parts = []
        for k in range(updated):
            value = values[k]
            assert value is not None
            moments = []
            for name, vectors in lists.items():
                entry = None if vectors is None else vectors[k]
                if entry is not None:
                    entry = _moment_array(f"{name}[{k}]", entry, value.size, value.dtype)
                    if entry.ndim != 1:
                        raise ShapeError(f"{name}[{k}] has shape {entry.shape}; it must have one axis")
                moments.append(entry)
            self.parts.append(Part(gradients[k].ravel(), value.ravel(), tuple(moments)))
        arrays = {f"{name}[{k}]": part.moments[i] for k, part in enumerate(self.parts) for i, name in enumerate(names)}
        _check_apart(arrays, arrays)


class _Convolution(_States):
    """The states of a convolution."""

    required = ("convolution_gradient_state", "convolution_source_state")

    def __init__(
        self,
        given: Mapping[str, Any],
        names: Sequence[str],
        all_given: Mapping[str, Any],
        command_buffer: MPSCommandBuffer | None,
    ) -> None:
        gradient_name, source_name = self.required
        gradient = _of_kind(gradient_name, given[gradient_name], MPSCNNConvolutionGradientState)
        source = _of_kind(source_name, given[source_name], MPSCNNConvolutionWeightsAndBiasesState)
        dw, db = gradient.device_read(command_buffer)
        weights, biases = source.device_read(command_buffer)
        if dw.size != weights.size:
            raise ShapeError(f"{gradient_name} has {dw.size} weights and {source_name} {weights.size}")
        self._set_parts((dw, db), (weights, biases), names, all_given)
        self._shape, self._command_buffer = weights.shape, command_buffer
        target = given[self.result]
        self._target = None if target is None else _of_kind(self.result, target, MPSCNNConvolutionWeightsAndBiasesState)

    def hand_over(self, values: Sequence[Array]) -> Any:
        # Biases that were not updated are copied, so that a reload from the result is safe [choice].
        kept: Sequence[Array | None] = [*values, *self._kept]
        weights, biases = kept
        if self._target is None:
            assert weights is not None
            return MPSCNNConvolutionWeightsAndBiasesState(weights.reshape(self._shape), biases)
        self._target.device_write(weights, biases, command_buffer=self._command_buffer)
        return self._target


class _BatchNormalization(_States):
    """The state of a batch normalization: its gradients, and the gamma and beta that its kernel has."""

    required: tuple[str, ...] = ("batch_normalization_state",)

    def __init__(
        self,
        given: Mapping[str, Any],
        names: Sequence[str],
        all_given: Mapping[str, Any],
        command_buffer: MPSCommandBuffer | None,
    ) -> None:
        states = [_of_kind(name, given[name], MPSCNNBatchNormalizationState) for name in self.required]
        gradient = states[0].device_read(command_buffer)
        source = gradient if states[-1] is states[0] else states[-1].device_read(command_buffer)
        if gradient.gradient_for_gamma is None or gradient.gradient_for_beta is None:
            raise OrderError(
                f"{self.required[0]} holds no gradients yet; encode MPSCNNBatchNormalizationStatisticsGradient first"
            )
        if gradient.gradient_for_gamma.size != source.gamma.size:
            raise ShapeError(
                f"{self.required[0]} has gradients for {gradient.gradient_for_gamma.size} channels and "
                f"{self.required[-1]} {source.gamma.size}"
            )
        gradients = gradient.gradient_for_gamma, gradient.gradient_for_beta
        self._set_parts(gradients, (source.gamma, source.beta), names, all_given)
        self._command_buffer = command_buffer
        target = given[self.result]
        self._target = None if target is None else _of_kind(self.result, target, MPSCNNNormalizationGammaAndBetaState)

    def hand_over(self, values: Sequence[Array]) -> Any:
        kept: Sequence[Array | None] = [*values, *self._kept]
        gamma, beta = kept
        if self._target is None:
            target = MPSCNNNormalizationGammaAndBetaState(gamma, beta)
            target.written()
            return target
        self._target.device_write(gamma, beta, command_buffer=self._command_buffer)
        return self._target


class _TwoBatchNormalizations(_BatchNormalization):
    """The same with one state for the gradients and one for gamma and beta."""

    required = ("batch_normalization_gradient_state", "batch_normalization_source_state")


FORMS = _Arrays, _Matrices, _Convolution, _BatchNormalization, _TwoBatchNormalizations


def _of_kind(name: str, value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be an {kind.__name__}")
    return value


def _check_apart(arrays: Mapping[str, Array | None], written: Mapping[str, Array | None]) -> None:
    """Raise ``ValueError`` where an array that is updated in place shares memory with another one."""
    present = [array for array in arrays.values() if array is not None]
    if len(set(map(id, present))) == len(present) and all(array.base is None for array in present):
        return  # each has memory of its own
    others, met = arrays.items(), set()
    for name, moment in written.items():
        met |= {name}  # those that were compared with everything
        for other, array in others:
            if other not in met and moment is not None and array is not None and np.shares_memory(moment, array):
                raise ValueError(f"{name} shares memory with {other}; it is updated in place: pass an array of its own")
