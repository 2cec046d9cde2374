"""Local contrast normalization: subtraction of a local mean, division by a power of a local variance; the gradient.

With the mean ``M`` and the variance ``V`` over the window of output (a, b), its centre ``c``, ``T = delta + alpha V``:

Forward   ``y(a, b) = pm + ps (x(c) - p0 M) / T**beta``
Gradient  ``dx(j) = ps (g(j - o) T(j - o)**-beta - sum over the windows that read j of g(a, b) (p0 / N * T**-beta
          + 2 alpha beta / N * (x(c) - p0 M) T**(-beta - 1) (x(j) - M)))``

Windows are those of :mod:`mpsref.kernels.normalization_windows`: pixels outside the image are zeros, which are
included in M, in V (each adds M**2) and in N. V is computed from centred values and cannot be negative [choice
contrast-centred].

The gradient is the exact derivative of the forward pass. The header of Apple's gradient kernel has another expression,
``ps T(j)**-beta (g(j) - sum of g(k) (p0 / N + 2 alpha beta / N * (x(k) - 1) (x(j) - p0 M(j)) / T(j)))``, with T of the
centre as a factor of the sum, j and k exchanged in the last two factors, and 1 in place of the mean, which is not the
derivative for windows of more than one pixel [choice contrast-gradient].

Source: MPSCNNLocalContrastNormalization, MPSCNNLocalContrastNormalizationGradient in ``MPSCNNNormalization.h``;
forward, parameters and defaults [doc], mean and variance at the border [obs contrast-outside], gradient [math].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpsref import codecs
from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import PairLike
from mpsref.codecs import parameter
from mpsref.kernels.normalization import over_power
from mpsref.kernels.normalization_windows import WindowedForward, WindowedGradient, WindowedNormalization
from mpsref.kernels.reference import UNIT_ROUNDOFF, ErrorBound, functions
from mpsref.kernels.reference import gamma as growth  # gamma is a scale here
from mpsref.kernels.spatial_normalization import largest_around
from mpsref.operations import operation

u = UNIT_ROUNDOFF


class LocalContrastNormalization(WindowedNormalization):
    """Local contrast normalization. With the default ``alpha=0`` it subtracts a local mean and scales.

    Parameters
    ----------
    kernel_size : int or tuple of int
        Size of the window, at least 1.
    alpha, beta, delta : float, optional
        Weight of the variance; exponent; constant added to the base. For a base that is 0 or negative, the power is
        that of IEEE 754.
    p0, pm, ps : float, optional
        Weight of the subtracted mean; constant added to the result; factor of the result.
    offset : int or tuple of int, optional
        Source pixel of the first output.

    Examples
    --------
    >>> x = np.arange(1, 17, dtype=np.float32).reshape(1, 4, 4, 1)
    >>> round(float(LocalContrastNormalization(kernel_size=3).forward(x)[0, 0, 0, 0]), 6)
    -17.777779
    """

    alpha: float = parameter(codecs.real("alpha"), default=0.0)
    beta: float = parameter(codecs.real("beta"), default=0.5)
    delta: float = parameter(codecs.real("delta"), default=1 / 1024)
    p0: float = parameter(codecs.real("p0="), default=1.0)
    pm: float = parameter(codecs.real("pm"), default=0.0)
    ps: float = parameter(codecs.real("ps"), default=1.0)
    offset: PairLike = parameter(codecs.pair("o"), default=(0, 0))


class LocalContrastForward(WindowedForward):
    """``forward`` of local contrast normalization."""

    spec: LocalContrastNormalization


class LocalContrastGradient(WindowedGradient):
    """``gradient`` of local contrast normalization."""

    spec: LocalContrastNormalization


class Contrast(NamedTuple):
    """Mean, variance and base of the power of each output, (N, OH, OW, C)."""

    mean: Array
    """M."""
    variance: Array
    """V."""
    base: Array
    """T."""


def contrast(problem: LocalContrastForward | LocalContrastGradient, x: Array) -> Contrast:
    """M = sum / N; V = (sum of (x - M)**2 inside + M**2 for each tap outside) / N; T = delta + alpha V."""
    spec, n = problem.spec, problem.spec.taps
    mean, variance = (np.zeros(problem.output_shape, x.dtype) for _ in range(2))
    for window in problem.windows():
        taps = window.of(x)
        m = taps.sum((1, 2), keepdims=True) / n
        outside = n - taps.shape[1] * taps.shape[2]
        window.output(mean)[...] = m
        window.output(variance)[...] = (((taps - m) ** 2).sum((1, 2), keepdims=True) + outside * m**2) / n
    return Contrast(mean, variance, spec.delta + spec.alpha * variance)


class ContrastErrors(NamedTuple):
    """Error bounds of the mean and the base of each output, and of the difference in the numerator."""

    mean: Array
    base: Array
    """Relative."""
    difference: Array


def errors(problem: LocalContrastForward | LocalContrastGradient, x: Array, known: Contrast) -> ContrastErrors:
    """Propagate the rounding errors through mean, variance and base [math]."""
    spec, (mean, variance, t) = problem.spec, known
    of_mean = growth(spec.taps + 8) * contrast(problem, np.abs(x)).mean
    of_base = abs(spec.alpha) * (growth(spec.taps + 16) * variance + of_mean**2)
    of_base += 3 * u * (abs(spec.delta) + abs(spec.alpha) * variance)
    difference = abs(spec.p0) * of_mean + 2 * u * (np.abs(problem.centres(x)) + np.abs(spec.p0 * mean))
    return ContrastErrors(of_mean, of_base / np.abs(t), difference)


def forward_bound(problem: LocalContrastForward, x: Array) -> ErrorBound:
    """The error of the difference, the propagated error of T, that of the power, and sixteen roundings."""
    spec, known = problem.spec, contrast(problem, x)
    difference = problem.centres(x) - spec.p0 * known.mean
    _, e, a = errors(problem, x, known)
    y = spec.pm + spec.ps * difference * over_power(known.base, spec.beta)
    relative = abs(spec.beta) * e + (functions().power + 16) * u
    scaled = abs(spec.ps) * over_power(known.base, spec.beta) * (a + np.abs(difference) * relative)
    return ErrorBound(scaled + u * (abs(spec.pm) + np.abs(y)))


@operation(LocalContrastNormalization, problem=LocalContrastForward, bound=forward_bound)
def forward(problem: LocalContrastForward, x: Array) -> Array:
    """y(a, b) = pm + ps (x(c) - p0 M) / T**beta."""
    spec, (mean, _, t) = problem.spec, contrast(problem, x)
    return np.asarray(spec.pm + spec.ps * (problem.centres(x) - spec.p0 * mean) * over_power(t, spec.beta))


def gradient_bound(problem: LocalContrastGradient, g: Array, x: Array) -> ErrorBound:
    """(Sum of |terms|) (G(N + 32 + power) + (|beta| + 1) e), and the propagated errors of both differences."""
    spec, known = problem.spec, contrast(problem, x)
    of_mean, e, a = errors(problem, x, known)
    mean, _, t = known
    slope = np.abs(spec.ps * g) * over_power(t, spec.beta)
    factor = 2 * abs(spec.alpha * spec.beta) / spec.taps * slope / t
    difference = np.abs(problem.centres(x) - spec.p0 * mean)
    magnitude, of_differences = problem.at_centres(slope), np.zeros(problem.source_shape)
    for window in problem.windows():
        away = np.abs(window.of(x) - window.output(mean))
        window.of(magnitude)[...] += abs(spec.p0) / spec.taps * window.output(slope)
        window.of(magnitude)[...] += window.output(factor * difference) * away
        window.of(of_differences)[...] += window.output(factor * a) * away + window.output(
            factor * difference * of_mean
        )
    relative = growth(spec.taps + 32 + functions().power) + (abs(spec.beta) + 1) * largest_around(problem, e)
    return ErrorBound(magnitude * relative + of_differences)


@operation(LocalContrastNormalization, problem=LocalContrastGradient, bound=gradient_bound)
def gradient(problem: LocalContrastGradient, g: Array, x: Array) -> Array:
    """dx(c) += ps g T**-beta; dx(each pixel of the window) -= the terms of mean and variance."""
    spec, (mean, _, t) = problem.spec, contrast(problem, x)
    slope, difference = spec.ps * g * over_power(t, spec.beta), problem.centres(x) - spec.p0 * mean
    of_mean = spec.p0 / spec.taps * slope
    of_variance = 2 * spec.alpha * spec.beta / spec.taps * spec.ps * g * difference * over_power(t, spec.beta + 1)
    dx = problem.at_centres(slope)
    for window in problem.windows():
        terms = window.output(of_mean) + window.output(of_variance) * (window.of(x) - window.output(mean))
        window.of(dx)[...] -= terms
    return dx
