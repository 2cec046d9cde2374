"""Gradient states of convolutions: where the gradients for weights and biases add up, and who may read them when.

A forward kernel makes the state, one for a whole batch. Every gradient kernel that is encoded with it adds its sums to
the buffers; nothing divides by the batch size and nothing resets them, so a new batch needs a new state. Kernels on the
device read the buffers in the order in which they are encoded, the host only after a synchronization.

Source: ``MPSCNNConvolutionGradientState`` and ``MPSCNNConvolutionTransposeGradientState`` in ``MPSCNNConvolution.h``
[doc]; "zero at creation, every encode adds" [choice].
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.mps.convolution_loading import immutable
from mpsref.mps.convolution_types import MPSCNNConvolutionWeightsLayout
from mpsref.mps.core.command_buffer import MPSCommandBuffer, SynchronizedState, check_encodable
from mpsref.mps.core.state import ForwardRecord, MPSNNGradientState

if TYPE_CHECKING:
    from mpsref.mps.convolution import MPSCNNConvolution
    from mpsref.mps.convolution_transpose import MPSCNNConvolutionTranspose

__all__ = ["ConvolutionGradients", "MPSCNNConvolutionGradientState", "MPSCNNConvolutionTransposeGradientState"]


class ConvolutionGradients(NamedTuple):
    """What a kernel on the device reads of a gradient state: arrays closed to changes, which do not change later."""

    weights: Array
    """dL/dw, in the shape of the weights."""
    biases: Array
    """dL/db, one for each output channel."""


class MPSCNNConvolutionGradientState(MPSNNGradientState, SynchronizedState):
    """What a convolution leaves for its gradient kernel, and what that leaves for the update of the weights."""

    __eq__ = object.__eq__  # two states with the same record hold different sums
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self, record: ForwardRecord) -> None:
        """Make the state of one forward pass; its buffers are zero."""
        super().__init__(record)
        self._buffers: ConvolutionGradients | None = None

    @property
    def kernel(self) -> Any:
        """The forward kernel that made the state."""
        return self.record.extras["kernel"]

    @property
    def convolution(self) -> MPSCNNConvolution | None:
        """The convolution that made the state."""
        convolution: MPSCNNConvolution | None = self.kernel
        return convolution

    @property
    def gradient_for_weights(self) -> Array:
        """dL/dw, in the shape of the weights: a read-only array that outlives the state.

        Raises ``NotSynchronizedError`` before :meth:`synchronize`, until its command buffer has completed, and after
        every further gradient kernel that is encoded with this state.
        """
        self.check_readable("gradient_for_weights")
        return self._sums.weights

    @property
    def gradient_for_biases(self) -> Array:
        """dL/db (Co,), also for a convolution without biases [choice]; otherwise as ``gradient_for_weights``."""
        self.check_readable("gradient_for_biases")
        return self._sums.biases

    @property
    def gradient_for_weights_layout(self) -> MPSCNNConvolutionWeightsLayout:
        """The order of ``gradient_for_weights``: OHWI."""
        return MPSCNNConvolutionWeightsLayout.OHWI

    def device_read(self, command_buffer: MPSCommandBuffer | None = None) -> ConvolutionGradients:
        """Return the gradients that a kernel which is encoded now reads: no synchronization is needed for that.

        Raises ``OrderError`` for a committed command buffer.
        """
        check_encodable(command_buffer)
        return self._sums

    @property
    def _sums(self) -> ConvolutionGradients:
        if self._buffers is None:
            shape: Shape = self.kernel.weights_shape
            made = np.zeros(shape, np.float32), np.zeros(shape[0], np.float32)
            self._buffers = ConvolutionGradients(*map(immutable, made))
        return self._buffers

    def accumulate(self, weights: Array, biases: Array, dtype: np.dtype[Any]) -> None:
        """Add the sums of one gradient kernel, rounded once to ``dtype``; the state is written.

        Buffers are float32, and float64 once there was a pass in float64. The arrays become the state's own.
        """
        if self._buffers is None:
            sums = weights.reshape(self.kernel.weights_shape), biases
        else:
            before = self._buffers
            dtype = np.result_type(dtype, before.weights)
            sums = before.weights + weights.reshape(before.weights.shape), before.biases + biases
        self._buffers = ConvolutionGradients(*[immutable(one.astype(dtype, copy=False)) for one in sums])
        self.written()


class MPSCNNConvolutionTransposeGradientState(MPSCNNConvolutionGradientState):
    """What a transposed convolution leaves; the gradients are those for its own weights. Source: [doc]."""

    def __init__(self, record: ForwardRecord) -> None:
        """Make the state of one forward pass; its buffers are zero."""
        super().__init__(record)
        self._paired: MPSCNNConvolution | None = None

    @property
    def convolution_transpose(self) -> MPSCNNConvolutionTranspose:
        """The transposed convolution that made the state."""
        transpose: MPSCNNConvolutionTranspose = self.kernel
        return transpose

    @property
    def convolution(self) -> MPSCNNConvolution | None:
        """The convolution whose state the transposed one was encoded with, or ``None``."""
        return self._paired

    def pair(self, state: MPSCNNConvolutionGradientState | None) -> None:
        """Note the state of the convolution that the transposed one was encoded with."""
        self._paired = None if state is None else state.convolution
