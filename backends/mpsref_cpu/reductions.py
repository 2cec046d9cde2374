"""Sums and maxima of stretches of an array, for compiled code: many lanes at once, in a fixed order.

LLVM may not reorder a sum of floats, so a plain loop over one takes as long as its additions one after the other. Here
the order is chosen: lanes first, then the lanes from halves to halves, then what is left over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from mpsref_cpu.compiling import inlined
from mpsref_cpu.elementary import Float
from mpsref_cpu.half import load
from mpsref_cpu.lanes import INT, intrinsic, load_lanes, maximum, plus, zeros

__all__ = ["dot", "largest", "total"]

MANY, FEW = 32, 8
MOST_TERMS = 1024 * MANY
"""So many terms are summed up before a sum of sums begins: 1,024 in each lane."""

real: Any = np.float32


def _halved(combine: Callable[..., Any]) -> Callable[..., Any]:
    """Return what types and compiles a function that brings the lanes of a vector together, half upon half."""

    def typed(typing: Any, lanes: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            (value,) = arguments
            while value.type.count > 1:
                half = value.type.count // 2
                places = (
                    ir.Constant(ir.VectorType(INT, half), list(range(start, start + half))) for start in (0, half)
                )
                value = combine(builder, *(builder.shuffle_vector(value, value, place) for place in places))
            return builder.extract_element(value, ir.Constant(INT, 0))

        return types.float32(lanes), generate

    return typed


@intrinsic
def _sum_of(typing: Any, lanes: Any) -> Any:
    """Return the sum of all lanes."""
    return _halved(lambda builder, low, high: builder.fadd(low, high))(typing, lanes)


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
def _last(typing: Any, lanes: Any, count: Any) -> Any:
    """Return ``lanes`` with zeros in all but the last ``count``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value, number = arguments
        words = ir.VectorType(INT, value.type.count)
        first = builder.sub(ir.Constant(INT, value.type.count), builder.trunc(number, INT))
        spread = builder.insert_element(ir.Constant(words, None), first, ir.Constant(INT, 0))
        spread = builder.shuffle_vector(spread, spread, ir.Constant(words, None))
        places = ir.Constant(words, list(range(value.type.count)))
        return builder.select(builder.icmp_unsigned(">=", places, spread), value, ir.Constant(value.type, None))

    return lanes(lanes, types.int64), generate


@inlined
def total(values: Any, first: int, count: int) -> Float:
    """Return the sum of ``count`` values, stored as float32 or float16, from ``first`` on."""
    found = real(0)
    for start in range(first, first + count, MOST_TERMS):
        stop = min(start + MOST_TERMS, first + count)
        many = start + (stop - start) // MANY * MANY
        few = many + (stop - many) // FEW * FEW
        if start < many:
            lanes = zeros(MANY)
            for i in range(start, many, MANY):
                lanes = plus(load_lanes(values, np.uintp(i), lanes), lanes)
            found += _sum_of(lanes)
        if stop - start < FEW:
            for i in range(start, stop):
                found += load(values[np.uintp(i)])
        elif many < stop:
            less = zeros(FEW)
            for i in range(many, few, FEW):
                less = plus(load_lanes(values, np.uintp(i), less), less)
            rest = load_lanes(values, np.uintp(stop - FEW), less)
            found += _sum_of(plus(_last(rest, stop - few), less))
    return found


@inlined
def dot(values: Any, others: Any, first: int, count: int) -> Float:
    """Return the sum of the products of ``count`` pairs from ``first`` on."""
    found = real(0)
    for start in range(first, first + count, MOST_TERMS):
        stop = min(start + MOST_TERMS, first + count)
        many = start + (stop - start) // MANY * MANY
        few = many + (stop - many) // FEW * FEW
        if start < many:
            lanes = zeros(MANY)
            for i in range(start, many, MANY):
                at = np.uintp(i)
                lanes = _times_plus(load_lanes(values, at, lanes), load_lanes(others, at, lanes), lanes)
            found += _sum_of(lanes)
        if stop - start < FEW:
            for i in range(start, stop):
                found += load(values[np.uintp(i)]) * load(others[np.uintp(i)])
        elif many < stop:
            less = zeros(FEW)
            for i in range(many, few, FEW):
                at = np.uintp(i)
                less = _times_plus(load_lanes(values, at, less), load_lanes(others, at, less), less)
            at = np.uintp(stop - FEW)
            rest = _last(load_lanes(values, at, less), stop - few), _last(load_lanes(others, at, less), stop - few)
            found += _sum_of(_times_plus(rest[0], rest[1], less))
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
