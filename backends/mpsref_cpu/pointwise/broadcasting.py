"""Operands of different sizes as lines of equal length, so that arithmetic runs over plain vectors.

A line is some pixels of a row of the result. An operand that advances along x and channels has its lines in memory; of
one that repeats pixels or channels, a line is expanded into a scratch vector that stays in cache.

Compiled code refers to lines by an array and an index, never by a slice: threads would contend for the reference count
of the array.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpsref.arguments.arrays import Shape
from mpsref.kernels.broadcasting import Operand
from mpsref_cpu.compiling import inlined

BLOCK = 2048
"""Approximate number of elements of a line: three lines fit into a usual L1 cache."""


class Walk(NamedTuple):
    """An operand's size, offset and strides; an index of the result is multiplied by the stride."""

    height: int
    width: int
    channels: int
    y: int
    x: int
    channel: int
    stride_y: int
    stride_x: int
    stride_channel: int


def walk_of(operand: Operand, shape: Shape) -> Walk:
    """Return the walk of ``operand`` along an image of ``shape``."""
    _, height, width, channels = shape
    return Walk(height, width, channels, *operand.offset, *operand.strides)


def is_whole(walk: Walk, shape: Shape) -> bool:
    """Whether the operand is read once, element by element, for a result of ``shape``."""
    return walk[:3] == shape[1:] and walk[6:] == (1, 1, 1)


def pixels_of_a_line(width: int, channels: int) -> int:
    """Return the pixels of a line."""
    return max(1, min(width, BLOCK // channels))


@inlined
def is_direct(walk, channels):
    """Whether a line of the operand is a part of its memory, from :func:`start_of` on."""
    return walk.stride_x == 1 and walk.stride_channel == 1 and walk.channels == channels


@inlined
def repeats(walk, width, pixels):
    """Whether all lines of an image are the same."""
    return walk.stride_y == 0 and (walk.stride_x == 0 or pixels >= width)


@inlined
def start_of(walk, n, row, column):
    """Return the index of the operand's element for channel 0 of a pixel of the result."""
    image_row = n * walk.height + walk.y + walk.stride_y * row
    return (image_row * walk.width + walk.x + walk.stride_x * column) * walk.channels + walk.channel


@inlined
def expand(source, start, walk, line, pixels, channels):
    """Write ``pixels`` pixels of the operand, the first one from ``start`` on, into ``line``."""
    step = walk.stride_x * walk.channels
    for p in range(pixels):
        at, to = np.uintp(start + p * step), np.uintp(p * channels)
        if walk.stride_channel == 1:
            for c in range(np.uintp(channels)):
                line[to + c] = source[at + c]
        else:
            value = source[at]
            for c in range(np.uintp(channels)):
                line[to + c] = value
