"""Dense sums over pixels: the weight gradient.

A *job* is a tap group of the rows and one of the columns (see :mod:`mpsref_cpu.convolution.tap_groups`), with the
products of its pixels and its taps. With many channels there is a job for each tap; with few, jobs are the middle of
the image and its borders, whose taps and channels together fill tiles.

A tile is six terms, pairs of a tap and a channel, and the output channels of a block. The source is read in place, one
number at a time, the gradient from a copy of some rows, in vectors of a block. Sums are in the order of packed weights.
"""

from __future__ import annotations

import numpy as np

from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.convolution.index_lists import (
    SEQUENCE,
    ListSizes,
    list_pixels,
    list_terms,
    most_taps,
    pixel_lists,
    reduction_chunk,
)
from mpsref_cpu.convolution.microkernels import add_listed, add_to, copy, empty, offsets


@compiled
def reduce_dense(begin, end, height, lanes, rows, source, gradient, sizes, y, x, kernel, blocks, sums):
    """Add the products of the chunks ``begin`` to ``end`` of ``rows`` to ``sums`` (splits, packed weights).

    ``kernel`` is (taps of a row, channels of a tap). ``height`` has as many elements as a tile has terms, and ``lanes``
    as a block has lanes; a row of ``blocks`` is a :class:`mpsref_cpu.convolution.index_lists.ListBlock`.
    """
    for chunk in range(begin, end):
        _reduce_dense_chunk(height, lanes, chunk, rows, source, gradient, sizes, y, x, kernel, blocks, sums)


@inlined
def _reduce_dense_chunk(height, lanes, chunk, rows, source, gradient, sizes, y, x, kernel, blocks, sums):
    begin, end, split, slice_ = reduction_chunk(rows, chunk)
    at, width = split * sums.shape[1], len(lanes)
    share = blocks.shape[0] * slice_, blocks.shape[0] * (slice_ + 1)
    skipped = share[0] // rows.slices
    blocks = blocks[skipped : -(-share[1] // rows.slices)]  # those of the tiles of this slice
    zeros, terms_of_tile = empty(height, lanes), len(height)
    in_panel = ListSizes(sizes.height, sizes.width, width, sizes.source_height, sizes.source_width, sizes.source_pitch)
    pixels, vectors = pixel_lists((0, rows.step), sizes)
    panel = np.empty(blocks.shape[0] * rows.step * sizes.width * width, np.float32)
    most = most_taps(y) * most_taps(x) * kernel[1] + terms_of_tile
    of, into = np.empty(most, np.int64), np.empty(most, np.int64)
    for row in range(begin, end, rows.step):
        last = min(row + rows.step, end)
        size = (last - row) * sizes.width
        start = (row - rows.row) * sizes.width * sizes.pitch
        _copy_pixels(lanes, gradient, start, size, sizes.pitch, blocks, panel)
        for a in range(y.start.size - 1):
            for b in range(x.start.size - 1):
                count = list_pixels(in_panel, y, x, a, b, (row, last, rows.source_row, row), pixels, vectors)
                if count == 0:
                    continue
                terms = list_terms(sizes, y, x, a, b, kernel, width, terms_of_tile, of, into)
                tiles = -(-terms // terms_of_tile)
                low, high = tiles * share[0] // rows.slices, tiles * share[1] // rows.slices
                for m in range(blocks.shape[0]):
                    _, source_channel, block_at, _ = blocks[m]
                    panel_at = m * size * width
                    before = (skipped + m) * tiles
                    for k in range(max(low - before, 0), min(high - before, tiles)):
                        starts, targets = offsets(zeros, of, k * terms_of_tile), offsets(zeros, into, k * terms_of_tile)
                        for first in range(0, count, SEQUENCE):
                            taken = first, min(SEQUENCE, count - first)
                            tile = add_listed(
                                zeros, source, starts, source_channel, pixels, panel, panel_at, vectors, taken
                            )
                            add_to(tile, sums, targets, at + block_at)


@inlined
def _copy_pixels(lanes, gradient, first, pixels, pitch, blocks, panel):
    """Fill ``panel``: for each block its channels of the pixels from ``first`` on, zeros in lanes without one."""
    width, at = len(lanes), 0
    for m in range(blocks.shape[0]):
        channel, channels = blocks[m, 0], blocks[m, 3]
        start = first + channel
        for _ in range(pixels):
            if channels == width:
                copy(lanes, gradient, start, panel, at)
            else:
                for lane in range(width):
                    panel[at + lane] = gradient[start + lane] if lane < channels else np.float32(0)
            start += pitch
            at += width
