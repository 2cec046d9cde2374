"""Sums and maxima of runs of an array, for compiled code: SIMD, in a fixed order; and their inverse, :func:`fill`.

LLVM may not reorder a sum of floats, so that the additions of a plain loop wait for each other. Here the order is
chosen: over the vectors first, then over the lanes of the result, halving it each time. It depends on the
number of terms alone. The last vector of a sum is the last of the run, without the lanes that are in the sum already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from mpsref_cpu.compiling import inlined, intrinsic
from mpsref_cpu.simd.vectors import (
    INT,
    broadcast,
    elementwise,
    from_lane,
    halves,
    load_vector,
    maximum,
    minus,
    multiply_add,
    plus,
    store_vector,
    times,
    zeros,
)

MANY, FEW = 32, 8
BEYOND = FEW - 1
"""The number of elements that :func:`fill` may set after the last."""
MOST_TERMS = 1024 * MANY
"""Maximum number of terms of a sum, 1,024 in each lane; longer sums are sums of sums."""

real: Any = np.float32


def _halved(combine: Callable[..., Any], lanes: Any, *like: Any) -> tuple[Any, Any]:
    """Return the typing and code generation of a function that combines halves of a vector until one lane is left.

    With a second argument, until as many lanes are left as that has.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = arguments[0]
        while value.type.count > (like[0].width if like else 1):
            value = combine(builder, *halves(builder, value))
        return value if like else builder.extract_element(value, ir.Constant(INT, 0))

    return (like[0] if like else lanes.element)(lanes, *like), generate


def _larger(builder: Any, best: Any, value: Any) -> Any:
    """Generate the larger of each pair, NaN if one is."""
    larger, nan = builder.fcmp_ordered(">", value, best), builder.fcmp_unordered("uno", value, value)
    return builder.select(builder.or_(larger, nan), value, best)


_larger_of_pairs = elementwise(_larger)


@intrinsic
def sum_of(typing, lanes):
    """Return the sum of all lanes."""
    return _halved(lambda builder, low, high: builder.fadd(low, high), lanes)


@intrinsic
def _sums_of(typing, lanes, like):
    """Return as many sums of lanes as ``like`` has."""
    return _halved(lambda builder, low, high: builder.fadd(low, high), lanes, like)


@intrinsic
def _largest_of(typing, lanes):
    """Return the largest of all lanes; where one is NaN, any of them."""
    return _halved(lambda builder, low, high: builder.select(builder.fcmp_ordered(">", high, low), high, low), lanes)


@intrinsic
def _extremum_of(typing, lanes):
    """Return the largest of all lanes, NaN if there is one."""
    return _halved(_larger, lanes)


@inlined
def total(values, first, count):
    """Return the sum of ``count`` values, stored as float32 or float16, from ``first`` on."""
    at = np.uintp(first)
    if count < FEW:
        found = real(0)
        for i in range(at, at + np.uintp(count)):
            found += values[i]
        return found
    many, few, lanes = count // MANY * MANY, count // FEW * FEW, zeros(FEW)
    if many:
        start = 0
        while start < many:
            wide, stop = zeros(MANY), min(start + MOST_TERMS, many)
            while start < stop:
                wide = plus(load_vector(values, at + np.uintp(start), wide), wide)
                start += MANY
            lanes = plus(_sums_of(wide, lanes), lanes)
    for i in range(many, few, FEW):
        lanes = plus(load_vector(values, at + np.uintp(i), lanes), lanes)
    last = load_vector(values, at + np.uintp(count - FEW), lanes)
    return sum_of(plus(from_lane(last, few + FEW - count), lanes))


@inlined
def dot(values, others, at, count):
    """Return the sum of the products of ``count`` >= FEW pairs from ``at`` on."""
    many, few, lanes = count // MANY * MANY, count // FEW * FEW, zeros(FEW)
    if many:
        start = 0
        while start < many:
            wide, stop = zeros(MANY), min(start + MOST_TERMS, many)
            while start < stop:
                i = at + np.uintp(start)
                wide = multiply_add(wide, load_vector(values, i, wide), load_vector(others, i, wide))
                start += MANY
            lanes = plus(_sums_of(wide, lanes), lanes)
    for k in range(many, few, FEW):
        i = at + np.uintp(k)
        lanes = multiply_add(lanes, load_vector(values, i, lanes), load_vector(others, i, lanes))
    i, start = at + np.uintp(count - FEW), few + FEW - count
    last = from_lane(load_vector(values, i, lanes), start)
    return sum_of(multiply_add(lanes, last, from_lane(load_vector(others, i, lanes), start)))


@inlined
def largest(values, first, count):
    """Return the largest of ``count`` >= 1 values from ``first`` on; where one is NaN, any of them."""
    at, stop = np.uintp(first), np.uintp(first + count)
    if count < FEW:
        best = values[at]
        for i in range(at + np.uintp(1), stop):
            value = values[i]
            best = value if value > best else best
        return best
    if count < MANY:
        return _largest_of(_largest_lanes(values, at, stop - np.uintp(FEW), zeros(FEW), FEW))
    return _largest_of(_largest_lanes(values, at, stop - np.uintp(MANY), zeros(MANY), MANY))


@inlined
def _largest_lanes(values, at, last, like, width):
    """Return the largest of the lanes of vectors from ``at`` on, the last of which begins at ``last``."""
    lanes = load_vector(values, last, like)
    while at < last:
        lanes = maximum(load_vector(values, at, lanes), lanes)
        at += np.uintp(width)
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
def shift_or_scale(values, first, count, number, scaled, into, to):
    """Set ``count`` elements of another array to values minus ``number``, or times it if ``scaled``."""
    at, q, n = np.uintp(first), np.uintp(to), np.uintp(count)
    if count < FEW:
        for i in range(n):
            value = values[at + i]
            into[q + i] = value * number if scaled else value - number
        return
    wide, narrow = broadcast(number, zeros(MANY)), broadcast(number, zeros(FEW))
    k = np.uintp(0)
    while k + np.uintp(MANY) <= n:
        _shift_or_scale_vector(values, at + k, wide, scaled, into, q + k)
        k += np.uintp(MANY)
    while k + np.uintp(FEW) <= n:
        _shift_or_scale_vector(values, at + k, narrow, scaled, into, q + k)
        k += np.uintp(FEW)
    if k < n:  # the last vector overlaps the one before
        k = n - np.uintp(FEW)
        _shift_or_scale_vector(values, at + k, narrow, scaled, into, q + k)


@inlined
def _shift_or_scale_vector(values, at, numbers, scaled, into, to):
    """Set one vector of ``into``."""
    some = load_vector(values, at, numbers)
    store_vector(into, to, times(some, numbers) if scaled else minus(some, numbers))


@inlined
def extremum(values, first, count):
    """Return the largest of ``count`` values from ``first`` on; NaN if there is one."""
    at, stop = np.uintp(first), np.uintp(first + count)
    if count < FEW:
        best = real(-np.inf)
        for i in range(at, stop):
            value = values[i]
            best = value if (value > best) | (value != value) else best
        return best
    if count < MANY:
        return _extremum_of(_extreme_lanes(values, at, stop - np.uintp(FEW), zeros(FEW), FEW))
    return _extremum_of(_extreme_lanes(values, at, stop - np.uintp(MANY), zeros(MANY), MANY))


@inlined
def _extreme_lanes(values, at, last, like, width):
    """Return the largest of the lanes of vectors from ``at`` on, the last of which begins at ``last``."""
    best = load_vector(values, last, like)
    while at < last:
        best = _larger_of_pairs(best, load_vector(values, at, like))
        at += np.uintp(width)
    return best


@inlined
def largest_number(values, first, count, sign):
    """Return the largest of ``count`` values from ``first`` on, times ``sign``, without NaN; -inf if all are NaN."""
    at, stop = np.uintp(first), np.uintp(first + count)
    if count < FEW:
        best = real(-np.inf)
        for i in range(at, stop):
            value = sign * values[i]
            best = value if value > best else best
        return best
    if count < MANY:
        return _largest_of(_number_lanes(values, at, stop - np.uintp(FEW), broadcast(sign, zeros(FEW)), FEW))
    return _largest_of(_number_lanes(values, at, stop - np.uintp(MANY), broadcast(sign, zeros(MANY)), MANY))


@inlined
def _number_lanes(values, at, last, sign, width):
    """Return the largest of the lanes of vectors from ``at`` on times ``sign``, none of them NaN."""
    best = maximum(times(load_vector(values, last, sign), sign), broadcast(real(-np.inf), sign))
    while at < last:
        best = maximum(times(load_vector(values, at, sign), sign), best)
        at += np.uintp(width)
    return best
