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
from mpsref_cpu.lanes import add_to, inlined, load_lanes, maximum, plus, put, where_equal, without, zeros
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
    columns: Pixels
    row_places: Indices
    """The destination row of each source row, -1 where there is none; columns likewise."""
    column_places: Indices
    regular: Any
    """Whether a window column reads nothing outside the image, and pixels that all have a place."""
    groups: Groups
    """Regular window columns that are alike; others are alone."""
    gaps: Indices
    """Destination columns [begin, end) that are to be set to 0, because no window sets them."""
    dense: bool
    """Whether every window that may read a pixel does: the first one sets it, those after it add."""
    tall: int
    """Source rows from the first that a window reads to the last, at most."""


@lru_cache(maxsize=256)
def _gradient_tables(problem: PoolingGradient) -> tuple[Tables, Any]:
    """Return the geometry, and the dtype of the sums."""
    row_windows, column_windows = (Windows.of(reads).distinct() for reads in problem.reads())
    rows, columns = (Pixels.of(touching) for touching in problem.touching())
    row_places, column_places = places(rows), places(columns)
    y, x = problem.spec.windows
    first = column_windows.first
    last = first + (np.maximum(column_windows.count, 1) - 1) * column_windows.step
    regular = (column_places[first] >= 0) & (column_places[last] - column_places[first] == last - first)
    regular &= (column_windows.before == 0) & (column_windows.after == 0)
    dense = y.dilation == x.dilation == 1
    fresh = np.zeros_like(first)
    np.add.at(fresh, columns.first[columns.count > 0], 1)
    groups = groups_of_windows(column_windows, x.stride, ~regular, columns.begin, columns.end, fresh)
    unset = (columns.count == 0) | (not dense)
    gaps = np.flatnonzero(np.diff(np.concatenate([[False], unset, [False]]))).reshape(-1, 2)
    tall = min(y.extent, problem.source_shape[1])
    dtype = np.float32 if rows.most * columns.most <= MOST_FLOAT32_TERMS else np.float64
    return Tables(
        row_windows, column_windows, rows, columns, row_places, column_places, regular, groups, gaps, dense, tall
    ), dtype


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
    fresh_rows, fresh_columns = np.empty(most_rows, np.bool_), np.empty(most_columns, np.bool_)
    whole_row = np.array([[0, width]])
    current = -1
    for row in range(begin, end):
        unit, j = divmod(row, height)
        if unit != current:
            current, following, clear = unit, 0, j
        last = min(end - unit * height, height)
        image, c = unit // parts, unit % parts * part
        n = min(part, channels - c)
        pitch = channels if in_place else n
        x_image = image * height * width * channels + c
        sum_image = x_image if in_place else 0
        slots = height if in_place else tables.tall

        first, count = tables.rows.first[j], tables.rows.count[j]
        for a in range(max(first, following), first + count):
            row_count = list_reads(tables.row_windows, a, reads, times)
            for k in range(row_count):
                r = reads[k]
                x_rows[k], sum_rows[k], fresh_rows[k] = -1, -1, False
                if r >= 0:
                    x_rows[k] = x_image + r * width * channels
                    place = tables.row_places[r]
                    if begin <= unit * height + place and 0 <= place < last:
                        sum_rows[k] = sum_image + place % slots * width * pitch
                        fresh_rows[k] = tables.dense and tables.rows.first[place] == a
                        while clear <= place:
                            _clear(sums, sum_image + clear % slots * width * pitch, tables.gaps, pitch, n)
                            clear += 1
            rows = row_count, x_rows, sum_rows, fresh_rows
            for k in range(tables.groups.start.size):
                b = tables.groups.start[k]
                at = ((image * gradient_height + a) * gradient_width + b) * channels + c
                if tables.regular[b]:
                    source = tables.column_windows.first[b]
                    place = tables.column_places[source]
                    taps, step = tables.column_windows.count[b], tables.column_windows.step
                    old = 0
                    while old < taps and not (tables.dense and tables.columns.first[place + old] == b):
                        old += 1
                    columns = taps, source * channels, place * pitch, step * channels, step * pitch, old
                    moves = tables.groups.advance * channels, tables.groups.advance * pitch
                    if taps == 2:
                        _hand_out(g, at, x, sums, n, channels, rows, columns, moves, tables.groups.length[k], (0, 0))
                    elif taps == 3:
                        _hand_out(g, at, x, sums, n, channels, rows, columns, moves, tables.groups.length[k], (0, 0, 0))
                    else:
                        _hand_out(g, at, x, sums, n, channels, rows, columns, moves, tables.groups.length[k], None)
                    continue
                column_count = list_reads(tables.column_windows, b, reads, times)
                for t in range(column_count):
                    x_columns[t], sum_columns[t], fresh_columns[t] = -1, -1, False
                    if reads[t] >= 0:
                        x_columns[t] = reads[t] * channels
                        place = tables.column_places[reads[t]]
                        if place >= 0:
                            sum_columns[t] = place * pitch
                            fresh_columns[t] = tables.columns.first[place] == b
                _hand_out_at_border(g, at, x, sums, n, rows, (column_count, x_columns, sum_columns, fresh_columns))
        following = max(following, first + count)
        if clear <= j:  # no window has come here
            _clear(sums, sum_image + j % slots * width * pitch, whole_row, pitch, n)
            clear = j + 1
        if not in_place:
            p, q = (image * height + j) * width * channels + c, j % slots * width * n
            for k in range(width):
                stored = dx[p + k * channels : p + k * channels + n]
                for i in range(n):
                    stored[i] = store(sums[q + k * n + i], stored[i])


@compiled
def _clear(sums: Any, at: int, columns: Any, pitch: int, n: int) -> None:
    """Set ``n`` channels of some columns of the row of sums that begins at ``at`` to 0."""
    for k in range(columns.shape[0]):
        for q in range(columns[k, 0], columns[k, 1]):
            sums[at + q * pitch : at + q * pitch + n] = 0


@compiled
def _hand_out(
    g: Any,
    at: int,
    x: Any,
    sums: Any,
    n: int,
    channels: int,
    rows: Any,
    columns: Any,
    moves: Any,
    length: int,
    unroll: Any,
) -> None:
    """Give each of ``n`` gradients from ``g[at]`` on to the tap that its window selects; go on to the next window."""
    taps, x_first, sum_first, x_step, sum_step, old = columns
    for _ in range(length):
        columns = taps, x_first, sum_first, x_step, sum_step, old
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


@inlined
def _hand_out_lanes(
    g: Any, at: int, x: Any, sums: Any, c: int, rows: Any, columns: Any, unroll: Any, zero: Any
) -> None:
    row_count, x_rows, sum_rows, fresh_rows = rows
    count, x_first, sum_first, x_step, sum_step, old = columns
    taps = count if unroll is None else len(unroll)
    best, total = zero, zero
    if x_rows[0] >= 0:
        best = load_lanes(x, np.uintp(x_rows[0] + x_first + c), zero)
    for ty in range(np.uintp(row_count)):
        if x_rows[ty] < 0:
            best = maximum(zero, best)
        else:
            p = np.uintp(x_rows[ty] + x_first + c)
            for tx in range(taps):
                value = load_lanes(x, np.uintp(p + tx * x_step), zero)
                best = maximum(value, best)
                total = plus(total, value)
    left = load_lanes(g, np.uintp(at + c), zero)
    for ty in range(np.uintp(row_count)):
        if x_rows[ty] < 0:
            left = without(left, where_equal(zero, best, left))
        else:
            p = np.uintp(x_rows[ty] + x_first + c)
            if sum_rows[ty] < 0:
                for tx in range(taps):
                    value = load_lanes(x, np.uintp(p + tx * x_step), zero)
                    left = without(left, where_equal(value, best, left))
            else:
                q = np.uintp(sum_rows[ty] + sum_first + c)
                add = old if fresh_rows[ty] else taps
                for tx in range(taps):
                    value = load_lanes(x, np.uintp(p + tx * x_step), zero)
                    given = where_equal(value, best, left)
                    left = without(left, given)
                    if tx < add:
                        add_to(sums, np.uintp(q + tx * sum_step), given)
                    else:
                        put(sums, np.uintp(q + tx * sum_step), given)


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


@inlined
def _hand_out_at_border_lanes(g: Any, at: int, x: Any, sums: Any, c: int, rows: Any, columns: Any, zero: Any) -> None:
    row_count, x_rows, sum_rows, fresh_rows = rows
    column_count, x_columns, sum_columns, fresh_columns = columns
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
                    q = np.uintp(sum_rows[ty] + sum_columns[tx] + c)
                    given = where_equal(value, best, left)
                    left = without(left, given)
                    if fresh_rows[ty] and fresh_columns[tx]:
                        put(sums, q, given)
                    else:
                        add_to(sums, q, given)
                    continue
            left = without(left, where_equal(value, best, left))


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (PoolingMax, "forward"): forward,
    (PoolingMax, "gradient"): gradient,
}
