"""What compiled code lists before it computes: pixels, terms, and runs of either that follow each other in memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref_cpu.compiling import inlined
from mpsref_cpu.convolution.microkernels import ROWS
from mpsref_cpu.convolution.tap_groups import Parts

SEQUENCE = 1024
"""Products that are added up in sequence, at most."""


class Sizes(NamedTuple):
    """Of the two images in memory."""

    height: int
    width: int
    pitch: int
    """Numbers from one result pixel to the next."""
    source_height: int
    source_width: int
    source_pitch: int


class Block(NamedTuple):
    """Neighbouring channels of the result; a row of the table of blocks."""

    channel: int
    source_channel: int
    """The first that it reads; a depthwise block reads as many as it has."""
    weights: int
    """Where its packed weights begin."""
    channels: int
    """As many as there are lanes, or fewer."""


class Units(NamedTuple):
    """Pieces of work on images: blocks of rows, and of each the shares of the channels. Piece 0 begins at row begin.

    Rows are counted through all images.
    """

    begin: int
    end: int
    rows: int
    """Of a block."""
    shares: int
    source_row: int
    """The first row of the source in memory."""
    row: int
    """The first row of the result in memory."""

    @property
    def pieces(self) -> int:
        """How many there are."""
        return -(-(self.end - self.begin) // self.rows) * self.shares


class Rows(NamedTuple):
    """Pieces of work on weights: the rows ``begin`` to ``end`` of all images, in the parts that they belong to.

    ``all_rows`` are cut into parts, each with sums of its own, and the sums of a part into slices.
    """

    begin: int
    end: int
    step: int
    """Rows that are added up at a time."""
    all_rows: int
    parts: int
    slices: int
    source_row: int
    """The first row of the source in memory."""
    row: int
    """The first row of the gradient in memory."""


@inlined
def part_of(rows: Rows, unit: int) -> Any:
    """Return the first row of a piece, the one after its last, its part and its slice."""
    part, slice_ = divmod(unit, rows.slices)
    first, last = rows.all_rows * part // rows.parts, rows.all_rows * (part + 1) // rows.parts
    return max(first, rows.begin), min(last, rows.end), part, slice_


@inlined
def rows_of(units: Units, unit: int) -> Any:
    """Return the first row of a piece, the one after its last, and the number of its share."""
    block, share = divmod(unit, units.shares)
    first = units.begin + block * units.rows
    return first, min(first + units.rows, units.end), share


@inlined
def most_taps(parts: Parts) -> int:
    """Return how many taps any part of an axis has."""
    most = 0
    for k in range(parts.tap_start.size - 1):
        most = max(most, parts.tap_start[k + 1] - parts.tap_start[k])
    return most


@inlined
def room(rows: Any, sizes: Sizes) -> Any:
    """Return room for the lists of all pixels of the rows, and of the rest of the last tile."""
    pixels = (rows[1] - rows[0]) * sizes.width + ROWS
    return np.empty(pixels, np.int64), np.empty(pixels, np.int64)


@inlined
def list_pixels(sizes: Sizes, y: Parts, x: Parts, a: int, b: int, rows: Any, of: Any, into: Any) -> int:
    """List where the source and the result pixels of parts a and b begin; return how many there are.

    The lists go on with the last pixel, for a whole tile.
    """
    begin, end, first_source_row, first_row = rows
    count = 0
    for image in range(begin // sizes.height, (end - 1) // sizes.height + 1):
        for p in range(y.start[a], y.start[a + 1]):
            row = image * sizes.height + y.position[p]
            if begin <= row < end:
                source_row = image * sizes.source_height + y.base[p] - first_source_row
                source_start = source_row * sizes.source_width * sizes.source_pitch
                start = (row - first_row) * sizes.width * sizes.pitch
                at, q = np.uintp(count), np.uintp(x.start[b])
                columns = x.start[b + 1] - x.start[b]
                for i in range(np.uintp(columns)):
                    of[at + i] = source_start + x.base[q + i] * sizes.source_pitch
                    into[at + i] = start + x.position[q + i] * sizes.pitch
                count += columns
    for i in range(count, count + ROWS - 1 if count else 0):
        of[i], into[i] = of[count - 1], into[count - 1]
    return count


@inlined
def list_term_runs(sizes: Sizes, y: Parts, x: Parts, a: int, b: int, kernel: Any, runs: Any) -> Any:
    """List runs of terms that are neighbours, in the source and in the weights; return how many, and all terms.

    A run is (place in the source relative to the pixel, first term, terms); terms are counted through the kernel.
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
def list_pixel_runs(
    sizes: Sizes, y: Parts, x: Parts, a: int, b: int, begin: int, end: int, first_source_row: int, runs: Any
) -> int:
    """List runs of pixels that parts a and b join in rows ``begin`` to ``end``; return how many there are.

    A run is (place of its first pixel in the source, and in the rows of the gradient, pixels, step in the source), of
    at most SEQUENCE pixels.
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
def list_terms(
    sizes: Sizes, y: Parts, x: Parts, a: int, b: int, kernel: Any, width: int, rows: int, of: Any, into: Any
) -> int:
    """List where each tap and channel of parts a and b is, relative to a pixel and in the sums; return how many.

    The lists go on with the last one, for a whole tile.
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
