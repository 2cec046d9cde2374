"""Weights and biases that live where kernels run: what a kernel exports, an optimizer writes, and a reload reads.

>>> from mpsref.mps.convolution_descriptor import MPSCNNConvolutionDescriptor
>>> state = MPSCNNConvolutionWeightsAndBiasesState(MPSCNNConvolutionDescriptor(3, 1, 1, 1))
>>> state.device_write(np.ones((1, 1, 3, 1), np.float32))
>>> state.synchronize()
>>> state.weights.ravel().tolist(), state.biases.tolist()
([1.0, 1.0, 1.0], [0.0])

Source: ``MPSCNNConvolutionWeightsAndBiasesState`` in ``MPSCNNConvolution.h`` [doc].
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import integer
from mpsref.errors import ShapeError
from mpsref.mps.convolution_descriptor import MPSCNNConvolutionDescriptor
from mpsref.mps.convolution_loading import immutable, shaped
from mpsref.mps.core.command_buffer import MPSCommandBuffer, SynchronizedState, check_encodable
from mpsref.mps.core.state import MPSState

__all__ = ["ConvolutionBuffers", "MPSCNNConvolutionWeightsAndBiasesState"]


class ConvolutionBuffers(NamedTuple):
    """What a kernel on the device reads: arrays that are closed to changes and do not change later."""

    weights: Array
    """In the shape of the layout: output channel, row, column, input channel of the group."""
    biases: Array | None
    """One for each output channel, or ``None`` where the convolution has none."""


class MPSCNNConvolutionWeightsAndBiasesState(MPSState, SynchronizedState):
    """The weights and biases of a convolution, for kernels; the host reads them after a synchronization.

    Kernels of any kind use :meth:`device_read` and :meth:`device_write` in the order in which they are encoded.
    """

    def __init__(
        self,
        weights: Any,
        biases: Any = None,
        descriptor: MPSCNNConvolutionDescriptor | None = None,
        *,
        weights_offset: int = 0,
        biases_offset: int = 0,
    ) -> None:
        """Make a state from a descriptor, which allocates zeros, or from float32 buffers, which are copied.

        With buffers and a descriptor, the numbers start at offsets in bytes, multiples of 4. ``biases=None`` makes a
        state without biases. Raises ``TypeError`` for another dtype, ``ValueError`` for buffers that are too short.
        """
        self._weights_offset = _byte_offset("weights_offset", weights_offset)
        self._biases_offset = _byte_offset("biases_offset", biases_offset)
        if isinstance(weights, MPSCNNConvolutionDescriptor):
            if biases is not None or descriptor is not None:
                raise TypeError(
                    "a descriptor is the only argument, or it comes after two buffers: pass one or the other"
                )
            weights.check()
            channels = weights.output_feature_channels
            made = np.zeros(weights.weights_shape, np.float32), np.zeros(channels, np.float32)
            self._buffers = ConvolutionBuffers(*map(immutable, made))
            return
        weights = _buffer("weights", weights)
        biases = None if biases is None else _buffer("biases", biases)
        if descriptor is not None:
            descriptor.check()
            weights = _part("weights", weights, self._weights_offset, descriptor.weights_shape)
            if biases is not None:
                biases = _part("biases", biases, self._biases_offset, (descriptor.output_feature_channels,))
        elif weights_offset or biases_offset:
            raise ValueError("weights_offset and biases_offset need a descriptor, which says how many numbers follow")
        self._buffers = ConvolutionBuffers(
            immutable(np.array(weights, order="C")), None if biases is None else immutable(np.array(biases, order="C"))
        )

    @classmethod
    def sharing(cls, weights: Array, biases: Array | None) -> Self:
        """Return a state with arrays that are closed to changes, and not copied."""
        state = object.__new__(cls)
        state._weights_offset = state._biases_offset = 0
        state._buffers = ConvolutionBuffers(weights, biases)
        return state

    @classmethod
    def temporary_state(cls, command_buffer: MPSCommandBuffer, descriptor: MPSCNNConvolutionDescriptor) -> Self:
        """Return a state for one command buffer: here the same as one from the descriptor, for nothing expires."""
        check_encodable(command_buffer)
        return cls(descriptor)

    @property
    def weights(self) -> Array:
        """The weights, read-only; ``NotSynchronizedError`` unless :meth:`synchronize` has completed."""
        self.check_readable("weights")
        return self._buffers.weights

    @property
    def biases(self) -> Array | None:
        """The biases, read-only, or ``None``; ``NotSynchronizedError`` unless :meth:`synchronize` has completed."""
        self.check_readable("biases")
        return self._buffers.biases

    @property
    def weights_offset(self) -> int:
        """Where the weights started in the buffer that was passed in, in bytes."""
        return self._weights_offset

    @property
    def biases_offset(self) -> int:
        """Where the biases started in the buffer that was passed in, in bytes."""
        return self._biases_offset

    def device_read(self, command_buffer: MPSCommandBuffer | None = None) -> ConvolutionBuffers:
        """Return what a kernel that is encoded now reads; ``OrderError`` for a committed command buffer."""
        check_encodable(command_buffer)
        return self._buffers

    def device_write(self, weights: Any, biases: Any = None, *, command_buffer: MPSCommandBuffer | None = None) -> None:
        """Write what a kernel that is encoded now has computed: a copy, in the shape of the state or flat.

        ``biases=None`` keeps the biases. Raises ``ShapeError`` or ``TypeError`` for what does not fit, ``ValueError``
        for biases where the state has none, ``OrderError`` for a committed command buffer; then nothing is written.
        """
        before = self._buffers
        check_encodable(command_buffer)
        if biases is None:
            new = before.biases
        elif before.biases is None:
            raise ValueError("biases are to be written, but the state has none; pass biases=None")
        else:
            new = _written("biases", biases, before.biases)
        self._buffers = ConvolutionBuffers(_written("weights", weights, before.weights), new)
        self.written()

    def __repr__(self) -> str:
        biases = "without biases" if self._buffers.biases is None else "with biases"
        return f"<{type(self).__name__}: weights {self._buffers.weights.shape}, {biases}>"


def _byte_offset(name: str, value: Any) -> int:
    if type(value) is int and value == 0:
        return value
    number = integer(name, value, low=0)
    if number % 4:
        raise ValueError(f"{name} is {number}; it is in bytes and must be a multiple of 4, the size of a float32")
    return number


def _buffer(name: str, value: Any) -> Array:
    """Return a float32 array (or float64, for work in float64)."""
    array = np.asarray(value)
    if array.dtype not in (np.float32, np.float64):
        raise TypeError(f"{name} has dtype {array.dtype}; it must be float32: convert it with .astype(numpy.float32)")
    return array


def _part(name: str, buffer: Array, offset: int, shape: Shape) -> Array:
    """Return the numbers of a buffer from an offset in bytes on, in a shape."""
    first, size = offset // 4, math.prod(shape)
    if first + size > buffer.size:
        raise ShapeError(
            f"{name} has {4 * buffer.size} bytes; from {name}_offset {offset} on it must have {4 * size}, for {shape}"
        )
    return buffer.reshape(-1)[first : first + size].reshape(shape)


def _written(name: str, value: Any, before: Array) -> Array:
    return immutable(np.array(shaped(name, _buffer(name, value), before.shape)))
