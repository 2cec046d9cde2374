"""Microkernels: tiles of a few rows of float32 vectors, which stay in registers while products are added to them.

A tile of R rows and L lanes is R * L sums. The inner loops of convolution are of five kinds, written as LLVM
instructions because LLVM does not generate them from plain loops:

==================== ==========================================================================================
:func:`add_scaled`   each row adds one number times a shared vector: R * L products from R + L numbers
:func:`add_listed`   the same with unevenly spaced numbers and vectors, at offsets in lists
:func:`add_products` each row adds its own vector times a shared one
:func:`add_taps`     the same with unevenly spaced vectors, at offsets in a list
:func:`add_row`      the same for neighbouring pixels, which share most of the vectors that they read
==================== ==========================================================================================

The rows begin at a tuple of R offsets in an array, from :func:`offsets`. All are for compiled functions; indices are
not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.extending import models, register_model

from mpsref_cpu.compiling import intrinsic
from mpsref_cpu.simd.vectors import FLOAT, INT, halves, prefetch_bytes, splat

LONG = ir.IntType(64)

ROWS = 6
"""Number of rows of a tile: 6 rows and the shared vector, of two registers each, and a number take 15 of 16."""

AVX512 = binding.get_host_cpu_features().get("avx512f", False)

MANY_ROWS = 12 if AVX512 else ROWS
"""Number of rows of a tile whose rows have one register, or that is often loaded and stored: AVX-512 has 32."""

LANES = 32 if AVX512 else 16
"""Number of lanes of the widest tile: two registers of x86, or four of the narrower and more numerous ones of ARM."""


class Tile(types.Type):
    """``rows`` vectors of ``lanes`` float32 numbers as one value."""

    def __init__(self, rows: int, lanes: int) -> None:
        """Name the type after its size."""
        self.rows, self.lanes = rows, lanes
        super().__init__(f"Tile({rows}, {lanes})")

    @property
    def vector(self) -> ir.VectorType:
        """The type of a row."""
        return ir.VectorType(FLOAT, self.lanes)


@register_model(Tile)
class _TileModel(models.PrimitiveModel):
    def __init__(self, manager: Any, tile: Tile) -> None:
        super().__init__(manager, tile, ir.ArrayType(tile.vector, tile.rows))


@intrinsic(prefer_literal=True)
def empty(typing, rows, lanes):
    """Return a tile of zeros; ``rows`` is a literal or a tuple of as many elements, ``lanes`` such a tuple."""
    count = rows.literal_value if isinstance(rows, types.IntegerLiteral) else getattr(rows, "count", None)
    if count is None:
        return None

    def generate(context, builder, signature, arguments):
        return ir.Constant(context.get_value_type(signature.return_type), None)

    return Tile(count, len(lanes))(rows, lanes), generate


@intrinsic
def empty_for(typing, lanes):
    """Return a tile of zeros with as many lanes as the tuple ``lanes`` has elements, and the rows that suit them."""
    tile = Tile(ROWS if len(lanes) == LANES else MANY_ROWS, len(lanes))
    return tile(lanes), lambda context, builder, signature, arguments: ir.Constant(context.get_value_type(tile), None)


@intrinsic
def rows_of(typing, tile):
    """Return the number of rows of a tile."""
    return types.intp(tile), lambda context, builder, signature, arguments: LONG(tile.rows)


@intrinsic
def filled(typing, like, array, index):
    """Return a tile like ``like`` with ``array[index:]`` in every row."""

    def generate(context, builder, signature, arguments):
        vector = _load(builder, _at(context, builder, array, *arguments[1:]), like.vector)
        return _packed(builder, like, [vector] * like.rows)

    return like(like, array, types.intp), generate


@intrinsic
def copy(typing, lanes, source, start, target, at):
    """Copy as many numbers from ``source[start:]`` to ``target[at:]`` as the tuple ``lanes`` has elements."""
    vector = ir.VectorType(FLOAT, len(lanes))

    def generate(context, builder, signature, arguments):
        _, source_, start_, target_, at_ = arguments
        value = _load(builder, _at(context, builder, source, source_, start_), vector)
        pointer = _vector_pointer(builder, _at(context, builder, target, target_, at_), vector)
        builder.store(value, pointer, align=4)
        return context.get_dummy_value()

    return types.void(lanes, source, types.intp, target, types.intp), generate


@intrinsic
def offsets(typing, like, array, index):
    """Return ``array[index], array[index + 1], ...`` as a tuple, one for each row of a tile like ``like``."""

    def generate(context, builder, signature, arguments):
        first = _at(context, builder, array, *arguments[1:])
        values = [builder.load(builder.gep(first, [LONG(row)])) for row in range(like.rows)]
        return context.make_tuple(builder, signature.return_type, values)

    return types.UniTuple(types.intp, like.rows)(like, array, types.intp), generate


@intrinsic
def add_scaled(typing, tile, x, starts, shift, w, at, count, x_step, w_step):
    """Add ``x[starts[row] + shift + k * x_step] * w[at + k * w_step:]`` to each row, for k = 0 ... count - 1."""
    return _evenly_spaced(_number, tile, x, starts, w)


@intrinsic
def add_products(typing, tile, x, starts, shift, w, at, count, x_step, w_step):
    """Add ``x[starts[row] + shift + k * x_step:] * w[at + k * w_step:]`` to each row, for k = 0 ... count - 1."""
    return _evenly_spaced(_load, tile, x, starts, w)


@intrinsic
def add_listed(typing, tile, x, starts, shift, places, w, at, vectors, taken):
    """Add ``x[starts[row] + shift + places[k]] * w[at + vectors[k]:]`` to each row, for some k.

    ``taken`` are the first k, and how many there are.
    """
    return _unevenly_spaced(_number, tile, x, starts, places, w, vectors)


@intrinsic
def add_taps(typing, tile, x, starts, shift, shifts, w, at, terms, taps):
    """Add ``x[starts[row] + shift + shifts[k]:] * w[at + terms[k]:]`` to each row, for some k.

    ``taps`` are the first k, and how many there are.
    """
    return _unevenly_spaced(_load, tile, x, starts, shifts, w, terms)


@intrinsic
def add_row(typing, tile, x, start, step, w, at, terms, k, taps, stride):
    """Add ``x[start + (row * S + t) * step:] * w[at + terms[k + t]:]`` to each row, for t = 0 ... T - 1.

    The tuples ``taps`` and ``stride`` have T and S elements. A vector that several rows read is loaded once.
    """

    def generate(context, builder, signature, arguments):
        tile_, x_, start_, step_, w_, at_, terms_, k_, *_ = arguments
        first, term = _at(context, builder, w, w_, at_), _at(context, builder, terms, terms_, k_)
        starts = [builder.load(builder.gep(term, [LONG(t)])) for t in range(len(taps))]
        weights = [_load(builder, builder.gep(first, [place]), tile.vector) for place in starts]
        sums = [builder.extract_value(tile_, row) for row in range(tile.rows)]
        pixel = _at(context, builder, x, x_, start_)
        for place in range((tile.rows - 1) * len(stride) + len(taps)):
            vector = _load(builder, pixel, tile.vector)
            for row in range(tile.rows):
                t = place - row * len(stride)
                if 0 <= t < len(taps):
                    product = builder.fmul(vector, weights[t], flags=("contract",))
                    sums[row] = builder.fadd(product, sums[row], flags=("contract",))
            pixel = builder.gep(pixel, [step_])
        return _packed(builder, tile, sums)

    return tile(tile, x, types.intp, types.intp, w, types.intp, terms, types.intp, taps, stride), generate


@intrinsic
def prefetch(typing, like, x, start):
    """Prefetch the first numbers of ``x[start:]``, as many as a tile has; they may lie outside."""

    def generate(context, builder, signature, arguments):
        prefetch_bytes(builder, _at(context, builder, x, *arguments[1:]), 4 * like.rows * like.lanes)
        return context.get_dummy_value()

    return types.void(like, x, types.intp), generate


@intrinsic
def store_rows(typing, tile, y, starts, shift):
    """Set ``y[starts[row] + shift:]`` to each row."""

    def generate(context, builder, signature, arguments):
        tile_, y_, starts_, shift_ = arguments
        first = _at(context, builder, y, y_, shift_)
        for row, start in enumerate(_elements(builder, starts_)):
            pointer = _vector_pointer(builder, builder.gep(first, [start]), tile.vector)
            builder.store(builder.extract_value(tile_, row), pointer, align=4)
        return context.get_dummy_value()

    return types.void(tile, y, starts, types.intp), generate


@intrinsic
def add_to(typing, tile, y, starts, shift):
    """Add each row to ``y[starts[row] + shift:]``; rows that begin at one place must be equal, and are added once."""

    def generate(context, builder, signature, arguments):
        tile_, y_, starts_, shift_ = arguments
        first = _at(context, builder, y, y_, shift_)
        offsets = [builder.gep(first, [start]) for start in _elements(builder, starts_)]
        sums = [
            builder.fadd(_load(builder, place, tile.vector), builder.extract_value(tile_, row))
            for row, place in enumerate(offsets)
        ]
        for place, total in zip(offsets, sums, strict=True):  # after all loads
            builder.store(total, _vector_pointer(builder, place, tile.vector), align=4)
        return context.get_dummy_value()

    return types.void(tile, y, starts, types.intp), generate


@intrinsic
def row_sums(typing, tile):
    """Return the sum of the lanes of each row, as a tuple; halves are added to halves."""

    def generate(context, builder, signature, arguments):
        sums = []
        for row in range(tile.rows):
            value = builder.extract_value(arguments[0], row)
            while value.type.count > 1:
                value = builder.fadd(*halves(builder, value))
            sums.append(builder.extract_element(value, INT(0)))
        return context.make_tuple(builder, signature.return_type, sums)

    return types.UniTuple(types.float32, tile.rows)(tile), generate


def _evenly_spaced(read: Callable[..., Any], tile: Tile, x: Any, starts: Any, w: Any) -> tuple[Any, Any]:
    """Return an intrinsic that adds products of what ``read`` reads of each row, and of vectors, at even distances."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        tile_, x_, starts_, shift_, w_, at_, count, x_step, w_step = arguments
        rows = _row_pointers(builder, tile, _at(context, builder, x, x_, shift_), starts_)
        vectors = _at(context, builder, w, w_, at_)

        def shared(k: Any) -> Any:
            return builder.gep(vectors, [builder.mul(k, w_step)])

        def factors(k: Any) -> list[Any]:
            place = builder.mul(k, x_step)
            return [read(builder, builder.gep(row, [place]), tile.vector) for row in rows]

        return _loop(builder, tile, tile_, shared, count, factors)

    return tile(tile, x, starts, types.intp, w, *[types.intp] * 4), generate


def _unevenly_spaced(
    read: Callable[..., Any], tile: Tile, x: Any, starts: Any, places: Any, w: Any, terms: Any
) -> tuple[Any, Any]:
    """Return an intrinsic like :func:`_evenly_spaced`, with lists of the places."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        tile_, x_, starts_, shift_, places_, w_, at_, terms_, taken = arguments
        first, count = _elements(builder, taken)
        rows = _row_pointers(builder, tile, _at(context, builder, x, x_, shift_), starts_)
        of_x, of_w = (_at(context, builder, *table, first) for table in ((places, places_), (terms, terms_)))
        vectors = _at(context, builder, w, w_, at_)

        def shared(k: Any) -> Any:
            return builder.gep(vectors, [builder.load(builder.gep(of_w, [k]))])

        def factors(k: Any) -> list[Any]:
            place = builder.load(builder.gep(of_x, [k]))
            return [read(builder, builder.gep(row, [place]), tile.vector) for row in rows]

        return _loop(builder, tile, tile_, shared, count, factors)

    return tile(tile, x, starts, types.intp, places, w, types.intp, terms, types.UniTuple(types.intp, 2)), generate


def _loop(
    builder: Any, tile: Tile, start: Any, shared: Callable[[Any], Any], count: Any, factors: Callable[[Any], list[Any]]
) -> Any:
    """Generate a loop that adds ``factors(k)[row]`` times the vector at ``shared(k)`` to each row."""
    before = builder.block
    body, after = builder.append_basic_block("step"), builder.append_basic_block("stepped")
    old = [builder.extract_value(start, row) for row in range(tile.rows)]
    builder.cbranch(builder.icmp_signed(">", count, LONG(0)), body, after)
    builder.position_at_end(body)
    k = builder.phi(LONG)
    sums = [builder.phi(tile.vector) for _ in range(tile.rows)]
    vector = _load(builder, shared(k), tile.vector)
    new = [
        builder.fadd(builder.fmul(factor, vector, flags=("contract",)), total, flags=("contract",))
        for factor, total in zip(factors(k), sums, strict=True)
    ]
    following = builder.add(k, LONG(1))
    for phi, first, next_ in [(k, LONG(0), following), *zip(sums, old, new, strict=True)]:
        phi.add_incoming(first, before)
        phi.add_incoming(next_, body)
    builder.cbranch(builder.icmp_signed("<", following, count), body, after)
    builder.position_at_end(after)
    results = [builder.phi(tile.vector) for _ in range(tile.rows)]
    for phi, unchanged, total in zip(results, old, new, strict=True):
        phi.add_incoming(unchanged, before)
        phi.add_incoming(total, body)
    return _packed(builder, tile, results)


def _row_pointers(builder: Any, tile: Tile, first: Any, starts: Any) -> list[Any]:
    """Return the addresses of the rows.

    The empty assembler text prevents LLVM from recomputing them at each step, which would spill sums to memory.
    """
    opaque = ir.InlineAsm(ir.FunctionType(first.type, [first.type]), "", "=r,0")
    return [builder.call(opaque, [builder.gep(first, [start])]) for start in _elements(builder, starts)]


def _elements(builder: Any, values: Any) -> list[Any]:
    return [builder.extract_value(values, k) for k in range(len(values.type))]


def _packed(builder: Any, tile: Tile, rows: list[Any]) -> Any:
    value = ir.Constant(ir.ArrayType(tile.vector, tile.rows), ir.Undefined)
    for row, vector in enumerate(rows):
        value = builder.insert_value(value, vector, row)
    return value


def _at(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _vector_pointer(builder: Any, pointer: Any, vector: ir.VectorType) -> Any:
    return builder.bitcast(pointer, vector.as_pointer())


def _number(builder: Any, pointer: Any, vector: ir.VectorType) -> Any:
    return splat(builder, builder.load(pointer), vector)


def _load(builder: Any, pointer: Any, vector: ir.VectorType) -> Any:
    return builder.load(_vector_pointer(builder, pointer, vector), align=4)
