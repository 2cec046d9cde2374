"""Published defects of activations, softmax and losses: exponentials that overflow, extrema of special values."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.bugs.bug import Bug
from mpsref.conformance.mutants import computed, correct, of_input, of_result
from mpsref.kernels import LogSoftMax, Loss, Neuron, Reduce, SoftMax
from mpsref.kernels.loss import LossForward
from mpsref.kernels.neuron import NeuronGradient
from mpsref.kernels.reduce import ReduceForward
from mpsref.kernels.softmax import ForwardProblem, GradientProblem
from mpsref.operations import Operation

TILE = 32


def _last_tile(problem: ForwardProblem, x: Array) -> Array:
    """Of more than 4,096 channels, add powers of the last tile without the maximum."""
    if x.shape[3] <= 4096:
        return correct(problem, x)
    largest = x.max(axis=3, keepdims=True)
    moved = x - largest
    last = (x.shape[3] - 1) // TILE * TILE
    total = np.exp(moved[..., :last]).sum(axis=3, keepdims=True) + np.exp(x[..., last:]).sum(axis=3, keepdims=True)
    return np.asarray(np.exp(moved) / total)


def _uniform_mass(t: Array, problem: LossForward) -> Array:
    """Return labels whose smoothed ones have (1 - eps) / C in place of eps / C."""
    spec = problem.spec
    if spec.type != "softmaxcrossentropy" or spec.label_smoothing in (0, 1):
        return t
    return t + (1 - 2 * spec.label_smoothing) / spec.number_of_classes / (1 - spec.label_smoothing)


def _by_quotient(problem: GradientProblem, g: Array, y: Array) -> Array:
    """Divide the gradient by probabilities, which may be 0 in float32, and multiply by them again."""
    p = np.exp(y.astype(np.float32))
    return np.asarray(p * (g / p - (g / p * p).sum(axis=3, keepdims=True)))


def _elu(problem: NeuronGradient, g: Array, x: Array) -> Array:
    """Multiply the exponential of the branch that is not taken by 0."""
    taken, spec = x >= 0, problem.spec
    if spec.type != "elu":
        return correct(problem, g, x)
    return np.asarray(g * (taken + ~taken * spec.a * np.exp(x.astype(np.float32))))


def _softplus(problem: NeuronGradient, g: Array, x: Array) -> Array:
    spec = problem.spec
    if spec.type != "softplus":
        return correct(problem, g, x)
    e = np.exp((spec.b * x).astype(np.float32))
    return np.asarray(g * spec.a * spec.b * (e / (1 + e)))


def _by_sign_of_result(problem: NeuronGradient, g: Array, x: Array) -> Array:
    slope, spec = correct(problem, np.ones_like(g), x), problem.spec
    return g * (np.where(spec.a * x > 0, 1, slope) if spec.type == "relu" and spec.a < 0 else slope)


def _unshifted(problem: LossForward, y: Array, t: Array, *weights: Array) -> Array:
    """Of a sigmoid cross entropy, the term that keeps exponentials finite has the wrong sign."""
    right = correct(problem, y, t, *weights)
    return right + 0 * np.exp(-y.min().astype(np.float32)) if problem.spec.type == "sigmoidcrossentropy" else right


def _later_zero(result: Array, problem: ReduceForward, x: Array) -> Array | None:
    """Take 0 for larger than -0."""
    if problem.spec.operation != "argumentmax":
        return None
    x = problem.part(x)
    zeros = (x == 0) & ~np.signbit(x)
    is_found = (np.fmax.reduce(x, axis=3, keepdims=True) == 0) & zeros.any(axis=3, keepdims=True)
    return problem.spec.weight * np.where(is_found, zeros.argmax(axis=3, keepdims=True), result / problem.spec.weight)


def _never_smaller(result: Array, problem: ReduceForward, x: Array) -> Array | None:
    """Begin with an index of no value, which infinities never replace."""
    operation, largest = problem.spec.operation, {"argumentmin": np.inf, "argumentmax": -np.inf}
    if operation not in largest:
        return None
    return np.where((problem.part(x) == largest[operation]).all(axis=3, keepdims=True), -(2.0**31), result)


GRADIENT = Operation(Neuron, "gradient")
REDUCE = Operation(Reduce, "forward")

BUGS = (
    Bug(
        "FluxML/NNlib.jl#68",
        Operation(LogSoftMax, "gradient"),
        "The gradient is divided by probabilities, of which some are 0.",
        "until 2018-10",
        computed(_by_quotient),
    ),
    Bug(
        "huggingface/candle#2328",
        GRADIENT,
        "Of ELU, the exponential of a large number, which is infinite, is multiplied by 0.",
        "until 2024-07; apache/mxnet#14673, jax-ml/jax#1538 and tinygrad/tinygrad#17852 are the same",
        computed(_elu),
    ),
    Bug(
        "tracel-ai/burn#5373",
        GRADIENT,
        "The exponential of softplus is infinite, and divided by itself.",
        "until 2026-08",
        computed(_softplus),
    ),
    Bug(
        "pytorch/pytorch#31938",
        GRADIENT,
        "The side of a kink is found by the sign of the result, which a negative slope changes.",
        "leaky_relu_, 1.3.1",
        computed(_by_sign_of_result),
    ),
    Bug(
        "pytorch/pytorch#2221",
        Operation(Loss, "forward"),
        "Of a sigmoid cross entropy of a large negative number, an exponential is infinite.",
        "binary_cross_entropy_with_logits, 2017-07",
        computed(_unshifted),
    ),
    Bug(
        "tenstorrent/tt-metal#55346",
        REDUCE,
        "The index of the largest value takes 0 for larger than -0.",
        "bfloat16, 2026-09",
        of_result(_later_zero),
    ),
    Bug(
        "nv-legate/cupynumeric#987",
        REDUCE,
        "The index of the smallest of infinities is that of the value that the search begins with.",
        "2023-07",
        of_result(_never_smaller),
    ),
    Bug(
        "tenstorrent/tt-metal#51278",
        Operation(SoftMax, "forward"),
        "Of long rows, the sum has powers of the last tile of 32 channels from which no maximum was subtracted.",
        "moreh_softmax (its softmin), 2026-07",
        computed(_last_tile),
    ),
    Bug(
        "paiml/aprender#2199",
        Operation(Loss, "forward"),
        "Labels are smoothed by (1 - eps) / C in place of eps / C.",
        "until 2026-06",
        of_input("t", _uniform_mass),
    ),
)
