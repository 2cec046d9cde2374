"""Sums over runs of rows and of columns with a weight for each, by which average and L2-norm pooling compute.

``target[j, k] = sum of row_weight[a] * column_weight[b] * source[a, b]``, over a run of rows a and one of columns b.
The sum is separable: first the rows of the run are added up, as long vectors, into a row of sums, then columns of that
row, in blocks that stay in cache. An element costs one multiply-add for each row and one for each column.

Sums are float32, and float64 where they have more than 1,024 terms.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.interpolation import WeightTable
from mpsref_cpu.compiling import inlined, internal
from mpsref_cpu.pooling.windows import Indices
from mpsref_cpu.simd.weighted_sums import Blocks, Terms, weighted_sum

BLOCK = 4096
"""Approximate number of elements of a row that are processed at once: 16 KB, half of a usual L1 cache."""

LONG_PIXEL = 128
"""Minimum number of channels for which it is faster to write target columns in their order."""


class Rows(NamedTuple):
    """The y axis: target row j sums ``number[j]`` source rows from ``first[j]`` on, with ``weights[start[j]:]``."""

    first: Indices
    number: Indices
    start: Indices
    weights: Array


class Columns(NamedTuple):
    """The x axis, as segments of target columns that are computed alike.

    Segment k has ``length[k]`` target columns: ``position[k]`` and others ``step`` apart. Each sums ``number[k]``
    source columns with ``weights[start[k]:]``; the run of the first one begins at ``first[k]``, that of each next one
    ``advance`` further on.
    """

    position: Indices
    length: Indices
    first: Indices
    number: Indices
    start: Indices
    step: int
    advance: int
    weights: Array


Axes = tuple[Rows, Columns]


def axes_of(y: WeightTable, x: WeightTable, channels: int, dtype: Any, *moves: tuple[int, int]) -> Axes:
    """Return two tables for compiled code, with weights of a dtype, that of the sums.

    Each of ``moves`` is a distance of columns, and that of their runs; the one with the fewest segments is taken.
    """
    first, number, start = (column.astype(np.int64) for column in y[:3])
    rows = Rows(first, number, start, y.weights.astype(dtype))
    segments = [_segments(x, channels, dtype, *move) for move in moves]
    return rows, min(segments, key=lambda columns: columns.length.size)


def _segments(table: WeightTable, channels: int, dtype: Any, step: int, advance: int) -> Columns:
    """Group columns that are ``step`` apart and have runs ``advance`` apart, with equal weights."""
    size = table.first.size
    step, advance = min(step, size), min(advance, np.iinfo(np.int32).max)  # longer ones reach no second column
    order = np.argsort(np.arange(size) % step, kind="stable")
    first, number, start = (column[order].astype(np.int64) for column in table[:3])
    alike = (np.diff(order) == step) & ((np.diff(first) == advance) | (number[1:] == 0)) & (np.diff(number) == 0)
    alike &= np.arange(1, size) % max(1, BLOCK // channels) != 0
    for k in np.flatnonzero(alike & (number[1:] > 0)).tolist():
        one, other = (table.weights[at : at + number[k]] for at in start[k : k + 2])
        alike[k] = np.array_equal(one, other)
    begin = np.flatnonzero(np.concatenate([[True], ~alike]))
    length = np.diff(begin, append=size)
    weights = table.weights.astype(dtype)
    return Columns(order[begin], length, first[begin], number[begin], start[begin], step, advance, weights)


@inlined
def greatest(numbers):
    """Return the largest of several numbers, or 0; numba takes a third of a second to compile its own ``max``."""
    found = 0
    for k in range(numbers.size):
        if numbers[k] > found:
            found = numbers[k]
    return found


@inlined
def memory_for(size, rows, columns):
    """Return memory for :func:`sum_row`: the sums of a source row of ``size`` elements, and weights of a column."""
    dtype = rows.weights.dtype
    return np.empty(size, dtype), np.empty(greatest(columns.number), dtype)


@partial(internal, forceinline=True, _nrt=False)
def sum_row(into, at, source, start, width, channels, j, axes, memory, squared):
    """Compute row j into ``into[at:]`` from rows of ``width`` pixels at ``source[start:]``, or from their squares."""
    (rows, columns), (sums, factors) = axes, memory
    pitch = width * channels
    first, terms, scale = start + rows.first[j] * pitch, rows.number[j], sums.dtype.type(1)
    step, advance = columns.step * channels, columns.advance * channels
    direct = terms == 1 and not squared  # no rows to add: columns are read from the source itself
    if direct:
        scale = rows.weights[rows.start[j]]
    done = 0  # elements of the row of sums
    for k in range(columns.length.size):
        count = columns.number[k] if terms else 0
        blocks = Blocks(columns.length[k], channels, step, advance)
        if step == channels == advance:  # adjacent columns from adjacent columns: one long block
            blocks = Blocks(1, columns.length[k] * channels, step, advance)
        q, p = at + columns.position[k] * channels, columns.first[k] * channels
        for t in range(count):
            factors[t] = scale * columns.weights[columns.start[k] + t]
        if direct:
            weighted_sum(into, q, source, Terms(first + p, channels, factors, 0), count, blocks, False)
            continue
        needed = p + (columns.advance * (columns.length[k] - 1) + count) * channels
        if count > 0 and needed > done:
            new = Terms(first + done, pitch, rows.weights, rows.start[j])
            weighted_sum(sums, done, source, new, terms, Blocks(1, needed - done, 0, 0), squared)
            done = needed
        weighted_sum(into, q, sums, Terms(p, channels, factors, 0), count, blocks, False)
