"""Convolution: weighted sums over windows, and the gradients for data, weights and biases.

With (i, t) standing for a window and a tap on both axes, j for the pixel that tap t of window i reads, r for the group
of an output channel o, c for an input channel within the group, and m for an output channel within it:

Forward  ``y[n, i, o] = act(b[o] + sum over t, c of w[o, t, c] * x[n, j, r * Ci/G + c])``
Data     ``dx[n, j, r * Ci/G + c] = sum over (i, t) at j, and m, of w[r * Co/G + m, t, c] * g[n, i, r * Co/G + m]``
Weights  ``dw[o, t, c] = sum over n, i of g[n, i, o] * x[n, j, r * Ci/G + c]``, ``db[o] = sum over n, i of g[n, i, o]``

It is a cross-correlation: taps are not flipped. A tap outside the image is skipped with edge mode "zero" (so that an
infinite weight makes no NaN there [choice convolution-infinite-weight]), and reads the nearest pixel with "clamp".
Pixels that no window reads get exactly 0. Any G that divides Ci and Co is legal; depthwise is G = Ci [design
convolution-groups].

Source: MPSCNNConvolution, MPSCNNConvolutionGradient in ``MPSCNNConvolution.h``; forward [doc], gradients [math].

Weights are OHWI, ``(Co, kH, kW, Ci / G)``: output channel, kernel row, kernel column, input channel within its group.
Group r of G connects the input channels ``r * Ci/G ...`` to the output channels ``r * Co/G ...``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from anymetal.fork_safe import cached_property
from mpsref import codecs
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair, PairLike
from mpsref.backend import BackendLike
from mpsref.codecs import parameter
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.geometry import EDGE_MODES, EdgeMode, Window, by_axis, ceil_div
from mpsref.kernels.neuron import Neuron, activation_error, check_slopes, neuron_codec, value
from mpsref.kernels.reference import UNIT_ROUNDOFF, ErrorBound
from mpsref.kernels.windows import Padding, default_size, described
from mpsref.operations import Argument, ImageProblem, Spec, cached_in_problem, operation, vector
from mpsref.registry import call

Index: TypeAlias = tuple[Any, ...]
IntTable: TypeAlias = npt.NDArray[np.int32]


class WeightedSpec(Spec):
    """A kernel with weights and biases: :class:`Convolution`, its transpose, and fully connected layers."""

    kernel_size: PairLike = parameter(codecs.pair("k", low=1))

    @property
    def groups(self) -> int:
        """G, the number of groups of channels."""
        return 1

    @property
    def edge_mode(self) -> EdgeMode:
        """The value that taps outside the image read."""
        return "zero"

    @property
    def neuron(self) -> Neuron | None:
        """The activation applied to the results of the forward pass."""
        raise NotImplementedError

    @property
    def size(self) -> Pair:
        """The kernel size as a pair."""
        return cast(Pair, self.kernel_size)

    def default_outputs(self, shape: Shape) -> Pair:
        """Return the default size (OH, OW) of the result for a source of ``shape``."""
        raise NotImplementedError

    def pairs(self, axis: int, tap: int, outputs: int, length: int) -> tuple[list[int], list[int]]:
        """Return the result pixels that use a tap on an axis (0: y, 1: x), and the source pixel of each."""
        raise NotImplementedError

    def check_sizes(self, source: Pair, output: Pair) -> None:
        """Raise ``ShapeError`` for sizes of source and result that are illegal; by default all are legal."""

    def forward(
        self,
        x: ArrayLike,
        weights: ArrayLike,
        biases: ArrayLike | None = None,
        output_size: PairLike | None = None,
        *,
        out: Array | None = None,
        backend: BackendLike = None,
    ) -> Array:
        """Compute the layer.

        Parameters
        ----------
        x : array_like, shape (N, H, W, Ci)
            Source image.
        weights : array_like, shape (Co, kH, kW, Ci / groups)
            Weights in the order OHWI.
        biases : array_like, shape (Co,), optional
            Added to each output channel.
        output_size : int or pair of int, optional
            Size (OH, OW) of the result, >= 1; by default the size that the class documents.

        Returns
        -------
        ndarray, shape (N, OH, OW, Co)
            In the dtype of ``x``.

        Raises
        ------
        ShapeError
            If shapes do not fit each other.
        """
        return call(self, "forward", (x, weights, biases), out=out, backend=backend, output_size=output_size)

    def gradient_data(
        self,
        g: ArrayLike,
        weights: ArrayLike,
        source_shape: Shape,
        *,
        out: Array | None = None,
        backend: BackendLike = None,
    ) -> Array:
        """Compute dL/dx.

        Parameters
        ----------
        g : array_like, shape (N, OH, OW, Co)
            Source gradient dL/dy.
        weights : array_like, shape (Co, kH, kW, Ci / groups)
            Weights of the forward pass.
        source_shape : tuple of int
            Shape (N, H, W, Ci) of the source image.

        Returns
        -------
        ndarray, shape (N, H, W, Ci)
            In the dtype of ``g``.

        Raises
        ------
        UnsupportedError
            For edge mode "clamp".
        """
        return call(self, "gradient_data", (g, weights), out=out, backend=backend, source_shape=source_shape)

    def gradient_weights(
        self, g: ArrayLike, x: ArrayLike, *, out: tuple[Array, Array] | None = None, backend: BackendLike = None
    ) -> tuple[Array, Array]:
        """Compute dL/dweights and dL/dbiases, summed over the batch.

        Parameters
        ----------
        g : array_like, shape (N, OH, OW, Co)
            Source gradient dL/dy.
        x : array_like, shape (N, H, W, Ci)
            Source image of the forward pass.

        Returns
        -------
        dw : ndarray, shape (Co, kH, kW, Ci / groups)
            float32, or float64 where an image is float64.
        db : ndarray, shape (Co,)
            As ``dw``.
        """
        dw, db = call(self, "gradient_weights", (g, x), out=out, backend=backend)
        return dw, db


class WeightedProblem(ImageProblem):
    """A problem of a kernel with weights; the source is x (N, H, W, Ci)."""

    spec: WeightedSpec
    output_channels: int = parameter(codecs.integer("co", low=1))

    def _check(self) -> None:
        channels = {"input": self.source_shape[3], "output": self.output_channels}
        for side, number in channels.items():
            if number % self.spec.groups:
                raise ShapeError(
                    f"groups is {self.spec.groups}; it must divide the number of {side} channels, {number}"
                )

    @property
    def result_size(self) -> Pair:
        """Height and width of the result y, and of the source gradient g."""
        raise NotImplementedError

    @property
    def group_channels(self) -> int:
        """Input channels of one group."""
        return self.source_shape[3] // self.spec.groups

    @property
    def kernel_size(self) -> Pair:
        """Height and width of the weights."""
        return self.spec.size

    @property
    def weights_shape(self) -> Shape:
        """Shape of the weights: OHWI."""
        return self.output_channels, *self.spec.size, self.group_channels

    @property
    def result_image(self) -> Shape:
        """Shape of the result y, and of the source gradient g."""
        return self.source_shape[0], *self.result_size, self.output_channels

    @property
    def flops(self) -> int:
        """Number of multiplications and additions of all taps."""
        count = 2 * self.source_shape[0] * math.prod(self.weights_shape[::3])
        for axis, taps in enumerate(self.spec.size):
            outputs, length = self.result_size[axis], self.source_shape[1 + axis]
            count *= sum(len(self.spec.pairs(axis, tap, outputs, length)[0]) for tap in range(taps))
        return count

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Scale float16 weights so that sums of products with float16 pixels stay finite."""
        if "weights" in drawn and drawn["weights"].dtype == np.float16:
            return drawn | {"weights": drawn["weights"] * np.float16(2.0**-8)}
        return drawn

    def shape_hint(self, name: str, shape: Shape) -> str:
        if name != "weights":
            return ""
        transposed = (*shape[2:], shape[1]) if len(shape) == 4 else None
        hint = "; the order is (output channels, kernel height, kernel width, input channels / groups)"
        if transposed == self.weights_shape[1:]:
            hint += ", this looks like (out, in, height, width): pass weights.transpose(0, 2, 3, 1)"
        return hint


class WeightedForward(
    WeightedProblem,
    method="forward",
    inputs={
        "x": "n h w c",
        "weights": Argument("output_channels kernel_size group_channels", "weights"),
        "biases": vector("output_channels", when="biased"),
    },
    results={"y": "n output_size output_channels"},
):
    """``forward``: y (N, OH, OW, Co) from x (N, H, W, Ci), weights, and biases if ``biased``."""

    output_size: Pair = parameter(codecs.pair("out", low=1), default=None)
    biased: bool = parameter(codecs.flag("biased", "unbiased"), default=False)

    def _check(self) -> None:
        super()._check()
        self._fill(output_size=lambda: self.spec.default_outputs(self.source_shape))
        self.spec.check_sizes(self.source_shape[1:3], self.output_size)
        check_slopes("the neuron's data", self.spec.neuron, self.output_channels, "result")

    @property
    def result_size(self) -> Pair:
        return self.output_size


class _Gradient(WeightedProblem):
    """A gradient: the size of g determines the number of windows."""

    gradient_size: Pair = parameter(codecs.pair("g", low=1), default=None)

    def _check(self) -> None:
        super()._check()
        if self.spec.neuron is not None:
            raise ValueError(
                f"neuron is {self.spec.neuron!r}: gradients need the value before the neuron, which is not kept; "
                "use neuron=None, and the gradient of a neuron of its own"
            )
        self._fill(gradient_size=lambda: self.spec.default_outputs(self.source_shape))
        self.spec.check_sizes(self.source_shape[1:3], self.gradient_size)

    @property
    def result_size(self) -> Pair:
        return self.gradient_size


class GradientData(
    _Gradient,
    method="gradient_data",
    inputs={
        "g": "n gradient_size output_channels",
        "weights": Argument("output_channels kernel_size group_channels", "weights"),
    },
    results={"dx": "n h w c"},
):
    """``gradient_data``: dx (N, H, W, Ci) from g (N, OH, OW, Co) and the weights."""

    def _check(self) -> None:
        super()._check()
        if self.spec.edge_mode == "clamp":
            raise UnsupportedError(
                'edge_mode is "clamp"; the data gradient is defined for "zero" only: use that, or pad the image before'
            )


class GradientWeights(
    _Gradient,
    method="gradient_weights",
    inputs={"g": "n gradient_size output_channels", "x": "n h w c"},
    results={"dw": vector("output_channels kernel_size group_channels"), "db": vector("output_channels")},
):
    """``gradient_weights``: dw (OHWI) and db (Co,) from g (N, OH, OW, Co) and x (N, H, W, Ci)."""


class SlidingKernel(WeightedSpec):
    """A kernel whose taps read the source through a window on each axis."""

    framework_padding: ClassVar[Padding] = "zero"
    """The padding that frameworks have for this kernel."""

    @cached_property
    def windows(self) -> tuple[Window, Window]:
        """The window of the y axis and that of the x axis."""
        raise NotImplementedError

    def pairs(self, axis: int, tap: int, outputs: int, length: int) -> tuple[list[int], list[int]]:
        """Return the windows whose tap reads a pixel, and the pixel of each: the plain definition."""
        first, stride = self.windows[axis].tap(0, tap), self.windows[axis].stride
        if self.edge_mode == "clamp":
            return list(range(outputs)), [min(max(first + stride * i, 0), length - 1) for i in range(outputs)]
        begin, end = (min(max(ceil_div(edge - first, stride), 0), outputs) for edge in (0, length))
        return list(range(begin, end)), [first + stride * i for i in range(begin, end)]


class SlidingProblem(WeightedProblem):
    """Adds a table by window and tap for each axis, which backends read."""

    spec: SlidingKernel

    def pixels(self) -> tuple[IntTable, IntTable]:
        """Return, for y and x, the pixel that each tap of each window reads; -1 where it is skipped."""
        return by_axis(lambda axis: pixels_of(*axis, self.spec.edge_mode), self._axes())

    def windows(self) -> tuple[IntTable, IntTable]:
        """Return, for y and x, the window whose tap reads each pixel; -1 where there is none (edge mode "zero")."""
        return by_axis(lambda axis: windows_at(*axis), self._axes())

    def _axes(self) -> list[tuple[Window, int, int]]:
        """Return of each axis its window, the number of windows, and the length of the source."""
        return list(zip(self.spec.windows, self.result_size, self.source_shape[1:3], strict=True))


class ConvolutionForward(SlidingProblem, WeightedForward):
    """``forward`` of a convolution."""

    spec: SlidingKernel

    def where(self, index: tuple[int, ...]) -> str:
        """Describe the window of an output: its position, and the pixels inside the image."""
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


class Convolution(SlidingKernel):
    """Convolution of images (N, H, W, Ci) with weights (Co, kH, kW, Ci / groups); pairs are (y, x).

    The default output size extends to the last window whose centre lies before the end of the image.

    Parameters
    ----------
    kernel_size : int or pair of int
        Size of the window, >= 1.
    strides, dilations : int or pair of int
        Distance of two windows, and of two taps, >= 1.
    offset : int or pair of int
        Source position of the centre of the first window; an even window has one more tap before its centre.
    groups : int
        Number of groups of channels; depthwise is ``groups`` equal to the number of input channels.
    edge_mode : {"zero", "clamp"}
        What is read outside the image.
    neuron : Neuron, optional
        Applied to each result; the gradients accept none.

    Examples
    --------
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

    strides: PairLike = parameter(codecs.pair("s", low=1), default=(1, 1))
    dilations: PairLike = parameter(codecs.pair("d", low=1), default=(1, 1))
    offset: PairLike = parameter(codecs.pair("o"), default=(0, 0))
    groups: int = parameter(codecs.integer("groups", low=1), default=1)
    edge_mode: EdgeMode = parameter(codecs.word(*EDGE_MODES), default="zero")
    neuron: Neuron | None = parameter(neuron_codec(), default=None)

    @cached_property
    def windows(self) -> tuple[Window, Window]:
        """The window of the y axis and that of the x axis."""
        return by_axis(Window, self.kernel_size, self.strides, self.dilations, self.offset)

    def default_outputs(self, shape: Shape) -> Pair:
        return default_size(self.windows, shape)


@lru_cache(maxsize=256)
def pixels_of(window: Window, windows: int, length: int, edge_mode: EdgeMode) -> IntTable:
    """Return the pixel that each tap of the windows ``0 ... windows - 1`` reads, (windows, K); -1 where it is skipped.

    >>> pixels_of(Window(kernel=3, stride=2), windows=3, length=5, edge_mode="zero").tolist()
    [[-1, 0, 1], [1, 2, 3], [3, 4, -1]]
    """
    low, high = (0, length - 1) if edge_mode == "clamp" else (-1, -1)
    table = np.full((windows, window.kernel), low, np.int32)
    for t in range(window.kernel):
        begin, end = (
            min(max(ceil_div(bound - window.tap(0, t), window.stride), 0), windows)  # windows that read before it
            for bound in (0, length)
        )
        table[begin:end, t] = [window.tap(i, t) for i in range(begin, end)]
        table[end:, t] = high
    return _frozen(table)


@lru_cache(maxsize=256)
def windows_at(window: Window, windows: int, length: int) -> IntTable:
    """Return the window whose tap t reads pixel j, (length, K); -1 where there is none (edge mode "zero").

    >>> windows_at(Window(kernel=3, stride=2), windows=3, length=5).tolist()
    [[-1, 0, -1], [1, -1, 0], [-1, 1, -1], [2, -1, 1], [-1, 2, -1]]
    """
    pixels = pixels_of(window, windows, length, "zero")
    table = np.full((length, window.kernel), -1, np.int32)
    i, t = np.nonzero(pixels >= 0)
    table[pixels[i, t], t] = i
    return _frozen(table)


def _frozen(table: IntTable) -> IntTable:
    """Return the table read-only, since it is shared."""
    table.flags.writeable = False
    return table


@cached_in_problem
def joined(problem: WeightedProblem) -> list[tuple[int, int, Index, Index]]:
    """Return each tap (ty, tx), the result pixels that use it, and the source pixels that it reads."""
    rows, columns = _pairs(problem)
    return [
        (ty, tx, _pixels(a, b), _pixels(y, x))
        for (ty, (a, y)), (tx, (b, x)) in product(enumerate(rows), enumerate(columns))
        if a.size and b.size
    ]


@cached_in_problem
def _pairs(problem: WeightedProblem) -> list[list[Array]]:
    """Return, for y and x, the result pixels that use each tap and the source pixels that it reads, (2, pixels)."""
    return [
        [
            np.array(problem.spec.pairs(axis, t, problem.result_size[axis], problem.source_shape[1 + axis]), np.int64)
            for t in range(taps)
        ]
        for axis, taps in enumerate(problem.spec.size)
    ]


def _pixels(rows: Array, columns: Array) -> Index:
    """Return the index of the pixels of some rows and columns; at equal distances they are a view."""
    slices = []
    for one in (rows.tolist(), columns.tolist()):
        step = max(1, one[1] - one[0]) if len(one) > 1 else 1
        if one != [*range(one[0], one[-1] + 1, step)]:
            return np.s_[:, rows[:, None], columns]  # of an edge that is clamped
        slices.append(slice(one[0], one[-1] + 1, step))
    return np.s_[:, slices[0], slices[1]]


@lru_cache(maxsize=256)
def _matrices(subscripts: str, first: Shape, second: Shape) -> tuple[Any, ...]:
    """Return the orders of the axes and the shapes of two arrays as matrices, and of the result; or nothing."""
    a, b, result = subscripts.replace("->", ",").split(",")
    sizes = dict(zip(a + b, first + second, strict=True))
    stack = [k for k in a if k in b and k in result]
    rows, columns = ([k for k in one if k in result and k not in stack] for one in (a, b))
    inner = [k for k in a if k not in result]
    n, m, size, k = (math.prod(sizes[one] for one in letters) for letters in (stack, rows, inner, columns))
    if sorted((m, size, k))[1] == 1:  # of a depthwise convolution
        return ()
    whole = [*stack, *rows, *columns]
    orders = ((a, [*stack, *rows, *inner]), (b, [*stack, *inner, *columns]), (whole, result))
    shapes = (n, m, size), (n, size, k), tuple(sizes[one] for one in whole)
    return *(tuple(map(given.index, wanted)) for given, wanted in orders), *shapes


def summed(subscripts: str, first: Array, second: Array) -> Array:
    """Return ``np.einsum(subscripts, first, second)`` as a product of matrices, which is several times as fast.

    >>> a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    >>> bool((summed("ik,kj->ji", a, b) == (a @ b).T).all())
    True
    """
    matrices = _matrices(subscripts, first.shape, second.shape)
    if not matrices:
        return np.asarray(np.einsum(subscripts, first, second))
    of_first, of_second, of_result, left, right, shape = matrices
    # The order of the additions depends on strides: copies of arrays in other layouts have the same bits.
    one = np.ascontiguousarray(first.transpose(of_first)).reshape(left)
    other = np.ascontiguousarray(second.transpose(of_second)).reshape(right)
    with np.errstate(all="ignore"):
        found = one @ other
    return np.asarray(found.reshape(shape).transpose(of_result))


def by_group(image: Array, problem: WeightedProblem) -> Array:
    """View (N, H, W, C) as (N, H, W, G, C / G)."""
    return image.reshape(*image.shape[:3], problem.spec.groups, -1)


def weights_by_group(weights: Array, problem: WeightedProblem) -> Array:
    """View OHWI weights as (G, Co / G, kH, kW, Ci / G)."""
    return weights.reshape(problem.spec.groups, -1, *weights.shape[1:])


EXACT = 2.0**24
"""The largest magnitude up to which all integers are float32."""


def _uses(problem: WeightedProblem, what: str) -> tuple[Array, Array]:
    """Return, for y and x, the number of (tap, result pixel, source pixel) that contain each output, pixel or tap."""
    counts = []
    for axis in (0, 1):
        outputs, pixels, taps = problem.result_size[axis], problem.source_shape[1 + axis], problem.spec.size[axis]
        i, j = np.concatenate(_pairs(problem)[axis], axis=1)
        t = np.repeat(np.arange(taps), [one.shape[1] for one in _pairs(problem)[axis]])
        used, length = {"outputs": (i, outputs), "pixels": (j, pixels), "taps": (t, taps)}[what]
        counts.append(np.bincount(used, minlength=length).astype(np.float64))
    return counts[0], counts[1]


def _exact(magnitude: Array, weights: Array) -> Array:
    """Return where sums of products of integers, or of integers and weights scaled by 2**-8, need no rounding."""
    whole = bool(np.all(weights == np.rint(weights)))
    return magnitude <= (EXACT if whole else EXACT * 2.0**-8)


def before_neuron(problem: WeightedForward, x: Array, weights: Array, biases: Array | None) -> Array:
    """Return the linear part of the forward pass."""
    y = np.zeros(problem.result_image, x.dtype)
    source, w, result = by_group(x, problem), weights_by_group(weights, problem), by_group(y, problem)
    if problem.result_size == (1, 1) and x.dtype == np.float64:  # one sum over all taps that read a pixel
        (rows, a), (columns, b) = (
            np.array([(t, j[0]) for t, (_, j) in enumerate(one) if j.size], int).reshape(-1, 2).T
            for one in _pairs(problem)
        )
        read, used = source[:, a][:, :, b], w[:, :, rows][:, :, :, columns]
        result[:, 0, 0] = np.einsum("nabgc,gmabc->ngm", read, used, optimize=True)
    else:
        for ty, tx, i, j in joined(problem):
            result[i] += summed("nabgc,gmc->nabgm", source[j], w[:, :, ty, tx])
    if biases is not None:
        y += biases
    return y


def forward_bound(problem: WeightedForward, x: Array, weights: Array, biases: Array | None = None) -> ErrorBound:
    """Sum of |terms|, and m = number of products + 4: additions, a rounded product, the bias [design error-bounds]."""
    magnitude = before_neuron(problem, np.abs(x), np.abs(weights), None if biases is None else np.abs(biases))
    a, b = _uses(problem, "outputs")
    m = (np.multiply.outer(a, b) * weights.shape[3])[None, :, :, None] + 4
    if problem.spec.neuron is None:
        return ErrorBound.of_terms(magnitude, m, _exact(magnitude, weights))
    distance = m * UNIT_ROUNDOFF / (1 - m * UNIT_ROUNDOFF) * magnitude
    return _through(problem.spec.neuron, before_neuron(problem, x, weights, biases), distance)


def _through(neuron: Neuron, at: Array, distance: Array) -> ErrorBound:
    """Return the bound of a neuron's value whose argument may be ``distance`` from ``at``: its change, and its own."""
    there = [at - distance, at, at + distance]
    moved = np.max([abs(value(neuron, z) - value(neuron, at)) for z in there], axis=0)
    return ErrorBound(moved + np.max([activation_error(neuron, "value", z) for z in there], axis=0))


@operation(Convolution, problem=ConvolutionForward, bound=forward_bound)
def forward(problem: WeightedForward, x: Array, weights: Array, biases: Array | None = None) -> Array:
    """y[i] += w[t] x[j] for every tap t and all i and j that it joins, then the biases and the neuron."""
    y = before_neuron(problem, x, weights, biases)
    return y if problem.spec.neuron is None else value(problem.spec.neuron, y)


def gradient_data_bound(problem: GradientData, g: Array, weights: Array) -> ErrorBound:
    """As for the forward pass."""
    magnitude = gradient_data(problem, np.abs(g), np.abs(weights))
    y, x = _uses(problem, "pixels")
    count = np.multiply.outer(y, x) * (problem.output_channels // problem.spec.groups)
    return ErrorBound.of_terms(magnitude, count[None, :, :, None] + 4, _exact(magnitude, weights))


@operation(Convolution, problem=ConvolutionGradientData, bound=gradient_data_bound)
def gradient_data(problem: GradientData, g: Array, weights: Array) -> Array:
    """dx[j] += w[t] g[i]: the adjoint of the forward pass."""
    dx = np.zeros(problem.source_shape, g.dtype)
    source, w, result = by_group(g, problem), weights_by_group(weights, problem), by_group(dx, problem)
    for ty, tx, i, j in joined(problem):
        result[j] += summed("nabgm,gmc->nabgc", source[i], w[:, :, ty, tx])
    return dx


def gradient_weights_bound(problem: GradientWeights, g: Array, x: Array) -> tuple[ErrorBound, ErrorBound]:
    """As for the forward pass; a bias's gradient has a term for each pixel of g."""
    dw, db = gradient_weights(problem, np.abs(g), np.abs(x))
    ty, tx = _uses(problem, "taps")
    count = np.multiply.outer(ty, tx) * len(g)
    pixels = np.float64(np.prod(g.shape[:3]))
    return ErrorBound.of_terms(dw, count[None, :, :, None] + 4, dw <= EXACT), ErrorBound.of_terms(
        db, pixels + 4, db <= EXACT
    )


@operation(Convolution, problem=ConvolutionGradientWeights, bound=gradient_weights_bound)
def gradient_weights(problem: GradientWeights, g: Array, x: Array) -> tuple[Array, Array]:
    """dw[t] = sum of g[i] x[j] over all i and j that tap t joins."""
    dw = np.zeros(problem.weights_shape, g.dtype)
    result, source, w = by_group(g, problem), by_group(x, problem), weights_by_group(dw, problem)
    for ty, tx, i, j in joined(problem):
        w[:, :, ty, tx] = summed("nabgm,nabgc->gmc", result[i], source[j])
    return dw, g.sum(axis=(0, 1, 2))
