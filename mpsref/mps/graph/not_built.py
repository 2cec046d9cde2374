"""Nodes of MPS without a kernel in mpsref: their constructors raise ``UnsupportedError`` [choice].

>>> MPSCNNYOLOLossNode()
Traceback (most recent call last):
mpsref.errors.UnsupportedError: MPSCNNYOLOLossNode is not built; use an MPSCNNLossNode for each of its parts
"""

from __future__ import annotations

from typing import ClassVar, Never

from mpsref.errors import UnsupportedError


class _NotBuilt:
    instead: ClassVar[str]

    def __new__(cls, *args: object, **kwargs: object) -> Never:
        raise UnsupportedError(f"{cls.__name__} is not built; {cls.instead}")


class MPSCNNBinaryConvolutionNode(_NotBuilt):
    """A convolution with weights of one bit."""

    instead = "use an MPSCNNConvolutionNode with weights of -1 and 1"


class MPSCNNBinaryFullyConnectedNode(_NotBuilt):
    """A fully connected layer with weights of one bit."""

    instead = "use an MPSCNNFullyConnectedNode with weights of -1 and 1"


class MPSCNNYOLOLossNode(_NotBuilt):
    """The loss of YOLO."""

    instead = "use an MPSCNNLossNode for each of its parts"


class MPSNNGramMatrixCalculationNode(_NotBuilt):
    """The Gram matrix of the channels of an image."""

    instead = "compute it from an exported image"


class MPSNNBilinearScaleNode(_NotBuilt):
    """Bilinear scaling of an image to another size."""

    instead = "scale images before the run, or use an MPSCNNUpsamplingBilinearNode"


class MPSNNLanczosScaleNode(_NotBuilt):
    """Lanczos scaling of an image to another size."""

    instead = "scale images before the run"
