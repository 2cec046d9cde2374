"""Published defects of pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.bugs.bug import Bug
from mpsref.conformance.mutants import computed, correct, of_result, of_spec
from mpsref.geometry import EdgeMode, Window
from mpsref.kernels import PoolingAverage, PoolingMax
from mpsref.kernels.pooling import PoolingForward, PoolingGradient, taps
from mpsref.kernels.pooling_average import AverageForward, AverageGradient
from mpsref.kernels.pooling_max import first_tap
from mpsref.registry import Implementation, Operation, Problem

AVERAGE = Operation(PoolingAverage, "forward")
AVERAGE_GRADIENT = Operation(PoolingAverage, "gradient")
MAX = Operation(PoolingMax, "forward")
MAX_GRADIENT = Operation(PoolingMax, "gradient")

# --- average pooling: a matrix of weights for each axis ---------------------------------------------------------------


class Axis(NamedTuple):
    """An axis of average pooling."""

    window: Window
    windows: range
    """The windows that exist, or whose gradient pixels are read."""
    length: int
    edge_mode: EdgeMode
    zero_pad: int
    other_pad: int
    """The zero pad of the other axis."""

    def divisor(self, i: int) -> int:
        """Return N of window i."""
        return self.window.divisor(i, self.length, self.edge_mode, self.zero_pad)

    def inside(self, i: int) -> range:
        """Return the pixels of window i inside the image."""
        return range(self.length)[self.window.inside(i, self.length)]

    def overhangs(self, i: int) -> bool:
        """Whether window i ends after the image and its zero pad."""
        return self.window.start(i) + self.window.kernel > self.length + self.zero_pad


Weights: TypeAlias = Callable[[Axis, int], tuple[range | list[int], float]]
"""``weights(axis, i)`` returns the pixels that window i reads, and its divisor N."""


def _matrix(problem: AverageForward | AverageGradient, k: int, windows: range, weights: Weights) -> Array:
    """Return the matrix (windows, pixels) of axis k."""
    spec = problem.spec
    axis = Axis(
        spec.windows[k], windows, problem.source_shape[1 + k], spec.edge_mode, spec.zero_pad[k], spec.zero_pad[1 - k]
    )
    matrix = np.zeros((len(windows), axis.length))
    for row, i in zip(matrix, windows, strict=True):
        pixels, n = weights(axis, i)
        np.add.at(row, [j for j in pixels if 0 <= j < axis.length], 1 / n if n else 0)
    return matrix


def _forward(weights: Weights) -> Implementation:
    """Return average pooling with other pixels or divisors of the windows."""

    def formula(problem: AverageForward, x: Array) -> Array:
        rows, columns = (_matrix(problem, k, range(n), weights) for k, n in enumerate(problem.output_size))
        return np.asarray(np.einsum("ah,nhwc,bw->nabc", rows, x, columns, optimize=True))

    return computed(formula)


def _gradient(weights: Weights) -> Implementation:
    """Return the gradient of average pooling with other pixels or divisors of the windows."""

    def formula(problem: AverageGradient, g: Array) -> Array:
        (py, px), (y, x) = problem.primary_offset, problem.included
        rows, columns = (_matrix(problem, k, windows, weights) for k, windows in enumerate((y, x)))
        read = g[:, py + y.start : py + y.stop, px + x.start : px + x.stop]
        return problem.place(np.einsum("ah,nabc,bw->nhwc", rows, read, columns, optimize=True))

    return computed(formula)


def _without_padding(axis: Axis, i: int) -> tuple[range, float]:
    first = i * axis.window.stride
    return range(first, first + axis.window.kernel), axis.divisor(i)


def _whole_kernel_at_the_end(axis: Axis, i: int) -> tuple[range, float]:
    return axis.inside(i), axis.window.kernel if axis.overhangs(i) else axis.divisor(i)


def _other_pad_at_the_end(axis: Axis, i: int) -> tuple[range, float]:
    if axis.edge_mode == "zero":
        return axis.inside(i), axis.divisor(i)
    first = axis.window.start(i)
    end = min(first + axis.window.kernel, axis.length + axis.other_pad)
    return axis.inside(i), max(0, end - max(first, -axis.zero_pad))


def _replicated(axis: Axis, i: int) -> tuple[list[int], float]:
    first, kernel = axis.window.start(i), axis.window.kernel
    return [min(max(j, 0), axis.length - 1) for j in range(first, first + kernel)], kernel


def _odd_channels_only(problem: Problem, g: Array, out: Array) -> None:
    if problem.result_shapes[0][3] % 2:
        computed(correct)(problem, g, out=out)


AVERAGE_BUGS = (
    Bug(
        "pytorch/pytorch#188344",
        AVERAGE_GRADIENT,
        "The NHWC kernel searches the windows of a pixel without adding the padding to its position.",
        "CUDA, until 2026-06",
        _gradient(_without_padding),
    ),
    Bug(
        "pytorch/pytorch#198119",
        AVERAGE_GRADIENT,
        "Windows that ceil_mode lets end after the padding are divided by the full kernel size.",
        "Inductor, 2.14.0, 2.15.0",
        _gradient(_whole_kernel_at_the_end),
    ),
    Bug(
        "tracel-ai/burn#5604",
        AVERAGE_GRADIENT,
        "The backward pass divides by the full kernel size, the forward pass by the clipped one.",
        "burn-flex, 2026-09",
        _gradient(lambda axis, i: (axis.inside(i), axis.window.kernel)),
    ),
    Bug(
        "tracel-ai/burn#5308",
        AVERAGE_GRADIENT,
        "The result is never written if the number of channels is even.",
        "burn cpu, 2026-08",
        _odd_channels_only,
    ),
    Bug(
        "PaddlePaddle/Paddle#74077",
        AVERAGE_GRADIENT,
        "All windows of an adaptive pooling are divided by the size of the largest one.",
        "GPU, until 2025-07",
        _gradient(lambda axis, i: (axis.inside(i), max(axis.divisor(k) for k in axis.windows))),
    ),
    Bug(
        "microsoft/onnxruntime#26708",
        AVERAGE,
        "The end of the divisor is clamped with the left padding in place of the bottom one.",
        "until 2026-02",
        _forward(_other_pad_at_the_end),
    ),
    Bug(
        "microsoft/onnxruntime#29629",
        AVERAGE,
        "Cells after the padding, which ceil_mode adds, are counted in the divisor.",
        "opset 7 to 18, until 2026-07",
        _forward(_whole_kernel_at_the_end),
    ),
    Bug(
        "keras-team/keras#23233",
        AVERAGE,
        'The padding of "same" repeats the border pixels, and they are counted in the mean.',
        "torch backend, 3.x",
        _forward(_replicated),
    ),
)

# --- max pooling ------------------------------------------------------------------------------------------------------


def _selected(problem: PoolingForward | PoolingGradient, x: Array, a: int, b: int) -> Array:
    """Return the pixel y * W + x that window (a, b) selects, (N, C); -1 outside the image."""
    values, rows, columns, _ = taps(problem, x, a, b)
    at = first_tap(values)
    return np.where((at < 0) | (rows[at] < 0) | (columns[at] < 0), -1, rows[at] * x.shape[2] + columns[at])


def _scattered(problem: PoolingGradient, g: Array, pixels: Array, add: bool = True) -> Array:
    """Return dx from g and the pixel (N, GH, GW, C) that each of its elements belongs to."""
    n, height, width, c = problem.source_shape
    dx = np.zeros((n, height * width + 1, c))  # pixel -1 is dropped
    image, channel = np.ogrid[:n, :c]
    for (_, _, at), (_, _, of_window) in zip(problem.counted(pixels), problem.counted(g), strict=True):
        dx[image, at, channel] = dx[image, at, channel] * add + of_window
    return problem.place(dx[:, :-1].reshape(problem.source_shape))


def _pixels(problem: PoolingGradient, x: Array) -> Array:
    pixels = np.full((len(x), *problem.gradient_size, x.shape[3]), -1)
    for a, b, selected in problem.counted(pixels):
        selected[...] = _selected(problem, x, a, b)
    return pixels


def _written(problem: PoolingGradient, g: Array, x: Array) -> Array:
    return _scattered(problem, g, _pixels(problem, x), add=False)


def _contiguous_indices(problem: PoolingGradient, g: Array, x: Array) -> Array:
    pixels = _pixels(problem, x)
    n, height, width, c = pixels.shape
    return _scattered(problem, g, pixels.reshape(n, c, height, width).transpose(0, 2, 3, 1))


def _added(problem: Problem, g: Array, x: Array, out: Array) -> None:
    out += correct(problem, g.astype(np.float64), x.astype(np.float64)).astype(out.dtype)


def _restarted(y: Array, problem: PoolingForward, x: Array) -> None:
    """Read dilated windows that begin in the padding from pixel 0 on."""
    windows, dilation = problem.spec.windows, problem.spec.dilation
    for index in np.ndindex(*problem.output_size):
        starts = [window.start(i) for window, i in zip(windows, index, strict=True)]
        if min(starts) >= 0 or max(dilation) == 1:
            continue
        rows, columns = (
            range(max(start, 0), min(start + window.extent, length), d)
            for start, window, length, d in zip(starts, windows, problem.source_shape[1:3], dilation, strict=True)
        )
        if rows and columns:
            y[:, index[0], index[1]] = x[:, rows][:, :, columns].max(axis=(1, 2))


def _narrow(y: Array, problem: PoolingForward, x: Array) -> None:
    """Of windows of 2 x 2 with stride 2, repeat the first column in the last one of a narrow image."""
    if x.shape[2] < 7 and all((window.kernel, window.stride) == (2, 2) for window in problem.spec.windows):
        y[:, :, -1] = y[:, :, 0]


MAX_BUGS = (
    Bug(
        "ARM-software/ComputeLibrary#924",
        MAX,
        "Windows of 2 x 2 with stride 2 are wrong for images of less than 7 columns.",
        "NEON, 21.05; the mechanism is a guess",
        of_result(_narrow),
    ),
    Bug(
        "pytorch/executorch#21686",
        MAX_GRADIENT,
        "Gradients are added to a result that is not set to zero before.",
        "2026-08",
        _added,
    ),
    Bug(
        "tracel-ai/burn#4466",
        MAX_GRADIENT,
        "The backward pass uses the dilation of the height for both axes.",
        "until 2026-02",
        of_spec(dilations=lambda spec: spec.dilation[0]),
    ),
    Bug(
        "FluxML/NNlib.jl#205",
        MAX_GRADIENT,
        "The gradients of overlapping windows are written, not added.",
        "2020",
        computed(_written),
    ),
    Bug(
        "pytorch/pytorch#197888",
        MAX_GRADIENT,
        "The indices of channels-last images are read as if they were contiguous.",
        "Inductor, 2.14.0",
        computed(_contiguous_indices),
    ),
    Bug(
        "microsoft/onnxruntime#29637",
        MAX,
        "A dilated window that begins in the padding continues at pixel 0, not at its next tap.",
        "CUDA, 2026-07",
        of_result(_restarted),
    ),
)

BUGS = (*AVERAGE_BUGS, *MAX_BUGS)
