from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from mpsref import Convolution, ConvolutionTranspose
from mpsref_jax.neuron import function_of
from mpsref_jax.run import Function, JaxArray, pullback
from mpsref_jax.windows import convolution


def forward(problem: Any) -> Function:
    convolve, neuron = convolution(problem), function_of(problem.spec.neuron)
    return lambda x, weights, *biases: neuron(sum(biases, convolve(x, weights)))


def gradient_data(problem: Any) -> Function:
    convolve = convolution(problem)
    return lambda g, weights: pullback(lambda x: convolve(x, weights), g, jnp.zeros(problem.source_shape))[0]


def gradient_weights(problem: Any) -> Function:
    convolve = convolution(problem)

    def gradient(g: JaxArray, x: JaxArray) -> tuple[JaxArray, ...]:
        parameters = jnp.zeros(problem.weights_shape), jnp.zeros(problem.output_channels)
        return pullback(lambda weights, biases: convolve(x, weights) + biases, g, *parameters)

    return gradient


IMPLEMENTATIONS = {
    (kind, function.__name__): function
    for kind in (Convolution, ConvolutionTranspose)
    for function in (forward, gradient_data, gradient_weights)
}
