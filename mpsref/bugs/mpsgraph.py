"""Published wrong results of MPSGraph, as operations of mpsref.

Where a report has no mechanism, the symptom is implemented. :data:`LEFT_OUT` are those that are not among them, by
their reports, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.bugs.bug import Bug
from mpsref.conformance.mutants import computed, correct, correct_results, of_input, of_result
from mpsref.kernels import (
    Convolution,
    FullyConnected,
    GraphResizeNearest,
    LogSoftMax,
    Neuron,
    PoolingAverage,
    SoftMax,
)
from mpsref.kernels.convolution import ConvolutionGradientData, ConvolutionGradientWeights, WeightedProblem
from mpsref.kernels.interpolation import rounded
from mpsref.kernels.pooling_average import AverageForward
from mpsref.kernels.resize import GraphResizeForward
from mpsref.operations import Problem
from mpsref.registry import Operation

LEFT_OUT: Mapping[str, str] = {
    "colToIm of rank 3 is refused (lucid)": "a refusal, and mpsref has no such operation",
    "pytorch/pytorch#154882": "a wrong shape, which a problem of mpsref is given; tests of `mpsref.mpsgraph` have it",
    "resize gradients in NHWC abort (tensorflow/tensorflow#126254)": "an abort without a result",
    "round halves away from zero (tensorflow/tensorflow#126254)": "mpsref has no such operation",
    "normalize (lightvector/KataGo#1175)": "a suspicion, without a wrong result",
    "attention of 17 to 24 tokens (lucid)": "mpsref has no such operation",
    "actions/runner-images#14380": "a whole model, in which the operation is not known",
}

# --- convolution ------------------------------------------------------------------------------------------------------


def _is_depthwise(problem: WeightedProblem) -> int:
    """Return the multiplier of a depthwise convolution with more than one result of each channel, else 0."""
    multiplier = problem.output_channels // problem.spec.groups
    return multiplier if problem.group_channels == 1 and problem.spec.groups > 1 < multiplier else 0


def _multiplier_first(g: Array, problem: ConvolutionGradientData) -> Array:
    """Take result channel m C + c for result m of channel c, which is channel c M + m."""
    multiplier = _is_depthwise(problem)
    if not multiplier:
        return g
    return g.reshape(*g.shape[:3], multiplier, -1).swapaxes(-1, -2).reshape(g.shape)


def _without_padding(problem: ConvolutionGradientWeights, g: Array, x: Array) -> tuple[Array, ...]:
    """Read the source of a depthwise convolution as if its first windows began at the first pixel."""
    if problem.group_channels > 1 or problem.spec.groups == 1:
        return correct_results(problem, g, x)
    shifts = [max(0, -window.start(0)) for window in problem.spec.windows]
    rows, columns = (np.minimum(np.arange(n) + shift, n - 1) for n, shift in zip(x.shape[1:3], shifts, strict=True))
    return correct_results(problem, g, x[:, rows][:, :, columns])


def _first_channel_lost(dx: Array, problem: ConvolutionGradientData, *_: Array) -> None:
    if problem.spec.groups == 2:
        dx[..., :: problem.group_channels] = 0


def _batch_of_sixteen_bits(problem: ConvolutionGradientWeights, g: Array, x: Array) -> tuple[Array, ...]:
    g = g.copy()
    g[len(g) % 2**16 if len(g) >= 2**16 else len(g) :] = 0
    return correct_results(problem, g, x)


def _last_channels_zero(y: Array, *_: object) -> None:
    y[..., 2**16 :] = 0


def _large_kernel(y: Array, problem: WeightedProblem, x: Array, *_: Array) -> None:
    """Memory of a threadgroup is overrun where a side of the kernel is 256 or more, and images are two or more."""
    if max(problem.spec.size) >= 256 and len(x) > 1:
        y[1:] = y[:-1].copy()


def _many_terms(weights: Array, *_: object) -> Array:
    """Read a row of more than 32,768 weights from a wrong place behind this number."""
    rows = weights.reshape(len(weights), -1).copy()
    rows[:, 2**15 :] = np.roll(rows, 1, axis=1)[:, 2**15 :]
    return rows.reshape(weights.shape)


# --- pooling ----------------------------------------------------------------------------------------------------------


def _overhang_counts(y: Array, problem: AverageForward, x: Array) -> None:
    """Divide by all taps of windows that end behind the image, as a window more of ceil mode does."""
    for axis, (window, inverse) in enumerate(zip(problem.spec.windows, problem.reciprocals(), strict=True), 1):
        ends = np.array([window.tap(i, window.kernel - 1) for i in range(len(inverse))]) >= x.shape[axis]
        n = np.divide(1, inverse, out=np.full(len(inverse), float(window.kernel)), where=inverse > 0)
        factors = np.where(ends, n / window.kernel, 1)
        y *= factors[:, None, None] if axis == 1 else factors[:, None]


def _running_sum(problem: AverageForward, x: Array) -> Array:
    """Take the sum over the columns of a window as a difference of sums over all columns before, in float32."""
    rows, columns = problem.runs()
    vertical, horizontal = problem.reciprocals()
    with_zero = np.pad(x, [(0, 0), (0, 0), (1, 0), (0, 0)]).astype(np.float32)
    until = np.cumsum(with_zero, axis=2, dtype=np.float32)
    sums = until[:, :, columns.first + columns.count] - until[:, :, columns.first]
    picked = np.zeros((len(vertical), x.shape[1]))
    for a, (begin, count) in enumerate(zip(rows.first, rows.count, strict=True)):
        picked[a, begin : begin + count] = vertical[a]
    return np.asarray(np.einsum("ah,nhbc,b->nabc", picked, sums.astype(np.float64), horizontal, optimize=True))


# --- pointwise, resizing ----------------------------------------------------------------------------------------------


def _nan_is_zero(y: Array, problem: Problem, x: Array) -> Array:
    neuron = problem.spec
    assert isinstance(neuron, Neuron)
    return np.where(np.isnan(x), 0, y) if neuron.type in ("relu", "relun", "hardsigmoid") else y


def _logarithm_of_softmax(problem: Problem, x: Array) -> Array:
    softmax = SoftMax.problems["forward"](SoftMax(), x.shape)
    return np.asarray(np.log(correct(softmax, x).astype(np.float32)))


def _rounded_position(problem: GraphResizeForward, x: Array) -> Array:
    """Compute ``(i - offset) / scale`` in float32, and round that."""
    spec, pixels = problem.spec, []
    for axis, (length, outputs) in enumerate(zip(x.shape[1:3], spec.sizes, strict=True)):
        scale, offset = np.float32(outputs / length), np.float32(0)
        if spec.scale_offset:
            scale, offset = np.float32(spec.scale_offset[axis]), np.float32(spec.scale_offset[2 + axis])
        elif spec.align_corners:
            scale = np.float32(max(outputs - 1, 1) / (length - 1 or np.inf))
        elif spec.center_result:
            offset = (scale - np.float32(1)) / np.float32(2)
        position = (np.arange(outputs, dtype=np.float32) - offset) / scale if scale else np.zeros(outputs)
        whole = [rounded(spec.rounding, *float(one).as_integer_ratio()) for one in position]  # type: ignore[attr-defined]
        pixels.append(np.clip(whole, 0, length - 1))
    return x[:, pixels[0]][:, :, pixels[1]]


BUGS = (
    Bug(
        "tensorflow/tensorflow#126254",
        Operation(Convolution, "gradient_data"),
        "MPSGraph's depthwise gradient takes the multiplier for the slower axis of the channels.",
        "one report; the mechanism is a guess",
        of_input("g", _multiplier_first),
    ),
    Bug(
        "lucid: depthwise weights gradient",
        Operation(Convolution, "gradient_weights"),
        "MPSGraph's depthwise weights gradient ignores the explicit padding.",
        "one report",
        computed(_without_padding),
    ),
    Bug(
        "Metal.jl: grouped data gradient",
        Operation(Convolution, "gradient_data"),
        "MPSGraph loses the first input channel of each of two groups.",
        "macOS before 27, with shader validation",
        of_result(_first_channel_lost),
    ),
    Bug(
        "pytorch/pytorch#96225",
        Operation(Convolution, "gradient_weights"),
        "MPSGraph counts the images of a weights gradient in 16 bits.",
        "from 2023-03 on",
        computed(_batch_of_sixteen_bits),
    ),
    Bug(
        "pytorch/pytorch#129207",
        Operation(Convolution, "forward"),
        "MPSGraph's result channels beyond 65,536 are 0.",
        "macOS before 15.1",
        of_result(_last_channels_zero),
    ),
    Bug(
        "pytorch/pytorch#188335",
        Operation(Convolution, "forward"),
        "MPSGraph overruns threadgroup memory for a kernel side of 256 or more and several images.",
        "2026-06",
        of_result(_large_kernel),
    ),
    Bug(
        "pytorch/pytorch#160743",
        Operation(PoolingAverage, "forward"),
        "In MPSGraph's ceil mode a window that ends behind the image is divided by all of its taps.",
        "2025-08",
        of_result(_overhang_counts),
    ),
    Bug(
        "pytorch/pytorch#179608",
        Operation(PoolingAverage, "forward"),
        "MPSGraph subtracts running sums in float32: zeros behind large values have negative means.",
        "2026-04",
        computed(_running_sum),
    ),
    Bug(
        "pytorch/pytorch#134430",
        Operation(GraphResizeNearest, "forward"),
        "MPSGraph computes positions in float32 and rounds those: half a pixel is missed.",
        "2024-08",
        computed(_rounded_position),
    ),
    Bug(
        "pytorch/pytorch#183571",
        Operation(Neuron, "forward"),
        "MPSGraph's ReLU of NaN is 0.",
        "2026-05",
        of_result(_nan_is_zero),
    ),
    Bug(
        "pytorch/pytorch#177116",
        Operation(FullyConnected, "forward"),
        "MPSGraph's product of matrices reads beyond 32,768 terms from a wrong place.",
        "M1 and M2, 2026-03",
        of_input("weights", _many_terms),
    ),
    Bug(
        "pytorch/pytorch#94043",
        Operation(LogSoftMax, "forward"),
        "The logarithm is taken of a softmax that is 0 in float32.",
        "2023-02",
        computed(_logarithm_of_softmax),
    ),
)
