"""Neurons: forward and gradient are one pass over the pixels, the gradient of PReLU's slopes is a sum over them.

The functions are in :mod:`mpsref_cpu.activation.functions`, also for kernels that fuse one.
"""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.neuron import Neuron, NeuronForward, NeuronGradient, NeuronParameterGradient
from mpsref.operations import cached_in_problem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.activation.functions import CompiledForm, Prelu, compiled_form, slope, value
from mpsref_cpu.compiling import compiled, internal
from mpsref_cpu.threads import for_rows

BLOCK = 1 << 14
"""Approximate number of values of a chunk: 64 KB."""

ADDED = 64
"""Number of values of a channel that are added up in float32; their sums are added up in float64."""


def block_of(form: CompiledForm) -> int:
    """Return the values of a chunk: for PReLU one for each of the repeated slopes."""
    return len(form.slopes) if isinstance(form, Prelu) else BLOCK


@cached_in_problem
def _plan(neuron: Neuron) -> tuple[CompiledForm, int]:
    """Return a neuron for compiled code, and the values of a chunk."""
    form = compiled_form(neuron)
    return form, block_of(form)


def forward(problem: NeuronForward, x: Array, out: Array) -> None:
    """Fill ``out`` with f(x)."""
    activate(problem.spec, x, out)


def activate(neuron: Neuron, x: Array, out: Array) -> None:
    """Fill ``out`` (N, H, W, C) with f(x), also for other kernels; ``out`` may be x."""
    form, size = _plan(neuron)
    for_rows(_forward, -(-x.size // size), size, form, x, out)


def gradient(problem: NeuronGradient, g: Array, x: Array, out: Array) -> None:
    """Fill ``out`` with g * f'(x)."""
    differentiate(problem.spec, g, x, out)


def differentiate(neuron: Neuron, g: Array, x: Array, out: Array) -> None:
    """Fill ``out`` with g * f'(x), also for other kernels; ``out`` may be x."""
    form, size = _plan(neuron)
    for_rows(_gradient, -(-x.size // size), size, form, g, x, out)


def parameter_gradient(problem: NeuronParameterGradient, g: Array, x: Array, out: Array) -> None:
    """Fill ``out`` with the sum of g*x over the values of each channel that are below 0."""
    _, size = _plan(problem.spec)
    rows = -(-x.size // (ADDED * size))
    sums = np.zeros((rows, size), np.float32)
    for_rows(_parameter_gradient, rows, g, x, sums)
    out[...] = sums.sum(0, np.float64).reshape(-1, out.size).sum(0)


# The loops over values are separate functions: in one function LLVM would reload the parameters for every vector.


@compiled
def _forward(begin, end, size, neuron, x, y):
    """Compute the chunks ``begin`` to ``end`` of ``size`` values, each of which begins with channel 0."""
    for chunk in range(begin, end):
        _values(chunk * size, min(size, x.size - chunk * size), neuron, x, y)


@internal
def _values(start, count, neuron, x, y):
    at = np.uintp(start)
    for i in range(np.uintp(count)):
        y[at + i] = value(neuron, x[at + i], i)


@compiled
def _gradient(begin, end, size, neuron, g, x, dx):
    """Compute the chunks ``begin`` to ``end`` of ``size`` gradients, each of which begins with channel 0."""
    for chunk in range(begin, end):
        _gradients(chunk * size, min(size, x.size - chunk * size), neuron, g, x, dx)


@internal
def _gradients(start, count, neuron, g, x, dx):
    at = np.uintp(start)
    for i in range(np.uintp(count)):
        dx[at + i] = g[at + i] * slope(neuron, x[at + i], i)


@compiled
def _parameter_gradient(begin, end, g, x, sums):
    """Compute rows ``begin`` to ``end`` of the sums, each of ADDED runs of pixels as long as a row."""
    size = sums.shape[1]
    for row in range(begin, end):
        for start in range(row * ADDED * size, min((row + 1) * ADDED * size, x.size), size):
            at = np.uintp(start)
            for i in range(np.uintp(min(size, x.size - start))):
                pixel = x[at + i]
                term = g[at + i] * pixel
                sums[row, i] += np.float32(0) if pixel >= 0 else term


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (Neuron, "forward"): forward,
    (Neuron, "gradient"): gradient,
    (Neuron, "parameter_gradient"): parameter_gradient,
}
