"""Sums over the pixels of each channel: several strips of several pixels at a time, which are then added up.

A *strip* has as many whole pixels as make loops long, also for few channels. Sums are float32, so callers limit how
many strips they add up, and merge the results in float64. All functions are for compiled code.
"""

from __future__ import annotations

import numpy as np

from mpsref_cpu.activation.functions import Identity, slope
from mpsref_cpu.compiling import generic, inlined
from mpsref_cpu.simd.vectors import load_vector, minus, multiply_add, plus, prefetch_vector, store_vector, times, zeros

TILE = 1024
"""Number of elements of the tiles in which longer strips are processed, so that their vectors stay in cache."""

LANES = 64
"""Number of elements whose sums are kept in registers."""

AHEAD = 2048
"""Number of elements after which images that come from memory are prefetched: processors do so too late."""

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
            for i in range(tile, edge, np.uintp(LANES)):
                _prefetch(neuron, x, a + i)
                _prefetch(neuron, g, a + i)
            for i in range(tile, min(edge, end - a)):
                ga, xa = _upstream(neuron, g, x, a + i, mean[i], root[i], gamma[i], beta[i], i)
                first[i] += ga
                second[i] += ga * xa
            a += strip


@inlined
def add_up_both(g, x, start, stop, shift, into):
    """Set the rows of ``into`` to the sums of d, d**2, g and g d over the strips, where d = x - shift.

    The sums of some elements are kept in registers, for all strips; then those of the next ones.
    """
    strip = shift.size
    strips = (stop - start) // strip
    for i in range(0, strip, LANES):
        if strip < LANES:
            for k in range(strip):
                _add_up_lanes(g, x, start, strips, shift, into, k, zeros(1))
        else:  # the last ones may have been added up before
            _add_up_lanes(g, x, start, strips, shift, into, min(i, strip - LANES), zeros(LANES))
    rest = start + strips * strip
    for i in range(np.uintp(stop - rest)):
        d, gradient = x[np.uintp(rest) + i] - shift[i], g[np.uintp(rest) + i]
        into[0, i] += d
        into[1, i] += d * d
        into[2, i] += gradient
        into[3, i] += gradient * d


@inlined
def _add_up_lanes(g, x, start, strips, shift, into, first, zero):
    """Add up as many elements of all strips as ``zero`` has, from element ``first`` on."""
    a, i, strip = np.uintp(start + first), np.uintp(first), np.uintp(shift.size)
    k = load_vector(shift, i, zero)
    of_d, of_squares, of_g, of_products = zero, zero, zero, zero
    for _ in range(strips // 2):
        b = a + strip
        p, q = minus(load_vector(x, a, zero), k), minus(load_vector(x, b, zero), k)
        u, v = load_vector(g, a, zero), load_vector(g, b, zero)
        of_d, of_g = plus(of_d, plus(p, q)), plus(of_g, plus(u, v))
        of_squares = plus(of_squares, multiply_add(times(p, p), q, q))
        of_products = plus(of_products, multiply_add(times(u, p), v, q))
        a = b + strip
    if strips % 2:
        p, u = minus(load_vector(x, a, zero), k), load_vector(g, a, zero)
        of_d, of_g = plus(of_d, p), plus(of_g, u)
        of_squares, of_products = multiply_add(of_squares, p, p), multiply_add(of_products, u, p)
    store_vector(into, i, of_d)
    store_vector(into, i + strip, of_squares)
    store_vector(into, i + np.uintp(2) * strip, of_g)
    store_vector(into, i + np.uintp(3) * strip, of_products)


@generic
def _prefetch(neuron, image, at):
    """Prefetch elements, unless the loop has an activation: then it is slower with it."""
    if neuron.instance_class is not Identity:
        return lambda neuron, image, at: None
    return lambda neuron, image, at: prefetch_vector(image, at + np.uintp(AHEAD), zeros(LANES))


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
