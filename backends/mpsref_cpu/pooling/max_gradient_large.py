"""The gradient of max pooling with larger windows: separable, one axis after the other.

The first tap in raster order that has the maximum of a window is the first such tap of the first such row. So each
source row has a maximum and a selected column for each window column, once for all windows that read the row; a window
then selects among its rows. The gradient goes back the same way: a window gives ``g`` to the row that it selects, and
what a row has received goes to the columns selected there. Rows of dx gather, first from the windows that may have
selected them, then from the window columns.

Cost, for a window of K x K and a stride of 1: K comparisons and selections an element of x, and as many an element of
g; back, K comparisons and additions an element of g, and as many an element of dx. There is no index image: selections
are kept for the rows that the windows in progress need.

Selections are numbers of source rows and columns, and -1 for a value outside the image. So a pixel receives from the
windows that selected it, however their taps are placed (dilation, edge mode, clip). Each sum has one order, whatever
the threads; it is float32, and float64 where an axis has more than 1,024 windows to a pixel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.pooling import PoolingGradient
from mpsref.operations import planned
from mpsref_cpu.compiling import compiled, uncounted
from mpsref_cpu.pooling.windows import (
    MOST_FLOAT32_TERMS,
    Groups,
    RowChunks,
    WindowPixels,
    Windows,
    first_row,
    groups_of_pixels,
    groups_of_windows,
    list_reads,
)
from mpsref_cpu.simd.half import load, store
from mpsref_cpu.threads import for_rows


class LargeMaxTables(NamedTuple):
    """The geometry of a gradient."""

    row_windows: Windows
    column_windows: Windows
    rows: WindowPixels
    columns: WindowPixels
    window_groups: Groups
    pixel_groups: Groups
    extent: int
    """Source rows from the first that a window reads to the last, at most."""
    no_sums: Any
    """An empty vector of the dtype of the sums."""


class LargeMaxPlan(NamedTuple):
    tables: LargeMaxTables
    chunks: RowChunks


@planned
def _plan(problem: PoolingGradient) -> LargeMaxPlan:
    row_windows, column_windows = (Windows.of(reads).distinct() for reads in problem.reads())
    rows, columns = (WindowPixels.of(touching) for touching in problem.touching())
    y, x = problem.spec.windows
    alone = (column_windows.before > 0) | (column_windows.after > 0)
    tables = LargeMaxTables(
        row_windows,
        column_windows,
        rows,
        columns,
        groups_of_windows(column_windows, x.stride, alone, columns.begin, columns.end),
        groups_of_pixels(columns, np.zeros_like(alone, shape=columns.pixel.shape), x.stride),
        extent=min(y.extent, problem.source_shape[1]),
        no_sums=np.empty(0, np.float32 if max(rows.most, columns.most) <= MOST_FLOAT32_TERMS else np.float64),
    )

    row_bytes = (columns.end - columns.begin) * (8 * tables.extent + 4 * rows.most)
    return LargeMaxPlan(tables, RowChunks.of(problem, row_bytes))


def gradient(problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g (N, GH, GW, C) and x (N, H, W, C)."""
    tables, chunks = _plan(problem)
    row = out if out.dtype == tables.no_sums.dtype else tables.no_sums
    for_rows(_gradient, chunks.number, g, x, row, out, (*g.shape[1:3], *out.shape[1:], *chunks[:2]), tables)


@compiled
def _gradient(begin, end, g, x, results, dx, sizes, tables):
    """Compute the chunks ``begin`` to ``end`` of dx.

    ``values`` and ``columns`` hold the maxima of some source rows, for each window column, and their columns; ``rows``
    holds the source rows that some window rows select. Row r is in slot ``r % slots``, ``wide`` elements long.
    ``results``, in which rows are computed, is dx itself, or empty: then each is computed in a vector of its dtype.
    """
    _, _, _, width, _, chunk_channels, _ = sizes
    in_place = results.size > 0
    if not in_place:
        results = np.empty(width * chunk_channels, results.dtype)
    wide = (tables.columns.end - tables.columns.begin) * chunk_channels
    slots, window_slots = tables.extent, tables.rows.most
    most = max(tables.row_windows.most, tables.column_windows.most, tables.rows.most, tables.columns.most)
    workspace = (
        (np.empty(slots * wide, np.float32), np.empty(slots * wide, np.int32)),
        (np.empty(window_slots * wide, np.int32), np.empty(wide, np.float32), np.empty(wide, results.dtype)),
        (np.empty(slots, np.int64), np.empty(window_slots, np.int64)),
        (np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.float64)),
        (np.empty(most, np.int64), np.empty(most, np.int64)),
    )
    _chunks(begin, end, g, x, results, in_place, dx, sizes, tables, workspace)


@uncounted
def _chunks(begin, end, g, x, results, in_place, dx, sizes, tables, workspace):
    """Process the chunks in preallocated workspace."""
    gradient_height, gradient_width, height, width, channels, chunk_channels, chunk_rows = sizes
    begin, end = first_row(begin, height, chunk_rows), first_row(end, height, chunk_rows)
    (values, columns), (rows, best, received), (held, chosen), (numbers, starts, times), lists = workspace
    chunks = -(-channels // chunk_channels)
    windows = tables.columns.end - tables.columns.begin
    wide, slots, window_slots = windows * chunk_channels, held.size, chosen.size
    plane = -1
    for row in range(begin, end):
        j = row % height
        if row // height != plane:
            plane = row // height
            held[:] = -1
            chosen[:] = -1
        image, c = plane // chunks, plane % chunks * chunk_channels
        n = min(chunk_channels, channels - c)
        source = image * height * width * channels + c
        pixel, first, count = tables.rows.pixel[j], tables.rows.first[j], tables.rows.count[j]

        for a in range(first, first + count):
            if chosen[a % window_slots] != a:
                chosen[a % window_slots] = a
                reads = list_reads(tables.row_windows, a, numbers, times)
                for k in range(reads):
                    slot = numbers[k] % slots
                    starts[k] = slot * wide if numbers[k] >= 0 else -1
                    if numbers[k] >= 0 and held[slot] != numbers[k]:
                        held[slot] = numbers[k]
                        p = source + numbers[k] * width * channels
                        _select_columns(values, columns, starts[k], x, p, channels, n, tables, (*lists, times))
                whole = 1, windows * n, 0, 0, 0
                _select(best, 0, rows, a % window_slots * wide, values, starts, numbers, reads, whole)

        if held[pixel % slots] != pixel:
            count = 0  # no window reads this row
        if count > 0:
            for k in range(count):
                a = first + k
                numbers[k] = a % window_slots * wide
                starts[k] = ((image * gradient_height + a) * gradient_width + tables.columns.begin) * channels + c
            _receive(received, 0, rows, numbers, g, starts, pixel, count, (windows, n, n, n, channels, 0))
        pitch = channels if in_place else n
        at = source + j * width * channels if in_place else 0
        for k in range(tables.pixel_groups.start.size):
            q = tables.pixel_groups.start[k]
            touching = tables.columns.count[q] if count > 0 else 0
            for t in range(touching):
                starts[t] = (tables.columns.first[q] + t - tables.columns.begin) * n
                numbers[t] = pixel % slots * wide + starts[t]
            step = tables.pixel_groups.step
            walk = tables.pixel_groups.length[k], n, step * pitch, n, n, step
            q_pixel = tables.columns.pixel[q]
            _receive(results, at + q * pitch, columns, numbers, received, starts, q_pixel, touching, walk)
        if not in_place:
            p = source + j * width * channels
            for q in range(width):
                stored = dx[p + q * channels : p + q * channels + n]
                for i in range(n):
                    stored[i] = store(results[q * n + i], stored[i])


@uncounted
def _select_columns(values, columns, at, x, start, channels, n, tables, lists):
    """Select among the taps of each window column in the source row at ``x[start]``, for ``n`` channels."""
    starts, numbers, times = lists
    groups = tables.window_groups
    for k in range(groups.start.size):
        b = groups.start[k]
        reads = list_reads(tables.column_windows, b, numbers, times)
        for t in range(reads):
            starts[t] = start + numbers[t] * channels if numbers[t] >= 0 else -1
        to = at + (b - tables.columns.begin) * n
        walk = groups.length[k], n, n, groups.advance * channels, groups.advance
        _select(values, to, columns, to, x, starts, numbers, reads, walk)


# A *walk* is (blocks, size, step, advance, move): block b of ``size`` elements is written at offset ``b * step``, read
# at offset ``b * advance``, and ``b * move`` is added to its numbers. Each function makes one pass over the blocks.
# Indices are unsigned: for signed ones numba generates a test for negative values.


@uncounted
def _select(values, at, where, where_at, source, starts, numbers, count, walk):
    """Set ``values`` to the first largest of ``count`` reads and ``where`` to its number; a start of -1 reads 0."""
    to = at, where_at
    done = 0
    while done < count:
        following = min(done + 1, count - 1)
        if starts[following] < 0:
            following = done
        read = (starts[done], starts[following]), (numbers[done], numbers[following])
        if starts[done] < 0:
            _outside(values, where, to, walk, done == 0)
            following = done
        elif done == 0:
            _first_2(values, where, to, source, read[0], read[1], walk)
        else:
            _next_2(values, where, to, source, read[0], read[1], walk)
        done = following + 1


@uncounted
def _beats(value, best):
    """Whether a later value replaces the best: if it is larger, or the first NaN."""
    return (best == best) & (not value <= best)


@uncounted
def _outside(values, where, to, walk, first):
    blocks, size, step, _, _ = walk
    q, r = np.uintp(to[0]), np.uintp(to[1])
    for _ in range(blocks):
        for i in range(np.uintp(size)):
            if first or _beats(np.float32(0), values[q + i]):
                values[q + i], where[r + i] = 0, -1
        q += np.uintp(step)
        r += np.uintp(step)


@uncounted
def _first_2(values, where, to, source, starts, numbers, walk):
    blocks, size, step, advance, move = walk
    q, r, x0, x1 = np.uintp(to[0]), np.uintp(to[1]), np.uintp(starts[0]), np.uintp(starts[1])
    for b in range(blocks):
        m0, m1 = np.int32(numbers[0] + b * move), np.int32(numbers[1] + b * move)
        for i in range(np.uintp(size)):
            best, value = load(source[x0 + i]), load(source[x1 + i])
            beaten = _beats(value, best)
            values[q + i] = value if beaten else best
            where[r + i] = m1 if beaten else m0
        q += np.uintp(step)
        r += np.uintp(step)
        x0 += np.uintp(advance)
        x1 += np.uintp(advance)


@uncounted
def _next_2(values, where, to, source, starts, numbers, walk):
    blocks, size, step, advance, move = walk
    q, r, x0, x1 = np.uintp(to[0]), np.uintp(to[1]), np.uintp(starts[0]), np.uintp(starts[1])
    for b in range(blocks):
        m0, m1 = np.int32(numbers[0] + b * move), np.int32(numbers[1] + b * move)
        for i in range(np.uintp(size)):
            best, value = values[q + i], load(source[x0 + i])
            beaten = _beats(value, best)
            best, m = value if beaten else best, m0 if beaten else where[r + i]
            value = load(source[x1 + i])
            beaten = _beats(value, best)
            values[q + i], where[r + i] = value if beaten else best, m1 if beaten else m
        q += np.uintp(step)
        r += np.uintp(step)
        x0 += np.uintp(advance)
        x1 += np.uintp(advance)


# Here a walk is (blocks, size, step, selection advance, source advance, move).


@uncounted
def _receive(into, at, where, wheres, source, starts, number, count, walk):
    """Set ``into`` to the sum of those elements of ``count`` vectors whose selection is ``number``.

    Vector t has its elements at ``source[starts[t]]`` and its selections at ``where[wheres[t]]``.
    """
    if count % 2 == 0:
        _clear(into, at, walk)
    else:
        _set_1(into, at, where, wheres[0], source, starts[0], number, walk)
    for t in range(count % 2, count, 2):
        _add_2(into, at, where, (wheres[t], wheres[t + 1]), source, (starts[t], starts[t + 1]), number, walk)


@uncounted
def _clear(into, at, walk):
    blocks, size, step, _, _, _ = walk
    q = np.uintp(at)
    for _ in range(blocks):
        for i in range(np.uintp(size)):
            into[q + i] = 0
        q += np.uintp(step)


@uncounted
def _set_1(into, at, where, where_at, source, start, number, walk):
    blocks, size, step, where_advance, advance, move = walk
    q, w, x = np.uintp(at), np.uintp(where_at), np.uintp(start)
    zero = np.float32(0)
    for b in range(blocks):
        m = np.int32(number + b * move)
        for i in range(np.uintp(size)):
            value = load(source[x + i])
            into[q + i] = value if where[w + i] == m else zero
        q += np.uintp(step)
        w += np.uintp(where_advance)
        x += np.uintp(advance)


@uncounted
def _add_2(into, at, where, wheres, source, starts, number, walk):
    blocks, size, step, where_advance, advance, move = walk
    q, w0, w1, x0, x1 = np.uintp(at), np.uintp(wheres[0]), np.uintp(wheres[1]), np.uintp(starts[0]), np.uintp(starts[1])
    zero = np.float32(0)
    for b in range(blocks):
        m = np.int32(number + b * move)
        for i in range(np.uintp(size)):
            value0, value1 = load(source[x0 + i]), load(source[x1 + i])
            into[q + i] += (value0 if where[w0 + i] == m else zero) + (value1 if where[w1 + i] == m else zero)
        q += np.uintp(step)
        w0 += np.uintp(where_advance)
        w1 += np.uintp(where_advance)
        x0 += np.uintp(advance)
        x1 += np.uintp(advance)
