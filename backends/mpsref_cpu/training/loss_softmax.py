"""Softmax cross entropy: a block of whole pixels at a time, in memory that stays in the cache.

The exponentials of all values of a block are one loop, however few channels there are, and so are the logarithms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref_cpu.compiling import inlined, uncounted
from mpsref_cpu.simd.elementary import exp_below, log, quotient
from mpsref_cpu.simd.half import load
from mpsref_cpu.simd.reductions import BEYOND, extremum, total
from mpsref_cpu.training.loss_formulas import ELEMENT, SLOPE, times

real = np.float32
ZERO, ONE, NAN = map(real, (0, 1, np.nan))


class LossPixels(NamedTuple):
    """Intermediate values of a block."""

    shifted: Any
    """For each element, the prediction minus the largest of its pixel."""
    exponential: Any
    """The exponential of ``shifted``."""
    total: Any
    """For each pixel, the sum of its exponentials."""
    logarithm: Any
    """The logarithm of ``total``."""
    unknown: Any
    """NaN if a prediction or label of the pixel is NaN, else 0."""


@inlined
def pixels_of(size, channels):
    """Return memory for a block of ``size`` elements."""
    count = size // channels
    return LossPixels(
        np.empty(size, real),
        np.empty(size + BEYOND, real),
        np.empty(count, real),
        np.empty(count, real),
        np.empty(count, real),
    )


@uncounted
def fill_pixels(values, what, form, pixels, y, t, at, count, channels):
    """Set ``values`` to the function ``what`` of the ``count`` elements from ``at`` on."""
    _prepare(pixels, y, t, at, count, channels)
    n = np.uintp(channels)
    for p in range(np.uintp(count // channels)):
        divisor, logarithm, unknown = pixels.total[p], pixels.logarithm[p], pixels.unknown[p]
        first, last = p * n, p * n + n
        if what == ELEMENT:
            for i in range(first, last):
                label = form.a * load(t[at + i]) + form.b
                values[i] = times(label, logarithm - pixels.shifted[i]) + unknown
        elif what == SLOPE:
            for i in range(first, last):
                label = form.a * load(t[at + i]) + form.b
                values[i] = quotient(pixels.exponential[i], divisor) - label + unknown
        else:
            for i in range(first, last):
                values[i] = logarithm - pixels.shifted[i] + unknown


@uncounted
def _prepare(pixels, y, t, at, count, channels):
    """Compute the intermediate values of a block."""
    number, n, size = np.uintp(count // channels), np.uintp(channels), np.uintp(count)
    largest_label = extremum(t, np.int64(at), count, ONE)  # NaN if there is one in the block
    for p in range(number):
        start = p * n
        most = extremum(y, np.int64(at + start), channels, ONE)
        known = most == most
        if largest_label != largest_label:
            for i in range(at + start, at + start + n):
                known &= load(t[i]) == load(t[i])
        pixels.unknown[p] = ZERO if known else NAN
        for c in range(n):
            pixels.shifted[start + c] = load(y[at + start + c]) - most
    for i in range(size):
        pixels.exponential[i] = exp_below(pixels.shifted[i])
    for p in range(number):
        pixels.total[p] = total(pixels.exponential, p * n, channels)
    for p in range(number):
        pixels.logarithm[p] = log(pixels.total[p])
