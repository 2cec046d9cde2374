"""Reductions of an image along its axes: rows are reduced in chunks, then the chunks; indices are found by pixel."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.movement import Gather
from mpsref.kernels.reduce import Reduce, ReduceForward, ReduceGradient
from mpsref.operations import cached_in_problem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled
from mpsref_cpu.data_movement.gather import gather
from mpsref_cpu.reduction.axis_reductions import Greatest, Least, Line, ReductionPlan, Total, reduce_line
from mpsref_cpu.simd.keys import NO_KEY, key, place_of
from mpsref_cpu.threads import for_rows

KINDS: dict[str, Any] = {"sum": Total(), "mean": Total(), "min": Least(), "max": Greatest()}
COMBINED: dict[type[Any], Any] = {Total: np.sum, Least: np.min, Greatest: np.max}


def forward(problem: ReduceForward, x: Array, out: Array) -> None:
    """Fill ``out`` with the reduced image."""
    operation = problem.spec.operation
    if operation.startswith("argument"):
        _fill_with_indices(problem, x, out, greatest=operation == "argumentmax")
        return
    kind, kept = KINDS[operation], problem.kept
    plan = ReductionPlan.of(problem.clipped_shape, kept)
    partial = plan.partial_results(out.shape[0])
    (top, left), (rows, columns) = problem.region
    sizes = (*x.shape[1:], top, left, rows, columns, plan.rows, plan.chunks, plan.pixels * plan.channels)
    for_rows(_reduce, out.shape[0] * plan.chunks, kind, x, partial.reshape(-1), sizes, kept)
    result = partial if kept[0] or plan.chunks == 1 else COMBINED[type(kind)](partial, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        if problem.scale == 1:
            np.copyto(out, result, casting="same_kind")
        else:
            np.multiply(result, problem.scale, out=out, casting="same_kind")


@compiled
def _reduce(begin, end, kind, source, results, sizes, kept):
    source_height, source_width, channels, top, left, height, width, rows, chunks, length = sizes
    for chunk in range(begin, end):
        n, first = chunk // chunks, chunk % chunks * rows
        results[chunk * length : (chunk + 1) * length] = kind.start
        for i in range(first, min(first + rows, height)):
            start = ((n * source_height + top + i) * source_width + left) * channels
            reduce_line(kind, source, Line(start, 0, width, channels), results, chunk * length, kept)


def _fill_with_indices(problem: ReduceForward, x: Array, out: Array, greatest: bool) -> None:
    (top, left), (height, width) = problem.region
    sizes = (*x.shape[1:], top, left, height, width)
    indices, sign = np.empty(out.size, np.float32), np.float32(1 if greatest else -1)
    for_rows(_index, out.shape[0] * height, x, indices, sizes, sign)
    with np.errstate(over="ignore"):
        out.reshape(-1)[...] = indices


@compiled
def _index(begin, end, source, indices, sizes, sign):
    """Find the first channel of the largest ``sign * value`` of each pixel; -1 where all are NaN."""
    source_height, source_width, channels, top, left, height, width = sizes
    for line in range(begin, end):
        n, i = line // height, line % height
        for k in range(width):
            at = np.uintp((((n * source_height) + top + i) * source_width + left + k) * channels)
            best = NO_KEY
            for c in range(np.uintp(channels)):
                value = sign * source[at + c]
                best = max(best, key(value, np.int64(c)) if value == value else NO_KEY)
            indices[line * width + k] = np.float32(-1) if best == NO_KEY else np.float32(place_of(best))


def gradient(problem: ReduceGradient, g: Array, out: Array) -> None:
    """Fill ``out`` with the gradient of the spatial mean: the same number for all pixels of a channel, 0 elsewhere."""
    gather(_places(problem), np.zeros(out.shape[3], np.float32), g * np.float32(problem.scale), out)


@cached_in_problem
def _places(problem: ReduceGradient) -> Gather:
    """Return the table of a gather: pixel 0 inside the region, none elsewhere."""
    rows, columns = (np.full(length, -1, np.int32) for length in problem.result_shapes[0][1:3])
    for places, start, length in zip((rows, columns), *problem.region, strict=True):
        places[start : start + length] = 0
    return rows, columns, np.arange(problem.result_shapes[0][3], dtype=np.int32)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(Reduce, "forward"): forward, (Reduce, "gradient"): gradient}
