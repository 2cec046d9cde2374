"""Nodes of MPS without a kernel in mpsref: their constructors raise ``UnsupportedError`` [design objects-not-built].

>>> MPSNNLanczosScaleNode()
Traceback (most recent call last):
mpsref.errors.UnsupportedError: MPSNNLanczosScaleNode is not built; scale images before the run
"""

from __future__ import annotations

from mpsref.mps.core.not_built import NotBuilt


class MPSCNNBinaryConvolutionNode(NotBuilt):
    """A convolution with weights of one bit."""

    instead = "use an MPSCNNConvolutionNode with weights of -1 and 1"


class MPSCNNBinaryFullyConnectedNode(NotBuilt):
    """A fully connected layer with weights of one bit."""

    instead = "use an MPSCNNFullyConnectedNode with weights of -1 and 1"


class MPSNNScaleNode(NotBuilt):
    """Base class of the nodes that scale an image to another size."""

    instead = "scale images before the run, or use an MPSCNNUpsamplingBilinearNode"


class MPSNNBilinearScaleNode(MPSNNScaleNode):
    """Bilinear scaling of an image to another size."""

    instead = "scale images before the run, or use an MPSCNNUpsamplingBilinearNode"


class MPSNNLanczosScaleNode(MPSNNScaleNode):
    """Lanczos scaling of an image to another size."""

    instead = "scale images before the run"
