"""Batch normalization's formulas, as the reference computes them, and how far float32 arithmetic may be from them.

The bounds count every rounding of an evaluation in the order of the formula, 3 ulp for a root and for a division, and
sums of at most 1,024 additions one after the other. They are absolute, and relative to nothing that could cancel.
"""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels import batch_normalization_problems as problems
from mpsref.kernels.batch_normalization_problems import Inputs
from mpsref.kernels.neuron import slope, value
from mpsref.kernels.neuron_curves import error
from mpsref.kernels.normalization import chain, growth
from mpsref.kernels.reference import UNIT_ROUNDOFF, ErrorBound


def statistics(problem: problems.Statistics, x: Array, *state: Array) -> tuple[Array, Array]:
    """Mean and m2 of the pixels of this call, from their distances to the first one; then merged with the state."""
    pixels = x.reshape(-1, problem.channels)
    b = len(pixels)
    shift = pixels[0]
    d = pixels - shift
    md = d.sum(axis=0) / b
    mean = shift + md
    rest = d - md
    m2 = np.maximum((rest**2).sum(axis=0) - rest.sum(axis=0) ** 2 / b, 0)  # the second term only removes rounding
    return merged(problem.count, state[0], state[1], b, mean, m2) if state else (mean, m2)


def merged(n: int, mean: Array, m2: Array, b: int, mean_b: Array, m2_b: Array) -> tuple[Array, Array]:
    """Return mean and m2 of n and b pixels together; n and b are never multiplied, which could overflow elsewhere."""
    delta = mean_b - mean
    share = b / (n + b)
    return mean + delta * share, m2 + m2_b + delta * delta * (n * share)


def normalized(problem: problems.BatchProblem, given: Inputs) -> tuple[Array, Array]:
    """Return r and xhat; an epsilon of 0 may make them infinite or NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        r = 1 / np.sqrt(given.variance + problem.spec.epsilon)
        return r, (given.x - given.mean) * r


def scaled(xhat: Array, given: Inputs) -> Array:
    """Return z = gamma * xhat + beta."""
    z = xhat if given.gamma is None else given.gamma * xhat
    return z if given.beta is None else z + given.beta


def upstream(problem: problems.BatchProblem, xhat: Array, given: Inputs) -> Array:
    """Return g' = g * f'(z), the gradient for the normalization's own result."""
    neuron = problem.spec.neuron
    return np.asarray(given.g if neuron is None else given.g * slope(neuron, scaled(xhat, given)))


def forward(problem: problems.Forward, *inputs: Array) -> Array:
    """y = f(gamma * (x - mean) * r + beta)."""
    given = problem.named(inputs)
    _, xhat = normalized(problem, given)
    z = scaled(xhat, given)
    return z if problem.spec.neuron is None else value(problem.spec.neuron, z)


def statistics_gradient(problem: problems.StatisticsGradient, *inputs: Array) -> tuple[Array, Array]:
    """dbeta = sum g', dgamma = sum g' * xhat, and what there was before."""
    given = problem.named(inputs)
    _, xhat = normalized(problem, given)
    g = upstream(problem, xhat, given)
    dbeta, dgamma = g.sum(axis=(0, 1, 2)), (g * xhat).sum(axis=(0, 1, 2))
    return (dbeta + given.dbeta, dgamma + given.dgamma) if problem.count else (dbeta, dgamma)


def gradient(problem: problems.Gradient, *inputs: Array) -> Array:
    """dx = gamma * r * (g' - dbeta / n - xhat * dgamma / n); without sums gamma * r * g'."""
    given = problem.named(inputs)
    r, xhat = normalized(problem, given)
    dz = upstream(problem, xhat, given)
    if problem.count:
        dz = dz - given.dbeta / problem.count - xhat * (given.dgamma / problem.count)
    return (r if given.gamma is None else given.gamma * r) * dz


def statistics_terms(problem: problems.Statistics, x: Array, *state: Array) -> tuple[ErrorBound, ErrorBound]:
    """Bounds of mean and m2; a state counts as that many pixels at its mean.

    A channel whose pixels are all equal must come out without any error.
    """
    u, n = UNIT_ROUNDOFF, problem.count + problem.pixels
    mean, m2 = statistics(problem, x, *state)
    variance = m2 / n
    distances = abs(x.reshape(-1, problem.channels) - mean)
    largest, total = distances.max(axis=0), distances.sum(axis=0)
    if state:
        largest, total = np.maximum(largest, abs(state[0] - mean)), total + problem.count * abs(state[0] - mean)
    h, merges = chain(n), (2 if state else 1) + math.ceil(math.log2(n))
    of_mean = 2 * growth(h + 8) * largest + merges * u * (abs(mean) + 17 * largest)
    of_variance = (
        growth(h + 2 * merges + 8) * variance
        + 16 * u * largest * total / n
        + 4 * math.sqrt(max(1, merges / 4)) * (of_mean + u * largest) * np.sqrt(variance)
    )
    m = np.asarray(largest > 0, np.float64)
    first, second = ErrorBound.of_error(of_mean), ErrorBound.of_error(n * of_variance)
    return first._replace(m=m), second._replace(m=m)


def forward_error(xhat: Array, given: Inputs) -> Array:
    """Bound of z."""
    shift = 0 if given.beta is None else abs(given.beta)
    return np.asarray(growth(18) * (abs(scaled(xhat, given._replace(beta=None))) + shift))


def forward_terms(problem: problems.Forward, *inputs: Array) -> ErrorBound:
    """Bound of z, times the largest slope of the neuron near it, and the neuron's own bound."""
    given, neuron = problem.named(inputs), problem.spec.neuron
    _, xhat = normalized(problem, given)
    of_z = forward_error(xhat, given)
    if neuron is None:
        return ErrorBound.of_error(of_z)
    z = scaled(xhat, given)
    steepest = np.maximum.reduce([abs(slope(neuron, z + sign * of_z)) for sign in (0, -1, 1)])
    return ErrorBound.of_error(steepest * of_z + error(neuron, "value", z))


def statistics_gradient_terms(problem: problems.StatisticsGradient, *inputs: Array) -> tuple[ErrorBound, ErrorBound]:
    """Sums of absolute terms; a state is one term more."""
    h = chain(problem.pixels + (problem.count > 0))

    given = problem.named(inputs)
    _, xhat = normalized(problem, given)
    g = abs(upstream(problem, xhat, given))
    first, second = g.sum(axis=(0, 1, 2)), (g * abs(xhat)).sum(axis=(0, 1, 2))
    if problem.count:
        first, second = first + abs(given.dbeta), second + abs(given.dgamma)
    return ErrorBound.of_error(growth(h + 4) * first), ErrorBound.of_error(growth(h + 20) * second)


def gradient_terms(problem: problems.Gradient, *inputs: Array) -> ErrorBound:
    """Forty roundings of the absolute terms."""
    given = problem.named(inputs)
    r, xhat = normalized(problem, given)
    size = abs(upstream(problem, xhat, given))
    if problem.count:
        size = size + (abs(given.dbeta) + abs(xhat * given.dgamma)) / problem.count
    scale = r if given.gamma is None else abs(given.gamma) * r
    return ErrorBound.of_error(np.asarray(growth(40) * scale * size))
