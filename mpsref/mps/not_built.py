"""Kernels and nodes of MPS that mpsref does not build: constructors raise an error [design objects-not-built].

>>> MPSNNGridSample()
Traceback (most recent call last):
mpsref.errors.UnsupportedError: MPSNNGridSample is not built: it has no gradient; use an MPSNNCropAndResizeBilinear
>>> MPSNNLanczosScaleNode()
Traceback (most recent call last):
mpsref.errors.UnsupportedError: MPSNNLanczosScaleNode is not built; scale images before the run
"""

from __future__ import annotations

from typing import ClassVar, Never

from mpsref.errors import UnsupportedError


class NotBuilt:
    """A class without an implementation."""

    why: ClassVar[str] = ""
    """The reason, if it is not the obvious one."""
    instead: ClassVar[str]
    """The next step."""

    def __new__(cls, *args: object, **kwargs: object) -> Never:
        """Raise ``UnsupportedError`` with the reason and the next step."""
        reason = f": {cls.why}" if cls.why else ""
        raise UnsupportedError(f"{cls.__name__} is not built{reason}; {cls.instead}")


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


class MPSNNLanczosScaleNode(MPSNNScaleNode):
    """Lanczos scaling of an image to another size."""

    instead = "scale images before the run"
