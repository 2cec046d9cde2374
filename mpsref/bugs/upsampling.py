"""Published defects of upsampling."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.bugs.bug import Bug
from mpsref.bugs.normalization import nhwc_as_nchw
from mpsref.conformance.mutants import computed, correct, of_input, of_result
from mpsref.geometry import ceil_div
from mpsref.kernels import GraphResizeBilinear, UpsamplingBilinear, UpsamplingNearest
from mpsref.kernels.interpolation import Sampling
from mpsref.kernels.resize import GraphResizeForward
from mpsref.kernels.upsampling import UpsamplingForward, UpsamplingGradient
from mpsref.registry import Operation

GRADIENT = Operation(UpsamplingBilinear, "gradient")


def _contributors(axis: Sampling) -> Array:
    """Return the weights (pixels, outputs) of an aligned axis, without outputs beyond ``out / in`` around a pixel."""
    weights = np.zeros((axis.length, axis.outputs))
    for i in range(axis.outputs):
        for j, weight in axis.reads(i):
            first = (j - 1) * axis.outputs // axis.length
            last = ceil_div((j + 1) * axis.outputs, axis.length)
            if first <= i <= last:
                weights[j, i] += weight
    return weights


def _few_contributors(problem: UpsamplingGradient, g: Array) -> Array:
    if not problem.spec.align_corners:  # type: ignore[attr-defined]
        return correct(problem, g)
    y, x = map(_contributors, problem.axes)
    return np.asarray(np.einsum("ha,nabc,wb->nhwc", y, g, x, optimize=True))


def _column_of_portrait(dx: Array, problem: UpsamplingGradient, g: Array) -> Array | None:
    """Subtract the height from the position of a column where the width is meant."""
    height, width = problem.source_shape[1:3]
    return np.roll(dx, height - width, axis=2) if height > width else None


def _in_fixed_point(problem: UpsamplingForward, x: Array) -> Array:
    """Multiply positions by a step of 16 binary digits, whose rounding error grows along the axis."""
    indices = []
    for length, outputs in zip(x.shape[1:3], problem.large_shape[1:3], strict=True):
        step = ((length << 16) + outputs // 2) // outputs
        at = (step * np.arange(outputs) + step // 2 - length % 2) >> 16
        indices.append(np.clip(at, 0, length - 1))
    return x[:, indices[0]][:, :, indices[1]]


def _divided_by_no_step(result: Array, problem: GraphResizeForward, x: Array) -> None:
    """Divide by the number of steps between aligned outputs along each axis."""
    if problem.spec.align_corners and (1, 1) in zip(x.shape[1:3], problem.spec.sizes, strict=True):
        result[...] = np.nan


BUGS = (
    Bug(
        "opencv/opencv#27191",
        Operation(UpsamplingNearest, "forward"),
        "Positions are multiples of a step of 16 binary digits: far from the origin they are those of other pixels.",
        "INTER_NEAREST_EXACT, until 2026-08",
        computed(_in_fixed_point),
    ),
    Bug(
        "robertknight/rten#1447",
        Operation(GraphResizeBilinear, "forward"),
        "With aligned corners the scale of an axis of length 1, which stays, is 0 / 0: all results are NaN.",
        "2026-08",
        of_result(_divided_by_no_step),
    ),
    Bug(
        "microsoft/onnxruntime#31986",
        Operation(UpsamplingNearest, "forward"),
        "The memory of an NHWC image is read as NCHW: all values are right, at wrong places.",
        "MIGraphX, 2026-08",
        of_input("x", nhwc_as_nchw),
    ),
    Bug(
        "flagos-ai/FlagGems#5218",
        GRADIENT,
        "With aligned corners, the outputs that contribute to a pixel are searched within out / in.",
        "2026-08",
        computed(_few_contributors),
    ),
    Bug(
        "intel/torch-xpu-ops#4380",
        GRADIENT,
        "The column is computed from the position minus the height: portrait images read a wrong column.",
        "XPU, until 2026-07",
        of_result(_column_of_portrait),
    ),
)
