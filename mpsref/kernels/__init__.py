"""The kernels: one file a family, with its frozen spec, its formulas in NumPy, and what bounds their error.

A family is imported when one of its names is first used; importing all of them takes longer than NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mpsref import operations, registry
from mpsref.kernels.reference import ErrorBound, input_dtype, reference
from mpsref.operations import Formula, OperationKey

if TYPE_CHECKING:
    from mpsref.kernels.arithmetic import Arithmetic
    from mpsref.kernels.batch_normalization import BatchGradientSums, BatchNormalization, BatchStatistics
    from mpsref.kernels.compare import Compare
    from mpsref.kernels.concatenation import Concatenation
    from mpsref.kernels.convolution import Convolution
    from mpsref.kernels.convolution_transpose import ConvolutionTranspose
    from mpsref.kernels.crop_and_resize import CropAndResizeBilinear
    from mpsref.kernels.cross_channel_normalization import CrossChannelNormalization
    from mpsref.kernels.dropout import Dropout
    from mpsref.kernels.fully_connected import FullyConnected
    from mpsref.kernels.group_normalization import GroupNormalization, InstanceNormalization
    from mpsref.kernels.local_contrast_normalization import LocalContrastNormalization
    from mpsref.kernels.loss import Loss
    from mpsref.kernels.neuron import Neuron
    from mpsref.kernels.optimizers import Adam, RMSProp, StochasticGradientDescent
    from mpsref.kernels.pad import Pad
    from mpsref.kernels.pooling_average import PoolingAverage
    from mpsref.kernels.pooling_l2norm import PoolingL2Norm
    from mpsref.kernels.pooling_max import PoolingMax
    from mpsref.kernels.reduce import Reduce
    from mpsref.kernels.reshape import Reshape
    from mpsref.kernels.resize import ResizeBilinear
    from mpsref.kernels.slice_ import Slice
    from mpsref.kernels.softmax import LogSoftMax, SoftMax
    from mpsref.kernels.spatial_normalization import SpatialNormalization
    from mpsref.kernels.upsampling import UpsamplingBilinear, UpsamplingNearest

    SPECS: tuple[type[operations.Spec], ...]
    REFERENCE: dict[OperationKey, Formula]
    TERMS: dict[OperationKey, Formula]

__all__ = [
    "FAMILIES",
    "REFERENCE",
    "SPECS",
    "TERMS",
    "Adam",
    "Arithmetic",
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
    "ErrorBound",
    "FullyConnected",
    "GroupNormalization",
    "InstanceNormalization",
    "LocalContrastNormalization",
    "LogSoftMax",
    "Loss",
    "Neuron",
    "Pad",
    "PoolingAverage",
    "PoolingL2Norm",
    "PoolingMax",
    "RMSProp",
    "Reduce",
    "Reshape",
    "ResizeBilinear",
    "Slice",
    "SoftMax",
    "SpatialNormalization",
    "StochasticGradientDescent",
    "UpsamplingBilinear",
    "UpsamplingNearest",
]

FAMILIES: dict[str, tuple[str, ...]] = {
    "pooling_average": ("PoolingAverage",),
    "pooling_max": ("PoolingMax",),
    "pooling_l2norm": ("PoolingL2Norm",),
    "convolution": ("Convolution",),
    "convolution_transpose": ("ConvolutionTranspose",),
    "fully_connected": ("FullyConnected",),
    "batch_normalization": ("BatchNormalization",),
    "group_normalization": ("InstanceNormalization", "GroupNormalization"),
    "spatial_normalization": ("SpatialNormalization",),
    "local_contrast_normalization": ("LocalContrastNormalization",),
    "cross_channel_normalization": ("CrossChannelNormalization",),
    "neuron": ("Neuron",),
    "softmax": ("SoftMax", "LogSoftMax"),
    "upsampling": ("UpsamplingNearest", "UpsamplingBilinear"),
    "resize": ("ResizeBilinear",),
    "crop_and_resize": ("CropAndResizeBilinear",),
    "arithmetic": ("Arithmetic",),
    "compare": ("Compare",),
    "concatenation": ("Concatenation",),
    "slice_": ("Slice",),
    "reshape": ("Reshape",),
    "pad": ("Pad",),
    "reduce": ("Reduce",),
    "dropout": ("Dropout",),
    "loss": ("Loss",),
    "optimizers": ("StochasticGradientDescent", "RMSProp", "Adam"),
}
"""The kernels of each module, in the order in which reports list them."""

_HOMES = {name: module for module, names in FAMILIES.items() for name in names} | {
    "BatchGradientSums": "batch_normalization",
    "BatchStatistics": "batch_normalization",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for: a kernel, or the tables of all of them.

    ``SPECS`` has every kernel there is; ``REFERENCE`` and ``TERMS`` have the formula of each operation, and what bounds
    its error.
    """
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name in ("SPECS", "REFERENCE", "TERMS"):
        found = registry.operations()
        if name == "SPECS":
            value = tuple(dict.fromkeys(one.spec_type for one in found))
        else:
            value = {one: one.formula if name == "REFERENCE" else one.error_bound for one in found}
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


for _backend in (reference, input_dtype):
    registry._registered[_backend.name] = _backend  # register() would look entry points up, at import
