"""Optimizers with Apple's names: they update arrays, or the states of convolutions and batch normalizations.

>>> import numpy as np
>>> sgd = MPSNNOptimizerStochasticGradientDescent(0.1, momentum_scale=0.9)
>>> values, momentum = np.float32([1, -2]), np.zeros(2, np.float32)
>>> gradient = np.float32([0.5, 4])
>>> sgd.encode(input_gradient_vector=gradient, input_values_vector=values, input_momentum_vector=momentum).round(4)
array([ 0.95, -2.4 ], dtype=float32)
>>> momentum.round(4)
array([0.05, 0.4 ], dtype=float32)

Source: ``MPSNNOptimizers.h`` [doc].
"""

from __future__ import annotations

import abc
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from types import FunctionType
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar, cast

import numpy as np

from mpsref.arguments.arrays import (
    Array,
    DType,
    as_array,
    check_apart,
    check_elements_apart,
    concatenated,
    is_array,
    is_writable,
)
from mpsref.arguments.parameters import flag, number, real
from mpsref.errors import OrderError, ShapeError
from mpsref.kernels.optimizers import Adam, RMSProp, StochasticGradientDescent
from mpsref.mps.batch_normalization import MPSCNNBatchNormalizationState
from mpsref.mps.convolution_data_source import MPSCNNConvolutionWeightsAndBiasesState, immutable
from mpsref.mps.convolution_kernel import MPSCNNConvolutionGradientState
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable, check_not_a_command_buffer
from mpsref.mps.core.kernel import MPSKernel, saved
from mpsref.mps.core.properties import (
    Alias,
    Initializer,
    Property,
    at_least,
    describe_parameters,
    hinting,
    initialize,
    instance_of,
    properties_of,
    set_read_only,
)
from mpsref.mps.core.serialization import Descriptor, secure_coding
from mpsref.mps.core.state import MPSState
from mpsref.mps.core.types import Enumeration, member
from mpsref.mps.normalization_data_source import MPSCNNNormalizationGammaAndBetaState
from mpsref.registry import Backend

T = TypeVar("T")


# --- the descriptor ---------------------------------------------------------------------------------------------------


class MPSNNRegularizationType(Enumeration):
    """Regularization terms. Source: ``MPSNNOptimizers.h`` [doc]."""

    NONE = 0
    L1 = 1
    L2 = 2


COMMON = (
    "gradient_rescale",
    "apply_gradient_clipping",
    "gradient_clip_max",
    "gradient_clip_min",
    "regularization_type",
    "regularization_scale",
)
NUMBERS = ("learning_rate", *(name for name in COMMON if name != "regularization_type"))


@secure_coding(version=1, arguments=("learning_rate", *COMMON))
@describe_parameters
class MPSNNOptimizerDescriptor(Descriptor):
    """The parameters of all optimizers, which can be set. An optimizer copies the descriptor when it is made.

    Numbers are finite and of any sign; the clip bounds may be infinite. A regularization type may be in the place of
    ``apply_gradient_clipping``, then its scale is next.

    Raises
    ------
    ValueError
        If ``gradient_clip_min > gradient_clip_max``.
    """

    learning_rate = Property(number, 1e-3, "The factor of a step.")
    gradient_rescale = Property(number, 1.0, "The factor of a gradient, after clipping.")
    apply_gradient_clipping = Property(flag, False, "Whether gradients are clipped.")
    gradient_clip_max = Property(real, math.inf, "The largest gradient.")
    gradient_clip_min = Property(real, -math.inf, "The smallest gradient.")
    regularization_type = Property(
        partial(member, kind=MPSNNRegularizationType), MPSNNRegularizationType.NONE, "Regularization: none, L1 or L2."
    )
    regularization_scale = Property(number, 0.0, "The factor of its gradient.")

    def __init__(
        self,
        learning_rate: float = 1e-3,
        gradient_rescale: float = 1.0,
        apply_gradient_clipping: bool | MPSNNRegularizationType = False,
        gradient_clip_max: float = math.inf,
        gradient_clip_min: float = -math.inf,
        regularization_type: MPSNNRegularizationType | int | str = MPSNNRegularizationType.NONE,
        regularization_scale: float = 0.0,
    ) -> None:
        if isinstance(apply_gradient_clipping, MPSNNRegularizationType):
            regularization_type, regularization_scale = apply_gradient_clipping, gradient_clip_max
            apply_gradient_clipping, gradient_clip_max = False, math.inf
        clipping = apply_gradient_clipping, gradient_clip_max, gradient_clip_min
        given = learning_rate, gradient_rescale, *clipping, regularization_type, regularization_scale
        initialize(self, dict(zip(properties_of(type(self)), given, strict=True)))
        self.check()

    @classmethod
    def optimizer_descriptor_with_learning_rate_gradient_rescale_regularization_type_regularization_scale(
        cls,
        learning_rate: float,
        gradient_rescale: float,
        regularization_type: MPSNNRegularizationType | int | str,
        regularization_scale: float,
    ) -> Self:
        """Return a new descriptor without clipping."""
        return cls(
            learning_rate,
            gradient_rescale,
            regularization_type=regularization_type,
            regularization_scale=regularization_scale,
        )

    optimizer_descriptor_with_learning_rate_gradient_rescale_apply_gradient_clipping_gradient_clip_max_gradient_clip_min_regularization_type_regularization_scale = Initializer(  # noqa: E501
        __init__
    )

    def check(self) -> None:
        """Raise ``ValueError`` unless gradient_clip_min <= gradient_clip_max."""
        if self.gradient_clip_min > self.gradient_clip_max:
            raise ValueError(
                f"gradient_clip_min is {self.gradient_clip_min} and gradient_clip_max is {self.gradient_clip_max}; "
                "the former must be <= the latter"
            )


# --- the forms of encode: arrays, and states of convolutions and batch normalizations ---------------------------------


LARGEST_JOINED = 1 << 16
"""The most values for which two updates are joined into one step; for more, the copies take longer than a step."""


class Update(NamedTuple):
    """The arrays of one step, of equal length."""

    gradient: Array
    value: Array
    moments: tuple[Array | None, ...]
    """Updated by the step; ``None`` for a moment that does not exist."""


def _joined(updates: Sequence[Update]) -> Update | None:
    """Return two small updates of equal dtypes as one update; ``None`` for other updates."""
    if len(updates) != 2 or updates[0].value.size + updates[1].value.size > LARGEST_JOINED:
        return None
    first, second = updates
    moments: list[Array | None] = []
    for update in updates:
        if update.gradient.shape != update.value.shape:
            return None
    if (first.gradient.dtype, first.value.dtype) != (second.gradient.dtype, second.value.dtype):
        return None
    for m, n in zip(first.moments, second.moments, strict=True):
        if (m is None) != (n is None):
            return None
        moments.append(None if m is None or n is None else concatenated((m, n)))
    return Update(
        concatenated((first.gradient, second.gradient)), concatenated((first.value, second.value)), tuple(moments)
    )


Operands: TypeAlias = Mapping[str, object]
"""Arrays, lists of arrays and states, by name."""


class Form(abc.ABC):
    """One way to call an optimizer."""

    required: ClassVar[tuple[str, ...]]
    """The operands that are given, other than moments."""
    result: ClassVar[str]
    """The name of the result, which is optional."""
    ending: ClassVar[str]
    """The ending of the names of moments."""
    updates: list[Update]

    @abc.abstractmethod
    def __init__(self, given: Operands, names: Sequence[str], command_buffer: MPSCommandBuffer | None) -> None:
        """Check the operands, of which those with these ``names`` are moments."""

    @abc.abstractmethod
    def write(self, values: Sequence[Array]) -> Array | MPSState:
        """Write the new values of all updates and return the result."""


@functools.lru_cache(maxsize=64)
def _form_class(
    moments: tuple[str, ...], optional: tuple[str, ...], given: tuple[str, ...]
) -> tuple[type[Form], list[str]]:
    """Return the class of the form whose keywords are those that are ``given``, and the names of the moments in it.

    ``moments`` are names of moments without their ending: "input_momentum" is ``input_momentum_vector`` with vectors,
    ``input_momentum_matrix`` with matrices and ``input_momentum_vectors`` with states. The ``optional`` ones may be
    missing. Raises ``TypeError`` for keywords of no form.
    """
    for form in FORMS:
        names = [moment + form.ending for moment in moments]
        required = {*form.required, *(moment + form.ending for moment in moments if moment not in optional)}
        if required <= set(given) <= {*form.required, form.result, *names}:
            return form, names
    lines = (
        ", ".join([*form.required, *(moment + form.ending for moment in moments), f"[{form.result}]"]) for form in FORMS
    )
    raise TypeError(f"the keywords {', '.join(given) or '(none)'} are no way to encode; one is: {'; or '.join(lines)}")


def _moment_array(name: str, value: Any, size: int, dtype: DType) -> Array:
    """Return a moment, which is updated in place."""
    is_usual = type(value) is np.ndarray  # then its own attributes suffice
    if not is_usual and not is_array(value):
        raise TypeError(
            f"{name} is of type {type(value).__name__}; it is updated in place, so it must be a NumPy array"
        )
    if not (value.flags.writeable if is_usual else is_writable(value)):
        raise ValueError(f"{name} is read-only; it is updated in place: pass an array that may be written")
    if value.dtype != dtype:
        raise TypeError(f"{name} has dtype {value.dtype}; it must have that of the values, {dtype}")
    if value.size != size:
        raise ShapeError(f"{name} has {value.size} elements; it must have as many as there are values, {size}")
    if is_usual and value.flags.c_contiguous:
        return cast(Array, value)
    check_elements_apart(name, value)
    return as_array(name, value)


class _Arrays(Form):
    """Vectors: gradient, values and result are arrays of one shape."""

    required = "input_gradient_vector", "input_values_vector"
    result = "result_values_vector"
    ending = "_vector"
    rank: ClassVar[int] = 1

    def __init__(self, given: Operands, names: Sequence[str], command_buffer: MPSCommandBuffer | None) -> None:
        gradient_name, value_name = self.required
        gradient, value = self._array(gradient_name, given[gradient_name]), self._array(value_name, given[value_name])
        if gradient.shape != value.shape:
            raise ShapeError(
                f"{gradient_name} has shape {gradient.shape}; it must have that of the values, {value.shape}"
            )
        moments: dict[str, Array | None] = dict.fromkeys(names)
        for name in names:
            if given.get(name) is not None:
                moments[name] = _moment_array(name, self._array(name, given[name]), value.size, value.dtype)
        others: dict[str, Array | None] = {gradient_name: gradient, **moments}
        target = given.get(self.result)
        self._target = None if target is None else self._checked_target(target, value, others)
        _check_no_overlap(others | {value_name: value}, moments)
        self.updates = [Update(gradient, value, tuple(moments.values()))]

    def _array(self, name: str, value: object) -> Array:
        array: Array = value if type(value) is np.ndarray else as_array(name, value)
        if array.dtype not in (np.float32, np.float64):
            raise TypeError(f"{name} has dtype {array.dtype}; it must be float32")
        if array.ndim != self.rank:
            raise ShapeError(f"{name} has shape {array.shape}; it must have {self.rank} axis/axes")
        return array

    def _checked_target(self, target: Any, value: Array, others: Mapping[str, Array | None]) -> Array:
        array = _moment_array(self.result, target, value.size, value.dtype)
        if array.shape != value.shape:
            raise ShapeError(f"{self.result} has shape {array.shape}; it must have that of the values, {value.shape}")
        for name, other in others.items():
            if other is not None:
                check_apart(self.result, array, name, other, "it may be the array of the values, or another one")
        return target  # type: ignore[no-any-return]

    def write(self, values: Sequence[Array]) -> Array:
        made = values[0].reshape(self.updates[0].value.shape)
        if self._target is None:
            return made
        as_array(self.result, self._target)[...] = made
        return self._target


class _Matrices(_Arrays):
    """Matrices: the same with two axes."""

    required = ("input_gradient_matrix", "input_values_matrix")
    result = "result_values_matrix"
    ending = "_matrix"
    rank = 2


class _States(Form):
    """States: lists of moments, whose first entry belongs to the first update and whose second to the second."""

    result = "result_state"
    ending = "_vectors"
    kind: ClassVar[type[Any]]
    """The class of the result."""
    _command_buffer: MPSCommandBuffer | None

    @abc.abstractmethod
    def _new(self, first: Array, second: Array | None) -> Any:
        """Return a new state with both values."""

    def write(self, values: Sequence[Array]) -> Any:
        # What was not updated is copied, so that a reload from the result is safe [choice optimizer-biases].
        first, second = [*values, *self._kept][:2]
        assert first is not None
        if self._target is None:
            return self._new(first, second)
        self._target.device_write(first, second, command_buffer=self._command_buffer)
        return self._target

    def _set_updates(
        self, gradients: Sequence[Array], values: Sequence[Array | None], names: Sequence[str], given: Operands
    ) -> None:
        """Make the updates, one for each pair of values and gradients with moments; check the state to write."""
        target = given.get(self.result)
        self._target = None if target is None else instance_of(self.result, target, self.kind)
        lists: dict[str, Any] = dict.fromkeys(names)
        vectors: Any
        count, lengths = 1 if values[1] is None else 2, set()
        for name in names:
            lists[name] = vectors = given.get(name)
            if vectors is None:
                continue
            if len(instance_of(name, vectors, (list, tuple), "a list of one or two vectors")) not in (1, 2):
                raise ValueError(f"{name} has {len(vectors)} vectors; it must have one or two")
            lengths.add(len(vectors))
        if len(lengths) > 1:
            raise ValueError(f"{', '.join(lists)} have different lengths; each must have one vector, or each two")
        updated = min(count, *lengths) if lengths else count
        self._kept = values[updated:]
        self.updates, arrays = [], {}
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
                arrays[f"{name}[{k}]"] = entry
            self.updates.append(Update(gradients[k].ravel(), value.ravel(), tuple(moments)))
        _check_no_overlap(arrays, arrays)


class _Convolution(_States):
    """The states of a convolution, with gradients and with weights and biases."""

    required = "convolution_gradient_state", "convolution_source_state"
    kind = MPSCNNConvolutionWeightsAndBiasesState

    def __init__(self, given: Operands, names: Sequence[str], command_buffer: MPSCommandBuffer | None) -> None:
        gradient_name, source_name = self.required
        gradient = instance_of(gradient_name, given[gradient_name], MPSCNNConvolutionGradientState)
        source = instance_of(source_name, given[source_name], MPSCNNConvolutionWeightsAndBiasesState)
        dw, db = gradient.device_read(command_buffer)
        weights, biases = source.device_read(command_buffer)
        if dw.size != weights.size:
            raise ShapeError(f"{gradient_name} has {dw.size} weights and {source_name} {weights.size}")
        self._set_updates((dw, db), (weights, biases), names, given)
        self._shape, self._command_buffer = weights.shape, command_buffer

    def _new(self, first: Array, second: Array | None) -> MPSCNNConvolutionWeightsAndBiasesState:
        biases = None if second is None else immutable(second)
        return MPSCNNConvolutionWeightsAndBiasesState.sharing(immutable(first.reshape(self._shape)), biases)


class _BatchNormalization(_States):
    """The state of a batch normalization: its gradients, and gamma and beta of its kernel."""

    required: ClassVar[tuple[str, ...]] = ("batch_normalization_state",)
    kind = MPSCNNNormalizationGammaAndBetaState

    def __init__(self, given: Operands, names: Sequence[str], command_buffer: MPSCommandBuffer | None) -> None:
        first = instance_of(self.required[0], given[self.required[0]], MPSCNNBatchNormalizationState)
        last = instance_of(self.required[-1], given[self.required[-1]], MPSCNNBatchNormalizationState)
        gradient = first.device_read(command_buffer)
        source = gradient if last is first else last.device_read(command_buffer)
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
        self._set_updates(gradients, (source.gamma, source.beta), names, given)
        self._command_buffer = command_buffer

    def _new(self, first: Array, second: Array | None) -> MPSCNNNormalizationGammaAndBetaState:
        assert second is not None
        target = MPSCNNNormalizationGammaAndBetaState(first, second)
        target.written()
        return target


class _TwoBatchNormalizations(_BatchNormalization):
    """Two states of batch normalization, with the gradients and with gamma and beta."""

    required = "batch_normalization_gradient_state", "batch_normalization_source_state"


FORMS: tuple[type[Form], ...] = _Arrays, _Matrices, _Convolution, _BatchNormalization, _TwoBatchNormalizations


def _check_no_overlap(arrays: Mapping[str, Array | None], written: Mapping[str, Array | None]) -> None:
    """Raise ``ValueError`` if an array that is updated in place shares memory with another one."""
    owners: set[int] = set()
    for array in arrays.values():
        if array is not None:
            owner = array if type(array) is np.ndarray else getattr(array, "memory", array)
            if getattr(owner, "base", None) is not None or id(owner) in owners:
                break
            owners.add(id(owner))
    else:
        return  # each has memory of its own
    others, compared = arrays.items(), set()
    for name, moment in written.items():
        compared |= {name}
        for other, array in others:
            if other not in compared and moment is not None and array is not None:
                check_apart(name, moment, other, array, "it is updated in place: pass an array of its own")


# --- optimizers -------------------------------------------------------------------------------------------------------


class MPSNNOptimizer(MPSKernel):
    """Base class of the optimizers.

    An optimizer is made from a ``learning_rate``, or from an ``optimizer_descriptor`` with more parameters, which is
    also legal as the last argument in Apple's order, without a learning rate.
    ``learning_rate`` and ``apply_gradient_clipping`` can be set later.

    Raises
    ------
    ValueError
        Unless exactly one of both is given.
    """

    moments: ClassVar[tuple[str, ...]]
    """The names of the lists of two vectors that ``encode`` with states needs in addition to the states."""
    optional_moments: ClassVar[tuple[str, ...]] = ()

    @property
    @abc.abstractmethod
    def _spec_class(self) -> Any:
        """The class of the functional form."""

    learning_rate = MPSNNOptimizerDescriptor.learning_rate
    gradient_rescale = MPSNNOptimizerDescriptor.gradient_rescale.fixed()
    apply_gradient_clipping = MPSNNOptimizerDescriptor.apply_gradient_clipping
    gradient_clip_max = MPSNNOptimizerDescriptor.gradient_clip_max.fixed()
    gradient_clip_min = MPSNNOptimizerDescriptor.gradient_clip_min.fixed()
    regularization_type = MPSNNOptimizerDescriptor.regularization_type.fixed()
    regularization_scale = MPSNNOptimizerDescriptor.regularization_scale.fixed()

    def __init_subclass__(cls, **options: Any) -> None:
        """Give ``encode`` a signature with the keywords of all forms."""
        super().__init_subclass__(**options)
        moments = _stems((*cls.moments, *cls.optional_moments))
        names = dict.fromkeys(
            name
            for form in FORMS
            for name in (*form.required, *(moment + form.ending for moment in moments), form.result)
        )
        keyword, kind = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(name, keyword, default=None) for name in (*names, "command_buffer")]

        whole: Any = MPSNNOptimizer.encode  # copied, as each class has a signature of its own
        made = FunctionType(whole.__code__, whole.__globals__, whole.__name__, None, whole.__closure__)
        made.__kwdefaults__ = whole.__kwdefaults__
        encode: Any = functools.update_wrapper(made, whole)
        encode.__signature__ = inspect.Signature([inspect.Parameter("self", kind), *parameters])
        cls.encode = encode  # type: ignore[method-assign]

    def __init__(
        self,
        learning_rate: float | None = None,
        *,
        optimizer_descriptor: MPSNNOptimizerDescriptor | None = None,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        if (learning_rate is None) == (optimizer_descriptor is None):
            raise ValueError(
                "learning_rate and optimizer_descriptor are both given or both missing; pass exactly one of them"
            )
        if optimizer_descriptor is None:
            described = MPSNNOptimizerDescriptor(number("learning_rate", learning_rate))
        else:
            described = MPSNNOptimizerDescriptor._checked_copy("optimizer_descriptor", optimizer_descriptor)
        set_read_only(self, **{name: getattr(described, name) for name in COMMON if name != "apply_gradient_clipping"})
        settable = {name: getattr(described, name) for name in ("learning_rate", "apply_gradient_clipping")}
        super().__init__(backend=backend, **settable, **properties)

    @property
    def optimizer_descriptor(self) -> MPSNNOptimizerDescriptor:
        """A descriptor with the current parameters; as an argument, in place of the learning rate."""
        return MPSNNOptimizerDescriptor(self.learning_rate, **{name: getattr(self, name) for name in COMMON})

    def set_learning_rate(self, new_learning_rate: float) -> None:
        """Set ``learning_rate``: Apple's setter."""
        self.learning_rate = new_learning_rate

    def encode(self, *positional: object, command_buffer: MPSCommandBuffer | None = None, **operands: object) -> Any:
        """Make one step and return the result.

        Parameters
        ----------
        *positional
            None: all arguments are keywords.
        command_buffer : MPSCommandBuffer, optional
            The command buffer to encode on.
        **operands
            One of these forms, where the result is optional and may be the source:

            - ``input_gradient_vector, input_values_vector, result_values_vector`` and the moments of the class, such as
              ``input_momentum_vector``: float32 arrays (n,). The moments are updated in place.
            - The same with ``_matrix`` in place of ``_vector``: arrays with two axes.
            - ``convolution_gradient_state, convolution_source_state, result_state``, and lists of moments, such as
              ``input_momentum_vectors``, for weights and biases. With lists of one moment, biases are not updated.
            - ``batch_normalization_state, result_state``, and lists of moments for gamma and beta.
            - ``batch_normalization_gradient_state, batch_normalization_source_state, result_state``, and lists of
              moments for gamma and beta.

        Returns
        -------
        ndarray, MPSCNNConvolutionWeightsAndBiasesState or MPSCNNNormalizationGammaAndBetaState
            The result, or a new one.

        Raises
        ------
        TypeError
            For keywords of none of these forms.
        ValueError, TypeError
            For arrays that do not fit. No error changes an array or a state.
        OrderError
            For a batch normalization state without gradients, and for a committed command buffer.
        """
        if positional:
            check_not_a_command_buffer("the first argument", positional[0])
            raise TypeError(
                f"the first argument is of type {type(positional[0]).__name__}; the operands of an optimizer are "
                "keywords: write input_gradient_vector=..., input_values_vector=..., or another form"
            )
        names = _stems((*self.moments, *self.optional_moments))
        optional = self._may_be_missing()
        if command_buffer is not None:
            check_encodable(command_buffer)
        form_class, named = _form_class(names, optional, tuple(operands))
        form = form_class(operands, named, command_buffer)
        for update in form.updates:
            for name, moment in zip(names, update.moments, strict=True):
                if moment is None and name not in optional:
                    raise ValueError(f"{name} is None; {type(self).__name__} needs it, zeros before the first step")
        steps = self._steps(form.updates)
        result = form.write([values for values, _ in steps])
        for update, (_, moments) in zip(form.updates, steps, strict=True):
            for moment, new in zip(update.moments, moments, strict=True):
                if moment is not None and new is not None:
                    moment[...] = new if new.ndim == moment.ndim else new.reshape(moment.shape)
        self._stepped()
        return result

    def _steps(self, updates: Sequence[Update]) -> Sequence[tuple[Array, Sequence[Array | None]]]:
        """Compute all steps; two small ones in one call, since a step is elementwise."""
        joined = _joined(updates)
        if joined is None:
            return [self._step(update) for update in updates]
        value, moments = self._step(joined)
        end = updates[0].value.size
        cuts = slice(end), slice(end, None)
        return [(value[cut], [None if moment is None else moment[cut] for moment in moments]) for cut in cuts]

    def _step(self, update: Update) -> tuple[Array, Sequence[Array | None]]:
        """Return the new values and moments."""
        arrays = update.gradient, update.value, *update.moments
        flat = [array if array is None or array.ndim == 1 else array.reshape(-1) for array in arrays]
        value, *moments = self._function().step(*flat, *self._next_step(), backend=self.backend)
        return value, moments

    def _may_be_missing(self) -> tuple[str, ...]:
        return _stems(self.optional_moments)

    def _next_step(self) -> tuple[int, ...]:
        """Return the number of the step, from 1, if the functional form depends on it."""
        return ()

    def _stepped(self) -> None:
        """Count a step."""

    def _function(self) -> Any:
        """Return the functional form, with the parameters of the class and those of all optimizers."""
        names = *self._coding.arguments[1:], *NUMBERS
        values = zip(names, attrgetter(*names)(self), strict=True)
        return _spec(self._spec_class, regularization_type=self.regularization_type.value, **dict(values))


@functools.lru_cache(maxsize=64)
def _spec(kind: Callable[..., object], **parameters: float) -> object:
    """Return the functional form with these parameters, the same object for all steps."""
    return kind(**parameters)


@functools.cache
def _stems(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of lists of vectors without their ending."""
    return tuple(name.removesuffix("_vectors") for name in names)


@hinting
@saved("optimizer_descriptor", "momentum_scale", "use_nesterov_momentum")
class MPSNNOptimizerStochasticGradientDescent(MPSNNOptimizer):
    """Stochastic gradient descent: :class:`mpsref.StochasticGradientDescent`. The momentum is optional."""

    _spec_class = StochasticGradientDescent
    moments = ("input_momentum_vectors",)

    momentum_scale = Property(number, 0.0, "The decay of the momentum, any number.", read_only=True)
    use_nesterov_momentum = Property(flag, False, "Whether the momentum is Nesterov's.", read_only=True)
    use_nestrov_momentum = Alias("use_nesterov_momentum", "The old spelling.")

    def __init__(
        self,
        learning_rate: float | None = None,
        momentum_scale: float = 0.0,
        use_nesterov_momentum: Any = False,
        optimizer_descriptor: MPSNNOptimizerDescriptor | None = None,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        if isinstance(use_nesterov_momentum, MPSNNOptimizerDescriptor):  # the last argument in Apple's order
            given: list[Any] = [learning_rate, momentum_scale, use_nesterov_momentum]
            learning_rate, (momentum_scale, use_nesterov_momentum, optimizer_descriptor) = None, given
        if "use_nestrov_momentum" in properties:  # the old spelling [doc]
            use_nesterov_momentum = properties.pop("use_nestrov_momentum")
        set_read_only(self, momentum_scale=momentum_scale, use_nesterov_momentum=use_nesterov_momentum)
        super().__init__(learning_rate, optimizer_descriptor=optimizer_descriptor, backend=backend, **properties)

    def _may_be_missing(self) -> tuple[str, ...]:
        return ("input_momentum",)


@hinting
@saved("optimizer_descriptor", "decay", "epsilon")
class MPSNNOptimizerRMSProp(MPSNNOptimizer):
    """RMSProp: :class:`mpsref.RMSProp`."""

    _spec_class = RMSProp
    moments = ("input_sum_of_squares_vectors",)

    decay = Property(
        partial(number, low=0, high=1), 0.9, "The decay of the mean of squares, in [0, 1].", read_only=True
    )
    epsilon = Property(partial(number, low=0), 1e-8, "The summand of the root, >= 0.", read_only=True)

    def __init__(
        self,
        learning_rate: float | None = None,
        decay: float = 0.9,
        epsilon: Any = 1e-8,
        optimizer_descriptor: MPSNNOptimizerDescriptor | None = None,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        if isinstance(epsilon, MPSNNOptimizerDescriptor):  # the last argument in Apple's order
            given: list[Any] = [learning_rate, decay, epsilon]
            learning_rate, (decay, epsilon, optimizer_descriptor) = None, given
        set_read_only(self, decay=decay, epsilon=epsilon)
        super().__init__(learning_rate, optimizer_descriptor=optimizer_descriptor, backend=backend, **properties)


DECAY = partial(number, low=0, high=1, below=True)


@hinting
@saved("optimizer_descriptor", "beta1", "beta2", "epsilon")
class MPSNNOptimizerAdam(MPSNNOptimizer):
    """Adam: :class:`mpsref.Adam`; with maximum velocities it is AMSGrad. Each encode adds 1 to ``time_step`` first."""

    _spec_class = Adam
    moments = ("input_momentum_vectors", "input_velocity_vectors")
    optional_moments = ("maximum_velocity_vectors",)

    beta1 = Property(DECAY, 0.9, "The decay of the momentum, in [0, 1).", read_only=True)
    beta2 = Property(DECAY, 0.999, "The decay of the velocity, in [0, 1).", read_only=True)
    epsilon = Property(partial(number, low=0), 1e-8, "The summand of the root, >= 0.", read_only=True)
    time_step = Property(at_least(0), 0, "The number of steps so far.")

    def __init__(
        self,
        learning_rate: float | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        time_step: Any = 0,
        optimizer_descriptor: MPSNNOptimizerDescriptor | None = None,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        if isinstance(time_step, MPSNNOptimizerDescriptor):  # the last argument in Apple's order
            given: list[Any] = [learning_rate, beta1, beta2, epsilon, time_step]
            learning_rate, (beta1, beta2, epsilon, time_step, optimizer_descriptor) = None, given
        set_read_only(self, beta1=beta1, beta2=beta2, epsilon=epsilon)
        super().__init__(
            learning_rate, optimizer_descriptor=optimizer_descriptor, time_step=time_step, backend=backend, **properties
        )

    def _next_step(self) -> tuple[int, ...]:
        return (self.time_step + 1,)

    def _stepped(self) -> None:
        self.time_step += 1
