"""An executable reference for the CNN training kernels of Apple's Metal Performance Shaders.

>>> import numpy as np, mpsref
>>> pool = mpsref.PoolingAverage(kernel_size=(2, 2), strides=(2, 2), offset=(1, 1))
>>> pool.forward(np.ones((1, 4, 4, 3), np.float32)).shape
(1, 2, 2, 3)
"""

from typing import TYPE_CHECKING, Any

from mpsref import geometry, kernels, padding
from mpsref.errors import (
    GraphError,
    NoGradientError,
    NotSynchronizedError,
    OrderError,
    ShapeError,
    UnsupportedError,
)
from mpsref.registry import Backend, Operation, backends, register, set_backend, use_backend

if TYPE_CHECKING:
    from mpsref.kernels import (
        Adam,
        Arithmetic,
        BatchGradientSums,
        BatchNormalization,
        BatchStatistics,
        Compare,
        Concatenation,
        Convolution,
        ConvolutionTranspose,
        CropAndResizeBilinear,
        CrossChannelNormalization,
        Dropout,
        FullyConnected,
        GroupNormalization,
        InstanceNormalization,
        LocalContrastNormalization,
        LogSoftMax,
        Loss,
        Neuron,
        Pad,
        PoolingAverage,
        PoolingL2Norm,
        PoolingMax,
        Reduce,
        Reshape,
        ResizeBilinear,
        RMSProp,
        Slice,
        SoftMax,
        SpatialNormalization,
        StochasticGradientDescent,
        UpsamplingBilinear,
        UpsamplingNearest,
    )

__version__ = "0.1.0"

__all__ = [
    "Adam",
    "Arithmetic",
    "Backend",
    "BatchGradientSums",
    "BatchNormalization",
    "BatchStatistics",
    "Compare",
    "Concatenation",
    "Convolution",
    "ConvolutionTranspose",
    "CropAndResizeBilinear",
    "CrossChannelNormalization",
    "Dropout",
    "FullyConnected",
    "GraphError",
    "GroupNormalization",
    "InstanceNormalization",
    "LocalContrastNormalization",
    "LogSoftMax",
    "Loss",
    "Neuron",
    "NoGradientError",
    "NotSynchronizedError",
    "Operation",
    "OrderError",
    "Pad",
    "PoolingAverage",
    "PoolingL2Norm",
    "PoolingMax",
    "RMSProp",
    "Reduce",
    "Reshape",
    "ResizeBilinear",
    "ShapeError",
    "Slice",
    "SoftMax",
    "SpatialNormalization",
    "StochasticGradientDescent",
    "UnsupportedError",
    "UpsamplingBilinear",
    "UpsamplingNearest",
    "__version__",
    "backends",
    "geometry",
    "padding",
    "register",
    "set_backend",
    "use_backend",
]


def __getattr__(name: str) -> Any:
    """Import a kernel when it is asked for."""
    if name not in kernels.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(kernels, name)
    globals()[name] = value
    return value
