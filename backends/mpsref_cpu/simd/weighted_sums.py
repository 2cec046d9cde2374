"""Weighted sums of vectors, term after term: how pooling adds up windows.

An element of the result is ``-0 + f[0] * x[0] + f[1] * x[1] + ...``, from left to right, with fused multiply-adds where
the machine has them. Four terms at a time are added up in registers: hardware prefetches few streams. All functions are
for compiled code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref_cpu.compiling import inlined
from mpsref_cpu.simd.vectors import load_vector, multiply_add, negative_zeros_like, store_vector, times

WIDE, NARROW = 32, 8
"""Numbers of elements that are added up at once; if there are fewer, elements are added up one by one."""


class Terms(NamedTuple):
    """Term t begins at ``start + t * tap`` and has the factor ``factors[first + t]``."""

    start: Any
    tap: Any
    factors: Any
    first: Any


class Blocks(NamedTuple):
    """Block b of ``size`` elements is written at offset ``b * step``; its terms are read at offset ``b * advance``."""

    number: Any
    size: Any
    step: Any
    advance: Any


# Indices are unsigned: for signed ones numba generates a test for negative values.


@inlined
def weighted_sum(into, at, source, terms, count, blocks, squared):
    """Set each block of ``into[at:]`` to the sum of ``count`` terms of ``source``, or of their squares.

    The dtype of ``into`` is that of the factors.
    """
    if count == 0:
        for b in range(blocks.number):
            into[at + b * blocks.step : at + b * blocks.step + blocks.size] = 0
    last = count - 1
    for a in range(0, count, 4):
        x, tap = np.uintp(terms.start + a * terms.tap), np.uintp(terms.tap)
        f0, f1, f2 = _factor(terms, a), _factor(terms, min(a + 1, last)), _factor(terms, min(a + 2, last))
        f = f0, f1, f2, _factor(terms, min(a + 3, last))
        if last == a:
            _add_terms(into, at, source, x, tap, f, a == 0, 1, blocks, squared)
        elif last == a + 1:
            _add_terms(into, at, source, x, tap, f, a == 0, 2, blocks, squared)
        elif last == a + 2:
            _add_terms(into, at, source, x, tap, f, a == 0, 3, blocks, squared)
        else:
            _add_terms(into, at, source, x, tap, f, a == 0, 4, blocks, squared)


@inlined
def _factor(terms, t):
    """Return the factor of term t."""
    return terms.factors[np.uintp(terms.first + t)]


@inlined
def _add_terms(into, at, source, x, tap, f, first, number, blocks, squared):
    """Add ``number`` terms, ``tap`` elements apart, times the factors ``f``, to blocks; the first to negative zeros.

    Where it is inlined ``number`` is a constant, for which LLVM specializes the loops: faster than one type for each.
    """
    n, q = np.uintp(blocks.size), np.uintp(at)
    x = x, x + tap, x + tap + tap, x + tap + tap + tap
    for _ in range(blocks.number):
        i = np.uintp(0)
        while i + np.uintp(WIDE) <= n:
            _add_vector(into, q, source, x, i, f, first, number, negative_zeros_like(into, WIDE), squared)
            i += np.uintp(WIDE)
        while i + np.uintp(NARROW) <= n:
            _add_vector(into, q, source, x, i, f, first, number, negative_zeros_like(into, NARROW), squared)
            i += np.uintp(NARROW)
        while i < n:
            _add_vector(into, q, source, x, i, f, first, number, negative_zeros_like(into, 1), squared)
            i += np.uintp(1)
        q += np.uintp(blocks.step)
        moved = np.uintp(blocks.advance)
        x = x[0] + moved, x[1] + moved, x[2] + moved, x[3] + moved


@inlined
def _add_vector(into, q, source, x, i, f, first, number, none, squared):
    """Add as many elements as ``none`` has, which are negative zeros."""
    total = none if first else load_vector(into, q + i, none)
    total = multiply_add(total, f[0], _load(source, x[0] + i, none, squared))
    if number > 1:
        total = multiply_add(total, f[1], _load(source, x[1] + i, none, squared))
    if number > 2:
        total = multiply_add(total, f[2], _load(source, x[2] + i, none, squared))
    if number > 3:
        total = multiply_add(total, f[3], _load(source, x[3] + i, none, squared))
    store_vector(into, q + i, total)


@inlined
def _load(source, at, like, squared):
    """Return a vector, or its squares."""
    value = load_vector(source, at, like)
    return times(value, value) if squared else value
