"""Neurons: forward and gradient are one pass over the pixels, the gradient for PReLU's slopes is a sum over them.

The functions are in :mod:`mpsref_cpu.activation.functions`, also for kernels that fuse one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.neuron import Neuron, NeuronForward, NeuronGradient, NeuronParameterGradient
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.activation.functions import Prelu, compiled_form, slope, value
from mpsref_cpu.compiling import compiled, internal
from mpsref_cpu.simd.half import as_storage, load, store
from mpsref_cpu.threads import for_rows

BLOCK = 1 << 14
"""About how many values are a piece of work: 64 KB."""

ADDED = 64
"""So many values of a channel are summed up in float32, before float64 takes over."""


def block_of(neuron: Neuron) -> int:
    """Return how many values are a piece of work: for PReLU one for each of the slopes as they are repeated."""
    form = compiled_form(neuron)
    return len(form.slopes) if isinstance(form, Prelu) else BLOCK


def forward(problem: NeuronForward, x: Array, out: Array) -> None:
    """Fill ``out`` with f(x)."""
    neuron, long = compiled_form(problem.spec), block_of(problem.spec)
    pixels, results = as_storage(x), as_storage(out)
    for_rows(_forward, -(-x.size // long), long, neuron, pixels, results, nbytes=x.nbytes + out.nbytes)


def gradient(problem: NeuronGradient, g: Array, x: Array, out: Array) -> None:
    """Fill ``out`` with g * f'(x)."""
    neuron, long = compiled_form(problem.spec), block_of(problem.spec)
    gradients, pixels, results = as_storage(g), as_storage(x), as_storage(out)
    nbytes = g.nbytes + x.nbytes + out.nbytes
    for_rows(_gradient, -(-x.size // long), long, neuron, gradients, pixels, results, nbytes=nbytes)


def parameter_gradient(problem: NeuronParameterGradient, g: Array, x: Array, out: Array) -> None:
    """Fill ``out`` with the sum of g*x over the values of each channel that are below 0."""
    long = block_of(problem.spec)
    gradients, pixels = as_storage(g), as_storage(x)
    rows = -(-x.size // (ADDED * long))
    sums = np.zeros((rows, long), np.float32)
    for_rows(_parameter_gradient, rows, gradients, pixels, sums, nbytes=g.nbytes + x.nbytes)
    out[...] = sums.sum(0, np.float64).reshape(-1, out.size).sum(0)


# The loop over values has a function of its own: in the one around it LLVM would load all the constants of a neuron
# anew for every vector.


@compiled
def _forward(begin: int, end: int, long: int, neuron: Any, x: Any, y: Any) -> None:
    """Compute the pieces of ``long`` values from ``begin`` to ``end``; each of them starts with channel 0."""
    for piece in range(begin, end):
        _values(piece * long, min(long, x.size - piece * long), neuron, x, y)


@internal
def _values(start: int, count: int, neuron: Any, x: Any, y: Any) -> None:
    at = np.uintp(start)
    for i in range(np.uintp(count)):
        y[at + i] = store(value(neuron, load(x[at + i]), i), y[at + i])


@compiled
def _gradient(begin: int, end: int, long: int, neuron: Any, g: Any, x: Any, dx: Any) -> None:
    """Compute the pieces of ``long`` gradients from ``begin`` to ``end``; each of them starts with channel 0."""
    for piece in range(begin, end):
        _gradients(piece * long, min(long, x.size - piece * long), neuron, g, x, dx)


@internal
def _gradients(start: int, count: int, neuron: Any, g: Any, x: Any, dx: Any) -> None:
    at = np.uintp(start)
    for i in range(np.uintp(count)):
        dx[at + i] = store(load(g[at + i]) * slope(neuron, load(x[at + i]), i), dx[at + i])


@compiled
def _parameter_gradient(begin: int, end: int, g: Any, x: Any, sums: Any) -> None:
    """Compute rows ``begin`` to ``end`` of the sums: each of ADDED stretches of pixels as long as a row."""
    long = sums.shape[1]
    for row in range(begin, end):
        for start in range(row * ADDED * long, min((row + 1) * ADDED * long, x.size), long):
            at = np.uintp(start)
            for i in range(np.uintp(min(long, x.size - start))):
                pixel = load(x[at + i])
                term = load(g[at + i]) * pixel
                sums[row, i] += np.float32(0) if pixel >= 0 else term


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (Neuron, "forward"): forward,
    (Neuron, "gradient"): gradient,
    (Neuron, "parameter_gradient"): parameter_gradient,
}
