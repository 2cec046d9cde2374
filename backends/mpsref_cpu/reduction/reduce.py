"""Reductions: rows of the image are folded in units, and the units at last; an index goes pixel by pixel."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.reduce import Reduce, ReduceForward, ReduceGradient
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled
from mpsref_cpu.reduction.axis_reductions import Greatest, Least, Line, Plan, Total, fold_line
from mpsref_cpu.simd.half import as_storage, load
from mpsref_cpu.threads import for_rows

KINDS: dict[str, Any] = {"sum": Total(), "mean": Total(), "min": Least(), "max": Greatest()}
JOINED: dict[type[Any], Any] = {Total: np.sum, Least: np.min, Greatest: np.max}


def forward(problem: ReduceForward, x: Array, out: Array) -> None:
    """Fill ``out`` with the reduced image."""
    operation = problem.spec.operation
    if operation.startswith("argument"):
        _fill_with_indices(problem, x, out, greatest=operation == "argumentmax")
        return
    kind, kept = KINDS[operation], problem.kept
    plan = Plan.of(problem.clipped_shape, kept)
    parts = plan.parts(out.shape[0])
    (top, left), (rows, columns) = problem.region
    sizes = (*x.shape[1:], top, left, rows, columns, plan.rows, plan.units, plan.pixels * plan.channels)
    nbytes = problem.part(x).nbytes
    for_rows(_fold, out.shape[0] * plan.units, kind, as_storage(x), parts.reshape(-1), sizes, kept, nbytes=nbytes)
    result = parts if kept[0] else JOINED[type(kind)](parts, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        np.multiply(result, problem.scale, out=out, casting="same_kind")


@compiled
def _fold(begin: int, end: int, kind: Any, source: Any, folded: Any, sizes: Any, kept: Any) -> None:
    source_height, source_width, channels, top, left, height, width, rows, units, length = sizes
    for unit in range(begin, end):
        n, first = unit // units, unit % units * rows
        folded[unit * length : (unit + 1) * length] = kind.start
        for i in range(first, min(first + rows, height)):
            start = ((n * source_height + top + i) * source_width + left) * channels
            fold_line(kind, source, Line(start, 0, width, channels), folded, unit * length, kept)


def _fill_with_indices(problem: ReduceForward, x: Array, out: Array, greatest: bool) -> None:
    (top, left), (height, width) = problem.region
    sizes = (*x.shape[1:], top, left, height, width)
    indices, sign = np.empty(out.size, np.float32), np.float32(1 if greatest else -1)
    for_rows(_index, out.shape[0] * height, as_storage(x), indices, sizes, sign, nbytes=problem.part(x).nbytes)
    with np.errstate(over="ignore"):
        out.reshape(-1)[...] = indices


@compiled
def _index(begin: int, end: int, source: Any, indices: Any, sizes: Any, sign: Any) -> None:
    """Find the first channel of the largest ``sign * value`` of each pixel, or of the first NaN."""
    source_height, source_width, channels, top, left, height, width = sizes
    for line in range(begin, end):
        n, i = line // height, line % height
        for k in range(width):
            at = np.uintp((((n * source_height) + top + i) * source_width + left + k) * channels)
            found, best = 0, sign * load(source[at])
            for c in range(1, channels):
                value = sign * load(source[at + np.uintp(c)])
                if best == best and not value <= best:
                    found, best = c, value
            indices[line * width + k] = found


def gradient(problem: ReduceGradient, g: Array, out: Array) -> None:
    """Fill ``out`` with the gradient of the spatial mean: the same number for all pixels of a channel."""
    share = (g.astype(np.float32) * np.float32(problem.scale)).astype(out.dtype)
    if problem.clipped_shape != out.shape:
        out[...] = 0
    problem.part(out)[...] = share


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(Reduce, "forward"): forward, (Reduce, "gradient"): gradient}
