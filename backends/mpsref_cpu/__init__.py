"""The cpu backend: numba kernels on NumPy arrays.

An implementation is a function ``(problem, *inputs, out)``. It takes per-axis tables from the problem and fills
``out``; :mod:`mpsref_cpu.pooling.average` is the model. A module is imported when one of its kernels is first used.
"""

from mpsref import Backend
from mpsref.deferred import Deferred
from mpsref_cpu.threads import thread_count

__all__ = ["backend"]

MODULES: dict[str, tuple[str, ...]] = {
    "pooling.average": ("PoolingAverage",),
    "pooling.max": ("PoolingMax",),
    "pooling.l2norm": ("PoolingL2Norm",),
    "convolution.convolution": ("Convolution", "ConvolutionTranspose"),
    "convolution.fully_connected": ("FullyConnected",),
    "normalization.batch": ("BatchNormalization",),
    "normalization.group": ("InstanceNormalization", "GroupNormalization"),
    "normalization.spatial": ("SpatialNormalization",),
    "normalization.local_contrast": ("LocalContrastNormalization",),
    "normalization.cross_channel": ("CrossChannelNormalization",),
    "activation.neuron": ("Neuron",),
    "activation.softmax": ("SoftMax", "LogSoftMax"),
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
    "training.dropout": ("Dropout",),
    "training.loss": ("Loss",),
    "training.optimizers": ("StochasticGradientDescent", "RMSProp", "Adam"),
}
"""The kernels that each module implements: in its table ``IMPLEMENTATIONS``."""


def _device() -> str:
    threads = thread_count()
    return f"CPU, {threads} thread{'s' if threads > 1 else ''}"


backend = Backend("cpu", Deferred(__name__, MODULES), device=_device)
