"""Upsampling and its gradients: nearest copies pixels; the others are separable weighted sums."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.movement import Gather
from mpsref.kernels.upsampling import SampledProblem, UpsamplingBilinear, UpsamplingNearest
from mpsref.operations import cached_in_problem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled
from mpsref_cpu.data_movement.gather import gather
from mpsref_cpu.half import copies_bits
from mpsref_cpu.resampling.interpolation import resample
from mpsref_cpu.threads import for_rows


@copies_bits
def nearest(problem: SampledProblem, x: Array, out: Array) -> None:
    """Fill ``out`` with copies of pixels."""
    gather(_table(problem), np.zeros(out.shape[3], out.dtype), x, out)


@cached_in_problem
def _table(problem: SampledProblem) -> Gather:
    """Return the pixels to copy, writeable as in other tables: for read-only ones all would be compiled again."""
    y_axis, x_axis = (axis.forward().first.copy() for axis in problem.axes)
    return y_axis, x_axis, np.arange(problem.source_shape[3], dtype=np.int32)


def bilinear(problem: SampledProblem, x: Array, out: Array) -> None:
    """Fill ``out`` with interpolated pixels."""
    resample(problem.axes, False, x, out)


def gradient(problem: SampledProblem, g: Array, out: Array) -> None:
    """Fill ``out`` with dx; blocks of 2 x 2, the usual ones, in one pass."""
    if isinstance(problem.spec, UpsamplingNearest) and problem.spec.factors == (2, 2):
        n, height, width, channels = out.shape
        for_rows(_blocks, n * height, g, out, width, channels)
    else:
        resample(problem.axes, True, g, out)


@compiled
def _blocks(begin, end, source, target, width, channels):
    n, below = np.uintp(channels), np.uintp(2 * width * channels)
    for line in range(begin, end):
        for k in range(width):
            to = np.uintp((line * width + k) * channels)
            a = np.uintp(2 * (2 * line * width + k) * channels)
            b = a + n
            c, d = a + below, b + below
            for i in range(n):
                upper = source[a + i] + source[b + i]
                lower = source[c + i] + source[d + i]
                target[to + i] = upper + lower


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (UpsamplingNearest, "forward"): nearest,
    (UpsamplingNearest, "gradient"): gradient,
    (UpsamplingBilinear, "forward"): bilinear,
    (UpsamplingBilinear, "gradient"): gradient,
}
