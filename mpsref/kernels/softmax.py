"""Softmax and log-softmax over the channels of each pixel, and their gradients.

Softmax       ``y_k = e**(x_k - m) / sum_q e**(x_q - m)``, m the largest x_q; ``dx_k = y_k * (g_k - sum_q g_q * y_q)``
Log-softmax   ``l_k = (x_k - m) - ln(sum_q e**(x_q - m))``; ``dx_k = g_k - e**l_k * sum_q g_q``

Both gradients read the **result** of the forward pass, y or l, and not its source as all other kernels do. The shift by
m changes nothing and keeps the exponentials from overflowing. A pixel with a NaN, with +inf, or with nothing but -inf
is NaN in all channels.

Source: MPSCNNSoftMax, MPSCNNLogSoftMax and their gradients in ``MPSCNNSoftMax.h`` [doc]; the shift [math].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mpsref import registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import ShapeError
from mpsref.kernels.reference import ErrorBound, Formula, gamma
from mpsref.registry import OperationKey

__all__ = ["LogSoftMax", "SoftMax"]


@dataclass(frozen=True)
class SoftMaxForward(registry.ImageProblem):
    """``forward``: y or l from x."""

    method: ClassVar[str] = "forward"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source image x."""
        return {"x": self.source_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """An image of the same shape."""
        return (self.source_shape,)

    def where(self, index: tuple[int, ...]) -> str:
        """Name the pixel, whose channels belong together."""
        return f"pixel {index[:3]}"


class SoftMaxGradient(SoftMaxForward):
    """``gradient``: dx from g and the forward result."""

    method: ClassVar[str] = "gradient"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient g, and the forward result y (of log-softmax, l)."""
        return {"g": self.source_shape, "y": self.source_shape}

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Make y the result for some source."""
        forward = self.spec.problems["forward"](self.spec, self.source_shape)
        return drawn | {"y": REFERENCE[forward.operation](forward, np.fmod(drawn["y"].astype(np.float64), 8))}


@dataclass(frozen=True)
class OverChannels(registry.Spec):
    """What both kernels share: no parameters, and the names of the operations."""

    problems: ClassVar = {"forward": SoftMaxForward, "gradient": SoftMaxGradient}

    def forward(self, x: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return the kernel of the image ``x`` (N, H, W, C), in its shape and dtype: over C, at each pixel."""
        x = arrays.as_image("x", x)
        return registry.run_one(SoftMaxForward(self, x.shape), x, out=out, backend=backend)

    def gradient(self, g: Any, y: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return dL/dx in the dtype of ``g``; ``y`` is the **result** of the forward pass.

        Raises ``ShapeError`` where the shapes of ``g`` and ``y`` differ.
        """
        g, y = arrays.as_image("g", g), arrays.as_image("y", y)
        if g.shape != y.shape:
            raise ShapeError(f"g has shape {g.shape} and y {y.shape}; both must be that of the forward result")
        return registry.run_one(SoftMaxGradient(self, y.shape), g, y, out=out, backend=backend)


@dataclass(frozen=True)
class SoftMax(OverChannels):
    """Softmax over the channels.

    >>> x, g = np.array([[[[1.0, 2.0, 3.0]]]]), np.array([[[[1.0, 0.0, 0.0]]]])
    >>> y = SoftMax().forward(x)
    >>> y.round(6).ravel().tolist()
    [0.090031, 0.244728, 0.665241]
    >>> SoftMax().gradient(g, y).round(6).ravel().tolist()
    [0.081925, -0.022033, -0.059892]
    """


@dataclass(frozen=True)
class LogSoftMax(OverChannels):
    """The logarithm of softmax, without the underflow that taking it afterwards would have.

    >>> LogSoftMax().forward(np.array([[[[1000.0, 1001.0]]]])).round(6).ravel().tolist()
    [-1.313262, -0.313262]
    """


def shifted(x: Array) -> tuple[Array, Array, Array]:
    """Return ``x - m``, its exponentials, and their sum, of each pixel."""
    # -inf - -inf is NaN, and so is the pixel.
    with np.errstate(invalid="ignore"):
        below = x - x.max(axis=3, keepdims=True)
    powers = np.exp(below)
    return below, powers, powers.sum(axis=3, keepdims=True)


def softmax(problem: SoftMaxForward, x: Array) -> Array:
    """y = e**(x - m) / sum(e**(x - m))."""
    _, powers, total = shifted(x)
    return np.asarray(powers / total)


def softmax_gradient(problem: SoftMaxGradient, g: Array, y: Array) -> Array:
    """dx = y * (g - sum(g * y))."""
    return np.asarray(y * (g - (g * y).sum(axis=3, keepdims=True)))


def log_softmax(problem: SoftMaxForward, x: Array) -> Array:
    """l = (x - m) - ln(sum(e**(x - m)))."""
    below, _, total = shifted(x)
    return np.asarray(below - np.log(total))


def log_softmax_gradient(problem: SoftMaxGradient, g: Array, y: Array) -> Array:
    """dx = g - e**l * sum(g)."""
    return np.asarray(g - np.exp(y) * g.sum(axis=3, keepdims=True))


# The bounds charge exp and log with 4 ulp and a division with 3, as Metal's tables do; an error of the argument of an
# exponential, which is as large as the spread of the pixel, counts relative to the result [math, choice].


def softmax_terms(problem: SoftMaxForward, x: Array) -> ErrorBound:
    """Bound: y * gamma(C + 2 * spread + 24) + 2**-126, where the spread of a pixel is its largest m - x."""
    below, powers, total = shifted(x)
    m = x.shape[3] + 2 * -below.min(axis=3, keepdims=True) + 24
    return ErrorBound.of_error(powers / total * gamma(m) + 2.0**-126)


def softmax_gradient_terms(problem: SoftMaxGradient, g: Array, y: Array) -> ErrorBound:
    """Bound: gamma(C + 8) * y * (|g| + sum |g*y|)."""
    scale = abs(y) * (abs(g) + abs(g * y).sum(axis=3, keepdims=True))
    return ErrorBound.of_error(gamma(y.shape[3] + 8) * scale)


def log_softmax_terms(problem: SoftMaxForward, x: Array) -> ErrorBound:
    """Bound: gamma(C + spread + 16) + gamma(10) * (|x - m| + ln(sum))."""
    below, _, total = shifted(x)
    m = x.shape[3] - below.min(axis=3, keepdims=True) + 16
    return ErrorBound.of_error(gamma(m) + gamma(10) * (-below + np.log(total)))


def log_softmax_gradient_terms(problem: SoftMaxGradient, g: Array, y: Array) -> ErrorBound:
    """Bound: gamma(C + 12) * (|g| + e**l * sum |g|)."""
    scale = abs(g) + np.exp(y) * abs(g).sum(axis=3, keepdims=True)
    return ErrorBound.of_error(gamma(y.shape[3] + 12) * scale)


SPECS: tuple[type[registry.Spec], ...] = (SoftMax, LogSoftMax)
REFERENCE: dict[OperationKey, Formula] = {
    (SoftMax, "forward"): softmax,
    (SoftMax, "gradient"): softmax_gradient,
    (LogSoftMax, "forward"): log_softmax,
    (LogSoftMax, "gradient"): log_softmax_gradient,
}
TERMS: dict[OperationKey, Formula] = {
    (SoftMax, "forward"): softmax_terms,
    (SoftMax, "gradient"): softmax_gradient_terms,
    (LogSoftMax, "forward"): log_softmax_terms,
    (LogSoftMax, "gradient"): log_softmax_gradient_terms,
}
