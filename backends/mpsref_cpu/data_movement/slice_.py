"""Slice, and its adjoint: gathers by tables, zeros elsewhere."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.slice_ import Slice, SliceForward, SliceGradient
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.data_movement.gather import gather
from mpsref_cpu.half import copies_bits


@copies_bits
def slice_(problem: SliceForward | SliceGradient, source: Array, out: Array) -> None:
    """Fill ``out`` with the box that is cut out of ``source``, or with ``source`` at its place."""
    gather(problem.gather(), np.zeros(out.shape[3], out.dtype), source, out)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(Slice, "forward"): slice_, (Slice, "gradient"): slice_}
