"""Sums, minima and maxima of lines along any of the axes y, x and channel, for compiled code.

Reductions are accumulated in float64, so that no order of terms makes them inaccurate; how the rows of an image are cut
into chunks depends on the image alone, never on the number of threads.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref_cpu.compiling import generic, inlined, internal
from mpsref_cpu.simd.reductions import largest_number
from mpsref_cpu.simd.vectors import load_vector, plus, store_vector, zeros_like

MOST_CHUNKS = 8
"""Maximum number of chunks of an image whose rows are reduced to one."""
WIDE = 64
"""Approximate number of elements of a line that are reduced at once if channels are kept."""
LANES = 16
"""Number of results that are summed at once."""
LEAST_ROWS = 8
"""Minimum number of rows of a chunk, so that partial results take a fraction of the memory of the image."""


class Total(NamedTuple):
    """The sum; ``start`` is the neutral element."""

    start: float = 0.0


class Least(NamedTuple):
    """The smallest number; NaN is skipped."""

    start: float = np.inf


class Greatest(NamedTuple):
    """The largest number; NaN is skipped."""

    start: float = -np.inf


class ReductionPlan(NamedTuple):
    """How an image is reduced: in ``chunks`` chunks of ``rows`` rows (the last one may have fewer)."""

    rows: int
    chunks: int
    pixels: int
    """The number of pixels of a row of the result: the width, or 1."""
    channels: int
    """The number of channels of the result: that of the image, or 1."""

    @classmethod
    def of(cls, shape: tuple[int, ...], kept: tuple[int, int, int]) -> ReductionPlan:
        """Return the plan for an image of ``shape`` (N, H, W, C); ``kept`` is 0 for an axis that is reduced."""
        _, height, width, channels = shape
        y, x, c = kept
        rows = 1 if y else -(-height // min(MOST_CHUNKS, -(-height // LEAST_ROWS)))
        return cls(rows, -(-height // rows), width if x else 1, channels if c else 1)

    def partial_results(self, n: int) -> Array:
        """Return memory for the chunks of n images."""
        return np.empty((n, self.chunks, self.pixels, self.channels))


@generic
def combine(kind, results, value):
    """Return the reduction ``results`` with one more value."""

    def total(kind, results, value):
        return results + value

    def least(kind, results, value):
        return value if value < results else results

    def greatest(kind, results, value):
        return value if value > results else results

    return {Total: total, Least: least, Greatest: greatest}[kind.instance_class]


@generic
def reduce_run(kind, values, start, size):
    """Return the reduction of a run of a vector."""

    def total(kind, values, start, size):
        return _sum(values, start, size)

    def least(kind, values, start, size):
        return -np.float64(largest_number(values, start, size, np.float32(-1)))

    def greatest(kind, values, start, size):
        return np.float64(largest_number(values, start, size, np.float32(1)))

    return {Total: total, Least: least, Greatest: greatest}[kind.instance_class]


@partial(internal, fastmath={"contract", "reassoc"}, forceinline=True)
def _sum(values, start, size):
    """Add up a run of a vector, in an order chosen by the compiler."""
    total = np.float64(0)
    first = np.uintp(start)
    for k in range(np.uintp(size)):
        total += np.float64(values[first + k])
    return total


@inlined
def add_runs(values, size, results, at, length):
    """Add the runs of ``length`` numbers of ``values[:size]`` to as many results, four runs at a time, in their order.

    Unlike :func:`reduce_line`, it reads four runs at once: from the cache faster, from memory slower.
    """
    p, n, to, end = np.uintp(0), np.uintp(length), np.uintp(at), np.uintp(size)
    while p + np.uintp(4) * n <= end:
        k = np.uintp(0)
        while k + np.uintp(LANES) <= n:
            sums, a = load_vector(results, to + k, zeros_like(results, LANES)), p + k
            for _ in range(4):
                sums, a = plus(sums, load_vector(values, a, sums)), a + n
            store_vector(results, to + k, sums)
            k += np.uintp(LANES)
        while k < n:
            a = p + k
            for _ in range(4):
                results[to + k] += values[a]
                a += n
            k += np.uintp(1)
        p += np.uintp(4) * n
    while p < end:
        for k in range(min(n, end - p)):
            results[to + k] += values[p + k]
        p += n


class Line(NamedTuple):
    """``pixels`` pixels of a row from ``column`` on, stored from ``start`` on."""

    start: int
    column: int
    pixels: int
    channels: int


@inlined
def reduce_line(kind, values, line, results, at, kept):
    """Reduce a line of ``values`` into the pixels of ``results`` that begin at ``at``.

    ``kept`` is 1 for those of the axes y, x and channel that are kept, and 0 for those that are reduced.
    """
    first, column, pixels, channels = line
    size = pixels * channels
    if kept[1] == 1 and kept[2] == 1:
        to, start = np.uintp(at + column * channels), np.uintp(first)
        for k in range(np.uintp(size)):
            results[to + k] = combine(kind, results[to + k], np.float64(values[start + k]))
    elif kept[2] == 1 and 2 * channels > WIDE:
        to = np.uintp(at)
        for p in range(pixels):
            start = np.uintp(first + p * channels)
            for c in range(np.uintp(channels)):
                results[to + c] = combine(kind, results[to + c], np.float64(values[start + c]))
    elif kept[2] == 1:
        group = WIDE // channels  # pixels for a loop of useful length
        wide = np.full(group * channels, kind.start)
        for p in range(0, pixels, group):
            start = np.uintp(first + p * channels)
            for c in range(np.uintp(min(group, pixels - p) * channels)):
                wide[c] = combine(kind, wide[c], np.float64(values[start + c]))
        for p in range(group):
            for c in range(channels):
                results[at + c] = combine(kind, results[at + c], wide[p * channels + c])
    elif kept[1] == 1:
        for p in range(pixels):
            to = np.uintp(at + column + p)
            results[to] = combine(kind, results[to], reduce_run(kind, values, first + p * channels, channels))
    else:
        results[at] = combine(kind, results[at], reduce_run(kind, values, first, size))
