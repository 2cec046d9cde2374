"""Concatenation and its slices: one source after the other."""

from __future__ import annotations

import math
from typing import Any

from mpsref.arguments.arrays import Array
from mpsref.kernels.concatenation import Concatenation, ConcatenationForward, ConcatenationGradient
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.data_movement.gather import copy_channels
from mpsref_cpu.half import copies_bits
from mpsref_cpu.threads import as_storage, for_rows


@copies_bits
def forward(problem: ConcatenationForward, *xs: Array, out: Array) -> None:
    """Fill ``out`` with all sources."""
    for offset, c, x in zip(problem.offsets, problem.channels, xs, strict=True):
        _copy(x.astype(out.dtype, copy=False), out, (c, 0, out.shape[3], offset, c, problem.spec.aligned(c)))


@copies_bits
def gradient(problem: ConcatenationGradient, g: Array, out: Any) -> None:
    """Fill each array of ``out`` with its slice of g."""
    outs = out if isinstance(out, tuple) else (out,)
    for offset, c, dx in zip(problem.offsets, problem.channels, outs, strict=True):
        _copy(g, dx, (g.shape[3], offset, c, 0, c, c))


def _copy(source: Array, target: Array, sizes: tuple[int, ...]) -> None:
    nbytes = 2 * min(source.nbytes, target.nbytes)
    for_rows(copy_channels, math.prod(target.shape[:3]), as_storage(source), as_storage(target), sizes, nbytes=nbytes)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (Concatenation, "forward"): forward,
    (Concatenation, "gradient"): gradient,
}
