"""Published defects of arithmetic in float16, in which integers above 2,048 are not counted and sums overflow."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.bugs.bug import Bug
from mpsref.conformance.mutants import correct, correct_results, in_half
from mpsref.kernels import (
    GraphPoolingMax,
    GroupNormalization,
    LogSoftMax,
    Neuron,
    PoolingAverage,
    PoolingL2Norm,
    PoolingMax,
    Reduce,
    SoftMax,
)
from mpsref.kernels.group_normalization import NormalizationForward
from mpsref.kernels.neuron import NeuronForward
from mpsref.kernels.pooling import PoolingForward, PoolingGradient, taps
from mpsref.kernels.pooling_average import AverageGradient
from mpsref.kernels.reduce import AXES, ReduceForward
from mpsref.operations import Operation, Problem


def _sum(values: Array, axis: int) -> Array:
    """Add one value after the other."""
    last: Array = np.add.accumulate(values, axis=axis, dtype=np.float16).take([-1], axis)
    return last


def _softmax(problem: Problem, x: Array) -> Array:
    powers = np.exp(x - x.max(axis=3, keepdims=True))
    return np.asarray(powers / _sum(powers, 3))


def _log_softmax_gradient(problem: Problem, g: Array, y: Array) -> Array:
    return np.asarray(g - np.exp(y).astype(np.float16) * _sum(g, 3))


def _norm(problem: PoolingForward, x: Array) -> Array:
    """Store the sum of squares, then take the root."""
    (squares,) = correct_results(problem, x)
    return np.sqrt((squares**2).astype(np.float16))


def _shared(problem: PoolingGradient, g: Array, x: Array) -> Array:
    """Divide the gradient of a window by the number of its maxima."""
    dx = np.zeros(problem.source_shape)
    for a, b, of_window in problem.counted(g):
        values, rows, columns, _ = taps(problem, x, a, b)
        _, once = np.unique(np.stack([rows, columns]), axis=1, return_index=True)
        values, rows, columns = values[:, once], rows[once], columns[once]
        largest = values == values.max(axis=1, keepdims=True)
        share = largest * (of_window[:, None] / _sum(largest, 1))
        inside = (rows >= 0) & (columns >= 0)
        np.add.at(dx, (slice(None), rows[inside], columns[inside]), share[:, inside])  # type: ignore[arg-type]
    return problem.place(dx)


def _reduced(problem: ReduceForward, x: Array) -> Array:
    """Add the elements one after the other."""
    spec = problem.spec
    if spec.operation not in ("sum", "mean"):
        return correct(problem, x)
    rows = np.moveaxis(problem.part(x), AXES[spec.over], range(-len(AXES[spec.over]), 0))
    rows = rows.reshape(*rows.shape[: -len(AXES[spec.over])], -1)
    total = _sum(rows, -1).astype(np.float64).reshape(problem.reduced_shape)
    return total * (spec.weight if spec.operation == "sum" else spec.weight / problem.count)


def _index_in_half(problem: Problem, x: Array) -> tuple[Array, ...]:
    y, indices = correct_results(problem, x)
    return y, indices.astype(np.float16).astype(np.int64)


def _of_positive(problem: ReduceForward, x: Array) -> Array:
    return correct(problem, np.maximum(x, 0) if problem.spec.operation == "argumentmax" else x)


def _flushed_mean(problem: NormalizationForward, x: Array, *vectors: Array) -> Array:
    """Multiply the sums of many values by a reciprocal that is a subnormal, which is taken for 0."""
    if problem.count <= 2**14:
        return correct(problem, x, *vectors)
    gamma, beta = problem.parameters(vectors, x.dtype)
    return np.asarray(gamma * x / np.sqrt(problem.spec.epsilon) + beta)


def _softplus(problem: NeuronForward, x: Array) -> Array:
    y, spec = correct(problem, x), problem.spec
    overflows = spec.b * x > np.log(65504)
    return np.where(overflows, 0, y) if spec.type == "softplus" else y


def _divided(problem: AverageGradient, g: Array) -> Array:
    rows, columns = problem.spec.windows
    return correct(problem, g) * (rows.kernel * columns.kernel <= 65504)


FORWARD = Operation(Reduce, "forward")

BUGS = (
    Bug(
        "tracel-ai/burn#5382",
        Operation(GroupNormalization, "forward"),
        "The reciprocal of more than 2**14 values of a group is a subnormal of float16, and flushed to 0.",
        "Vulkan, 0.21.0",
        in_half(_flushed_mean),
    ),
    Bug(
        "sbryngelson/ANEForge#113",
        Operation(Neuron, "forward"),
        "The exponential of softplus overflows float16: its result is 0.",
        "Apple Neural Engine, macOS 26.5",
        in_half(_softplus),
    ),
    Bug(
        "ROCm/MIOpen#2344",
        Operation(PoolingAverage, "gradient"),
        "The number of taps is infinite in float16, and the gradient is divided by it.",
        "ROCm 5.7; the mechanism is a guess",
        in_half(_divided),
    ),
    Bug(
        "ml-explore/mlx#4379",
        FORWARD,
        "A sum of float16 is added in float16.",
        "CPU, 2026-08",
        in_half(_reduced),
    ),
    Bug(
        "apache/mxnet#19362",
        Operation(GraphPoolingMax, "forward"),
        "The index of an extremum of float16 is a float16.",
        "1.7",
        in_half(_index_in_half),
    ),
    Bug(
        "apache/mxnet#9007",
        FORWARD,
        "The index of the largest float16 takes negative numbers for 0.",
        "0.12.1",
        in_half(_of_positive),
    ),
    Bug(
        "huggingface/candle#3727",
        Operation(SoftMax, "forward"),
        "The exponentials are added in float16, where a sum of ones stays at 2,048.",
        "CPU, 2026-07",
        in_half(_softmax),
    ),
    Bug(
        "jax-ml/jax#40409",
        Operation(LogSoftMax, "gradient"),
        "The sum of a float16 gradient is infinite, and its product with a probability of 0 is NaN.",
        "2026-09",
        in_half(_log_softmax_gradient),
    ),
    Bug(
        "jax-ml/jax#39899",
        Operation(PoolingL2Norm, "forward"),
        "A sum of squares is rounded to float16 before its root is taken.",
        "2026-08",
        in_half(_norm),
    ),
    Bug(
        "jax-ml/jax#38885",
        Operation(PoolingMax, "gradient"),
        "Equal maxima, which share the gradient, are counted in float16.",
        "2026-07; tinygrad/tinygrad#12296 is the same",
        in_half(_shared),
        rules=("ties shared", "NaN is the extremum"),
    ),
)
