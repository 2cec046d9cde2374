from __future__ import annotations

from typing import Any

import numpy as np

from mpsref import ConvolutionTranspose, frameworks
from mpsref.arguments.arrays import Array
from mpsref.frameworks import Way
from mpsref.operations import planned
from mpsref_torch.convolution import activation
from mpsref_torch.run import Torch, like


@planned
def way(problem: Any) -> Way:
    """Return PyTorch's arguments, or those of the whole result without padding and the part of it that is wanted."""
    return frameworks.transposed_way(problem, frameworks.pytorch)


def _weights(problem: Any, weights: Array) -> Array:
    """Return OHWI weights as an image (in, kH, kW, out): a tensor is permuted to (in, out, kH, kW)."""
    oihw = frameworks.weights_to(weights, "OIHW", problem.spec.groups, transposed=True)
    return oihw.transpose(0, 2, 3, 1)


def forward(torch: Torch, problem: Any, x: Array, weights: Array, *biases: Array, out: Array) -> None:
    found, neuron, spec = way(problem), activation(torch, problem.spec.neuron), problem.spec
    keywords, transpose = found.keywords, torch.functional.conv_transpose2d
    biases = tuple(bias.astype(x.dtype, copy=False) for bias in biases)
    if not found.grown:
        y = torch(lambda *inputs: neuron(transpose(*inputs, **keywords)), x, _weights(problem, weights), *biases)
        out[...] = found.crop(y)
        return
    y = torch(lambda *inputs: transpose(*inputs, **keywords), x, _weights(problem, weights), *biases)
    y = frameworks.unpadded(problem).copy(y, biases[0] if biases else 0.0)
    out[...] = y if spec.neuron is None else torch(neuron, y)


def gradient_data(torch: Torch, problem: Any, g: Array, weights: Array, out: Array) -> None:
    found, transpose = way(problem), torch.functional.conv_transpose2d
    keywords, x = found.keywords, like(g, problem.source_shape)
    function = lambda x, weights: transpose(x, weights, **keywords)  # noqa: E731
    out[...] = torch.gradient(function, found.extend(g).astype(g.dtype, copy=False), x, _weights(problem, weights))


def gradient_weights(torch: Torch, problem: Any, g: Array, x: Array, out: tuple[Array, Array]) -> None:
    found, transpose = way(problem), torch.functional.conv_transpose2d
    keywords, groups = found.keywords, problem.spec.groups
    weights = _weights(problem, like(x, problem.weights_shape))
    function = lambda weights, x: transpose(x, weights, **keywords)  # noqa: E731
    dw = torch.gradient(function, found.extend(g).astype(g.dtype, copy=False), weights, x)
    out[0][...] = frameworks.weights_from(dw.transpose(0, 3, 1, 2), "OIHW", groups, transposed=True)
    bias = np.zeros(problem.output_channels, x.dtype)
    shape = x.shape[0], *problem.result_size, problem.output_channels
    add = lambda bias, y: y + bias[:, None, None]  # noqa: E731
    out[1][...] = torch.gradient(add, g, bias, like(g, shape))


IMPLEMENTATIONS = {
    (ConvolutionTranspose, "forward"): forward,
    (ConvolutionTranspose, "gradient_data"): gradient_data,
    (ConvolutionTranspose, "gradient_weights"): gradient_weights,
}
