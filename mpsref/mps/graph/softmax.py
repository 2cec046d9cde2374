"""Softmax and log-softmax nodes; their gradients read the forward result [doc]."""

from __future__ import annotations

from typing import ClassVar

from mpsref.arguments.arrays import Shape
from mpsref.kernels import LogSoftMax, SoftMax
from mpsref.mps.graph.nodes import (
    BoundState,
    FunctionGradientNode,
    FunctionNode,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
)


class _Gradient(FunctionGradientNode):
    def _image_shape(self, state: BoundState) -> Shape:
        return state.bound.shape


class MPSCNNSoftMaxGradientNode(_Gradient):
    """The gradient of softmax; ``source_image`` is the forward result."""


class MPSCNNLogSoftMaxGradientNode(_Gradient):
    """The gradient of log-softmax; ``source_image`` is the forward result."""


class _Node(FunctionNode):
    spec_class: ClassVar[type[SoftMax | LogSoftMax]]
    gradient_class: ClassVar[type[_Gradient]]

    @property
    def function(self) -> SoftMax | LogSoftMax:
        """The functional form."""
        return self.spec_class()

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        return self.gradient_class(source_gradient, self.result_image, self._state)


class MPSCNNSoftMaxNode(_Node):
    """Softmax over the channels of each pixel."""

    kind = "softmax"
    gradient_class = MPSCNNSoftMaxGradientNode
    spec_class = SoftMax


class MPSCNNLogSoftMaxNode(_Node):
    """The logarithm of softmax."""

    kind = "logsoftmax"
    gradient_class = MPSCNNLogSoftMaxGradientNode
    spec_class = LogSoftMax
