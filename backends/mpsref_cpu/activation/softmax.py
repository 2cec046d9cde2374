"""Softmax and log-softmax: a few pixels at a time, so that intermediate values stay in cache.

Each value takes an exponential, each pixel a maximum and a sum over its channels. Exponentials are one loop over all
values of a block, however few channels a pixel has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.softmax import ForwardProblem, LogSoftMax, SoftMax
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.simd.elementary import exp_below, log, quotient
from mpsref_cpu.simd.half import load, store
from mpsref_cpu.simd.reductions import BEYOND, FEW, MANY, dot, fill, largest, total
from mpsref_cpu.simd.vectors import broadcast, load_vector, minus, store_vector, times, zeros
from mpsref_cpu.threads import for_rows

BLOCK = 2048
"""Approximate number of values of a block: 8 KB."""

real: Any = np.float32
ONE = real(1)


def implementation(kernel: Callable[..., None]) -> Implementation:
    """Return an implementation by ``kernel(begin, end, at_once, channels, *inputs, result)``, for blocks of pixels."""

    def run(problem: ForwardProblem, *inputs: Array, out: Array) -> None:
        channels = problem.source_shape[3]
        pixels = out.size // channels
        at_once = max(1, BLOCK // channels)
        for_rows(kernel, -(-pixels // at_once), at_once, channels, *inputs, out)

    return run


@inlined
def _shift(x, at, pixels, channels, below, powers):
    """Fill ``below`` with ``x - m``, m the largest value of each pixel, and ``powers`` with its exponentials."""
    for p in range(pixels):
        peak = largest(x, at + p * channels, channels)
        source, to = np.uintp(at + p * channels), np.uintp(p * channels)
        for i in range(np.uintp(channels)):
            below[to + i] = load(x[source + i]) - peak
    for i in range(np.uintp(pixels * channels)):
        powers[i] = exp_below(below[i])


@compiled
def _softmax(begin, end, at_once, channels, x, y):
    """Compute the blocks from ``begin`` to ``end``."""
    below, powers = np.empty(at_once * channels, real), np.empty(at_once * channels + BEYOND, real)
    stop = min(end * at_once, x.size // channels)
    for pixel in range(begin * at_once, stop, at_once):
        pixels, at = min(at_once, stop - pixel), pixel * channels
        _shift(x, at, pixels, channels, below, powers)
        for p in range(pixels):
            factor = quotient(ONE, total(powers, np.uintp(p * channels), channels))
            source, to = np.uintp(p * channels), np.uintp(at + p * channels)
            for i in range(np.uintp(channels)):
                y[to + i] = store(powers[source + i] * factor, y[to + i])


@compiled
def _log_softmax(begin, end, at_once, channels, x, y):
    """Compute the blocks from ``begin`` to ``end``."""
    below, powers = np.empty(at_once * channels, real), np.empty(at_once * channels + BEYOND, real)
    logarithms = np.empty(at_once, real)
    stop = min(end * at_once, x.size // channels)
    for pixel in range(begin * at_once, stop, at_once):
        pixels, at = min(at_once, stop - pixel), pixel * channels
        _shift(x, at, pixels, channels, below, powers)
        for p in range(pixels):
            logarithms[p] = total(powers, np.uintp(p * channels), channels)
        for p in range(np.uintp(pixels)):
            logarithms[p] = log(logarithms[p])
        for p in range(pixels):
            source, to = np.uintp(p * channels), np.uintp(at + p * channels)
            for i in range(np.uintp(channels)):
                y[to + i] = store(below[source + i] - logarithms[p], y[to + i])


@compiled
def _softmax_gradient(begin, end, at_once, channels, g, y, dx):
    """Compute the blocks from ``begin`` to ``end``; vectors read beyond the last pixels, so these are copied first."""
    start, stop = begin * at_once * channels, min(end * at_once * channels, y.size)
    size = max(0, stop - start - BEYOND) // channels * channels
    _slopes(g, y, dx, start, size, channels)
    at, rest = np.uintp(start + size), stop - start - size
    last_g, last_y = np.empty(rest + BEYOND, g.dtype), np.empty(rest + BEYOND, y.dtype)
    slopes = np.empty(rest + BEYOND, dx.dtype)
    for i in range(np.uintp(rest)):
        last_g[i], last_y[i] = g[at + i], y[at + i]
    _slopes(last_g, last_y, slopes, 0, rest, channels)
    for i in range(np.uintp(rest)):
        dx[at + i] = slopes[i]


@inlined
def _slopes(g, y, dx, start, size, channels):
    """Compute whole pixels; the last vector of a pixel extends into the next one, which is computed later."""
    many = channels // MANY * MANY
    for first in range(start, start + size, channels):
        at = np.uintp(first)
        summed = dot(g, y, at, channels)
        wide, narrow = broadcast(summed, zeros(MANY)), broadcast(summed, zeros(FEW))
        for c in range(0, many, MANY):
            i = at + np.uintp(c)
            store_vector(dx, i, times(load_vector(y, i, wide), minus(load_vector(g, i, wide), wide)))
        for c in range(many, channels, FEW):
            i = at + np.uintp(c)
            store_vector(dx, i, times(load_vector(y, i, narrow), minus(load_vector(g, i, narrow), narrow)))


@compiled
def _log_softmax_gradient(begin, end, at_once, channels, g, y, dx):
    """Compute the blocks from ``begin`` to ``end``."""
    powers, values = np.empty(at_once * channels, real), np.empty(at_once * channels + BEYOND, real)
    sums = np.empty(at_once * channels + BEYOND, real)
    stop = min(end * at_once, y.size // channels)
    for pixel in range(begin * at_once, stop, at_once):
        pixels, at = min(at_once, stop - pixel), np.uintp(pixel * channels)
        size = np.uintp(pixels * channels)
        for i in range(size):
            values[i] = load(g[at + i])
            powers[i] = exp_below(load(y[at + i]))
        for p in range(pixels):
            fill(sums, p * channels, channels, total(values, np.uintp(p * channels), channels))
        for i in range(size):
            dx[at + i] = store(values[i] - powers[i] * sums[i], dx[at + i])


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (SoftMax, "forward"): implementation(_softmax),
    (SoftMax, "gradient"): implementation(_softmax_gradient),
    (LogSoftMax, "forward"): implementation(_log_softmax),
    (LogSoftMax, "gradient"): implementation(_log_softmax_gradient),
}
