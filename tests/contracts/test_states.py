"""What holds for every state that kernels write: the host reads what was synchronized, and changes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpsref import NotSynchronizedError, OrderError, mps
from mpsref.mps import graph
from mpsref.mps.core.properties import properties_of
from mpsref.mps.graph.nodes import MPSNNFilterNode
from mpsref.mps.graph.trainable import WeightedNode
from tests.contracts.test_objects import VALUES
from tests.subjects.classes import MADE, made
from tests.subjects.classes import X as X4

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


NODES = [
    kind
    for kind in MADE
    if issubclass(kind, MPSNNFilterNode) and kind.form == "forward" and kind.state_class is not None
]
"""The forward nodes with states."""


WITHOUT_EFFECT = frozenset(
    ["backend", "label", "training_style"]
    + [f"{side}_{name}" for side in ("primary", "secondary") for name in ("offset", "source_feature_channel_offset")]
)
"""Properties of nodes that are not recorded, and offsets of operands, for which both images differ in size."""


SQUARE = "kernel_width", "kernel_height"
"""Sizes that must be equal."""


def check_exported(node: Any) -> None:
    """Compare the state that a run exports with that of the encode of the kernel."""
    node.result_state.export_from_graph = True
    compiled = graph.MPSNNGraph(node.result_image)
    images = [X4 * (k + 1) - 0.5 for k in range(len(compiled.source_images))]
    states: list[Any] = []
    result, (state,) = compiled.encode(images, None, None, states), states
    assert isinstance(state, mps.MPSState)
    mps.MPSStateBatchSynchronize([state])
    assert mps.MPSStateBatchIncrementReadCount([state], 1) == 1
    if isinstance(node, WeightedNode):
        assert state.record.source_shapes[0] == images[0].shape
        assert state.record.destination_shape == result.shape
        return
    kernel, call = node._kernel(), {}
    if isinstance(node, graph.MPSNNReshapeNode):
        call = {"reshaped_height": 2, "reshaped_width": 4, "reshaped_feature_channels": 4}
    if isinstance(node, graph.MPSCNNDropoutNode):
        call = {"mask": state.mask_data}
        with pytest.raises(ValueError, match="read-only"):
            state.mask_data[...] = 0
    given = [images] if isinstance(kernel, mps.MPSCNNMultiaryKernel) else images
    y, expected = kernel.encode(*given, **call, return_state=True)
    np.testing.assert_array_equal(result, y)
    assert type(state) is type(expected)
    for part in ("kernel_class", "sources", "source_shapes", "destination_shape", "clip_rect"):
        assert getattr(state.record, part) == getattr(expected.record, part)
    assert state.record.extras.keys() == expected.record.extras.keys()
    for name, value in expected.record.extras.items():
        np.testing.assert_array_equal(state.record.extras[name], value)


def node_of(kind: Any) -> Any:
    """Return a node that runs in a graph without gradients."""
    if kind is graph.MPSCNNBatchNormalizationNode:
        data = mps.BatchNormalizationDataSource(2, mean=[0, 0], variance=[1, 1])
        return kind(graph.MPSNNImageNode(), data)
    return kind(graph.MPSNNImageNode(), 4, 2, 4) if kind is graph.MPSNNReshapeNode else made(kind)


def with_another(kind: Any, name: str) -> Any:
    """Return a node with another legal value of a property."""
    for value in (0.25, ((0, 0, 0), (2, 2, 2)), mps.MPSNNDefaultPadding(mps.MPSNNPaddingMethod.SizeFull), *VALUES):
        node = node_of(kind)
        before = getattr(node, name)
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            for each in SQUARE if name in SQUARE else (name,):
                setattr(node, each, value)
            graph.MPSNNGraph(node.result_image).infer_shapes([X4.shape] * len(node.source_images))
            if getattr(node, name) != before:
                return node
    raise AssertionError(f"{name} of {kind.__name__} has no other value")


@pytest.mark.parametrize("kind", NODES, ids=lambda kind: kind.__name__)
def test_a_graph_exports_the_state_of_the_kernel(kind: Any) -> None:
    """It has what the encode of the kernel records, and the host can read it at once; with any property of the node."""
    check_exported(node_of(kind))
    for name, one in properties_of(kind).items():
        if not one.read_only and name not in WITHOUT_EFFECT:
            check_exported(with_another(kind, name))
