"""Published defects of convolution and transposed convolution."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.bugs.bug import Bug
from mpsref.conformance.mutants import computed, correct_results, of_input, of_problem, of_result, of_spec
from mpsref.geometry import by_axis, ceil_div
from mpsref.kernels import Convolution, ConvolutionTranspose
from mpsref.kernels.convolution import (
    ConvolutionForward,
    ConvolutionGradientData,
    ConvolutionGradientWeights,
    joined,
    weights_by_group,
)
from mpsref.kernels.convolution_transpose import TransposeGradientData
from mpsref.registry import Operation, Problem

TRANSPOSE = Operation(ConvolutionTranspose, "forward")
FORWARD, DATA, WEIGHTS = (Operation(Convolution, method) for method in ("forward", "gradient_data", "gradient_weights"))
TRANSPOSE_DATA = Operation(ConvolutionTranspose, "gradient_data")


def _strides(problem: Problem) -> tuple[int, int]:
    return by_axis(lambda window: window.stride, cast(Convolution, problem.spec).windows)


# --- weight gradient --------------------------------------------------------------------------------------------------


def _last_row_of_taps(problem: ConvolutionGradientWeights, g: Array, x: Array) -> tuple[Array, ...]:
    """Leave the last row of windows out of the last row of taps of strided depthwise convolutions."""
    dw, db = correct_results(problem, g, x)
    if problem.spec.groups == problem.source_shape[3] > 1 and max(_strides(problem)) > 1:
        rest = g.copy()
        rest[:, -1] = 0
        dw[:, -1] = correct_results(problem, rest, x)[0][:, -1]
    return dw, db


def _interleaved_groups(x: Array, problem: ConvolutionGradientWeights) -> Array:
    """Return x in which channel k of group r is channel k * G + r."""
    groups = problem.spec.groups
    return x.reshape(*x.shape[:3], -1, groups).swapaxes(-1, -2).reshape(x.shape)


BLOCK = 16
"""Channels of a block of memory."""


def _wrong_scratchpad(problem: ConvolutionGradientWeights, g: Array, x: Array) -> tuple[Array, ...]:
    """Read the pixels of a strided 1 x 1 convolution, which are packed, as if they had a block of channels each."""
    dw, db = correct_results(problem, g, x)
    channels = problem.source_shape[3]
    if problem.spec.size != (1, 1) or max(_strides(problem)) == 1 or channels >= BLOCK or problem.spec.groups > 1:
        return dw, db
    for ty, tx, i, j in joined(problem):
        packed = x[j].reshape(len(x), -1)
        at = np.arange(packed.shape[1] // channels)[:, None] * BLOCK + np.arange(channels)
        beyond = np.zeros((len(x), max(0, at.max() + 1 - packed.shape[1])))
        read = np.concatenate([packed, beyond], axis=1)[:, at].reshape(x[j].shape)
        weights_by_group(dw, problem)[0, :, ty, tx] = np.einsum("nabm,nabc->mc", g[i], read)
    return dw, db


# --- data gradient ----------------------------------------------------------------------------------------------------


def _first_group(weights: Array, problem: ConvolutionGradientData) -> Array:
    """Return the weights of the first group for all groups if the convolution is strided."""
    groups = problem.spec.groups
    if max(_strides(problem)) == 1:
        return weights
    return np.tile(weights[: len(weights) // groups], (groups, 1, 1, 1))


def _last_columns(dx: Array, problem: ConvolutionGradientData, *inputs: Array) -> None:
    """Set the columns to 0 that only taps beyond the stride of the last window read."""
    columns = problem.spec.windows[1]
    if columns.stride > 1:
        dx[:, :, max(0, columns.start(0) + problem.result_size[1] * columns.stride) :] = 0


# --- forward pass -----------------------------------------------------------------------------------------------------


def _rows_in_wrong_places(y: Array, problem: ConvolutionForward, *_: Array) -> Array | None:
    narrow = problem.result_size[1] == 1 and _strides(problem)[1] > 1
    return y[:, ::-1] if narrow else None


def _ambiguous_layout(weights: Array, problem: ConvolutionForward) -> Array:
    """Read the weights of one input channel, OHW, as if they were HWO."""
    if weights.shape[3] > 1:
        return weights
    outputs, height, width, _ = weights.shape
    return weights.reshape(height, width, outputs).transpose(2, 0, 1)[..., None]


def _stage_too_many(y: Array, problem: ConvolutionForward, x: Array, weights: Array, *_: Array) -> None:
    """Of a 1 x 1 convolution of an odd number of blocks of 8 channels add a block behind the end of each row."""
    channels = x.shape[3]
    if problem.spec.size != (1, 1) or problem.spec.groups > 1 or channels < 104 or channels % 16 != 8:
        return
    pixels, rows = (
        np.stack([np.roll(array.ravel(), -k * channels - channels)[:8] for k in range(array.size // channels)])
        for array in (x, weights)
    )
    if len(pixels) == y.size // y.shape[3]:
        y += (pixels @ rows.T).reshape(y.shape)


def _one_row(x: Array, problem: ConvolutionForward) -> Array:
    """Read one row of pixels, (W, C), as if it were (C, W): the input of a 1-D convolution of one tap."""
    if x.shape[1] > 1 or problem.spec.size != (1, 1):
        return x
    return x.reshape(len(x), 1, x.shape[3], x.shape[2]).swapaxes(2, 3)


def _taps_of_fifteen_bits(weights: Array, problem: ConvolutionForward) -> Array:
    taps = weights.reshape(len(weights), -1, weights.shape[3]).copy()
    taps[:, 2**15 :] = 0
    return taps.reshape(weights.shape)


def _taps_of_the_first_group(weights: Array, problem: ConvolutionForward) -> Array:
    """Read taps behind the 16th of groups of several channels from the first group."""
    groups, (height, width) = cast(Convolution, problem.spec).groups, weights.shape[1:3]
    if weights.shape[3] == 1:
        return weights
    taps = weights.reshape(groups, -1, height * width, weights.shape[3]).copy()
    taps[:, :, 16:] = taps[:1, :, 16:]
    return taps.reshape(weights.shape)


def _undilated(problem: ConvolutionForward) -> ConvolutionForward:
    """Return a depthwise problem of 3 x 3 taps without its dilation."""
    spec, sizes = cast(Convolution, problem.spec), problem.result_size
    if spec.size != (3, 3) or spec.groups != problem.source_shape[3]:
        return problem
    return replace(problem, spec=replace(spec, dilations=1), output_size=sizes)


def _padded_as_without_strides(problem: ConvolutionForward) -> ConvolutionForward:
    """Where the padding is that of "same", take half of the kernel before the image."""
    spec, sizes, offset = cast(Convolution, problem.spec), problem.result_size, []
    for window, length, outputs in zip(spec.windows, problem.source_shape[1:3], sizes, strict=True):
        pads = max(0, (outputs - 1) * window.stride + window.kernel - length)
        if window.dilation > 1 or outputs != ceil_div(length, window.stride) or -window.tap(0, 0) != pads // 2:
            return problem
        offset.append(window.offset - (window.kernel - 1) // 2 - window.tap(0, 0))
    return replace(problem, spec=replace(spec, offset=(offset[0], offset[1])), output_size=sizes)


# --- transposed convolution -------------------------------------------------------------------------------------------


def _unstrided(problem: TransposeGradientData) -> TransposeGradientData:
    """Return the problem with stride 1 and the same position of its first pixel."""
    spec = problem.spec
    return replace(problem, spec=replace(spec, strides=1, offset=0, kernel_offset=spec.effective_offsets))


def _shifted_by_output_padding(problem: TransposeGradientData) -> TransposeGradientData:
    """Read g from a shifted position where the output padding is at least the kernel size."""
    spec = problem.spec
    e = []
    for kernel, stride, offset, length, outputs in zip(
        spec.size,
        cast("tuple[int, int]", spec.strides),
        spec.effective_offsets,
        problem.source_shape[1:3],
        problem.result_size,
        strict=True,
    ):
        output_padding = outputs - ((length - 1) * stride - offset + kernel // 2 + 1)
        e.append(offset - output_padding if output_padding >= kernel else offset)
    return replace(problem, spec=replace(spec, offset=0, kernel_offset=(e[0], e[1])))


def _unweighted_rest(weights: Array, problem: Problem) -> Array:
    """Add the channels beyond a multiple of 4 of a group without their weights, if their number is odd."""
    channels = weights.shape[3]
    weights = weights.copy()
    if channels > 4 and channels % 2:
        weights[..., channels // 4 * 4 :] = 1
    return weights


BUGS = (
    Bug(
        "tracel-ai/burn#5626",
        FORWARD,
        "A 1 x 1 convolution of an odd number of blocks of 8 channels adds one block more, from behind the end.",
        "wgpu, 0.20.1: 104 and 440 channels",
        of_result(_stage_too_many),
    ),
    Bug(
        "pytorch/pytorch#124591",
        FORWARD,
        "A row of pixels is read with channels and columns exchanged by a convolution of one tap.",
        "MPS, Conv1d after Upsample, 2024-04",
        of_input("x", _one_row),
    ),
    Bug(
        "modular/modular#6129",
        FORWARD,
        "Groups of several channels with many taps read weights of another group.",
        "26.1: a kernel of 128 taps; the mechanism is a guess",
        of_input("weights", _taps_of_the_first_group),
    ),
    Bug(
        "tensorflow/tfjs#6263",
        FORWARD,
        "A depthwise convolution of 3 x 3 taps ignores its dilation.",
        "WebGPU, 3.14.0; the mechanism is a guess",
        of_problem(_undilated),
    ),
    Bug(
        "microsoft/onnxruntime#26734",
        FORWARD,
        'The padding of "same" before the image is computed a second time, without the stride.',
        "WebGPU, 2025-12",
        of_problem(_padded_as_without_strides),
    ),
    Bug(
        "ml-explore/mlx#2504",
        FORWARD,
        "Taps behind the first 2**15 of a window are left out.",
        "Metal, 2025-08: a kernel of 182 x 182; the mechanism is a guess",
        of_input("weights", _taps_of_fifteen_bits),
    ),
    Bug(
        "microsoft/onnxruntime#27749",
        TRANSPOSE,
        "Channels beyond a multiple of 4 are added without their weights if the number of channels is odd.",
        "WebGPU, 2026-03",
        of_input("weights", _unweighted_rest),
    ),
    Bug(
        "pytorch/pytorch#50042",
        WEIGHTS,
        "Depthwise with strides: the last row of taps misses the last row of windows.",
        "oneDNN in 1.7",
        computed(_last_row_of_taps),
    ),
    Bug(
        "pytorch/pytorch#51430",
        WEIGHTS,
        "nn.grad.conv2d_weight with groups pairs the gradients with the wrong channels of a group.",
        "1.7.1",
        of_input("x", _interleaved_groups),
    ),
    Bug(
        "uxlfoundation/oneDNN#6035",
        WEIGHTS,
        "The packed pixels of a strided 1 x 1 convolution are read as if they had 16 channels each.",
        "torch 2.14.0",
        computed(_wrong_scratchpad),
    ),
    Bug(
        "ml-explore/mlx#3800",
        DATA,
        "Groups with strides use the dense kernel, which reads the weights of the first group.",
        "Metal, 0.31.2",
        of_input("weights", _first_group),
    ),
    Bug(
        "pytorch/pytorch#25101",
        DATA,
        "With strides, the last columns, which the last window does not reach with all taps, are left 0.",
        "MKL-DNN in 1.2",
        of_result(_last_columns),
    ),
    Bug(
        "renmengye/np-conv2d#2",
        DATA,
        "The stride of the height is used for the width.",
        "2018",
        of_spec(strides=lambda spec: (spec.windows[0].stride, spec.windows[0].stride)),
    ),
    Bug(
        "pytorch/pytorch#82060",
        FORWARD,
        "With one input channel the layout of the weights is ambiguous, and they are read in another one.",
        "1.12",
        of_input("weights", _ambiguous_layout),
    ),
    Bug(
        "oneDNN: conv2d, one channel, one column",
        FORWARD,
        "The rows of the result are in wrong places if it is one pixel wide, with one input channel and stride_x > 1.",
        "torch 2.13.0, 2.15.0 on AVX-512",
        of_result(lambda y, p, *_: _rows_in_wrong_places(y, p) if p.source_shape[3] == 1 else None),
    ),
    Bug(
        "pytorch/pytorch#169688",
        FORWARD,
        "The rows of the result are in wrong places if it is one pixel wide and stride_x > 1.",
        "oneDNN, bfloat16 conv3d, 2.13",
        of_result(_rows_in_wrong_places),
    ),
    Bug(
        "pytorch/pytorch#63314",
        TRANSPOSE_DATA,
        "A kernel of 1 x 1 reads the gradient without the stride.",
        "1.9",
        of_problem(lambda p: _unstrided(p) if p.spec.size == (1, 1) else p),
    ),
    Bug(
        "huggingface/candle#2337",
        TRANSPOSE_DATA,
        "The backward pass exchanges stride and dilation: without dilation, the stride is ignored.",
        "until 2024-07",
        of_problem(_unstrided),
    ),
    Bug(
        "MLX: conv_transpose2d with output_padding",
        TRANSPOSE_DATA,
        "The gradient is read from a shifted position if the output padding is as large as the kernel.",
        "0.32.4 (there the shape of the gradient is wrong, too)",
        of_problem(_shifted_by_output_padding),
    ),
)
