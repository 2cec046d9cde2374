"""Reloads that fail, and what a reload changes and leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from mpsref.arguments.arrays import Array
from mpsref.errors import ShapeError
from mpsref.mps import (
    ArrayConvolutionDataSource,
    MPSCNNConvolution,
    MPSCNNConvolutionDescriptor,
    MPSCNNConvolutionGradient,
    MPSCNNConvolutionWeightsAndBiasesState,
)
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from tests.mps.convolution_layers import EXAMPLES, row

E1 = EXAMPLES["E1"]
X, G = row(*E1.x), row(*E1.g)
DESCRIPTOR = E1.descriptor


@dataclass
class Layer:
    """The two kernels made from one data source."""

    source: ArrayConvolutionDataSource

    def __post_init__(self) -> None:
        self.convolution, self.gradient = MPSCNNConvolution(self.source), MPSCNNConvolutionGradient(self.source)

    def backward(self) -> tuple[Array, Array]:
        y, state = self.convolution.encode(X, destination_size=(1, 3), return_state=True)
        return y, self.gradient.encode(G, X, state)


def small() -> Layer:
    return Layer(ArrayConvolutionDataSource(DESCRIPTOR.copy(), [1, 10, 100], [0.5]))


def weights_of(kernel: MPSCNNConvolution) -> tuple[Array, Array | None]:
    """What is in force in a kernel."""
    state = kernel.export_weights_and_biases()
    state.synchronize()
    assert (state.weights_offset, state.biases_offset) == (0, 0)
    return state.weights, state.biases


def test_a_state_without_biases_keeps_those_of_the_kernel() -> None:
    layer = small()
    layer.convolution.reload_weights_and_biases(MPSCNNConvolutionWeightsAndBiasesState(np.zeros(3, np.float32)))
    assert layer.backward()[0].ravel().tolist() == [0.5] * 3


def test_a_state_with_biases_gives_them_to_a_kernel_without() -> None:
    convolution = MPSCNNConvolution(ArrayConvolutionDataSource(DESCRIPTOR, [1, 10, 100]))
    assert weights_of(convolution)[1] is None
    state = MPSCNNConvolutionWeightsAndBiasesState(np.zeros(3, np.float32), np.full(1, 2, np.float32))
    convolution.reload_weights_and_biases(state)
    assert convolution.encode_batch(X).ravel().tolist() == [2, 2, 2]


def test_a_reload_from_a_state_that_fails_leaves_the_old_weights() -> None:
    layer = small()
    wrong = [
        (
            MPSCNNConvolutionWeightsAndBiasesState(MPSCNNConvolutionDescriptor(4, 1, 1, 1)),
            ShapeError,
            "state's weights",
        ),
        (MPSCNNConvolutionWeightsAndBiasesState(np.zeros((1, 1, 1, 3), np.float32)), ShapeError, "looks like .out, in"),
        (
            MPSCNNConvolutionWeightsAndBiasesState(np.zeros(3, np.float32), np.zeros(2, np.float32)),
            ShapeError,
            "state's biases has shape",
        ),
        (np.zeros(3, np.float32), TypeError, "state is of type ndarray"),
    ]
    for state, error, words in wrong:
        for kernel in (layer.convolution, layer.gradient):
            with pytest.raises(error, match=words):
                kernel.reload_weights_and_biases(state)
    y, dx = layer.backward()
    assert y.ravel().tolist() == [210.5, 432.5, 54.5]
    assert dx.ravel().tolist() == [10, 102, 20, 203, 30]


def test_a_committed_command_buffer_takes_no_reload_and_no_export() -> None:
    layer, buffer = small(), MPSCommandBuffer()
    state = layer.convolution.export_weights_and_biases(command_buffer=buffer)
    buffer.commit()
    with pytest.raises(RuntimeError, match="command_buffer has status Committed"):
        layer.convolution.reload_weights_and_biases(state, buffer)
    with pytest.raises(RuntimeError, match="command_buffer has status Committed"):
        layer.convolution.export_weights_and_biases(command_buffer=buffer)


def test_a_folded_batch_normalization_cannot_be_replaced_by_a_state() -> None:
    descriptor = DESCRIPTOR.copy()
    descriptor.set_batch_normalization_parameters_for_inference(gamma=[2], epsilon=0.0)
    convolution = MPSCNNConvolution(ArrayConvolutionDataSource(descriptor, [1, 2, 3]))
    state = convolution.export_weights_and_biases()
    with pytest.raises(ValueError, match="a batch normalization for inference is folded into the weights"):
        convolution.reload_weights_and_biases(state)
    assert weights_of(convolution)[0].ravel().tolist() == [2, 4, 6]


@pytest.mark.parametrize(
    ("name", "value"),
    [("kernel_width", 4), ("kernel_height", 2), ("input_feature_channels", 2), ("output_feature_channels", 2),
     ("stride_in_pixels_x", 1), ("stride_in_pixels_y", 2), ("dilation_rate_x", 2), ("dilation_rate_y", 2)],
)  # fmt: skip
def test_a_data_source_that_has_another_shape_now(name: str, value: int) -> None:
    layer = small()
    setattr(layer.source.descriptor(), name, value)
    layer.source.weights_array = np.zeros(layer.source.descriptor().weights_shape, np.float32)
    layer.source.biases_array = None
    for kernel in (layer.convolution, layer.gradient):
        with pytest.raises(ValueError, match=r"a reload may change neuron and batch normalization"):
            kernel.reload_weights_and_biases_from_data_source()
    setattr(layer.source.descriptor(), name, getattr(DESCRIPTOR, name))
    assert layer.backward()[0].ravel().tolist() == [210.5, 432.5, 54.5]


def test_a_reload_may_change_the_batch_normalization() -> None:
    source = ArrayConvolutionDataSource(DESCRIPTOR.copy(), [1, 10, 100])
    convolution = MPSCNNConvolution(source)
    source.descriptor().set_batch_normalization_parameters_for_inference(gamma=[2], beta=[1], epsilon=0.0)
    assert convolution.encode_batch(X).ravel().tolist() == [210, 432, 54]
    convolution.reload_weights_and_biases_from_data_source()
    assert convolution.encode_batch(X).ravel().tolist() == [421, 865, 109]
