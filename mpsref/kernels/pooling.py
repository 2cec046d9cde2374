"""Parameters, shapes and positions of windows and gradient pixels, for all pooling kernels.

A pooling kernel works on each image and channel separately. Its window ``(a, b)`` is window a on the y axis and window
b on the x axis. Source: ``MPSCNNPooling.h`` (MPSCNNPooling, MPSCNNPoolingGradient) [doc].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from anymetal.fork_safe import cached_property
from mpsref import codecs, tables
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Clip, Pair, PairLike
from mpsref.backend import BackendLike
from mpsref.codecs import parameter
from mpsref.geometry import EDGE_MODES, EdgeMode, Window, by_axis, clip, included_windows
from mpsref.kernels.windows import Padding, default_size, described
from mpsref.operations import Argument, ImageProblem, Spec
from mpsref.registry import call


class Windowed(Spec):
    """Windows of every pooling kernel; pairs are (y, x), and a single integer stands for both.

    Parameters
    ----------
    kernel_size : int or pair of int
        Size of the window, >= 1.
    strides : int or pair of int
        Distance of two windows, >= 1.
    offset : int or pair of int
        Source position of the centre of the first window; any integer.
    """

    kernel_size: PairLike = parameter(codecs.pair("k", low=1))
    strides: PairLike = parameter(codecs.pair("s", low=1), default=(1, 1))
    offset: PairLike = parameter(codecs.pair("o"), default=(0, 0))

    @cached_property
    def windows(self) -> tuple[Window, Window]:
        """The window of the y axis and that of the x axis."""
        return by_axis(Window, self.kernel_size, self.strides, self.dilation, self.offset)

    @property
    def dilation(self) -> Pair:
        """The distance of two taps, (y, x)."""
        return 1, 1

    def default_outputs(self, shape: Shape) -> Pair:
        """Return the default output size for an image of ``shape``."""
        return default_size(self.windows, shape)


class Pooling(Windowed):
    """Parameters of every pooling kernel of MPS.

    Parameters
    ----------
    edge_mode : {"zero", "clamp"}
        What is read outside the image.
    """

    edge_mode: EdgeMode = parameter(codecs.word(*EDGE_MODES), default="zero")

    reads_source: ClassVar[bool] = True
    """Whether the gradient reads the pixels of the source image; the average needs only its size."""
    framework_padding: ClassVar[Padding]
    """The padding that frameworks have for this kernel."""

    def forward(
        self,
        x: ArrayLike,
        output_size: PairLike | Sequence[int] | None = None,
        *,
        out: Array | None = None,
        backend: BackendLike = None,
    ) -> Array:
        """Pool an image.

        Parameters
        ----------
        x : array_like, shape (N, H, W, C)
            Source image.
        output_size : int or pair of int, optional
            Size (OH, OW) of the result, >= 1. Default: ``ceil((L - offset) / stride)`` for each axis of length L, up
            to the last window whose centre lies before the end of the image.

        Returns
        -------
        ndarray, shape (N, OH, OW, C)
            In the dtype of ``x``.
        """
        return call(self, "forward", (x,), out=out, backend=backend, output_size=output_size)

    def gradient(
        self,
        g: ArrayLike,
        x_or_shape: ArrayLike | Shape,
        primary_offset: PairLike = (0, 0),
        source_size: PairLike | None = None,
        kernel_offset: PairLike | None = None,
        clip: Clip | None = None,
        *,
        out: Array | None = None,
        backend: BackendLike = None,
    ) -> Array:
        """Compute dL/dx from the source gradient dL/dy.

        Parameters
        ----------
        g : array_like, shape (N, GH, GW, C)
            Source gradient dL/dy.
        x_or_shape : array_like, shape (N, H, W, C), or its shape
            Source image of the forward pass; its shape suffices for kernels that do not read its pixels.
        primary_offset : int or pair of int
            Window ``(a, b)`` belongs to the gradient pixel ``primary_offset + (a, b)``.
        source_size : int or pair of int, optional
            Number of gradient pixels that are read, from ``primary_offset`` on; default: all that follow.
        kernel_offset : int or pair of int, optional
            Shifts the result; by default the gradient of each source pixel is at that pixel.
        clip : ((y0, x0), (height, width)), optional
            The rectangle of the result that is computed; the rest is 0.

        Raises
        ------
        ShapeError
            If N or C of ``g`` and the source differ.
        """
        return call(
            self,
            "gradient",
            (g, x_or_shape),
            out=out,
            backend=backend,
            primary_offset=primary_offset,
            source_size=source_size,
            kernel_offset=kernel_offset,
            clip=clip,
        )

    def reads(self, first: Pair, count: Pair, shape: Shape) -> tuple[tables.Reads, tables.Reads]:
        """Return, for y and x, what the windows ``first ... first + count - 1`` read of an image of ``shape``."""
        return by_axis(lambda *axis: tables.reads(*axis, self.edge_mode), self.windows, first, count, shape[1:3])


class PoolingForward(ImageProblem, method="forward", inputs={"x": "n h w c"}, results={"y": "n output_size c"}):
    """``forward`` of a pooling kernel."""

    spec: Pooling
    output_size: Pair = parameter(codecs.pair("out", low=1), default=None)

    def _check(self) -> None:
        self._fill(output_size=lambda: self.spec.default_outputs(self.source_shape))

    @property
    def result_size(self) -> Pair:
        """Height and width of the result y."""
        return self.output_size

    def reads(self) -> tuple[tables.Reads, tables.Reads]:
        """Return, for y and x, what each window reads, taps outside the image included."""
        return self.spec.reads((0, 0), self.output_size, self.source_shape)

    def where(self, index: tuple[int, ...]) -> str:
        """Describe the window of an output: its position, and the pixels inside the image."""
        return described(self.spec.windows, index, self.source_shape)

    def runs(self) -> tuple[tables.Runs, tables.Runs]:
        """Return, for y and x, the source pixels inside the image that each window reads."""
        return by_axis(tables.tap_runs, self.spec.windows, self.output_size, self.source_shape[1:3])


class PoolingGradient(
    ImageProblem,
    method="gradient",
    inputs={"g": "n gradient_size c", "x": Argument("n h w c", when="reads_source")},
    results={"dx": "n h w c"},
):
    """``gradient`` of a pooling kernel."""

    spec: Pooling
    gradient_size: Pair = parameter(codecs.pair("g", low=1), default=None)
    primary_offset: Pair = parameter(codecs.pair("p"), default=(0, 0))
    source_size: Pair | None = parameter(codecs.pair("size", low=0), default=None)
    kernel_offset: Pair | None = parameter(codecs.pair("ko"), default=None)
    clip: Clip | None = parameter(codecs.clip("clip"), default=None)

    def _check(self) -> None:
        self._fill(gradient_size=lambda: self.spec.default_outputs(self.source_shape))

    @property
    def result_size(self) -> Pair:
        """Height and width of the source gradient g."""
        return self.gradient_size

    @property
    def reads_source(self) -> bool:
        """Whether the pixels of the source image are read."""
        return self.spec.reads_source

    @property
    def included(self) -> tuple[range, range]:
        """For y and x, the windows whose gradient pixel counts; window i has the pixel ``primary_offset + i``."""
        return by_axis(included_windows, self.primary_offset, self.source_size or (None, None), self.gradient_size)

    def counted(self, g: Array) -> Iterator[tuple[int, int, Array]]:
        """Yield each window (a, b) whose gradient pixel counts, and the values (N, C) of that pixel."""
        p0y, p0x = self.primary_offset
        for a, b in product(*self.included):
            yield a, b, g[:, p0y + a, p0x + b]

    def _axes(self) -> list[dict[str, Any]]:
        """Return the arguments of :func:`mpsref.tables.gather_runs` for each axis."""
        origin, size = self.clip or ((0, 0), (None, None))
        columns = {
            "window": self.spec.windows,
            "length": self.source_shape[1:3],
            "gradient_length": self.gradient_size,
            "primary_offset": self.primary_offset,
            "source_size": self.source_size or (None, None),
            "kernel_offset": self.kernel_offset or (None, None),
            "clip_origin": origin,
            "clip_size": size,
        }
        return [{name: column[axis] for name, column in columns.items()} for axis in (0, 1)]

    def runs(self) -> tuple[tables.Runs, tables.Runs]:
        """Return, for y and x, the gradient pixels whose windows have a tap at each destination pixel."""
        return by_axis(lambda axis: tables.gather_runs(**axis), self._axes())

    def reads(self) -> tuple[tables.Reads, tables.Reads]:
        """Return, for y and x, what the window of each gradient pixel reads, taps outside the image included."""
        first = -self.primary_offset[0], -self.primary_offset[1]
        return self.spec.reads(first, self.gradient_size, self.source_shape)

    def touching(self) -> tuple[tables.Touching, tables.Touching]:
        """Return, for y and x, the source pixel of each destination pixel, and whose windows may read it."""
        return by_axis(lambda axis: tables.touching(edge_mode=self.spec.edge_mode, **axis), self._axes())

    def gathered(self, axis: int, q: int) -> list[int]:
        """Return the gradient pixels of an axis whose windows read what destination pixel ``q`` represents.

        With "clamp", windows that read it by taps outside the image are among them; those of an average shrink.
        """
        window, length, mode = self.spec.windows[axis], self.source_shape[1 + axis], self.spec.edge_mode
        near, p0 = self.touching()[axis], self.primary_offset[axis]
        j, first, count = (int(column[q]) for column in (near.pixel, near.first, near.count))
        mode = mode if self.reads_source else "zero"
        return [u for u in range(first, first + count) if window.taps_on(u - p0, j, length, mode)]

    def where(self, index: tuple[int, ...]) -> str:
        """Describe the gradient pixels whose windows read the source pixel of an element."""
        return f"gathers gradient rows {self.gathered(0, index[1])}, columns {self.gathered(1, index[2])}"

    def place(self, full: Array) -> Array:
        """Return the result D[J(q)] of the gradient ``full`` = D of all source pixels; zeros outside the clip."""
        for axis, known in enumerate(self._axes(), start=1):
            window, length, ko = known["window"], known["length"], known["kernel_offset"]
            origin, n = clip(known["clip_origin"], known["clip_size"], length)
            first = window.represented_pixel(0, window.kernel_offset(origin) if ko is None else ko)
            moved = np.zeros_like(full)
            begin, end = max(0, -first), min(n, length - first)  # pixels of the clip that represent a source pixel
            if begin < end:
                to = [slice(None)] * full.ndim
                to[axis] = slice(origin + begin, origin + end)
                of = [slice(None)] * full.ndim
                of[axis] = slice(first + begin, first + end)
                moved[tuple(to)] = full[tuple(of)]
            full = moved
        return full


def taps(problem: PoolingForward | PoolingGradient, x: Array, a: int, b: int) -> tuple[Array, Array, Array, Array]:
    """Return the values that window (a, b) reads of ``x``, (N, taps, C), and their rows, columns and numbers of taps.

    The order is the raster order of the taps. Outside the image row or column is -1 and the value 0. Taps outside the
    image on the same side are merged into one, with edge mode "clamp", too.
    """
    values, (rows, row_times), (columns, column_times) = window_of(problem, x, a, b)
    y, x_ = (grid.ravel() for grid in np.meshgrid(rows, columns, indexing="ij"))
    times = np.multiply.outer(row_times.astype(x.dtype), column_times.astype(x.dtype)).ravel()
    return values, y, x_, times


Axis: TypeAlias = tuple[Array, Array]
"""What a window reads along an axis: pixels, -1 for the zeros outside, and how many taps read each."""


def window_of(problem: PoolingForward | PoolingGradient, x: Array, a: int, b: int) -> tuple[Array, Axis, Axis]:
    """Return the values of :func:`taps`, and the rows and the columns that they are the raster of."""
    (vertical, horizontal), edge_mode = problem.spec.windows, problem.spec.edge_mode
    rows, columns = _reads(vertical, a, x.shape[1], edge_mode), _reads(horizontal, b, x.shape[2], edge_mode)
    values = x[:, rows[0][:, None], columns[0]]
    for end in (0, -1):  # zeros outside are first or last
        if rows[0][end] < 0:
            values[:, end] = 0
        if columns[0][end] < 0:
            values[:, :, end] = 0
    return values.reshape(len(x), -1, x.shape[-1]), rows, columns


BLOCK = 1 << 16
"""Values of the windows that are looked at together."""


def blocks(problem: PoolingForward | PoolingGradient, rows: range, columns: range) -> Iterator[tuple[int, range]]:
    """Yield the windows of each row, in parts of so few columns that their values stay in the cache."""
    n, _, _, c = problem.source_shape
    vertical, horizontal = problem.spec.windows
    step = max(1, BLOCK // (n * vertical.kernel * horizontal.kernel * c))
    for a, k in product(rows, range(0, len(columns), step)):
        yield a, columns[k : k + step]


def windows_of_row(
    problem: PoolingForward | PoolingGradient, x: Array, a: int, columns: range
) -> tuple[Array, Array, Array]:
    """Return the values (N, taps, B, C) that windows (a, b) read, their rows (P,) and their columns (Q, B).

    As :func:`taps` for several b in ``columns``; windows that read fewer columns repeat their last one.
    """
    (vertical, horizontal), edge_mode = problem.spec.windows, problem.spec.edge_mode
    rows, _ = _reads(vertical, a, x.shape[1], edge_mode)
    pixels = _columns(horizontal, columns, x.shape[2], edge_mode)
    values = x[:, rows[:, None, None], pixels]
    values[:, rows < 0] = 0
    values[:, :, pixels < 0] = 0
    return values.reshape(len(x), -1, len(columns), x.shape[-1]), rows, pixels


@lru_cache(maxsize=256)
def _columns(window: Window, columns: range, length: int, edge_mode: EdgeMode) -> Array:
    """Return the pixels (Q, B) that several windows of an axis read."""
    each = [_reads(window, b, length, edge_mode)[0] for b in columns]
    most = np.arange(max(map(len, each)))
    return np.array([one[np.minimum(most, len(one) - 1)] for one in each]).T


@lru_cache(maxsize=4096)
def _reads(window: Window, i: int, length: int, edge_mode: EdgeMode) -> Axis:
    """Return :meth:`Window.reads` as two vectors."""
    pixels, times = zip(*window.reads(i, length, edge_mode), strict=True)
    return np.array([-1 if pixel is None else pixel for pixel in pixels]), np.array(times, np.float64)


def count_of_windows(problem: PoolingGradient) -> Array:
    """Return the number of windows that read the pixel of each element of a gradient, (1, H, W, 1)."""
    counts = []
    for window, windows, length in zip(problem.spec.windows, problem.included, problem.source_shape[1:3], strict=True):
        count = np.zeros(length)
        for i in windows:
            read = window.reads(i, length, problem.spec.edge_mode)
            count[list({pixel for pixel, _ in read if pixel is not None})] += 1
        counts.append(count)
    return problem.place(np.multiply.outer(*counts)[None, :, :, None])
