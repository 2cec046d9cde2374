"""Fully connected layers with Apple's names, convolutions whose window is the whole image; and nodes of graphs.

>>> import numpy as np
>>> from mpsref.mps import ArrayConvolutionDataSource, MPSCNNConvolutionDescriptor
>>> descriptor = MPSCNNConvolutionDescriptor(2, 2, 2, 2)
>>> layer = MPSCNNFullyConnected(ArrayConvolutionDataSource(descriptor, np.arange(16), [0.5, -0.5]))
>>> layer.encode(np.arange(1, 9, dtype=np.float32).reshape(1, 2, 2, 2)).ravel().tolist()
[168.5, 455.5]

Source: ``MPSCNNFullyConnected`` in ``MPSCNNConvolution.h`` [doc]; the order of the weights is that of every
convolution, as in working networks, though one text there has the width before the height [choice
fully-connected-order].
"""

from __future__ import annotations

from collections.abc import Sequence

from mpsref.arguments.arrays import Shape
from mpsref.errors import ShapeError
from mpsref.kernels import FullyConnected
from mpsref.mps.convolution import (
    MPSCNNConvolution,
    MPSCNNConvolutionGradient,
    MPSCNNConvolutionGradientNode,
    MPSCNNConvolutionNode,
    WeightParameters,
)
from mpsref.mps.convolution_data_source import LoadedWeights
from mpsref.mps.convolution_kernel import WeightedGradientKernel, WeightedKernel
from mpsref.mps.core.call import Call, made
from mpsref.mps.core.padding import MPSNNDefaultPadding
from mpsref.mps.core.state import SourceProperties
from mpsref.mps.core.types import MPSNNPaddingMethod, MPSOffset


def _check_whole_image(kernel: WeightedKernel, loaded: LoadedWeights) -> None:
    """Raise ``ValueError`` unless the window is the whole image: strides, dilation and groups have no effect."""
    kind, descriptor = type(kernel).__name__, loaded.descriptor
    if descriptor.kind != "regular":
        raise ValueError(f"the descriptor is {descriptor!r}; {kind} takes an MPSCNNConvolutionDescriptor alone")
    for name in ("stride_in_pixels_x", "stride_in_pixels_y", "dilation_rate_x", "dilation_rate_y", "groups"):
        value = getattr(descriptor, name)
        if value != 1:
            raise ValueError(f"{name} is {value}; it must be 1 for {kind}, which has one window, the whole image")


def _function(kernel: WeightedKernel) -> FullyConnected:
    """Return the functional form."""
    descriptor = kernel._loaded.descriptor
    size = descriptor.kernel_height, descriptor.kernel_width
    return made(FullyConnected, size, descriptor.neuron)  # type: ignore[no-any-return]


class MPSCNNFullyConnected(MPSCNNConvolution):
    """Fully connected layer on images (N, H, W, Ci) of the kernel's size, to (N, 1, 1, Co).

    ``offset`` is ignored; the default padding policy makes a result of one pixel [doc].
    """

    padding = MPSCNNConvolution.padding.replace(default=MPSNNDefaultPadding(MPSNNPaddingMethod.SizeValidOnly))

    def _check_loaded(self, loaded: LoadedWeights) -> None:
        super()._check_loaded(loaded)
        _check_whole_image(self, loaded)

    def _spec(self) -> FullyConnected:
        return _function(self)

    def _source_properties(self, k: int) -> SourceProperties:
        """Return the properties with the offset of a window that begins with the image, for states."""
        source = super()._source_properties(k)
        center = MPSOffset(source.kernel_width // 2, source.kernel_height // 2, source.offset.z)
        return source._replace(offset=center)


class MPSCNNFullyConnectedGradient(MPSCNNConvolutionGradient):
    """The gradient of :class:`MPSCNNFullyConnected`, from g (N, 1, 1, Co) and the source to (N, H, W, Ci).

    Offsets and edge modes are ignored: a pixel of the result is that of the source [doc].
    """

    forward_class = MPSCNNFullyConnected

    def _check_loaded(self, loaded: LoadedWeights) -> None:
        super()._check_loaded(loaded)
        _check_whole_image(self, loaded)

    _reads_outside = False

    def _weights_function(self) -> FullyConnected:
        return _function(self)

    _data_gradient = WeightedGradientKernel._data_gradient  # not at an offset


# --- nodes of graphs --------------------------------------------------------------------------------------------------


class MPSCNNFullyConnectedGradientNode(MPSCNNConvolutionGradientNode):
    """The gradient of a fully connected layer."""


class MPSCNNFullyConnectedNode(MPSCNNConvolutionNode):
    """A fully connected layer: its window is the whole image, its result one pixel."""

    kind = "fc"
    custom_policy = "refused"
    spec_class = FullyConnected
    kernel_class = MPSCNNFullyConnected
    gradient_class = MPSCNNFullyConnectedGradientNode

    def _bind(self, shapes: Sequence[Shape], parameters: WeightParameters, states: Sequence[Call]) -> Call:
        kernel = parameters.kernel
        n, height, width, channels = shapes[0]
        _, rows, columns, inputs = kernel.weights_shape
        if (height, width, channels) != (rows, columns, inputs):
            raise ShapeError(
                f"its source has shape {shapes[0]}; its weights {kernel.weights_shape} are for images of "
                f"({rows}, {columns}, {inputs}); a concatenation pads each of its sources to a multiple of 4 channels"
            )
        return self._bound(kernel, shapes, (n, 1, 1, kernel.output_feature_channels))
