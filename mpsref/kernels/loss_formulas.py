"""The ten losses, element by element: the loss l(y, t), and its derivatives by prediction y and by label t.

``t'`` is the smoothed label; only two losses have one. ``e = y - t``; ``lsm`` is log-softmax over the channels of a
pixel. A product with a factor t or 1 - t that is 0 is 0, whatever the logarithm [choice].

Source: ``MPSCNNLoss.h``, loss and derivative by y [doc], derivative by t [math]. Where the text contradicts itself or
its own gradient, the formula is the consistent one of TensorFlow's losses of the same names [choice]: labels of the
hinge loss are mapped to -1 and +1 in both directions; Huber's square is of the error; the softmax gradient is
``softmax(y) - t``; the Kullback-Leibler gradient is ``-t``; the sign of 0 is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mpsref.arguments.arrays import Array

if TYPE_CHECKING:
    from mpsref.kernels.loss import Loss
    from mpsref.kernels.loss_problems import LossProblem


class LossFormula:
    """One loss type. Methods take predictions, smoothed labels and the spec, and return an array like y."""

    over_channels = False
    """Whether a value depends on all channels of its pixel."""

    def smoothing(self, loss: Loss) -> tuple[float, float]:
        """Return (a, b) of the smoothed label ``a * t + b``."""
        return 1.0, 0.0

    def element(self, y: Array, t: Array, loss: Loss) -> Any:
        """Return l."""
        raise NotImplementedError

    def slope(self, y: Array, t: Array, loss: Loss) -> Any:
        """Return dl/dy."""
        raise NotImplementedError

    def label_slope(self, y: Array, t: Array, loss: Loss) -> Any:
        """Return dl/dt', which the chain rule multiplies by a."""
        raise NotImplementedError


class MeanAbsoluteError(LossFormula):
    """abs(e)."""

    def element(self, y: Array, t: Array, loss: Loss) -> Any:
        return np.abs(y - t)

    def slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return np.sign(y - t)

    def label_slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return np.sign(t - y)


class MeanSquaredError(LossFormula):
    """e**2."""

    def element(self, y: Array, t: Array, loss: Loss) -> Any:
        return (y - t) ** 2

    def slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return 2 * (y - t)

    def label_slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return 2 * (t - y)


class SoftMaxCrossEntropy(LossFormula):
    """-t' lsm(y); y are logits.

    The derivative is exact where the weights of a pixel are equal and its labels sum to 1.
    """

    over_channels = True

    def smoothing(self, loss: Loss) -> tuple[float, float]:
        return 1 - loss.label_smoothing, loss.label_smoothing / loss.number_of_classes

    def element(self, y: Array, t: Array, loss: Loss) -> Any:
        return -times(t, log_softmax(y))

    def slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return np.exp(log_softmax(y)) - t

    def label_slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return -log_softmax(y)


class SigmoidCrossEntropy(LossFormula):
    """-t' log s - (1 - t') log(1 - s), s = sigmoid(y), written so that nothing overflows."""

    def smoothing(self, loss: Loss) -> tuple[float, float]:
        return 1 - loss.label_smoothing, 0.5 * loss.label_smoothing

    def element(self, y: Array, t: Array, loss: Loss) -> Any:
        return np.maximum(y, 0) - y * t + np.log1p(np.exp(-np.abs(y)))

    def slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return sigmoid(y) - t

    def label_slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return -y


class CategoricalCrossEntropy(LossFormula):
    """-t log y; y are probabilities."""

    def element(self, y: Array, t: Array, loss: Loss) -> Any:
        return -times(t, np.log(y))

    def slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return -over(t, y)

    def label_slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return -np.log(y)


class Hinge(LossFormula):
    """max(1 - (2t - 1) y, 0), with labels 0 and 1; at the kink the slope is 0."""

    def element(self, y: Array, t: Array, loss: Loss) -> Any:
        return np.maximum(1 - (2 * t - 1) * y, 0)

    def slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return np.where(1 + (1 - 2 * t) * y > 0, 1 - 2 * t, 0)

    def label_slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return np.where(1 + (1 - 2 * t) * y > 0, -2 * y, 0)


class Huber(LossFormula):
    """e**2 / 2 up to abs(e) = delta, then a line of slope delta."""

    def element(self, y: Array, t: Array, loss: Loss) -> Any:
        size, delta = np.abs(y - t), loss.delta
        return np.where(size <= delta, 0.5 * size**2, 0.5 * delta**2 + delta * (size - delta))

    def slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return np.clip(y - t, -loss.delta, loss.delta)

    def label_slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return np.clip(t - y, -loss.delta, loss.delta)


class CosineDistance(LossFormula):
    """-y t: the loss of an image is 1 plus the sum of these, one number."""

    def element(self, y: Array, t: Array, loss: Loss) -> Any:
        return -y * t

    def slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return -t

    def label_slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return -y


class Log(LossFormula):
    """-t log(y + eps) - (1 - t) log(1 - y + eps)."""

    def element(self, y: Array, t: Array, loss: Loss) -> Any:
        return -times(t, np.log(y + loss.epsilon)) - times(1 - t, np.log(1 - y + loss.epsilon))

    def slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return over(1 - t, 1 - y + loss.epsilon) - over(t, y + loss.epsilon)

    def label_slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return np.log(1 - y + loss.epsilon) - np.log(y + loss.epsilon)


class KullbackLeiblerDivergence(LossFormula):
    """t (log t - y); y are logarithms of probabilities."""

    def element(self, y: Array, t: Array, loss: Loss) -> Any:
        return times(t, np.log(t) - y)

    def slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return -t

    def label_slope(self, y: Array, t: Array, loss: Loss) -> Any:
        return np.log(t) + 1 - y


def times(t: Array, factor: Array) -> Any:
    """t * factor, and 0 where t is 0."""
    return np.where(t == 0, 0, t * factor)


def over(t: Array, divisor: Array) -> Array:
    """t / divisor, and 0 where t is 0."""
    return np.where(t == 0, 0, t / divisor)


def sigmoid(y: Array) -> Array:
    """1 / (1 + exp(-y)), without overflow."""
    e = np.exp(-np.abs(y))
    return np.asarray(np.where(y >= 0, 1, e) / (1 + e))


def log_softmax(y: Array) -> Array:
    """Logarithm of softmax over the last axis, with the largest value subtracted first."""
    shifted = y - y.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


FORMULAS: Final[dict[str, LossFormula]] = {
    formula.__name__.lower(): formula()
    for formula in (
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
"""By the lower-case name, in the order of Apple's numbers."""

LOSS_TYPES = tuple(FORMULAS)


def evaluate(problem: LossProblem, derivative: str, y: Array, t: Array) -> Array:
    """Return ``element``, ``slope`` or ``label_slope`` of the formula, where y or t is NaN NaN."""
    formula, loss = problem.formula, problem.spec
    t = t[..., : y.shape[3]]
    a, b = formula.smoothing(loss) if loss.label_smoothing > 0 else (1, 0)
    unknown: Array = np.isnan(y) | np.isnan(t)
    if formula.over_channels:
        unknown = np.any(unknown, axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        value = getattr(formula, derivative)(y, a * t + b, loss)
        return np.where(unknown, np.nan, a * value if derivative == "label_slope" else value)


def weighted(problem: LossProblem, values: Array, weights: Array | None) -> Array:
    """W times values."""
    return np.asarray(problem.spec.weight * (values if weights is None else weights * values))
