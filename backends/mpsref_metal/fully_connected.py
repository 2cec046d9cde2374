"""Fully connected layers through the MSL functions of convolution: an image is a pixel, and the batch a row."""

from __future__ import annotations

from mpsref.arguments.arrays import Array
from mpsref.kernels import Convolution, FullyConnected
from mpsref.kernels.convolution import ConvolutionForward, ConvolutionGradientData, ConvolutionGradientWeights
from mpsref_metal import convolution
from mpsref_metal.launch import Launcher


def forward(
    launch: Launcher, problem: ConvolutionForward, x: Array, weights: Array, biases: Array | None = None, *, out: Array
) -> None:
    """Run a 1 x 1 convolution on the row of images."""
    spec = Convolution(1, neuron=problem.spec.neuron)
    row = ConvolutionForward(spec, _row(x).shape, len(weights), biased=problem.biased)
    convolution.forward(launch, row, _row(x), _row(weights).swapaxes(0, 2), biases, out=_row(out))


def gradient_data(launch: Launcher, problem: ConvolutionGradientData, g: Array, weights: Array, out: Array) -> None:
    """Run the data gradient of the 1 x 1 convolution."""
    row = ConvolutionGradientData(Convolution(1), _row(out).shape, len(weights))
    convolution.gradient_data(launch, row, _row(g), _row(weights).swapaxes(0, 2), out=_row(out))


def gradient_weights(
    launch: Launcher, problem: ConvolutionGradientWeights, g: Array, x: Array, out: tuple[Array, Array]
) -> None:
    """Run the weight gradient of the 1 x 1 convolution."""
    dw, db = out
    row = ConvolutionGradientWeights(Convolution(1), _row(x).shape, len(dw))
    convolution.gradient_weights(launch, row, _row(g), _row(x), out=(_row(dw).swapaxes(0, 2), db))


def _row(images: Array) -> Array:
    """View (N, H, W, C) as one row of N pixels, (1, 1, N, H * W * C)."""
    return images.reshape(1, 1, len(images), -1)


IMPLEMENTATIONS = {
    (FullyConnected, "forward"): forward,
    (FullyConnected, "gradient_data"): gradient_data,
    (FullyConnected, "gradient_weights"): gradient_weights,
}
