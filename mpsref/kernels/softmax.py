"""Softmax and log-softmax over the channels of each pixel, and their gradients.

Softmax       ``y_k = e**(x_k - m) / sum_q e**(x_q - m)``, m the largest x_q; ``dx_k = y_k * (g_k - sum_q g_q * y_q)``
Log-softmax   ``l_k = (x_k - m) - ln(sum_q e**(x_q - m))``; ``dx_k = g_k - e**l_k * sum_q g_q``

Both gradients read the **result** of the forward pass, y or l; those of all other kernels read its source. The shift by
m changes nothing and keeps the exponentials from overflowing. A pixel is NaN in all channels if it contains NaN or
+inf, or only -inf.

Source: MPSCNNSoftMax, MPSCNNLogSoftMax and their gradients in ``MPSCNNSoftMax.h`` [doc]; the shift [math].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mpsref.arguments.arrays import Array
from mpsref.backend import BackendLike
from mpsref.kernels.one_image import OneImage
from mpsref.kernels.reference import FAR, ErrorBound, functions, gamma
from mpsref.operations import ImageProblem, operation
from mpsref.registry import call


class OverChannels(OneImage):
    """Base of the kernels that combine the channels of each pixel; no parameters."""

    def gradient(self, g: ArrayLike, y: ArrayLike, *, out: Array | None = None, backend: BackendLike = None) -> Array:
        """Compute dL/dx from the source gradient and the **result** of the forward pass.

        Parameters
        ----------
        g, y : array_like, shape (N, H, W, C)
            Source gradient dL/dy, and what :meth:`forward` returned.

        Raises
        ------
        ShapeError
            If the shapes of ``g`` and ``y`` differ.
        """
        return call(self, "gradient", (g, y), out=out, backend=backend)


class SoftMax(OverChannels):
    """Softmax over the channels.

    Examples
    --------
    >>> x, g = np.array([[[[1.0, 2.0, 3.0]]]]), np.array([[[[1.0, 0.0, 0.0]]]])
    >>> y = SoftMax().forward(x)
    >>> y.round(6).ravel().tolist()
    [0.090031, 0.244728, 0.665241]
    >>> SoftMax().gradient(g, y).round(6).ravel().tolist()
    [0.081925, -0.022033, -0.059892]
    """


class LogSoftMax(OverChannels):
    """The logarithm of softmax, without the underflow that taking it afterwards would have.

    Examples
    --------
    >>> LogSoftMax().forward(np.array([[[[1000.0, 1001.0]]]])).round(6).ravel().tolist()
    [-1.313262, -0.313262]
    """


class ForwardProblem(ImageProblem, method="forward", inputs={"x": "n h w c"}, results={"y": "n h w c"}):
    """``forward``: y or l from x."""

    def where(self, index: tuple[int, ...]) -> str:
        return f"pixel {index[:3]}"


class GradientProblem(
    ForwardProblem, method="gradient", inputs={"g": "n h w c", "y": "n h w c"}, results={"dx": "n h w c"}
):
    """``gradient``: dx from g and the forward result."""

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Make y the result for some source, whose large negative numbers are :data:`FAR` below the others."""
        forward = self.spec.problems["forward"](self.spec, self.source_shape)
        source = drawn["y"].astype(np.float64)
        near = np.fmod(source, 8)
        return drawn | {"y": forward.operation.formula(forward, np.where(source <= -FAR / 2, near - FAR, near))}


def shifted(x: Array) -> tuple[Array, Array, Array]:
    """Return ``x - m``, its exponentials, and their sum, of each pixel."""
    # -inf - -inf is NaN, and so is the pixel.
    with np.errstate(invalid="ignore"):
        below = x - x.max(axis=3, keepdims=True)
    powers = np.exp(below)
    return below, powers, powers.sum(axis=3, keepdims=True)


def spread(below: Array) -> Array:
    """Return the largest finite ``m - x`` of each pixel; the exponential of -inf is 0 without an error."""
    return np.asarray(-below.min(axis=3, keepdims=True, initial=0, where=np.isfinite(below)))


# An error of the argument of an exponential, which is as large as the spread of the pixel, counts relative to the
# result [math, design error-bounds].


FARTHEST = 128.0
"""Distance from the largest value from which on powers, and so their errors, are below 2**-126."""


def softmax_error(channels: int, spread: Array, y: Array) -> Array:
    """y * gamma(C + 2 * spread + 24) + 2**-126; the 24 are two exponentials, a division, and two roundings."""
    spread = np.minimum(spread, FARTHEST)
    return np.asarray(y * gamma(channels + 2 * spread + 2 * functions().exp + functions().quotient + 2) + 2.0**-126)


def log_softmax_error(channels: int, spread: Array, terms: Array) -> Array:
    """gamma(C + spread + 16) + gamma(10) * terms; the 16 are an exponential and a logarithm, the 10 a logarithm."""
    of, spread = functions(), np.minimum(spread, FARTHEST)
    return np.asarray(gamma(channels + spread + of.exp + of.log) + gamma(of.log + 2) * terms)


def softmax_bound(problem: ForwardProblem, x: Array) -> ErrorBound:
    """:func:`softmax_error`, where the spread of a pixel is its largest finite m - x."""
    below, powers, total = shifted(x)
    return ErrorBound(softmax_error(x.shape[3], spread(below), powers / total))


@operation(SoftMax, problem=ForwardProblem, bound=softmax_bound)
def softmax(problem: ForwardProblem, x: Array) -> Array:
    """y = e**(x - m) / sum(e**(x - m))."""
    _, powers, total = shifted(x)
    return np.asarray(powers / total)


def softmax_gradient_bound(problem: GradientProblem, g: Array, y: Array) -> ErrorBound:
    """gamma(C + 8) * y * (|g| + sum |g*y|)."""
    scale = abs(y) * (abs(g) + abs(g * y).sum(axis=3, keepdims=True))
    return ErrorBound(gamma(y.shape[3] + 8) * scale)


@operation(SoftMax, problem=GradientProblem, bound=softmax_gradient_bound)
def softmax_gradient(problem: GradientProblem, g: Array, y: Array) -> Array:
    """dx = y * (g - sum(g * y))."""
    return np.asarray(y * (g - (g * y).sum(axis=3, keepdims=True)))


def log_softmax_bound(problem: ForwardProblem, x: Array) -> ErrorBound:
    """:func:`log_softmax_error` of |x - m| + ln(sum)."""
    below, _, total = shifted(x)
    return ErrorBound(log_softmax_error(x.shape[3], spread(below), -below + np.log(total)))


@operation(LogSoftMax, problem=ForwardProblem, bound=log_softmax_bound)
def log_softmax(problem: ForwardProblem, x: Array) -> Array:
    """l = (x - m) - ln(sum(e**(x - m)))."""
    below, _, total = shifted(x)
    return np.asarray(below - np.log(total))


def log_softmax_gradient_bound(problem: GradientProblem, g: Array, y: Array) -> ErrorBound:
    """gamma(C + 12) * (|g| + e**l * sum |g|); the 12 are an exponential and four roundings."""
    scale = abs(g) + np.exp(y) * abs(g).sum(axis=3, keepdims=True)
    return ErrorBound(gamma(y.shape[3] + functions().exp + 4) * scale)


@operation(LogSoftMax, problem=GradientProblem, bound=log_softmax_gradient_bound)
def log_softmax_gradient(problem: GradientProblem, g: Array, y: Array) -> Array:
    """dx = g - e**l * sum(g)."""
    return np.asarray(g - np.exp(y) * g.sum(axis=3, keepdims=True))
