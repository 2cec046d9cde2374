"""MPSGraph's max pooling with the indices of the maxima, and its gradient from the indices.

Forward   ``y[a, b] = max over the taps of window (a, b) inside the image of x``, and the number of the selected tap
Gradient  ``dx[pixel of a tap of (a, b)] += g[a, b]`` if the number of the tap is ``indices[a, b]``

Pixels outside the image are never selected, as if they were -inf [math]: with dilation this is not the edge mode
"clamp" of :mod:`mpsref.kernels.pooling_max`. The maximum skips NaN, and the first of equal taps in raster order is
selected. A window without a number inside the image, wholly outside it or of NaN alone, has the result -inf and the
index -1 [choice mpsgraph-empty-window].

A mode numbers the elements of the last 1, 2, 3 or 4 axes of the image, or of the window, the last one fastest [doc]. Of
an image (N, C, H, W) the axes are W; H and W; C, H and W; all. Of (N, H, W, C) they are C; W and C; H, W and C; all, as
the documentation says literally [choice mpsgraph-indices-nhwc]. A window has the length 1 along N and C, and its taps
outside the image count [choice mpsgraph-local-indices].

In the gradient windows add up where they overlap [math]; a number of no tap of its window has no effect [choice
mpsgraph-foreign-index]. It needs a mode that numbers all axes along which a window has several taps.

Source: ``maxPooling2DReturnIndices...`` and ``maxPooling2DGradient...indicesTensor...`` of MPSGraph in
``MPSGraphPoolingOps.h`` [doc].
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import ClassVar, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from anymetal.fork_safe import cached_property
from mpsref import codecs, tables
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair, PairLike, pair
from mpsref.backend import BackendLike
from mpsref.codecs import parameter
from mpsref.errors import ShapeError
from mpsref.geometry import Window, by_axis
from mpsref.kernels.pooling import Windowed
from mpsref.kernels.reference import ErrorBound, selected
from mpsref.kernels.windows import Padding, described
from mpsref.operations import Argument, ImageProblem, operation, shape_only
from mpsref.registry import call

IndicesMode: TypeAlias = Literal[
    "global_flatten_1d",
    "global_flatten_2d",
    "global_flatten_3d",
    "global_flatten_4d",
    "local_flatten_1d",
    "local_flatten_2d",
    "local_flatten_3d",
    "local_flatten_4d",
]
MODES: tuple[IndicesMode, ...] = get_args(IndicesMode)
"""Those of MPSGraphPoolingReturnIndicesMode, from 1 on."""

Index: TypeAlias = tuple[slice, slice, slice]
"""Of images, rows and columns."""

MOST_NUMBERS = 2**31
"""Indices are int32."""


class GraphPoolingMax(Windowed):
    """Max pooling of MPSGraph, whose padding is never the maximum, with indices.

    Parameters
    ----------
    dilations : int or pair of int
        Distance (y, x) of two taps, >= 1.
    indices : str
        "global_flatten_1d" to "4d" number the elements of the last axes of the image, "local_flatten_1d" to "4d" those
        of the window.
    layout : {"NCHW", "NHWC"}
        The order of the axes that are numbered; images are (N, H, W, C) in either case.

    Examples
    --------
    >>> import numpy as np
    >>> pool = GraphPoolingMax((1, 2), (1, 2), offset=(0, 1))
    >>> y, indices = pool.forward(np.array([1, 4, 3, 2], np.float32).reshape(1, 1, 4, 1))
    >>> y.ravel().tolist(), indices.ravel().tolist()
    ([4.0, 3.0], [1, 2])
    >>> g = np.array([10, 20], np.float32).reshape(1, 1, 2, 1)
    >>> pool.gradient(g, indices, (1, 1, 4, 1)).ravel().tolist()
    [0.0, 10.0, 20.0, 0.0]
    """

    dilations: PairLike = parameter(codecs.pair("d", low=1), default=(1, 1))
    indices: IndicesMode = parameter(codecs.word(*MODES), default="global_flatten_2d")
    layout: Literal["NCHW", "NHWC"] = parameter(codecs.word("NCHW", "NHWC"), default="NCHW")

    edge_mode: ClassVar[Literal["lowest"]] = "lowest"
    framework_padding: ClassVar[Padding] = "lowest"

    @property
    def dilation(self) -> Pair:
        """The dilations as a pair."""
        return pair("dilations", self.dilations)

    def forward(
        self,
        x: ArrayLike,
        output_size: PairLike | None = None,
        *,
        out: tuple[Array, Array] | None = None,
        backend: BackendLike = None,
    ) -> tuple[Array, Array]:
        """Pool an image.

        Parameters
        ----------
        x : array_like, shape (N, H, W, C)
            Source image.
        output_size : int or pair of int, optional
            Size (OH, OW) of the results, >= 1; default as for :class:`mpsref.PoolingMax`.

        Returns
        -------
        y : ndarray, shape (N, OH, OW, C)
            The maxima, in the dtype of ``x``.
        indices : ndarray, shape (N, OH, OW, C)
            Their numbers, int32; -1 where a window has none.

        Raises
        ------
        ShapeError
            If the mode gives numbers of more than 31 bits to an image of this shape.
        """
        return call(self, "forward", (x,), out=out, backend=backend, output_size=output_size)  # type: ignore[return-value]

    def gradient(
        self,
        g: ArrayLike,
        indices: ArrayLike,
        x_or_shape: ArrayLike | Shape,
        *,
        out: Array | None = None,
        backend: BackendLike = None,
    ) -> Array:
        """Compute dL/dx from the source gradient dL/dy and the indices of the forward pass.

        Parameters
        ----------
        g : array_like, shape (N, OH, OW, C)
            Source gradient.
        indices : array_like of int32, shape (N, OH, OW, C)
            Indices of the forward pass. A number of no tap of its window has no effect.
        x_or_shape : array_like, shape (N, H, W, C), or its shape
            Source image of the forward pass, of which only the shape counts.

        Raises
        ------
        ShapeError
            If N or C of ``g`` and the source differ, and as in :meth:`forward`.
        ValueError
            If the mode does not number an axis along which a window has several taps.
        """
        return call(self, "gradient", (g, indices, x_or_shape), out=out, backend=backend)


class Numbered(NamedTuple):
    """The windows of an axis and the numbers of their taps, as vectors of int32 and integers.

    Of each element of the result ``number`` elements ``first, first + step, ...`` of the other image, which add the
    numbers ``base, base + change, ...`` to an index.
    """

    first: Array
    number: Array
    base: Array
    step: int
    change: int


class GraphPoolingProblem(ImageProblem):
    """A call of max pooling with indices."""

    spec: GraphPoolingMax

    @cached_property
    def numbering(self) -> tuple[int, int, int, int]:
        """What the next image, row, column and channel add to a number; 0 for an axis that the mode does not number."""
        where, _, axes = self.spec.indices.partition("_flatten_")
        lengths = dict(zip("NHWC", self.source_shape, strict=True))
        if where == "local":
            rows, columns = self.spec.windows
            lengths = {"N": 1, "H": rows.kernel, "W": columns.kernel, "C": 1}
        steps, step = dict.fromkeys("NHWC", 0), 1
        for letter in self.spec.layout[::-1][: int(axes[0])]:
            steps[letter] = step if where == "global" or lengths[letter] > 1 else 0
            step *= lengths[letter]
        if step > MOST_NUMBERS:
            raise ShapeError(
                f"indices is {self.spec.indices!r}, which numbers {step} elements; an int32 numbers {MOST_NUMBERS}: "
                "choose a mode of fewer axes, or a smaller image"
            )
        n, h, w, c = steps.values()
        return n, h, w, c

    @property
    def is_local(self) -> bool:
        """Whether taps of a window are numbered, not pixels."""
        return self.spec.indices.startswith("local")

    def numbers(self, window: Window, axis: int, i: int) -> tuple[Array, Array]:
        """Return the pixels of an axis that window i has inside the image, and what each adds to a number."""
        taps, step = window.taps_between(i, 0, self.source_shape[axis]), self.numbering[axis]
        pixels = [window.tap(i, t) for t in taps]
        return np.array(pixels, np.int64), np.array([k * step for k in (taps if self.is_local else pixels)], np.int64)

    def outer(self) -> Array:
        """Return what image and channel add to a number, (N, C)."""
        step, _, _, channel = self.numbering
        n, _, _, c = self.source_shape
        return np.add.outer(step * np.arange(n), channel * np.arange(c))

    def taps_of(self, size: Pair) -> Iterator[tuple[Index, Index, Array]]:
        """Yield each tap, in raster order: the windows that have it inside the image, its pixels and their numbers."""
        rows, columns = (self._taps(axis, outputs) for axis, outputs in enumerate(size, 1))
        for (a, y, of_y), (b, x, of_x) in product(rows, columns):
            numbers = np.add.outer(of_y, of_x)[:, :, None] + self.outer()[:, None, None]
            yield (slice(None), a, b), (slice(None), y, x), numbers

    def _taps(self, axis: int, outputs: int) -> Iterator[tuple[slice, slice, Array]]:
        """Yield each tap of an axis: the windows that have it inside, its pixels, and what these add to a number."""
        window, length, step = self.spec.windows[axis - 1], self.source_shape[axis], self.numbering[axis]
        for t in range(window.kernel):
            pixels = window.tap(0, t) + window.stride * np.arange(outputs)
            windows = np.flatnonzero((pixels >= 0) & (pixels < length))
            if windows.size:
                first, last = windows[0], windows[-1]
                places = slice(pixels[first], pixels[last] + 1, window.stride)
                yield slice(first, last + 1), places, step * (0 * windows + t if self.is_local else pixels[windows])

    def windows_of(self, size: Pair) -> Iterator[tuple[int, int, Array, Array, Array]]:
        """Yield each window (a, b), the rows and columns of its taps in the image, and their numbers (taps, N, C)."""
        rows, columns = (
            [self.numbers(w, k, i) for i in range(n)]
            for k, (w, n) in enumerate(zip(self.spec.windows, size, strict=True), 1)
        )
        for a, b in np.ndindex(*size):
            (y, of_y), (x, of_x) = rows[a], columns[b]
            numbers = np.add.outer(np.add.outer(of_y, of_x).ravel(), self.outer())
            yield a, b, np.repeat(y, x.size), np.tile(x, y.size), numbers


class GraphPoolingForward(
    GraphPoolingProblem,
    method="forward",
    inputs={"x": "n h w c"},
    results={"y": "n output_size c", "indices": Argument("n output_size c", "int32")},
):
    """``forward``: y and the indices from x."""

    output_size: Pair = parameter(codecs.pair("out", low=1), default=None)

    def _check(self) -> None:
        self._fill(output_size=lambda: self.spec.default_outputs(self.source_shape))
        _ = self.numbering

    @property
    def result_size(self) -> Pair:
        """Height and width of the results."""
        return self.output_size

    def where(self, index: tuple[int, ...]) -> str:
        """Describe the window of an output."""
        return described(self.spec.windows, index, self.source_shape)

    def tables(self) -> tuple[Numbered, Numbered]:
        """Return, for y and x, the pixels inside the image that each window reads."""
        return by_axis(self._table, self.spec.windows, self.output_size, self.source_shape[1:3], self.numbering[1:3])

    def _table(self, window: Window, outputs: int, length: int, step: int) -> Numbered:
        runs = tables.tap_runs(window, outputs, length)
        if self.is_local:
            return _numbered(runs, runs.tap, step, step)
        return _numbered(runs, runs.first, step, runs.step * step)


class GraphPoolingGradient(
    GraphPoolingProblem,
    method="gradient",
    inputs={"g": "n gradient_size c", "indices": Argument("n gradient_size c", "int32"), "x": shape_only()},
    results={"dx": "n h w c"},
):
    """``gradient``: dx from g and the indices."""

    gradient_size: Pair = parameter(codecs.pair("g", low=1), default=None)

    def _check(self) -> None:
        self._fill(gradient_size=lambda: self.spec.default_outputs(self.source_shape))
        for window, step, axis in zip(self.spec.windows, self.numbering[1:3], ("rows", "columns"), strict=True):
            if window.kernel > 1 and not step:
                raise ValueError(
                    f"indices is {self.spec.indices!r} with layout {self.spec.layout!r}, which does not number the "
                    f"{axis} of a window of {window.kernel}; a gradient needs a mode of more axes"
                )

    @property
    def result_size(self) -> Pair:
        """Height and width of the source gradient g."""
        return self.gradient_size

    def where(self, index: tuple[int, ...]) -> str:
        """Describe the windows that read the source pixel of an element."""
        rows, columns = (
            (table.first[k] + table.step * np.arange(table.number[k])).tolist()
            for table, k in zip(self.tables(), index[1:3], strict=True)
        )
        return f"gathers gradient rows {rows}, columns {columns}"

    def tables(self) -> tuple[Numbered, Numbered]:
        """Return, for y and x, the windows that have a tap at each pixel."""
        return by_axis(self._table, self.spec.windows, self.source_shape[1:3], self.gradient_size, self.numbering[1:3])

    def _table(self, window: Window, length: int, gradient_length: int, step: int) -> Numbered:
        runs = tables.gather_runs(window, length, gradient_length)
        if self.is_local:
            return _numbered(runs, runs.tap, step, -runs.tap_step * step)
        return _numbered(runs, np.arange(length), step, 0)

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Let each window select one of its taps inside the image; -1 where it has none."""
        chosen = np.abs(drawn["indices"].astype(np.float64) * 1000).astype(np.int64)
        found, inside = np.full(chosen.shape, -1), np.zeros(chosen.shape, np.int64)
        for windows, _, _ in self.taps_of(self.gradient_size):
            inside[windows] += 1
        left = chosen % np.maximum(inside, 1)
        for windows, _, numbers in self.taps_of(self.gradient_size):
            found[windows] = np.where(left[windows] == 0, numbers, found[windows])
            left[windows] -= 1
        return drawn | {"indices": found}


def _numbered(runs: tables.Runs, numbered: Array, step: int, change: int) -> Numbered:
    """Return the table of runs; the change is 0 if it has more than 31 bits: no run then has a second element."""
    base = (numbered.astype(np.int64) * step).astype(np.int32)
    return Numbered(runs.first, runs.count, base, runs.step, change if abs(change) < MOST_NUMBERS else 0)


@operation(GraphPoolingMax, problem=GraphPoolingForward, bound=selected)
def forward(problem: GraphPoolingForward, x: Array) -> tuple[Array, Array]:
    """y[a, b] = the value of the selected tap, and its number; -inf and -1 if there is none."""
    shape, _ = problem.result_shapes
    y, indices = np.full(shape, -np.inf, x.dtype), np.full(shape, -1)
    for windows, pixels, numbers in problem.taps_of(problem.output_size):
        values, largest, index = x[pixels], y[windows], indices[windows]
        selected = (values > largest) | ((index < 0) & ~np.isnan(values))
        y[windows], indices[windows] = np.where(selected, values, largest), np.where(selected, numbers, index)
    return y, indices


def gradient_bound(problem: GraphPoolingGradient, g: Array, indices: Array) -> ErrorBound:
    """Sum of |g| over the T windows that select the pixel, and m = T + 1."""
    magnitude = gradient(problem, np.abs(g), indices)
    return ErrorBound.of_terms(magnitude, gradient(problem, np.ones(g.shape), indices) + 1, magnitude <= 2.0**24)


@operation(GraphPoolingMax, problem=GraphPoolingGradient, bound=gradient_bound)
def gradient(problem: GraphPoolingGradient, g: Array, indices: Array) -> Array:
    """dx[pixel of a tap] += g[a, b] where indices[a, b] is the number of the tap."""
    dx = np.zeros(problem.source_shape, g.dtype)
    for windows, pixels, numbers in problem.taps_of(problem.gradient_size):
        dx[pixels] += np.where(indices[windows] == numbers, g[windows], 0)
    return dx
