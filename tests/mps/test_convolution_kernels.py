"""What all kernels with weights share: copies, equality, how they print."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.arguments.arrays import Array
from tests.mps.convolution_layers import PlainSource

FORWARD: list[Any] = [mps.MPSCNNConvolution, mps.MPSCNNFullyConnected, mps.MPSCNNConvolutionTranspose]
GRADIENT: list[Any] = [
    mps.MPSCNNConvolutionGradient,
    mps.MPSCNNFullyConnectedGradient,
    mps.MPSCNNConvolutionTransposeGradient,
]
DESCRIPTOR = mps.MPSCNNConvolutionDescriptor(3, 1, 1, 1)


def source(*weights: float) -> mps.ArrayConvolutionDataSource:
    return mps.ArrayConvolutionDataSource(DESCRIPTOR, weights or (1, 10, 100), [0.5])


def in_force(kernel: Any) -> Array:
    weights: Array = kernel._loaded.weights
    return weights.ravel()


@pytest.mark.parametrize("kind", FORWARD + GRADIENT)
def test_a_copy_is_equal_and_independent(kind: Any) -> None:
    kernel = kind(source(), clip_rect=((1, 0, 0), (2, 1, 1)), backend="reference")
    twin = kernel.copy()
    assert twin == kernel
    assert type(twin) is kind
    assert twin.data_source is not kernel.data_source
    twin.data_source.weights_array[:] = 0
    twin.reload_weights_and_biases_from_data_source()
    assert twin != kernel
    assert in_force(kernel).tolist() == [1, 10, 100]
    assert kernel.data_source.weights_array.ravel().tolist() == [1, 10, 100]
    twin = kernel.copy()
    twin.clip_rect = None
    assert kernel.clip_rect is not None
    assert kernel.copy("cpu").backend == "cpu"
    assert kernel.copy().backend == kernel.backend == "reference"
    with pytest.raises(ValueError, match="unknown backend 'gpu'"):
        kernel.copy(backend="gpu")


def test_a_copy_has_the_weights_in_force_and_not_those_of_the_source() -> None:
    kernel = mps.MPSCNNConvolution(source())
    kernel.data_source.weights_array[:] = 7
    assert in_force(kernel.copy()).tolist() == [1, 10, 100]


def test_how_the_data_source_is_copied() -> None:
    class Plain(PlainSource):
        pass

    class Copied(PlainSource):
        def copy(self) -> str:
            return "copy"

    class ForDevice(Copied):
        def copy_with_device(self, device: Any) -> tuple[str, Any]:
            return "copy for", device

    weights = np.ones(3, np.float32)
    shared = Plain(DESCRIPTOR, weights)
    assert mps.MPSCNNConvolution(shared).copy().data_source is shared
    assert mps.MPSCNNConvolution(Copied(DESCRIPTOR, weights)).copy().data_source == "copy"
    kernel = mps.MPSCNNConvolution(ForDevice(DESCRIPTOR, weights), backend="reference")
    assert kernel.copy().data_source == ("copy for", "reference")
    assert kernel.copy(backend="cpu").data_source == ("copy for", "cpu")


def test_an_archive_has_the_weights_in_force() -> None:
    """A state has replaced those of the data source, or the data source cannot be saved."""
    kernel = mps.MPSCNNConvolution(source())
    kernel.reload_weights_and_biases(mps.MPSCNNConvolutionWeightsAndBiasesState(np.arange(3, dtype=np.float32)))
    assert in_force(mps.MPSCNNConvolution.from_json(kernel.to_json())).tolist() == [0, 1, 2]
    kernel.reload_weights_and_biases_from_data_source()
    assert in_force(mps.MPSCNNConvolution.from_json(kernel.to_json())).tolist() == [1, 10, 100]

    folded = DESCRIPTOR.copy()
    folded.set_batch_normalization_parameters_for_inference(gamma=[3], beta=[1], epsilon=0.0)
    plain = mps.MPSCNNConvolution(PlainSource(folded, np.array([0.1, 1, 2], np.float32)))
    loaded = mps.MPSCNNConvolution.from_json(plain.to_json())
    assert isinstance(loaded.data_source, mps.ArrayConvolutionDataSource)
    assert in_force(loaded).tolist() == in_force(plain).tolist() == [np.float16(np.float64(np.float32(0.1)) * 3), 3, 6]
    assert loaded._loaded.biases is not None
    assert loaded._loaded.biases.tolist() == [1], "folded once, not twice"
