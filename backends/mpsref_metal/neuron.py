"""Activations through ``msl/neuron.metal``, and the parameters of activations in other kernels."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.neuron import TYPES, Neuron, NeuronForward, NeuronGradient, NeuronParameterGradient
from mpsref.operations import cached_in_problem
from mpsref_metal.fold import IDENTITY, fold
from mpsref_metal.launch import WIDE, Launcher, Tables, divisor, types, width_of

PARTS = "neuron", "neuron_kernels"

LEAST, CHUNK = 64, 1024
"""Minimum and maximum number of pixels of a chunk, which a thread adds up; it grows when threads fill the GPU."""


def neuron_parameters(neuron: Neuron | None) -> Array:
    """Return the float32 buffer of ``neuron_value`` and ``neuron_slope``; ``None`` is the identity."""
    if neuron is None:
        return IDENTITY
    a, b, c = neuron.a, neuron.b, neuron.c
    rate = 1.0 if c <= 0 else math.log(c)
    below = math.nan if c != int(c) else 1 - 2 * (c % 2)
    return np.array([a, b, c, rate, below, TYPES.index(neuron.type), 0, 0, *(neuron.data or ())], np.float32)


def forward(launch: Launcher, problem: NeuronForward, x: Array, out: Array) -> None:
    """Run ``forward``, y from x."""
    width = width_of(x.shape[3], x, out)
    count = out.size // width
    buffers = [x, _scalars(problem)[width]]
    launch.into(PARTS, "forward", buffers, out, types(width, Storage=x, Gradient=x), count)


def gradient(launch: Launcher, problem: NeuronGradient, g: Array, x: Array, out: Array) -> None:
    """Run ``gradient``, dx from g and x."""
    width = width_of(x.shape[3], g, x, out)
    count = out.size // width
    buffers = [g, x, _scalars(problem)[width]]
    launch.into(PARTS, "gradient", buffers, out, types(width, Storage=x, Gradient=g), count)


def parameter_gradient(launch: Launcher, problem: NeuronParameterGradient, g: Array, x: Array, out: Array) -> None:
    """Run ``parameter_gradient``, sums of g*x over chunks, then ``fold``."""
    width = width_of(out.size, g, x)
    chunk = max(LEAST, min(CHUNK, x.size // width // launch.gpu.threads))
    chunks = -(-x.size // out.size // chunk)
    count = chunks * out.size // width
    buffers = [g, x, _sizes(problem, count, width, chunk)]
    known = types(width, Storage=x, Gradient=g)
    (sums,) = launch.run(PARTS, "parameter_gradient", buffers, [((chunks, out.size), np.float32)], known, count)
    fold(launch, sums.reshape(1, chunks, out.size), out)


@cached_in_problem
def _scalars(problem: NeuronForward | NeuronGradient) -> dict[int, Tables]:
    """Return the parameters and the struct ``NeuronSizes`` for each number of channels of a thread."""
    size, parameters = math.prod(problem.source_shape), neuron_parameters(problem.spec)
    widths = [width for width in (1, WIDE) if problem.source_shape[3] % width == 0]
    return {width: Tables([parameters, _sizes(problem, size // width, width)]) for width in widths}


def _sizes(problem: NeuronForward | NeuronGradient, count: int, width: int, chunk: int = CHUNK) -> Array:
    """Return the struct ``NeuronSizes``."""
    n, height, columns, channels = problem.source_shape
    return np.array([count, *divisor(channels // width), n * height * columns, chunk], np.uint32)


IMPLEMENTATIONS = {
    (Neuron, "forward"): forward,
    (Neuron, "gradient"): gradient,
    (Neuron, "parameter_gradient"): parameter_gradient,
}
