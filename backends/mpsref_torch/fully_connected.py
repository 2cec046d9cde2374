from __future__ import annotations

from typing import Any

import numpy as np

from mpsref import FullyConnected
from mpsref.arguments.arrays import Array
from mpsref_torch.convolution import activation
from mpsref_torch.run import Function, Tensor, Torch, like


def _layer(torch: Torch, neuron: Function = lambda y: y) -> Function:
    def layer(x: Tensor, weights: Tensor, *biases: Tensor) -> Tensor:
        y = neuron(torch.functional.linear(x.flatten(1), weights.flatten(1), *biases))
        return y[:, :, None, None]

    return layer


def forward(torch: Torch, problem: Any, x: Array, weights: Array, *biases: Array, out: Array) -> None:
    biases = tuple(bias.astype(x.dtype, copy=False) for bias in biases)
    out[...] = torch(_layer(torch, activation(torch, problem.spec.neuron)), x, weights, *biases)


def gradient_data(torch: Torch, problem: Any, g: Array, weights: Array, out: Array) -> None:
    out[...] = torch.gradient(_layer(torch), g, like(g, problem.source_shape), weights)


def gradient_weights(torch: Torch, problem: Any, g: Array, x: Array, out: tuple[Array, Array]) -> None:
    layer = _layer(torch)
    inputs = [like(x, problem.weights_shape), np.zeros(problem.output_channels, x.dtype), x]
    swapped = lambda weights, bias, x: layer(x, weights, bias)  # noqa: E731
    out[0][...], out[1][...] = torch.gradients(swapped, inputs, g, count=2)


IMPLEMENTATIONS = {
    (FullyConnected, "forward"): forward,
    (FullyConnected, "gradient_data"): gradient_data,
    (FullyConnected, "gradient_weights"): gradient_weights,
}
