"""Sums over the pixels of each channel: several strips of several pixels at a time, which are then added up.

A *strip* has as many whole pixels as make loops long, also for few channels. Sums are float32, so callers limit how
many strips they add up, and merge the results in float64. All functions are for compiled code.
"""

from __future__ import annotations

import numpy as np

from mpsref_cpu.compiling import inlined
from mpsref_cpu.simd.vectors import load_vector, minus, multiply_add, plus, prefetch_vector, store_vector, times, zeros

LANES = 32
"""Number of elements of a strip that are added up at once."""

AHEAD = 2048
"""Number of elements after which images are prefetched: processors do so too late."""

# Indices are unsigned: for signed ones numba generates a test for negative values.


@inlined
def allocate_strips(count, strip):
    """Return zeros for ``count`` strips of whole vectors."""
    return np.zeros((count, (strip + LANES - 1) // LANES * LANES), np.float32)


@inlined
def repeat(channels, strip):
    """Set a strip to a vector of channels, once for each pixel."""
    for start in range(np.uintp(0), np.uintp(strip.size), np.uintp(channels.size)):
        # An assignment of slices compiles its error message, too: for two seconds.
        for i in range(np.uintp(channels.size)):
            strip[start + i] = channels[i]


@inlined
def add_up(x, start, stop, strip, shift, squares, g, products):
    """Add up the strips from ``start`` to ``stop``, for each of their elements.

    The sums of d and d**2, where d = x - shift, are added to the rows of ``squares``, those of g and g d to the rows
    of ``products``; either may be ``None``.
    """
    step, a, end = np.uintp(strip), np.uintp(start), np.uintp(stop)
    length = np.uintp((strip + LANES - 1) // LANES * LANES)  # of a row; what is read after a strip is not used
    while a + np.uintp(4) * step <= end and a + np.uintp(3) * step + length <= np.uintp(x.size):
        for i in range(np.uintp(0), length, np.uintp(LANES)):
            k = load_vector(shift, i, zeros(LANES))
            p, q, r, s = _four(x, a + i, step)
            p, q, r, s = minus(p, k), minus(q, k), minus(r, k), minus(s, k)
            if squares is not None:
                _add(squares, i, length, p, q, r, s, p, q, r, s)
            if products is not None:
                t, u, v, w = _four(g, a + i, step)
                _add(products, i, length, t, u, v, w, p, q, r, s)
        a += np.uintp(4) * step
    while a < end:
        for i in range(min(step, end - a)):
            d = x[a + i] - shift[i]
            if squares is not None:
                squares[0, i] += d
                squares[1, i] += d * d
            if products is not None:
                products[0, i] += g[a + i]
                products[1, i] += g[a + i] * d
        a += step


@inlined
def _four(image, at, step):
    """Return vectors of four strips."""
    b, c, d = at + step, at + np.uintp(2) * step, at + np.uintp(3) * step
    return _load(image, at), _load(image, b), _load(image, c), _load(image, d)


@inlined
def _load(image, at):
    prefetch_vector(image, at + np.uintp(AHEAD), zeros(LANES))
    return load_vector(image, at, zeros(LANES))


@inlined
def _add(rows, i, length, t, u, v, w, p, q, r, s):
    """Add sums of four vectors, and of their products with four others, to elements of two rows."""
    none = zeros(LANES)
    store_vector(rows, i, plus(load_vector(rows, i, none), plus(plus(t, u), plus(v, w))))
    sums = plus(multiply_add(times(t, p), u, q), multiply_add(times(v, r), w, s))
    store_vector(rows, i + length, plus(load_vector(rows, i + length, none), sums))


@inlined
def over_strip(sums, strip, totals):
    """Set ``totals`` (C,) to the sums of each channel's elements of a strip, and these to zeros for the next sums."""
    totals[:] = 0
    for start in range(0, strip, totals.size):
        for c in range(np.uintp(totals.size)):
            totals[c] += sums[np.uintp(start) + c]
            sums[np.uintp(start) + c] = 0
