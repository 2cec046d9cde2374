"""Softmax cross entropy: a block of whole pixels at a time, in memory that stays in the cache.

The exponentials of all values of a block are one loop, however few channels there are, and so are the logarithms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref_cpu.compiling import uncounted
from mpsref_cpu.simd.elementary import exp_below, log, quotient
from mpsref_cpu.simd.reductions import extremum, shift_or_scale, total
from mpsref_cpu.training.loss_formulas import ELEMENT, SLOPE, times

real = np.float32
ONE, NAN = map(real, (1, np.nan))


class LossPixels(NamedTuple):
    """Intermediate values of a block."""

    shifted: Any
    """For each element, the prediction minus the largest of its pixel."""
    total: Any
    """For each pixel, the sum of its exponentials."""
    logarithm: Any
    """The logarithm of ``total``."""
    known: Any
    """For each pixel, whether no prediction and no label is NaN."""


def pixels_of(form, size, channels):
    """Return memory for a block of ``size`` elements."""
    count = size // channels
    return LossPixels(
        np.empty(size, real),
        np.empty(count, real),
        np.empty(count, real),
        np.empty(count, np.bool_),
    )


def fill_pixels(what, values, form, pixels, y, t, at, count, channels):
    """Set ``values`` to the function ``what`` of the ``count`` elements from ``at`` on."""
    _prepare(values, pixels, y, t, at, count, channels)
    number, n, size = np.uintp(count // channels), np.uintp(channels), np.uintp(count)
    for p in range(number):
        start = np.int64(p * n)
        if what == SLOPE:
            shift_or_scale(values, start, channels, quotient(ONE, pixels.total[p]), True, pixels.shifted, start)
        else:
            shift_or_scale(pixels.shifted, start, channels, pixels.logarithm[p], False, values, start)
    if what == ELEMENT:
        for i in range(size):
            values[i] = times(form.a * t[at + i] + form.b, -values[i])
    elif what == SLOPE:
        for i in range(size):
            values[i] = pixels.shifted[i] - (form.a * t[at + i] + form.b)
    else:
        for i in range(size):
            values[i] = -values[i]
    for p in range(number):
        if not pixels.known[p]:
            for i in range(p * n, p * n + n):
                values[i] = NAN


@uncounted
def _prepare(values, pixels, y, t, at, count, channels):
    """Compute the intermediate values of a block, and set ``values`` to the exponentials of the shifted ones."""
    number, n, size = np.uintp(count // channels), np.uintp(channels), np.uintp(count)
    largest_label = extremum(t, np.int64(at), count)  # NaN if there is one in the block
    for p in range(number):
        start = p * n
        most = extremum(y, np.int64(at + start), channels)
        known = most == most
        if largest_label != largest_label:
            for i in range(at + start, at + start + n):
                known &= t[i] == t[i]
        pixels.known[p] = known
        shift_or_scale(y, np.int64(at + start), channels, most, False, pixels.shifted, start)
    for i in range(size):
        values[i] = exp_below(pixels.shifted[i])
    for p in range(number):
        pixels.total[p] = total(values, p * n, channels)
    for p in range(number):
        pixels.logarithm[p] = log(pixels.total[p])
