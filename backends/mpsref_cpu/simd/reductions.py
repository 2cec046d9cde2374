"""Sums and maxima of stretches of an array, for compiled code: many lanes at once, in a fixed order.

LLVM may not reorder a sum of floats, so a plain loop over one takes as long as its additions one after the other. Here
the order is chosen: lanes first, then the lanes from halves to halves. It depends on the number of terms alone.

The last lanes of a sum reach up to ``BEYOND`` elements too far. What is read there counts for nothing, but must exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from mpsref_cpu.compiling import inlined
from mpsref_cpu.simd.elementary import Float
from mpsref_cpu.simd.half import load
from mpsref_cpu.simd.vectors import INT, intrinsic, load_lanes, maximum, plus, spread_out, zeros

MANY, FEW = 32, 8
BEYOND = FEW - 1
MOST_TERMS = 1024 * MANY
"""So many terms are summed up before a sum of sums begins: 1,024 in each lane."""

real: Any = np.float32


def _halved(combine: Callable[..., Any]) -> Callable[..., Any]:
    """Return what types and compiles a function that brings the lanes of a vector together, half upon half.

    Either to one number, or to as many lanes as a second argument has.
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
def _sum_of(typing: Any, lanes: Any) -> Any:
    """Return the sum of all lanes."""
    return _halved(_sum)(typing, lanes)


@intrinsic
def _sums_of(typing: Any, lanes: Any, like: Any) -> Any:
    """Return sums of some lanes each, as many as ``like`` has."""
    return _halved(_sum)(typing, lanes, like)


@intrinsic
def _largest_of(typing: Any, lanes: Any) -> Any:
    """Return the largest of all lanes; where one is NaN, any of them."""
    return _halved(lambda builder, low, high: builder.select(builder.fcmp_ordered(">", high, low), high, low))(
        typing, lanes
    )


@intrinsic
def _times_plus(typing: Any, value: Any, other: Any, sums: Any) -> Any:
    """Return the products of each pair, added to ``sums``, in one instruction where there is one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.fmul(*arguments[:2], flags=("contract",))
        return builder.fadd(product, arguments[2], flags=("contract",))

    return sums(value, other, sums), generate


@intrinsic
def _first(typing: Any, lanes: Any, count: Any) -> Any:
    """Return ``lanes`` with zeros in all but the first ``count``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, number = arguments
        words = ir.VectorType(INT, value.type.count)
        places = ir.Constant(words, list(range(value.type.count)))
        counted = builder.icmp_unsigned("<", places, spread_out(builder, builder.trunc(number, INT), words))
        return builder.select(counted, value, ir.Constant(value.type, None))

    return lanes(lanes, types.int64), generate


@inlined
def total(values: Any, first: Any, count: int) -> Float:
    """Return the sum of ``count`` values, stored as float32 or float16, from ``first`` on."""
    found = real(0)
    for start in range(0, count, MOST_TERMS):
        stop = min(start + MOST_TERMS, count)
        many, few, lanes = start + (stop - start) // MANY * MANY, stop // FEW * FEW, zeros(FEW)
        if start < many:
            wide = zeros(MANY)
            for i in range(start, many, MANY):
                wide = plus(load_lanes(values, first + np.uintp(i), wide), wide)
            lanes = _sums_of(wide, lanes)
        for i in range(many, few, FEW):
            lanes = plus(load_lanes(values, first + np.uintp(i), lanes), lanes)
        if few < stop:
            rest = load_lanes(values, first + np.uintp(few), lanes)
            lanes = plus(_first(rest, stop - few), lanes)
        found += _sum_of(lanes)
    return found


@inlined
def dot(values: Any, others: Any, first: Any, count: int) -> Float:
    """Return the sum of the products of ``count`` pairs from ``first`` on."""
    found = real(0)
    for start in range(0, count, MOST_TERMS):
        stop = min(start + MOST_TERMS, count)
        many, few, lanes = start + (stop - start) // MANY * MANY, stop // FEW * FEW, zeros(FEW)
        if start < many:
            wide = zeros(MANY)
            for i in range(start, many, MANY):
                at = first + np.uintp(i)
                wide = _times_plus(load_lanes(values, at, wide), load_lanes(others, at, wide), wide)
            lanes = _sums_of(wide, lanes)
        for i in range(many, few, FEW):
            at = first + np.uintp(i)
            lanes = _times_plus(load_lanes(values, at, lanes), load_lanes(others, at, lanes), lanes)
        if few < stop:
            at = first + np.uintp(few)
            rest = _first(load_lanes(values, at, lanes), stop - few)
            lanes = _times_plus(rest, _first(load_lanes(others, at, lanes), stop - few), lanes)
        found += _sum_of(lanes)
    return found


@inlined
def largest(values: Any, first: int, count: int) -> Float:
    """Return the largest of ``count`` >= 1 values from ``first`` on; where one is NaN, any of them."""
    if count >= FEW:
        last = first + count - FEW
        lanes = load_lanes(values, np.uintp(last), zeros(FEW))
        for i in range(first, last, FEW):
            lanes = maximum(load_lanes(values, np.uintp(i), lanes), lanes)
        return _largest_of(lanes)
    best = load(values[np.uintp(first)])
    for i in range(first + 1, first + count):
        value = load(values[np.uintp(i)])
        best = value if value > best else best
    return best
