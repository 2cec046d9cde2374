"""Sums over runs of rows and columns with a weight for each: interpolation, and its gradient.

``target[j, k] = sum of row_weight[a] * column_weight[b] * source[a, b]``, over runs of rows a and of columns b. The
sum is separable: first the rows of the run are added up, as long vectors, into a row of sums, then columns of that row,
block by block so that the sums stay in cache.

Sums are float32, and float64 where they have more than 1,024 terms.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.interpolation import Sampling, WeightTable
from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.simd.vectors import broadcast, load_vector, multiply_add, store_vector, times, zeros_like
from mpsref_cpu.threads import for_rows

MOST_FLOAT32_TERMS = 1024

BLOCK = 4096
"""Approximate number of elements of a row that are processed at once: 16 KB, half of a usual L1 cache."""

LANES = 8
"""Number of elements that are summed up at once."""

STREAMS = 4
"""Maximum number of rows read at once: their distance is often a power of 2, and a cache keeps few of those."""


class Axis(NamedTuple):
    """A :class:`WeightTable` with weights in the dtype of the sums."""

    first: Any
    number: Any
    start: Any
    weights: Any


def resample(axes: tuple[Sampling, Sampling], gradient: bool, source: Array, out: Array) -> None:
    """Fill ``out`` with ``source`` sampled along y and x, or with the gradient of that."""
    rows, columns = _tables(axes, gradient)
    n, height, width, channels = out.shape
    ends = columns.first + columns.number
    block = max(1, BLOCK // (channels * max(1, -(-int(ends[-1]) // width))))
    widest = max(int(ends[min(k + block, width) - 1] - columns.first[k]) for k in range(0, width, block))
    sizes = *source.shape[1:3], height, width, channels, block, widest
    for_rows(_resample, n * height, source, out, sizes, rows, columns)


@lru_cache(maxsize=256)
def _tables(axes: tuple[Sampling, Sampling], gradient: bool) -> tuple[Axis, Axis]:
    y, x = (axis.gradient() if gradient else axis.forward() for axis in axes)
    dtype = np.float32 if int(y.number.max()) * int(x.number.max()) <= MOST_FLOAT32_TERMS else np.float64
    return _axis(y, dtype), _axis(x, dtype)


def _axis(table: WeightTable, dtype: type[Any]) -> Axis:
    first, number, start = (column.astype(np.int64) for column in table[:3])
    return Axis(first, number, start, table.weights.astype(dtype))


@compiled
def _resample(begin, end, source, target, sizes, rows, columns):
    """Compute rows ``begin`` to ``end`` of the target, counted through all images."""
    source_height, source_width, height, width, channels, block, widest = sizes
    sums = np.empty(widest * channels + LANES, rows.weights.dtype)
    pitch = source_width * channels
    few = channels < LANES  # a vector of such a pixel extends into the next one, and must not into the next row
    room = np.empty(block * channels + LANES if few else 0, target.dtype)
    for line in range(begin, end):
        n, j = line // height, line % height
        top = (n * source_height + rows.first[j]) * pitch
        for k in range(0, width, block):
            stop = min(k + block, width)
            left, to = columns.first[k], (line * width + k) * channels
            size = (columns.first[stop - 1] + columns.number[stop - 1] - left) * channels
            at = top + left * channels
            if size >= LANES:
                start, taps = rows.start[j], rows.number[j]
                _weighted_sum(sums, 0, source, at, size, pitch, rows.weights, start, min(taps, STREAMS))
                for t in range(STREAMS, taps):
                    _add_row(sums, source, at + t * pitch, size, rows.weights[start + t])
            for e in range(size if size < LANES else 0):
                sums[e] = 0
                for t in range(rows.number[j]):
                    sums[e] += rows.weights[rows.start[j] + t] * source[at + t * pitch + e]
            into, first = (room, 0) if few else (target, to)
            for m in range(np.uintp(k), np.uintp(stop)):
                at, start, taps = (columns.first[m] - left) * channels, columns.start[m], columns.number[m]
                _weighted_sum(into, first, sums, at, max(channels, LANES), channels, columns.weights, start, taps)
                first += channels
            if few:
                for i in range(np.uintp((stop - k) * channels)):
                    target[np.uintp(to) + i] = room[i]


# Indices are unsigned: for signed ones numba generates a test for negative values.


@inlined
def _add_row(sums, source, at, size, weight):
    """Add a row with its weight."""
    for e in range(np.uintp(size)):
        sums[e] += weight * source[np.uintp(at) + e]


@inlined
def _weighted_sum(into, to, source, at, size, tap, weights, first, count):
    """Set a vector to the sum of ``count`` vectors, ``tap`` elements apart, with the weights from ``first`` on.

    It has at least LANES elements.
    """
    if count == 2:
        _sum_vectors(into, to, source, at, size, tap, weights, first, 2)
    elif count == 4:
        _sum_vectors(into, to, source, at, size, tap, weights, first, 4)
    else:
        _sum_vectors(into, to, source, at, size, tap, weights, first, count)


@inlined
def _sum_vectors(into, to, source, at, size, tap, weights, first, count):
    """Do it. The last vector may repeat some elements; LLVM writes out the terms where their number is a constant."""
    q, start, step, w, n = np.uintp(to), np.uintp(at), np.uintp(tap), np.uintp(first), np.uintp(size)
    k, none = np.uintp(0), zeros_like(weights, LANES)
    if count == 0:  # no branch of its own in the caller, which would not be inlined then
        w = np.uintp(0)
    last = max(count - 1, 0)
    w0, w1, w2 = weights[w], weights[w + np.uintp(min(1, last))], weights[w + np.uintp(min(2, last))]
    while k < n:
        i = min(k, n - np.uintp(LANES))
        x = start + i
        total = none if count == 0 else times(broadcast(w0, none), load_vector(source, x, none))
        if count > 1:
            total = multiply_add(total, w1, load_vector(source, x + step, none))
        if count > 2:
            total = multiply_add(total, w2, load_vector(source, x + step + step, none))
        for t in range(3, count):
            total = multiply_add(total, weights[w + np.uintp(t)], load_vector(source, x + np.uintp(t) * step, none))
        store_vector(into, q + i, total)
        k += np.uintp(LANES)
