"""Dense sums over pixels: the weight gradient.

A *job* is a tap group of the rows and one of the columns (see :mod:`mpsref_cpu.convolution.tap_groups`), with the
products of its pixels and its taps. With many channels there is a job for each tap; with few, jobs are the middle of
the image and its borders, whose taps and channels together fill tiles.

A tile is six terms, pairs of a tap and a channel, and the output channels of a block. The source is read one number at
a time, in place or from a copy in the order of the tiles; the gradient from a copy of some rows, in vectors of a block.
Sums are in the order of packed weights.
"""

from __future__ import annotations

import numpy as np

from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.convolution.index_lists import (
    SEQUENCE,
    list_pixel_runs,
    list_terms,
    most_taps,
    reduction_chunk,
)
from mpsref_cpu.convolution.microkernels import ROWS, add_scaled, add_to, copy, empty, offsets

ROW = (0,) * ROWS

SHARED, SHORT = 8, 32
"""Tiles that must share a copy, and the length below which runs are copied one after the other for each job."""


@compiled
def reduce_dense(begin, end, lanes, rows, source, gradient, sizes, y, x, kernel, blocks, sums, copies):
    """Add the products of the chunks ``begin`` to ``end`` of ``rows`` to ``sums`` (splits, packed weights).

    ``kernel`` is (taps of a row, channels of a tap). ``lanes`` has as many elements as a block has lanes; a row of
    ``blocks`` is a :class:`mpsref_cpu.convolution.index_lists.Block`.
    """
    for chunk in range(begin, end):
        _reduce_dense_chunk(lanes, chunk, rows, source, gradient, sizes, y, x, kernel, blocks, sums, copies)


@inlined
def _reduce_dense_chunk(lanes, chunk, rows, source, gradient, sizes, y, x, kernel, blocks, sums, copies):
    begin, end, split, slice_ = reduction_chunk(rows, chunk)
    at, step = split * sums.shape[1], rows.step
    width = len(lanes)
    zeros = empty(ROWS, lanes)
    rows_of_copy = offsets(zeros, np.arange(ROWS), 0)
    runs = np.empty((step * sizes.width + 1, 4), np.int64)
    panel = np.empty(blocks.shape[0] * step * sizes.width * width, np.float32)
    most = most_taps(y) * most_taps(x) * kernel[1] + ROWS
    of, into = np.empty(most, np.int64), np.empty(most, np.int64)
    whole_rows = np.zeros((1, 4), np.int64)
    copied = np.empty((most // (ROWS * rows.slices) + 2) * ROWS * step * sizes.width if copies else 0, np.float32)
    for row in range(begin, end, step):
        last = min(row + step, end)
        first = (row - rows.row) * sizes.width
        all_pixels = 0
        for a in range(y.start.size - 1):
            for b in range(x.start.size - 1):
                listed = list_pixel_runs(sizes, y, x, a, b, row, last, rows.source_row, runs)
                if listed == 0:
                    continue
                terms = list_terms(sizes, y, x, a, b, kernel, width, ROWS, of, into)
                tiles = -(-terms // ROWS)
                low, high = tiles * slice_ // rows.slices, tiles * (slice_ + 1) // rows.slices
                pixels = 0
                for r in range(listed):
                    pixels += runs[r, 2]
                if copies:
                    _copy_terms(source, runs, listed, of, low, high, pixels, copied)
                if high - low >= SHARED and listed * SHORT > pixels:
                    _copy_pixels(lanes, gradient, first, sizes.pitch, runs, listed, blocks, panel)
                    all_pixels = 0
                    if copies:
                        listed = _join(runs, pixels)
                elif all_pixels == 0:
                    all_pixels = (last - row) * sizes.width
                    whole_rows[0, 2] = all_pixels
                    _copy_pixels(lanes, gradient, first, sizes.pitch, whole_rows, 1, blocks, panel)
                for m in range(blocks.shape[0]):
                    _, source_channel, block_at, _ = blocks[m]
                    vectors = m * (all_pixels if all_pixels else pixels) * width
                    for k in range(low, high):
                        starts, targets = offsets(zeros, of, k * ROWS), offsets(zeros, into, k * ROWS)
                        tile, added, done = zeros, 0, (k - low) * pixels * ROWS
                        for r in range(listed):
                            shift, pixel, count, x_step = runs[r]
                            if added + count > SEQUENCE:
                                add_to(tile, sums, targets, at + block_at)
                                tile, added = zeros, 0
                            w = vectors + pixel * width
                            if copies:
                                tile = add_scaled(tile, copied, rows_of_copy, done, panel, w, count, ROWS, width)
                                done += count * ROWS
                            else:
                                shift += source_channel
                                tile = add_scaled(tile, source, starts, shift, panel, w, count, x_step, width)
                            added += count
                        add_to(tile, sums, targets, at + block_at)


@inlined
def _join(runs, pixels):
    """Replace all runs, whose pixels are contiguous now, by as few as possible."""
    listed = -(-pixels // SEQUENCE)
    for r in range(listed):
        runs[r, 1], runs[r, 2] = r * SEQUENCE, min(SEQUENCE, pixels - r * SEQUENCE)
    return listed


@inlined
def _copy_pixels(lanes, gradient, first, pitch, runs, listed, blocks, panel):
    """Fill ``panel``: for each block its channels of the pixels of all runs, zeros in lanes without one.

    Runs are changed to refer to pixels of the panel.
    """
    width, at = len(lanes), 0
    for m in range(blocks.shape[0]):
        channel, channels = blocks[m, 0], blocks[m, 3]
        for r in range(listed):
            start = (first + runs[r, 1]) * pitch + channel
            for _ in range(runs[r, 2]):
                if channels == width:
                    copy(lanes, gradient, start, panel, at)
                else:
                    for lane in range(width):
                        panel[at + lane] = gradient[start + lane] if lane < channels else np.float32(0)
                start += pitch
                at += width
    at = 0
    for r in range(listed):
        runs[r, 1] = at
        at += runs[r, 2]


@inlined
def _copy_terms(source, runs, listed, of, low, high, pixels, copied):
    """Copy the terms of tiles ``low`` to ``high``: for each tile the pixels of all runs, ROWS numbers of each.

    The terms of a tile are contiguous in the source, except those that repeat the last one.
    """
    done = 0
    for r in range(listed):
        for i in range(runs[r, 2]):
            pixel = runs[r, 0] + i * runs[r, 3]
            for k in range(low, high):
                at, term = ((k - low) * pixels + done) * ROWS, k * ROWS
                if of[term + ROWS - 1] - of[term] == ROWS - 1:
                    copy(ROW, source, pixel + of[term], copied, at)
                else:
                    for t in range(ROWS):
                        copied[at + t] = source[pixel + of[term + t]]
            done += 1
