"""Fully connected layers: a convolution whose one window is the whole image.

Forward  ``y[n, 0, 0, o] = act(b[o] + sum over h, v, c of w[o, h, v, c] * x[n, h, v, c])``
Data     ``dx[n, h, v, c] = sum over o of g[n, 0, 0, o] * w[o, h, v, c]``
Weights  ``dw[o, h, v, c] = sum over n of g[n, 0, 0, o] * x[n, h, v, c]``, ``db[o] = sum over n of g[n, 0, 0, o]``

Source: MPSCNNFullyConnected, MPSCNNFullyConnectedGradient in ``MPSCNNConvolution.h`` [doc]; weights are OHWI as for
every convolution, as networks that ran on Apple hardware pass them, though one text there has W before H [choice
fully-connected-order].
"""

from __future__ import annotations

from anymetal.fork_safe import cached_property
from mpsref.arguments.arrays import Shape
from mpsref.arguments.parameters import Pair
from mpsref.codecs import parameter
from mpsref.errors import ShapeError
from mpsref.geometry import Window
from mpsref.kernels.convolution import (
    ConvolutionForward,
    ConvolutionGradientData,
    ConvolutionGradientWeights,
    SlidingKernel,
    forward,
    forward_bound,
    gradient_data,
    gradient_data_bound,
    gradient_weights,
    gradient_weights_bound,
)
from mpsref.kernels.neuron import Neuron, neuron_codec
from mpsref.operations import operation


class FullyConnected(SlidingKernel):
    """A fully connected layer on images of the size ``kernel_size`` (height, width); results are 1 x 1.

    Parameters
    ----------
    kernel_size : int or pair of int
        Size of the image, >= 1.
    neuron : Neuron, optional
        Applied to each result; the gradients accept none.

    Examples
    --------
    >>> import numpy as np
    >>> layer = FullyConnected(kernel_size=2)
    >>> x = np.arange(1, 9, dtype=np.float32).reshape(1, 2, 2, 2)
    >>> w = np.arange(16, dtype=np.float32).reshape(2, 2, 2, 2)
    >>> layer.forward(x, w, biases=np.array([0.5, -0.5], np.float32)).ravel().tolist()
    [168.5, 455.5]
    >>> g = np.array([1, -1], np.float32).reshape(1, 1, 1, 2)
    >>> layer.gradient_data(g, w, x.shape).ravel().tolist()
    [-8.0, -8.0, -8.0, -8.0, -8.0, -8.0, -8.0, -8.0]
    """

    neuron: Neuron | None = parameter(neuron_codec(), default=None)

    @cached_property
    def windows(self) -> tuple[Window, Window]:
        """The window of the y axis and that of the x axis: they start at the first pixel."""
        height, width = self.size
        return Window(height, offset=height // 2), Window(width, offset=width // 2)

    def default_outputs(self, shape: Shape) -> Pair:
        """Return (1, 1)."""
        return 1, 1

    def check_sizes(self, source: Pair, output: Pair) -> None:
        """Raise ``ShapeError`` unless the source has the kernel's size and the result one pixel."""
        if source != self.size:
            raise ShapeError(
                f"the source image is {source[0]} x {source[1]}; it must have the kernel_size {self.size}: "
                "a fully connected layer has one window, the whole image"
            )
        if output != (1, 1):
            raise ShapeError(f"the result is {output[0]} x {output[1]}; a fully connected layer's is (1, 1)")


operation(FullyConnected, problem=ConvolutionForward, bound=forward_bound)(forward)
operation(FullyConnected, problem=ConvolutionGradientData, bound=gradient_data_bound)(gradient_data)
operation(FullyConnected, problem=ConvolutionGradientWeights, bound=gradient_weights_bound)(gradient_weights)
