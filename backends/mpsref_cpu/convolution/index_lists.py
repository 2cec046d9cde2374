"""Lists of pixels and terms, and of runs of either that are contiguous in memory, made by compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpsref_cpu.compiling import inlined
from mpsref_cpu.convolution.microkernels import MANY_ROWS

SEQUENCE = 1024
"""Maximum number of products added up in sequence."""


class ListSizes(NamedTuple):
    """Sizes of the two images in memory."""

    height: int
    width: int
    pitch: int
    """Distance of neighbouring result pixels."""
    source_height: int
    source_width: int
    source_pitch: int


class ListBlock(NamedTuple):
    """Neighbouring channels of the result: a row of the table of blocks."""

    channel: int
    source_channel: int
    """The first channel read; a depthwise block reads as many channels as it has."""
    weights: int
    """Index of its first packed weight."""
    channels: int
    """The number of channels, at most that of the lanes of a vector."""


class ListChunks(NamedTuple):
    """Chunks of work on images: rows ``begin`` to ``end``, some at a time, each with several chunks of channels.

    Rows are counted through all images.
    """

    begin: int
    end: int
    rows: int
    """The number of rows of a chunk."""
    channel_chunks: int
    source_row: int
    """The number of the first row of the source in memory."""
    row: int
    """The number of the first row of the result in memory."""

    @property
    def number(self) -> int:
        """The number of chunks."""
        return -(-(self.end - self.begin) // self.rows) * self.channel_chunks


class ReductionChunks(NamedTuple):
    """Chunks of work on weights, for the rows ``begin`` to ``end`` of all images.

    ``all_rows`` are cut into ``splits`` with sums of their own, and the sums of each into ``slices``.
    """

    begin: int
    end: int
    step: int
    """The number of rows that are added up at a time."""
    all_rows: int
    splits: int
    slices: int
    source_row: int
    """The number of the first row of the source in memory."""
    row: int
    """The number of the first row of the gradient in memory."""


@inlined
def reduction_chunk(rows, chunk):
    """Return the first row of a chunk, the one after its last, its split and its slice."""
    split, slice_ = divmod(chunk, rows.slices)
    first, last = rows.all_rows * split // rows.splits, rows.all_rows * (split + 1) // rows.splits
    return max(first, rows.begin), min(last, rows.end), split, slice_


@inlined
def rows_of_chunk(chunks, chunk):
    """Return the first row of a chunk, the one after its last, and the number of its chunk of channels."""
    block, channel_chunk = divmod(chunk, chunks.channel_chunks)
    first = chunks.begin + block * chunks.rows
    return first, min(first + chunks.rows, chunks.end), channel_chunk


@inlined
def most_taps(groups):
    """Return the largest number of taps of a group of an axis."""
    most = 0
    for k in range(groups.tap_start.size - 1):
        most = max(most, groups.tap_start[k + 1] - groups.tap_start[k])
    return most


@inlined
def pixel_lists(rows, sizes):
    """Return memory for lists of all pixels of the rows, and of those that fill the last tile."""
    pixels = (rows[1] - rows[0]) * sizes.width + MANY_ROWS
    return np.empty(pixels, np.int64), np.empty(pixels, np.int64)


@inlined
def list_pixels(sizes, y, x, a, b, rows, of, into):
    """List the offsets of the source and the result pixels of tap groups a and b; return their number.

    The last pixel is repeated to fill a tile.
    """
    begin, end, first_source_row, first_row = rows
    count = 0
    for image in range(begin // sizes.height, (end - 1) // sizes.height + 1):
        low, p, last = begin - image * sizes.height, y.start[a], y.start[a + 1]
        while p < last:  # for the first position from ``low`` on: of many, a chunk may have one
            middle = (p + last) // 2
            p, last = (middle + 1, last) if y.position[middle] < low else (p, middle)
        while p < y.start[a + 1] and y.position[p] < low + end - begin:
            source_row = image * sizes.source_height + y.base[p] - first_source_row
            source_start = source_row * sizes.source_width * sizes.source_pitch
            start = (image * sizes.height + y.position[p] - first_row) * sizes.width * sizes.pitch
            at, q = np.uintp(count), np.uintp(x.start[b])
            columns = x.start[b + 1] - x.start[b]
            for i in range(np.uintp(columns)):
                of[at + i] = source_start + x.base[q + i] * sizes.source_pitch
                into[at + i] = start + x.position[q + i] * sizes.pitch
            count, p = count + columns, p + 1
    for i in range(count, count + MANY_ROWS - 1 if count else 0):
        of[i], into[i] = of[count - 1], into[count - 1]
    return count


@inlined
def list_term_runs(sizes, y, x, a, b, kernel, runs):
    """List runs of terms that are contiguous in the source and in the weights; return the numbers of runs and terms.

    A run is (offset in the source relative to the pixel, first term, terms); terms are counted through the kernel.
    """
    taps, channels = kernel
    count, terms = 0, 0
    for i in range(y.tap_start[a], y.tap_start[a + 1]):
        for j in range(x.tap_start[b], x.tap_start[b + 1]):
            shift = (y.shift[i] * sizes.source_width + x.shift[j]) * sizes.source_pitch
            term = (y.tap[i] * taps + x.tap[j]) * channels
            last = runs[max(0, count - 1)]
            if count and last[0] + last[2] == shift and last[1] + last[2] == term:
                last[2] += channels
            else:
                runs[count, 0], runs[count, 1], runs[count, 2] = shift, term, channels
                count += 1
            terms += channels
    return count, terms


@inlined
def list_pixel_runs(sizes, y, x, a, b, begin, end, first_source_row, runs):
    """List runs of pixels of tap groups a and b in rows ``begin`` to ``end``; return their number.

    A run is (offset of its first pixel in the source, its number in the rows of the gradient, pixels, step in the
    source), of at most SEQUENCE pixels.
    """
    count = 0
    for image in range(begin // sizes.height, (end - 1) // sizes.height + 1):
        for p in range(y.start[a], y.start[a + 1]):
            row = image * sizes.height + y.position[p]
            if not begin <= row < end:
                continue
            source_row = (image * sizes.source_height + y.base[p] - first_source_row) * sizes.source_width
            for q in range(x.start[b], x.start[b + 1]):
                shift = (source_row + x.base[q]) * sizes.source_pitch
                pixel = (row - begin) * sizes.width + x.position[q]
                last = runs[max(0, count - 1)]
                if count and last[2] < SEQUENCE and last[1] + last[2] == pixel:
                    if last[2] == 1:
                        last[3] = shift - last[0]
                    if last[0] + last[2] * last[3] == shift:
                        last[2] += 1
                        continue
                runs[count, 0], runs[count, 1], runs[count, 2], runs[count, 3] = shift, pixel, 1, 0
                count += 1
    return count


@inlined
def list_terms(sizes, y, x, a, b, kernel, width, rows, of, into):
    """List the offsets, from a pixel and in the sums, of each tap and channel of tap groups a and b; return how many.

    The last one is repeated to fill a tile.
    """
    count = 0
    for i in range(y.tap_start[a], y.tap_start[a + 1]):
        for j in range(x.tap_start[b], x.tap_start[b + 1]):
            shift = (y.shift[i] * sizes.source_width + x.shift[j]) * sizes.source_pitch
            term = (y.tap[i] * kernel[0] + x.tap[j]) * kernel[1]
            for c in range(kernel[1]):
                of[count], into[count] = shift + c, (term + c) * width
                count += 1
    for i in range(count, count + rows - 1):
        of[i], into[i] = of[count - 1], into[count - 1]
    return count
