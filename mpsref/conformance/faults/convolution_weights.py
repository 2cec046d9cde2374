"""Planted faults in what the kernels with weights read: layouts of weights, groups of channels, biases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import honest_results, of_problem, of_result, with_spec
from mpsref.kernels.convolution_problems import Forward, Weighted
from mpsref.kernels.neuron_curves import value

__all__ = ["forward", "of_input", "reading", "stale_weights"]

Table = dict[str, Callable[..., None]]


def of_input(name: str, change: Callable[[Array, Any], Array]) -> Callable[..., None]:
    """Read ``change(array, problem)`` in place of the input ``name``, where there is one."""

    def run(problem: Weighted, *inputs: Array, out: Array | tuple[Array, ...]) -> None:
        changed = [
            change(array.astype(np.float64), problem) if known == name else array
            for known, array in zip(problem.input_shapes, inputs, strict=True)
        ]
        _store(honest_results(problem, *changed), out)

    return run


def _store(results: tuple[Array, ...], out: Array | tuple[Array, ...]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        for target, result in zip(out if isinstance(out, tuple) else (out,), results, strict=True):
            target[...] = result


# --- weights: each function returns what is read in their place -------------------------------------------------------


def _oihw(w: Array, problem: Any) -> Array:
    outputs, height, width, inputs = w.shape
    return w.reshape(outputs, inputs, height, width).transpose(0, 2, 3, 1)


def _hwio(w: Array, problem: Any) -> Array:
    outputs, height, width, inputs = w.shape
    return w.reshape(height, width, inputs, outputs).transpose(3, 0, 1, 2)


def _ihwo(w: Array, problem: Any) -> Array:
    outputs, height, width, inputs = w.shape
    return w.reshape(inputs, height, width, outputs).transpose(3, 1, 2, 0)


def _owhi(w: Array, problem: Any) -> Array:
    outputs, height, width, inputs = w.shape
    return w.reshape(outputs, width, height, inputs).swapaxes(1, 2)


def _without(*index: Any) -> Callable[[Array, Any], Array]:
    """Return a change that sets a part of the weights to 0."""

    def change(w: Array, problem: Any) -> Array:
        rest = w.copy()
        rest[index] = 0
        return rest

    return change


def _interleaved(axis: int) -> Callable[[Array, Any], Array]:
    """Return a change that takes channel k for one of group ``k % G``, not ``k // (C / G)``."""

    def change(array: Array, problem: Any) -> Array:
        channels, groups = np.moveaxis(array, axis, 0), problem.spec.groups
        mixed = channels.reshape(-1, groups, *channels.shape[1:]).swapaxes(0, 1).reshape(channels.shape)
        return np.moveaxis(mixed, 0, axis)

    return change


def _first_group(array: Array, problem: Any) -> Array:
    """Every group reads the channels of the first."""
    own = array.shape[-1] // problem.spec.groups
    return np.tile(array[..., :own], problem.spec.groups)


WEIGHTS: dict[str, Callable[[Array, Any], Array]] = {
    "the kernel is rotated by 180 degrees": lambda w, p: w[:, ::-1, ::-1],
    "the rows of the kernel are flipped": lambda w, p: w[:, ::-1],
    "the columns of the kernel are flipped": lambda w, p: w[:, :, ::-1],
    "weights are (out, in, height, width)": _oihw,
    "weights are (height, width, in, out)": _hwio,
    "weights are (in, height, width, out)": _ihwo,
    "weights are (out, width, height, in)": _owhi,
    "the first tap is left out": _without(slice(None), 0, 0),
    "the last row of taps is left out": _without(slice(None), -1),
    "the last input channel of a group is left out": _without(..., -1),
    "the last output channel is left out": _without(-1),
    "the weights of the first output channel serve all": lambda w, p: np.broadcast_to(w[:1], w.shape),
}
"""What is read in place of the weights, or written in place of their gradient."""

CHANNELS: dict[str, Callable[[Array, Any], Array]] = {
    "every group takes the channels of the first": _first_group,
    "channel k belongs to group k % G": _interleaved(-1),
}
"""What is read in place of an image, where there are groups."""


def reading(problem_method: str, grouped: bool) -> Table:
    """Return the faults in what a method reads; ``grouped`` where the kernel has groups."""
    if problem_method == "gradient_weights":
        table: Table = {name: of_result(_on_result(change)) for name, change in WEIGHTS.items()}
    else:
        table = {name: of_input("weights", change) for name, change in WEIGHTS.items()}
        table["the weights of an earlier call are taken"] = stale_weights()
    if grouped:
        source = "x" if problem_method == "forward" else "g"
        table |= {name: of_input(source, change) for name, change in CHANNELS.items()}
    return table


def _on_result(change: Callable[[Array, Any], Array]) -> Callable[..., Array]:
    return lambda result, problem, *inputs: change(result, problem)


def stale_weights() -> Callable[..., None]:
    """Return a backend that keeps the weights which it saw first for a problem."""
    kept: dict[Any, Array] = {}

    def run(problem: Any, first: Array, weights: Array, *others: Array, out: Array) -> None:
        _store(honest_results(problem, first, kept.setdefault(problem, weights.copy()), *others), out)

    return run


# --- biases and neurons -----------------------------------------------------------------------------------------------


def _neuron_before_biases(problem: Forward, x: Array, weights: Array, *biases: Array, out: Array) -> None:
    plain = with_spec(neuron=lambda spec: None)(problem)
    (y,) = honest_results(plain, x, weights, *(np.zeros_like(b) for b in biases))
    if problem.spec.neuron is not None:
        y = value(problem.spec.neuron, y)
    _store((y + sum(biases),), out)


def forward() -> Table:
    """Return the faults in what is added and applied in the forward pass."""
    return {
        "the biases are left out": of_input("biases", lambda b, p: 0 * b),
        "the bias of the next channel is taken": of_input("biases", lambda b, p: np.roll(b, 1)),
        "the biases are added once a tap": of_input("biases", lambda b, p: b * np.prod(p.spec.kernel_size)),
        "the first bias serves all channels": of_input("biases", lambda b, p: np.broadcast_to(b[:1], b.shape)),
        "the neuron comes before the biases": _neuron_before_biases,
        "the neuron is left out": of_problem(with_spec(neuron=lambda spec: None)),
    }
