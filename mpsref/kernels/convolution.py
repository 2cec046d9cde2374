"""Convolution: weighted sums over windows, and the gradients for data, weights and biases.

With (i, t) standing for a window and a tap on both axes, j for the pixel that tap t of window i reads, r for the group
of an output channel o, c for an input channel within the group, and m for an output channel within it:

Forward  ``y[n, i, o] = act(b[o] + sum over t, c of w[o, t, c] * x[n, j, r * Ci/G + c])``
Data     ``dx[n, j, r * Ci/G + c] = sum over (i, t) at j, and m, of w[r * Co/G + m, t, c] * g[n, i, r * Co/G + m]``
Weights  ``dw[o, t, c] = sum over n, i of g[n, i, o] * x[n, j, r * Ci/G + c]``, ``db[o] = sum over n, i of g[n, i, o]``

It is a cross-correlation: taps are not flipped. A tap outside the image is skipped with edge mode "zero" (so that an
infinite weight makes no NaN there [choice]), and reads the nearest pixel with "clamp". Pixels that no window reads get
exactly 0. Any G that divides Ci and Co is legal; depthwise is G = Ci [choice].

Source: MPSCNNConvolution, MPSCNNConvolutionGradient in ``MPSCNNConvolution.h``; forward [doc], gradients [math].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, TypeAlias

import numpy as np

from mpsref import codecs
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair, PairLike, choice, integer, pair
from mpsref.geometry import EDGE_MODES, EdgeMode, Window
from mpsref.kernels.convolution_problems import Forward, GradientData, GradientWeights, Weighted, WeightedKernel
from mpsref.kernels.convolution_taps import IntTable, pixels_of, windows_at
from mpsref.kernels.neuron import Neuron, neuron_codec
from mpsref.kernels.neuron_curves import error, value
from mpsref.kernels.reference import UNIT_ROUNDOFF, ErrorBound, Formula
from mpsref.kernels.windows import default_size, described
from mpsref.registry import OperationKey, Spec

__all__ = ["REFERENCE", "SPECS", "TERMS", "Convolution", "SlidingKernel", "SlidingProblem"]

Index: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class SlidingKernel(WeightedKernel):
    """A kernel whose taps read the source through a window on each axis, :attr:`windows`."""

    @cached_property
    def windows(self) -> tuple[Window, Window]:
        """The window of the y axis and that of the x axis."""
        raise NotImplementedError

    def pairs(self, axis: int, tap: int, outputs: int, length: int) -> tuple[list[int], list[int]]:
        """Return the windows whose tap reads a pixel, and the pixel of each: the plain definition."""
        pixels = [(i, self.windows[axis].tap(i, tap)) for i in range(outputs)]
        if self.edge_mode == "clamp":
            pixels = [(i, min(max(j, 0), length - 1)) for i, j in pixels]
        inside = [(i, j) for i, j in pixels if 0 <= j < length]
        return [i for i, _ in inside], [j for _, j in inside]


def check_neuron(neuron: Any) -> None:
    """Raise ``TypeError`` for what is no neuron, nor ``None``."""
    if neuron is not None and not isinstance(neuron, Neuron):
        raise TypeError(f"neuron is {neuron!r} of type {type(neuron).__name__}; it must be None or an mpsref.Neuron")


class SlidingProblem(Weighted):
    """What backends need to know of a problem: a table by window and tap for each axis."""

    spec: SlidingKernel

    def pixels(self) -> tuple[IntTable, IntTable]:
        """Return, for y and x, the pixel that each tap of each window reads; -1 where it is skipped."""
        edge_mode = self.spec.edge_mode
        y, x = (pixels_of(w, n, length, edge_mode) for w, n, length in self._axes())
        return y, x

    def windows(self) -> tuple[IntTable, IntTable]:
        """Return, for y and x, the window whose tap reads each pixel; -1 where there is none (edge mode "zero")."""
        y, x = (windows_at(w, n, length) for w, n, length in self._axes())
        return y, x

    def _axes(self) -> list[tuple[Window, int, int]]:
        """Return of each axis its window, the number of windows, and the length of the source."""
        return list(zip(self.spec.windows, self.result_size, self.source_shape[1:3], strict=True))


class ConvolutionForward(SlidingProblem, Forward):
    """``forward`` of a convolution."""

    spec: SlidingKernel

    def where(self, index: tuple[int, ...]) -> str:
        """Describe the window of an output: its place, and the pixels inside the image."""
        return described(self.spec.windows, index, self.source_shape)


class ConvolutionGradientData(SlidingProblem, GradientData):
    """``gradient_data`` of a convolution."""

    spec: SlidingKernel

    def where(self, index: tuple[int, ...]) -> str:
        """Describe the windows that have a tap at the source pixel of an element."""
        rows, columns = (
            [i for i, _ in window.gather_set(j, n)] for (window, n, _), j in zip(self._axes(), index[1:3], strict=True)
        )
        return f"gathers gradient rows {rows}, columns {columns}"


class ConvolutionGradientWeights(SlidingProblem, GradientWeights):
    """``gradient_weights`` of a convolution."""

    spec: SlidingKernel


@dataclass(frozen=True)
class Convolution(SlidingKernel):
    """Convolution of images (N, H, W, Ci) with weights (Co, kH, kW, Ci / groups); pairs are (y, x).

    ``offset`` is the source position of the first window's centre; even kernels lean to the top left by one pixel.
    ``neuron`` is applied to each result; the gradients take none.

    >>> import numpy as np
    >>> conv = Convolution(kernel_size=(1, 3), strides=(1, 2))
    >>> x = np.array([1, 2, 3, 4, 5], np.float32).reshape(1, 1, 5, 1)
    >>> w = np.array([1, 10, 100], np.float32).reshape(1, 1, 3, 1)
    >>> conv.forward(x, w, biases=np.array([0.5], np.float32)).ravel().tolist()
    [210.5, 432.5, 54.5]
    >>> g = np.array([1, 2, 3], np.float32).reshape(1, 1, 3, 1)
    >>> conv.gradient_data(g, w, x.shape).ravel().tolist()
    [10.0, 102.0, 20.0, 203.0, 30.0]
    >>> dw, db = conv.gradient_weights(g, x)
    >>> dw.ravel().tolist(), db.tolist()
    ([16.0, 22.0, 10.0], [6.0])
    """

    strides: PairLike = field(default=(1, 1), metadata={"codec": codecs.pair("s")})
    dilations: PairLike = field(default=(1, 1), metadata={"codec": codecs.pair("d")})
    offset: PairLike = field(default=(0, 0), metadata={"codec": codecs.pair("o")})
    groups: int = field(default=1, metadata={"codec": codecs.integer("groups")})
    edge_mode: EdgeMode = field(default="zero", metadata={"codec": codecs.word(*EDGE_MODES)})
    neuron: Neuron | None = field(default=None, metadata={"codec": neuron_codec()})

    problems: ClassVar = {
        "forward": ConvolutionForward,
        "gradient_data": ConvolutionGradientData,
        "gradient_weights": ConvolutionGradientWeights,
    }

    def __post_init__(self) -> None:
        """Check every parameter and store pairs as tuples."""
        for name, low in (("kernel_size", 1), ("strides", 1), ("dilations", 1), ("offset", None)):
            object.__setattr__(self, name, pair(name, getattr(self, name), low))
        object.__setattr__(self, "groups", integer("groups", self.groups, low=1))
        object.__setattr__(self, "edge_mode", choice("edge_mode", self.edge_mode, EDGE_MODES))
        check_neuron(self.neuron)

    @cached_property
    def windows(self) -> tuple[Window, Window]:
        """The window of the y axis and that of the x axis."""
        columns = [pair(name, getattr(self, name)) for name in ("kernel_size", "strides", "dilations", "offset")]
        y, x = (Window(*axis) for axis in zip(*columns, strict=True))
        return y, x

    def default_outputs(self, shape: Shape) -> Pair:
        """Return the output size up to the last window whose centre lies before the end of an image of ``shape``."""
        return default_size(self.windows, shape)


def forward(problem: Forward, x: Array, weights: Array, biases: Array | None = None) -> Array:
    """y[i] += w[t] x[j] for every tap t and all i and j that it joins, then the biases and the neuron."""
    y = before_neuron(problem, x, weights, biases)
    return y if problem.spec.neuron is None else value(problem.spec.neuron, y)


def before_neuron(problem: Forward, x: Array, weights: Array, biases: Array | None) -> Array:
    """Return the linear part of the forward pass."""
    y = np.zeros(problem.result_image, x.dtype)
    source, w, result = by_group(x, problem), weights_by_group(weights, problem), by_group(y, problem)
    for ty, tx, i, j in joined(problem):
        result[i] += np.einsum("nabgc,gmc->nabgm", source[j], w[:, :, ty, tx])
    if biases is not None:
        y += biases
    return y


def gradient_data(problem: GradientData, g: Array, weights: Array) -> Array:
    """dx[j] += w[t] g[i]: the forward pass with the arrow reversed."""
    dx = np.zeros(problem.source_shape, g.dtype)
    source, w, result = by_group(g, problem), weights_by_group(weights, problem), by_group(dx, problem)
    for ty, tx, i, j in joined(problem):
        result[j] += np.einsum("nabgm,gmc->nabgc", source[i], w[:, :, ty, tx])
    return dx


def gradient_weights(problem: GradientWeights, g: Array, x: Array) -> tuple[Array, Array]:
    """dw[t] = sum of g[i] x[j]: what came of each product, times what the weight was multiplied with."""
    dw = np.zeros(problem.weights_shape, g.dtype)
    result, source, w = by_group(g, problem), by_group(x, problem), weights_by_group(dw, problem)
    for ty, tx, i, j in joined(problem):
        w[:, :, ty, tx] = np.einsum("nabgm,nabgc->gmc", result[i], source[j])
    return dw, g.sum(axis=(0, 1, 2))


def joined(problem: Weighted) -> Iterator[tuple[int, int, Index, Index]]:
    """Yield each tap (ty, tx), the pixels of the result that use it, and the pixels of the source that it reads."""
    rows, columns = (
        [problem.spec.pairs(axis, t, problem.result_size[axis], problem.source_shape[1 + axis]) for t in range(taps)]
        for axis, taps in enumerate(problem.spec.size)
    )
    for (ty, (a, y)), (tx, (b, x)) in product(enumerate(rows), enumerate(columns)):
        if a and b:
            yield ty, tx, np.s_[:, np.array(a)[:, None], b], np.s_[:, np.array(y)[:, None], x]


def by_group(image: Array, problem: Weighted) -> Array:
    """View (N, H, W, C) as (N, H, W, G, C / G)."""
    return image.reshape(*image.shape[:3], problem.spec.groups, -1)


def weights_by_group(weights: Array, problem: Weighted) -> Array:
    """View OHWI weights as (G, Co / G, kH, kW, Ci / G)."""
    return weights.reshape(problem.spec.groups, -1, *weights.shape[1:])


def forward_terms(problem: Forward, x: Array, weights: Array, biases: Array | None = None) -> ErrorBound:
    """Sum of |terms|, and m = number of products + 4: the additions, a product's rounding and the bias [choice]."""
    magnitude = before_neuron(problem, np.abs(x), np.abs(weights), None if biases is None else np.abs(biases))
    a, b = _uses(problem, "outputs")
    m = (np.multiply.outer(a, b) * weights.shape[3])[None, :, :, None] + 4
    if problem.spec.neuron is None:
        return ErrorBound(magnitude, m, _exact(magnitude, weights))
    distance = m * UNIT_ROUNDOFF / (1 - m * UNIT_ROUNDOFF) * magnitude
    return _through(problem.spec.neuron, before_neuron(problem, x, weights, biases), distance)


def _through(neuron: Neuron, at: Array, distance: Array) -> ErrorBound:
    """Return the bound of a neuron's value whose argument may be ``distance`` from ``at``: its change, and its own."""
    there = [at - distance, at, at + distance]
    moved = np.max([abs(value(neuron, z) - value(neuron, at)) for z in there], axis=0)
    return ErrorBound.of_error(moved + np.max([error(neuron, "value", z) for z in there], axis=0))


def gradient_data_terms(problem: GradientData, g: Array, weights: Array) -> ErrorBound:
    """As for the forward pass."""
    magnitude = gradient_data(problem, np.abs(g), np.abs(weights))
    y, x = _uses(problem, "pixels")
    count = np.multiply.outer(y, x) * (problem.output_channels // problem.spec.groups)
    return ErrorBound(magnitude, count[None, :, :, None] + 4, _exact(magnitude, weights))


def gradient_weights_terms(problem: GradientWeights, g: Array, x: Array) -> tuple[ErrorBound, ErrorBound]:
    """As for the forward pass; a bias's gradient has a term for each pixel of g."""
    dw, db = gradient_weights(problem, np.abs(g), np.abs(x))
    ty, tx = _uses(problem, "taps")
    count = np.multiply.outer(ty, tx) * len(g)
    pixels = np.float64(np.prod(g.shape[:3]))
    return ErrorBound(dw, count[None, :, :, None] + 4, dw <= EXACT), ErrorBound(db, pixels + 4, db <= EXACT)


def _uses(problem: Weighted, what: str) -> tuple[Array, Array]:
    """Return, for y and x, in how many (tap, result pixel, source pixel) each of the outputs, pixels or taps is."""
    counts = []
    for axis in (0, 1):
        outputs, pixels, taps = problem.result_size[axis], problem.source_shape[1 + axis], problem.spec.size[axis]
        count = np.zeros({"outputs": outputs, "pixels": pixels, "taps": taps}[what])
        for t in range(taps):
            i, j = problem.spec.pairs(axis, t, outputs, pixels)
            np.add.at(count, {"outputs": i, "pixels": j, "taps": [t] * len(i)}[what], 1)
        counts.append(count)
    return counts[0], counts[1]


def _exact(magnitude: Array, weights: Array) -> Array:
    """Tell where sums of products of integers, or of integers and weights scaled by 2**-8, need no rounding."""
    whole = bool(np.all(weights == np.rint(weights)))
    return magnitude <= (EXACT if whole else EXACT * 2.0**-8)


EXACT = 2.0**24
"""Integers up to here are float32."""

SPECS: tuple[type[Spec], ...] = (Convolution,)
REFERENCE: dict[OperationKey, Formula] = {
    (Convolution, "forward"): forward,
    (Convolution, "gradient_data"): gradient_data,
    (Convolution, "gradient_weights"): gradient_weights,
}
TERMS: dict[OperationKey, Formula] = {
    (Convolution, "forward"): forward_terms,
    (Convolution, "gradient_data"): gradient_data_terms,
    (Convolution, "gradient_weights"): gradient_weights_terms,
}
