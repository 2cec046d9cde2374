"""Softmax cross entropy: a block of whole pixels at a time, in memory that stays in the cache.

The exponentials of all values of a block are one loop, however few channels there are, and so are the logarithms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref_cpu.compiling import inlined
from mpsref_cpu.simd.elementary import exp, log, quotient
from mpsref_cpu.simd.half import load
from mpsref_cpu.training.loss_formulas import ELEMENT, LANES, SLOPE, times, total_of

SHORT = 64
"""Channels, at most, whose exponentials are added up one after the other."""

real = np.float32
ZERO, NAN = real(0), real(np.nan)


class LossPixels(NamedTuple):
    """Intermediate values of a block."""

    shifted: Any
    """Of an element: the prediction less the largest of its pixel."""
    exponential: Any
    """The exponential of that."""
    total: Any
    """Of a pixel: the sum of its exponentials."""
    logarithm: Any
    """The logarithm of that."""
    unknown: Any
    """NaN if a prediction or label of the pixel is NaN, else 0."""


@inlined
def pixels_of(size, channels):
    """Return memory for a block of ``size`` elements."""
    count = size // channels
    return LossPixels(
        np.empty(size, real), np.empty(size, real), np.empty(count, real), np.empty(count, real), np.empty(count, real)
    )


@inlined
def fill_pixels(values, what, form, pixels, y, t, at, count, channels):
    """Set ``values`` to the function ``what`` of the ``count`` elements from ``at`` on."""
    _prepare(pixels, y, t, at, count, channels)
    n = np.uintp(channels)
    for p in range(np.uintp(count // channels)):
        total, logarithm, unknown = pixels.total[p], pixels.logarithm[p], pixels.unknown[p]
        first, last = p * n, p * n + n
        if what == ELEMENT:
            for i in range(first, last):
                label = form.a * load(t[at + i]) + form.b
                values[i] = times(label, logarithm - pixels.shifted[i]) + unknown
        elif what == SLOPE:
            for i in range(first, last):
                label = form.a * load(t[at + i]) + form.b
                values[i] = quotient(pixels.exponential[i], total) - label + unknown
        else:
            for i in range(first, last):
                values[i] = logarithm - pixels.shifted[i] + unknown


@inlined
def _prepare(pixels, y, t, at, count, channels):
    """Compute the intermediate values of a block."""
    number, n = np.uintp(count // channels), np.uintp(channels)
    for p in range(number):
        start = p * n
        most, known = load(y[at + start]), True
        for c in range(n):
            value, label = load(y[at + start + c]), load(t[at + start + c])
            most = value if value > most else most
            known &= (value == value) & (label == label)
        pixels.unknown[p] = ZERO if known else NAN
        for c in range(n):
            pixels.shifted[start + c] = load(y[at + start + c]) - most
    for i in range(np.uintp(count)):
        pixels.exponential[i] = exp(pixels.shifted[i])
    lanes = np.empty(LANES, real)
    for p in range(number):
        total = ZERO
        if channels <= SHORT:
            for c in range(n):
                total += pixels.exponential[p * n + c]
        else:
            total = real(total_of(pixels.exponential, p * n, channels, lanes))
        pixels.total[p] = total
    for p in range(number):
        pixels.logarithm[p] = log(pixels.total[p])
