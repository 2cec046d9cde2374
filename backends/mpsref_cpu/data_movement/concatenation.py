"""Concatenation and its slices: runs of channels of each pixel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from mpsref.arguments.arrays import Array
from mpsref.kernels.concatenation import Concatenation, ConcatenationForward, ConcatenationGradient
from mpsref.operations import cached_in_problem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.data_movement.gather import copy_runs
from mpsref_cpu.half import copies_bits


@copies_bits
def forward(problem: ConcatenationForward, *xs: Array, out: Array) -> None:
    """Fill ``out`` with all sources, and with zeros between them."""
    zeros, runs = _plan(problem)
    copy_runs(math.prod(problem.batch_shape), [*xs, *zeros], [out], runs)


@cached_in_problem
def _plan(problem: ConcatenationForward) -> tuple[list[Array], npt.NDArray[np.int64]]:
    """Return the zeros after sources, a further source where there are any, and the runs."""
    joined, depth = len(problem.channels), problem.joined_shape[3]
    runs, zeros = [], []
    gaps = [problem.spec.aligned(c) - c for c in problem.channels]
    if any(gaps):
        zeros, joined = [np.zeros(max(gaps))], joined + 1
    for k, (offset, c, gap) in enumerate(zip(problem.offsets, problem.channels, gaps, strict=True)):
        runs.append((k, 0, c, joined, offset, depth, c))
        if gap:
            runs.append((joined - 1, 0, 0, joined, offset + c, depth, gap))
    return zeros, np.array(runs)


@copies_bits
def gradient(problem: ConcatenationGradient, g: Array, out: Any) -> None:
    """Fill each array of ``out`` with its slice of g."""
    copy_runs(math.prod(problem.batch_shape), [g], out if isinstance(out, tuple) else (out,), _slices(problem))


@cached_in_problem
def _slices(problem: ConcatenationGradient) -> npt.NDArray[np.int64]:
    slices, depth = enumerate(zip(problem.offsets, problem.channels, strict=True)), problem.joined_shape[3]
    return np.array([(0, offset, depth, 1 + k, 0, c, c) for k, (offset, c) in slices])


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (Concatenation, "forward"): forward,
    (Concatenation, "gradient"): gradient,
}
