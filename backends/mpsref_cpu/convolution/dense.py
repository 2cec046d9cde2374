"""Dense sums over taps and channels for each result pixel: the forward pass and the data gradient.

A tile is six pixels of one tap group (see :mod:`mpsref_cpu.convolution.tap_groups`) and the channels of a block. The
source is read in place, one number for each pixel, the weights from a packed copy, a vector for each tap and channel;
the channels of neighbouring taps are one run where they are contiguous.

The terms of a sum are cut into chunks whose weights stay in the L1 cache while all pixels of a chunk of rows are
processed; the sums of the chunks are added up in the result. No sum depends on how rows and channels are distributed
among threads. Where taps are skipped, nothing is multiplied.
"""

from __future__ import annotations

import numpy as np

from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.convolution.index_lists import (
    list_pixels,
    list_term_runs,
    most_taps,
    pixel_lists,
    rows_of_chunk,
)
from mpsref_cpu.convolution.microkernels import (
    LANES,
    add_scaled,
    add_to,
    copy,
    empty_for,
    filled,
    offsets,
    rows_of,
    store_rows,
)

MOST_TERMS = 384
"""Maximum number of terms of a chunk: 24 KB of weights for 16 channels."""

HALF = (0,) * (LANES // 2)
"""A tuple of half as many lanes, for a frequent remainder of channels: 24 are 16 and 8."""


@compiled
def dense(begin, end, lanes, chunks, source, result, sizes, y, x, kernel, weights, biases, blocks, starts):
    """Compute the chunks ``begin`` to ``end`` of the result.

    The blocks of a chunk of channels are ``blocks[starts[channel_chunk]:starts[channel_chunk + 1]]``. ``lanes`` has as
    many elements as a block has lanes, ``kernel`` is (taps of a kernel row, terms of a tap), all sums begin with
    ``biases``.
    """
    for chunk in range(begin, end):
        first, last, channel_chunk = rows_of_chunk(chunks, chunk)
        rows, own = (
            (first, last, chunks.source_row, chunks.row),
            blocks[starts[channel_chunk] : starts[channel_chunk + 1]],
        )
        _dense_block(lanes, rows, source, result, sizes, y, x, kernel, weights, biases, own)


@inlined
def _dense_block(lanes, rows, source, result, sizes, y, x, kernel, weights, biases, blocks):
    width = len(lanes)
    zeros = empty_for(lanes)
    height = rows_of(zeros)
    of, into = pixel_lists(rows, sizes)
    runs = np.empty((most_taps(y) * most_taps(x), 3), np.int64)
    edge = np.empty(height * width, np.float32)
    edges = np.arange(height) * width
    for a in range(y.start.size - 1):
        for b in range(x.start.size - 1):
            count = list_pixels(sizes, y, x, a, b, rows, of, into)
            if count == 0:
                continue
            _, terms = list_term_runs(sizes, y, x, a, b, kernel, runs)
            term_chunks = max(1, -(-terms // MOST_TERMS))
            run, done = 0, 0
            for term_chunk in range(term_chunks):
                quota = terms * (term_chunk + 1) // term_chunks - terms * term_chunk // term_chunks
                for m in range(blocks.shape[0]):
                    channel, source_channel, at, channels = blocks[m]
                    start = filled(zeros, biases, channel) if term_chunk == 0 else zeros
                    for p in range(0, count, height):
                        starts = offsets(zeros, of, p)
                        tile, k, skipped, left = start, run, done, quota
                        while left > 0:
                            n = min(left, runs[k, 2] - skipped)
                            w = at + (runs[k, 1] + skipped) * width
                            shift = source_channel + runs[k, 0] + skipped
                            tile = add_scaled(tile, source, starts, shift, weights, w, n, 1, width)
                            left -= n
                            k, skipped = k + 1, 0
                        if channels < width:
                            store_rows(tile, edge, offsets(zeros, edges, 0), 0)
                            _move(
                                edge, width, result, into, p, min(height, count - p), channel, channels, term_chunk > 0
                            )
                        elif term_chunk == 0:
                            store_rows(tile, result, offsets(zeros, into, p), channel)
                        else:
                            add_to(tile, result, offsets(zeros, into, p), channel)
                while quota > 0:
                    n = min(quota, runs[run, 2] - done)
                    quota, done = quota - n, done + n
                    if done == runs[run, 2]:
                        run, done = run + 1, 0


@inlined
def _move(edge, width, result, into, p, pixels, channel, channels, add):
    """Write the channels of a narrow block from a tile in ``edge``."""
    for row in range(pixels):
        at = into[p + row] + channel
        if channels >= len(HALF) and not add:
            rest = channels - len(HALF)  # what both copies write is the same
            copy(HALF, edge, row * width, result, at)
            copy(HALF, edge, row * width + rest, result, at + rest)
            continue
        for lane in range(channels):
            value = edge[row * width + lane]
            result[at + lane] = result[at + lane] + value if add else value
