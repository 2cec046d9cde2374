"""Arguments of ``msl/operands.metal`` for a problem with two operands."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.broadcasting import BroadcastProblem
from mpsref_metal.launch import extent, types, width_of


def pair_width(problem: BroadcastProblem, x: Array, y: Array, *others: Array) -> int:
    """Return how many channels a thread computes; ``others`` are images with the channels of the result."""
    channels, operands = problem.shape[3], ((problem.spec.operands[0], x), (problem.spec.operands[1], y))
    along = [(operand, image) for operand, image in operands if operand.strides[2]]
    lengths = (length for operand, image in along for length in (image.shape[-1], operand.offset[2]))
    return width_of(math.gcd(channels, *lengths), *others, *(image for _, image in along))


def pairing(problem: BroadcastProblem, count: int, width: int, threads: tuple[int, int, int] | None = None) -> Array:
    """Return the struct ``Pairing`` for a launch of ``count`` threads; an operand with the stride 0 has no packs.

    ``threads`` is the number of threads along the rows, columns and packs, by default that of the result.
    """
    walks: list[int] = []
    for operand, shape in zip(problem.spec.operands, (problem.source_shape, problem.secondary_shape), strict=True):
        pack = width if operand.strides[2] else 1
        (_, height, columns, channels), (y, x, channel) = shape, operand.offset
        walks += [height, columns, channels // pack, y, x, channel // pack, *operand.strides]
    _, height, columns, channels = problem.shape
    size = height, columns, channels // width
    return np.array([count, *size, *walks, *extent(*(threads or size))], np.uint32)


def types_of(problem: BroadcastProblem, x: Array, y: Array, width: int) -> tuple[str, ...]:
    """Return the lines of MSL with the types of both operands."""
    known = types(width)
    for (name, image), operand in zip((("Primary", x), ("Secondary", y)), problem.spec.operands, strict=True):
        known += types(width if operand.strides[2] else 1, **{name: image})[-1:]
    return known
