"""PyTorch equivalents of convolution, transposed convolution and fully connected layers.

Weights are converted before the time is taken: to the layout that oneDNN chooses for the forward pass, and to
channels_last for the gradients, which support no other. PyTorch computes the weight gradient of a transposed
convolution rotated and with its axes exchanged; the conversion is part of the call, because a user has to do it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.torch_equivalents import Arrays, Call, Outs, TorchEquivalent, blank, keywords, nchw, tensor
from mpsref.kernels import Convolution, ConvolutionTranspose, FullyConnected
from mpsref.kernels.convolution import SlidingProblem, WeightedForward, WeightedProblem
from mpsref.kernels.convolution_transpose import TransposeForward, TransposeGradientData, TransposeGradientWeights
from mpsref.registry import Spec

if TYPE_CHECKING:
    from torch import Tensor

TransposeProblem: TypeAlias = TransposeForward | TransposeGradientData | TransposeGradientWeights


def convolution(torch: ModuleType, problem: SlidingProblem, inputs: Arrays, outs: Outs) -> Call | None:
    """Return convolution; ``None`` with other borders than equal zeros, with a neuron, and into given memory."""
    spec = problem.spec
    found = keywords(problem)
    if outs or spec.neuron or found is None:
        return None
    arguments = [list(found[name]) for name in ("stride", "padding", "dilation")]
    if problem.method == "forward":
        x, weight, bias = _forward_inputs(torch, inputs)
        return _convolution(torch, x, weight, bias, arguments, spec.groups)
    return _backward(torch, problem, inputs, [*arguments, False, [0, 0], spec.groups], nchw)


def _forward_inputs(torch: ModuleType, inputs: tuple[Array, ...]) -> tuple[Tensor, Tensor, Tensor | None]:
    x, weight, *biases = inputs
    return nchw(torch, x), nchw(torch, weight), tensor(torch, biases[0]) if biases else None


def _convolution(
    torch: ModuleType, x: Tensor, weight: Tensor, bias: Tensor | None, arguments: Sequence[list[int]], groups: int
) -> Call:
    """Return the forward pass with weights in oneDNN's own layout, where this build of PyTorch has that."""
    strides, pads, dilations = arguments
    if x.is_cuda or not torch.backends.mkldnn.is_available():
        return lambda: torch.ops.aten.convolution(x, weight, bias, *arguments, False, [0, 0], groups)
    packed = torch._C._nn.mkldnn_reorder_conv2d_weight(
        weight.to_mkldnn(), pads, strides, dilations, groups, list(x.shape)
    )
    pointwise = torch.ops.mkldnn._convolution_pointwise
    return lambda: pointwise(x, packed, bias, pads, strides, dilations, groups, "none", [], "")


def _backward(
    torch: ModuleType,
    problem: WeightedProblem,
    inputs: tuple[Array, ...],
    arguments: Sequence[object],
    as_weight: Callable[[ModuleType, Array], Tensor],
) -> Call:
    """Return one of the two gradients; ``as_weight`` turns OHWI weights into PyTorch's."""
    backward, g = torch.ops.aten.convolution_backward, nchw(torch, inputs[0])
    biases = [problem.output_channels]
    if problem.method == "gradient_data":
        x, weight = blank(torch, problem.source_shape, g), as_weight(torch, inputs[1])
        return lambda: backward(g, x, weight, biases, *arguments, [True, False, False])[0]
    x, weight = nchw(torch, inputs[1]), as_weight(torch, np.empty(problem.weights_shape, np.float32)).to(g.device)
    if arguments[3]:
        return lambda: _turned(torch, backward(g, x, weight, biases, *arguments, [False, True, True])[1:])
    return lambda: backward(g, x, weight, biases, *arguments, [False, True, True])[1:]


def _turned(torch: ModuleType, gradients: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    weight, bias = gradients
    return torch.flip(weight, (2, 3)).transpose(0, 1), bias


def transpose(torch: ModuleType, problem: TransposeProblem, inputs: Arrays, outs: Outs) -> Call | None:
    """Return transposed convolution; ``None`` for what PyTorch's padding cannot express, and where convolution is."""
    spec = problem.spec
    found = keywords(problem)
    if outs or spec.neuron or spec.groups > 1 or found is None:
        return None
    arguments = [list(found["stride"]), list(found["padding"]), [1, 1], True, list(found["output_padding"]), 1]
    if problem.method != "forward":
        return _backward(torch, problem, inputs, arguments, _transposed)
    x, _, bias = _forward_inputs(torch, inputs)
    weight = _transposed(torch, inputs[1])
    return lambda: torch.ops.aten.convolution(x, weight, bias, *arguments)


def _transposed(torch: ModuleType, weights: Array) -> Tensor:
    """Return OHWI weights as PyTorch's transposed convolution has them: (in, out), rotated by 180 degrees."""
    return nchw(torch, weights[:, ::-1, ::-1].transpose(3, 1, 2, 0).copy())


def fully_connected(torch: ModuleType, problem: WeightedProblem, inputs: Arrays, outs: Outs) -> Call | None:
    """Return the products of matrices; ``None`` with a neuron, and into given memory."""
    if outs or problem.spec.neuron:
        return None
    flat = [tensor(torch, array.reshape(len(array), -1)) for array in inputs[:2]]
    images, height, width, channels = problem.source_shape
    outputs = problem.output_channels
    aten = torch.ops.aten
    if isinstance(problem, WeightedForward):
        bias = tensor(torch, inputs[2]) if problem.biased else None
        return lambda: aten.linear(*flat, bias).view(images, outputs, 1, 1)
    g, other = flat
    if problem.method == "gradient_data":
        return lambda: aten.mm(g, other).view(images, height, width, channels).permute(0, 3, 1, 2)

    def weights() -> tuple[Tensor, Tensor]:
        return aten.mm(g.t(), other).view(outputs, height, width, channels).permute(0, 3, 1, 2), g.sum(0)

    return weights


TORCH_EQUIVALENTS: dict[type[Spec], TorchEquivalent] = {
    Convolution: convolution,
    ConvolutionTranspose: transpose,
    FullyConnected: fully_connected,
}
