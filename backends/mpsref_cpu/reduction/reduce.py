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
    kind, kept, plan, sizes, scale = _plan(problem)
    partial = plan.partial_results(out.shape[0])
    for_rows(_reduce, out.shape[0] * plan.chunks, kind, x, partial.reshape(-1), sizes, kept)
    result = partial if kept[0] or plan.chunks == 1 else COMBINED[type(kind)](partial, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        if scale == 1:
            np.copyto(out, result, casting="same_kind")
        else:
            np.multiply(result, scale, out=out, casting="same_kind")


@cached_in_problem
def _plan(problem: ReduceForward) -> tuple[Any, tuple[int, int, int], ReductionPlan, tuple[int, ...], float]:
    """Return the kind of reduction, the axes that are kept, chunks, sizes for the kernel, and the factor of sums."""
    plan = ReductionPlan.of(problem.clipped_shape, problem.kept)
    (top, left), (rows, columns) = problem.region
    sizes = top, left, rows, columns, plan.rows, plan.chunks, plan.pixels * plan.channels
    kind = KINDS[problem.spec.operation]
    return kind, problem.kept, plan, (*problem.source_shape[1:], *sizes), problem.scale


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
    table, scale = _spread(problem)
    gather(table, np.zeros(out.shape[3], np.float32), g * scale, out)


@cached_in_problem
def _spread(problem: ReduceGradient) -> tuple[Gather, Any]:
    """Return the table of a gather, with pixel 0 inside the region and none elsewhere, and the factor of the mean."""
    _, height, width, channels = problem.source_shape
    rows, columns = np.full(height, -1, np.int32), np.full(width, -1, np.int32)
    for places, start, length in zip((rows, columns), *problem.region, strict=True):
        places[start : start + length] = 0
    return (rows, columns, np.arange(channels, dtype=np.int32)), np.float32(problem.scale)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(Reduce, "forward"): forward, (Reduce, "gradient"): gradient}
