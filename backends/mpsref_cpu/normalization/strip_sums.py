"""Sums over the pixels of each channel: several strips of several pixels at a time, which are then added up.

A *strip* has as many whole pixels as make loops long, also for few channels. Sums are float32, so callers limit how
many strips they add up, and merge the results in float64. All functions are for compiled code.
"""

from __future__ import annotations

import numpy as np

from mpsref_cpu.activation.functions import slope
from mpsref_cpu.compiling import inlined

TILE = 1024
"""Number of elements of the tiles in which longer strips are processed, so that their vectors stay in cache."""

LARGE = 1 << 20
"""Number of elements of images that come from memory, of which processors prefetch few streams at a time: two strips of
them are read at once, not eight.
"""

# Indices are unsigned: for signed ones numba generates a test for negative values.


@inlined
def repeat(channels, strip):
    """Set a strip to a vector of channels, once for each pixel."""
    for start in range(np.uintp(0), np.uintp(strip.size), np.uintp(channels.size)):
        # An assignment of slices compiles its error message, too: for two seconds.
        for i in range(np.uintp(channels.size)):
            strip[start + i] = channels[i]


@inlined
def add_up(x, start, stop, shift, first, second):
    """Set ``first`` and ``second`` to the sums of x - shift and of its square, for each element of a strip."""
    first[:] = 0
    second[:] = 0
    strip, end = np.uintp(shift.size), np.uintp(stop)
    for tile in range(np.uintp(0), strip, np.uintp(TILE)):
        a, edge = np.uintp(start), min(tile + np.uintp(TILE), strip)
        while a + np.uintp(4) * strip <= end:
            b, c, d = a + strip, a + np.uintp(2) * strip, a + np.uintp(3) * strip
            for i in range(tile, edge):
                k = shift[i]
                p, q, r, s = x[a + i] - k, x[b + i] - k, x[c + i] - k, x[d + i] - k
                first[i] += (p + q) + (r + s)
                second[i] += (p * p + q * q) + (r * r + s * s)
            a = d + strip
        while a < end:
            for i in range(tile, min(edge, end - a)):
                p = x[a + i] - shift[i]
                first[i] += p
                second[i] += p * p
            a += strip


@inlined
def add_up_products(neuron, g, x, start, stop, mean, root, gamma, beta, first, second):
    """Set ``first`` and ``second`` to the sums of g' and of g' (x - mean), for each element of a strip.

    ``g' = g f'(root gamma (x - mean) + beta)``, f the neuron.
    """
    first[:] = 0
    second[:] = 0
    strip, end = np.uintp(mean.size), np.uintp(stop)
    for tile in range(np.uintp(0), strip, np.uintp(TILE)):
        a, edge = np.uintp(start), min(tile + np.uintp(TILE), strip)
        while x.size < LARGE and a + np.uintp(4) * strip <= end:
            b, c, d = a + strip, a + np.uintp(2) * strip, a + np.uintp(3) * strip
            for i in range(tile, edge):
                m, r, s, t = mean[i], root[i], gamma[i], beta[i]
                ga, xa = _upstream(neuron, g, x, a + i, m, r, s, t, i)
                gb, xb = _upstream(neuron, g, x, b + i, m, r, s, t, i)
                gc, xc = _upstream(neuron, g, x, c + i, m, r, s, t, i)
                gd, xd = _upstream(neuron, g, x, d + i, m, r, s, t, i)
                first[i] += (ga + gb) + (gc + gd)
                second[i] += (ga * xa + gb * xb) + (gc * xc + gd * xd)
            a = d + strip
        while a < end:
            for i in range(tile, min(edge, end - a)):
                ga, xa = _upstream(neuron, g, x, a + i, mean[i], root[i], gamma[i], beta[i], i)
                first[i] += ga
                second[i] += ga * xa
            a += strip


@inlined
def _upstream(neuron, g, x, at, mean, root, gamma, beta, i):
    """Return g' of element ``at``, which is element i of its strip, and its distance from the mean."""
    distance = x[at] - mean
    return g[at] * slope(neuron, distance * root * gamma + beta, i), distance


@inlined
def over_strip(sums, totals):
    """Set ``totals`` (C,) to the sums of each channel's elements of a strip."""
    totals[:] = 0
    for start in range(0, sums.size, totals.size):
        for c in range(np.uintp(totals.size)):
            totals[c] += sums[np.uintp(start) + c]
