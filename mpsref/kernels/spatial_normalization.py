"""Spatial normalization: division by a power of the mean square over a spatial window, and the gradient.

With ``T(a, b) = delta + alpha / N * (sum of x**2 over the window of output (a, b))`` and the window centre ``c``:

Forward   ``y(a, b) = x(c) / T(a, b)**beta``
Gradient  ``dx(j) = g(j - o) T(j - o)**-beta
          - 2 alpha beta / N * x(j) * sum over the windows that read j of  g(a, b) x(c) T(a, b)**(-beta - 1)``

Windows are those of :mod:`mpsref.kernels.normalization_windows`: pixels outside the image are zeros, and N
includes them.

The gradient is the exact derivative of the forward pass. The header of Apple's gradient kernel has another expression,
``T(j)**-beta (g(j) - 2 alpha beta x(j) / T(j) * sum of g x)``, with T of the centre as a factor of the sum and without
the factor 1 / N, which is not the derivative for windows of more than one pixel [choice spatial-gradient].

Source: MPSCNNSpatialNormalization, MPSCNNSpatialNormalizationGradient in ``MPSCNNNormalization.h``; forward, parameters
and defaults [doc], the divisor at the border and even windows [obs windowed-even], gradient [math].
"""

from __future__ import annotations

import numpy as np

from mpsref import codecs
from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import PairLike
from mpsref.codecs import parameter
from mpsref.kernels.normalization import over_power
from mpsref.kernels.normalization_windows import (
    WindowedForward,
    WindowedGradient,
    WindowedNormalization,
    WindowedProblem,
)
from mpsref.kernels.reference import UNIT_ROUNDOFF, ErrorBound, functions
from mpsref.kernels.reference import gamma as growth  # gamma is a scale here
from mpsref.operations import operation


class SpatialNormalization(WindowedNormalization):
    """Spatial normalization.

    Parameters
    ----------
    kernel_size : int or tuple of int
        Size of the window, at least 1.
    alpha, beta, delta : float, optional
        Weight of the mean of squares, at least 0; exponent; constant added to the base. For a base that is 0 or
        negative, the power is that of IEEE 754.
    offset : int or tuple of int, optional
        Source pixel of the first output.

    Examples
    --------
    >>> x = np.array([[1, 2, 0], [0, 1, 3], [2, 0, 1]], float).reshape(1, 3, 3, 1)
    >>> norm = SpatialNormalization(kernel_size=2, alpha=4, beta=1)
    >>> norm.forward(x)[0, :, :, 0].round(4).tolist()
    [[0.5, 0.3333, 0.0], [0.0, 0.1429, 0.2], [0.4, 0.0, 0.0833]]
    """

    alpha: float = parameter(codecs.real("alpha", low=0), default=1.0)
    beta: float = parameter(codecs.real("beta"), default=5.0)
    delta: float = parameter(codecs.real("delta"), default=1.0)
    offset: PairLike = parameter(codecs.pair("o"), default=(0, 0))


class SpatialForward(WindowedForward):
    """``forward`` of spatial normalization."""

    spec: SpatialNormalization


class SpatialGradient(WindowedGradient):
    """``gradient`` of spatial normalization."""

    spec: SpatialNormalization


def bases(problem: SpatialForward | SpatialGradient, x: Array) -> Array:
    """T(a, b) = delta + alpha / N * sum of squares."""
    spec = problem.spec
    t = np.zeros(problem.output_shape, x.dtype)
    for window in problem.windows():
        window.output(t)[...] = spec.delta + spec.alpha / spec.taps * (window.of(x) ** 2).sum((1, 2), keepdims=True)
    return t


def base_error(problem: SpatialForward | SpatialGradient, x: Array) -> tuple[Array, Array]:
    """Return T and its relative error e: a sum of N squares, a product, an addition, and what the power adds."""
    spec, t = problem.spec, bases(problem, x)
    squares = t - spec.delta
    return t, growth(spec.taps + 4 + functions().logarithm_of_base) * (abs(spec.delta) + np.abs(squares)) / np.abs(t)


def forward_bound(problem: SpatialForward, x: Array) -> ErrorBound:
    """|y| (|beta| e + 48 u): the propagated error of T, the power, the division, and ten roundings."""
    beta, own = problem.spec.beta, functions().power + functions().quotient + 10
    t, e = base_error(problem, x)
    y = np.abs(problem.centres(x) * over_power(t, beta))
    return ErrorBound(y * (abs(beta) * e + own * UNIT_ROUNDOFF))


@operation(SpatialNormalization, problem=SpatialForward, bound=forward_bound)
def forward(problem: SpatialForward, x: Array) -> Array:
    """y(a, b) = x(c) / T(a, b)**beta."""
    return np.asarray(problem.centres(x) * over_power(bases(problem, x), problem.spec.beta))


def gradient_bound(problem: SpatialGradient, g: Array, x: Array) -> ErrorBound:
    """(Sum of |terms|) (G(N + 32 + power) + (|beta| + 1) e), e being the maximum over the outputs involved."""
    spec = problem.spec
    t, e = base_error(problem, x)
    g, x = np.abs(g), np.abs(x)
    share = 2 * abs(spec.alpha * spec.beta) / spec.taps * g * problem.centres(x) * over_power(t, spec.beta + 1)
    magnitude = problem.at_centres(g * over_power(t, spec.beta))
    for window in problem.windows():
        window.of(magnitude)[...] += window.of(x) * window.output(share)
    return ErrorBound(
        magnitude * (growth(spec.taps + 32 + functions().power) + (abs(spec.beta) + 1) * largest_around(problem, e))
    )


@operation(SpatialNormalization, problem=SpatialGradient, bound=gradient_bound)
def gradient(problem: SpatialGradient, g: Array, x: Array) -> Array:
    """dx(c) += g T**-beta; dx(each pixel of the window) -= 2 alpha beta / N * x g x(c) T**(-beta - 1)."""
    spec, t = problem.spec, bases(problem, x)
    share = 2 * spec.alpha * spec.beta / spec.taps * g * problem.centres(x) * over_power(t, spec.beta + 1)
    dx = problem.at_centres(g * over_power(t, spec.beta))
    for window in problem.windows():
        window.of(dx)[...] -= window.of(x) * window.output(share)
    return dx


def largest_around(problem: WindowedProblem, values: Array) -> Array:
    """Return, for each source pixel, the maximum of ``values`` over the outputs that its gradient depends on."""
    largest = problem.at_centres(values)
    for window in problem.windows():
        part = window.of(largest)
        np.maximum(part, window.output(values), out=part)
    return largest
