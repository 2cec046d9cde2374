from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from mpsref import FullyConnected
from mpsref_jax.neuron import function_of
from mpsref_jax.run import Function, JaxArray, pullback


def _layer(x: JaxArray, weights: JaxArray) -> JaxArray:
    return (x.reshape(len(x), -1) @ weights.reshape(len(weights), -1).T)[:, None, None]


def forward(problem: Any) -> Function:
    neuron = function_of(problem.spec.neuron)
    return lambda x, weights, *biases: neuron(sum(biases, _layer(x, weights)))


def gradient_data(problem: Any) -> Function:
    return lambda g, weights: pullback(lambda x: _layer(x, weights), g, jnp.zeros(problem.source_shape))[0]


def gradient_weights(problem: Any) -> Function:
    def gradient(g: JaxArray, x: JaxArray) -> tuple[JaxArray, ...]:
        parameters = jnp.zeros(problem.weights_shape), jnp.zeros(problem.output_channels)
        return pullback(lambda weights, biases: _layer(x, weights) + biases, g, *parameters)

    return gradient


IMPLEMENTATIONS = {
    (FullyConnected, "forward"): forward,
    (FullyConnected, "gradient_data"): gradient_data,
    (FullyConnected, "gradient_weights"): gradient_weights,
}
