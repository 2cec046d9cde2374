"""The losses of :mod:`mpsref.kernels.loss` for compiled code, but for softmax, which looks at whole pixels.

Each is a type with the parameters as its fields, so that the compiler knows which it is, and three functions of it, a
prediction and a smoothed label: the loss, its slope by the prediction and its slope by the label. All is float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from mpsref.kernels.loss import Loss
from mpsref.operations import planned
from mpsref_cpu.compiling import inlined
from mpsref_cpu.simd.elementary import exp, log, log1p, quotient, sigmoid
from mpsref_cpu.simd.vectors import load_lanes, plus, put, zeros

real = np.float32
ZERO, HALF, ONE, TWO, NAN = map(real, (0, 0.5, 1, 2, np.nan))


LANES = 32
"""Sums that are carried along at once."""


class Parameters(NamedTuple):
    """The fields of every loss; the smoothed label is ``a * t + b``."""

    a: Any
    b: Any
    epsilon: Any
    delta: Any


ELEMENT, SLOPE, LABEL_SLOPE = range(3)
"""What may be asked for: the loss, its slope by the prediction, and by the smoothed label."""


def times(t: Any, factor: Any) -> Any:
    """Return t * factor, 0 where t is 0."""
    raise NotImplementedError("for compiled code only")


@overload(times)
def _times(t: Any, factor: Any) -> Any:
    def product(t: Any, factor: Any) -> Any:
        return ZERO if t == ZERO else t * factor

    return product


def over(t: Any, divisor: Any) -> Any:
    """Return t / divisor, 0 where t is 0."""
    raise NotImplementedError("for compiled code only")


@overload(over)
def _over(t: Any, divisor: Any) -> Any:
    def ratio(t: Any, divisor: Any) -> Any:
        return ZERO if t == ZERO else quotient(t, divisor)

    return ratio


def clamped(value: Any, most: Any) -> Any:
    """Return a value in [-most, most]."""
    raise NotImplementedError("for compiled code only")


@overload(clamped)
def _clamped(value: Any, most: Any) -> Any:
    def between(value: Any, most: Any) -> Any:
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
        return (y if y > ZERO else ZERO) - y * t + log1p(exp(-abs(y)))

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
def total_of(values: Any, at: Any, count: int, lanes: Any) -> float:
    """Return the sum of ``count`` float32 values: LANES chains side by side, added up in float64 (with memory)."""
    sums = zeros(LANES)
    whole = at + np.uintp(count // LANES * LANES)
    for i in range(at, whole, np.uintp(LANES)):
        sums = plus(sums, load_lanes(values, i, sums))
    put(lanes, 0, sums)
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
    """Return a loss as compiled code takes it."""
    a, b = loss.smoothing
    return FORMS[loss.type](*map(real, (a, b, loss.epsilon, loss.delta)))


def element(f: Any, y: Any, t: Any) -> Any:
    """Return the loss of a prediction and a smoothed label."""
    raise NotImplementedError("for compiled code only")


def slope(f: Any, y: Any, t: Any) -> Any:
    """Return its derivative by the prediction."""
    raise NotImplementedError("for compiled code only")


def label_slope(f: Any, y: Any, t: Any) -> Any:
    """Return its derivative by the smoothed label."""
    raise NotImplementedError("for compiled code only")


@overload(element)
def _element(f: Any, y: Any, t: Any) -> Any:
    return f.instance_class.element


@overload(slope)
def _slope(f: Any, y: Any, t: Any) -> Any:
    return f.instance_class.slope


@overload(label_slope)
def _label_slope(f: Any, y: Any, t: Any) -> Any:
    return f.instance_class.label_slope


@inlined
def known(value: Any, y: Any, t: Any) -> Any:
    """Return ``value``, NaN where the prediction or the label is."""
    return value if (y == y) & (t == t) else NAN
