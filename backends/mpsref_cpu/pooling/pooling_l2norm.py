"""L2-norm pooling.

Forward: the sum of squares is separable. For a row of windows the squares of its source rows are added up, as one long
vector, then columns of that vector: one multiply-add an element for each row and each column of its window.

Gradient: ``dx = x * sum of g / norm over the windows that read the pixel``. Going down the image, the ratios
``g / norm`` of each row of windows are computed at the first pixel that needs them, as above, and kept as long as
others do. Their sum is separable again: rows first, then columns. Where one window reads a pixel, its ratio is the sum.

Sums are float32, and float64 where they have more than 1,024 terms. Workspace of a thread: a row of squares, one of
sums, and for the gradient as many rows of ratios as windows of a column read one pixel, and one more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.pooling import PoolingForward, PoolingGradient
from mpsref.kernels.pooling_l2norm import PoolingL2Norm
from mpsref.operations import planned
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined, uncounted
from mpsref_cpu.pooling.windows import (
    MOST_FLOAT32_TERMS,
    Groups,
    Indices,
    RowChunks,
    WindowPixels,
    Windows,
    first_row,
    groups_of_pixels,
    groups_of_windows,
    list_reads,
)
from mpsref_cpu.simd.vectors import load_vector, multiply_add, store_vector, times, zeros_like
from mpsref_cpu.simd.weighted_sums import Blocks, ListedTerms, weighted_sum
from mpsref_cpu.threads import for_rows


class Reading(NamedTuple):
    """The pixels that windows read."""

    rows: Windows
    columns: Windows
    groups: Groups
    """Groups of window columns."""
    most: int
    """The largest number of terms of a sum along an axis."""
    no_sums: Any
    """An empty vector of the dtype of the sums."""


class Touched(NamedTuple):
    """The windows that read each pixel of a gradient."""

    rows: WindowPixels
    columns: WindowPixels
    groups: Groups
    """Groups of columns."""
    runs: Indices
    """Columns [begin, end) that are read."""
    read: int
    """The number of columns that are read."""


def forward(problem: PoolingForward, x: Array, out: Array) -> None:
    """Fill y (N, OH, OW, C) from x (N, H, W, C)."""
    n, height, width, channels = out.shape
    for_rows(_forward, n * height, x, out, (*x.shape[1:3], height, width, channels), _forward_plan(problem))


def gradient(problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g (N, GH, GW, C) and x (N, H, W, C)."""
    reading, touched, chunk_rows, chunks = _gradient_plan(problem)
    for_rows(_gradient, chunks, g, x, out, (*g.shape[1:3], *out.shape[1:], chunk_rows), reading, touched)


def _reading(
    problem: PoolingForward | PoolingGradient, begin: int, end: int, rows_most: int = 1, columns_most: int = 1
) -> Reading:
    """Return the reads, with groups of the window columns [begin, end); ``*_most`` windows of an axis read a pixel."""
    rows, columns = (Windows.of(reads) for reads in problem.reads())
    alone = (columns.before > 0) | (columns.after > 0)
    groups = groups_of_windows(columns, problem.spec.windows[1].stride, alone, begin, end)
    terms = max(rows.most * columns.most, rows_most * columns_most)
    no_sums = np.empty(0, np.float32 if terms <= MOST_FLOAT32_TERMS else np.float64)
    return Reading(rows, columns, groups, max(rows.most, columns.most, rows_most, columns_most), no_sums)


@planned
def _forward_plan(problem: PoolingForward) -> Reading:
    return _reading(problem, 0, problem.result_shapes[0][2])


@planned
def _gradient_plan(problem: PoolingGradient) -> tuple[Reading, Touched, int, int]:
    """Return the reads, the windows that read each pixel, the rows of a chunk, and the number of chunks."""
    y, x = (WindowPixels.of(touching) for touching in problem.touching())
    reading = _reading(problem, x.begin, x.end, y.most, x.most)
    low, high = reading.columns.low, reading.columns.high
    alone = (x.pixel >= 0) & ((x.pixel == low) | (x.pixel == high))  # read several times by some windows
    runs = np.flatnonzero(np.diff(x.count > 0, prepend=False, append=False)).reshape(-1, 2)
    groups = groups_of_pixels(x, alone, problem.spec.windows[1].stride)
    touched = Touched(y, x, groups, runs, int((x.count > 0).sum()))
    chunks = RowChunks.of(problem, 0)
    n, height, *_ = problem.source_shape
    return reading, touched, chunks.rows, n * -(-height // chunks.rows)


@compiled
def _forward(begin, end, x, y, sizes, reading):
    """Compute rows ``begin`` to ``end`` of y, counted through all images."""
    source_height, source_width, height, width, channels = sizes
    size = width * channels
    sums, squares = np.empty(size, reading.no_sums.dtype), np.empty(source_width * channels, reading.no_sums.dtype)
    terms = ListedTerms(np.empty(reading.most, np.int64), np.empty(reading.most, sums.dtype))
    for row in range(begin, end):
        image, a = divmod(row, height)
        start = image * source_height * source_width * channels
        _sums_of_squares(sums, 0, x, start, a, squares, terms, channels, reading)
        stored = y[row * size : (row + 1) * size]
        for i in range(stored.size):
            stored[i] = np.sqrt(sums[i])


@compiled
def _gradient(begin, end, g, x, dx, sizes, reading, touched):
    """Compute the chunks ``begin`` to ``end`` of dx, counted through all images.

    ``ratios`` holds some rows of windows, row a in slot ``a % slots``, and the sum of some in one more slot.
    """
    _, gradient_width, _, width, channels, _ = sizes
    slots, dtype = touched.rows.most, reading.no_sums.dtype
    ratios, squares = np.empty((slots + 1) * gradient_width * channels, dtype), np.empty(width * channels, dtype)
    terms = ListedTerms(np.empty(reading.most, np.int64), np.empty(reading.most, dtype))
    workspace = ratios, squares, np.empty(width * channels, dtype), terms, np.empty(slots, np.int64)
    _chunks(begin, end, g, x, dx, sizes, reading, touched, workspace)


@uncounted
def _chunks(begin, end, g, x, dx, sizes, reading, touched, workspace):
    """Process the chunks in preallocated workspace."""
    gradient_height, gradient_width, height, width, channels, chunk_rows = sizes
    begin, end = first_row(begin, height, chunk_rows), first_row(end, height, chunk_rows)
    ratios, squares, totals, terms, held = workspace
    starts, factors, zero = terms.starts, terms.factors, ratios.dtype.type(0)
    slots, pitch, size = held.size, gradient_width * channels, width * channels
    used, used_end = touched.columns.begin * channels, touched.columns.end * channels
    for row in range(begin, end):
        image, j = divmod(row, height)
        if row == begin or j == 0:
            held[:] = -1
        pixel, first, count = touched.rows.pixel[j], touched.rows.first[j], touched.rows.count[j]
        for a in range(first, first + count):
            if held[a % slots] != a:
                held[a % slots] = a
                at = a % slots * pitch
                _sums_of_squares(ratios, at, x, image * height * size, a, squares, terms, channels, reading)
                p, norms = (image * gradient_height + a) * pitch, ratios[at + used : at + used_end]
                given = g[p + used : p + used_end]
                for i in range(norms.size):
                    ratio = np.true_divide(given[i], np.sqrt(norms[i]))
                    norms[i] = ratio if norms[i] != 0 else zero

        windows = _list_windows(reading.rows, first, count, pixel, terms)
        for t in range(windows):
            starts[t] = starts[t] % slots * pitch + used
        line = starts[0]
        if windows != 1 or factors[0] != 1:
            line = slots * pitch + used
            weighted_sum(ratios, line, ratios, terms, windows, Blocks(1, used_end - used, 0, 0))

        stored = dx[row * size : (row + 1) * size]
        if count == 0 or touched.read < width:
            stored[:] = 0
        if count == 0:
            continue
        for k in range(touched.groups.start.size):
            q = touched.groups.start[k]
            column, first = touched.columns.pixel[q], touched.columns.first[q]
            windows = _list_windows(reading.columns, first, touched.columns.count[q], column, terms)
            for t in range(windows):
                starts[t] = line + starts[t] * channels - used
            weighted_sum(totals, q * channels, ratios, terms, windows, _blocks(touched.groups, k, channels))
        for k in range(touched.runs.shape[0]):
            q, q_end = touched.runs[k, 0] * channels, touched.runs[k, 1] * channels
            p = (image * height + pixel) * size + touched.columns.pixel[touched.runs[k, 0]] * channels
            pixels, sums, results = x[p : p + q_end - q], totals[q:q_end], stored[q:q_end]
            for i in range(results.size):
                results[i] = sums[i] * pixels[i]


@inlined
def _times(windows, i, pixel):
    """Return how many taps of window i read a pixel."""
    times = 0.0
    if pixel == windows.low:
        times += windows.before[i]
    if pixel == windows.high:
        times += windows.after[i]
    if 0 <= pixel - windows.first[i] < windows.count[i]:
        times += 1.0
    return times


@uncounted
def _sums_of_squares(into, at, x, start, a, squares, terms, channels, reading):
    """Compute the sums of the windows of row a into ``into[at:]``, from the image at ``x[start:]``."""
    groups = reading.groups
    starts, factors = terms.starts, terms.factors
    count = _list_pixels(reading.rows, a, terms, squares.size)
    n, i = np.uintp(squares.size), np.uintp(0)
    while i + np.uintp(32) <= n:
        total = zeros_like(squares, 32)
        for t in range(np.uintp(count)):
            value = load_vector(x, np.uintp(start + starts[t]) + i, total)
            total = multiply_add(total, factors[t], times(value, value))
        store_vector(squares, i, total)
        i += np.uintp(32)
    while i < n:
        squares[i] = 0
        for t in range(np.uintp(count)):
            single = x[np.uintp(start + starts[t]) + i]
            squares[i] += factors[t] * (single * single)
        i += np.uintp(1)
    for k in range(groups.start.size):
        b = groups.start[k]
        count = _list_pixels(reading.columns, b, terms, channels)
        weighted_sum(into, at + b * channels, squares, terms, count, _blocks(groups, k, channels))


@uncounted
def _list_pixels(windows, i, terms, pitch):
    """List the offsets of the pixels that window i reads, each ``pitch`` long; return how many."""
    starts, factors = terms.starts, terms.factors
    count = 0
    for t in range(list_reads(windows, i, starts, factors)):
        if starts[t] >= 0:
            starts[count], factors[count] = starts[t] * pitch, factors[t]
            count += 1
    return count


@uncounted
def _list_windows(windows, first, count, pixel, terms):
    """List those of ``count`` windows that read a pixel, by their numbers; return how many."""
    starts, factors = terms.starts, terms.factors
    reading = 0
    for i in range(first, first + count):
        starts[reading], factors[reading] = i, _times(windows, i, pixel)
        if factors[reading] > 0:
            reading += 1
    return reading


@uncounted
def _blocks(groups, k, channels):
    """Return the blocks of a group of pixels; adjacent pixels from adjacent pixels are one long block."""
    if groups.step == groups.advance == 1:
        return Blocks(1, groups.length[k] * channels, 0, 0)
    return Blocks(groups.length[k], channels, groups.step * channels, groups.advance * channels)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (PoolingL2Norm, "forward"): forward,
    (PoolingL2Norm, "gradient"): gradient,
}
