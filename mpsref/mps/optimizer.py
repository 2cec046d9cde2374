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
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import flag, number
from mpsref.kernels.optimizers import Adam, RMSProp, StochasticGradientDescent
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable
from mpsref.mps.core.kernel import MPSKernel, saved
from mpsref.mps.core.properties import Alias, Property, at_least, fix
from mpsref.mps.optimizer_descriptor import (
    MPSNNOptimizerDescriptor,
    MPSNNRegularizationType,
    clip_bound,
    optimizer_descriptor,
    regularization_type,
)
from mpsref.mps.optimizer_operands import Part, form_of, joined_parts
from mpsref.registry import Backend

__all__ = [
    "MPSNNOptimizer",
    "MPSNNOptimizerAdam",
    "MPSNNOptimizerDescriptor",
    "MPSNNOptimizerRMSProp",
    "MPSNNOptimizerStochasticGradientDescent",
    "MPSNNRegularizationType",
]

AnyOptimizer = TypeVar("AnyOptimizer")

SHARED = (
    "gradient_rescale",
    "apply_gradient_clipping",
    "gradient_clip_max",
    "gradient_clip_min",
    "regularization_type",
    "regularization_scale",
)
NUMBERS = ("learning_rate", *(name for name in SHARED if name != "regularization_type"))


class MPSNNOptimizer(MPSKernel):
    """Base class of the optimizers.

    It is made with a ``learning_rate``, or with an ``optimizer_descriptor``, which has more. ``learning_rate`` and
    ``apply_gradient_clipping`` can be set later.
    """

    moments: ClassVar[tuple[str, ...]]
    """The lists of vectors, two in each, that the state forms of ``encode`` need beside the states."""
    optional_moments: ClassVar[tuple[str, ...]] = ()

    learning_rate = Property(number, 1e-3, "What a step is multiplied by.")
    gradient_rescale = Property(number, 1.0, "What a gradient is multiplied by, after clipping.", read_only=True)
    apply_gradient_clipping = Property(flag, False, "Whether gradients are clipped.")
    gradient_clip_max = Property(clip_bound, float("inf"), "The largest gradient.", read_only=True)
    gradient_clip_min = Property(clip_bound, -float("inf"), "The smallest gradient.", read_only=True)
    regularization_type = Property(
        regularization_type, MPSNNRegularizationType.NONE, "What is added to the loss.", read_only=True
    )
    regularization_scale = Property(number, 0.0, "What the gradient of that is multiplied by.", read_only=True)

    def __init__(
        self,
        learning_rate: float | None = None,
        *,
        optimizer_descriptor: MPSNNOptimizerDescriptor | None = None,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make an optimizer; ``ValueError`` unless exactly one of learning rate and descriptor is given."""
        if (learning_rate is None) == (optimizer_descriptor is None):
            raise ValueError(
                "learning_rate and optimizer_descriptor are both given or both missing; pass exactly one of them"
            )
        described = _described(learning_rate, optimizer_descriptor)
        fix(self, **{name: getattr(described, name) for name in SHARED if name != "apply_gradient_clipping"})
        settable = {name: getattr(described, name) for name in ("learning_rate", "apply_gradient_clipping")}
        super().__init__(backend=backend, **settable, **properties)

    @property
    def optimizer_descriptor(self) -> MPSNNOptimizerDescriptor:
        """A descriptor of what the optimizer has in common with all others, as it is now."""
        return MPSNNOptimizerDescriptor(self.learning_rate, **{name: getattr(self, name) for name in SHARED})

    def set_learning_rate(self, new_learning_rate: float) -> None:
        """Set ``learning_rate``: Apple's setter."""
        self.learning_rate = new_learning_rate

    def encode(self, *, command_buffer: MPSCommandBuffer | None = None, **operands: Any) -> Any:
        """Make one step, in one of these forms (see the page on optimizers), and return the result.

        ``input_gradient_vector, input_values_vector, result_values_vector`` and the moments of the class: float32
        arrays; ``..._matrix`` in place of ``..._vector``: the same with two axes.
        ``convolution_gradient_state, convolution_source_state, result_state``, or ``batch_normalization_state,
        result_state``, or ``batch_normalization_gradient_state, batch_normalization_source_state, result_state``, and
        the moments as lists, ``..._vectors``: for weights and biases, or gamma and beta; a list of one leaves the
        second part as it is.

        A result that is left out is made. Moments are updated in place; the result may be the source. Raises
        ``TypeError`` for keywords that are none of these forms, ``TypeError`` or ``ValueError`` for arrays that do not
        fit, ``OrderError`` for a batch-normalization state without gradients and for a committed ``command_buffer``;
        then nothing is updated.
        """
        names = _stems((*self.moments, *self.optional_moments))
        optional = self._may_be_missing()
        check_encodable(command_buffer)
        form = form_of(names, optional, operands, command_buffer)
        for part in form.parts:
            for name, moment in zip(names, part.moments, strict=True):
                if moment is None and name not in optional:
                    raise ValueError(f"{name} is None; {type(self).__name__} needs it, zeros before the first step")
        steps = self._steps(form.parts)
        result = form.hand_over([values for values, _ in steps])
        for part, (_, moments) in zip(form.parts, steps, strict=True):
            for moment, new in zip(part.moments, moments, strict=True):
                if moment is not None and new is not None:
                    moment[...] = new if new.ndim == moment.ndim else new.reshape(moment.shape)
        self._stepped()
        return result

    def _steps(self, parts: Sequence[Part]) -> Sequence[tuple[Array, Sequence[Array | None]]]:
        """Step all parts: small ones at once, as each number is for itself and a call takes longer than they do."""
        joined = joined_parts(parts)
        if joined is None:
            return [self._step(part) for part in parts]
        value, moments = self._step(joined)
        end = parts[0].value.size
        cuts = slice(end), slice(end, None)
        return [(value[cut], [None if moment is None else moment[cut] for moment in moments]) for cut in cuts]

    @abc.abstractmethod
    def _step(self, part: Part) -> tuple[Array, Sequence[Array | None]]:
        """Return the new values and moments of a part."""

    def _may_be_missing(self) -> tuple[str, ...]:
        return _stems(self.optional_moments)

    def _stepped(self) -> None:
        """Note that a step was made."""

    def _function(self, kind: Callable[..., AnyOptimizer], *own: str) -> AnyOptimizer:
        """Return the functional form, with the parameters ``own`` beside those that all optimizers have."""
        names = own + NUMBERS
        found: AnyOptimizer = _spec(kind, names, self.regularization_type.value, attrgetter(*names)(self))
        return found


def _described(learning_rate: float | None, descriptor: Any) -> MPSNNOptimizerDescriptor:
    if descriptor is not None:
        return optimizer_descriptor("optimizer_descriptor", descriptor)
    return MPSNNOptimizerDescriptor(number("learning_rate", learning_rate))


@functools.lru_cache(maxsize=64)
def _spec(kind: Any, names: tuple[str, ...], regularization: int, values: tuple[Any, ...]) -> Any:
    """Return the functional form with such parameters, the same object for all steps."""
    return kind(**dict(zip(names, values, strict=True)), regularization_type=regularization)


@functools.cache
def _stems(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of lists of vectors without their ending."""
    return tuple(name.removesuffix("_vectors") for name in names)


def _flat(part: Part) -> list[Array | None]:
    """Return gradient, values and moments as vectors."""
    arrays = part.gradient, part.value, *part.moments
    return [None if array is None else array if array.ndim == 1 else array.reshape(-1) for array in arrays]


@saved("optimizer_descriptor", "momentum_scale", "use_nesterov_momentum")
class MPSNNOptimizerStochasticGradientDescent(MPSNNOptimizer):
    """Stochastic gradient descent: :class:`mpsref.StochasticGradientDescent`. Without a momentum it is plain."""

    moments = ("input_momentum_vectors",)

    momentum_scale = Property(number, 0.0, "How much of the momentum stays.", read_only=True)
    use_nesterov_momentum = Property(flag, False, "Whether the momentum is Nesterov's.", read_only=True)
    use_nestrov_momentum = Alias("use_nesterov_momentum", "The old spelling.")

    def __init__(
        self,
        learning_rate: float | None = None,
        *,
        optimizer_descriptor: MPSNNOptimizerDescriptor | None = None,
        momentum_scale: float = 0.0,
        use_nesterov_momentum: bool = False,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make an optimizer; ``momentum_scale`` is any finite number. Errors as in :class:`MPSNNOptimizer`."""
        if "use_nestrov_momentum" in properties:  # the old spelling [doc]
            use_nesterov_momentum = properties.pop("use_nestrov_momentum")
        fix(self, momentum_scale=momentum_scale, use_nesterov_momentum=use_nesterov_momentum)
        super().__init__(learning_rate, optimizer_descriptor=optimizer_descriptor, backend=backend, **properties)

    def _may_be_missing(self) -> tuple[str, ...]:
        return ("input_momentum",)

    def _step(self, part: Part) -> tuple[Array, Sequence[Array | None]]:
        spec = self._function(StochasticGradientDescent, "momentum_scale", "use_nesterov_momentum")
        value, m = spec.step(*_flat(part), backend=self.backend)
        return value, (m,)


@saved("optimizer_descriptor", "decay", "epsilon")
class MPSNNOptimizerRMSProp(MPSNNOptimizer):
    """RMSProp: :class:`mpsref.RMSProp`."""

    moments = ("input_sum_of_squares_vectors",)

    decay = Property(
        lambda name, value: number(name, value, 0, 1), 0.9, "How much of the mean of squares stays.", read_only=True
    )
    epsilon = Property(lambda name, value: number(name, value, 0), 1e-8, "What is added to the root.", read_only=True)

    def __init__(
        self,
        learning_rate: float | None = None,
        *,
        optimizer_descriptor: MPSNNOptimizerDescriptor | None = None,
        decay: float = 0.9,
        epsilon: float = 1e-8,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make an optimizer; ``decay`` in [0, 1], ``epsilon`` >= 0. Errors as in :class:`MPSNNOptimizer`."""
        fix(self, decay=decay, epsilon=epsilon)
        super().__init__(learning_rate, optimizer_descriptor=optimizer_descriptor, backend=backend, **properties)

    def _step(self, part: Part) -> tuple[Array, Sequence[Array | None]]:
        spec = self._function(RMSProp, "decay", "epsilon")
        gradient, value, s = _flat(part)
        value, s = spec.step(gradient, value, s, backend=self.backend)
        return value, (s,)


def _share(name: str, value: Any) -> float:
    return number(name, value, 0, 1, below=True)


@saved("optimizer_descriptor", "beta1", "beta2", "epsilon")
class MPSNNOptimizerAdam(MPSNNOptimizer):
    """Adam: :class:`mpsref.Adam`; with maximum velocities it is AMSGrad. Each encode adds 1 to ``time_step`` first."""

    moments = ("input_momentum_vectors", "input_velocity_vectors")
    optional_moments = ("maximum_velocity_vectors",)

    beta1 = Property(_share, 0.9, "How much of the momentum stays.", read_only=True)
    beta2 = Property(_share, 0.999, "How much of the velocity stays.", read_only=True)
    epsilon = Property(lambda name, value: number(name, value, 0), 1e-8, "What is added to the root.", read_only=True)
    time_step = Property(at_least(0), 0, "How many steps were made.")

    def __init__(
        self,
        learning_rate: float | None = None,
        *,
        optimizer_descriptor: MPSNNOptimizerDescriptor | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        time_step: int = 0,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make an optimizer; ``beta1`` and ``beta2`` in [0, 1), ``epsilon`` >= 0. Errors as :class:`MPSNNOptimizer`."""
        fix(self, beta1=beta1, beta2=beta2, epsilon=epsilon)
        super().__init__(
            learning_rate, optimizer_descriptor=optimizer_descriptor, time_step=time_step, backend=backend, **properties
        )

    def _step(self, part: Part) -> tuple[Array, Sequence[Array | None]]:
        spec = self._function(Adam, "beta1", "beta2", "epsilon")
        gradient, value, m, u, umax = _flat(part)
        value, *moments = spec.step(gradient, value, m, u, umax, self.time_step + 1, backend=self.backend)
        return value, moments

    def _stepped(self) -> None:
        self.time_step += 1
