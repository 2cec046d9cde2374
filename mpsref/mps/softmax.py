"""Softmax kernels and nodes with Apple's names. Their gradients read the forward **result**, not the source.

>>> import numpy as np
>>> x, g = np.array([[[[1.0, 2.0, 3.0]]]]), np.array([[[[1.0, 0.0, 0.0]]]])
>>> y, state = MPSCNNSoftMax().encode(x, return_state=True)
>>> MPSCNNSoftMaxGradient(validate=True).encode(g, y, state).round(6).ravel().tolist()
[0.081925, -0.022033, -0.059892]
>>> MPSCNNSoftMaxGradient(validate=True).encode(g, x, state)
Traceback (most recent call last):
ValueError: the channels of source_image sum to 6 at pixel (0, 0, 0); they must sum to 1 within 0.01: it is to be ...

Source: ``MPSCNNSoftMax.h`` [doc].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import flag
from mpsref.kernels.softmax import LogSoftMax, OverChannels, SoftMax
from mpsref.mps.core.call import Call
from mpsref.mps.core.pixelwise import Pixelwise, PixelwiseGradient
from mpsref.mps.core.properties import Alias, Property
from mpsref.mps.graph.nodes import ForwardKernelNode, GradientKernelNode

TOLERANCE = 1e-2


class _SoftMax(Pixelwise):
    function: ClassVar[OverChannels]
    _form = Alias("function", "The functional form.")


class MPSCNNSoftMax(_SoftMax):
    """Softmax over the channels of each pixel: :class:`mpsref.SoftMax`."""

    function = SoftMax()


class MPSCNNLogSoftMax(_SoftMax):
    """The logarithm of softmax: :class:`mpsref.LogSoftMax`."""

    function = LogSoftMax()


class _SoftMaxGradient(PixelwiseGradient):
    """A gradient whose ``source_image`` is the forward result.

    With ``validate=True`` its probabilities must sum to 1 within 0.01 at each pixel; ``ValueError`` if not.
    """

    _reads_result = True
    function: ClassVar[OverChannels]
    _form = Alias("function", "The functional form.")

    validate = Property(flag, False, "Whether to check that the image is a forward result.")

    def _probabilities(self, y: Array) -> Array:
        """Return the probabilities of a forward result."""
        return y

    def _run_with_state(self, state: Any, call: Call, images: Sequence[Array], target: Array | None) -> Array | None:
        if self.validate and call.computation is not None:
            y = images[1] if call.reads[1] is None else images[1][call.reads[1]]
            total = self._probabilities(y.astype(np.float64)).sum(3)
            wrong = ~(abs(total - 1) <= TOLERANCE)
            if wrong.any():
                at = tuple(int(k) for k in np.argwhere(wrong)[0])
                raise ValueError(
                    f"the channels of source_image sum to {total[at]:g} at pixel {at}; they must sum to 1 within "
                    f"{TOLERANCE}: it is to be the result of {self.forward_class.__name__}, not its source"
                )
        return super()._run_with_state(state, call, images, target)

    def _configuration(self, state: Any, g: Shape, x: Shape) -> Mapping[str, object]:
        record = state.record
        return {
            **super()._configuration(state, g, x),
            "secondary_offset": state.source.offset._replace(z=record.clip_rect.origin.z),
            "secondary_source_feature_channel_offset": record.destination_feature_channel_offset,
            "secondary_source_feature_channel_max_count": record.destination_feature_channels,
        }


class MPSCNNSoftMaxGradient(_SoftMaxGradient):
    """The gradient of softmax, from g and the forward result y."""

    forward_class = MPSCNNSoftMax
    function = MPSCNNSoftMax.function


class MPSCNNLogSoftMaxGradient(_SoftMaxGradient):
    """The gradient of log-softmax, from g and the forward result l."""

    forward_class = MPSCNNLogSoftMax
    function = LogSoftMax()

    def _probabilities(self, y: Array) -> Array:
        return np.asarray(np.exp(y))


# --- nodes of graphs --------------------------------------------------------------------------------------------------


class MPSCNNSoftMaxGradientNode(GradientKernelNode):
    """The gradient of softmax; ``source_image`` is the forward result."""

    kernel_class, _reads_result = MPSCNNSoftMaxGradient, True


class MPSCNNLogSoftMaxGradientNode(GradientKernelNode):
    """The gradient of log-softmax; ``source_image`` is the forward result."""

    kernel_class, _reads_result = MPSCNNLogSoftMaxGradient, True


class MPSCNNSoftMaxNode(ForwardKernelNode):
    """Softmax over the channels of each pixel."""

    kind, spec_class, kernel_class = "softmax", SoftMax, MPSCNNSoftMax
    gradient_class = MPSCNNSoftMaxGradientNode


class MPSCNNLogSoftMaxNode(ForwardKernelNode):
    """The logarithm of softmax."""

    kind, spec_class, kernel_class = "logsoftmax", LogSoftMax, MPSCNNLogSoftMax
    gradient_class = MPSCNNLogSoftMaxGradientNode
