from __future__ import annotations

from typing import Any

import numpy as np

from mpsref import Convolution, Neuron
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_torch.neuron import function_of
from mpsref_torch.run import Function, Torch, like
from mpsref_torch.windows import way


def activation(torch: Torch, neuron: Neuron | None) -> Function:
    """Return the function of a layer's neuron."""
    if neuron is not None and neuron.type == "prelu":
        raise UnsupportedError("no convolution of PyTorch has PReLU; compute the neuron by itself")
    return function_of(torch, neuron)


def forward(torch: Torch, problem: Any, x: Array, weights: Array, *biases: Array, out: Array) -> None:
    found, neuron = way(problem), activation(torch, problem.spec.neuron)
    keywords, conv2d = found.keywords, torch.functional.conv2d
    biases = tuple(bias.astype(x.dtype, copy=False) for bias in biases)
    out[...] = found.crop(torch(lambda *inputs: neuron(conv2d(*inputs, **keywords)), found.copy(x), weights, *biases))


def gradient_data(torch: Torch, problem: Any, g: Array, weights: Array, out: Array) -> None:
    found, conv2d = way(problem), torch.functional.conv2d
    keywords, x = found.keywords, found.copy(like(g, problem.source_shape))
    dx = torch.gradient(lambda x, weights: conv2d(x, weights, **keywords), found.extend(g), x, weights)
    out[...] = found.adjoint(dx)


def gradient_weights(torch: Torch, problem: Any, g: Array, x: Array, out: tuple[Array, Array]) -> None:
    found, conv2d = way(problem), torch.functional.conv2d
    keywords, weights = found.keywords, like(x, problem.weights_shape)
    image, bias = found.copy(x), np.zeros(problem.output_channels, x.dtype)
    function = lambda weights, bias, x: conv2d(x, weights, bias, **keywords)  # noqa: E731
    out[0][...], out[1][...] = torch.gradients(function, [weights, bias, image], found.extend(g), count=2)


IMPLEMENTATIONS = {
    (Convolution, "forward"): forward,
    (Convolution, "gradient_data"): gradient_data,
    (Convolution, "gradient_weights"): gradient_weights,
}
