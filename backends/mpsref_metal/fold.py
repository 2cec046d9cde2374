"""Sums of partial results through ``msl/fold.metal``."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref_metal.launch import LONGEST, Launcher, Step, divisor, types, width_of

ROWS = 32
"""Number of rows that a thread adds up if there are few sums; the last one of a sum adds up to twice as many."""

LANES, READ = 8, 8
"""Number of threads that share the rows of a part where there are few, and of rows that a thread reads at once; the
latter as in the MSL source."""

FILES = "lanes", "neuron", "fold"

IDENTITY = np.zeros(8, np.float32)
"""The parameters of no activation."""


def fold(launch: Launcher, rows: Array, out: Array | None = None, neuron: Array | None = None) -> Array:
    """Return the sums of ``rows`` (N, R, ...) over R, float32, or round them into ``out``.

    A thread, or ``LANES`` of them, adds up some rows, and the sums of these are folded again. ``neuron`` are the
    parameters of an activation, whose channels are the last axis.
    """
    n, number, *shape = rows.shape
    size = math.prod(shape)
    channels = size if neuron is None else shape[-1]
    width = width_of(channels, rows, *(() if out is None else (out,)))
    packs, most = n * size // width, launch.gpu.threads
    while True:
        lanes = LANES if packs * LANES <= most and packs * number <= most * READ else 1
        each = min(max(ROWS, packs * number // most), LONGEST) * lanes
        parts = -(-number // each) if number > 2 * ROWS * lanes else 1
        last = parts == 1
        count = parts * packs
        scalars = [count, number, *divisor(parts), *divisor(size // width), channels // width]
        buffers = [rows, neuron if last and neuron is not None else IDENTITY, np.array(scalars, np.uint32)]
        known = *types(width, Storage=np.float32, Gradient=rows), f"constant constexpr uint LANES = {lanes};"
        step = Step("fold", buffers, known, count * lanes)
        if last:
            return launch.in_parts(FILES, [step], (n, *shape), out)
        rows, number = launch.in_parts(FILES, [step], (n, parts, *shape)), parts
