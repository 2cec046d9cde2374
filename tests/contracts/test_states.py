"""What holds for every state that kernels write: the host reads what was synchronized, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpsref import NotSynchronizedError, OrderError, mps

X = np.array([1, 2, 4, 5], np.float32).reshape(2, 1, 2, 1)
Write = Callable[[Any], Any]


def convolution() -> tuple[Any, Write]:
    source = mps.ArrayConvolutionDataSource(mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1), [1])
    _, state = mps.MPSCNNConvolution(source).encode(X, return_state=True)
    return state, lambda buffer: mps.MPSCNNConvolutionGradient(source).encode(X, X, state, command_buffer=buffer)


def weights() -> tuple[Any, Write]:
    state = mps.MPSCNNConvolutionWeightsAndBiasesState(mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1))
    return state, lambda buffer: state.device_write([1.0], [2.0], command_buffer=buffer)


def batch_normalization() -> tuple[Any, Write]:
    state = mps.MPSCNNBatchNormalization(mps.BatchNormalizationDataSource(1)).result_state_for_source_image(X)

    def write(buffer: Any) -> None:
        mps.MPSCNNBatchNormalizationStatistics().encode_batch(X, state, command_buffer=buffer)
        mps.MPSCNNBatchNormalizationStatisticsGradient().encode_batch(X, X, state, command_buffer=buffer)

    return state, write


def instance_normalization() -> tuple[Any, Write]:
    norm = mps.MPSCNNInstanceNormalization(mps.InstanceNormalizationDataSource(1))
    _, state = norm.encode(X, return_state=True)
    return state, lambda buffer: mps.MPSCNNInstanceNormalizationGradient().encode(X, X, state, command_buffer=buffer)


def group_normalization() -> tuple[Any, Write]:
    _, state = mps.MPSCNNGroupNormalization(mps.GroupNormalizationDataSource(1)).encode(X, return_state=True)
    return state, lambda buffer: mps.MPSCNNGroupNormalizationGradient().encode(X, X, state, command_buffer=buffer)


def dropout() -> tuple[Any, Write]:
    drop = mps.MPSCNNDropout(0.5, 1, (1, 1, 1))
    _, state = drop.encode(X, return_state=True)
    return state, lambda buffer: drop.encode(X, destination_state=state, command_buffer=buffer)


def loss() -> tuple[Any, Write]:
    labels, kernel = mps.MPSCNNLossLabels((1, 1, 1), X, X), mps.MPSCNNLoss(mps.MPSCNNLossDescriptor(0, "sum"))
    return labels, lambda buffer: kernel.encode(X, labels, command_buffer=buffer)


def pair(kind: Any) -> Callable[[], tuple[Any, Write]]:
    def made() -> tuple[Any, Write]:
        state = kind([1.0], [1.0])
        return state, lambda buffer: state.device_write([2.0], [3.0], command_buffer=buffer)

    return made


GRADIENTS = ("gradient_for_gamma", "gradient_for_beta")
STATES: dict[Callable[[], tuple[Any, Write]], tuple[str, ...]] = {
    convolution: ("gradient_for_weights", "gradient_for_biases"),
    weights: ("weights", "biases"),
    batch_normalization: ("mean", "variance", "gradient_for_mean", "gradient_for_variance", *GRADIENTS),
    instance_normalization: GRADIENTS,
    group_normalization: GRADIENTS,
    dropout: ("mask_data",),
    loss: ("loss_image", "labels_image", "weights_image"),
    pair(mps.MPSCNNNormalizationGammaAndBetaState): ("gamma", "beta"),
    pair(mps.MPSCNNNormalizationMeanAndVarianceState): ("mean", "variance"),
}


@pytest.mark.parametrize(("make", "names"), STATES.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_the_host_reads_after_a_synchronization(make: Any, names: tuple[str, ...]) -> None:
    state, write = make()
    buffer, late = mps.MPSCommandBuffer(), mps.MPSCommandBuffer()
    for step in (
        lambda: write(buffer),
        lambda: state.synchronize(buffer),
        buffer.commit,
        lambda: (buffer.wait_until_completed(), write(None)),
        lambda: (state.synchronize(late), write(late), late.wait_until_completed()),  # written since
    ):
        step()
        for name in names:
            with pytest.raises(NotSynchronizedError, match=f"{type(state).__name__}.{name} cannot be read"):
                getattr(state, name)
    last = mps.MPSCommandBuffer()
    state.synchronize(last)
    last.wait_until_completed()
    for name in names:
        found = getattr(state, name)
        assert found.size
        if name not in ("labels_image", "weights_image"):  # the images that the host has given
            with pytest.raises(ValueError, match="read-only"):
                found[...] = 0


@pytest.mark.parametrize("make", [make for make in STATES if make is not loss], ids=lambda make: make.__name__)
@pytest.mark.parametrize("words", ["read_count is 0", "of another command buffer"])
def test_a_temporary_state_is_written_on_its_command_buffer_while_reads_are_left(make: Any, words: str) -> None:
    state, write = make()
    own = mps.MPSCommandBuffer()
    state._as_temporary(own).read_count = 9
    write(own)
    state.synchronize(own)
    if "0" in words:
        state.read_count = 0
    for call in (write, state.synchronize):
        with pytest.raises(OrderError, match=f"temporary state .*{words}"):
            call(own if "0" in words else mps.MPSCommandBuffer())
