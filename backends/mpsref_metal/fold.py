"""Sums of partial results through ``msl/fold.metal``."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref_metal.launch import LONGEST, Launcher, Step, divisor, types, width_of

ROWS = 32
"""Number of rows that a thread adds up if there are few sums; the last one of a sum adds up to twice as many."""


IDENTITY = np.zeros(8, np.float32)
"""The parameters of no activation."""


def fold(launch: Launcher, rows: Array, out: Array | None = None, neuron: Array | None = None) -> Array:
    """Return the sums of ``rows`` (N, R, ...) over R, float32, or round them into ``out``.

    A thread adds up some rows, and the sums of these are folded again. ``neuron`` are the parameters of an activation,
    whose channels are the last axis.
    """
    n, number, *shape = rows.shape
    size = math.prod(shape)
    channels = size if neuron is None else shape[-1]
    width = width_of(channels, rows, *(() if out is None else (out,)))
    while True:
        each = min(max(ROWS, n * number * size // width // launch.gpu.threads), LONGEST)
        parts = -(-number // each) if number > 2 * ROWS else 1
        last = parts == 1
        count = n * parts * size // width
        scalars = [count, number, *divisor(parts), *divisor(size // width), channels // width]
        buffers = [rows, neuron if last and neuron is not None else IDENTITY, np.array(scalars, np.uint32)]
        step = Step("fold", buffers, types(width, Storage=np.float32, Gradient=rows), count)
        if last:
            return launch.in_parts(("neuron", "fold"), [step], (n, *shape), out)
        rows, number = launch.in_parts(("neuron", "fold"), [step], (n, parts, *shape)), parts
