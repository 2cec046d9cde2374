"""Max pooling.

Forward: the largest value of a window is the largest of its columns' largest values: first the rows of the window are
compared, as one long vector each, then columns of the result. An element costs a comparison for each row of its window
and one for each of its columns.

Gradient: no index image is stored. Rows of dx are taken in turn, and each window is looked at once, when the first row
that it touches is: 32 channels at a time, it finds its largest value and then gives ``g`` to the first tap in raster
order that equals it; what is given is taken away from what is left, so that later taps get nothing. An element of g
costs K * K comparisons to find the maximum and K * K comparisons, two masks and an addition to place it, all on whole
vectors. A thread computes whole rows; windows that reach into another thread's rows are looked at there too.

NaN is larger than everything and equals nothing: rows that hold one are seen in advance, and their windows take a way
that compares as ``numpy.argmax`` does, channel by channel.

Every element of dx adds up its windows in raster order, whatever the threads, in float32, and in float64 where there
may be more than 1,024. Workspace: rows of sums as many as a window is high, where dx is not stored in their dtype.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpsref.images import Array
from mpsref.kernels.pooling import PoolingForward, PoolingGradient
from mpsref.kernels.pooling_max import PoolingMax
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled
from mpsref_cpu.half import as_storage, load, store
from mpsref_cpu.lanes import add_to, load_lanes, maximum, where_equal, where_unequal, zeros
from mpsref_cpu.parallel import for_rows
from mpsref_cpu.pooling import Groups, Indices, Pixels, Windows, groups_of_windows, list_reads, part_width, places

__all__ = ["IMPLEMENTATIONS"]

MOST_FLOAT32_TERMS = 1024


def forward(problem: PoolingForward, x: Array, out: Array) -> None:
    """Fill y (N, OH, OW, C) from x (N, H, W, C)."""
    rows, columns, groups = _forward_tables(problem)
    n, height, width, channels = out.shape
    sizes = (x.shape[1], x.shape[2], height, width, channels)
    pixels, results = as_storage(x), as_storage(out)

    def body(begin: int, end: int) -> None:
        _forward(begin, end, pixels, results, sizes, rows, columns, groups)

    for_rows(body, n * height, x.nbytes + out.nbytes)


def gradient(problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g (N, GH, GW, C) and x (N, H, W, C)."""
    tables, dtype = _gradient_tables(problem)
    n, height, width, channels = out.shape
    nbytes = g.nbytes + x.nbytes + out.nbytes
    gradients, pixels, results = as_storage(g), as_storage(x), as_storage(out)
    in_place = results.dtype == dtype
    part = part_width(n, channels, nbytes, 0 if in_place else width * tables.tall * np.dtype(dtype).itemsize)
    sizes = (*g.shape[1:3], height, width, channels, part)

    def body(begin: int, end: int) -> None:
        sums = results if in_place else np.empty(tables.tall * width * part, dtype)
        _gradient(begin, end, gradients, pixels, sums, in_place, results, sizes, tables)

    for_rows(body, n * -(-channels // part) * height, nbytes)


@lru_cache(maxsize=256)
def _forward_tables(problem: PoolingForward) -> tuple[Windows, Windows, Groups]:
    rows, columns = (Windows.of(reads) for reads in problem.reads())
    alone = (columns.before > 0) | (columns.after > 0)
    return rows, columns, groups_of_windows(columns, problem.spec.windows[1].stride, alone, 0, columns.first.size)


class Tables(NamedTuple):
    """The geometry of a gradient."""

    row_windows: Windows
    column_windows: Windows
    rows: Pixels
    row_places: Indices
    """The destination row of each source row, -1 where there is none; columns likewise."""
    column_places: Indices
    regular: Any
    """The window columns that read nothing outside the image, and pixels that all have a place."""
    groups: Groups
    tall: int
    """Source rows from the first that a window reads to the last, at most."""


@lru_cache(maxsize=256)
def _gradient_tables(problem: PoolingGradient) -> tuple[Tables, Any]:
    """Return the geometry, and the dtype of the sums."""
    row_windows, column_windows = (Windows.of(reads) for reads in problem.reads())
    rows, columns = (Pixels.of(touching) for touching in problem.touching())
    row_places, column_places = places(rows), places(columns)
    y, x = problem.spec.windows
    first = column_windows.first
    last = first + (np.maximum(column_windows.count, 1) - 1) * column_windows.step
    regular = (column_places[first] >= 0) & (column_places[last] - column_places[first] == last - first)
    regular &= (column_windows.before == 0) & (column_windows.after == 0)
    groups = groups_of_windows(column_windows, x.stride, ~regular, columns.begin, columns.end)
    tall = min(y.extent, problem.source_shape[1])
    dtype = np.float32 if rows.most * columns.most <= MOST_FLOAT32_TERMS else np.float64
    return Tables(row_windows, column_windows, rows, row_places, column_places, regular, groups, tall), dtype


@compiled
def _forward(begin: int, end: int, x: Any, y: Any, sizes: Any, rows: Windows, columns: Windows, groups: Groups) -> None:
    """Compute rows ``begin`` to ``end`` of y, counted through all images."""
    source_height, source_width, height, width, channels = sizes
    pitch = source_width * channels
    tallest = np.empty(pitch, np.float32)  # of each source column, the largest value in the rows of the window
    largest = np.empty(width * channels, np.float32)
    reads = np.empty(max(rows.most, columns.most), np.int64)
    times = np.empty(reads.size, np.float64)
    for row in range(begin, end):
        image, a = divmod(row, height)
        count = list_reads(rows, a, reads, times)
        for k in range(count):
            if reads[k] >= 0:
                reads[k] = (image * source_height + reads[k]) * pitch
        _largest(tallest, 0, x, reads, count, (1, pitch, 0, 0))
        for k in range(groups.start.size):
            b = groups.start[k]
            count = list_reads(columns, b, reads, times)
            for t in range(count):
                reads[t] = max(-1, reads[t] * channels)
            walk = (groups.length[k], channels, channels, groups.advance * channels)
            if groups.advance == 1:  # neighbours from neighbours: one long block
                walk = (1, groups.length[k] * channels, 0, 0)
            _largest(largest, b * channels, tallest, reads, count, walk)
        stored = y[row * width * channels : (row + 1) * width * channels]
        for i in range(stored.size):
            stored[i] = store(largest[i], stored[i])


# A *walk* is (blocks, size, step, advance): block b of ``size`` elements is written ``b * step`` further on and read
# ``b * advance`` further on. Each of these functions goes over the blocks once. Indices are unsigned, because a signed
# one makes numba ask each time whether it counts from the end.


@compiled
def _largest(into: Any, at: int, source: Any, starts: Any, count: int, walk: Any) -> None:
    """Set each block to the largest of ``count`` reads, from ``source[starts[t]]`` on; a start of -1 reads zeros."""
    if starts[0] < 0:
        _set_0(into, at, walk)
        done = 1
    elif count >= 3 and starts[1] >= 0 and starts[2] >= 0:
        _set_3(into, at, source, starts[0], starts[1], starts[2], walk)
        done = 3
    else:
        second = starts[min(1, count - 1)]
        _set_2(into, at, source, starts[0], second if second >= 0 else starts[0], walk)
        done = 2 if second >= 0 else 1
    while done < count:
        if starts[done] < 0:
            _raise_0(into, at, walk)
            done += 1
        else:
            second = starts[min(done + 1, count - 1)]
            _raise_2(into, at, source, starts[done], second if second >= 0 else starts[done], walk)
            done += 2 if second >= 0 else 1


@compiled
def _larger(best: float, value: float) -> float:
    """Return the larger of two, NaN if one of them is."""
    return value if (value > best) | (value != value) else best


@compiled
def _set_0(into: Any, at: int, walk: Any) -> None:
    blocks, n, step, _ = walk
    q = np.uintp(at)
    for _ in range(blocks):
        for i in range(np.uintp(n)):
            into[q + i] = 0
        q += np.uintp(step)


@compiled
def _raise_0(into: Any, at: int, walk: Any) -> None:
    blocks, n, step, _ = walk
    q = np.uintp(at)
    zero = np.float32(0)
    for _ in range(blocks):
        for i in range(np.uintp(n)):
            into[q + i] = _larger(into[q + i], zero)
        q += np.uintp(step)


@compiled
def _set_2(into: Any, at: int, source: Any, start0: int, start1: int, walk: Any) -> None:
    blocks, n, step, advance = walk
    q, x0, x1 = np.uintp(at), np.uintp(start0), np.uintp(start1)
    for _ in range(blocks):
        for i in range(np.uintp(n)):
            into[q + i] = _larger(load(source[x0 + i]), load(source[x1 + i]))
        q += np.uintp(step)
        x0 += np.uintp(advance)
        x1 += np.uintp(advance)


@compiled
def _set_3(into: Any, at: int, source: Any, start0: int, start1: int, start2: int, walk: Any) -> None:
    blocks, n, step, advance = walk
    q, x0, x1, x2 = np.uintp(at), np.uintp(start0), np.uintp(start1), np.uintp(start2)
    for _ in range(blocks):
        for i in range(np.uintp(n)):
            into[q + i] = _larger(_larger(load(source[x0 + i]), load(source[x1 + i])), load(source[x2 + i]))
        q += np.uintp(step)
        x0 += np.uintp(advance)
        x1 += np.uintp(advance)
        x2 += np.uintp(advance)


@compiled
def _raise_2(into: Any, at: int, source: Any, start0: int, start1: int, walk: Any) -> None:
    blocks, n, step, advance = walk
    q, x0, x1 = np.uintp(at), np.uintp(start0), np.uintp(start1)
    for _ in range(blocks):
        for i in range(np.uintp(n)):
            into[q + i] = _larger(_larger(into[q + i], load(source[x0 + i])), load(source[x1 + i]))
        q += np.uintp(step)
        x0 += np.uintp(advance)
        x1 += np.uintp(advance)


@compiled
def _gradient(
    begin: int, end: int, g: Any, x: Any, sums: Any, in_place: bool, dx: Any, sizes: Any, tables: Tables
) -> None:
    """Compute rows ``begin`` to ``end`` of dx, counted through all images and, in each, through all parts of channels.

    ``sums``, where windows add what they give, is dx itself where ``in_place``, else the rows that windows in progress
    touch: destination row j is in slot ``j % tall``.
    """
    gradient_height, gradient_width, height, width, channels, part = sizes
    parts = -(-channels // part)
    most_rows, most_columns = tables.row_windows.most, tables.column_windows.most
    reads, times = np.empty(max(most_rows, most_columns), np.int64), np.empty(max(most_rows, most_columns), np.float64)
    x_rows, sum_rows = np.empty(most_rows, np.int64), np.empty(most_rows, np.int64)
    x_columns, sum_columns = np.empty(most_columns, np.int64), np.empty(most_columns, np.int64)
    nan_rows = np.empty(height, np.int8)
    current = -1
    for row in range(begin, end):
        unit, j = divmod(row, height)
        if unit != current:
            current, following, clear = unit, 0, j
            nan_rows[:] = -1  # not known yet
        last = min(end - unit * height, height)
        image, c = unit // parts, unit % parts * part
        n = min(part, channels - c)
        pitch = channels if in_place else n
        x_image = image * height * width * channels + c
        sum_image = x_image if in_place else 0
        slots = height if in_place else tables.tall

        first, count = tables.rows.first[j], tables.rows.count[j]
        for a in range(max(first, following), first + count):
            found_nan = False
            row_count = list_reads(tables.row_windows, a, reads, times)
            for k in range(row_count):
                r = reads[k]
                x_rows[k], sum_rows[k] = -1, -1
                if r >= 0:
                    x_rows[k] = x_image + r * width * channels
                    if nan_rows[r] < 0:
                        nan_rows[r] = _has_nan(x, x_rows[k], width, channels, n)
                    found_nan |= nan_rows[r] > 0
                    place = tables.row_places[r]
                    if begin <= unit * height + place and 0 <= place < last:
                        sum_rows[k] = sum_image + place % slots * width * pitch
                        clear = _clear(sums, clear, place + 1, sum_image, slots, width, pitch, n)
            rows = row_count, x_rows, sum_rows
            for k in range(tables.groups.start.size):
                b = tables.groups.start[k]
                at = ((image * gradient_height + a) * gradient_width + b) * channels + c
                if tables.regular[b] and not found_nan:
                    source = tables.column_windows.first[b]
                    place = tables.column_places[source]
                    taps, step = tables.column_windows.count[b], tables.column_windows.step
                    columns = taps, source * channels, place * pitch, step * channels, step * pitch
                    moves = tables.groups.advance * channels, tables.groups.advance * pitch
                    if taps == 2:
                        _hand_out(g, at, x, sums, n, channels, rows, columns, moves, tables.groups.length[k], (0, 0))
                    elif taps == 3:
                        _hand_out(g, at, x, sums, n, channels, rows, columns, moves, tables.groups.length[k], (0, 0, 0))
                    else:
                        _hand_out(g, at, x, sums, n, channels, rows, columns, moves, tables.groups.length[k], None)
                    continue
                for b in range(b, b + tables.groups.length[k]):
                    column_count = list_reads(tables.column_windows, b, reads, times)
                    for t in range(column_count):
                        x_columns[t], sum_columns[t] = -1, -1
                        if reads[t] >= 0:
                            x_columns[t] = reads[t] * channels
                            if tables.column_places[reads[t]] >= 0:
                                sum_columns[t] = tables.column_places[reads[t]] * pitch
                    columns = column_count, x_columns, sum_columns
                    at = ((image * gradient_height + a) * gradient_width + b) * channels + c
                    if found_nan:
                        _hand_out_argmax(g, at, x, sums, n, rows, columns)
                    else:
                        _hand_out_at_border(g, at, x, sums, n, rows, columns)
        following = max(following, first + count)
        clear = _clear(sums, clear, j + 1, sum_image, slots, width, pitch, n)
        if not in_place:
            p, q = (image * height + j) * width * channels + c, j % slots * width * n
            for k in range(width):
                stored = dx[p + k * channels : p + k * channels + n]
                for i in range(n):
                    stored[i] = store(sums[q + k * n + i], stored[i])


@compiled
def _clear(sums: Any, begin: int, end: int, image: int, slots: int, width: int, pitch: int, n: int) -> int:
    """Set rows ``begin`` to ``end`` of the sums to 0; return the first row after them."""
    for j in range(begin, end):
        q = image + j % slots * width * pitch
        if n == pitch:
            sums[q : q + width * n] = 0
        else:
            for k in range(width):
                sums[q + k * pitch : q + k * pitch + n] = 0
    return max(begin, end)


@compiled
def _has_nan(x: Any, start: int, width: int, channels: int, n: int) -> bool:
    """Return whether ``n`` channels of a row hold a NaN."""
    blocks, size = (1, width * n) if n == channels else (width, n)
    found = np.int32(0)
    p = np.uintp(start)
    for _ in range(blocks):
        for i in range(np.uintp(size)):
            value = load(x[p + i])
            found |= np.int32(value != value)
        p += np.uintp(channels)
    return found != 0


@compiled
def _hand_out(
    g: Any, at: int, x: Any, sums: Any, n: int, channels: int, rows: Any, columns: Any, moves: Any, length: int,
    unroll: Any,
) -> None:
    """Give each of ``n`` gradients from ``g[at]`` on to the tap that its window selects. No NaN is among the taps."""
    taps, x_first, sum_first, x_step, sum_step = columns
    for _ in range(length):
        columns = taps, x_first, sum_first, x_step, sum_step
        c = 0
        while c + 32 <= n:
            _hand_out_lanes(g, at, x, sums, c, rows, columns, unroll, zeros(32))
            c += 32
        while c + 8 <= n:
            _hand_out_lanes(g, at, x, sums, c, rows, columns, unroll, zeros(8))
            c += 8
        while c < n:
            _hand_out_lanes(g, at, x, sums, c, rows, columns, unroll, zeros(1))
            c += 1
        at += channels
        x_first += moves[0]
        sum_first += moves[1]


@compiled
def _hand_out_lanes(
    g: Any, at: int, x: Any, sums: Any, c: int, rows: Any, columns: Any, unroll: Any, zero: Any
) -> None:
    row_count, x_rows, sum_rows = rows
    count, x_first, sum_first, x_step, sum_step = columns
    taps = count if unroll is None else len(unroll)
    best = zero
    if x_rows[0] >= 0:
        best = load_lanes(x, np.uintp(x_rows[0] + x_first + c), zero)
    for ty in range(row_count):
        if x_rows[ty] < 0:
            best = maximum(zero, best)
        else:
            p = x_rows[ty] + x_first + c
            for tx in range(taps):
                best = maximum(load_lanes(x, np.uintp(p + tx * x_step), zero), best)
    left = load_lanes(g, np.uintp(at + c), zero)
    for ty in range(row_count):
        if x_rows[ty] < 0:
            left = where_unequal(zero, best, left)
        else:
            p = x_rows[ty] + x_first + c
            if sum_rows[ty] < 0:
                for tx in range(taps):
                    left = where_unequal(load_lanes(x, np.uintp(p + tx * x_step), zero), best, left)
            else:
                q = sum_rows[ty] + sum_first + c
                for tx in range(taps):
                    value = load_lanes(x, np.uintp(p + tx * x_step), zero)
                    add_to(sums, np.uintp(q + tx * sum_step), where_equal(value, best, left))
                    left = where_unequal(value, best, left)


@compiled
def _hand_out_at_border(g: Any, at: int, x: Any, sums: Any, n: int, rows: Any, columns: Any) -> None:
    """As :func:`_hand_out`, for one window of which some columns may be outside the image or have no place."""
    c = 0
    while c + 32 <= n:
        _hand_out_at_border_lanes(g, at, x, sums, c, rows, columns, zeros(32))
        c += 32
    while c + 8 <= n:
        _hand_out_at_border_lanes(g, at, x, sums, c, rows, columns, zeros(8))
        c += 8
    while c < n:
        _hand_out_at_border_lanes(g, at, x, sums, c, rows, columns, zeros(1))
        c += 1


@compiled
def _hand_out_at_border_lanes(g: Any, at: int, x: Any, sums: Any, c: int, rows: Any, columns: Any, zero: Any) -> None:
    row_count, x_rows, sum_rows = rows
    column_count, x_columns, sum_columns = columns
    best = zero
    if x_rows[0] >= 0 and x_columns[0] >= 0:
        best = load_lanes(x, np.uintp(x_rows[0] + x_columns[0] + c), zero)
    for ty in range(row_count):
        for tx in range(column_count):
            if x_rows[ty] >= 0 and x_columns[tx] >= 0:
                best = maximum(load_lanes(x, np.uintp(x_rows[ty] + x_columns[tx] + c), zero), best)
            else:
                best = maximum(zero, best)
    left = load_lanes(g, np.uintp(at + c), zero)
    for ty in range(row_count):
        for tx in range(column_count):
            value = zero
            if x_rows[ty] >= 0 and x_columns[tx] >= 0:
                value = load_lanes(x, np.uintp(x_rows[ty] + x_columns[tx] + c), zero)
                if sum_rows[ty] >= 0 and sum_columns[tx] >= 0:
                    add_to(sums, np.uintp(sum_rows[ty] + sum_columns[tx] + c), where_equal(value, best, left))
            left = where_unequal(value, best, left)


@compiled
def _hand_out_argmax(g: Any, at: int, x: Any, sums: Any, n: int, rows: Any, columns: Any) -> None:
    """As :func:`_hand_out`; the first NaN is selected."""
    row_count, x_rows, sum_rows = rows
    column_count, x_columns, sum_columns = columns
    for c in range(n):
        best, selected_row, selected_column = np.float32(0), -1, -1
        for ty in range(row_count):
            for tx in range(column_count):
                value = np.float32(0)
                if x_rows[ty] >= 0 and x_columns[tx] >= 0:
                    value = load(x[x_rows[ty] + x_columns[tx] + c])
                if selected_row < 0 or (best == best and not value <= best):
                    best, selected_row, selected_column = value, ty, tx
        if sum_rows[selected_row] >= 0 and sum_columns[selected_column] >= 0:
            sums[sum_rows[selected_row] + sum_columns[selected_column] + c] += load(g[at + c])


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (PoolingMax, "forward"): forward,
    (PoolingMax, "gradient"): gradient,
}
