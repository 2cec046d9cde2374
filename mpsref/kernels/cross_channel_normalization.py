"""Cross-channel normalization (local response normalization): division by a power of a local mean square.

Each pixel is normalized independently. Channel ``k`` of ``D`` has the window ``Q(k) = k - K // 2 ... k + (K - 1) // 2``
of channels, clipped to ``0 ... D - 1``, and ``L(k) = delta + alpha / K * (sum of x**2 over Q(k))``. The divisor K is
independent of the clipping.

Forward   ``y(k) = x(k) / L(k)**beta``
Gradient  ``dx(k) = g(k) L(k)**-beta
          - 2 alpha beta / K * x(k) * sum over the q whose window has k of  g(q) x(q) L(q)**(-beta - 1)``

The gradient is the exact derivative of the forward pass. The header of Apple's gradient kernel has the factor
``2 alpha beta`` without 1 / K, which is not the derivative for windows of more than one channel [choice
channel-gradient].

Source: MPSCNNCrossChannelNormalization, MPSCNNCrossChannelNormalizationGradient in ``MPSCNNNormalization.h``; forward,
windows, divisor, parameters and defaults [doc, obs channel-divisor], gradient [math].
"""

from __future__ import annotations

import numpy as np

from mpsref import codecs
from mpsref.arguments.arrays import Array
from mpsref.codecs import parameter
from mpsref.geometry import Window
from mpsref.kernels.normalization import RangedProblem, over_power
from mpsref.kernels.one_image import ReadsPixels
from mpsref.kernels.reference import UNIT_ROUNDOFF, ErrorBound, functions
from mpsref.kernels.reference import gamma as growth  # gamma is a scale here
from mpsref.operations import cached_in_problem, operation


class CrossChannelNormalization(ReadsPixels):
    """Cross-channel normalization.

    Parameters
    ----------
    kernel_size : int, optional
        Number of channels of the window, at least 1; may exceed the number of channels of the image.
    alpha, beta, delta : float, optional
        Weight of the mean of squares, at least 0; exponent; constant added to the base. For a base that is 0 or
        negative, the power is that of IEEE 754.

    Examples
    --------
    >>> x = np.array([1, 2, 3, 0, 1], float).reshape(1, 1, 1, 5)
    >>> norm = CrossChannelNormalization(kernel_size=3, alpha=3, beta=0.5)
    >>> norm.forward(x).ravel().round(4).tolist()
    [0.4082, 0.5164, 0.8018, 0.0, 0.7071]
    """

    kernel_size: int = parameter(codecs.integer("k", low=1), default=5)
    alpha: float = parameter(codecs.real("alpha", low=0), default=1.0)
    beta: float = parameter(codecs.real("beta"), default=5.0)
    delta: float = parameter(codecs.real("delta"), default=1.0)

    @property
    def window(self) -> Window:
        """The window along the channels."""
        return Window(self.kernel_size)


class CrossChannelProblem(RangedProblem):
    """A call on a source (N, H, W, C)."""

    spec: CrossChannelNormalization

    def where(self, index: tuple[int, ...]) -> str:
        read = self.spec.window.inside(index[3], self.source_shape[3])
        return f"channels {read.start}..{read.stop - 1}"

    @cached_in_problem
    def places(self) -> list[tuple[slice, slice]]:
        """Return for each place of a window the channels that have a channel there, and these, ascending."""
        channels, window = self.source_shape[3], self.spec.window
        before, after = window.center, window.kernel - window.center
        return [
            (slice(max(0, -k), min(channels, channels - k)), slice(max(0, k), min(channels, channels + k)))
            for k in range(max(-before, 1 - channels), min(after, channels))
        ]

    def reads(self) -> Array:
        """Return the first channel and the number of channels of the window of each channel: int32 (C, 2)."""
        return self._runs(self.spec.window.center)

    def readers(self) -> Array:
        """Return the first channel and the number of channels whose windows contain each channel: int32 (C, 2)."""
        return self._runs(self.spec.kernel_size - 1 - self.spec.window.center)

    def _runs(self, before: int) -> Array:
        channels = self.source_shape[3]
        first = np.clip(np.arange(channels) - before, 0, channels)
        end = np.clip(np.arange(channels) - before + self.spec.kernel_size, 0, channels)
        return np.stack([first, end - first], axis=1).astype(np.int32)


class CrossChannelForward(CrossChannelProblem, method="forward", inputs={"x": "n h w c"}, results={"y": "n h w c"}):
    """``forward``: y from x, both (N, H, W, C)."""


class CrossChannelGradient(
    CrossChannelProblem, method="gradient", inputs={"g": "n h w c", "x": "n h w c"}, results={"dx": "n h w c"}
):
    """``gradient``: dx from g and x, all (N, H, W, C)."""


def bases(problem: CrossChannelProblem, x: Array) -> Array:
    """L(k) = delta + alpha / K * sum of squares."""
    spec = problem.spec
    total = np.zeros_like(x)
    for channels, read in problem.places():
        total[..., channels] += x[..., read] ** 2
    return spec.delta + spec.alpha / spec.kernel_size * total


def base_error(problem: CrossChannelProblem, x: Array) -> tuple[Array, Array]:
    """Return L and its relative error e: a sum of K squares, a product, an addition, and what the power adds."""
    spec, base = problem.spec, bases(problem, x)
    squares = base - spec.delta
    return base, growth(spec.kernel_size + 4 + functions().logarithm_of_base) * (
        abs(spec.delta) + np.abs(squares)
    ) / np.abs(base)


def forward_bound(problem: CrossChannelForward, x: Array) -> ErrorBound:
    """|y| (|beta| e + 48 u): the propagated error of L, the power, the division, and ten roundings."""
    beta, own = problem.spec.beta, functions().power + functions().quotient + 10
    base, e = base_error(problem, x)
    return ErrorBound(np.abs(x * over_power(base, beta)) * (abs(beta) * e + own * UNIT_ROUNDOFF))


@operation(CrossChannelNormalization, problem=CrossChannelForward, bound=forward_bound)
def forward(problem: CrossChannelForward, x: Array) -> Array:
    """y(k) = x(k) / L(k)**beta."""
    return np.asarray(x * over_power(bases(problem, x), problem.spec.beta))


def gradient_bound(problem: CrossChannelGradient, g: Array, x: Array) -> ErrorBound:
    """(Sum of |terms|) (G(K + 32 + power) + (|beta| + 1) e), e being the maximum over the outputs involved."""
    spec = problem.spec
    base, e = base_error(problem, x)
    g, x = np.abs(g), np.abs(x)
    magnitude, largest = g * over_power(base, spec.beta), e.copy()
    share = 2 * abs(spec.alpha * spec.beta) / spec.kernel_size * g * x * over_power(base, spec.beta + 1)
    for q, read in problem.places():
        magnitude[..., read] += x[..., read] * share[..., q]
        largest[..., read] = np.maximum(largest[..., read], e[..., q])
    return ErrorBound(magnitude * (growth(spec.kernel_size + 32 + functions().power) + (abs(spec.beta) + 1) * largest))


@operation(CrossChannelNormalization, problem=CrossChannelGradient, bound=gradient_bound)
def gradient(problem: CrossChannelGradient, g: Array, x: Array) -> Array:
    """dx(q) = g(q) L(q)**-beta; then dx(all of Q(q)) -= 2 alpha beta / K * x g(q) x(q) L(q)**(-beta - 1)."""
    spec, base = problem.spec, bases(problem, x)
    dx = np.asarray(g * over_power(base, spec.beta))
    share = 2 * spec.alpha * spec.beta / spec.kernel_size * g * x * over_power(base, spec.beta + 1)
    for q, read in reversed(problem.places()):  # q ascends for each channel that is read
        dx[..., read] -= x[..., read] * share[..., q]
    return dx
