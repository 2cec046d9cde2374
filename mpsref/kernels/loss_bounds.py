"""How far float32 arithmetic may be from the losses of :mod:`mpsref.kernels.loss_formulas`.

The error of an element is ``gamma(24) * A``: A is the formula with its summands in absolute values, and 1 more for each
logarithm or sigmoid, whose error is absolute near their zeros. 24 roundings cover a smoothed label, a logarithm and a
division as Metal has them, and the factors of the result [math; costs of the functions: choice]. What softmax adds is
its own bound. Differences of two inputs are rounded once, relative to themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.loss_formulas import FORMULAS, evaluate, log_softmax, weighted
from mpsref.kernels.reference import ErrorBound, gamma

if TYPE_CHECKING:
    from mpsref.kernels.loss import Loss
    from mpsref.kernels.loss_problems import LossForward, LossGradient, LossProblem

PIECEWISE_POLYNOMIALS = "meanabsoluteerror", "meansquarederror", "hinge", "huber", "cosinedistance"
"""The loss types that round nothing where inputs are small integers."""

DERIVATIVES = "element", "slope", "label_slope"

Magnitude = Callable[["Loss", Array, Array], Array]
"""``magnitude(loss, y, t)``: A, from predictions and smoothed labels."""


def forward_terms(problem: LossForward, y: Array, t: Array, weights: Array | None = None) -> ErrorBound:
    """Return the errors of the elements, and what their sum adds: gamma(T + 6) for its T terms."""
    loss, (n, *size) = problem.spec, problem.source_shape
    factor = np.abs(weighted(problem, np.ones_like(y), weights))
    with np.errstate(all="ignore"):
        magnitude = factor * np.abs(evaluate(problem, "element", y, t))
        of_element = factor * error(loss, "element", y, t[..., : y.shape[3]])
    if loss.reduction == "none":
        return ErrorBound.of_error(of_element, _exact(problem, magnitude))
    magnitude, sums = (array.sum(axis=(1, 2, 3)) for array in (magnitude, of_element))
    if loss.type == "cosinedistance":
        magnitude = magnitude + abs(loss.weight)
    count, divisors = math.prod(size), problem.divisors(weights)
    if loss.reduce_across_batch:
        count, divisors = count * n, divisors[:1]
        magnitude, sums = magnitude.sum(keepdims=True), sums.sum(keepdims=True)
    sums = sums + gamma(count + 6) * magnitude
    limit = np.zeros(problem.result_shapes[0])
    limit[: len(sums), 0, 0, 0] = np.divide(sums, divisors, out=np.zeros_like(sums), where=divisors > 0)
    exact = np.ones(limit.shape, bool)
    exact[: len(sums), 0, 0, 0] = _exact(problem, magnitude) & (np.frexp(divisors)[0] % 0.5 == 0)
    return ErrorBound.of_error(limit, exact)


def gradient_terms(problem: LossGradient, *inputs: Array) -> ErrorBound:
    """Return the errors of the derivatives, times the absolute values of weights and source gradient."""
    derivative = "slope" if problem.method == "gradient" else "label_slope"
    g, y, t, weights = problem.named_inputs(inputs)
    factor = np.abs(weighted(problem, np.ones_like(y), weights))
    if g is not None:
        factor = factor * np.abs(problem.source_gradient(g))
    t = t[..., : y.shape[3]]
    with np.errstate(all="ignore"):
        magnitude = factor * np.abs(evaluate(problem, derivative, y, t))
        of_element = factor * error(problem.spec, derivative, y, t)
    extra = problem.result_shapes[0][3] - y.shape[3]
    beyond = ((0, 0), (0, 0), (0, 0), (0, extra))
    return ErrorBound.of_error(
        np.pad(of_element, beyond), np.pad(_exact(problem, magnitude), beyond, constant_values=True)
    )


def _exact(problem: LossProblem, magnitude: Array) -> Array:
    """Say where integers leave nothing to round: all terms are multiples of 2**-13, and their sum is below 2**11."""
    loss = problem.spec
    dyadic = (loss.weight * 64) % 1 == 0 and (loss.delta * 8) % 1 == 0
    return np.asarray((magnitude < 2.0**11) & (dyadic and loss.type in PIECEWISE_POLYNOMIALS))


def error(loss: Loss, derivative: str, y: Array, t: Array) -> Array:
    """Return the largest error of ``element``, ``slope`` or ``label_slope`` at each element.

    ``t`` are the labels before smoothing, with as many channels as ``y``.
    """
    a, b = FORMULAS[loss.type].smoothing(loss) if loss.label_smoothing > 0 else (1.0, 0.0)
    smoothed = np.abs(a * t) + b
    found = gamma(24) * MAGNITUDES[loss.type][DERIVATIVES.index(derivative)](loss, y, smoothed)
    if loss.type == "softmaxcrossentropy":
        found = found + _softmax_error(derivative, y, smoothed)
    return np.broadcast_to(a * found if derivative == "label_slope" else found, y.shape)


def _softmax_error(derivative: str, y: Array, t: Array) -> Array:
    """Return what the errors of softmax and log-softmax add."""
    channels = y.shape[-1]
    spread = y.max(axis=-1, keepdims=True) - y.min(axis=-1, keepdims=True)
    logarithm = log_softmax(y)
    if derivative == "slope":
        return np.asarray(np.exp(logarithm) * gamma(channels + 2 * spread + 24) + 2.0**-126)
    shifted = y - y.max(axis=-1, keepdims=True)
    of_logarithm = gamma(channels + spread + 16) + gamma(10) * (np.abs(shifted) + np.abs(shifted - logarithm))
    return np.asarray(of_logarithm * (t if derivative == "element" else 1))


# Of each loss type: A of the loss, of its derivative by y, and of that by t.
MAGNITUDES: dict[str, tuple[Magnitude, Magnitude, Magnitude]] = {
    "meanabsoluteerror": (
        lambda loss, y, t: np.abs(y - t),
        lambda loss, y, t: np.ones_like(y),
        lambda loss, y, t: np.ones_like(y),
    ),
    "meansquarederror": (
        lambda loss, y, t: (y - t) ** 2,
        lambda loss, y, t: 2 * np.abs(y - t),
        lambda loss, y, t: 2 * np.abs(y - t),
    ),
    "softmaxcrossentropy": (
        lambda loss, y, t: t * np.abs(log_softmax(y)),
        lambda loss, y, t: np.exp(log_softmax(y)) + t,
        lambda loss, y, t: np.abs(log_softmax(y)),
    ),
    "sigmoidcrossentropy": (
        lambda loss, y, t: np.maximum(y, 0) + np.abs(y) * t + 1 + np.log1p(np.exp(-np.abs(y))),
        lambda loss, y, t: 1 + t,
        lambda loss, y, t: np.abs(y),
    ),
    "categoricalcrossentropy": (
        lambda loss, y, t: t * (1 + np.abs(np.log(y))),
        lambda loss, y, t: t / y,
        lambda loss, y, t: 1 + np.abs(np.log(y)),
    ),
    "hinge": (
        lambda loss, y, t: 1 + np.abs((2 * t - 1) * y),
        lambda loss, y, t: np.abs(1 - 2 * t),
        lambda loss, y, t: 2 * np.abs(y),
    ),
    "huber": (
        lambda loss, y, t: _huber(np.abs(y - t), loss.delta),
        lambda loss, y, t: np.abs(y - t),
        lambda loss, y, t: np.abs(y - t),
    ),
    "cosinedistance": (
        lambda loss, y, t: np.abs(y * t),
        lambda loss, y, t: np.abs(t),
        lambda loss, y, t: np.abs(y),
    ),
    "log": (
        lambda loss, y, t: t * (1 + _size(y + loss.epsilon)) + np.abs(1 - t) * (1 + _size(1 - y + loss.epsilon)),
        lambda loss, y, t: np.abs(1 - t) / (1 - y + loss.epsilon) + t / (y + loss.epsilon),
        lambda loss, y, t: 2 + _size(y + loss.epsilon) + _size(1 - y + loss.epsilon),
    ),
    "kullbackleiblerdivergence": (
        lambda loss, y, t: t * (1 + _size(np.where(t == 0, 1, t)) + np.abs(y)),
        lambda loss, y, t: np.abs(t),
        lambda loss, y, t: 2 + _size(t) + np.abs(y),
    ),
}


def _size(v: Array) -> Array:
    return np.abs(np.log(v))


def _huber(size: Array, delta: float) -> Array:
    return np.where(size <= delta, 0.5 * size**2, 0.5 * delta**2 + delta * (size + delta))
