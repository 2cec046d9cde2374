"""Convolution with Apple's names: a kernel that has weights, and leaves a state for their gradients.

>>> import numpy as np
>>> from mpsref.mps.convolution_data_source import ArrayConvolutionDataSource
>>> from mpsref.mps.convolution_descriptor import MPSCNNConvolutionDescriptor
>>> descriptor = MPSCNNConvolutionDescriptor(3, 1, 1, 1, stride_in_pixels_x=2)
>>> convolution = MPSCNNConvolution(ArrayConvolutionDataSource(descriptor, [1, 10, 100], [0.5]))
>>> x = np.array([1, 2, 3, 4, 5], np.float32).reshape(1, 1, 5, 1)
>>> y, state = convolution.encode(x, return_state=True)
>>> y.ravel().tolist(), state.convolution is convolution
([210.5, 432.5, 54.5], True)

Source: ``MPSCNNConvolution.h`` [doc].
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair
from mpsref.kernels import Convolution, Neuron
from mpsref.mps.convolution_kernel import ForwardWeightedKernel
from mpsref.mps.convolution_state import MPSCNNConvolutionGradientState
from mpsref.mps.core.clip_regions import Region
from mpsref.mps.core.image_arguments import ImageArgument
from mpsref.mps.core.kernel import saved
from mpsref.mps.core.state import SourceProperties
from mpsref.mps.core.types import MPSImageEdgeMode, MPSOffset

__all__ = ["MPSCNNConvolution", "convolution"]


@functools.lru_cache(maxsize=1024)
def convolution(source: SourceProperties, offset: Pair, groups: int, neuron: Neuron | None = None) -> Convolution:
    """Return the functional form for the properties of a source, with an offset (y, x) of the caller's."""
    return Convolution(
        kernel_size=(source.kernel_height, source.kernel_width),
        strides=(source.stride_in_pixels_y, source.stride_in_pixels_x),
        dilations=(source.dilation_rate_y, source.dilation_rate_x),
        offset=offset,
        groups=groups,
        edge_mode="clamp" if source.edge_mode is MPSImageEdgeMode.Clamp else "zero",
        neuron=neuron,
    )


@saved("data_source")
class MPSCNNConvolution(ForwardWeightedKernel):
    """Convolution of images (N, H, W, Ci) to (N, OH, OW, Co): :class:`mpsref.Convolution`.

    Taps are not flipped, and the fused neuron comes after the biases. With a sub-pixel descriptor the result is
    rearranged to (N, r * OH, r * OW, Co / r**2). ``encode(..., return_state=True)`` returns a
    :class:`MPSCNNConvolutionGradientState`.
    """

    state_class = MPSCNNConvolutionGradientState

    @property
    def sub_pixel_scale_factor(self) -> int:
        """How many result pixels, along each axis, one window makes."""
        return self._loaded.descriptor.sub_pixel_factor

    def _extras(self) -> Mapping[str, Any]:
        return {"kernel": self}

    def _described(self, sources: Sequence[ImageArgument], shape: Shape) -> tuple[Shape, Any]:
        n, height, width, channels = shape
        factor = self.sub_pixel_scale_factor
        return super()._described(sources, (n, height * factor, width * factor, channels))

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        factor, source = self.sub_pixel_scale_factor, self._source_properties(0)
        function = convolution(source, _yx(source.offset), self._loaded.descriptor.effective_groups, self._neuron)
        arguments = parts[0], self._functional_weights, self._loaded.biases
        target = destination[region]
        if factor == 1:
            function.forward(*arguments, region.size, out=target, backend=self.backend)
            return
        height, width = region.size
        windows = -(-height // factor), -(-width // factor)
        image = function.forward(*arguments, windows, backend=self.backend)
        target[...] = rearranged(image, factor)[:, :height, :width]


def rearranged(image: Array, factor: int) -> Array:
    """Return an image (N, H, W, factor**2 * C) as (N, factor * H, factor * W, C): channels become pixels.

    >>> import numpy as np
    >>> rearranged(np.arange(8).reshape(1, 1, 1, 8), 2)[0].tolist()
    [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    """
    n, height, width, channels = image.shape
    pixels = image.reshape(n, height, width, factor, factor, channels // factor**2)
    return pixels.transpose(0, 1, 3, 2, 4, 5).reshape(n, height * factor, width * factor, -1)


def _yx(offset: MPSOffset) -> Pair:
    return offset.y, offset.x
