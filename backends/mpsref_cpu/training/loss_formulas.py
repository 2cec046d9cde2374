"""The losses of :mod:`mpsref.kernels.loss` for compiled code, except softmax, which is a function of whole pixels.

Each is a class with the parameters as its fields, which selects three functions while compiling, of a prediction and a
smoothed label: the loss, its slope by the prediction, and by the label. All is float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref.kernels.loss import Loss
from mpsref.operations import planned
from mpsref_cpu.compiling import generic, inlined
from mpsref_cpu.simd.elementary import exp_below, log, log1p_below, quotient, sigmoid
from mpsref_cpu.simd.vectors import load_vector, plus, store_vector, zeros

real = np.float32
ZERO, HALF, ONE, TWO, NAN = map(real, (0, 0.5, 1, 2, np.nan))


LANES = 32
"""Number of partial sums of :func:`total_of`."""


class Parameters(NamedTuple):
    """The fields of every loss; the smoothed label is ``a * t + b``."""

    a: Any
    b: Any
    epsilon: Any
    delta: Any


ELEMENT, SLOPE, LABEL_SLOPE = range(3)
"""The three functions: the loss, its slope by the prediction, and by the smoothed label."""


@generic
def times(t, factor):
    """Return t * factor, 0 where t is 0."""

    def product(t, factor):
        return ZERO if t == ZERO else t * factor

    return product


@generic
def over(t, divisor):
    """Return t / divisor, 0 where t is 0."""

    def ratio(t, divisor):
        return ZERO if t == ZERO else quotient(t, divisor)

    return ratio


@generic
def clamped(value, most):
    """Return a value in [-most, most]."""

    def between(value, most):
        return most if value > most else (-most if value < -most else value)

    return between


class MeanAbsoluteError(Parameters):
    @staticmethod
    def element(f: Any, y: Any, t: Any) -> Any:
        return abs(y - t)

    @staticmethod
    def slope(f: Any, y: Any, t: Any) -> Any:
        return ONE if y > t else (-ONE if y < t else ZERO)

    @staticmethod
    def label_slope(f: Any, y: Any, t: Any) -> Any:
        return ONE if t > y else (-ONE if t < y else ZERO)


class MeanSquaredError(Parameters):
    @staticmethod
    def element(f: Any, y: Any, t: Any) -> Any:
        return (y - t) * (y - t)

    @staticmethod
    def slope(f: Any, y: Any, t: Any) -> Any:
        return TWO * (y - t)

    @staticmethod
    def label_slope(f: Any, y: Any, t: Any) -> Any:
        return TWO * (t - y)


class SoftMaxCrossEntropy(Parameters):
    """Computed by :mod:`mpsref_cpu.training.loss_softmax`."""


class SigmoidCrossEntropy(Parameters):
    @staticmethod
    def element(f: Any, y: Any, t: Any) -> Any:
        return (y if y > ZERO else ZERO) - y * t + log1p_below(exp_below(-abs(y)))

    @staticmethod
    def slope(f: Any, y: Any, t: Any) -> Any:
        return sigmoid(y) - t

    @staticmethod
    def label_slope(f: Any, y: Any, t: Any) -> Any:
        return -y


class CategoricalCrossEntropy(Parameters):
    @staticmethod
    def element(f: Any, y: Any, t: Any) -> Any:
        return -times(t, log(y))

    @staticmethod
    def slope(f: Any, y: Any, t: Any) -> Any:
        return -over(t, y)

    @staticmethod
    def label_slope(f: Any, y: Any, t: Any) -> Any:
        return -log(y)


class Hinge(Parameters):
    @staticmethod
    def element(f: Any, y: Any, t: Any) -> Any:
        distance = ONE - (TWO * t - ONE) * y
        return distance if distance > ZERO else ZERO

    @staticmethod
    def slope(f: Any, y: Any, t: Any) -> Any:
        return ONE - TWO * t if ONE + (ONE - TWO * t) * y > ZERO else ZERO

    @staticmethod
    def label_slope(f: Any, y: Any, t: Any) -> Any:
        return -TWO * y if ONE + (ONE - TWO * t) * y > ZERO else ZERO


class Huber(Parameters):
    @staticmethod
    def element(f: Any, y: Any, t: Any) -> Any:
        size = abs(y - t)
        line = HALF * f.delta * f.delta + f.delta * (size - f.delta)
        return HALF * size * size if size <= f.delta else line

    @staticmethod
    def slope(f: Any, y: Any, t: Any) -> Any:
        return clamped(y - t, f.delta)

    @staticmethod
    def label_slope(f: Any, y: Any, t: Any) -> Any:
        return clamped(t - y, f.delta)


class CosineDistance(Parameters):
    @staticmethod
    def element(f: Any, y: Any, t: Any) -> Any:
        return -y * t

    @staticmethod
    def slope(f: Any, y: Any, t: Any) -> Any:
        return -t

    @staticmethod
    def label_slope(f: Any, y: Any, t: Any) -> Any:
        return -y


class Log(Parameters):
    @staticmethod
    def element(f: Any, y: Any, t: Any) -> Any:
        return -times(t, log(y + f.epsilon)) - times(ONE - t, log(ONE - y + f.epsilon))

    @staticmethod
    def slope(f: Any, y: Any, t: Any) -> Any:
        return over(ONE - t, ONE - y + f.epsilon) - over(t, y + f.epsilon)

    @staticmethod
    def label_slope(f: Any, y: Any, t: Any) -> Any:
        return log(ONE - y + f.epsilon) - log(y + f.epsilon)


class KullbackLeiblerDivergence(Parameters):
    @staticmethod
    def element(f: Any, y: Any, t: Any) -> Any:
        return times(t, log(t) - y)

    @staticmethod
    def slope(f: Any, y: Any, t: Any) -> Any:
        return -t

    @staticmethod
    def label_slope(f: Any, y: Any, t: Any) -> Any:
        return log(t) + ONE - y


@inlined
def total_of(values, at, count, lanes):
    """Return the sum of ``count`` float32 values: LANES partial sums, stored in ``lanes`` and added up in float64."""
    sums = zeros(LANES)
    whole = at + np.uintp(count // LANES * LANES)
    for i in range(at, whole, np.uintp(LANES)):
        sums = plus(sums, load_vector(values, i, sums))
    store_vector(lanes, 0, sums)
    total = np.float64(0)
    for k in range(np.uintp(LANES)):
        total += lanes[k]
    for i in range(whole, at + np.uintp(count)):
        total += values[i]
    return total


FORMS = {
    kind.__name__.lower(): kind
    for kind in (
        MeanAbsoluteError,
        MeanSquaredError,
        SoftMaxCrossEntropy,
        SigmoidCrossEntropy,
        CategoricalCrossEntropy,
        Hinge,
        Huber,
        CosineDistance,
        Log,
        KullbackLeiblerDivergence,
    )
}


@planned
def compiled_form(loss: Loss) -> Parameters:
    """Return a loss for compiled code."""
    a, b = loss.smoothing
    return FORMS[loss.type](*map(real, (a, b, loss.epsilon, loss.delta)))


@generic
def element(f, y, t):
    """Return the loss of a prediction and a smoothed label."""
    return f.instance_class.element


@generic
def slope(f, y, t):
    """Return its derivative by the prediction."""
    return f.instance_class.slope


@generic
def label_slope(f, y, t):
    """Return its derivative by the smoothed label."""
    return f.instance_class.label_slope


@inlined
def known(value, y, t):
    """Return ``value``, NaN where the prediction or the label is."""
    return value if (y == y) & (t == t) else NAN
