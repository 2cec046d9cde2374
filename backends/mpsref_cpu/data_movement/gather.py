"""Gathers by per-axis tables, and the sums that are their adjoints.

Pixels are copied as stored bits, contiguous ones together: channels, and runs of columns where all channels are copied.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types

from mpsref.arguments.arrays import Array
from mpsref.kernels.movement import Gather, Readers
from mpsref_cpu.compiling import compiled, inlined, intrinsic
from mpsref_cpu.threads import as_storage, for_rows

CHUNKS = 5040
"""Maximum number of chunks of a copy, a number with many divisors."""

POINTER = ir.IntType(8).as_pointer()

BLOCK = 2048
"""Maximum number of bytes of rows whose runs are copied one after the other."""

VECTOR, LONG = 32, 4096
"""Numbers of bytes: runs between these are copied in vectors, the last of which may overlap the one before. A call of
the system's memcpy takes as long as a hundred bytes. Wider vectors, where they cross cache lines, are slower."""


def copy(source: Array, *outs: Array) -> None:
    """Fill each of ``outs`` with the elements of ``source`` in their order, in equal chunks."""
    chunks = math.gcd(source.size, CHUNKS)
    long = source.size // chunks
    copy_runs(chunks, [source], outs, np.array([(0, 0, long, 1 + k, 0, long, long) for k in range(len(outs))]))


def gather(table: Gather, fills: Array, source: Array, out: Array) -> None:
    """Fill ``out`` with the elements of ``source`` that ``table`` names, and with ``fills`` where it names none."""
    sizes = (*source.shape[1:], *out.shape[1:])
    flat = as_storage(source), as_storage(out), as_storage(fills)
    for_rows(_gather, out.shape[0] * out.shape[1], *flat, sizes, *table, nbytes=2 * out.nbytes)


@compiled
def _gather(begin, end, source, out, fills, sizes, rows, columns, channels):
    source_height, source_width, source_channels, height, width, depth = sizes
    begin_channels, end_channels = 0, depth  # those that are copied; others are filled
    while begin_channels < depth and channels[begin_channels] < 0:
        begin_channels += 1
    while end_channels > begin_channels and channels[end_channels - 1] < 0:
        end_channels -= 1
    copied = end_channels - begin_channels
    first = channels[begin_channels] if copied else 0
    for c in range(copied):
        if channels[begin_channels + c] != first + c:  # not contiguous
            first = -1
            break
    whole = copied == depth == source_channels and first == 0
    runs = _runs(columns, first >= 0)
    for line in range(begin, end):
        row = rows[line % height]
        start = (line // height * source_height + row) * source_width
        k = 0
        while k < width:
            column, run = columns[k], runs[k]
            to = np.uintp((line * width + k) * depth)
            if row < 0 or column < 0:
                for c in range(np.uintp(depth)):
                    out[to + c] = fills[c]
                k += 1
                continue
            at = np.uintp((start + column) * source_channels)
            if whole:
                for c in range(np.uintp(copied * run)):
                    out[to + c] = source[at + c]
            elif first >= 0:
                at += np.uintp(first)
                for _ in range(run):
                    for c in range(np.uintp(begin_channels)):
                        out[to + c] = fills[c]
                    into = to + np.uintp(begin_channels)
                    for c in range(np.uintp(copied)):
                        out[into + c] = source[at + c]
                    for c in range(np.uintp(end_channels), np.uintp(depth)):
                        out[to + c] = fills[c]
                    to, at = to + np.uintp(depth), at + np.uintp(source_channels)
            else:
                for c in range(np.uintp(depth)):
                    channel = channels[c]
                    out[to + c] = fills[c] if channel < 0 else source[at + np.uintp(channel)]
            k += run


@inlined
def _runs(columns, together):
    """Return how many columns from each one on are contiguous in the source, or 1 where not ``together``."""
    runs = np.ones(columns.size, np.int64)
    for k in range(columns.size - 2, -1, -1):
        if together and columns[k] >= 0 and columns[k + 1] == columns[k] + 1:
            runs[k] = runs[k + 1] + 1
    return runs


def gather_sums(table: tuple[Readers, Readers, Readers], source: Array, out: Array) -> None:
    """Fill each element of ``out`` with the sum of the elements of ``source`` that ``table`` names, in float64."""
    sizes = (*source.shape[1:], *out.shape[1:])
    flat, starts = (as_storage(source), as_storage(out)), tuple(axis.start for axis in table)
    orders = tuple(axis.order for axis in table)
    for_rows(_gather_sums, out.shape[0] * out.shape[1], *flat, sizes, starts, orders, nbytes=source.nbytes + out.nbytes)


@compiled
def _gather_sums(begin, end, source, out, sizes, starts, orders):
    source_height, source_width, source_channels, height, width, channels = sizes
    (row_start, column_start, channel_start), (row_order, column_order, channel_order) = starts, orders
    single = True  # each channel is read once, and they are contiguous
    for c in range(channels):
        single &= channel_start[c + 1] - channel_start[c] == 1
    only = np.full(width, -1)  # the column that reads one, if there is no other
    for k in range(width):
        if column_start[k + 1] - column_start[k] == 1:
            only[k] = column_order[column_start[k]]
    runs = _runs(only, single and source_channels == channels)
    sums = np.empty(width * channels)
    for line in range(begin, end):
        n, j = line // height, line % height
        one_row = single and row_start[j + 1] - row_start[j] == 1
        k = 0
        while k < width:
            to, size = np.uintp((line * width + k) * channels), np.uintp(runs[k] * channels)
            if one_row and only[k] >= 0:
                pixel = (n * source_height + row_order[row_start[j]]) * source_width + only[k]
                at = np.uintp(pixel * source_channels + channel_order[0])
                for c in range(size):
                    out[to + c] = source[at + c] + np.float32(0)
                k += runs[k]
                continue
            sums[:size] = 0.0
            for a in range(row_start[j], row_start[j + 1]):
                for b in range(column_start[k], column_start[k + 1]):
                    pixel = (n * source_height + row_order[a]) * source_width + column_order[b]
                    at = np.uintp(pixel * source_channels)
                    if single:
                        at += np.uintp(channel_order[0])
                        for c in range(size):
                            sums[c] += np.float64(source[at + c])
                    else:
                        for c in range(channels):
                            for m in range(channel_start[c], channel_start[c + 1]):
                                sums[c] += np.float64(source[at + np.uintp(channel_order[m])])
            for c in range(size):
                out[to + c] = np.float32(sums[c])
            k += runs[k]


def copy_runs(rows: int, sources: Sequence[Array], outs: Sequence[Array], runs: npt.NDArray[np.int64]) -> None:
    """Copy runs of each of ``rows`` rows. Compiled code takes addresses, so it is one for any number of arrays.

    A run is (source, first, pitch, out, into, step, length): ``length`` elements of each row, from element
    ``first + row * pitch`` of one array to element ``into + row * step`` of another, both places in (*sources, *outs).
    """
    stored = [np.ascontiguousarray(source, outs[0].dtype) for source in sources]
    addresses = np.array([_address(array) for array in (*stored, *outs)])
    nbytes = 2 * sum([out.nbytes for out in outs])
    for_rows(_copy_runs, rows, addresses, runs, outs[0].itemsize, nbytes=nbytes)


def _address(array: Array) -> int:
    """Return the address of the memory of an array, in half the time of ``array.ctypes``."""
    memory: Any = array if array.flags.writeable else as_storage(array)
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


@intrinsic
def _move(typing, to, source, count):
    """Copy bytes between addresses, by the memcpy of the system."""

    def generate(context, builder, signature, arguments):
        to, source, count = arguments
        function = builder.module.declare_intrinsic("llvm.memcpy", [POINTER, POINTER, count.type])
        pointers = [builder.inttoptr(address, POINTER) for address in (to, source)]
        builder.call(function, [*pointers, count, ir.IntType(1)(0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@compiled
def _copy_runs(begin, end, addresses, runs, unit):
    """Copy some rows, run by run, then the next rows."""
    table = np.empty((runs.shape[0], 5), np.int64)  # in bytes; to compute it again for each block takes a tenth longer
    for k in range(runs.shape[0]):
        table[k, 0], table[k, 1] = addresses[runs[k, 0]] + runs[k, 1] * unit, runs[k, 2] * unit
        table[k, 2], table[k, 3] = addresses[runs[k, 3]] + runs[k, 4] * unit, runs[k, 5] * unit
        table[k, 4] = runs[k, 6] * unit
    together = max(1, BLOCK // table[:, 4].sum())
    for row in range(begin, end, together):
        for k in range(table.shape[0]):
            pitch, step, count = table[k, 1], table[k, 3], table[k, 4]
            source, to = table[k, 0] + row * pitch, table[k, 2] + row * step
            for _ in range(min(together, end - row)):
                if VECTOR <= count <= LONG:
                    last = count - VECTOR
                    for i in range(0, last, VECTOR):
                        _move(to + i, source + i, VECTOR)
                    _move(to + last, source + last, VECTOR)
                else:
                    _move(to, source, count)
                source, to = source + pitch, to + step
