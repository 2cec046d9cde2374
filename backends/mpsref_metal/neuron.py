"""Activations through ``msl/neuron.metal``, and the parameters of activations in other kernels."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.neuron import TYPES, Neuron, NeuronForward, NeuronGradient, NeuronParameterGradient
from mpsref_metal.launch import Launcher, typedef

PARTS = "neuron", "neuron_kernels"

CHUNK = 1024
"""Number of pixels of a chunk, which one thread adds up."""


def neuron_parameters(neuron: Neuron | None) -> Array:
    """Return the float32 buffer of ``neuron_value`` and ``neuron_slope``; ``None`` is the identity."""
    if neuron is None:
        return np.zeros(6, np.float32)
    a, b, c = neuron.a, neuron.b, neuron.c
    rate = 1.0 if c <= 0 else math.log(c)
    below = math.nan if c != int(c) else 1 - 2 * (c % 2)
    return np.array([a, b, c, rate, below, TYPES.index(neuron.type), *(neuron.data or ())], np.float32)


def forward(launch: Launcher, problem: NeuronForward, x: Array, out: Array) -> None:
    """Run ``forward``, y from x."""
    known = typedef("Storage", x), typedef("Gradient", x)
    buffers = [x, neuron_parameters(problem.spec), _sizes(problem, out.size)]
    launch.into(PARTS, "forward", buffers, out, known)


def gradient(launch: Launcher, problem: NeuronGradient, g: Array, x: Array, out: Array) -> None:
    """Run ``gradient``, dx from g and x."""
    known = typedef("Storage", x), typedef("Gradient", g)
    buffers = [g, x, neuron_parameters(problem.spec), _sizes(problem, out.size)]
    launch.into(PARTS, "gradient", buffers, out, known)


def parameter_gradient(launch: Launcher, problem: NeuronParameterGradient, g: Array, x: Array, out: Array) -> None:
    """Run ``parameter_gradient``, sums of g*x over chunks, and add these in float64."""
    known = typedef("Storage", x), typedef("Gradient", g)
    chunks = -(-x.size // out.size // CHUNK)
    buffers = [g, x, _sizes(problem, chunks * out.size)]
    (sums,) = launch.run(PARTS, "parameter_gradient", buffers, [((chunks, out.size), np.float32)], known)
    out[...] = np.asarray(sums).sum(0, np.float64)


def _sizes(problem: NeuronForward | NeuronGradient, count: int) -> Array:
    """Return the struct ``Sizes``."""
    n, height, width, channels = problem.source_shape
    return np.array([count, channels, n * height * width, CHUNK], np.uint32)


IMPLEMENTATIONS = {
    (Neuron, "forward"): forward,
    (Neuron, "gradient"): gradient,
    (Neuron, "parameter_gradient"): parameter_gradient,
}
