"""Vectors of numbers for compiled code: several channels of a pixel at once, written as LLVM instructions.

LLVM vectorizes most loops by itself, but not one that updates several places of one array: they might overlap. Such
loops use these functions; a vector of any number of lanes takes as many registers as it needs on the machine.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import models, register_model

from mpsref_cpu.compiling import inlined, intrinsic

INT = ir.IntType(32)
FLOAT = ir.FloatType()
DOUBLE = ir.DoubleType()

CACHE_LINE = 64
"""Number of bytes of a cache line."""

REGISTER = 8
"""Approximate number of float32 lanes of a vector register."""


@intrinsic
def _address(typing, array):
    """Return the address of the first element."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(array)(context, builder, arguments[0]).data
        return builder.ptrtoint(data, context.get_value_type(types.uintp))

    return types.uintp(array), generate


@inlined
def empty_rows(count, length, dtype):
    """Return rows of whole vectors that begin with a cache line: sums of others take 1.6 times as long."""
    room = np.empty(count * length + CACHE_LINE, dtype)
    first = (CACHE_LINE - _address(room) % CACHE_LINE) // room.itemsize
    return room[first : first + count * length].reshape(count, length)


class Vector(types.Type):
    """``width`` numbers, float32, float64 or int32, as one value."""

    def __init__(self, width: int, element: Any = types.float32) -> None:
        """Name the type after what it holds."""
        self.width, self.element = width, element
        super().__init__(f"Vector({width}, {element})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Vector) -> None:
        element = manager[lanes.element].get_value_type()
        super().__init__(manager, lanes, ir.VectorType(element, lanes.width))


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, vector: Any) -> Any:
    """Return the address of ``array[index]`` as that of a vector."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def _align(array_type: Any) -> int:
    return int(array_type.dtype.bitwidth) // 8


def _constant(typed: Callable[..., Any], width: Any, element: Any, number: float) -> Any:
    """Return the typing and code generation of ``width`` equal numbers; ``width`` is a literal."""
    if not isinstance(width, types.IntegerLiteral):
        return None

    def generate(context, builder, signature, arguments):
        kind = context.get_value_type(signature.return_type)
        return ir.Constant(kind, [ir.Constant(kind.element, number)] * kind.count)

    return typed(Vector(width.literal_value, element)), generate


@intrinsic(prefer_literal=True)
def zeros(typing, width):
    """Return ``width`` zeros; ``width`` is a literal."""
    return _constant(lambda kind: kind(width), width, types.float32, 0.0)


@intrinsic(prefer_literal=True)
def zeros_like(typing, array, width):
    """Return ``width`` zeros of the dtype of ``array``; ``width`` is a literal."""
    return _constant(lambda kind: kind(array, width), width, array.dtype, 0)


@intrinsic(prefer_literal=True)
def negative_zeros_like(typing, array, width):
    """Return ``width`` negative zeros, to which any number is added without a change, -0.0 included."""
    return _constant(lambda kind: kind(array, width), width, array.dtype, -0.0)


def splat(builder: Any, value: Any, vector: ir.VectorType) -> Any:
    """Generate a vector with ``value`` in all lanes."""
    one = builder.insert_element(ir.Constant(vector, None), value, ir.Constant(INT, 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(INT, vector.count), None))


@intrinsic
def broadcast(typing, value, like):
    """Return a vector like ``like`` with ``value`` in all lanes."""

    def generate(context, builder, signature, arguments):
        return splat(builder, arguments[0], arguments[1].type)

    return like(like.element, like), generate


@intrinsic
def load_vector(typing, array, index, like):
    """Return as many elements of ``array`` from ``index`` on as ``like`` has, in the type of its elements."""

    def generate(context, builder, signature, arguments):
        element = context.get_data_type(array.dtype)
        pointer = _pointer(context, builder, array, arguments[0], arguments[1], ir.VectorType(element, like.width))
        stored = builder.load(pointer, align=_align(array))
        return _converted(builder, stored, context.get_value_type(like))

    return like(array, types.uintp, like), generate


def _converted(builder: Any, value: Any, to: ir.VectorType) -> Any:
    """Return float32 or float64 numbers as those of ``to``; integers stay as they are."""
    if value.type.element == to.element:
        return value
    return builder.fpext(value, to) if to.element == DOUBLE else builder.fptrunc(value, to)


@intrinsic
def add_to(typing, array, index, lanes):
    """Add ``lanes`` to the elements of ``array``, float32 or float64, from ``index`` on."""

    def generate(context, builder, signature, arguments):
        vector = ir.VectorType(context.get_data_type(array.dtype), lanes.width)
        pointer = _pointer(context, builder, array, arguments[0], arguments[1], vector)
        term = _converted(builder, arguments[2], vector)
        total = builder.fadd(builder.load(pointer, align=_align(array)), term)
        builder.store(total, pointer, align=_align(array))
        return context.get_dummy_value()

    return types.void(array, types.uintp, lanes), generate


@intrinsic
def store_vector(typing, array, index, lanes):
    """Set the elements of ``array`` from ``index`` on to ``lanes``."""

    def generate(context, builder, signature, arguments):
        vector = ir.VectorType(context.get_data_type(array.dtype), lanes.width)
        pointer = _pointer(context, builder, array, arguments[0], arguments[1], vector)
        builder.store(_converted(builder, arguments[2], vector), pointer, align=_align(array))
        return context.get_dummy_value()

    return types.void(array, types.uintp, lanes), generate


SQUARE = 16
"""Number of rows and of columns that :func:`transpose` copies: a cache line each."""


@intrinsic
def transpose(typing, source, at, step, target, to, pitch):
    """Set ``target[to + k * pitch + i]`` to ``source[at + i * step + k]``, for all i and k below ``SQUARE``."""
    vector, count = ir.VectorType(FLOAT, SQUARE), range(SQUARE)

    def places(context, builder, kind, array, first, distance):
        steps = (builder.mul(distance, distance.type(k)) for k in count)
        return [_pointer(context, builder, kind, array, builder.add(first, step), vector) for step in steps]

    def generate(context, builder, signature, arguments):
        rows = [builder.load(place, align=4) for place in places(context, builder, source, *arguments[:3])]
        halves_of_pairs = [[k // 2 + k % 2 * SQUARE + half for k in count] for half in (0, SQUARE // 2)]
        masks = [ir.Constant(ir.VectorType(INT, SQUARE), half) for half in halves_of_pairs]
        for _ in range(SQUARE.bit_length() - 1):  # each step exchanges one bit of the numbers of rows and columns
            rows = [builder.shuffle_vector(rows[k // 2], rows[(k + SQUARE) // 2], masks[k % 2]) for k in count]
        for row, place in zip(rows, places(context, builder, target, *arguments[3:]), strict=True):
            builder.store(row, place, align=4)
        return context.get_dummy_value()

    return types.void(source, types.uintp, types.uintp, target, types.uintp, types.uintp), generate


def prefetch_bytes(builder: Any, first: Any, count: int) -> None:
    """Generate the prefetch of the cache lines of ``count`` bytes from a pointer on; they may lie outside of arrays."""
    first = builder.bitcast(first, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [first.type, INT, INT, INT])
    function = builder.module.declare_intrinsic("llvm.prefetch", [first.type], kind)
    for at in range(0, count, CACHE_LINE):
        builder.call(function, [builder.gep(first, [INT(at)]), INT(0), INT(3), INT(1)])


@intrinsic
def prefetch_vector(typing, array, index, like):
    """Prefetch as many elements of ``array`` from ``index`` on as ``like`` has; they may lie outside."""

    def generate(context, builder, signature, arguments):
        data = context.make_array(array)(context, builder, arguments[0]).data
        prefetch_bytes(builder, builder.gep(data, [arguments[1]]), like.width * _align(array))
        return context.get_dummy_value()

    return types.void(array, types.uintp, like), generate


def elementwise(generate: Callable[..., Any]) -> Any:
    """Make a function of vectors to a vector of the type of the first one from ``generate(builder, *vectors)``."""

    def function(typing: Any, lanes: Any, *others: Any) -> Any:
        return lanes(lanes, *others), lambda context, builder, signature, arguments: generate(builder, *arguments)

    function.__signature__ = inspect.signature(generate)  # type: ignore[attr-defined]  # numba takes no *others
    return intrinsic(function)


def halves(builder: Any, value: Any) -> list[Any]:
    """Generate the lower and the upper half of the lanes of a vector."""
    half = value.type.count // 2
    places = (ir.Constant(ir.VectorType(INT, half), list(range(start, start + half))) for start in (0, half))
    return [builder.shuffle_vector(value, value, place) for place in places]


plus = elementwise(lambda builder, v, w: builder.add(v, w) if v.type.element == INT else builder.fadd(v, w))
minus = elementwise(lambda builder, v, w: builder.sub(v, w) if v.type.element == INT else builder.fsub(v, w))
times = elementwise(lambda builder, v, w: builder.fmul(v, w))
maximum = elementwise(lambda builder, v, best: builder.select(builder.fcmp_ordered(">", v, best), v, best))
"""``maximum(v, best)`` is the larger of each pair, and ``best`` where one is NaN."""


@intrinsic
def multiply_add(typing, total, factor, value):
    """Return ``total + factor * value``, rounded once where the machine can; ``factor`` is a number or lanes."""

    def generate(context, builder, signature, arguments):
        total, factor, value = arguments
        if not isinstance(factor.type, ir.VectorType):
            factor = splat(builder, factor, value.type)
        product = builder.fmul(factor, value, flags=("contract",))
        return builder.fadd(total, product, flags=("contract",))

    return total(total, factor if isinstance(factor, Vector) else total.element, value), generate


@intrinsic
def from_lane(typing, lanes, first):
    """Return ``lanes`` with zeros before lane ``first``."""

    def generate(context, builder, signature, arguments):
        lanes, first = arguments
        numbers = ir.Constant(ir.VectorType(INT, lanes.type.count), list(range(lanes.type.count)))
        taken = builder.icmp_signed(">=", numbers, splat(builder, builder.trunc(first, INT), numbers.type))
        return builder.select(taken, lanes, ir.Constant(lanes.type, None))

    return lanes(lanes, types.int64), generate


@elementwise
def where_equal(builder, amount, value, best):
    """Return ``amount`` where ``value`` equals ``best``, and 0 elsewhere."""
    compare = builder.icmp_signed if value.type.element == INT else builder.fcmp_ordered
    return builder.select(compare("==", value, best), amount, ir.Constant(amount.type, None))


@elementwise
def where_larger(builder, amount, other, value, best):
    """Return ``amount`` where ``value`` is a number and ``best`` is NaN or less, and ``other`` elsewhere."""
    larger = builder.and_(builder.fcmp_unordered(">", value, best), builder.fcmp_ordered("ord", value, value))
    return builder.select(larger, amount, other)


@elementwise
def without(builder, amount, taken):
    """Return ``amount`` where ``taken`` is 0, and 0 where it is ``amount``; it is one of them."""
    words = ir.VectorType(INT, amount.type.count)
    return builder.bitcast(builder.xor(builder.bitcast(amount, words), builder.bitcast(taken, words)), amount.type)
