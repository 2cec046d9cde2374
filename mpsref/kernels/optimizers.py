"""Optimizers: one step of stochastic gradient descent, RMSProp or Adam, on arrays of any shape.

    g1 = clip(g)    g2 = g1 * rescale    gr = g2 + scale * value (L2), + scale * sign(value) (L1)
    SGD       v - lr gr;  with momentum m = scale m + lr gr, v - m;  Nesterov m = scale m + gr, v - lr (gr + scale m)
    RMSProp   s = decay s + (1 - decay) gr**2;   v - lr gr / (sqrt(s) + epsilon)
    Adam      m = beta1 m + (1 - beta1) gr;   u = beta2 u + (1 - beta2) gr**2;   v - lr_t m / (sqrt(u) + epsilon)
              lr_t = lr sqrt(1 - beta2**t) / (1 - beta1**t);   AMSGrad: umax = max(umax, u) in place of u

The plain momentum holds the learning rate, Nesterov's does not [doc]. Clipping comes first and rescaling second [doc];
the rescale does not touch the regularization, whose L1 form follows the sign of the value [choice optimizer-l1,
optimizer-rescale].

Source: ``MPSNNOptimizers.h`` [doc].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from mpsref import codecs
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, Shape
from mpsref.backend import BackendLike
from mpsref.codecs import parameter
from mpsref.errors import ShapeError
from mpsref.kernels.reference import ErrorBound, gamma
from mpsref.operations import Problem, Spec, operation, vector
from mpsref.registry import call

REGULARIZATIONS = ("none", "l1", "l2")
"""By the lower-case name, in the order of Apple's numbers."""


class Optimizer(Spec):
    """Base of all optimizers: the learning rate, and how a gradient is prepared.

    Parameters
    ----------
    learning_rate, gradient_rescale, regularization_scale : float, optional
        Finite, of any sign.
    apply_gradient_clipping : bool, optional
        Whether gradients are clipped to [gradient_clip_min, gradient_clip_max].
    gradient_clip_min, gradient_clip_max : float, optional
        Bounds, which may be infinite.
    regularization_type : str or int, optional
        "none", "l1" or "l2", or Apple's number.
    """

    learning_rate: float = parameter(codecs.number("lr"), default=1e-3)
    gradient_rescale: float = parameter(codecs.number("rescale"), default=1.0, kw_only=True)
    apply_gradient_clipping: bool = parameter(codecs.flag("clipped", "unclipped"), default=False, kw_only=True)
    gradient_clip_min: float = parameter(codecs.real("min"), default=-math.inf, kw_only=True)
    gradient_clip_max: float = parameter(codecs.real("max"), default=math.inf, kw_only=True)
    regularization_type: str = parameter(codecs.enumerated(*REGULARIZATIONS), default="none", kw_only=True)
    regularization_scale: float = parameter(codecs.number("reg"), default=0.0, kw_only=True)

    def _check(self) -> None:
        if self.gradient_clip_min > self.gradient_clip_max:
            raise ValueError(
                f"gradient_clip_min is {self.gradient_clip_min} and gradient_clip_max is {self.gradient_clip_max}; "
                "the former must be <= the latter"
            )


class StochasticGradientDescent(Optimizer):
    """Stochastic gradient descent, with momentum if the array of momentum is given.

    Parameters
    ----------
    momentum_scale : float, optional
        Factor of the momentum; finite.
    use_nesterov_momentum : bool, optional
        Whether the step looks ahead along the momentum.

    Examples
    --------
    >>> sgd = StochasticGradientDescent(0.1, momentum_scale=0.9)
    >>> value, m = sgd.step(np.float64([0.5, 4]), np.float64([1, -2]), np.zeros(2))
    >>> value.tolist(), m.tolist()
    ([0.95, -2.4], [0.05, 0.4])
    """

    momentum_scale: float = parameter(codecs.number("momentum"), default=0.0)
    use_nesterov_momentum: bool = parameter(codecs.flag("nesterov", "classic"), default=False)

    def step(
        self,
        gradient: ArrayLike,
        value: ArrayLike,
        m: ArrayLike | None = None,
        *,
        out: Array | tuple[Array, ...] | None = None,
        backend: BackendLike = None,
    ) -> tuple[Array, Array | None]:
        """Compute one step.

        Parameters
        ----------
        gradient, value : array_like
            Gradient and values, of one shape and dtype: float32, or float64 on the reference.
        m : array_like, optional
            Momentum, like ``value``; zeros before the first step.

        Returns
        -------
        value, m : ndarray
            New values, and new momentum: ``None`` without one.

        Raises
        ------
        ShapeError, TypeError
            If the arrays differ in shape or dtype.
        """
        results = call(self, "step", (gradient, value, m), out=out, backend=backend)
        return (results, None) if m is None else (results[0], results[1])


class RMSProp(Optimizer):
    """Root mean square propagation: ``s`` is a running mean of squares.

    Parameters
    ----------
    decay : float, optional
        Weight of the running mean, in [0, 1].
    epsilon : float, optional
        Added to the root, at least 0.

    Examples
    --------
    >>> value, s = RMSProp(0.1).step(np.float64([0.5, 4]), np.float64([1, -2]), np.zeros(2))
    >>> value.round(9).tolist(), s.round(9).tolist()
    ([0.683772254, -2.316227764], [0.025, 1.6])
    """

    decay: float = parameter(codecs.number("decay", 0, 1), default=0.9)
    epsilon: float = parameter(codecs.number("eps", 0), default=1e-8)

    def step(
        self,
        gradient: ArrayLike,
        value: ArrayLike,
        s: ArrayLike,
        *,
        out: tuple[Array, Array] | None = None,
        backend: BackendLike = None,
    ) -> tuple[Array, Array]:
        """Return the new values and the new means of squares; arrays as in :class:`StochasticGradientDescent`."""
        new_value, new_s = call(self, "step", (gradient, value, s), out=out, backend=backend)
        return new_value, new_s


class Adam(Optimizer):
    """Adam, and with ``umax`` AMSGrad.

    Parameters
    ----------
    beta1, beta2 : float, optional
        Decay of momentum and of velocity, in [0, 1).
    epsilon : float, optional
        Added to the root, at least 0.

    Examples
    --------
    >>> zero = np.zeros(2)
    >>> value, m, u, umax = Adam(0.1).step(np.float64([0.5, 4]), np.float64([1, -2]), zero, zero)
    >>> value.round(9).tolist(), umax
    ([0.900000063, -2.099999992], None)
    """

    beta1: float = parameter(codecs.number("beta1_", 0, 1, below=True), default=0.9)
    beta2: float = parameter(codecs.number("beta2_", 0, 1, below=True), default=0.999)
    epsilon: float = parameter(codecs.number("eps", 0), default=1e-8)

    def corrected_rate(self, time_step: int) -> float:
        """Return lr_t, the learning rate with both bias corrections, in float64."""
        return self.learning_rate * math.sqrt(1 - self.beta2**time_step) / (1 - self.beta1**time_step)

    def step(
        self,
        gradient: ArrayLike,
        value: ArrayLike,
        m: ArrayLike,
        u: ArrayLike,
        umax: ArrayLike | None = None,
        time_step: int = 1,
        *,
        out: tuple[Array, ...] | None = None,
        backend: BackendLike = None,
    ) -> tuple[Array, Array, Array, Array | None]:
        """Compute one step.

        Parameters
        ----------
        gradient, value : array_like
            As in :meth:`StochasticGradientDescent.step`.
        m, u : array_like
            Momentum and velocity, like ``value``.
        umax : array_like, optional
            Largest velocity so far, for AMSGrad.
        time_step : int, optional
            Number of this step, counted from 1.

        Returns
        -------
        value, m, u, umax : ndarray
            The last is ``None`` without ``umax``.
        """
        given, varying = (gradient, value, m, u, umax), {"time_step": time_step}
        new_value, new_m, new_u, *largest = call(self, "step", given, out=out, backend=backend, varying=varying)
        return new_value, new_m, new_u, largest[0] if largest else None


ALL = vector("shape")


class OptimizerStep(Problem):
    """A step on arrays of ``shape``, of any rank: gradient, values, and the moments that the optimizer keeps."""

    spec: Optimizer
    shape: Shape = parameter(codecs.dims("v"))

    squares: ClassVar[tuple[str, ...]] = ()
    """The moments that are means of squares, never negative."""

    @classmethod
    def from_call(cls, spec: Any, given: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Self, dict[int, Array]]:
        """Check that all arrays have one shape and dtype."""
        read: dict[str, Array] = {}
        flags = {}
        for (name, one), value in zip(cls.inputs.items(), given, strict=True):
            if one.when:
                flags[one.when] = value is not None
            if value is not None:
                read[name] = arrays.as_array(name, value)
                if read[name].dtype.type not in (np.float32, np.float64):
                    raise TypeError(
                        f"{name} has dtype {read[name].dtype}; it must be float32 (float64: reference only)"
                    )
            elif not one.when:
                raise TypeError(f"{name} is None; it must be an array (moments: of zeros before the first step)")
        like = read["value"]
        for name, array in read.items():
            if array.shape != like.shape:
                raise ShapeError(f"{name} has shape {array.shape} and value has shape {like.shape}; they must be equal")
            if array.dtype.type is not like.dtype.type:
                raise TypeError(f"{name} has dtype {array.dtype} and value has dtype {like.dtype}; they must be equal")
        positions = [position for position, value in enumerate(given) if value is not None]
        return cls(spec, like.shape, **flags, **options), dict(zip(positions, read.values(), strict=True))

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Take absolute values of the moments that hold squares."""
        squares = {name: np.abs(drawn[name]) for name in self.squares if name in drawn}
        return drawn | squares

    def legal_nonfinite(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Keep moments finite: a mean of an infinity and a number depends on how it is written."""
        kept = "gradient", "value"
        return {name: one if name in kept else np.where(np.isfinite(one), one, 1) for name, one in drawn.items()}

    def where(self, index: tuple[int, ...]) -> str:
        return "a parameter"


class SGDStep(
    OptimizerStep,
    method="step",
    inputs={"gradient": ALL, "value": ALL, "m": vector("shape", when="momentum")},
    results={"value": ALL, "m": vector("shape", when="momentum")},
):
    """A step of stochastic gradient descent."""

    spec: StochasticGradientDescent
    momentum: bool = parameter(codecs.flag("moving", "still"), default=False)


class RMSPropStep(
    OptimizerStep, method="step", inputs={"gradient": ALL, "value": ALL, "s": ALL}, results={"value": ALL, "s": ALL}
):
    """A step of RMSProp."""

    spec: RMSProp
    squares: ClassVar[tuple[str, ...]] = ("s",)


MOMENTS = {"m": ALL, "u": ALL, "umax": vector("shape", when="maximum")}


class AdamStep(
    OptimizerStep,
    method="step",
    inputs={"gradient": ALL, "value": ALL, **MOMENTS},
    results={"value": ALL, **MOMENTS},
):
    """A step of Adam: the ``time_step``-th, counted from 1."""

    spec: Adam
    maximum: bool = parameter(codecs.flag("amsgrad", "adam"), default=False)
    time_step: int = parameter(codecs.integer("t", low=1), default=1)
    squares: ClassVar[tuple[str, ...]] = ("u", "umax")


class Regularized(NamedTuple):
    """A gradient as the update uses it, and its two terms."""

    rescaled: Array
    penalty: Array

    @property
    def gradient(self) -> Array:
        """gr, the gradient as the update uses it."""
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


OF_GRADIENT = 3
"""Roundings of gr: the rescaled gradient, the penalty, their sum."""

OF_STEP = 16
"""Roundings of a step over its divisor, in units of 2**-24: root 6 and division 5, in Metal's fast math [doc]; epsilon
is added, 1; the rate, its product, and the subtraction of a step that is stored before, 4."""


def sgd_bound(problem: SGDStep, gradient: Array, value: Array, m: Array | None = None) -> tuple[ErrorBound, ...]:
    """Return the bounds of the update with every product and sum in absolute values.

    After gr there are two products, each with a rounded constant, and two sums; Nesterov's momentum has one more each.
    """
    spec, size = problem.spec, regularized(problem.spec, gradient, value).magnitude
    absolute = StochasticGradientDescent(abs(spec.learning_rate), abs(spec.momentum_scale), spec.use_nesterov_momentum)
    magnitudes = sgd_update(absolute, size, np.abs(value), None if m is None else np.abs(m), 1)
    roundings = OF_GRADIENT + (9 if spec.use_nesterov_momentum else 6)
    return tuple(ErrorBound.of_terms(magnitude, roundings) for magnitude in magnitudes)


@operation(StochasticGradientDescent, problem=SGDStep, bound=sgd_bound)
def sgd(problem: SGDStep, gradient: Array, value: Array, m: Array | None = None) -> tuple[Array, ...]:
    """v - lr gr, or the update with momentum of the module docstring."""
    spec = problem.spec
    return sgd_update(spec, regularized(spec, gradient, value).gradient, value, m, -1)


def sgd_update(
    spec: StochasticGradientDescent, gr: Array, value: Array, m: Array | None, sign: int
) -> tuple[Array, ...]:
    """Return the new values, and the new momentum where there is one, with ``sign`` for the minus of the update."""
    lr, scale = spec.learning_rate, spec.momentum_scale
    if m is None:
        return (value + sign * lr * gr,)
    if spec.use_nesterov_momentum:
        m = scale * m + gr
        return value + sign * lr * (gr + scale * m), m
    m = scale * m + lr * gr
    return value + sign * m, m


def mean_of_squares_bound(parts: Regularized, decay: float, before: Array) -> Array:
    """Return the largest error of ``decay before + (1 - decay) gr**2``: what gr has, squared, and five roundings.

    These are the square, both constants' products, and the sum, relative to the result, which nothing cancels in.
    """
    of_gr = gamma(OF_GRADIENT) * parts.magnitude
    squares = (np.abs(parts.gradient) + of_gr) ** 2
    return np.asarray(
        (1 - decay) * of_gr * (2 * np.abs(parts.gradient) + of_gr) + gamma(5) * (decay * before + (1 - decay) * squares)
    )


def step_bound(numerator: Array, of_numerator: Array, squares: Array, of_squares: Array, epsilon: float) -> Array:
    """Return the largest error of ``numerator / (sqrt(squares) + epsilon)``; infinite if the divisor may be 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        divisor, least = (np.sqrt(np.maximum(one, 0)) + epsilon for one in (squares, squares - of_squares))
        size = np.abs(numerator)
        error = (of_numerator + gamma(OF_STEP) * (size + of_numerator)) / least + size * (1 / least - 1 / divisor)
    return np.where(size + of_numerator == 0, 0, np.where(np.isnan(error), np.inf, error))


def rmsprop_bound(problem: RMSPropStep, gradient: Array, value: Array, s: Array) -> tuple[ErrorBound, ...]:
    """Return what the errors of gr and s make of the step; both may cancel, which the divisor then has, too."""
    spec, parts = problem.spec, regularized(problem.spec, gradient, value)
    _, new_s = rmsprop(problem, gradient, value, s)
    of_s = mean_of_squares_bound(parts, spec.decay, s)
    of_gr = gamma(OF_GRADIENT) * parts.magnitude
    step = abs(spec.learning_rate) * step_bound(parts.gradient, of_gr, new_s, of_s, spec.epsilon)
    return ErrorBound(gamma(1) * np.abs(value) + step), ErrorBound(of_s)


@operation(RMSProp, problem=RMSPropStep, bound=rmsprop_bound)
def rmsprop(problem: RMSPropStep, gradient: Array, value: Array, s: Array) -> tuple[Array, Array]:
    """s = decay s + (1 - decay) gr**2;   v - lr gr / (sqrt(s) + epsilon)."""
    spec = problem.spec
    gr = regularized(spec, gradient, value).gradient
    s = spec.decay * s + (1 - spec.decay) * gr**2
    with np.errstate(divide="ignore"):
        return value - spec.learning_rate * gr / (np.sqrt(s) + spec.epsilon), s


def adam_bound(problem: AdamStep, gradient: Array, value: Array, *moments: Array) -> tuple[ErrorBound, ...]:
    """As :func:`rmsprop_bound`; of m, after gr, the products, their constants and the sum: four roundings."""
    spec, rate = problem.spec, problem.spec.corrected_rate(problem.time_step)
    parts = regularized(spec, gradient, value)
    _, new_m, *_, divisor = adam(problem, gradient, value, *moments)
    of_m = gamma(OF_GRADIENT + 4) * (spec.beta1 * np.abs(moments[0]) + (1 - spec.beta1) * parts.magnitude)
    of_u = mean_of_squares_bound(parts, spec.beta2, moments[1])
    step = abs(rate) * step_bound(new_m, of_m, divisor, of_u, spec.epsilon)
    bounds = (gamma(1) * np.abs(value) + step, of_m, of_u, *([of_u] if problem.maximum else []))
    return tuple(map(ErrorBound, bounds))


@operation(Adam, problem=AdamStep, bound=adam_bound)
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
