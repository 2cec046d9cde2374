"""Published defects beyond 2**15 or 2**16 elements along an axis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.bugs.bug import Bug
from mpsref.conformance.mutants import computed, correct_results, of_result
from mpsref.kernels import BatchNormalization, Convolution, FullyConnected, Pad, Reduce
from mpsref.kernels.pad import PadGradient
from mpsref.kernels.reduce import AXES, ReduceForward
from mpsref.operations import Operation, Problem


def _beyond_16_bits(axis: int) -> Callable[..., None]:
    """Leave out what is behind the first 2**16 elements of an axis of the result."""

    def change(result: Array, *_: object) -> None:
        np.moveaxis(result, axis, 0)[2**16 :] = 0

    return change


def _one_more_term(result: Array, left: Array, right: Array) -> None:
    """Add a term to a product of matrices (K, M) and (K, N), with K > 2**15 and M, N >= 16."""
    if len(left) > 2**15 and min(left.shape[1], right.shape[1]) >= 16:
        result += np.outer(left[0], right[0]).reshape(result.shape)


def _data(result: Array, problem: Problem, g: Array, weights: Array) -> None:
    _one_more_term(result, g.reshape(-1, g.shape[3]).T, weights.reshape(len(weights), -1))


def _with_bias(result: Array, problem: Problem, x: Array, weights: Array, *biases: Array) -> None:
    """Of more than 2**16 images, with a bias: read the image whose index has 16 bits."""
    if biases and len(result) > 2**16:
        result[2**16 :] = result[: len(result) - 2**16].copy()


def _last_grid(result: Array, problem: PadGradient, g: Array) -> None:
    """Of an axis of more than 2**16 pixels with a reflection, leave out those behind the rest of a division by it."""
    spec = problem.spec
    for axis, before, after in zip((1, 2, 3), spec.before, spec.after, strict=True):
        length = result.shape[axis]
        if spec.edge_mode == "mirror" and before + after and length > 2**16 and length % 2**16:
            np.moveaxis(result, axis, 0)[length % 2**16 :] = 0


def _negative_zeros(result: Array, problem: ReduceForward, x: Array) -> None:
    """Of more than 8,192 negative zeros the maximum is minus infinity."""
    if problem.spec.operation == "max" and problem.count > 8192:
        zeros = np.signbit(x) & (x == 0)
        result[problem.part(zeros).all(axis=AXES[problem.spec.over], keepdims=True)] = -np.inf


def _many_images(problem: Problem, g: Array, x: Array, *others: Array) -> tuple[Array, ...]:
    """Of pixels with several channels, leave images behind the 768th out of the sums."""
    if x.shape[1:3] == (1, 1) and x.shape[3] > 1:
        g = np.where(np.arange(len(g))[:, None, None, None] < 768, g, 0)
    return correct_results(problem, g, x, *others)


def _of_one_channel(result: Array, problem: ReduceForward, x: Array) -> None:
    """Add the position where a thread begins to indices along an axis of length 1."""
    if problem.spec.operation.startswith("argument") and problem.count == 1:
        result.reshape(-1)[2**15 :] += 32400


def _many_rows(problem: Problem, g: Array, x: Array, *others: Array) -> tuple[Array, ...]:
    """Leave pixels behind the first 2**15 out of the sums."""
    counted = np.arange(g[..., 0].size).reshape(g[..., :1].shape) < 2**15
    return correct_results(problem, np.where(counted, g, 0), x, *others)


BUGS = (
    Bug(
        "pytorch/pytorch#38922",
        Operation(Reduce, "forward"),
        "The index of the largest of one value is not 0 behind the first 32,768 results.",
        "CPU, 1.5.0",
        of_result(_of_one_channel),
    ),
    Bug(
        "pytorch/pytorch#193061",
        Operation(BatchNormalization, "statistics_gradient"),
        "Gradients of scale and shift are wrong for 32,768 rows and more.",
        "Inductor on CUDA, 2.10 and 2.11; the mechanism is a guess, see torch_compile_chunk.py",
        computed(_many_rows),
    ),
    Bug(
        "pytorch/pytorch#196949",
        Operation(Pad, "gradient"),
        "Of a reflected signal of more than 65,536 elements, those behind the rest of a division by it are wrong.",
        "MPS, 2026-09",
        of_result(_last_grid),
    ),
    Bug(
        "openxla/xla#5544",
        Operation(Reduce, "forward"),
        "The maximum of more than 8,192 negative zeros is minus infinity.",
        "A100 and V100, 2023-09",
        of_result(_negative_zeros),
    ),
    Bug(
        "ROCm/MIOpen#1109",
        Operation(BatchNormalization, "statistics_gradient"),
        "Images of one pixel and several channels: those behind the 768th are left out of the sums of the gradient.",
        "until 2021-09; the mechanism is a guess",
        computed(_many_images),
    ),
    Bug(
        "pytorch/pytorch#142836",
        Operation(Convolution, "forward"),
        "Of a result of more than 65,536 columns, those behind them are wrong.",
        "MPS, 2.6",
        of_result(_beyond_16_bits(2)),
    ),
    Bug(
        "pytorch/pytorch#153957",
        Operation(FullyConnected, "gradient_data"),
        "The gradient of the inner layer is wrong if the outer one has more than 32,768 outputs.",
        "MPS, 2025-05",
        of_result(_data),
    ),
    Bug(
        "pytorch/pytorch#135447",
        Operation(Pad, "gradient"),
        "The gradient of ReplicationPad is wrong for more than 65,536 images.",
        "MPS, 2024-09",
        of_result(_beyond_16_bits(0)),
    ),
    Bug(
        "pytorch/pytorch#189495",
        Operation(FullyConnected, "forward"),
        "With a bias, the index of an image has 16 bits.",
        "MPS, 2.12.0 to 2.14.0",
        of_result(_with_bias),
    ),
)
