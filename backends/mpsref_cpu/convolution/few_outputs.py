"""Sums over taps and many channels for few results a pixel, such as the data gradient of a network's first layer.

Where a pixel has fewer results than a register has lanes, vectors run along the channels that are summed over, of six
pixels and of the weights of one result. At the end the lanes of each pixel are added up.
"""

from __future__ import annotations

import numpy as np

from mpsref_cpu.compiling import compiled
from mpsref_cpu.convolution.index_lists import (
    SEQUENCE,
    list_pixels,
    list_term_runs,
    most_taps,
    pixel_lists,
    rows_of_chunk,
)
from mpsref_cpu.convolution.microkernels import ROWS, add_products, empty, offsets, row_sums


@compiled
def few_outputs(begin, end, lanes, chunks, source, result, sizes, y, x, kernel, weights, biases, blocks, starts):
    """Compute the sums of :func:`mpsref_cpu.convolution.dense.dense`; each block is a channel of the result.

    The number of terms of a tap is a multiple of the lanes.
    """
    for chunk in range(begin, end):
        first_row, last_row, channel_chunk = rows_of_chunk(chunks, chunk)
        rows = first_row, last_row, chunks.source_row, chunks.row
        own = blocks[starts[channel_chunk] : starts[channel_chunk + 1]]
        width = len(lanes)
        zeros = empty(ROWS, lanes)
        of, into = pixel_lists(rows, sizes)
        runs = np.empty((most_taps(y) * most_taps(x), 3), np.int64)
        totals = np.empty(ROWS, np.float32)
        for a in range(y.start.size - 1):
            for b in range(x.start.size - 1):
                count = list_pixels(sizes, y, x, a, b, rows, of, into)
                if count == 0:
                    continue
                _, terms = list_term_runs(sizes, y, x, a, b, kernel, runs)
                for p in range(0, count, ROWS):
                    places = offsets(zeros, of, p)
                    for m in range(own.shape[0]):
                        channel, source_channel, at, _ = own[m]
                        totals[:] = biases[channel]
                        run, done, left = 0, 0, terms // width
                        while left > 0:
                            tile, steps = zeros, min(left, SEQUENCE)
                            left -= steps
                            while steps > 0:
                                n = min(steps, runs[run, 2] // width - done)
                                w = at + runs[run, 1] + done * width
                                shift = source_channel + runs[run, 0] + done * width
                                tile = add_products(tile, source, places, shift, weights, w, n, width, width)
                                steps, done = steps - n, done + n
                                if done * width == runs[run, 2]:
                                    run, done = run + 1, 0
                            sums = row_sums(tile)
                            for row in range(ROWS):
                                totals[row] += sums[row]
                        for row in range(min(ROWS, count - p)):
                            result[into[p + row] + channel] = totals[row]
