"""Concatenation and its slices: a part of the pixels at a time, for all sources."""

from __future__ import annotations

import math
from typing import Any

from mpsref.images import Array
from mpsref.kernels.concatenation import Concatenation, ConcatenationForward, ConcatenationGradient
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.half import as_storage
from mpsref_cpu.movement import copy_channels
from mpsref_cpu.parallel import for_rows

__all__ = ["IMPLEMENTATIONS"]

PIXELS = 256
"""So many pixels are copied of one source before the next."""


def forward(problem: ConcatenationForward, *xs: Array, out: Array) -> None:
    """Fill ``out`` with all sources."""
    depth, target = out.shape[3], as_storage(out)
    sources = [as_storage(x.astype(out.dtype, copy=False)) for x in xs]
    sizes = [
        (c, 0, depth, offset, c, problem.spec.aligned(c))
        for offset, c in zip(problem.offsets, problem.channels, strict=True)
    ]
    _copy([(source, target, size) for source, size in zip(sources, sizes, strict=True)], out)


def gradient(problem: ConcatenationGradient, g: Array, out: Any) -> None:
    """Fill each array of ``out`` with its slice of g."""
    source, outs = as_storage(g), out if isinstance(out, tuple) else (out,)
    slices = zip(problem.offsets, problem.channels, outs, strict=True)
    _copy([(source, as_storage(dx), (g.shape[3], offset, c, 0, c, c)) for offset, c, dx in slices], g)


def _copy(copies: list[tuple[Any, Any, tuple[int, ...]]], joined: Array) -> None:
    pixels = math.prod(joined.shape[:3])

    def body(begin: int, end: int) -> None:
        for first in range(begin * PIXELS, end * PIXELS, PIXELS):
            for source, target, sizes in copies:
                copy_channels(first, min(first + PIXELS, pixels), source, target, sizes)

    for_rows(body, -(-pixels // PIXELS), 2 * joined.nbytes)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (Concatenation, "forward"): forward,
    (Concatenation, "gradient"): gradient,
}
