"""Depthwise sums: each channel of the result reads one of the source, in both directions and for the weight gradient.

Tiles are pixels and the channels of a block for images, taps and the channels of a block for weights. Vectors of
channels are read where they lie.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.convolution.index_lists import (
    SEQUENCE,
    Rows,
    Sizes,
    Units,
    list_pixel_runs,
    list_pixels,
    list_terms,
    most_taps,
    part_of,
    room,
    rows_of,
)
from mpsref_cpu.convolution.microkernels import (
    ROWS,
    add_lanes,
    add_row,
    add_taps,
    add_to,
    empty,
    filled,
    places,
    prefetch,
    put,
)
from mpsref_cpu.convolution.tap_groups import Parts

MOST_TAPS = 512
"""Taps that are added up in sequence, at most."""

NEAR = 4
"""Neighbouring pixels of a tile: four of two registers each, three taps of two, and two for a pixel are all 16."""

TAPS = 5
"""Rows of a tile of taps: five rows of two registers, with operands from memory."""


@compiled
def depthwise(
    begin: int,
    end: int,
    lanes: Any,
    units: Units,
    source: Any,
    result: Any,
    sizes: Sizes,
    y: Parts,
    x: Parts,
    kernel: Any,
    weights: Any,
    biases: Any,
    blocks: Any,
    starts: Any,
    near: Any,
) -> None:
    """Compute what :func:`mpsref_cpu.convolution.dense.dense` computes where each channel reads one of the source.

    ``near`` is a pair of tuples: in parts of columns with as many taps as the first has elements, that lie side by
    side and as many pixels on as the second has elements for the next column, rows are computed by :func:`_row`.
    """
    for unit in range(begin, end):
        first, last, share = rows_of(units, unit)
        rows, own = (first, last, units.source_row, units.row), blocks[starts[share] : starts[share + 1]]
        _depthwise_block(lanes, rows, source, result, sizes, y, x, kernel, weights, biases, own, near)


@inlined
def _depthwise_block(
    lanes: Any,
    rows: Any,
    source: Any,
    result: Any,
    sizes: Sizes,
    y: Parts,
    x: Parts,
    kernel: Any,
    weights: Any,
    biases: Any,
    blocks: Any,
    near: Any,
) -> None:
    width = len(lanes)
    zeros = empty(ROWS, lanes)
    of, into = room(rows, sizes)
    shifts = np.empty(most_taps(y) * most_taps(x), np.int64)
    terms = np.empty(shifts.size, np.int64)
    for a in range(y.start.size - 1):
        for b in range(x.start.size - 1):
            count = list_pixels(sizes, y, x, a, b, rows, of, into)
            if count == 0:
                continue
            taps = 0
            for i in range(y.tap_start[a], y.tap_start[a + 1]):
                for j in range(x.tap_start[b], x.tap_start[b + 1]):
                    shifts[taps] = (y.shift[i] * sizes.source_width + x.shift[j]) * sizes.source_pitch
                    terms[taps] = (y.tap[i] * kernel[0] + x.tap[j]) * width
                    taps += 1
            columns = x.start[b + 1] - x.start[b]
            if taps <= MOST_TAPS and _is_near(x, b, near):
                for p in range(0, count, columns):
                    place = p, columns, taps
                    _row(lanes, place, source, result, of, into, sizes, shifts, terms, weights, biases, blocks, near)
                continue
            for first in range(0, max(1, taps), MOST_TAPS):
                n = min(MOST_TAPS, taps - first)
                for p in range(0, count, ROWS):
                    starts, targets = places(zeros, of, p), places(zeros, into, p)
                    for m in range(blocks.shape[0]):
                        channel, source_channel, at, _ = blocks[m]
                        start = filled(zeros, biases, channel) if first == 0 else zeros
                        taken = first, n
                        tile = add_taps(start, source, starts, source_channel, shifts, weights, at, terms, taken)
                        if first == 0:
                            put(tile, result, targets, channel)
                        else:
                            add_to(tile, result, targets, channel)


@inlined
def _is_near(x: Parts, b: int, near: Any) -> bool:
    """Tell whether taps and columns of a part lie as :func:`_row` needs them."""
    taps, stride = len(near[0]), len(near[1])
    first, last, begin, end = x.start[b], x.start[b + 1], x.tap_start[b], x.tap_start[b + 1]
    if taps < 2 or end - begin != taps or last - first < NEAR:
        return False
    alike = True
    for i in range(begin + 1, end):
        alike &= x.shift[i] - x.shift[i - 1] == 1
    for q in range(first + 1, last):
        alike &= x.base[q] - x.base[q - 1] == stride
    return alike


@inlined
def _row(
    lanes: Any,
    place: Any,
    source: Any,
    result: Any,
    of: Any,
    into: Any,
    sizes: Sizes,
    shifts: Any,
    terms: Any,
    weights: Any,
    biases: Any,
    blocks: Any,
    near: Any,
) -> None:
    """Compute neighbouring pixels of a row, NEAR at a time, the last of them together with some again.

    What the row below reads beyond that is brought into the cache meanwhile: several short runs at once are more than
    processors recognize.
    """
    first, columns, taps = place
    like, kernel, stride = empty(NEAR, lanes), len(near[0]), len(near[1])
    row = sizes.source_width * sizes.source_pitch
    for q in range(0, columns, NEAR):
        p = first + min(q, columns - NEAR)
        targets = places(like, into, p)
        below = of[p] + shifts[taps - 1] + row
        for m in range(blocks.shape[0]):
            channel, source_channel, at, _ = blocks[m]
            for i in range(stride):
                for j in range(stride):
                    prefetch(like, source, below + i * row + (source_channel * stride + j * len(lanes)) * NEAR)
            tile = filled(like, biases, channel)
            for k in range(0, taps, kernel):
                pixel = of[p] + shifts[k] + source_channel
                tile = add_row(tile, source, pixel, sizes.source_pitch, weights, at, terms, k, near[0], near[1])
            put(tile, result, targets, channel)


@compiled
def reduce_depthwise(
    begin: int,
    end: int,
    lanes: Any,
    rows: Rows,
    source: Any,
    gradient: Any,
    sizes: Sizes,
    y: Parts,
    x: Parts,
    kernel: Any,
    blocks: Any,
    sums: Any,
    copies: bool,
) -> None:
    """Add what :func:`reduce_dense` adds where each channel meets that of the source alone; slices are of blocks."""
    for unit in range(begin, end):
        _reduce_depthwise_unit(lanes, unit, rows, source, gradient, sizes, y, x, kernel, blocks, sums, copies)


@inlined
def _reduce_depthwise_unit(
    lanes: Any,
    unit: int,
    rows: Rows,
    source: Any,
    gradient: Any,
    sizes: Sizes,
    y: Parts,
    x: Parts,
    kernel: Any,
    blocks: Any,
    sums: Any,
    copies: bool,
) -> None:
    begin, end, part, slice_ = part_of(rows, unit)
    at, step = part * sums.shape[1], rows.step
    width = len(lanes)
    zeros = empty(TAPS, lanes)
    runs = np.empty((step * sizes.width + 1, 4), np.int64)
    most = most_taps(y) * most_taps(x) + TAPS
    of, into = np.empty(most, np.int64), np.empty(most, np.int64)
    low, high = blocks.shape[0] * slice_ // rows.slices, blocks.shape[0] * (slice_ + 1) // rows.slices
    for row in range(begin, end, step):
        last = min(row + step, end)
        first = (row - rows.row) * sizes.width
        for a in range(y.start.size - 1):
            for b in range(x.start.size - 1):
                listed = list_pixel_runs(sizes, y, x, a, b, row, last, rows.source_row, runs)
                if listed == 0:
                    continue
                terms = list_terms(sizes, y, x, a, b, kernel, width, TAPS, of, into)
                for m in range(low, high):
                    channel, source_channel, block_at, _ = blocks[m]
                    for term in range(0, terms, TAPS):
                        starts, targets = places(zeros, of, term), places(zeros, into, term)
                        tile, added = zeros, 0
                        for r in range(listed):
                            shift, pixel, count, x_step = runs[r]
                            if added + count > SEQUENCE:
                                add_to(tile, sums, targets, at + block_at)
                                tile, added = zeros, 0
                            w = (first + pixel) * sizes.pitch + channel
                            tile = add_lanes(
                                tile, source, starts, source_channel + shift, gradient, w, count, x_step, sizes.pitch
                            )
                            added += count
                        add_to(tile, sums, targets, at + block_at)
