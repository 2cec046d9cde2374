"""Transposed convolution: the data gradient of a convolution, through the MSL functions of that convolution."""

from __future__ import annotations

from mpsref.arguments.arrays import Array
from mpsref.kernels import ConvolutionTranspose
from mpsref.kernels.convolution_transpose import (
    TransposeForward,
    TransposeGradientData,
    TransposeGradientWeights,
    exchanged,
)
from mpsref_metal.convolution import bias_sums, convolved, pixels_of, weight_sums, windows_of
from mpsref_metal.launch import Launcher, store


def forward(
    launch: Launcher, problem: TransposeForward, x: Array, weights: Array, biases: Array | None = None, *, out: Array
) -> None:
    """Run the data gradient of the convolution, with biases and activation."""
    taken, spec = problem.convolution, problem.spec
    strides = taken.spec.windows[0].stride, taken.spec.windows[1].stride
    convolved(launch, x, weights, windows_of(taken), out, spec.groups, False, biases, spec.neuron, strides, turned=True)


def gradient_data(launch: Launcher, problem: TransposeGradientData, g: Array, weights: Array, out: Array) -> None:
    """Run the forward pass of the convolution."""
    convolved(launch, g, weights, pixels_of(problem.convolution), out, problem.spec.groups, True, turned=True)


def gradient_weights(
    launch: Launcher, problem: TransposeGradientWeights, g: Array, x: Array, out: tuple[Array, Array]
) -> None:
    """Run the weight gradient of the convolution with the two images exchanged."""
    dw, db = out
    store(exchanged(weight_sums(launch, problem.convolution, x, g), problem.spec.groups), dw)
    bias_sums(launch, g, db)


IMPLEMENTATIONS = {
    (ConvolutionTranspose, "forward"): forward,
    (ConvolutionTranspose, "gradient_data"): gradient_data,
    (ConvolutionTranspose, "gradient_weights"): gradient_weights,
}
