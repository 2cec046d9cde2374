"""Sums and maxima of runs of an array, for compiled code: SIMD, in a fixed order; and their inverse, :func:`fill`.

LLVM may not reorder a sum of floats, so that the additions of a plain loop wait for each other. Here the order is
chosen: over the vectors first, then over the lanes of the result, halving it each time. It depends on the
number of terms alone.

The last vector of a sum reads up to ``BEYOND`` elements too many, which must exist and are not used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from mpsref_cpu.compiling import inlined
from mpsref_cpu.simd.half import load
from mpsref_cpu.simd.vectors import (
    INT,
    broadcast,
    intrinsic,
    load_vector,
    maximum,
    plus,
    splat,
    store_vector,
    times,
    zeros,
)

MANY, FEW = 32, 8
BEYOND = FEW - 1
MOST_TERMS = 1024 * MANY
"""Maximum number of terms of a sum, 1,024 in each lane; longer sums are sums of sums."""

real: Any = np.float32


def _halved(combine: Callable[..., Any]) -> Callable[..., Any]:
    """Return the typing and code generation of a function that combines halves of a vector until one lane is left.

    With a second argument, until as many lanes are left as that has.
    """

    def typed(typing: Any, lanes: Any, *like: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = arguments[0]
            while value.type.count > (like[0].width if like else 1):
                half = value.type.count // 2
                places = (
                    ir.Constant(ir.VectorType(INT, half), list(range(start, start + half))) for start in (0, half)
                )
                value = combine(builder, *(builder.shuffle_vector(value, value, place) for place in places))
            return value if like else builder.extract_element(value, ir.Constant(INT, 0))

        return (like[0] if like else types.float32)(lanes, *like), generate

    return typed


def _sum(builder: Any, low: Any, high: Any) -> Any:
    return builder.fadd(low, high)


@intrinsic
def _sum_of(typing, lanes):
    """Return the sum of all lanes."""
    return _halved(_sum)(typing, lanes)


@intrinsic
def _sums_of(typing, lanes, like):
    """Return as many sums of lanes as ``like`` has."""
    return _halved(_sum)(typing, lanes, like)


@intrinsic
def _largest_of(typing, lanes):
    """Return the largest of all lanes; where one is NaN, any of them."""
    return _halved(lambda builder, low, high: builder.select(builder.fcmp_ordered(">", high, low), high, low))(
        typing, lanes
    )


def _larger(builder: Any, best: Any, value: Any) -> Any:
    """Return the larger of each pair, NaN if one is."""
    larger, nan = builder.fcmp_ordered(">", value, best), builder.fcmp_unordered("uno", value, value)
    return builder.select(builder.or_(larger, nan), value, best)


@intrinsic
def _larger_of_pairs(typing, best, value):
    """Return the larger of each pair, NaN if one is."""

    def generate(context, builder, signature, arguments):
        return _larger(builder, *arguments)

    return best(best, value), generate


@intrinsic
def _extremum_of(typing, lanes):
    """Return the largest of all lanes, NaN if there is one."""
    return _halved(_larger)(typing, lanes)


@intrinsic
def _times_plus(typing, value, other, sums):
    """Return the products of each pair, added to ``sums``, in one instruction where there is one."""

    def generate(context, builder, signature, arguments):
        product = builder.fmul(*arguments[:2], flags=("contract",))
        return builder.fadd(product, arguments[2], flags=("contract",))

    return sums(value, other, sums), generate


@intrinsic
def _first(typing, lanes, count):
    """Return ``lanes`` with zeros in all but the first ``count``."""

    def generate(context, builder, signature, arguments):
        value, number = arguments
        words = ir.VectorType(INT, value.type.count)
        places = ir.Constant(words, list(range(value.type.count)))
        counted = builder.icmp_unsigned("<", places, splat(builder, builder.trunc(number, INT), words))
        return builder.select(counted, value, ir.Constant(value.type, None))

    return lanes(lanes, types.int64), generate


@inlined
def total(values, first, count):
    """Return the sum of ``count`` values, stored as float32 or float16, from ``first`` on."""
    found = real(0)
    if count < FEW:
        for i in range(np.uintp(first), np.uintp(first + count)):
            found += load(values[i])
        return found
    for start in range(0, count, MOST_TERMS):
        stop = min(start + MOST_TERMS, count)
        many, few, lanes = start + (stop - start) // MANY * MANY, stop // FEW * FEW, zeros(FEW)
        if start < many:
            wide = zeros(MANY)
            for i in range(start, many, MANY):
                wide = plus(load_vector(values, first + np.uintp(i), wide), wide)
            lanes = _sums_of(wide, lanes)
        for i in range(many, few, FEW):
            lanes = plus(load_vector(values, first + np.uintp(i), lanes), lanes)
        if few < stop:
            rest = load_vector(values, first + np.uintp(few), lanes)
            lanes = plus(_first(rest, stop - few), lanes)
        found += _sum_of(lanes)
    return found


@inlined
def dot(values, others, first, count):
    """Return the sum of the products of ``count`` pairs from ``first`` on."""
    found = real(0)
    for start in range(0, count, MOST_TERMS):
        stop = min(start + MOST_TERMS, count)
        many, few, lanes = start + (stop - start) // MANY * MANY, stop // FEW * FEW, zeros(FEW)
        if start < many:
            wide = zeros(MANY)
            for i in range(start, many, MANY):
                at = first + np.uintp(i)
                wide = _times_plus(load_vector(values, at, wide), load_vector(others, at, wide), wide)
            lanes = _sums_of(wide, lanes)
        for i in range(many, few, FEW):
            at = first + np.uintp(i)
            lanes = _times_plus(load_vector(values, at, lanes), load_vector(others, at, lanes), lanes)
        if few < stop:
            at = first + np.uintp(few)
            rest = _first(load_vector(values, at, lanes), stop - few)
            lanes = _times_plus(rest, _first(load_vector(others, at, lanes), stop - few), lanes)
        found += _sum_of(lanes)
    return found


@inlined
def largest(values, first, count):
    """Return the largest of ``count`` >= 1 values from ``first`` on; where one is NaN, any of them."""
    if count >= MANY:
        return _largest_of(_largest_lanes(values, first, first + count - MANY, zeros(MANY), MANY))
    if count >= FEW:
        return _largest_of(_largest_lanes(values, first, first + count - FEW, zeros(FEW), FEW))
    best = load(values[np.uintp(first)])
    for i in range(first + 1, first + count):
        value = load(values[np.uintp(i)])
        best = value if value > best else best
    return best


@inlined
def _largest_lanes(values, first, last, like, width):
    """Return the largest of the lanes of vectors from ``first`` on, the last of which begins at ``last``."""
    lanes = load_vector(values, np.uintp(last), like)
    for i in range(first, last, width):
        lanes = maximum(load_vector(values, np.uintp(i), lanes), lanes)
    return lanes


@inlined
def fill(into, first, count, value):
    """Set ``count`` elements of a float32 array from ``first`` on, and up to ``BEYOND`` after them."""
    many = count // MANY * MANY
    wide, narrow = broadcast(value, zeros(MANY)), broadcast(value, zeros(FEW))
    for i in range(0, many, MANY):
        store_vector(into, np.uintp(first + i), wide)
    for i in range(many, count, FEW):
        store_vector(into, np.uintp(first + i), narrow)


@inlined
def extremum(values, first, count, sign):
    """Return the largest of ``count`` values from ``first`` on, times ``sign``; NaN if there is one."""
    if count >= MANY:
        return _extremum_of(_extreme_lanes(values, first, first + count - MANY, broadcast(sign, zeros(MANY)), MANY))
    if count >= FEW:
        return _extremum_of(_extreme_lanes(values, first, first + count - FEW, broadcast(sign, zeros(FEW)), FEW))
    best = real(-np.inf)
    for i in range(first, first + count):
        value = sign * load(values[np.uintp(i)])
        best = value if (value > best) | (value != value) else best
    return best


@inlined
def _extreme_lanes(values, first, last, sign, width):
    """Return the largest of the lanes of vectors from ``first`` on, the last of which begins at ``last``."""
    best = times(load_vector(values, np.uintp(last), sign), sign)
    for i in range(first, last, width):
        best = _larger_of_pairs(best, times(load_vector(values, np.uintp(i), sign), sign))
    return best
