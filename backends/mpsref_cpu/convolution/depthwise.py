"""Depthwise sums: each channel of the result reads one of the source, in both passes and for the weight gradient.

Tiles are pixels and the channels of a block for images, taps and the channels of a block for weights. Vectors of
channels are read in place.
"""

from __future__ import annotations

import numpy as np

from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.convolution.index_lists import (
    SEQUENCE,
    list_pixel_runs,
    list_pixels,
    list_terms,
    most_taps,
    pixel_lists,
    reduction_chunk,
    rows_of_chunk,
)
from mpsref_cpu.convolution.microkernels import (
    ROWS,
    add_products,
    add_row,
    add_taps,
    add_to,
    empty,
    filled,
    offsets,
    prefetch,
    store_rows,
)

MOST_TAPS = 512
"""Maximum number of taps added up in sequence."""

ADJACENT = 4
"""Number of adjacent pixels of a tile: 4 sums and 3 taps of two registers each, and 2 for a pixel, are all 16."""

TAPS = 5
"""Number of taps of a tile: five rows of two registers each; operands are read from memory."""


@compiled
def depthwise(
    begin, end, lanes, chunks, source, result, sizes, y, x, kernel, weights, biases, blocks, starts, adjacent
):
    """Compute the sums of :func:`mpsref_cpu.convolution.dense.dense` where each channel reads one of the source.

    ``adjacent`` is a pair of tuples, whose lengths are a number of taps and a distance. :func:`_row` computes groups of
    columns with so many adjacent taps, if the columns are so many pixels apart.
    """
    for chunk in range(begin, end):
        first_row, last_row, channel_chunk = rows_of_chunk(chunks, chunk)
        rows = first_row, last_row, chunks.source_row, chunks.row
        own = blocks[starts[channel_chunk] : starts[channel_chunk + 1]]
        width = len(lanes)
        zeros = empty(ROWS, lanes)
        of, into = pixel_lists(rows, sizes)
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
                if taps <= MOST_TAPS and _is_adjacent(x, b, adjacent):
                    for p in range(0, count, columns):
                        place = p, columns, taps
                        _row(
                            lanes, place, source, result, of, into, sizes, shifts, terms, weights, biases, own, adjacent
                        )
                    continue
                for first in range(0, max(1, taps), MOST_TAPS):
                    n = min(MOST_TAPS, taps - first)
                    for p in range(0, count, ROWS):
                        places, targets = offsets(zeros, of, p), offsets(zeros, into, p)
                        for m in range(own.shape[0]):
                            channel, source_channel, at, _ = own[m]
                            start = filled(zeros, biases, channel) if first == 0 else zeros
                            taken = first, n
                            tile = add_taps(start, source, places, source_channel, shifts, weights, at, terms, taken)
                            if first == 0:
                                store_rows(tile, result, targets, channel)
                            else:
                                add_to(tile, result, targets, channel)


@inlined
def _is_adjacent(x, b, adjacent):
    """Return whether taps and columns of a group are adjacent, as :func:`_row` requires."""
    taps, stride = len(adjacent[0]), len(adjacent[1])
    first, last, begin, end = x.start[b], x.start[b + 1], x.tap_start[b], x.tap_start[b + 1]
    if taps < 2 or end - begin != taps or last - first < ADJACENT:
        return False
    alike = True
    for i in range(begin + 1, end):
        alike &= x.shift[i] - x.shift[i - 1] == 1
    for q in range(first + 1, last):
        alike &= x.base[q] - x.base[q - 1] == stride
    return alike


@inlined
def _row(lanes, place, source, result, of, into, sizes, shifts, terms, weights, biases, blocks, adjacent):
    """Compute adjacent pixels of a row, ADJACENT at a time; the last vector may repeat some.

    Pixels that the row below reads are prefetched, because processors do not prefetch several short runs at once.
    """
    first, columns, taps = place
    like, kernel, stride = empty(ADJACENT, lanes), len(adjacent[0]), len(adjacent[1])
    row = sizes.source_width * sizes.source_pitch
    for q in range(0, columns, ADJACENT):
        p = first + min(q, columns - ADJACENT)
        targets = offsets(like, into, p)
        below = of[p] + shifts[taps - 1] + row
        for m in range(blocks.shape[0]):
            channel, source_channel, at, _ = blocks[m]
            for i in range(stride):
                for j in range(stride):
                    prefetch(like, source, below + i * row + (source_channel * stride + j * len(lanes)) * ADJACENT)
            tile = filled(like, biases, channel)
            for k in range(0, taps, kernel):
                pixel = of[p] + shifts[k] + source_channel
                tile = add_row(tile, source, pixel, sizes.source_pitch, weights, at, terms, k, adjacent[0], adjacent[1])
            store_rows(tile, result, targets, channel)


@compiled
def reduce_depthwise(begin, end, lanes, rows, source, gradient, sizes, y, x, kernel, blocks, sums):
    """Add the products of :func:`reduce_dense` where each channel has one source channel; slices consist of blocks."""
    for chunk in range(begin, end):
        first_row, end_row, split, slice_ = reduction_chunk(rows, chunk)
        at, step, pitch = split * sums.shape[1], rows.step, sizes.pitch
        width = len(lanes)
        zeros = empty(TAPS, lanes)
        runs = np.empty((step * sizes.width + 1, 4), np.int64)
        most = most_taps(y) * most_taps(x) + TAPS
        of, into = np.empty(most, np.int64), np.empty(most, np.int64)
        low, high = blocks.shape[0] * slice_ // rows.slices, blocks.shape[0] * (slice_ + 1) // rows.slices
        for row in range(first_row, end_row, step):
            last = min(row + step, end_row)
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
                            starts, targets = offsets(zeros, of, term), offsets(zeros, into, term)
                            tile, added = zeros, 0
                            for r in range(listed):
                                shift, pixel, count, x_step = runs[r]
                                if added + count > SEQUENCE:
                                    add_to(tile, sums, targets, at + block_at)
                                    tile, added = zeros, 0
                                at_x, at_g = source_channel + shift, (first + pixel) * sizes.pitch + channel
                                tile = add_products(tile, source, starts, at_x, gradient, at_g, count, x_step, pitch)
                                added += count
                            add_to(tile, sums, targets, at + block_at)
