"""Copies of rows for depthwise kernels with several results a channel, and the last step of a convolution.

Other images are computed in place.
"""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref_cpu.activation.functions import value
from mpsref_cpu.compiling import compiled
from mpsref_cpu.convolution.index_lists import ListSizes, rows_of_chunk
from mpsref_cpu.convolution.tap_groups import Span
from mpsref_cpu.threads import for_rows

COPIES = 4
"""Approximate number of chunks in which images are copied, one after the other."""


def cut_rows(rows: int, block: int) -> list[tuple[int, int]]:
    """Cut rows, in multiples of ``block``, into the chunks that are copied at a time: (first, after the last)."""
    step = block * -(-rows // (COPIES * block))
    return [(first, min(first + step, rows)) for first in range(0, rows, step)]


def source_rows(stored: Array, span: Span, sizes: ListSizes, repeats: int, begin: int, end: int) -> tuple[Array, int]:
    """Return the source rows that result rows ``begin`` to ``end`` read, and the number of the first.

    Rows are counted through all images; each channel comes ``repeats`` times, as ``sizes`` say.
    """
    images, rows = np.divmod(np.arange(begin, end), sizes.height)
    used = span.high[rows] >= 0
    if not used.any():
        return np.empty(0, np.float32), 0
    above = images[used] * sizes.source_height
    first = int((above + span.low[rows[used]]).min())
    count = int((above + span.high[rows[used]]).max()) + 1 - first
    pitch = sizes.source_width * sizes.source_pitch
    return repeated(stored, first * pitch // repeats, count * pitch, repeats), first


def repeated(stored: Array, first: int, size: int, times: int) -> Array:
    """Return ``size`` numbers from ``stored[first:]``, each ``times`` times in a row."""
    if times == 1:
        return stored[first : first + size]
    wide = np.empty(size, np.float32)
    for_rows(_repeat, size // times, stored, first, wide, times, nbytes=wide.nbytes)
    return wide


@compiled
def _repeat(begin, end, stored, first, wide, times):
    """Fill ``wide`` with the numbers ``begin`` to ``end`` of ``stored[first:]``, each ``times`` times."""
    for i in range(begin, end):
        number = stored[first + i]
        for k in range(times):
            wide[i * times + k] = number


@compiled
def finish(begin, end, chunks, width, bounds, many, neuron, sums, result):
    """Store the activation ``neuron`` of the sum of each ``many`` neighbours of ``sums`` as channels of the result.

    The channels of a chunk are ``bounds[channel_chunk]`` to ``bounds[channel_chunk + 1]``; rows are ``width`` long.
    """
    channels = bounds[-1]
    for chunk in range(begin, end):
        first_row, last_row, channel_chunk = rows_of_chunk(chunks, chunk)
        first = np.uintp(bounds[channel_chunk])
        count = np.uintp(bounds[channel_chunk + 1]) - first
        for pixel in range(first_row * width, last_row * width):
            p = np.uintp((pixel - chunks.row * width) * channels * many) + first * np.uintp(many)
            q = np.uintp(pixel * channels) + first
            if many == 1:
                for c in range(count):
                    result[q + c] = value(neuron, sums[p + c], c + first)
            else:
                for c in range(count):
                    total = np.float32(0)
                    for k in range(np.uintp(many)):
                        total += sums[p + c * np.uintp(many) + k]
                    result[q + c] = value(neuron, total, c + first)
