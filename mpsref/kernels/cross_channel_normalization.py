"""Cross-channel normalization (local response normalization): each value over a power of its neighbours' squares.

Every pixel by itself. Channel ``k`` of ``D`` has the window ``Q(k) = k - K // 2 ... k + (K - 1) // 2`` of channels,
clipped to ``0 ... D - 1``, and ``L(k) = delta + alpha / K * (sum of x**2 over Q(k))``: K stays where it is clipped.

Forward   ``y(k) = x(k) / L(k)**beta``
Gradient  ``dx(k) = g(k) L(k)**-beta
          - 2 alpha beta / K * x(k) * sum over the q whose window has k of  g(q) x(q) L(q)**(-beta - 1)``

The gradient is the exact derivative of the forward pass. Apple prints it beside its gradient kernel with a factor of
``2 alpha beta``, without 1 / K, so that it is no derivative for any window of more than one channel [choice].

Source: MPSCNNCrossChannelNormalization, MPSCNNCrossChannelNormalizationGradient in ``MPSCNNNormalization.h``; forward,
windows, divisor, parameters and defaults [doc, obs], gradient [math].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from mpsref import codecs, operations, registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import integer, real
from mpsref.errors import ShapeError
from mpsref.geometry import Window
from mpsref.kernels.normalization import growth, over_power
from mpsref.kernels.normalization_windows import LARGEST
from mpsref.kernels.reference import UNIT_ROUNDOFF, ErrorBound
from mpsref.operations import Declaration, Formula, OperationKey


class CrossChannelProblem(operations.ImageProblem):
    """A call on a source (N, H, W, C)."""

    spec: CrossChannelNormalization

    @property
    def result_shapes(self) -> tuple[Shape]:
        """An image like the source."""
        return (self.source_shape,)

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Scale each channel of x down where it is large: powers of sums of squares must stay in range."""
        x = drawn["x"]
        largest = np.abs(x).max(axis=(0, 1, 2), initial=LARGEST)
        return {**drawn, "x": (x * (LARGEST / largest)).astype(x.dtype)}

    def where(self, index: tuple[int, ...]) -> str:
        """Name the channels of the window of an element."""
        read = self.spec.window.inside(index[3], self.source_shape[3])
        return f"channels {read.start}..{read.stop - 1}"

    def windows(self) -> Iterator[tuple[int, slice]]:
        """Yield every channel and its window."""
        channels = self.source_shape[3]
        return ((k, self.spec.window.inside(k, channels)) for k in range(channels))

    def reads(self) -> Array:
        """Return, of each channel, the first channel of its window, and how many there are: int32 (C, 2)."""
        return self._runs(self.spec.window.center)

    def readers(self) -> Array:
        """Return, of each channel, the first channel whose window has it, and how many there are: int32 (C, 2)."""
        return self._runs(self.spec.kernel_size - 1 - self.spec.window.center)

    def _runs(self, before: int) -> Array:
        channels = self.source_shape[3]
        first = np.clip(np.arange(channels) - before, 0, channels)
        end = np.clip(np.arange(channels) - before + self.spec.kernel_size, 0, channels)
        return np.stack([first, end - first], axis=1).astype(np.int32)


class CrossChannelForward(CrossChannelProblem):
    """``forward``: y from x, both (N, H, W, C)."""

    method: ClassVar[str] = "forward"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source image x."""
        return {"x": self.source_shape}


class CrossChannelGradient(CrossChannelProblem):
    """``gradient``: dx from g and x, all (N, H, W, C)."""

    method: ClassVar[str] = "gradient"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient g and the source image x."""
        return {"g": self.source_shape, "x": self.source_shape}


class CrossChannelNormalization(operations.Spec):
    """Cross-channel normalization over ``kernel_size`` channels, which may be more than the image has.

    ``alpha`` is at least 0; a base of the power that is 0 or negative gives what IEEE says.

    >>> import numpy as np
    >>> x = np.array([1, 2, 3, 0, 1], float).reshape(1, 1, 1, 5)
    >>> norm = CrossChannelNormalization(kernel_size=3, alpha=3, beta=0.5)
    >>> norm.forward(x).ravel().round(4).tolist()
    [0.4082, 0.5164, 0.8018, 0.0, 0.7071]
    """

    kernel_size: int = field(default=5, metadata={"codec": codecs.integer("k")})
    alpha: float = field(default=1.0, metadata={"codec": codecs.number("alpha")})
    beta: float = field(default=5.0, metadata={"codec": codecs.number("beta")})
    delta: float = field(default=1.0, metadata={"codec": codecs.number("delta")})

    problems: ClassVar = {"forward": CrossChannelForward, "gradient": CrossChannelGradient}

    def __post_init__(self) -> None:
        """Check every parameter."""
        object.__setattr__(self, "kernel_size", integer("kernel_size", self.kernel_size, low=1))
        object.__setattr__(self, "alpha", real("alpha", self.alpha, low=0))
        for name in ("beta", "delta"):
            object.__setattr__(self, name, real(name, getattr(self, name)))

    @property
    def window(self) -> Window:
        """The window along the channels."""
        return Window(self.kernel_size)

    def forward(self, x: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Normalize ``x`` (N, H, W, C); the result has its shape and dtype. ``ValueError``, ``TypeError`` if not."""
        x = arrays.as_image("x", x)
        return registry.run_one(CrossChannelForward(self, x.shape), x, out=out, backend=backend)

    def gradient(self, g: Any, x: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return dL/dx, in the dtype of ``g`` = dL/dy; both and the source image ``x`` have the same shape.

        Raises ``ValueError`` or ``TypeError`` for what does not fit.
        """
        g, x = arrays.as_image("g", g), arrays.as_image("x", x)
        if g.shape != x.shape:
            raise ShapeError(f"g has shape {g.shape} and x {x.shape}; both must be equal")
        return registry.run_one(CrossChannelGradient(self, x.shape), g, x, out=out, backend=backend)


def bases(problem: CrossChannelProblem, x: Array) -> Array:
    """L(k) = delta + alpha / K * sum of squares."""
    spec = problem.spec
    base = np.empty_like(x)
    for k, window in problem.windows():
        base[..., k] = spec.delta + spec.alpha / spec.kernel_size * (x[..., window] ** 2).sum(axis=-1)
    return base


def forward(problem: CrossChannelForward, x: Array) -> Array:
    """y(k) = x(k) / L(k)**beta."""
    return np.asarray(x * over_power(bases(problem, x), problem.spec.beta))


def gradient(problem: CrossChannelGradient, g: Array, x: Array) -> Array:
    """dx(q) = g(q) L(q)**-beta; then dx(all of Q(q)) -= 2 alpha beta / K * x g(q) x(q) L(q)**(-beta - 1)."""
    spec, base = problem.spec, bases(problem, x)
    dx = np.asarray(g * over_power(base, spec.beta))
    share = 2 * spec.alpha * spec.beta / spec.kernel_size * g * x * over_power(base, spec.beta + 1)
    for q, window in problem.windows():
        dx[..., window] -= x[..., window] * share[..., q, None]
    return dx


def base_error(problem: CrossChannelProblem, x: Array) -> tuple[Array, Array]:
    """Return L, and its relative error: a sum of K squares, a product and an addition, and the powers' start."""
    spec, base = problem.spec, bases(problem, x)
    squares = base - spec.delta
    return base, growth(spec.kernel_size + 16) * (abs(spec.delta) + np.abs(squares)) / np.abs(base)


def forward_terms(problem: CrossChannelForward, x: Array) -> ErrorBound:
    """|y| (|beta| e + 48 u): the error of L through the power; 16 ulp for that, 3 for the division."""
    beta = problem.spec.beta
    base, e = base_error(problem, x)
    return ErrorBound.of_error(np.abs(x * over_power(base, beta)) * (abs(beta) * e + 48 * UNIT_ROUNDOFF))


def gradient_terms(problem: CrossChannelGradient, g: Array, x: Array) -> ErrorBound:
    """(Sum of |terms|) (G(K + 64) + (|beta| + 1) e), with the largest e of the outputs that an element depends on."""
    spec = problem.spec
    base, e = base_error(problem, x)
    g, x = np.abs(g), np.abs(x)
    magnitude, largest = g * over_power(base, spec.beta), e.copy()
    share = 2 * abs(spec.alpha * spec.beta) / spec.kernel_size * g * x * over_power(base, spec.beta + 1)
    for q, window in problem.windows():
        magnitude[..., window] += x[..., window] * share[..., q, None]
        largest[..., window] = np.maximum(largest[..., window], e[..., q, None])
    return ErrorBound.of_error(magnitude * (growth(spec.kernel_size + 64) + (abs(spec.beta) + 1) * largest))


SPECS = (CrossChannelNormalization,)
REFERENCE: dict[OperationKey, Formula] = {
    (CrossChannelNormalization, "forward"): forward,
    (CrossChannelNormalization, "gradient"): gradient,
}
TERMS: dict[OperationKey, Formula] = {
    (CrossChannelNormalization, "forward"): forward_terms,
    (CrossChannelNormalization, "gradient"): gradient_terms,
}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
