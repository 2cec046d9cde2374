"""Spatial normalization: each pixel over a power of the mean square around it, in its own channel, and the gradient.

With ``T(a, b) = delta + alpha / N * (sum of x**2 over the window of output (a, b))`` and ``c`` its centre:

Forward   ``y(a, b) = x(c) / T(a, b)**beta``
Gradient  ``dx(j) = g(j - o) T(j - o)**-beta
          - 2 alpha beta / N * x(j) * sum over the windows that read j of  g(a, b) x(c) T(a, b)**(-beta - 1)``

Windows are those of :mod:`mpsref.kernels.normalization_windows`: outside the image are zeros, and N counts them.

The gradient is the exact derivative of the forward pass. Apple prints another expression beside its gradient kernel,
``T(j)**-beta (g(j) - 2 alpha beta x(j) / T(j) * sum of g x)``: there T of the centre stands in front of the sum, and
the factor 1 / N is missing, so that it is no derivative for any window of more than one pixel [choice].

Source: MPSCNNSpatialNormalization, MPSCNNSpatialNormalizationGradient in ``MPSCNNNormalization.h``; forward, parameters
and defaults [doc], the divisor at the border and even windows [obs], gradient [math].
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

import numpy as np

from mpsref import codecs
from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import PairLike, real
from mpsref.kernels.normalization import growth, over_power
from mpsref.kernels.normalization_windows import (
    WindowedForward,
    WindowedGradient,
    WindowedNormalization,
    WindowedProblem,
)
from mpsref.kernels.reference import UNIT_ROUNDOFF, ErrorBound
from mpsref.operations import Declaration, Formula, OperationKey


class SpatialForward(WindowedForward):
    """``forward`` of spatial normalization."""

    spec: SpatialNormalization


class SpatialGradient(WindowedGradient):
    """``gradient`` of spatial normalization."""

    spec: SpatialNormalization


class SpatialNormalization(WindowedNormalization):
    """Spatial normalization. ``alpha`` is at least 0; a base of the power that is 0 or negative gives what IEEE says.

    >>> import numpy as np
    >>> x = np.array([[1, 2, 0], [0, 1, 3], [2, 0, 1]], float).reshape(1, 3, 3, 1)
    >>> norm = SpatialNormalization(kernel_size=2, alpha=4, beta=1)
    >>> norm.forward(x)[0, :, :, 0].round(4).tolist()
    [[0.5, 0.3333, 0.0], [0.0, 0.1429, 0.2], [0.4, 0.0, 0.0833]]
    """

    kernel_size: PairLike = field(metadata={"codec": codecs.pair("k")})
    alpha: float = field(default=1.0, metadata={"codec": codecs.number("alpha")})
    beta: float = field(default=5.0, metadata={"codec": codecs.number("beta")})
    delta: float = field(default=1.0, metadata={"codec": codecs.number("delta")})
    offset: PairLike = field(default=(0, 0), metadata={"codec": codecs.pair("o")})

    problems: ClassVar = {"forward": SpatialForward, "gradient": SpatialGradient}

    def __post_init__(self) -> None:
        """Check every parameter and store pairs as tuples."""
        self._check_windows()
        object.__setattr__(self, "alpha", real("alpha", self.alpha, low=0))
        for name in ("beta", "delta"):
            object.__setattr__(self, name, real(name, getattr(self, name)))


def bases(problem: SpatialForward | SpatialGradient, x: Array) -> Array:
    """T(a, b) = delta + alpha / N * sum of squares."""
    spec = problem.spec
    t = np.zeros(problem.output_shape, x.dtype)
    for window in problem.windows():
        window.output(t)[...] = spec.delta + spec.alpha / spec.taps * (window.of(x) ** 2).sum((1, 2), keepdims=True)
    return t


def forward(problem: SpatialForward, x: Array) -> Array:
    """y(a, b) = x(c) / T(a, b)**beta."""
    return np.asarray(problem.centres(x) * over_power(bases(problem, x), problem.spec.beta))


def gradient(problem: SpatialGradient, g: Array, x: Array) -> Array:
    """dx(c) += g T**-beta; dx(each pixel of the window) -= 2 alpha beta / N * x g x(c) T**(-beta - 1)."""
    spec, t = problem.spec, bases(problem, x)
    share = 2 * spec.alpha * spec.beta / spec.taps * g * problem.centres(x) * over_power(t, spec.beta + 1)
    dx = problem.at_centres(g * over_power(t, spec.beta))
    for window in problem.windows():
        window.of(dx)[...] -= window.of(x) * window.output(share)
    return dx


def base_error(problem: SpatialForward | SpatialGradient, x: Array) -> tuple[Array, Array]:
    """Return T, and the relative error e of T: a sum of N squares, a product and an addition, and the powers' start."""
    spec, t = problem.spec, bases(problem, x)
    squares = t - spec.delta
    return t, growth(spec.taps + 16) * (abs(spec.delta) + np.abs(squares)) / np.abs(t)


def forward_terms(problem: SpatialForward, x: Array) -> ErrorBound:
    """|y| (|beta| e + 48 u): the error of T through the power; 16 ulp for that, 3 for the division."""
    beta = problem.spec.beta
    t, e = base_error(problem, x)
    y = np.abs(problem.centres(x) * over_power(t, beta))
    return ErrorBound.of_error(y * (abs(beta) * e + 48 * UNIT_ROUNDOFF))


def gradient_terms(problem: SpatialGradient, g: Array, x: Array) -> ErrorBound:
    """(Sum of |terms|) (G(N + 64) + (|beta| + 1) e), with the largest e of the outputs that an element depends on."""
    spec = problem.spec
    t, e = base_error(problem, x)
    g, x = np.abs(g), np.abs(x)
    share = 2 * abs(spec.alpha * spec.beta) / spec.taps * g * problem.centres(x) * over_power(t, spec.beta + 1)
    magnitude = problem.at_centres(g * over_power(t, spec.beta))
    for window in problem.windows():
        window.of(magnitude)[...] += window.of(x) * window.output(share)
    return ErrorBound.of_error(magnitude * (growth(spec.taps + 64) + (abs(spec.beta) + 1) * largest_around(problem, e)))


def largest_around(problem: WindowedProblem, values: Array) -> Array:
    """Return, for each source pixel, the largest of the ``values`` of the outputs that its gradient depends on."""
    largest = problem.at_centres(values)
    for window in problem.windows():
        part = window.of(largest)
        np.maximum(part, window.output(values), out=part)
    return largest


SPECS = (SpatialNormalization,)
REFERENCE: dict[OperationKey, Formula] = {
    (SpatialNormalization, "forward"): forward,
    (SpatialNormalization, "gradient"): gradient,
}
TERMS: dict[OperationKey, Formula] = {
    (SpatialNormalization, "forward"): forward_terms,
    (SpatialNormalization, "gradient"): gradient_terms,
}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
