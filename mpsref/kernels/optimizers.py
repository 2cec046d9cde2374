"""Optimizers: one step of stochastic gradient descent, RMSProp or Adam, on arrays of any shape.

    g1 = clip(g)    g2 = g1 * rescale    gr = g2 + scale * value (L2), + scale * sign(value) (L1)
    SGD       v - lr gr;  with momentum m = scale m + lr gr, v - m;  Nesterov m = scale m + gr, v - lr (gr + scale m)
    RMSProp   s = decay s + (1 - decay) gr**2;   v - lr gr / (sqrt(s) + epsilon)
    Adam      m = beta1 m + (1 - beta1) gr;   u = beta2 u + (1 - beta2) gr**2;   v - lr_t m / (sqrt(u) + epsilon)
              lr_t = lr sqrt(1 - beta2**t) / (1 - beta1**t);   AMSGrad: umax = max(umax, u) in place of u

The plain momentum holds the learning rate, Nesterov's does not [doc]. Clipping comes first and rescaling second [doc];
the rescale does not touch the regularization, whose L1 form follows the sign of the value [choice].

Source: ``MPSNNOptimizers.h`` [doc].
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mpsref import codecs, operations, registry
from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import flag, named, number
from mpsref.kernels.optimizer_problems import AdamStep, RMSPropStep, SGDStep, as_vectors
from mpsref.kernels.posing import posed
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import Declaration, Formula, OperationKey

REGULARIZATIONS = ("none", "l1", "l2")
"""By the lower-case name, in the order of Apple's numbers."""


class Optimizer(operations.Spec):
    """What all optimizers share: the learning rate, and what happens to a gradient before it is used.

    Numbers are finite and of any sign; the clip bounds may be infinite. ``regularization_type`` is "none", "l1" or
    "l2", or Apple's number.
    """

    learning_rate: float = field(default=1e-3, metadata={"codec": codecs.number("lr")})
    gradient_rescale: float = field(default=1.0, kw_only=True, metadata={"codec": codecs.number("rescale")})
    apply_gradient_clipping: bool = field(
        default=False, kw_only=True, metadata={"codec": codecs.flag("clipped", "unclipped")}
    )
    gradient_clip_min: float = field(default=-math.inf, kw_only=True, metadata={"codec": codecs.number("min")})
    gradient_clip_max: float = field(default=math.inf, kw_only=True, metadata={"codec": codecs.number("max")})
    regularization_type: str = field(default="none", kw_only=True, metadata={"codec": codecs.word(*REGULARIZATIONS)})
    regularization_scale: float = field(default=0.0, kw_only=True, metadata={"codec": codecs.number("reg")})

    def __post_init__(self) -> None:
        """Check the shared parameters."""
        self._check("learning_rate", "gradient_rescale", "regularization_scale")
        object.__setattr__(
            self, "apply_gradient_clipping", flag("apply_gradient_clipping", self.apply_gradient_clipping)
        )
        for name in ("gradient_clip_min", "gradient_clip_max"):
            value = getattr(self, name)
            infinite = isinstance(value, (float, np.floating)) and math.isinf(value)
            object.__setattr__(self, name, float(value) if infinite else number(name, value))
        if self.gradient_clip_min > self.gradient_clip_max:
            raise ValueError(
                f"gradient_clip_min is {self.gradient_clip_min} and gradient_clip_max is {self.gradient_clip_max}; "
                "the former must be <= the latter"
            )
        word = named("regularization_type", self.regularization_type, REGULARIZATIONS)
        object.__setattr__(self, "regularization_type", word)

    def _check(self, *names: str, **bounds: Any) -> None:
        """Store numbers as floats, within bounds as in :func:`mpsref.arguments.parameters.number`."""
        for name in names:
            object.__setattr__(self, name, number(name, getattr(self, name), **bounds))


class StochasticGradientDescent(Optimizer):
    """Stochastic gradient descent, with momentum if it is given one.

    >>> sgd = StochasticGradientDescent(0.1, momentum_scale=0.9)
    >>> value, m = sgd.step(np.float64([0.5, 4]), np.float64([1, -2]), np.zeros(2))
    >>> value.tolist(), m.tolist()
    ([0.95, -2.4], [0.05, 0.4])
    """

    momentum_scale: float = field(default=0.0, metadata={"codec": codecs.number("momentum")})
    use_nesterov_momentum: bool = field(default=False, metadata={"codec": codecs.flag("nesterov", "classic")})

    problems: ClassVar = {"step": SGDStep}

    def __post_init__(self) -> None:
        """Check every parameter."""
        super().__post_init__()
        self._check("momentum_scale")
        object.__setattr__(self, "use_nesterov_momentum", flag("use_nesterov_momentum", self.use_nesterov_momentum))

    def step(
        self, gradient: Any, value: Any, m: Any = None, *, out: Any = None, backend: Any = None
    ) -> tuple[Array, Array | None]:
        """Return the new values and the new momentum, ``None`` without one.

        All arrays have one shape and dtype, float32 (float64 on the reference); ``out`` is a tuple of as many arrays as
        there are results. Raises ``ShapeError`` or ``TypeError`` for arrays that do not fit.
        """
        shape, arrays = as_vectors((), gradient=gradient, value=value, m=m)
        results = registry.run(posed(SGDStep, self, shape, m is not None), *arrays, out=out, backend=backend)
        return (results[0], results[1]) if isinstance(results, tuple) else (results, None)


class RMSProp(Optimizer):
    """Root mean square propagation: ``s`` is a running mean of squares; ``decay`` in [0, 1], ``epsilon`` >= 0.

    >>> value, s = RMSProp(0.1).step(np.float64([0.5, 4]), np.float64([1, -2]), np.zeros(2))
    >>> value.round(9).tolist(), s.round(9).tolist()
    ([0.683772254, -2.316227764], [0.025, 1.6])
    """

    decay: float = field(default=0.9, metadata={"codec": codecs.number("decay")})
    epsilon: float = field(default=1e-8, metadata={"codec": codecs.number("eps")})

    problems: ClassVar = {"step": RMSPropStep}

    def __post_init__(self) -> None:
        """Check every parameter."""
        super().__post_init__()
        self._check("decay", low=0, high=1)
        self._check("epsilon", low=0)

    def step(self, gradient: Any, value: Any, s: Any, *, out: Any = None, backend: Any = None) -> tuple[Array, Array]:
        """Return the new values and the new sums of squares; arrays as in :class:`StochasticGradientDescent`."""
        shape, arrays = as_vectors(("s",), gradient=gradient, value=value, s=s)
        new_value, new_s = registry.run(posed(RMSPropStep, self, shape), *arrays, out=out, backend=backend)
        return new_value, new_s


class Adam(Optimizer):
    """Adam, and with ``umax`` AMSGrad; ``beta1`` and ``beta2`` in [0, 1), ``epsilon`` >= 0.

    >>> zero = np.zeros(2)
    >>> value, m, u, umax = Adam(0.1).step(np.float64([0.5, 4]), np.float64([1, -2]), zero, zero)
    >>> value.round(9).tolist(), umax
    ([0.900000063, -2.099999992], None)
    """

    beta1: float = field(default=0.9, metadata={"codec": codecs.number("beta1_")})
    beta2: float = field(default=0.999, metadata={"codec": codecs.number("beta2_")})
    epsilon: float = field(default=1e-8, metadata={"codec": codecs.number("eps")})

    problems: ClassVar = {"step": AdamStep}

    def __post_init__(self) -> None:
        """Check every parameter."""
        super().__post_init__()
        self._check("beta1", "beta2", low=0, high=1, below=True)
        self._check("epsilon", low=0)

    def corrected_rate(self, time_step: int) -> float:
        """Return lr_t, the learning rate with both bias corrections, in float64."""
        return self.learning_rate * math.sqrt(1 - self.beta2**time_step) / (1 - self.beta1**time_step)

    def step(
        self,
        gradient: Any,
        value: Any,
        m: Any,
        u: Any,
        umax: Any = None,
        time_step: Any = 1,
        *,
        out: Any = None,
        backend: Any = None,
    ) -> tuple[Array, Array, Array, Array | None]:
        """Return the new values, momentum, velocity and largest velocity, the last ``None`` without ``umax``.

        ``time_step`` >= 1 counts this step. Arrays as in :class:`StochasticGradientDescent`.
        """
        shape, arrays = as_vectors(("m", "u"), gradient=gradient, value=value, m=m, u=u, umax=umax)
        problem = posed(AdamStep, self, shape, umax is not None).at(time_step)
        new_value, new_m, new_u, *largest = registry.run(problem, *arrays, out=out, backend=backend)
        return new_value, new_m, new_u, largest[0] if largest else None


class Regularized(NamedTuple):
    """A gradient as the update uses it, and its two terms."""

    rescaled: Array
    penalty: Array

    @property
    def gradient(self) -> Array:
        """Gr."""
        return np.asarray(self.rescaled + self.penalty)

    @property
    def magnitude(self) -> Array:
        """The sum of the absolute values of both terms."""
        return np.asarray(np.abs(self.rescaled) + np.abs(self.penalty))


def regularized(optimizer: Optimizer, gradient: Array, value: Array) -> Regularized:
    """Clip, rescale, then add the gradient of the penalty on the value."""
    if optimizer.apply_gradient_clipping:
        low, high = optimizer.gradient_clip_min, optimizer.gradient_clip_max
        gradient = np.where(gradient < low, low, np.where(gradient > high, high, gradient))
    return Regularized(
        gradient * optimizer.gradient_rescale,
        optimizer.regularization_scale * penalty_slope(optimizer.regularization_type, value),
    )


def penalty_slope(regularization_type: str, value: Array) -> Array:
    """Return the derivative of ``sum |value|`` or of ``sum value**2 / 2``."""
    if regularization_type == "none":
        return np.zeros_like(value)
    return np.sign(value) if regularization_type == "l1" else value


def sgd(problem: SGDStep, gradient: Array, value: Array, m: Array | None = None) -> Any:
    """v - lr gr, or with momentum as the module says."""
    spec = problem.spec
    return sgd_update(spec, regularized(spec, gradient, value).gradient, value, m, -1)


def sgd_update(spec: StochasticGradientDescent, gr: Array, value: Array, m: Array | None, sign: int) -> Any:
    """Return the new values, and the new momentum where there is one, with ``sign`` for the minus of the update."""
    lr, scale = spec.learning_rate, spec.momentum_scale
    if m is None:
        return value + sign * lr * gr
    if spec.use_nesterov_momentum:
        m = scale * m + gr
        return value + sign * lr * (gr + scale * m), m
    m = scale * m + lr * gr
    return value + sign * m, m


def rmsprop(problem: RMSPropStep, gradient: Array, value: Array, s: Array) -> tuple[Array, Array]:
    """s = decay s + (1 - decay) gr**2;   v - lr gr / (sqrt(s) + epsilon)."""
    spec = problem.spec
    gr = regularized(spec, gradient, value).gradient
    s = spec.decay * s + (1 - spec.decay) * gr**2
    with np.errstate(divide="ignore"):
        return value - spec.learning_rate * gr / (np.sqrt(s) + spec.epsilon), s


def adam(
    problem: AdamStep, gradient: Array, value: Array, m: Array, u: Array, umax: Array | None = None
) -> tuple[Array, ...]:
    """m and u are running means of gr and gr**2;   v - lr_t m / (sqrt(u) + epsilon)."""
    spec, rate = problem.spec, problem.spec.corrected_rate(problem.time_step)
    gr = regularized(spec, gradient, value).gradient
    m = spec.beta1 * m + (1 - spec.beta1) * gr
    u = spec.beta2 * u + (1 - spec.beta2) * gr**2
    largest = u if umax is None else np.maximum(umax, u)
    with np.errstate(divide="ignore"):
        value = value - rate * m / (np.sqrt(largest) + spec.epsilon)
    return (value, m, u) if umax is None else (value, m, u, largest)


def bounded(magnitude: Array) -> ErrorBound:
    """16 times 2**-23 times the update in absolute values: division and root are those of Metal's fast math."""
    return ErrorBound.of_error(16 * 2.0**-23 * magnitude)


def sgd_terms(problem: SGDStep, gradient: Array, value: Array, m: Array | None = None) -> Any:
    """Return the update with every product and sum in absolute values."""
    spec, size = problem.spec, regularized(problem.spec, gradient, value).magnitude
    absolute = StochasticGradientDescent(abs(spec.learning_rate), abs(spec.momentum_scale), spec.use_nesterov_momentum)
    magnitudes = sgd_update(absolute, size, np.abs(value), None if m is None else np.abs(m), 1)
    return bounded(magnitudes) if m is None else tuple(map(bounded, magnitudes))


def rmsprop_terms(problem: RMSPropStep, gradient: Array, value: Array, s: Array) -> tuple[ErrorBound, ...]:
    """Return the update with the numerator in absolute values; the divisor is the true one."""
    spec = problem.spec
    parts = regularized(spec, gradient, value)
    _, new_s = rmsprop(problem, gradient, value, s)
    of_s = spec.decay * s + (1 - spec.decay) * parts.magnitude**2
    step = abs(spec.learning_rate) * parts.magnitude / (np.sqrt(new_s) + spec.epsilon)
    return bounded(np.abs(value) + np.where(cancelled(parts), np.inf, step)), bounded(of_s)


def adam_terms(problem: AdamStep, gradient: Array, value: Array, *moments: Array) -> tuple[ErrorBound, ...]:
    """As :func:`rmsprop_terms`."""
    spec, rate = problem.spec, problem.spec.corrected_rate(problem.time_step)
    parts = regularized(spec, gradient, value)
    *_, divisor = adam(problem, gradient, value, *moments)
    m, u = np.abs(moments[0]), moments[1]
    of_m = spec.beta1 * m + (1 - spec.beta1) * parts.magnitude
    of_u = spec.beta2 * u + (1 - spec.beta2) * parts.magnitude**2
    step = abs(rate) * of_m / (np.sqrt(divisor) + spec.epsilon)
    of_largest = [np.maximum(moments[2], of_u)] if problem.maximum else []
    of_value = np.abs(value) + np.where(cancelled(parts), np.inf, step)
    return tuple(map(bounded, (of_value, of_m, of_u, *of_largest)))


def cancelled(parts: Regularized) -> Array:
    """Say where gradient and penalty cancel to less than an eighth: their error enters the divisor, without a bound."""
    return np.asarray(np.abs(parts.gradient) < parts.magnitude / 8)


SPECS: tuple[type[operations.Spec], ...] = (StochasticGradientDescent, RMSProp, Adam)
REFERENCE: dict[OperationKey, Formula] = {
    (StochasticGradientDescent, "step"): sgd,
    (RMSProp, "step"): rmsprop,
    (Adam, "step"): adam,
}
TERMS: dict[OperationKey, Formula] = {
    (StochasticGradientDescent, "step"): sgd_terms,
    (RMSProp, "step"): rmsprop_terms,
    (Adam, "step"): adam_terms,
}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
