"""L2-norm pooling.

Forward: the sum of squares is separable. For a row of windows the squares of its source rows are added up, as one long
vector, then columns of that. An element costs a multiply-add for each row of its window and one for each column.

Gradient: ``dx = x * sum of g / norm over the windows that read the pixel``. A block of destination rows is taken at a
time: first ``g / norm`` of every window that reaches it, computed as above, then the sum of those, separable again:
whole rows first, then columns. A row of windows is computed again for each block that it reaches, twice at most unless
windows are taller than a block.

Sums are float32, and float64 where they have more than 1,024 terms. Workspace of a thread: the window rows of a block.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from mpsref.images import Array
from mpsref.kernels.pooling import PoolingForward, PoolingGradient
from mpsref.kernels.pooling_l2norm import PoolingL2Norm
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.half import as_storage, load, store
from mpsref_cpu.parallel import for_rows
from mpsref_cpu.pooling import Pixels, Windows, band_height, first_row, list_reads

__all__ = ["IMPLEMENTATIONS"]

MOST_FLOAT32_TERMS = 1024

BLOCK = 16
"""Destination rows whose windows are computed at a time."""


def forward(problem: PoolingForward, x: Array, out: Array) -> None:
    """Fill y (N, OH, OW, C) from x (N, H, W, C)."""
    rows, columns, no_sums = _windows(problem)
    n, height, width, channels = out.shape
    sizes = (x.shape[1], x.shape[2], height, width, channels)
    pixels, results = as_storage(x), as_storage(out)
    for_rows(_forward, n * height, x.nbytes + out.nbytes, pixels, no_sums, results, sizes, rows, columns)


def gradient(problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g (N, GH, GW, C) and x (N, H, W, C)."""
    rows, columns, no_sums = _windows(problem)
    y, x_, most = _pixels(problem)
    n, height, width, channels = out.shape
    nbytes, stored = g.nbytes + x.nbytes + out.nbytes, (as_storage(g), as_storage(x))
    band = band_height(n, height, min(problem.spec.windows[0].extent, height), nbytes)
    sizes = (g.shape[1], g.shape[2], height, width, channels)
    tables = rows, columns, y, x_
    for_rows(_gradient, n * -(-height // band), nbytes, *stored, no_sums, most, as_storage(out), sizes, band, *tables)


@lru_cache(maxsize=256)
def _windows(problem: PoolingForward | PoolingGradient) -> tuple[Windows, Windows, Any]:
    """Return what the windows of both axes read, and an empty vector of the dtype that their sums need."""
    rows, columns = (Windows.of(reads) for reads in problem.reads())
    return rows, columns, np.empty(0, np.float32 if rows.most * columns.most <= MOST_FLOAT32_TERMS else np.float64)


@lru_cache(maxsize=256)
def _pixels(problem: PoolingGradient) -> tuple[Pixels, Pixels, int]:
    """Return what the pixels of both axes stand for, and how many window rows a block needs."""
    y, x = (Pixels.of(touching) for touching in problem.touching())
    return y, x, _most_window_rows(y)


def _most_window_rows(rows: Pixels) -> int:
    """Return how many rows of windows reach a block of destination rows, at most; at least 1."""
    used = rows.count > 0
    low = np.where(used, rows.first, np.iinfo(np.int64).max)
    high = np.where(used, rows.first + rows.count, 0)
    starts = range(len(low))
    return max(
        1, *(int(high[s : s + BLOCK].max() - low[s : s + BLOCK].min()) for s in starts if used[s : s + BLOCK].any()), 1
    )


@compiled
def _forward(
    begin: int, end: int, source: Any, no_sums: Any, target: Any, sizes: Any, rows: Windows, columns: Windows
) -> None:
    """Compute rows ``begin`` to ``end`` of the result, counted through all images."""
    source_height, source_width, height, width, channels = sizes
    size = width * channels
    norms, squares = np.empty(size, no_sums.dtype), np.empty(source_width * channels, no_sums.dtype)
    taps, times = np.empty(max(rows.most, columns.most), np.int64), np.empty(max(rows.most, columns.most))
    for row in range(begin, end):
        image, i = divmod(row, height)
        start = image * source_height * source_width * channels
        _norms(norms, 0, source, start, i, squares, taps, times, (source_width, width, channels), rows, columns)
        for e in range(np.uintp(size)):
            target[np.uintp(row * size) + e] = store(norms[e], target[0])


@compiled
def _gradient(
    begin: int,
    end: int,
    gradients: Any,
    source: Any,
    no_sums: Any,
    window_rows: int,
    target: Any,
    sizes: Any,
    band: int,
    rows: Windows,
    columns: Windows,
    y: Pixels,
    x: Pixels,
) -> None:
    """Compute bands ``begin`` to ``end`` of the result, counted through all images, a block of rows at a time."""
    gradient_height, gradient_width, height, width, channels = sizes
    begin, end = first_row(begin, height, band), first_row(end, height, band)
    size, pitch = width * channels, gradient_width * channels
    ratios = np.empty(window_rows * pitch, no_sums.dtype)
    squares, sums = np.empty(size, ratios.dtype), np.empty(pitch, ratios.dtype)
    most = max(rows.most, columns.most)
    taps, times = np.empty(most, np.int64), np.empty(most)
    row = begin
    while row < end:
        image, j = divmod(row, height)
        stop = min(j + BLOCK, height, j + end - row)
        start = image * height * size
        low, high = gradient_height, 0
        for k in range(j, stop):
            if y.count[k] > 0:
                low, high = min(low, y.first[k]), max(high, y.first[k] + y.count[k])
        for a in range(low, high):
            at = (a - low) * pitch
            _norms(ratios, at, source, start, a, squares, taps, times, (width, gradient_width, channels), rows, columns)
            p = np.uintp((image * gradient_height + a) * pitch)
            for e in range(np.uintp(pitch)):
                norm = ratios[np.uintp(at) + e]
                share = np.true_divide(load(gradients[p + e]), norm)  # "/" would stop to raise an error
                ratios[np.uintp(at) + e] = share if norm != 0 else 0
        for k in range(j, stop):
            _row(start + k * size, k, ratios, low, sums, source, target, taps, times, sizes, rows, columns, y, x)
        row += stop - j


@compiled
def _norms(
    into: Any,
    at: int,
    source: Any,
    start: int,
    i: int,
    squares: Any,
    taps: Any,
    times: Any,
    sizes: Any,
    rows: Windows,
    columns: Windows,
) -> None:
    """Compute the norms of the windows of row i into ``into[at:]``; ``squares`` is a row of room for sums."""
    source_width, width, channels = sizes
    pitch = source_width * channels
    squares[:] = 0
    for t in range(list_reads(rows, i, taps, times)):
        if taps[t] >= 0:
            p, factor = np.uintp(start + taps[t] * pitch), squares.dtype.type(times[t])
            for e in range(np.uintp(pitch)):
                value = load(source[p + e])
                squares[e] += factor * (value * value)
    for b in range(width):
        q = np.uintp(at + b * channels)
        for c in range(np.uintp(channels)):
            into[q + c] = 0
        for t in range(list_reads(columns, b, taps, times)):
            if taps[t] >= 0:
                p, factor = np.uintp(taps[t] * channels), squares.dtype.type(times[t])
                for c in range(np.uintp(channels)):
                    into[q + c] += factor * squares[p + c]
    for e in range(np.uintp(width * channels)):
        into[np.uintp(at) + e] = np.sqrt(into[np.uintp(at) + e])


@inlined
def _times(windows: Windows, i: int, pixel: int) -> float:
    """Return how many taps of window i read a pixel."""
    times = 0.0
    if pixel == windows.low:
        times += windows.before[i]
    if pixel == windows.high:
        times += windows.after[i]
    away = pixel - windows.first[i]
    if away >= 0 and away % windows.step == 0 and away // windows.step < windows.count[i]:
        times += 1.0
    return times


@compiled
def _row(
    at: int,
    j: int,
    ratios: Any,
    low: int,
    sums: Any,
    source: Any,
    target: Any,
    taps: Any,
    times: Any,
    sizes: Any,
    rows: Windows,
    columns: Windows,
    y: Pixels,
    x: Pixels,
) -> None:
    """Compute destination row j of an image at ``target[at:]``; row 0 of ``ratios`` is that of gradient row ``low``."""
    _, gradient_width, _, width, channels = sizes
    pitch = gradient_width * channels
    sums[:] = 0
    for a in range(y.first[j], y.first[j] + y.count[j]):
        factor = sums.dtype.type(_times(rows, a, y.pixel[j]))
        if factor > 0:
            p = np.uintp((a - low) * pitch)
            for e in range(np.uintp(pitch)):
                sums[e] += factor * ratios[p + e]
    row_start = at - j * width * channels + y.pixel[j] * width * channels
    total = np.empty(channels, sums.dtype)
    for k in range(width):
        q = np.uintp(at + k * channels)
        total[:] = 0
        for b in range(x.first[k], x.first[k] + x.count[k]):
            factor = sums.dtype.type(_times(columns, b, x.pixel[k]))
            if factor > 0:
                p = np.uintp(b * channels)
                for c in range(np.uintp(channels)):
                    total[c] += factor * sums[p + c]
        if y.count[j] > 0 and x.count[k] > 0:
            p = np.uintp(row_start + x.pixel[k] * channels)
            for c in range(np.uintp(channels)):
                target[q + c] = store(total[c] * load(source[p + c]), target[0])
        else:
            for c in range(np.uintp(channels)):
                target[q + c] = 0


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (PoolingL2Norm, "forward"): forward,
    (PoolingL2Norm, "gradient"): gradient,
}
