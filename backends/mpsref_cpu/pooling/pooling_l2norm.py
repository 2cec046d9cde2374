"""L2-norm pooling: separable sums (:mod:`mpsref_cpu.pooling.separable`) of squares, and of ratios.

Gradient: ``dx = x * sum of g / norm over the windows that read the pixel``. Going down the image, the ratios
``g / norm`` of each row of windows are computed at the first pixel that needs them, and kept as long as others do.

Workspace of a thread: a row of squares, one of sums, and for the gradient twice as many rows of ratios as windows of a
column read one pixel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.interpolation import WeightTable
from mpsref.kernels.pooling import PoolingForward, PoolingGradient
from mpsref.kernels.pooling_l2norm import PoolingL2Norm
from mpsref.operations import cached_in_problem
from mpsref.registry import Implementation, OperationKey
from mpsref.tables import Reads, Touching
from mpsref_cpu.compiling import compiled, uncounted
from mpsref_cpu.pooling.separable import Axes, axes_of, greatest, memory_for, sum_row
from mpsref_cpu.pooling.windows import MOST_FLOAT32_TERMS, Indices, RowChunks, first_row
from mpsref_cpu.threads import for_rows


class GradientPlan(NamedTuple):
    windows: Axes
    """The pixels that windows read."""
    pixels: Axes
    """The windows that read each pixel of the gradient."""
    row: Indices
    """The source row of each row of the gradient that is read."""
    runs: Indices
    """Columns [begin, end) that are read."""
    column: Indices
    """The source column of each of them."""
    rows: int
    """The number of rows of a chunk."""
    chunks: int


def forward(problem: PoolingForward, x: Array, out: Array) -> None:
    """Fill y (N, OH, OW, C) from x (N, H, W, C)."""
    n, height, width, channels = out.shape
    for_rows(_forward, n * height, x, out, (*x.shape[1:3], height, width, channels), _forward_plan(problem))


def gradient(problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g (N, GH, GW, C) and x (N, H, W, C)."""
    plan = _gradient_plan(problem)
    for_rows(_gradient, plan.chunks, g, x, out, (*g.shape[1:3], *out.shape[1:]), plan)


@cached_in_problem
def _forward_plan(problem: PoolingForward) -> Axes:
    (axes,) = _axes(problem, [_of_windows(reads) for reads in problem.reads()])
    return axes


@cached_in_problem
def _gradient_plan(problem: PoolingGradient) -> GradientPlan:
    reads, (y, x) = problem.reads(), problem.touching()
    of_pixels = [_of_pixels(one, touching) for one, touching in zip(reads, (y, x), strict=True)]
    windows, pixels = _axes(problem, [_of_windows(one) for one in reads], of_pixels)
    runs = np.flatnonzero(np.diff(of_pixels[1].number > 0, prepend=False, append=False)).reshape(-1, 2)
    row, column = (touching.pixel.astype(np.int64) for touching in (y, x))
    rows = RowChunks.of(problem, 0).rows
    n, height, *_ = problem.source_shape
    return GradientPlan(windows, pixels, row, runs, column, rows, n * -(-height // rows))


def _axes(problem: PoolingForward | PoolingGradient, *tables: list[WeightTable]) -> list[Axes]:
    """Return the axes of the windows, and of the pixels, if any; sums are float64 if any has many terms."""
    channels, stride = problem.source_shape[3], problem.spec.windows[1].stride
    most = max(int(y.number.max()) * int(x.number.max()) for y, x in tables)
    dtype = np.float32 if most <= MOST_FLOAT32_TERMS else np.float64
    moves = [(1, stride)], [(stride, 1), (1, 0)]
    return [axes_of(y, x, channels, dtype, *move) for (y, x), move in zip(tables, moves, strict=False)]


def _of_windows(reads: Reads) -> WeightTable:
    """Return the pixels that each window reads, with the numbers of its taps as weights."""
    before, after = ((taps > 0) & (reads.low >= 0) for taps in (reads.before, reads.after))  # others read zeros
    first = np.where(before, reads.low, np.where(reads.count > 0, reads.first, reads.high))
    last = np.where(after, reads.high, np.where(reads.count > 0, reads.first + reads.count - 1, reads.low))
    number = np.where(before | after | (reads.count > 0), last - first + 1, 0)
    return _table(first, number, lambda window, pixel: _times(reads, window, pixel))


def _of_pixels(reads: Reads, touching: Touching) -> WeightTable:
    """Return the windows that read each pixel, with the numbers of their taps as weights."""
    pixels = touching.pixel
    return _table(touching.first, touching.count, lambda pixel, window: _times(reads, window, pixels[pixel]))


def _times(reads: Reads, window: Array, pixel: Array) -> Array:
    """Return how many taps of windows read pixels."""
    before, after = reads.before[window] * (pixel == reads.low), reads.after[window] * (pixel == reads.high)
    place = pixel - reads.first[window]
    times: Array = before + after + ((place >= 0) & (place < reads.count[window])).astype(np.float64)
    return times


def _table(first: Array, number: Array, times: Callable[[Array, Array], Array]) -> WeightTable:
    """Return the table of ``number`` elements from ``first`` on, of which some at the ends may have the weight 0."""
    owner = np.repeat(np.arange(number.size), number)
    element = np.arange(owner.size) - np.repeat(np.cumsum(number) - number - first, number)
    weights = times(owner, element)
    used = weights > 0
    number = np.bincount(owner[used], minlength=number.size)
    start = np.cumsum(number) - number
    first = np.append(element[used], 0)[start]
    return WeightTable(first.astype(np.int32), number.astype(np.int32), start.astype(np.int32), weights[used])


@compiled
def _forward(begin, end, x, y, sizes, axes):
    """Compute rows ``begin`` to ``end`` of y, counted through all images."""
    source_height, source_width, height, width, channels = sizes
    size, memory = width * channels, memory_for(source_width * channels, *axes)
    sums = np.empty(size, axes[0].weights.dtype)
    for row in range(begin, end):
        image, a = divmod(row, height)
        start = image * source_height * source_width * channels
        sum_row(sums, 0, x, start, source_width, channels, a, axes, memory, True)
        stored = y[row * size : (row + 1) * size]
        for i in range(stored.size):
            stored[i] = np.sqrt(sums[i])


@compiled
def _gradient(begin, end, g, x, dx, sizes, plan):
    """Compute the chunks ``begin`` to ``end`` of dx, counted through all images.

    ``ratios`` holds some rows of windows, row a in the slots ``a % slots`` and ``slots + a % slots``, so that rows
    follow each other.
    """
    _, gradient_width, _, width, channels = sizes
    windows, pixels = plan[0], plan[1]
    slots, pitch, dtype = max(1, greatest(pixels[0].number)), gradient_width * channels, pixels[0].weights.dtype
    ratios, totals, held = (
        np.empty(2 * slots * pitch, dtype),
        np.empty(width * channels, dtype),
        np.empty(slots, np.int64),
    )
    memory = memory_for(width * channels, *windows), memory_for(pitch, *pixels)
    _chunks(begin, end, g, x, dx, sizes, plan, ratios, totals, held, memory)


@uncounted
def _chunks(begin, end, g, x, dx, sizes, plan, ratios, totals, held, memory):
    """Process the chunks in preallocated workspace."""
    gradient_height, gradient_width, height, width, channels = sizes
    windows, pixels, source_row, runs, source_column, chunk_rows, _ = plan
    begin, end = first_row(begin, height, chunk_rows), first_row(end, height, chunk_rows)
    slots, pitch, size, zero = held.size, gradient_width * channels, width * channels, ratios.dtype.type(0)
    for row in range(begin, end):
        image, j = divmod(row, height)
        if row == begin or j == 0:
            held[:] = -1
        first, count = pixels[0].first[j], pixels[0].number[j]
        for a in range(first, first + count):
            if held[a % slots] != a:
                held[a % slots] = a
                at, p = a % slots * pitch, (image * gradient_height + a) * pitch
                sum_row(ratios, at, x, image * height * size, width, channels, a, windows, memory[0], True)
                given, norms = g[p : p + pitch], ratios[at : at + pitch]
                again = ratios[at + slots * pitch : at + slots * pitch + pitch]
                for i in range(norms.size):
                    ratio = np.true_divide(given[i], np.sqrt(norms[i]))
                    norms[i] = ratio if norms[i] != 0 else zero
                for i in range(norms.size):
                    again[i] = norms[i]

        stored = dx[row * size : (row + 1) * size]
        stored[:] = 0
        if count > 0:
            start = (first % slots - first) * pitch
            sum_row(totals, 0, ratios, start, gradient_width, channels, j, pixels, memory[1], False)
        for k in range(runs.shape[0] if count > 0 else 0):
            q, q_end = runs[k, 0] * channels, runs[k, 1] * channels
            p = (image * height + source_row[j]) * size + source_column[runs[k, 0]] * channels
            values, sums, results = x[p : p + q_end - q], totals[q:q_end], stored[q:q_end]
            for i in range(results.size):
                results[i] = sums[i] * values[i]


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (PoolingL2Norm, "forward"): forward,
    (PoolingL2Norm, "gradient"): gradient,
}
