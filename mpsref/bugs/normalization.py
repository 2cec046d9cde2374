"""Published defects of batch, instance and group normalization."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.bugs.bug import Bug
from mpsref.conformance.mutants import computed, correct_results, of_input, of_spec
from mpsref.kernels import BatchNormalization, GroupNormalization, InstanceNormalization
from mpsref.kernels.group_normalization import ALL_VALUES, NormalizationForward, NormalizationGradient, statistics
from mpsref.registry import Operation, Problem

INSTANCE = Operation(InstanceNormalization, "gradient")
GROUP = Operation(GroupNormalization, "gradient")
BATCH, BATCH_SUMS = (Operation(BatchNormalization, method) for method in ("gradient", "statistics_gradient"))


def nhwc_as_nchw(image: Array, problem: Problem | None = None) -> Array:
    """Read the memory of an NHWC image as if it were NCHW."""
    n, height, width, c = image.shape
    return image.reshape(n, c, height, width).transpose(0, 2, 3, 1)


def nchw_as_nhwc(image: Array, problem: Problem | None = None) -> Array:
    """Read the memory of an NCHW image as if it were NHWC."""
    return image.transpose(0, 3, 1, 2).reshape(image.shape)


def _other_group(problem: NormalizationGradient, g: Array, x: Array, *vectors: Array) -> tuple[Array, ...]:
    """Take mean and deviation of group c % G for the gradient of gamma."""
    dx, _, dbeta = correct_results(problem, g, x, *vectors)
    _, deviation = statistics(problem, x)
    mean = x.reshape(problem.grouped_shape).mean(ALL_VALUES, keepdims=True)
    group = np.arange(x.shape[3]) % problem.groups
    mean, deviation = (array[..., group, 0] for array in (mean, deviation))
    return dx, (g * (x - mean) / deviation).sum(axis=(1, 2)), dbeta


def _missing_statistics(problem: NormalizationGradient, *inputs: Array) -> tuple[Array, ...]:
    dx, dgamma, dbeta = correct_results(problem, *inputs)
    return dx, 0 * dgamma, dbeta


def _size_of_a_row(problem: NormalizationGradient, g: Array, x: Array, *vectors: Array) -> tuple[Array, ...]:
    """Divide both sums by the number of values of a row."""
    _, dgamma, dbeta = correct_results(problem, g, x, *vectors)
    centred, deviation = statistics(problem, x)
    xhat, h = centred / deviation, (g * problem.parameters(vectors, x.dtype)).reshape(centred.shape)
    a, b = (values.sum(ALL_VALUES, keepdims=True) for values in (h, h * xhat))
    count = problem.source_shape[2] * problem.grouped_shape[-1]
    return ((h - a / count - xhat * (b / count)) / deviation).reshape(x.shape), dgamma, dbeta


def _epsilon_outside(problem: NormalizationForward, x: Array, *vectors: Array) -> Array:
    """Add epsilon to the deviation, not to the variance."""
    gamma, beta = problem.parameters(vectors, x.dtype)
    centred, deviation = statistics(problem, x)
    epsilon = problem.spec.epsilon
    root = np.sqrt(np.maximum(deviation**2 - epsilon, 0)) + epsilon
    return np.asarray(gamma * (centred / np.where(root > 0, root, 1)).reshape(x.shape) + beta)


def _rounded_mean(problem: NormalizationForward, x: Array, *vectors: Array) -> Array:
    """Multiply sums twice by the root of the reciprocal of their number: the mean of equal values is another one."""
    gamma, beta = problem.parameters(vectors, x.dtype)
    grouped, root = x.reshape(problem.grouped_shape), np.float32(1 / np.sqrt(problem.count))
    centred = grouped - grouped.sum(ALL_VALUES, keepdims=True).astype(np.float32) * root * root
    variance = (centred**2).mean(ALL_VALUES, keepdims=True)
    return np.asarray(gamma * (centred / np.sqrt(variance + problem.spec.epsilon)).reshape(x.shape) + beta)


BUGS = (
    Bug(
        "tenstorrent/tt-metal#53846",
        Operation(GroupNormalization, "forward"),
        "The mean of equal values differs from them in its last digits, which a small epsilon makes visible.",
        "Blackhole, 2026-08",
        computed(_rounded_mean),
    ),
    Bug(
        "tracel-ai/burn#2945",
        Operation(GroupNormalization, "forward"),
        "Epsilon is added to the deviation, not to the variance.",
        "until 2025-03",
        computed(_epsilon_outside),
    ),
    Bug(
        "PyTorch: InstanceNorm2d, batch of 1, channels_last gradient",
        INSTANCE,
        "The memory of an NHWC gradient is read as NCHW if the batch has one image.",
        "2.13.0, 2.15.0",
        of_input("g", lambda g, problem: nhwc_as_nchw(g) if len(g) == 1 else g),
    ),
    Bug(
        "pytorch/pytorch#175189",
        INSTANCE,
        "The source image is read as NCHW, although it is stored as NHWC.",
        "MPS, 2026-02",
        of_input("x", nhwc_as_nchw),
    ),
    Bug(
        "tenstorrent/tt-metal#56202",
        GROUP,
        "The gradient of gamma takes mean and deviation of group c % G, not of c // (C / G).",
        "2026-09",
        computed(_other_group),
    ),
    Bug(
        "pytorch/pytorch#183825",
        GROUP,
        "The gradients of the parameters are computed with a mean and a deviation that were never computed.",
        "MPS, 2026-05",
        computed(_missing_statistics),
    ),
    Bug(
        "flagos-ai/FlagGems#5392",
        GROUP,
        "All channels of an image are one group.",
        "5.0.2",
        of_spec(groups=lambda spec: 1),
    ),
    Bug(
        "linkedin/Liger-Kernel#1376",
        GROUP,
        "The number of values of a group is read before the pixels are flattened: that of a row.",
        "2026",
        computed(_size_of_a_row),
    ),
    Bug(
        "pytorch/pytorch#64039",
        BATCH_SUMS,
        "The source image is read as NHWC because the gradient is, although it is stored as NCHW.",
        "CUDA, SyncBatchNorm, 1.10",
        of_input("x", nchw_as_nhwc),
    ),
    Bug(
        "pytorch/pytorch#107199",
        BATCH,
        "The NHWC layout of the gradient is not kept: its memory is read as NCHW.",
        "CUDA, 2023-08",
        of_input("g", nhwc_as_nchw),
    ),
)
