"""The losses of :mod:`mpsref.kernels.loss` for compiled code, except softmax, which is a function of whole pixels.

Each is a class with the parameters as its fields, which selects three formulas while compiling, of a prediction and a
smoothed label: the loss, its slope by the prediction, and by the label. All is float32. One kernel for all of them
would take as long to compile as all of these together, at the first use of any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mpsref.kernels.loss import Loss
from mpsref.operations import cached_in_problem
from mpsref_cpu.compiling import inlined
from mpsref_cpu.simd.elementary import exp_below, log, log1p_below, quotient, sigmoid

real = np.float32
ZERO, HALF, ONE, TWO, NAN = map(real, (0, 0.5, 1, 2, np.nan))

ELEMENT, SLOPE, LABEL_SLOPE = range(3)
"""The three functions: the loss, its slope by the prediction, and by the smoothed label."""


@inlined
def times(t, factor):
    """Return t * factor, 0 where t is 0."""
    return ZERO if t == ZERO else t * factor


@inlined
def _over(t, divisor):
    """Return t / divisor, 0 where t is 0."""
    return ZERO if t == ZERO else quotient(t, divisor)


@inlined
def _clamped(value, most):
    return most if value > most else (-most if value < -most else value)


@inlined
def _order(a, b):
    """Return 1 if a is larger than b, -1 if it is smaller, else 0."""
    return ONE if a > b else (-ONE if a < b else ZERO)


@inlined
def _huber(size, delta):
    return HALF * size * size if size <= delta else HALF * delta * delta + delta * (size - delta)


@inlined
def _is_active(y, t):
    """Return whether a hinge loss is above 0."""
    return ONE + (ONE - TWO * t) * y > ZERO


@inlined
def _above(value):
    return value if value > ZERO else ZERO


Formula = Callable[[Any, Any, Any], Any]
"""Of the parameters, a prediction and a smoothed label."""


class Parameters(NamedTuple):
    """The parameters of a loss; the smoothed label is ``a * t + b``. Subclasses have the formulas."""

    a: Any
    b: Any
    epsilon: Any
    delta: Any


class SoftMaxCrossEntropy(Parameters):
    """Computed by :mod:`mpsref_cpu.training.loss_softmax`."""


class MeanAbsoluteError(Parameters):
    formulas = (
        lambda f, y, t: abs(y - t),
        lambda f, y, t: _order(y, t),
        lambda f, y, t: _order(t, y),
    )


class MeanSquaredError(Parameters):
    formulas = (
        lambda f, y, t: (y - t) * (y - t),
        lambda f, y, t: TWO * (y - t),
        lambda f, y, t: TWO * (t - y),
    )


class SigmoidCrossEntropy(Parameters):
    formulas = (
        lambda f, y, t: _above(y) - y * t + log1p_below(exp_below(-abs(y))),
        lambda f, y, t: sigmoid(y) - t,
        lambda f, y, t: -y,
    )


class CategoricalCrossEntropy(Parameters):
    formulas = (
        lambda f, y, t: -times(t, log(y)),
        lambda f, y, t: -_over(t, y),
        lambda f, y, t: -log(y),
    )


class Hinge(Parameters):
    formulas = (
        lambda f, y, t: _above(ONE - (TWO * t - ONE) * y),
        lambda f, y, t: ONE - TWO * t if _is_active(y, t) else ZERO,
        lambda f, y, t: -TWO * y if _is_active(y, t) else ZERO,
    )


class Huber(Parameters):
    formulas = (
        lambda f, y, t: _huber(abs(y - t), f.delta),
        lambda f, y, t: _clamped(y - t, f.delta),
        lambda f, y, t: _clamped(t - y, f.delta),
    )


class CosineDistance(Parameters):
    formulas = (
        lambda f, y, t: -y * t,
        lambda f, y, t: -t,
        lambda f, y, t: -y,
    )


class Log(Parameters):
    formulas = (
        lambda f, y, t: -times(t, log(y + f.epsilon)) - times(ONE - t, log(ONE - y + f.epsilon)),
        lambda f, y, t: _over(ONE - t, ONE - y + f.epsilon) - _over(t, y + f.epsilon),
        lambda f, y, t: log(ONE - y + f.epsilon) - log(y + f.epsilon),
    )


class KullbackLeiblerDivergence(Parameters):
    formulas = (
        lambda f, y, t: times(t, log(t) - y),
        lambda f, y, t: -t,
        lambda f, y, t: log(t) + ONE - y,
    )


FORMS = {form.__name__.lower(): form for form in Parameters.__subclasses__()}


@cached_in_problem
def compiled_form(loss: Loss) -> Parameters:
    """Return a loss for compiled code."""
    a, b = loss.smoothing
    return FORMS[loss.type](*map(real, (a, b, loss.epsilon, loss.delta)))


def loop_of(formula: Formula) -> Callable[..., None]:
    """Return compiled code that evaluates a formula for some elements; NaN where a prediction or a label is."""
    compiled_formula = inlined(formula)

    @inlined
    def loop(values, f, y, t, at, count):
        for i in range(np.uintp(count)):
            prediction, label = y[at + i], t[at + i]
            found = compiled_formula(f, prediction, f.a * label + f.b)
            values[i] = found if (prediction == prediction) & (label == label) else NAN

    return loop
