"""Arguments of ``msl/operands.metal`` and ``msl/fold_rows.metal`` for a problem with two operands."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.broadcasting import BroadcastProblem
from mpsref_metal.launch import Launcher, divisor, extent, short_sums, types, width_of

IN_A_FOLD = 32
"""Maximum number of rows that a thread of ``fold_rows`` adds up."""


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


def fold_rows(launch: Launcher, rows: Array) -> Array:
    """Return the sum of ``rows`` (N, H, W, C), float32, over H: (N, 1, W, C).

    A thread adds at most ``IN_A_FOLD`` rows, and the sums of these are folded again.
    """
    n, height, columns, channels = rows.shape
    width = width_of(columns * channels, rows)
    size = columns * channels // width
    while height > 1:
        parts = -(-height // IN_A_FOLD)
        shape, count = (n, parts, columns, channels), n * parts * size
        table = np.array([count, height, *divisor(parts), *divisor(size)], np.uint32)
        known = *types(width), *short_sums(IN_A_FOLD)
        rows = launch.run(("fold_rows",), "fold_rows", [rows, table], [(shape, np.float32)], known, count)[0]
        height = parts
    return rows
