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

from mpsref.images import Array
from mpsref.kernels.interpolation import Sampling, Weighted
from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.half import as_storage, load, store
from mpsref_cpu.parallel import for_rows

__all__ = ["resample"]

MOST_FLOAT32_TERMS = 1024

BLOCK = 4096
"""About how many elements of a row are worked on at once: 16 KB, half of a usual first-level cache."""


class Axis(NamedTuple):
    """A :class:`Weighted` table with weights in the dtype of the sums."""

    first: Any
    number: Any
    start: Any
    weights: Any


def resample(axes: tuple[Sampling, Sampling], gradient: bool, source: Array, out: Array) -> None:
    """Fill ``out`` with ``source`` sampled along y and x, or with the gradient of that."""
    rows, columns = _tables(axes, gradient)
    n, height, width, channels = out.shape
    pixels, target = as_storage(source), as_storage(out)
    results = target if target.dtype == rows.weights.dtype else rows.weights[:0]
    ends = columns.first + columns.number
    block = max(1, BLOCK // (channels * max(1, -(-int(ends[-1]) // width))))
    widest = max(int(ends[min(k + block, width) - 1] - columns.first[k]) for k in range(0, width, block))
    sizes = *source.shape[1:3], height, width, channels, block, widest
    for_rows(_resample, n * height, source.nbytes + out.nbytes, pixels, results, target, sizes, rows, columns)


@lru_cache(maxsize=256)
def _tables(axes: tuple[Sampling, Sampling], gradient: bool) -> tuple[Axis, Axis]:
    y, x = (axis.gradient() if gradient else axis.forward() for axis in axes)
    dtype = np.float32 if int(y.number.max()) * int(x.number.max()) <= MOST_FLOAT32_TERMS else np.float64
    return _axis(y, dtype), _axis(x, dtype)


def _axis(table: Weighted, dtype: type[Any]) -> Axis:
    first, number, start = (column.astype(np.int64) for column in table[:3])
    return Axis(first, number, start, table.weights.astype(dtype))


@compiled
def _resample(
    begin: int, end: int, source: Any, results: Any, target: Any, sizes: Any, rows: Axis, columns: Axis
) -> None:
    """Compute rows ``begin`` to ``end`` of the target, counted through all images.

    ``results``, in which blocks are computed, is the target itself, or an empty vector: then each is computed in one of
    its dtype.
    """
    source_height, source_width, height, width, channels, block, widest = sizes
    in_place = results.size > 0
    if not in_place:
        results = np.empty(block * channels, results.dtype)
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
            base = (line * width + k) * channels
            into = base if in_place else 0
            for m in range(k, stop):
                at = (columns.first[m] - left) * channels
                to = into + (m - k) * channels
                _weighted_sum(
                    results, to, sums, at, channels, channels, columns.weights, columns.start[m], columns.number[m]
                )
            if not in_place:
                q = np.uintp(base)
                for i in range(np.uintp((stop - k) * channels)):
                    target[q + i] = store(np.float32(results[i]), target[q + i])


# Indices are unsigned, because a signed one makes numba ask each time whether it counts from the end.


@inlined
def _weighted_sum(
    into: Any, to: int, source: Any, at: int, size: int, tap: int, weights: Any, first: int, count: int
) -> None:
    """Set a vector to the sum of ``count`` vectors, ``tap`` elements apart, with the weights from ``first`` on.

    First come up to four, so many that a multiple of four is left; each sum is read and written
    once for every four of them.
    """
    q, x, step, n = np.uintp(to), np.uintp(at), np.uintp(tap), np.uintp(size)
    y, z = x + step, x + step + step
    rest = (count - 1) % 4 + 1
    w0 = weights[first]
    if rest == 1:
        for i in range(n):
            into[q + i] = w0 * load(source[x + i])
    elif rest == 2:
        w1 = weights[first + 1]
        for i in range(n):
            into[q + i] = w0 * load(source[x + i]) + w1 * load(source[y + i])
    elif rest == 3:
        w1, w2 = weights[first + 1], weights[first + 2]
        for i in range(n):
            into[q + i] = w0 * load(source[x + i]) + w1 * load(source[y + i]) + w2 * load(source[z + i])
    else:
        w1, w2, w3 = weights[first + 1], weights[first + 2], weights[first + 3]
        u = z + step
        for i in range(n):
            upper = w0 * load(source[x + i]) + w1 * load(source[y + i])
            into[q + i] = upper + (w2 * load(source[z + i]) + w3 * load(source[u + i]))
    for t in range(rest, count, 4):
        w0, w1, w2, w3 = weights[first + t], weights[first + t + 1], weights[first + t + 2], weights[first + t + 3]
        x = np.uintp(at) + np.uintp(t) * step
        y, z, u = x + step, x + step + step, x + step + step + step
        for i in range(n):
            upper = w0 * load(source[x + i]) + w1 * load(source[y + i])
            into[q + i] += upper + (w2 * load(source[z + i]) + w3 * load(source[u + i]))
