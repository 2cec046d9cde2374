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
from mpsref_cpu.simd.half import load, store
from mpsref_cpu.simd.vectors import broadcast, load_vector, multiply_add, store_vector, times, zeros_like
from mpsref_cpu.threads import for_rows

MOST_FLOAT32_TERMS = 1024

BLOCK = 4096
"""Approximate number of elements of a row that are processed at once: 16 KB, half of a usual L1 cache."""

LANES = 8
"""Number of elements that are summed up at once."""


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
    sums = np.empty(widest * channels, rows.weights.dtype)
    pitch = source_width * channels
    for line in range(begin, end):
        n, j = line // height, line % height
        top = (n * source_height + rows.first[j]) * pitch
        for k in range(0, width, block):
            stop = min(k + block, width)
            left = columns.first[k]
            size = (columns.first[stop - 1] + columns.number[stop - 1] - left) * channels
            at = top + left * channels
            _weighted_sum(sums, 0, source, at, size, pitch, rows.weights, rows.start[j], rows.number[j])
            for m in range(k, stop):
                at = (columns.first[m] - left) * channels
                to = (line * width + m) * channels
                first, number = columns.start[m], columns.number[m]
                _weighted_sum(target, to, sums, at, channels, channels, columns.weights, first, number)


# Indices are unsigned: for signed ones numba generates a test for negative values.


@inlined
def _weighted_sum(into, to, source, at, size, tap, weights, first, count):
    """Set a vector to the sum of ``count`` vectors, ``tap`` elements apart, with the weights from ``first`` on.

    The last vector may repeat some elements; with fewer elements than lanes, they are computed one by one. Small counts
    have loops of their own, without an inner loop over terms.
    """
    q, x, step, n = np.uintp(to), np.uintp(at), np.uintp(tap), np.uintp(size)
    if n < LANES:
        for e in range(n):
            total = weights[first] * load(source[x + e])
            for t in range(1, count):
                total += weights[first + t] * load(source[x + np.uintp(t) * step + e])
            into[q + e] = store(total, into[q + e])
        return
    none = zeros_like(weights, LANES)
    last = n - np.uintp(LANES)
    y, z = x + step, x + step + step
    u = z + step
    v0 = broadcast(weights[first], none)
    if count == 1:
        for k in range(0, n, LANES):
            i = min(np.uintp(k), last)
            store_vector(into, q + i, times(v0, load_vector(source, x + i, none)))
    elif count == 2:
        w1 = weights[first + 1]
        for k in range(0, n, LANES):
            i = min(np.uintp(k), last)
            total = times(v0, load_vector(source, x + i, none))
            store_vector(into, q + i, multiply_add(total, w1, load_vector(source, y + i, none)))
    elif count == 3:
        w1, w2 = weights[first + 1], weights[first + 2]
        for k in range(0, n, LANES):
            i = min(np.uintp(k), last)
            total = times(v0, load_vector(source, x + i, none))
            total = multiply_add(total, w1, load_vector(source, y + i, none))
            store_vector(into, q + i, multiply_add(total, w2, load_vector(source, z + i, none)))
    elif count == 4:
        w1, w2, w3 = weights[first + 1], weights[first + 2], weights[first + 3]
        for k in range(0, n, LANES):
            i = min(np.uintp(k), last)
            total = times(v0, load_vector(source, x + i, none))
            total = multiply_add(total, w1, load_vector(source, y + i, none))
            total = multiply_add(total, w2, load_vector(source, z + i, none))
            store_vector(into, q + i, multiply_add(total, w3, load_vector(source, u + i, none)))
    else:
        for k in range(0, n, LANES):
            at_k = x + min(np.uintp(k), last)
            total = times(v0, load_vector(source, at_k, none))
            for t in range(first + 1, first + count):
                at_k += step
                total = multiply_add(total, weights[t], load_vector(source, at_k, none))
            store_vector(into, q + min(np.uintp(k), last), total)
