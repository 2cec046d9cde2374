"""The kernels under Apple's names, for people who know Metal Performance Shaders.

>>> import numpy as np
>>> from mpsref import mps
>>> pool = mps.MPSCNNPoolingAverage(kernel_width=3, kernel_height=3, stride_in_pixels_x=2, stride_in_pixels_y=2)
>>> y, state = pool.encode(np.ones((1, 8, 8, 4), np.float32), return_state=True)
>>> y.shape, state.source_height
((1, 4, 4, 4), 8)

Names are Apple's in snake_case; there is no device, and ``backend=`` says what to compute on. Images are arrays
(N, H, W, C) or :class:`MPSImage` objects; what goes in comes out. Everything computes through the registry alone, with
the functional forms in ``mpsref``.
"""

from mpsref.mps.binary_kernel import MPSCNNBinaryKernel
from mpsref.mps.command_buffer import MPSCommandBuffer, MTLCommandBufferStatus
from mpsref.mps.gradient_kernel import MPSCNNGradientKernel
from mpsref.mps.image import MPSImage, MPSImageBatch, MPSTemporaryImage
from mpsref.mps.image_descriptor import MPSImageDescriptor
from mpsref.mps.kernel import MPSCNNKernel, MPSKernel
from mpsref.mps.multiary_kernel import MPSCNNMultiaryKernel
from mpsref.mps.padding import MPSNNDefaultPadding, MPSNNPadding
from mpsref.mps.pooling import (
    MPSCNNDilatedPoolingMax,
    MPSCNNDilatedPoolingMaxGradient,
    MPSCNNPooling,
    MPSCNNPoolingAverage,
    MPSCNNPoolingAverageGradient,
    MPSCNNPoolingGradient,
    MPSCNNPoolingL2Norm,
    MPSCNNPoolingL2NormGradient,
    MPSCNNPoolingMax,
    MPSCNNPoolingMaxGradient,
)
from mpsref.mps.properties import PropertyError
from mpsref.mps.serialization import SecureCoding, secure_coding
from mpsref.mps.state import MPSNNBinaryGradientState, MPSNNGradientState, MPSNNMultiaryGradientState, MPSState
from mpsref.mps.types import (
    MPSDataLayout,
    MPSImageEdgeMode,
    MPSImageFeatureChannelFormat,
    MPSNNPaddingMethod,
    MPSOffset,
    MPSRectNoClip,
    MTLOrigin,
    MTLRegion,
    MTLSize,
)

__all__ = [
    "MPSCNNBinaryKernel",
    "MPSCNNDilatedPoolingMax",
    "MPSCNNDilatedPoolingMaxGradient",
    "MPSCNNGradientKernel",
    "MPSCNNKernel",
    "MPSCNNMultiaryKernel",
    "MPSCNNPooling",
    "MPSCNNPoolingAverage",
    "MPSCNNPoolingAverageGradient",
    "MPSCNNPoolingGradient",
    "MPSCNNPoolingL2Norm",
    "MPSCNNPoolingL2NormGradient",
    "MPSCNNPoolingMax",
    "MPSCNNPoolingMaxGradient",
    "MPSCommandBuffer",
    "MPSDataLayout",
    "MPSImage",
    "MPSImageBatch",
    "MPSImageDescriptor",
    "MPSImageEdgeMode",
    "MPSImageFeatureChannelFormat",
    "MPSKernel",
    "MPSNNBinaryGradientState",
    "MPSNNDefaultPadding",
    "MPSNNGradientState",
    "MPSNNMultiaryGradientState",
    "MPSNNPadding",
    "MPSNNPaddingMethod",
    "MPSOffset",
    "MPSRectNoClip",
    "MPSState",
    "MPSTemporaryImage",
    "MTLCommandBufferStatus",
    "MTLOrigin",
    "MTLRegion",
    "MTLSize",
    "PropertyError",
    "SecureCoding",
    "secure_coding",
]
