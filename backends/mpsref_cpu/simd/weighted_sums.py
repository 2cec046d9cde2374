"""Weighted sums of vectors, term after term: how pooling adds up windows.

An element of the result is ``-0 + f[0] * x[0] + f[1] * x[1] + ...``, from left to right, with fused multiply-adds where
the machine has them. Four terms at a time are added up in registers: hardware prefetches few streams. All functions are
for compiled code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref_cpu.compiling import generic, inlined
from mpsref_cpu.simd.vectors import load_vector, multiply_add, negative_zeros_like, store_vector

WIDE, NARROW = 32, 8
"""Numbers of elements that are added up at once; if there are fewer, elements are added up one by one."""


class ListedTerms(NamedTuple):
    """Term t begins at ``starts[t]`` and has the factor ``factors[t]``."""

    starts: Any
    factors: Any


class EvenTerms(NamedTuple):
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


@generic
def _start(terms, t):
    """Return where term t begins."""

    def listed(terms, t):
        return np.uintp(terms.starts[np.uintp(t)])

    def even(terms, t):
        return np.uintp(terms.start) + np.uintp(terms.tap) * np.uintp(t)

    return listed if terms.instance_class is ListedTerms else even


@generic
def _factor(terms, t):
    """Return the factor of term t."""

    def listed(terms, t):
        return terms.factors[np.uintp(t)]

    def even(terms, t):
        return terms.factors[np.uintp(terms.first + t)]

    return listed if terms.instance_class is ListedTerms else even


# Indices are unsigned: for signed ones numba generates a test for negative values.


@inlined
def weighted_sum(into, at, source, terms, count, blocks):
    """Set each block of ``into[at:]`` to the sum of ``count`` terms of ``source``, four of them at a time.

    The dtype of ``into`` is that of the factors.
    """
    if count == 0:
        for b in range(blocks.number):
            into[at + b * blocks.step : at + b * blocks.step + blocks.size] = 0
    for a in range(0, count, 4):
        b, c, d = min(a + 1, count - 1), min(a + 2, count - 1), min(a + 3, count - 1)
        x = _start(terms, a), _start(terms, b), _start(terms, c), _start(terms, d)
        f = _factor(terms, a), _factor(terms, b), _factor(terms, c), _factor(terms, d)
        if d == a:
            _add_terms(into, at, source, x, f, a == 0, 1, blocks)
        elif d == a + 1:
            _add_terms(into, at, source, x, f, a == 0, 2, blocks)
        elif d == a + 2:
            _add_terms(into, at, source, x, f, a == 0, 3, blocks)
        else:
            _add_terms(into, at, source, x, f, a == 0, 4, blocks)


@inlined
def _add_terms(into, at, source, x, f, first, number, blocks):
    """Add ``number`` terms that begin at ``x``, times the factors ``f``, to blocks; the first to negative zeros.

    Where it is inlined ``number`` is a constant, for which LLVM specializes the loops: faster than one type for each.
    """
    n, q = np.uintp(blocks.size), np.uintp(at)
    for _ in range(blocks.number):
        i = np.uintp(0)
        while i + np.uintp(WIDE) <= n:
            _add_vector(into, q, source, x, f, i, first, number, negative_zeros_like(into, WIDE))
            i += np.uintp(WIDE)
        while i + np.uintp(NARROW) <= n:
            _add_vector(into, q, source, x, f, i, first, number, negative_zeros_like(into, NARROW))
            i += np.uintp(NARROW)
        while i < n:
            _add_vector(into, q, source, x, f, i, first, number, negative_zeros_like(into, 1))
            i += np.uintp(1)
        q += np.uintp(blocks.step)
        moved = np.uintp(blocks.advance)
        x = x[0] + moved, x[1] + moved, x[2] + moved, x[3] + moved


@inlined
def _add_vector(into, q, source, x, f, i, first, number, none):
    """Add as many elements as ``none`` has, which are negative zeros."""
    total = none if first else load_vector(into, q + i, none)
    total = multiply_add(total, f[0], load_vector(source, x[0] + i, none))
    if number > 1:
        total = multiply_add(total, f[1], load_vector(source, x[1] + i, none))
    if number > 2:
        total = multiply_add(total, f[2], load_vector(source, x[2] + i, none))
    if number > 3:
        total = multiply_add(total, f[3], load_vector(source, x[3] + i, none))
    store_vector(into, q + i, total)
