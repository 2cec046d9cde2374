"""Max pooling: forward and gradient, one dimension after the other.

The largest value of a window is the largest of its rows' largest values, and the first tap in raster order that has it
is the first such tap of the first such row. So a window *row* r has a maximum and a selected column for each window
column, once for all windows that read row r; a window then selects among its rows. The gradient takes the same way
back: window (a, b) gives ``g`` to the row that it selects, and what a row has received at b goes to the column selected
there. Each destination row gathers: from the windows that may have selected it, and then from the columns of windows.

Cost: a window of K x K costs K comparisons a *source* row and window column, and K a window, instead of K * K. Back, a
source row costs a comparison and an addition for each window that touches it, a pixel likewise; with a stride of s
those are K / s. There is no index image: selections are kept for the rows that the windows in progress need.

Selections are numbers of source rows and columns, and -1 for a value outside the image, which is no pixel's: whatever
mapped a tap to a pixel (dilation, edge mode, clip), a pixel receives from those windows that selected it.
Sums are float32, and float64 where more than 1,024 terms may meet. They have one order whatever the threads.
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
from mpsref_cpu.parallel import for_rows
from mpsref_cpu.pooling import Groups, Pixels, Windows, groups_of_pixels, groups_of_windows, list_reads, part_width

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
    tables = _gradient_tables(problem)
    n, height, width, channels = out.shape
    nbytes = g.nbytes + x.nbytes + out.nbytes
    kept = (tables.columns.end - tables.columns.begin) * (8 * tables.kept_rows + 4 * tables.rows.most)
    part = part_width(n, channels, nbytes, kept)
    sizes = (*g.shape[1:3], height, width, channels, part)
    gradients, pixels, results = as_storage(g), as_storage(x), as_storage(out)

    in_place = results.dtype == tables.zero.dtype

    def body(begin: int, end: int) -> None:
        row = results if in_place else np.empty(width * part, tables.zero.dtype)
        _gradient(begin, end, gradients, pixels, row, in_place, results, sizes, tables)

    for_rows(body, n * -(-channels // part) * height, nbytes)


class Tables(NamedTuple):
    """The geometry of a gradient."""

    row_windows: Windows
    rows: Pixels
    column_windows: Windows
    columns: Pixels
    window_groups: Groups
    pixel_groups: Groups
    kept_rows: int
    """How many source rows a window spans."""
    zero: Any
    """0 in the dtype of the sums."""


@lru_cache(maxsize=256)
def _forward_tables(problem: PoolingForward) -> tuple[Windows, Windows, Groups]:
    rows, columns = (Windows.of(reads) for reads in problem.reads())
    return rows, columns, groups_of_windows(columns, problem.spec.windows[1].stride, 0, columns.first.size)


@lru_cache(maxsize=256)
def _gradient_tables(problem: PoolingGradient) -> Tables:
    row_windows, column_windows = (Windows.of(reads) for reads in problem.reads())
    rows, columns = (Pixels.of(touching) for touching in problem.touching())
    y, x = problem.spec.windows
    return Tables(
        row_windows,
        rows,
        column_windows,
        columns,
        groups_of_windows(column_windows, x.stride, columns.begin, columns.end),
        groups_of_pixels(columns, column_windows, x.stride),
        min(y.extent, problem.source_shape[1]),
        np.float32(0) if max(rows.most, columns.most) <= MOST_FLOAT32_TERMS else np.float64(0),
    )


@compiled
def _forward(begin: int, end: int, x: Any, y: Any, sizes: Any, rows: Windows, columns: Windows, groups: Groups) -> None:
    """Compute rows ``begin`` to ``end`` of y, counted through all images: first down the columns, then along the row."""
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
        _choose(tallest, 0, None, 0, x, reads, reads, count, (1, pitch, 0, 0, 0))
        for k in range(groups.start.size):
            b = groups.start[k]
            count = list_reads(columns, b, reads, times)
            for t in range(count):
                reads[t] = max(-1, reads[t] * channels)
            walk = (groups.length[k], channels, channels, groups.advance * channels, 0)
            if groups.advance == 1:  # neighbours from neighbours: one long block
                walk = (1, groups.length[k] * channels, 0, 0, 0)
            _choose(largest, b * channels, None, 0, tallest, reads, reads, count, walk)
        stored = y[row * width * channels : (row + 1) * width * channels]
        for i in range(stored.size):
            stored[i] = store(largest[i], stored[i])


@compiled
def _gradient(
    begin: int, end: int, g: Any, x: Any, results: Any, in_place: bool, dx: Any, sizes: Any, tables: Tables
) -> None:
    """Compute rows ``begin`` to ``end`` of dx, counted through all images and, in each, through all parts of channels.

    ``values`` and ``columns`` hold the largest values of some source rows, for each window column, and their columns;
    ``rows`` holds which source rows some window rows select. Row r is in slot ``r % slots``, ``wide`` elements long.
    ``results``, in which each row is computed, is dx itself where ``in_place``, else one row.
    """
    gradient_height, gradient_width, height, width, channels, part = sizes
    parts = -(-channels // part)
    windows = tables.columns.end - tables.columns.begin
    wide = windows * part
    slots, window_slots = tables.kept_rows, tables.rows.most
    values, columns = np.empty(slots * wide, np.float32), np.empty(slots * wide, np.int32)
    rows, best = np.empty(window_slots * wide, np.int32), np.empty(wide, np.float32)
    held, chosen = np.full(slots, -1), np.full(window_slots, -1)
    received = np.empty(wide, results.dtype)
    most = max(tables.row_windows.most, tables.column_windows.most, tables.rows.most, tables.columns.most)
    numbers, starts, times = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.float64)
    current = -1
    for row in range(begin, end):
        unit, j = divmod(row, height)
        if unit != current:
            current = unit
            held[:] = -1
            chosen[:] = -1
        image, c = unit // parts, unit % parts * part
        n = min(part, channels - c)
        pitch = channels if in_place else n
        at = (image * height + j) * width * channels + c if in_place else 0
        source = image * height * width * channels + c
        pixel, first, count = tables.rows.pixel[j], tables.rows.first[j], tables.rows.count[j]

        for a in range(first, first + count):
            if chosen[a % window_slots] != a:
                chosen[a % window_slots] = a
                reads = list_reads(tables.row_windows, a, numbers, times)
                for k in range(reads):
                    starts[k] = -1
                    if numbers[k] >= 0:
                        starts[k] = numbers[k] % slots * wide
                        if held[numbers[k] % slots] != numbers[k]:
                            held[numbers[k] % slots] = numbers[k]
                            p = source + numbers[k] * width * channels
                            _select_columns(values, columns, starts[k], x, p, channels, n, tables)
                _choose(
                    best, 0, rows, a % window_slots * wide, values, starts, numbers, reads, (1, windows * n, 0, 0, 0)
                )

        if count > 0 and held[pixel % slots] == pixel:  # otherwise no window reads this row
            walk = (windows, n, n, n, channels, 0)
            if n == channels:  # neighbours to neighbours: one long block
                walk = (1, windows * n, 0, 0, 0, 0)
            for k in range(count):
                a = first + k
                numbers[k] = a % window_slots * wide
                starts[k] = ((image * gradient_height + a) * gradient_width + tables.columns.begin) * channels + c
            _receive(received, 0, rows, numbers, g, starts, pixel, count, walk)
        else:
            count = 0
        for k in range(tables.pixel_groups.start.size):
            q = tables.pixel_groups.start[k]
            columns_read = tables.columns.count[q] if count > 0 else 0
            for t in range(columns_read):
                starts[t] = (tables.columns.first[q] + t - tables.columns.begin) * n
                numbers[t] = pixel % slots * wide + starts[t]
            step = tables.pixel_groups.step
            walk = (tables.pixel_groups.length[k], n, step * pitch, n, n, step)
            q_pixel = tables.columns.pixel[q]
            _receive(results, at + q * pitch, columns, numbers, received, starts, q_pixel, columns_read, walk)
        if not in_place:
            p = (image * height + j) * width * channels + c
            for q in range(width):
                stored = dx[p + q * channels : p + q * channels + n]
                for i in range(n):
                    stored[i] = store(results[q * n + i], stored[i])


@compiled
def _select_columns(
    values: Any, columns: Any, at: int, x: Any, start: int, channels: int, n: int, tables: Tables
) -> None:
    """Set, for each window column, what its part in the source row at ``x[start]`` selects, ``n`` channels of it."""
    most = tables.column_windows.most
    starts, numbers, times = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.float64)
    groups = tables.window_groups
    for k in range(groups.start.size):
        b = groups.start[k]
        reads = list_reads(tables.column_windows, b, numbers, times)
        for t in range(reads):
            starts[t] = start + numbers[t] * channels if numbers[t] >= 0 else -1
        to = at + (b - tables.columns.begin) * n
        walk = (groups.length[k], n, n, groups.advance * channels, groups.advance)
        _choose(values, to, columns, to, x, starts, numbers, reads, walk)


@compiled
def _beats(value: Any, best: Any) -> Any:
    """Whether a later value replaces the best: if it is larger, or the first NaN."""
    return (best == best) & (not value <= best)


# A *walk* is (blocks, size, step, advance, move): block b of ``size`` elements is written ``b * step`` further on, read
# ``b * advance`` further on, and its numbers are ``b * move`` higher. Each function below goes over the blocks once.
# ``where`` may be None. Indices are unsigned, because a signed one makes numba ask each time whether it counts from the
# end.


@compiled
def _choose(
    values: Any, at: int, where: Any, where_at: int, source: Any, starts: Any, numbers: Any, count: int, walk: Any
) -> None:
    """Set ``values`` to the first largest of ``count`` reads and ``where`` to its number; a start of -1 reads 0."""
    to = (np.uintp(at), np.uintp(where_at))
    if starts[0] < 0:
        _first_0(values, where, to, walk)
        done = 1
    elif count >= 3 and starts[1] >= 0 and starts[2] >= 0 and count != 4:
        _first_3(
            values, where, to, source, (starts[0], starts[1], starts[2]), (numbers[0], numbers[1], numbers[2]), walk
        )
        done = 3
    elif count >= 2 and starts[1] >= 0:
        _first_2(values, where, to, source, (starts[0], starts[1]), (numbers[0], numbers[1]), walk)
        done = 2
    else:
        _first_1(values, where, to, source, starts[0], numbers[0], walk)
        done = 1
    while done < count:
        if starts[done] < 0:
            _next_0(values, where, to, walk)
            done += 1
        elif done + 1 < count and starts[done + 1] >= 0:
            pair = (starts[done], starts[done + 1]), (numbers[done], numbers[done + 1])
            _next_2(values, where, to, source, pair[0], pair[1], walk)
            done += 2
        else:
            _next_1(values, where, to, source, starts[done], numbers[done], walk)
            done += 1


@compiled
def _first_0(values: Any, where: Any, to: Any, walk: Any) -> None:
    blocks, size, step, _, _ = walk
    q, r = to
    for _ in range(blocks):
        for i in range(np.uintp(size)):
            values[q + i] = 0
            if where is not None:
                where[r + i] = -1
        q += np.uintp(step)
        r += np.uintp(step)


@compiled
def _next_0(values: Any, where: Any, to: Any, walk: Any) -> None:
    blocks, size, step, _, _ = walk
    q, r = to
    for _ in range(blocks):
        for i in range(np.uintp(size)):
            best = values[q + i]
            beaten = _beats(np.float32(0), best)
            values[q + i] = np.float32(0) if beaten else best
            if where is not None:
                where[r + i] = np.int32(-1) if beaten else where[r + i]
        q += np.uintp(step)
        r += np.uintp(step)


@compiled
def _first_1(values: Any, where: Any, to: Any, source: Any, start: int, number: int, walk: Any) -> None:
    blocks, size, step, advance, move = walk
    q, r = to
    x = np.uintp(start)
    for b in range(blocks):
        m = np.int32(number + b * move)
        for i in range(np.uintp(size)):
            values[q + i] = load(source[x + i])
            if where is not None:
                where[r + i] = m
        q += np.uintp(step)
        r += np.uintp(step)
        x += np.uintp(advance)


@compiled
def _next_1(values: Any, where: Any, to: Any, source: Any, start: int, number: int, walk: Any) -> None:
    blocks, size, step, advance, move = walk
    q, r = to
    x = np.uintp(start)
    for b in range(blocks):
        m = np.int32(number + b * move)
        for i in range(np.uintp(size)):
            best, value = values[q + i], load(source[x + i])
            beaten = _beats(value, best)
            values[q + i] = value if beaten else best
            if where is not None:
                where[r + i] = m if beaten else where[r + i]
        q += np.uintp(step)
        r += np.uintp(step)
        x += np.uintp(advance)


@compiled
def _first_2(values: Any, where: Any, to: Any, source: Any, starts: Any, numbers: Any, walk: Any) -> None:
    blocks, size, step, advance, move = walk
    q, r = to
    x0, x1 = np.uintp(starts[0]), np.uintp(starts[1])
    for b in range(blocks):
        m0, m1 = np.int32(numbers[0] + b * move), np.int32(numbers[1] + b * move)
        for i in range(np.uintp(size)):
            best, value = load(source[x0 + i]), load(source[x1 + i])
            beaten = _beats(value, best)
            values[q + i] = value if beaten else best
            if where is not None:
                where[r + i] = m1 if beaten else m0
        q += np.uintp(step)
        r += np.uintp(step)
        x0 += np.uintp(advance)
        x1 += np.uintp(advance)


@compiled
def _next_2(values: Any, where: Any, to: Any, source: Any, starts: Any, numbers: Any, walk: Any) -> None:
    blocks, size, step, advance, move = walk
    q, r = to
    x0, x1 = np.uintp(starts[0]), np.uintp(starts[1])
    for b in range(blocks):
        m0, m1 = np.int32(numbers[0] + b * move), np.int32(numbers[1] + b * move)
        for i in range(np.uintp(size)):
            best, value = values[q + i], load(source[x0 + i])
            beaten = _beats(value, best)
            best = value if beaten else best
            if where is not None:
                m = m0 if beaten else where[r + i]
            value = load(source[x1 + i])
            beaten = _beats(value, best)
            values[q + i] = value if beaten else best
            if where is not None:
                where[r + i] = m1 if beaten else m
        q += np.uintp(step)
        r += np.uintp(step)
        x0 += np.uintp(advance)
        x1 += np.uintp(advance)


@compiled
def _first_3(values: Any, where: Any, to: Any, source: Any, starts: Any, numbers: Any, walk: Any) -> None:
    blocks, size, step, advance, move = walk
    q, r = to
    x0, x1, x2 = np.uintp(starts[0]), np.uintp(starts[1]), np.uintp(starts[2])
    for b in range(blocks):
        m0, m1 = np.int32(numbers[0] + b * move), np.int32(numbers[1] + b * move)
        m2 = np.int32(numbers[2] + b * move)
        for i in range(np.uintp(size)):
            best, value = load(source[x0 + i]), load(source[x1 + i])
            beaten = _beats(value, best)
            best = value if beaten else best
            m = m1 if beaten else m0
            value = load(source[x2 + i])
            beaten = _beats(value, best)
            values[q + i] = value if beaten else best
            if where is not None:
                where[r + i] = m2 if beaten else m
        q += np.uintp(step)
        r += np.uintp(step)
        x0 += np.uintp(advance)
        x1 += np.uintp(advance)
        x2 += np.uintp(advance)


@compiled
def _receive(
    into: Any, at: int, where: Any, wheres: Any, source: Any, starts: Any, number: int, count: int, walk: Any
) -> None:
    """Set ``into`` to the sum of those of ``count`` vectors' elements whose ``where`` is ``number``.

    Vector t has its elements at ``source[starts[t]]`` and its selections at ``where[wheres[t]]``.
    """
    if count == 0:
        _set_0(into, at, walk)
        return
    done = 2 - count % 2
    if done == 1:
        _set_1(into, at, where, wheres[0], source, starts[0], number, walk)
    else:
        _set_2(into, at, where, (wheres[0], wheres[1]), source, (starts[0], starts[1]), number, walk)
    for t in range(done, count, 2):
        _add_2(into, at, where, (wheres[t], wheres[t + 1]), source, (starts[t], starts[t + 1]), number, walk)


@compiled
def _set_0(into: Any, at: int, walk: Any) -> None:
    blocks, size, step, _, _, _ = walk
    q = np.uintp(at)
    for _ in range(blocks):
        for i in range(np.uintp(size)):
            into[q + i] = 0
        q += np.uintp(step)


@compiled
def _set_1(into: Any, at: int, where: Any, where_at: int, source: Any, start: int, number: int, walk: Any) -> None:
    blocks, size, step, where_advance, advance, move = walk
    q, w, x = np.uintp(at), np.uintp(where_at), np.uintp(start)
    zero = into.dtype.type(0)
    for b in range(blocks):
        m = np.int32(number + b * move)
        for i in range(np.uintp(size)):
            value = load(source[x + i])
            into[q + i] = value if where[w + i] == m else zero
        q += np.uintp(step)
        w += np.uintp(where_advance)
        x += np.uintp(advance)


@compiled
def _set_2(into: Any, at: int, where: Any, wheres: Any, source: Any, starts: Any, number: int, walk: Any) -> None:
    blocks, size, step, where_advance, advance, move = walk
    q, w0, w1, x0, x1 = np.uintp(at), np.uintp(wheres[0]), np.uintp(wheres[1]), np.uintp(starts[0]), np.uintp(starts[1])
    zero = into.dtype.type(0)
    for b in range(blocks):
        m = np.int32(number + b * move)
        for i in range(np.uintp(size)):
            value0, value1 = load(source[x0 + i]), load(source[x1 + i])
            into[q + i] = (value0 if where[w0 + i] == m else zero) + (value1 if where[w1 + i] == m else zero)
        q += np.uintp(step)
        w0 += np.uintp(where_advance)
        w1 += np.uintp(where_advance)
        x0 += np.uintp(advance)
        x1 += np.uintp(advance)


@compiled
def _add_2(into: Any, at: int, where: Any, wheres: Any, source: Any, starts: Any, number: int, walk: Any) -> None:
    blocks, size, step, where_advance, advance, move = walk
    q, w0, w1, x0, x1 = np.uintp(at), np.uintp(wheres[0]), np.uintp(wheres[1]), np.uintp(starts[0]), np.uintp(starts[1])
    zero = into.dtype.type(0)
    for b in range(blocks):
        m = np.int32(number + b * move)
        for i in range(np.uintp(size)):
            value0, value1 = load(source[x0 + i]), load(source[x1 + i])
            sum0 = into[q + i] + (value0 if where[w0 + i] == m else zero)
            into[q + i] = sum0 + (value1 if where[w1 + i] == m else zero)
        q += np.uintp(step)
        w0 += np.uintp(where_advance)
        w1 += np.uintp(where_advance)
        x0 += np.uintp(advance)
        x1 += np.uintp(advance)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (PoolingMax, "forward"): forward,
    (PoolingMax, "gradient"): gradient,
}
