"""Mutants of the kernels with weights: positions of taps, layouts of weights, groups, biases, sums of gradients."""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.geometry_mutants import swap, window_mutants
from mpsref.conformance.mutants import (
    MutantTable,
    computed,
    correct,
    correct_results,
    of_input,
    of_result,
    of_results,
    of_spec,
    with_spec,
)
from mpsref.kernels import Convolution, ConvolutionTranspose, FullyConnected
from mpsref.kernels.convolution import WeightedForward, WeightedProblem, by_group, joined, weights_by_group
from mpsref.kernels.neuron import value
from mpsref.registry import Implementation, Operation, OperationKey

Change: TypeAlias = Callable[[Array, WeightedProblem], Array]
"""``change(array, problem)`` returns what is read instead of an input, or written instead of a result."""


# --- geometry ---------------------------------------------------------------------------------------------------------


def _moved(step: Callable[..., int]) -> Implementation:
    """Add ``step(axis, spec)`` to the kernel offset of a transposed convolution."""
    return of_spec(kernel_offset=lambda spec: tuple(o + step(axis, spec) for axis, o in enumerate(spec.kernel_offset)))


TRANSPOSE: MutantTable = {
    "the result starts one pixel late": _moved(lambda axis, spec: 1),
    "the kernel offset is ignored": of_spec(kernel_offset=lambda spec: 0),
    "the kernel offset has the other sign": _moved(lambda axis, spec: -2 * spec.kernel_offset[axis]),
    "the kernel offset of the other axis is taken": of_spec(kernel_offset=lambda spec: swap(spec.kernel_offset)),
    "the offset is ignored": of_spec(offset=lambda spec: 0),
    "the offset counts in result pixels": _moved(lambda axis, spec: spec.offset[axis] * (1 - spec.strides[axis])),
    "the stride is ignored": of_spec(strides=lambda spec: 1),
    "the stride of the other axis is taken": of_spec(strides=lambda spec: swap(spec.strides)),
    "an even kernel has its extra tap on the other side": _moved(lambda axis, spec: 1 - spec.size[axis] % 2),
    "the kernel is anchored at its first tap": _moved(lambda axis, spec: spec.size[axis] // 2),
    "the kernel is anchored at its last tap": _moved(lambda axis, spec: spec.size[axis] // 2 + 1 - spec.size[axis]),
}


# --- weights, groups, biases ------------------------------------------------------------------------------------------


def _layout(shape: tuple[int, ...]) -> Change:
    """Read weights in memory order as if their axes, numbers of O, H, W, I, were in the order ``shape``."""
    return lambda w, problem: w.reshape([w.shape[axis] for axis in shape]).transpose(np.argsort(shape))


def _without(*index: int | slice | EllipsisType) -> Change:
    """Set a part of the weights to 0."""

    def change(w: Array, problem: WeightedProblem) -> Array:
        rest = w.copy()
        rest[index] = 0
        return rest

    return change


WEIGHTS: dict[str, Change] = {
    "the kernel is rotated by 180 degrees": lambda w, p: w[:, ::-1, ::-1],
    "the rows of the kernel are flipped": lambda w, p: w[:, ::-1],
    "the columns of the kernel are flipped": lambda w, p: w[:, :, ::-1],
    "weights are (out, in, height, width)": _layout((0, 3, 1, 2)),
    "weights are (height, width, in, out)": _layout((1, 2, 3, 0)),
    "weights are (in, height, width, out)": _layout((3, 1, 2, 0)),
    "weights are (out, width, height, in)": _layout((0, 2, 1, 3)),
    "the first tap is left out": _without(slice(None), 0, 0),
    "the last input channel of a group is left out": _without(..., -1),
    "the last output channel is left out": _without(-1),
    "the weights of the first output channel serve all": lambda w, p: np.broadcast_to(w[:1], w.shape),
}
"""Read instead of the weights, or written instead of their gradient."""


def _first_group(array: Array, problem: WeightedProblem) -> Array:
    groups = problem.spec.groups
    return np.tile(array[..., : array.shape[-1] // groups], groups)


def _interleaved(array: Array, problem: WeightedProblem) -> Array:
    """Take channel k as one of group ``k % G``, not ``k // (C / G)``."""
    apart = array.reshape(*array.shape[:-1], -1, problem.spec.groups)
    return apart.swapaxes(-1, -2).reshape(array.shape)


CHANNELS: dict[str, Change] = {
    "every group takes the channels of the first": _first_group,
    "channel k belongs to group k % G": _interleaved,
}
"""Read instead of an image where there are groups."""


def _stale_weights() -> Implementation:
    """Keep the weights of the first call for a problem."""
    kept: dict[WeightedProblem, Array] = {}
    return computed(
        lambda problem, first, weights, *others: correct_results(
            problem, first, kept.setdefault(problem, weights.copy()), *others
        )
    )


def _neuron_before_biases(problem: WeightedForward, x: Array, weights: Array, *biases: Array) -> Array:
    y = correct(with_spec(neuron=lambda spec: None)(problem), x, weights, *(np.zeros_like(b) for b in biases))
    if problem.spec.neuron is not None:
        y = value(problem.spec.neuron, y)
    return np.asarray(y + sum(biases))


FORWARD: MutantTable = {
    "the biases are left out": of_input("biases", lambda b, p: 0 * b),
    "the bias of the next channel is taken": of_input("biases", lambda b, p: np.roll(b, 1)),
    "the biases are added for each tap": of_input("biases", lambda b, p: b * np.prod(p.spec.kernel_size)),
    "the neuron precedes the biases": computed(_neuron_before_biases),
    "the neuron is left out": of_spec(neuron=lambda spec: None),
}


# --- sums of gradients ------------------------------------------------------------------------------------------------


def _overwritten(result: Array, problem: WeightedProblem, g: Array, weights: Array) -> Array:
    """Overlapping windows overwrite each other instead of adding up."""
    dx = np.zeros_like(result)
    source, w, into = by_group(g, problem), weights_by_group(weights, problem), by_group(dx, problem)
    for ty, tx, i, j in joined(problem):
        into[j] = np.einsum("nabgm,gmc->nabgc", source[i], w[:, :, ty, tx])
    return dx


def _ends_early(result: Array, problem: WeightedProblem, *_: Array) -> None:
    """The loops over the source end at the size of the gradient."""
    height, width = problem.result_size
    result[:, height:] = 0
    result[:, :, width:] = 0


def _neighbour_for_zero(result: Array, *_: object) -> Array:
    return np.where(result.any(axis=(0, 3), keepdims=True), result, np.roll(result, 1, axis=2))


def _without_last_row(g: Array, problem: WeightedProblem) -> Array:
    return np.concatenate([g[:, :-1], 0 * g[:, -1:]], axis=1)


def _biases(change: Callable[[Array, Array], Array]) -> Implementation:
    return of_results(lambda results, problem, g, x: (results[0], change(results[1], g)))


DATA: MutantTable = {
    "the loops end at the size of the gradient": of_result(_ends_early),
    "the last row of windows is left out": of_input("g", _without_last_row),
}
OVERLAPPING: MutantTable = {
    "overlapping windows overwrite each other": of_result(_overwritten),
    "pixels that nothing reads get their neighbour's value": of_result(_neighbour_for_zero),
}
PARAMETERS: MutantTable = {
    "the mean over the batch is taken": of_results(lambda results, p, g, x: tuple(r / len(g) for r in results)),
    "only the last image counts": of_input("g", lambda g, p: np.concatenate([0 * g[:-1], g[-1:]])),
    "the biases' gradient is that of the first image": _biases(lambda db, g: g[0].sum((0, 1))),
    "the biases' gradient is a mean": _biases(lambda db, g: g.mean((0, 1, 2))),
    "the last row of windows is left out": of_input("g", _without_last_row),
}


def _of_method(method: str, windowed: bool) -> MutantTable:
    """Return the mutants of a method that do not depend on positions; ``windowed`` kernels also have groups."""
    image = "x" if method == "forward" else "g"
    groups = {name: of_input(image, change) for name, change in CHANNELS.items()} if windowed else {}
    if method == "gradient_weights":
        written = {name: of_result(lambda dw, problem, *_, f=f: f(dw, problem)) for name, f in WEIGHTS.items()}
        return {**written, **groups, **PARAMETERS}
    read = {name: of_input("weights", change) for name, change in WEIGHTS.items()}
    read["the weights of an earlier call are taken"] = _stale_weights()
    if method == "forward":
        return {**read, **groups, **FORWARD}
    return {**read, **groups, **DATA, **(OVERLAPPING if windowed else {})}


def _positions(kernel: type, method: str) -> MutantTable:
    if kernel is Convolution:  # weights fix the kernel size; data gradients exist for "zero" alone
        return window_mutants(Convolution, ("kernel_size", *(["edge_mode"] if method == "gradient_data" else [])))
    return TRANSPOSE if kernel is ConvolutionTranspose else {}


MUTANTS: dict[OperationKey, MutantTable] = {
    Operation(kernel, method): {**_positions(kernel, method), **_of_method(method, kernel is not FullyConnected)}
    for kernel in (Convolution, ConvolutionTranspose, FullyConnected)
    for method in ("forward", "gradient_data", "gradient_weights")
}
