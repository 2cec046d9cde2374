"""The gradient of max pooling with small windows, scattered tap by tap.

Rows of dx are processed in order, and each window once, at the first row that it reads: for some channels at a time it
finds its maximum, then gives ``g`` to the first tap in raster order that equals it; the amount given is subtracted from
the amount left, so that later taps get nothing. For each of the K * K taps an element of g costs a maximum and an
addition to find the value, and a comparison, two masks and an addition to scatter it, all on whole vectors. Where the
number of channels is no multiple of the vector width, the last vector overlaps the one before and adds nothing to the
channels they share. Windows that extend into the rows of another chunk are processed in both.

NaN is larger than nothing and equals nothing: the search starts from -inf, and a window of NaN alone gives nothing.
Images of fewer channels than a vector has are processed channel by channel.

Every element of dx adds up its windows in raster order, whatever the threads, in float32, and in float64 where there
may be more than 1,024. Workspace: as many rows of sums as a window is high, where dx is not stored in their dtype.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpsref.arguments.arrays import Array
from mpsref.kernels.pooling import PoolingGradient
from mpsref.operations import cached_in_problem
from mpsref_cpu.compiling import compiled, inlined, uncounted
from mpsref_cpu.pooling.windows import (
    MOST_FLOAT32_TERMS,
    VECTOR,
    Groups,
    Indices,
    RowChunks,
    WindowPixels,
    Windows,
    first_row,
    groups_of_windows,
    list_reads,
    representatives,
)
from mpsref_cpu.simd.vectors import (
    add_to,
    broadcast,
    from_lane,
    load_vector,
    maximum,
    prefetch_vector,
    store_vector,
    where_equal,
    without,
    zeros,
)
from mpsref_cpu.threads import for_rows

LOWEST = np.float32(-np.inf)

WIDE, WIDEST = 16, 32
"""Numbers of channels that are processed at once where a window reads nothing outside the image."""

AHEAD = 2
"""Number of rows below a window, and of columns, that are prefetched: processors do not prefetch many short runs."""


class SmallMaxTables(NamedTuple):
    """The geometry of a gradient. A *target* is the row or column of dx for one of the source, or -1."""

    row_windows: Windows
    column_windows: Windows
    rows: WindowPixels
    columns: WindowPixels
    row_targets: Indices
    column_targets: Indices
    regular: npt.NDArray[np.bool_]
    """Whether a window column reads nothing outside the image, and all of its pixels have a target."""
    groups: Groups
    """Groups of regular window columns; each other column is a group of its own."""
    dense: bool
    """Whether every window that may read a pixel does; then the first window sets it, and later ones add to it."""
    gaps: Indices
    """Columns [begin, end) of dx that no window sets."""
    extent: int
    """The largest number of source rows from the first to the last that a window reads."""
    no_sums: Any
    """An empty vector of the dtype of the sums."""


class SmallMaxPlan(NamedTuple):
    tables: SmallMaxTables
    in_place: RowChunks
    """Chunks where dx has the dtype of the sums."""
    from_sums: RowChunks
    """Chunks where rows of sums are kept apart."""


@cached_in_problem
def _plan(problem: PoolingGradient) -> SmallMaxPlan:
    row_windows, column_windows = (Windows.of(reads).distinct() for reads in problem.reads())
    rows, columns = (WindowPixels.of(touching) for touching in problem.touching())
    row_targets, column_targets = representatives(rows), representatives(columns)
    y, x = problem.spec.windows
    first = column_windows.first
    last = first + (np.maximum(column_windows.count, 1) - 1) * column_windows.step
    regular = (column_targets[first] >= 0) & (column_targets[last] - column_targets[first] == last - first)
    regular &= (column_windows.before == 0) & (column_windows.after == 0)
    sets = np.bincount(columns.first[columns.count > 0], minlength=first.size)  # columns that each window is first at
    groups = groups_of_windows(column_windows, x.stride, ~regular, columns.begin, columns.end, sets)
    dense = y.dilation == x.dilation == 1
    unset = np.flatnonzero(np.diff((columns.count == 0) | (not dense), prepend=False, append=False))
    tables = SmallMaxTables(
        row_windows,
        column_windows,
        rows,
        columns,
        row_targets,
        column_targets,
        regular,
        groups,
        dense,
        gaps=unset.reshape(-1, 2),
        extent=min(y.extent, problem.source_shape[1]),
        no_sums=np.empty(0, np.float32 if rows.most * columns.most <= MOST_FLOAT32_TERMS else np.float64),
    )
    row_bytes = problem.source_shape[2] * tables.extent * tables.no_sums.itemsize
    return SmallMaxPlan(tables, RowChunks.of(problem, 0), RowChunks.of(problem, row_bytes))


def gradient(problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g (N, GH, GW, C) and x (N, H, W, C)."""
    tables, chunks, chunks_from_sums = _plan(problem)
    sums: Any = out
    if out.dtype != tables.no_sums.dtype:
        sums, chunks = tables.no_sums, chunks_from_sums
    for_rows(_gradient, chunks.number, g, x, sums, out, (*g.shape[1:3], *out.shape[1:], *chunks[:2]), tables)


@compiled
def _gradient(begin, end, g, x, sums, dx, sizes, tables):
    """Compute the chunks ``begin`` to ``end`` of dx.

    ``sums``, to which windows add, is dx itself, or an empty vector: then rows that windows in progress touch are kept
    in a vector of its dtype, row j of dx in slot ``j % extent``.
    """
    _, _, _, width, _, chunk_channels, _ = sizes
    in_place = sums.size > 0
    if not in_place:
        sums = np.empty(tables.extent * width * chunk_channels, sums.dtype)
    most_rows, most_columns = tables.row_windows.most, tables.column_windows.most
    most = max(most_rows, most_columns)
    workspace = (
        (np.empty(most, np.int64), np.empty(most, np.float64)),
        (np.empty(most_rows, np.int64), np.empty(most_rows, np.int64), np.empty(most_rows, np.bool_)),
        (np.empty(most_columns, np.int64), np.empty(most_columns, np.int64), np.empty(most_columns, np.bool_)),
        np.array([[0, width]]),
    )
    _chunks(begin, end, g, x, sums, in_place, dx, sizes, tables, workspace)


@uncounted
def _chunks(begin, end, g, x, sums, in_place, dx, sizes, tables, workspace):
    """Process the chunks in preallocated workspace."""
    gradient_height, gradient_width, height, width, channels, chunk_channels, chunk_rows = sizes
    begin, end = first_row(begin, height, chunk_rows), first_row(end, height, chunk_rows)
    (reads, times), (x_rows, sum_rows, row_sets), (x_columns, sum_columns, column_sets), whole_row = workspace
    columns = -(-channels // chunk_channels)
    plane, following, clear = -1, 0, 0
    for row in range(begin, end):
        j = row % height
        if row // height != plane:
            plane, following, clear = row // height, 0, j
        last = min(end - plane * height, height)
        image, c = plane // columns, plane % columns * chunk_channels
        n = min(chunk_channels, channels - c)
        pitch = channels if in_place else n
        slots = height if in_place else tables.extent
        x_image = image * height * width * channels + c
        sum_image = x_image if in_place else 0

        for a in range(max(tables.rows.first[j], following), tables.rows.first[j] + tables.rows.count[j]):
            following = a + 1
            row_count = list_reads(tables.row_windows, a, reads, times)
            for k in range(row_count):
                x_rows[k], sum_rows[k], row_sets[k] = -1, -1, False
                if reads[k] >= 0:
                    x_rows[k] = x_image + reads[k] * width * channels
                    target = tables.row_targets[reads[k]]
                    if max(0, begin - plane * height) <= target < last:
                        sum_rows[k] = sum_image + target % slots * width * pitch
                        row_sets[k] = tables.dense and tables.rows.first[target] == a
                        for r in range(clear, target + 1):
                            _clear(sums, sum_image + r % slots * width * pitch, tables.gaps, pitch, n)
                        clear = max(clear, target + 1)
            tap_rows = row_count, x_rows, sum_rows, row_sets
            for k in range(tables.groups.start.size):
                b, length = tables.groups.start[k], tables.groups.length[k]
                column_count = list_reads(tables.column_windows, b, reads, times)
                for t in range(column_count):
                    x_columns[t], sum_columns[t], column_sets[t] = -1, -1, False
                    if reads[t] >= 0:
                        x_columns[t] = reads[t] * channels
                        target = tables.column_targets[reads[t]]
                        if target >= 0:
                            sum_columns[t] = target * pitch
                            column_sets[t] = tables.dense and tables.columns.first[target] == b
                tap_columns = column_count, x_columns, sum_columns, column_sets
                at = ((image * gradient_height + a) * gradient_width + b) * channels + c
                moves = channels, tables.groups.advance * channels, tables.groups.advance * pitch, width * channels
                if n >= WIDE and tables.regular[b] and column_count == 2:
                    _scatter(g, at, x, sums, n, tap_rows, tap_columns, moves, length, (0, 0))
                elif n >= WIDE and tables.regular[b] and column_count == 3:
                    _scatter(g, at, x, sums, n, tap_rows, tap_columns, moves, length, (0, 0, 0))
                else:
                    _scatter(g, at, x, sums, n, tap_rows, tap_columns, moves, length, None)
        if clear <= j:  # no window has reached this row
            _clear(sums, sum_image + j % slots * width * pitch, whole_row, pitch, n)
            clear = j + 1
        if not in_place:
            p, q = x_image + j * width * channels, j % slots * width * n
            for k in range(width):
                stored = dx[p + k * channels : p + k * channels + n]
                for i in range(n):
                    stored[i] = sums[q + k * n + i]


@uncounted
def _clear(sums, at, columns, pitch, n):
    """Set ``n`` channels of some columns of the row of sums that begins at ``at`` to 0."""
    for k in range(columns.shape[0]):
        for q in range(columns[k, 0], columns[k, 1]):
            sums[at + q * pitch : at + q * pitch + n] = 0


# Taps are rows times columns: tap (ty, tx) reads ``x[x_rows[ty] + x_columns[tx]]`` and adds to the sum at
# ``sum_rows[ty] + sum_columns[tx]``, each -1 where there is none; the first window of a sum sets it. Along a group of
# windows, columns advance. The next row of windows reads rows below, which are prefetched. ``unroll`` is a tuple as
# long as a regular window is wide, or None.


@uncounted
def _scatter(g, at, x, sums, n, rows, columns, moves, length, unroll):
    """For each of ``length`` windows, add ``n`` gradients from ``g[at]`` on to the taps that their channels select."""
    moved = 0, 0
    _, x_columns, sum_columns, column_sets = columns
    taps = 1 if unroll is None else len(unroll)
    old = taps - column_sets[:taps].sum()
    for _ in range(length):
        walk = (
            x_columns[0] + moved[0],
            x_columns[taps - 1] - x_columns[taps - 2],
            sum_columns[0] + moved[1],
            sum_columns[taps - 1] - sum_columns[taps - 2],
            old,
            moves[3],
        )
        c = 0
        if unroll is None:
            while c < n and n >= VECTOR:
                done = max(0, c + VECTOR - n)  # channels that the last vector shares with the one before
                _scatter_irregular(g, at, x, sums, c - done, done, rows, columns, moved, zeros(VECTOR))
                c += VECTOR
            while c < n:
                _scatter_irregular(g, at, x, sums, c, 0, rows, columns, moved, zeros(1))
                c += 1
        else:
            while c + WIDEST <= n:
                _scatter_regular(g, at, x, sums, c, 0, rows, walk, unroll, zeros(WIDEST))
                c += WIDEST
            while c < n:
                done = max(0, c + WIDE - n)
                _scatter_regular(g, at, x, sums, c - done, done, rows, walk, unroll, zeros(WIDE))
                c += WIDE
        at += moves[0]
        moved = moved[0] + moves[1], moved[1] + moves[2]


@inlined
def _scatter_regular(g, at, x, sums, c, done, rows, moved, unroll, zero):
    """Scatter as many channels from ``c`` on as ``zero`` has lanes; the first ``done`` of them are done already."""
    row_count, x_rows, sum_rows, row_sets = rows
    taps = len(unroll)
    x_first, x_step, sum_first, sum_step, old, row = moved
    best = broadcast(LOWEST, zero)
    for ty in range(np.uintp(row_count)):
        if x_rows[ty] < 0:
            best = maximum(zero, best)
        else:
            p = np.uintp(x_rows[ty] + x_first + c)
            for tx in range(taps):
                best = maximum(load_vector(x, np.uintp(p + tx * x_step), zero), best)
    left = load_vector(g, np.uintp(at + c), zero)
    below = x_rows[row_count - 1] + x_first + c + row
    for i in range(AHEAD):
        for j in range(AHEAD):
            prefetch_vector(x, np.uintp(below + i * row + j * x_step), zero)
            prefetch_vector(sums, np.uintp(below + i * row + j * x_step), zero)  # dx has the pixels of x
    for ty in range(np.uintp(row_count)):
        if x_rows[ty] < 0:
            left = without(left, where_equal(left, zero, best))
        else:
            p, q = np.uintp(x_rows[ty] + x_first + c), np.uintp(sum_rows[ty] + sum_first + c)
            added = old if row_sets[ty] else taps
            stored = sum_rows[ty] >= 0
            for tx in range(taps):
                value = load_vector(x, np.uintp(p + tx * x_step), zero)
                given = where_equal(left, value, best)
                left = without(left, given)
                if stored:
                    if tx < added:
                        add_to(sums, np.uintp(q + tx * sum_step), from_lane(given, done))
                    else:
                        store_vector(sums, np.uintp(q + tx * sum_step), given)


@inlined
def _scatter_irregular(g, at, x, sums, c, done, rows, columns, moved, zero):
    """Like :func:`_scatter_regular`, where any column may be outside the image or have no target."""
    row_count, x_rows, sum_rows, row_sets = rows
    column_count, x_columns, sum_columns, column_sets = columns
    x_first, sum_first = moved[0] + c, moved[1] + c
    best = broadcast(LOWEST, zero)
    for ty in range(row_count):
        for tx in range(column_count):
            value = zero
            if x_rows[ty] >= 0 and x_columns[tx] >= 0:
                value = load_vector(x, np.uintp(x_rows[ty] + x_columns[tx] + x_first), zero)
            best = maximum(value, best)
    left = load_vector(g, np.uintp(at + c), zero)
    for ty in range(row_count):
        for tx in range(column_count):
            value = zero
            if x_rows[ty] >= 0 and x_columns[tx] >= 0:
                value = load_vector(x, np.uintp(x_rows[ty] + x_columns[tx] + x_first), zero)
            given = where_equal(left, value, best)
            left = without(left, given)
            if sum_rows[ty] >= 0 and sum_columns[tx] >= 0:
                q = np.uintp(sum_rows[ty] + sum_columns[tx] + sum_first)
                if row_sets[ty] and column_sets[tx]:
                    store_vector(sums, q, given)
                else:
                    add_to(sums, q, from_lane(given, done))
