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
from mpsref_cpu.simd.reductions import BEYOND, FEW, MANY, dot, fill, largest, shift_or_scale, total
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
        first = at + p * channels
        shift_or_scale(x, first, channels, largest(x, first, channels), False, below, p * channels)
    for i in range(np.uintp(pixels * channels)):
        powers[i] = exp_below(below[i])


@inlined
def _pair(x, i):
    """Return the differences of two values and their maximum, and the exponentials of these."""
    a, b = x[i], x[i + np.uintp(1)]
    peak = a if a > b else b
    return a - peak, b - peak, exp_below(a - peak), exp_below(b - peak)


# Pixels of two channels, such as those of masks, are loops over pixels that LLVM turns into vectors.


@compiled
def _softmax(begin, end, at_once, channels, x, y):
    """Compute the blocks from ``begin`` to ``end``."""
    stop = min(end * at_once, x.size // channels)
    if channels == 2:
        for p in range(np.uintp(begin * at_once), np.uintp(stop)):
            i = np.uintp(2) * p
            _, _, first, second = _pair(x, i)
            factor = quotient(ONE, first + second)
            y[i], y[i + np.uintp(1)] = first * factor, second * factor
        return
    below, powers = np.empty(at_once * channels, real), np.empty(at_once * channels, real)
    for pixel in range(begin * at_once, stop, at_once):
        pixels, at = min(at_once, stop - pixel), pixel * channels
        _shift(x, at, pixels, channels, below, powers)
        for p in range(pixels):
            factor = quotient(ONE, total(powers, p * channels, channels))
            shift_or_scale(powers, p * channels, channels, factor, True, y, at + p * channels)


@compiled
def _log_softmax(begin, end, at_once, channels, x, y):
    """Compute the blocks from ``begin`` to ``end``."""
    stop = min(end * at_once, x.size // channels)
    if channels == 2:
        for p in range(np.uintp(begin * at_once), np.uintp(stop)):
            i = np.uintp(2) * p
            below_first, below_second, first, second = _pair(x, i)
            logarithm = log(first + second)
            y[i], y[i + np.uintp(1)] = below_first - logarithm, below_second - logarithm
        return
    below, powers = np.empty(at_once * channels, real), np.empty(at_once * channels, real)
    logarithms = np.empty(at_once, real)
    for pixel in range(begin * at_once, stop, at_once):
        pixels, at = min(at_once, stop - pixel), pixel * channels
        _shift(x, at, pixels, channels, below, powers)
        for p in range(pixels):
            logarithms[p] = total(powers, p * channels, channels)
        for p in range(np.uintp(pixels)):
            logarithms[p] = log(logarithms[p])
        for p in range(pixels):
            shift_or_scale(below, p * channels, channels, logarithms[p], False, y, at + p * channels)


@compiled
def _softmax_gradient(begin, end, at_once, channels, g, y, dx):
    """Compute the blocks from ``begin`` to ``end``."""
    first, stop = begin * at_once, min(end * at_once, y.size // channels)
    if channels == 2:
        for p in range(np.uintp(first), np.uintp(stop)):
            i, j = np.uintp(2) * p, np.uintp(2) * p + np.uintp(1)
            summed = g[i] * y[i] + g[j] * y[j]
            dx[i] = y[i] * (g[i] - summed)
            dx[j] = y[j] * (g[j] - summed)
    elif channels < FEW:
        n = np.uintp(channels)
        for p in range(np.uintp(first), np.uintp(stop)):
            summed = real(0)
            for i in range(n * p, n * p + n):
                summed += g[i] * y[i]
            for i in range(n * p, n * p + n):
                dx[i] = y[i] * (g[i] - summed)
    else:
        _slopes(g, y, dx, first, stop, channels)


@inlined
def _slopes(g, y, dx, first, stop, channels):
    """Compute pixels of at least FEW channels; the last vector may overlap the one before."""
    n = np.uintp(channels)
    for pixel in range(np.uintp(first), np.uintp(stop)):
        i, end = pixel * n, pixel * n + n
        summed = dot(g, y, i, channels)
        wide, narrow = broadcast(summed, zeros(MANY)), broadcast(summed, zeros(FEW))
        while i + np.uintp(MANY) <= end:
            store_vector(dx, i, times(load_vector(y, i, wide), minus(load_vector(g, i, wide), wide)))
            i += np.uintp(MANY)
        while i < end:
            k = min(i, end - np.uintp(FEW))
            store_vector(dx, k, times(load_vector(y, k, narrow), minus(load_vector(g, k, narrow), narrow)))
            i += np.uintp(FEW)


@compiled
def _log_softmax_gradient(begin, end, at_once, channels, g, y, dx):
    """Compute the blocks from ``begin`` to ``end``."""
    stop = min(end * at_once, y.size // channels)
    if channels == 2:
        for p in range(np.uintp(begin * at_once), np.uintp(stop)):
            i, j = np.uintp(2) * p, np.uintp(2) * p + np.uintp(1)
            summed = g[i] + g[j]
            dx[i] = g[i] - exp_below(y[i]) * summed
            dx[j] = g[j] - exp_below(y[j]) * summed
        return
    powers, sums = np.empty(at_once * channels, real), np.empty(at_once * channels + BEYOND, real)
    for pixel in range(begin * at_once, stop, at_once):
        pixels, at = min(at_once, stop - pixel), np.uintp(pixel * channels)
        for i in range(np.uintp(pixels * channels)):
            powers[i] = exp_below(y[at + i])
        for p in range(pixels):
            fill(sums, p * channels, channels, total(g, pixel * channels + p * channels, channels))
        for i in range(np.uintp(pixels * channels)):
            dx[at + i] = g[at + i] - powers[i] * sums[i]


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (SoftMax, "forward"): implementation(_softmax),
    (SoftMax, "gradient"): implementation(_softmax_gradient),
    (LogSoftMax, "forward"): implementation(_log_softmax),
    (LogSoftMax, "gradient"): implementation(_log_softmax_gradient),
}
