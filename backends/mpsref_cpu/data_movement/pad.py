"""Padding: a gather; its gradient: the sum over all copies of a pixel, or where there are none, a gather too."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.movement import Gather, Readers
from mpsref.kernels.pad import Pad, PadForward, PadGradient
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.data_movement.gather import gather, gather_sums
from mpsref_cpu.half import copies_bits, in_float32


@copies_bits
def forward(problem: PadForward, x: Array, out: Array) -> None:
    """Fill ``out`` with the padded image."""
    gather(problem.gather(), problem.fills(x.dtype), x, out)


@copies_bits
def gradient(problem: PadGradient, g: Array, out: Array) -> None:
    """Fill ``out`` with dx."""
    table = problem.readers()
    if all(axis.order.size == axis.start.size - 1 for axis in table):  # every element is read once
        gather(_single(*table), np.zeros(out.shape[3], out.dtype), g, out)
    else:
        _sums(problem, g, out=out)


@in_float32
def _sums(problem: PadGradient, g: Array, *, out: Array) -> None:
    gather_sums(problem.readers(), g, out)


def _single(rows: Readers, columns: Readers, channels: Readers) -> Gather:
    return rows.order, columns.order, channels.order


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(Pad, "forward"): forward, (Pad, "gradient"): gradient}
