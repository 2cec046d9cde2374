"""Dense sums over taps and channels, result pixel by result pixel: the forward pass and the data gradient.

Six pixels of one part (see :mod:`mpsref_cpu.convolution.tap_groups`) and the channels of a block are a tile in
registers. The source is read in place, one number for each pixel, the weights from a packed copy, a vector for each tap
and channel; the channels of neighbouring taps are one run where they are neighbours in memory.

The terms of a sum are cut into pieces, whose weights stay in the first-level cache while all pixels of a block of rows
pass by; the sums of the pieces are added up in the result. No sum depends on how rows and channels are shared among
threads. Where taps are skipped, nothing is multiplied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.convolution.index_lists import Sizes, Units, list_pixels, list_term_runs, most_taps, room, rows_of
from mpsref_cpu.convolution.microkernels import LANES, ROWS, add_scaled, add_to, copy, empty, filled, places, put
from mpsref_cpu.convolution.tap_groups import Parts

MOST_TERMS = 384
"""ErrorBound of a piece, at most: 24 KB of weights for 16 channels."""

HALF = (0,) * (LANES // 2)
"""As many lanes as the rest of the channels often has: 24 are 16 and 8."""


@compiled
def dense(
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
) -> None:
    """Compute the pieces ``begin`` to ``end`` of the result, of each the blocks of its share.

    These are ``blocks[starts[share]:starts[share + 1]]``. ``lanes`` has as many elements as a block has lanes,
    ``kernel`` is (taps of a kernel row, terms of a tap), ``biases`` begin all sums.
    """
    for unit in range(begin, end):
        first, last, share = rows_of(units, unit)
        rows, own = (first, last, units.source_row, units.row), blocks[starts[share] : starts[share + 1]]
        _dense_block(lanes, rows, source, result, sizes, y, x, kernel, weights, biases, own)


@inlined
def _dense_block(
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
) -> None:
    width = len(lanes)
    zeros = empty(ROWS, lanes)
    of, into = room(rows, sizes)
    runs = np.empty((most_taps(y) * most_taps(x), 3), np.int64)
    edge = np.empty(ROWS * width, np.float32)
    edges = np.arange(ROWS) * width
    for a in range(y.start.size - 1):
        for b in range(x.start.size - 1):
            count = list_pixels(sizes, y, x, a, b, rows, of, into)
            if count == 0:
                continue
            _, terms = list_term_runs(sizes, y, x, a, b, kernel, runs)
            pieces = max(1, -(-terms // MOST_TERMS))
            run, done = 0, 0
            for piece in range(pieces):
                quota = terms * (piece + 1) // pieces - terms * piece // pieces
                for m in range(blocks.shape[0]):
                    channel, source_channel, at, channels = blocks[m]
                    start = filled(zeros, biases, channel) if piece == 0 else zeros
                    for p in range(0, count, ROWS):
                        starts = places(zeros, of, p)
                        tile, k, skipped, left = start, run, done, quota
                        while left > 0:
                            n = min(left, runs[k, 2] - skipped)
                            w = at + (runs[k, 1] + skipped) * width
                            shift = source_channel + runs[k, 0] + skipped
                            tile = add_scaled(tile, source, starts, shift, weights, w, n, 1, width)
                            left -= n
                            k, skipped = k + 1, 0
                        if channels < width:
                            put(tile, edge, places(zeros, edges, 0), 0)
                            _move(edge, width, result, into, p, min(ROWS, count - p), channel, channels, piece > 0)
                        elif piece == 0:
                            put(tile, result, places(zeros, into, p), channel)
                        else:
                            add_to(tile, result, places(zeros, into, p), channel)
                while quota > 0:
                    n = min(quota, runs[run, 2] - done)
                    quota, done = quota - n, done + n
                    if done == runs[run, 2]:
                        run, done = run + 1, 0


@inlined
def _move(
    edge: Any, width: int, result: Any, into: Any, p: int, pixels: int, channel: int, channels: int, add: bool
) -> None:
    """Write the channels that a narrow block has from a tile in ``edge``."""
    for row in range(pixels):
        at = into[p + row] + channel
        if channels == len(HALF) and not add:
            copy(HALF, edge, row * width, result, at)
            continue
        for lane in range(channels):
            value = edge[row * width + lane]
            result[at + lane] = result[at + lane] + value if add else value
