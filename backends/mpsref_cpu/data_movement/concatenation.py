"""Concatenation and its slices: runs of channels of each pixel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.concatenation import Concatenation, ConcatenationForward, ConcatenationGradient
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.data_movement.gather import Run, copy_runs
from mpsref_cpu.half import copies_bits


@copies_bits
def forward(problem: ConcatenationForward, *xs: Array, out: Array) -> None:
    """Fill ``out`` with all sources, and with zeros between them."""
    runs, depth = [], out.shape[3]
    for offset, c, x in zip(problem.offsets, problem.channels, xs, strict=True):
        runs.append(Run(x, 0, c, out, offset, depth, c))
        if gap := problem.spec.aligned(c) - c:
            runs.append(Run(np.zeros(gap), 0, 0, out, offset + c, depth, gap))
    copy_runs(math.prod(out.shape[:3]), runs)


@copies_bits
def gradient(problem: ConcatenationGradient, g: Array, out: Any) -> None:
    """Fill each array of ``out`` with its slice of g."""
    outs, depth = out if isinstance(out, tuple) else (out,), g.shape[3]
    slices = zip(problem.offsets, problem.channels, outs, strict=True)
    copy_runs(math.prod(g.shape[:3]), [Run(g, offset, depth, dx, 0, c, c) for offset, c, dx in slices])


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (Concatenation, "forward"): forward,
    (Concatenation, "gradient"): gradient,
}
