"""Kernels of MPS that mpsref does not build: their constructors raise ``UnsupportedError`` [design objects-not-built].

>>> MPSNNGridSample()
Traceback (most recent call last):
mpsref.errors.UnsupportedError: MPSNNGridSample is not built: it has no gradient; use an MPSNNCropAndResizeBilinear
"""

from __future__ import annotations

from mpsref.mps.core.not_built import NotBuilt


class MPSCNNBinaryConvolution(NotBuilt):
    """A convolution with weights of one bit, for inference. Source: ``MPSCNNConvolution.h`` [doc]."""

    why = "it has no gradient"
    instead = "use an MPSCNNConvolution with weights of -1 and 1"


class MPSCNNBinaryFullyConnected(NotBuilt):
    """A fully connected layer with weights of one bit, for inference. Source: ``MPSCNNConvolution.h`` [doc]."""

    why = "it has no gradient"
    instead = "use an MPSCNNFullyConnected with weights of -1 and 1"


class MPSNNGridSample(NotBuilt):
    """Interpolation at coordinates that a second image contains. Source: ``MPSNNGridSample.h`` [doc]."""

    why = "it has no gradient"
    instead = "use an MPSNNCropAndResizeBilinear"


class MPSNNLocalCorrelation(NotBuilt):
    """Correlations of the pixels of two images with neighbours. Source: ``MPSNNReduce.h`` [doc]."""

    why = "it has no gradient"
    instead = "compute it with MPSCNNMultiply of shifted images"
