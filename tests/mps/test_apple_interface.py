"""Argument orders and names of Apple's initializers and encodes, temporary objects, labels of images, NSUIntegerMax."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.errors import NotSynchronizedError, OrderError, ShapeError
from mpsref.mps import graph
from tests.mps.fakes import Shift

F32 = np.float32
X = np.random.default_rng(0).standard_normal((3, 4, 4, 2)).astype(F32)
DESCRIPTOR = mps.MPSCNNConvolutionDescriptor(1, 1, 2, 2)
SOURCE = mps.ArrayConvolutionDataSource(DESCRIPTOR, np.arange(4, dtype=F32).reshape(2, 1, 1, 2))
LOSS = mps.MPSCNNLossDescriptor("huber", "mean", weight=0.5, delta=2.0, epsilon=1e-6, number_of_classes=3)


# --- initializers -----------------------------------------------------------------------------------------------------


def test_optimizers_in_the_order_of_apple() -> None:
    descriptor = mps.MPSNNOptimizerDescriptor(0.1, 0.5)
    for kind, values in (
        (mps.MPSNNOptimizerStochasticGradientDescent, {"momentum_scale": 0.9, "use_nesterov_momentum": True}),
        (mps.MPSNNOptimizerRMSProp, {"decay": 0.8, "epsilon": 1e-6}),
        (mps.MPSNNOptimizerAdam, {"beta1": 0.8, "beta2": 0.99, "epsilon": 1e-6, "time_step": 3}),
    ):
        made = kind(*values.values(), descriptor)
        assert made == kind(**values, optimizer_descriptor=descriptor)
        assert {name: getattr(made, name) for name in values} == values
        assert (made.learning_rate, made.gradient_rescale) == (0.1, 0.5)
        assert kind(0.1) == kind(learning_rate=0.1)
        with pytest.raises(ValueError, match="learning_rate and optimizer_descriptor are both given or both missing"):
            kind()


def test_optimizer_descriptors() -> None:
    kind, l2 = mps.MPSNNOptimizerDescriptor, mps.MPSNNRegularizationType.L2
    whole = kind(0.1, 0.5, True, 2.0, -1.0, l2, 0.25)
    assert (whole.gradient_clip_max, whole.gradient_clip_min, whole.apply_gradient_clipping) == (2, -1, True)
    short = kind(0.1, 0.5, l2, 0.25)
    assert (short.regularization_type, short.regularization_scale, short.apply_gradient_clipping) == (l2, 0.25, False)
    name = "optimizer_descriptor_with_learning_rate_gradient_rescale"
    assert getattr(kind, f"{name}_regularization_type_regularization_scale")(0.1, 0.5, l2, 0.25) == short
    clipping = "_apply_gradient_clipping_gradient_clip_max_gradient_clip_min"
    made = getattr(kind, f"{name}{clipping}_regularization_type_regularization_scale")
    assert made(0.1, 0.5, True, 2.0, -1.0, l2, 0.25) == whole


def test_factories_of_descriptors() -> None:
    loss = mps.MPSCNNLossDescriptor.cnn_loss_descriptor_with_type_reduction_type("huber", "mean")
    assert loss == mps.MPSCNNLossDescriptor("huber", "mean")
    loss.loss_type, loss.reduction_type = "cosinedistance", "sum"
    assert mps.MPSCNNLoss(loss).loss_type is mps.MPSCNNLossType.CosineDistance
    loss.reduction_type = "mean"
    for kind in (mps.MPSCNNLoss, mps.MPSNNForwardLoss):
        with pytest.raises(ValueError, match="reduction"):
            kind(loss)
    data = mps.MPSCNNLossDataDescriptor.cnn_loss_data_descriptor_with_data_layout_size(np.ones(4, F32), 0, (2, 2, 1))
    assert data.array.shape == (1, 2, 2, 1)
    name = "cnn_convolution_descriptor_with_kernel_width_kernel_height_input_feature_channels_output_feature_channels"
    assert getattr(mps.MPSCNNConvolutionDescriptor, name)(1, 1, 2, 2) == DESCRIPTOR
    neuron = mps.MPSNNNeuronDescriptor
    assert neuron.cnn_neuron_descriptor_with_type_a_b_c("power", 1, 2, 3) == neuron("power", 1, 2, 3)
    assert neuron.cnn_neuron_descriptor_with_type("relu") == neuron("relu")


def test_weights_and_biases_in_the_order_of_apple() -> None:
    kind = mps.MPSCNNConvolutionWeightsAndBiasesState
    buffer = np.arange(8, dtype=F32)
    names = "weights", "weights_offset", "biases", "biases_offset", "cnn_convolution_descriptor"
    values = buffer, 8, buffer, 4, DESCRIPTOR
    for state in (kind(*values), kind(**dict(zip(names, values, strict=True)))):
        weights, biases = state.device_read()
        assert (weights.ravel().tolist(), biases.tolist()) == ([2, 3, 4, 5], [1, 2])
    two = kind(buffer[:4], buffer[4:6]).device_read()
    assert two.biases.tolist() == [4, 5]
    assert kind(buffer[:4], biases=buffer[4:6]).device_read().biases.tolist() == [4, 5]
    assert kind(cnn_convolution_descriptor=DESCRIPTOR).device_read().weights.shape == (2, 1, 1, 2)
    with pytest.raises(TypeError, match="weights_offset is"):
        kind(buffer, buffer, buffer)


def test_weights_is_the_data_source_of_kernels() -> None:
    for kind in (mps.MPSCNNConvolution, mps.MPSCNNConvolutionGradient, mps.MPSCNNConvolutionTranspose):
        assert kind(weights=SOURCE).data_source is SOURCE
        assert kind(data_source=SOURCE).data_source is SOURCE
        with pytest.raises(TypeError, match="weights and data_source are both given"):
            kind(SOURCE, data_source=SOURCE)


def test_labels_from_descriptors_and_images() -> None:
    data = mps.MPSCNNLossDataDescriptor(X, 0, (4, 4, 2))
    expected = mps.MPSCNNLossLabels((1, 1, 1), X, X).device_read()
    for made in (
        mps.MPSCNNLossLabels(loss_image_size=(1, 1, 1), labels_descriptor=data, weights_descriptor=data),
        mps.MPSCNNLossLabels((1, 1, 1), labels_image=X, weights_image=X),
    ):
        np.testing.assert_array_equal(made.device_read(), expected)
    assert mps.MPSCNNLossLabels(labels_descriptor=data).loss_image_size == (1, 1, 1)
    with pytest.raises(TypeError, match="labels_descriptor and labels_image are both given"):
        mps.MPSCNNLossLabels((1, 1, 1), data, labels_image=X)


def nodes() -> tuple[graph.MPSNNImageNode, ...]:
    return tuple(graph.MPSNNImageNode(name) for name in "xtwg")


def test_loss_nodes_in_the_order_of_apple() -> None:
    x, t, w, g = nodes()
    for made in (graph.MPSNNForwardLossNode(x, t, w, LOSS), graph.MPSNNForwardLossNode([x, t, w], LOSS),
                 graph.MPSNNForwardLossNode(x, labels=t, weights=w, loss_descriptor=LOSS)):  # fmt: skip
        assert made.source_images == (x, t, w)
        gradient = graph.MPSNNLossGradientNode(g, x, t, w, made.result_state, LOSS, True)
        other = graph.MPSNNLossGradientNode([g, x, t, w], made.result_state, LOSS, True)
        for one in (gradient, other):
            assert one.source_images == (g, x, t, w)
            assert one.is_labels_gradient_filter
            assert one.gradient_state is made.result_state
    for made in (graph.MPSNNForwardLossNode(x, t, LOSS), graph.MPSNNForwardLossNode([x, t], loss_descriptor=LOSS)):
        for one in (
            graph.MPSNNLossGradientNode(g, x, t, made.result_state, LOSS, False),
            graph.MPSNNLossGradientNode([g, x, t], made.result_state, LOSS),
            graph.MPSNNLossGradientNode(g, x, t, gradient_state=made.result_state, loss_descriptor=LOSS),
        ):
            assert one.source_images == (g, x, t)
            assert not one.is_labels_gradient_filter
    with pytest.raises(ValueError, match="there are 2 sources; there must be 3 or 4"):
        graph.MPSNNLossGradientNode([g, x], made.result_state, LOSS)


def test_loss_nodes_have_the_numbers_of_their_descriptor() -> None:
    x, t, _, g = nodes()
    forward = graph.MPSNNForwardLossNode(x, t, LOSS)
    gradient = graph.MPSNNLossGradientNode(g, x, t, forward.result_state, LOSS)
    for node in (graph.MPSCNNLossNode(x, LOSS), forward, gradient):
        assert (node.loss_type, node.reduction_type) == (LOSS.loss_type, LOSS.reduction_type)
        for name in ("weight", "delta", "epsilon", "label_smoothing", "number_of_classes", "reduce_across_batch"):
            assert getattr(node, name) == getattr(LOSS, name), name
        with pytest.raises(mps.PropertyError, match=r"weight of .* is read-only"):
            node.weight = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("MPSCNNNeuronReLUNode", ["source", "a"]), ("MPSCNNNeuronLinearNode", ["source", "a", "b"]),
     ("MPSCNNNeuronPowerNode", ["source", "a", "b", "c"]), ("MPSCNNNeuronPReLUNode", ["source", "a_data"]),
     ("MPSCNNNeuronSigmoidNode", ["source"]), ("MPSNNAdditionNode", ["left_source", "right_source"]),
     ("MPSCNNBatchNormalizationGradientNode", ["source_gradient", "source_image", "gradient_state"]),
     ("MPSCNNConvolutionGradientNode", ["source_gradient", "source_image", "convolution_gradient_state", "weights"])],
)  # fmt: skip
def test_signatures_show_the_parameters(name: str, expected: list[str]) -> None:
    parameters = inspect.signature(getattr(graph, name)).parameters.values()
    assert [one.name for one in parameters if one.kind is not one.VAR_KEYWORD] == expected


def test_parameters_of_neuron_nodes() -> None:
    x = graph.MPSNNImageNode("x")
    node = graph.MPSCNNNeuronPowerNode(x, 2, c=0.5)
    assert (node.a, node.b, node.c) == (2, 0, 0.5)
    assert graph.MPSCNNNeuronPReLUNode(x, a_data=[1.0, 2.0]).descriptor.data == (1, 2)


# --- encodes of batches -----------------------------------------------------------------------------------------------


def test_batches_have_the_names_of_apple() -> None:
    pool, gradient = mps.MPSCNNPoolingMax(2, 2), mps.MPSCNNPoolingMaxGradient(2, 2)
    y, state = pool.encode(X, return_state=True)
    np.testing.assert_array_equal(pool.encode_batch(source_images=X), y)
    expected = gradient.encode(y, X, state)
    made = gradient.encode_batch(source_gradients=y, source_images=X, gradient_states=[state] * 3)
    np.testing.assert_array_equal(made, expected)
    into = np.zeros_like(X)
    assert gradient.encode_batch(y, X, state, destination_gradients=into) is into
    names = list(inspect.signature(mps.MPSCNNConvolutionGradient.encode_batch).parameters)
    assert names[1:] == ["source_gradients", "source_images", "gradient_states", "destination_gradients",
                         "command_buffer"]  # fmt: skip
    np.testing.assert_array_equal(mps.MPSCNNAdd().encode_batch(primary_images=X, secondary_images=X), X + X)
    labels = mps.MPSCNNLossLabels((1, 1, 1), X)
    assert mps.MPSCNNLoss(LOSS).encode_batch(source_images=X, labels=labels).shape == X.shape
    norm = mps.MPSCNNInstanceNormalization(mps.InstanceNormalizationDataSource(2))
    y, state = norm.encode_batch(source_images=X, return_state=True)
    assert norm.encode_batch(source_images=X, destination_states=state, return_state=True)[1] is state
    mps.MPSCNNInstanceNormalizationGradient().encode_batch(source_gradients=y, source_images=X, gradient_states=state)
    with pytest.raises(TypeError, match="source_images and source_image are both given"):
        pool.encode_batch(source_images=X, source_image=X)
    np.testing.assert_array_equal(pool.encode_batch(source_image=X), pool.encode(X))


def image(k: int, of: Array = X) -> mps.MPSImage:
    return mps.MPSImage(of[k : k + 1])


@pytest.mark.parametrize(
    ("forward", "gradient"),
    [(mps.MPSCNNPoolingMax(2, 2, 2, 2), mps.MPSCNNPoolingMaxGradient(2, 2, 2, 2)),
     (mps.MPSCNNConvolution(SOURCE), mps.MPSCNNConvolutionGradient(SOURCE)),
     (mps.MPSCNNDropout(0.5, 3, (1, 1, 1)), mps.MPSCNNDropoutGradient(0.5, 3, (1, 1, 1))),
     (mps.MPSCNNSpatialNormalization(3, 3), mps.MPSCNNSpatialNormalizationGradient(3, 3))],
    ids=lambda kernel: type(kernel).__name__,
)  # fmt: skip
def test_each_image_of_a_batch_may_have_its_own_state(forward: Any, gradient: Any) -> None:
    results, states, expected = [], [], []
    for k in range(3):
        y, state = forward.encode(image(k), return_state=True)
        _, twin = forward.encode(image(k), return_state=True)
        if isinstance(forward, mps.MPSCNNDropout):
            twin = state
        results.append(y)
        states.append(state)
        expected.append(gradient.copy().encode(y, image(k), twin).array)
    batch = [image(k) for k in range(3)]
    made = gradient.encode_batch(results, batch, states)
    assert isinstance(made, mps.MPSImageBatch)
    np.testing.assert_array_equal(made.to_array(), np.concatenate(expected))
    g = np.concatenate([one.array for one in results])
    into = np.zeros_like(X)
    gradient.encode(g, X, states, into)
    np.testing.assert_array_equal(into, made.to_array())
    if isinstance(states[0], mps.MPSCNNConvolutionGradientState):
        sums = [state.device_read().weights for state in states]
        assert len({one.tobytes() for one in sums}) == 3


def test_labels_may_have_one_object_for_each_image() -> None:
    targets = np.flip(X, 1).copy()
    whole = mps.MPSCNNLossLabels((1, 1, 1), targets)
    gradient = mps.MPSCNNLoss(LOSS).encode(X, whole)
    whole.synchronize()
    each = [mps.MPSCNNLossLabels((1, 1, 1), labels_image=targets[k : k + 1]) for k in range(3)]
    np.testing.assert_array_equal(mps.MPSCNNLoss(LOSS).encode_batch(X, each), gradient)
    for k, labels in enumerate(each):
        labels.synchronize()
        np.testing.assert_array_equal(labels.loss_image, whole.loss_image[k : k + 1])
    x = graph.MPSNNImageNode("x")
    compiled = graph.MPSNNGraph(graph.MPSCNNLossNode(x, LOSS).result_image)
    each = [mps.MPSCNNLossLabels((1, 1, 1), labels_image=targets[k : k + 1]) for k in range(3)]
    np.testing.assert_allclose(compiled.encode_batch([X], [each]), gradient, rtol=1e-6)
    np.testing.assert_allclose(each[2].loss_image, whole.loss_image[2:], rtol=1e-6)
    for bad, error, message in [
        ([targets], TypeError, r"labels\[0\] is of type ndarray; .* write MPSCNNLossLabels\("),
        (targets, TypeError, r"labels is of type ndarray; .* write MPSCNNLossLabels\("),
        (each[:2], ShapeError, "labels is a list of 2; it must have one MPSCNNLossLabels for each of 3 images"),
        ([each[0], each[1], whole], ShapeError, r"labels\[2\] is .* labels of one image"),
    ]:
        with pytest.raises(error, match=message):
            mps.MPSCNNLoss(LOSS).encode(X, bad)
    with pytest.raises(TypeError, match=r"labels for 'loss1.labels'\[0\] is of type ndarray"):
        compiled.run([X], [[targets]])
    with pytest.raises(TypeError, match=r"source_states is of type MPSCNNLossLabels; .* write \[source_state\]"):
        compiled.run([X], whole)


# --- messages about command buffers -----------------------------------------------------------------------------------


def test_a_command_buffer_in_the_first_place() -> None:
    buffer, message = (
        mps.MPSCommandBuffer(),
        "is an MPSCommandBuffer; command buffers are passed by keyword, last: write",
    )
    kernel = mps.MPSCNNConvolution(SOURCE)
    norm = mps.MPSCNNBatchNormalization(mps.BatchNormalizationDataSource(2))
    pooled = graph.MPSCNNPoolingMaxNode(graph.MPSNNImageNode("x"), filter_size=2)
    y, state = mps.MPSCNNPoolingMax(2, 2).encode(X, return_state=True)
    for call in (
        lambda: Shift().encode(buffer, X),
        lambda: mps.MPSCNNPoolingMaxGradient(2, 2).encode(buffer, y, X, state),
        lambda: mps.MPSCNNBatchNormalizationStatistics().encode_batch(buffer, X),
        lambda: kernel.reload_weights_and_biases(buffer, None),  # type: ignore[arg-type]
        lambda: norm.reload_gamma_and_beta(buffer, None),  # type: ignore[arg-type]
        lambda: mps.BatchNormalizationDataSource(2).update_gamma_and_beta(buffer, state),
        lambda: mps.BatchNormalizationDataSource(2).update_mean_and_variance(buffer, state),
        lambda: mps.InstanceNormalizationDataSource(2).update_gamma_and_beta(buffer, state),
        lambda: graph.MPSNNGraph(pooled.result_image).encode(buffer, [X]),  # type: ignore[arg-type, list-item]
    ):
        with pytest.raises(TypeError, match=message):
            call()


def test_a_callback_in_the_order_of_apple() -> None:
    class Source(mps.ArrayConvolutionDataSource):
        def update(self, command_buffer: Any, gradient_state: Any, source_state: Any) -> None: ...

    x = graph.MPSNNImageNode("x")
    node = graph.MPSCNNConvolutionNode(x, Source(DESCRIPTOR, SOURCE.weights_array))
    last = graph.training_graph(graph.MPSNNInitialGradientNode(node.result_image))
    with pytest.raises(TypeError, match=r"write \(gradient_state, source_state, command_buffer=None\)"):
        graph.MPSNNGraph(last.gradient_image(x))


# --- temporary images and states --------------------------------------------------------------------------------------


def test_a_temporary_image_expires() -> None:
    temporary, pool = mps.MPSTemporaryImage(X), mps.MPSCNNPoolingMax(2, 2)
    assert (temporary.is_temporary, temporary.read_count) == (True, 1)
    with pytest.raises(ValueError, match="source_feature_channel_offset"):
        mps.MPSCNNPoolingMax(2, 2, source_feature_channel_offset=4).encode(temporary)
    assert temporary.read_count == 1
    temporary.read_count = 3
    y, state = pool.encode(temporary, return_state=True)
    pool.encode(temporary)  # repeated without preparation
    mps.MPSCNNPoolingMaxGradient(2, 2).encode(y, temporary, state)
    assert temporary.read_count == 0
    for call in (
        lambda: pool.encode(temporary),
        lambda: mps.MPSCNNPoolingMaxGradient(2, 2).encode(y, temporary, state),
    ):
        with pytest.raises(OrderError, match="source_image is a temporary image whose read_count is 0"):
            call()
    with pytest.raises(OrderError, match="gone: make another"):
        temporary.read_count = 1
    for image, words in ((temporary, "read_count is 0"), (mps.MPSTemporaryImage(X), "private to the GPU")):
        for call in (
            lambda image=image: image.read_bytes(0, 0),
            lambda image=image: image.write_bytes(X[0].tobytes(), 0, 0),
        ):
            before = image.array.copy()
            with pytest.raises(OrderError, match=words):
                call()
            np.testing.assert_array_equal(image.array, before)
    with pytest.raises(OrderError, match="read_count is 0"):
        temporary.synchronize()
    batch = [mps.MPSTemporaryImage(X[k : k + 1]) for k in range(3)]
    pool.encode(batch)
    assert [one.read_count for one in batch] == [0, 0, 0]
    plain = mps.MPSImage(X)
    assert (plain.is_temporary, plain.read_count) == (False, 0)
    with pytest.raises(ValueError, match="read_count is 2; this image is not temporary"):
        plain.read_count = 2


def test_a_temporary_state_expires() -> None:
    buffer = mps.MPSCommandBuffer()
    pool, gradient = mps.MPSCNNPoolingMax(2, 2), mps.MPSCNNPoolingMaxGradient(2, 2)
    into = np.zeros_like(X)
    state = pool.temporary_result_state_for_command_buffer(buffer, X, None, into)
    y = pool.encode(X, into, destination_state=state)
    assert (state.is_temporary, state.read_count) == (True, 1)
    state.read_count = 2
    for left in (1, 0):
        gradient.encode(y, X, state)
        assert state.read_count == left
    with pytest.raises(OrderError, match="gradient_state is a temporary state whose read_count is 0"):
        gradient.encode(y, X, state)
    _, kept = pool.encode(X, return_state=True)
    assert (kept.is_temporary, kept.read_count) == (False, 0)
    buffer.commit()
    with pytest.raises(OrderError, match="command_buffer"):
        pool.temporary_result_state_for_command_buffer(buffer, X)


def test_temporary_weights_and_vectors_expire() -> None:
    buffer = mps.MPSCommandBuffer()
    kernel = mps.MPSCNNConvolution(SOURCE)
    weights = mps.MPSCNNConvolutionWeightsAndBiasesState.temporary_state(buffer, DESCRIPTOR)
    kernel.reload_weights_and_biases(weights)
    elsewhere = mps.MPSCNNConvolutionWeightsAndBiasesState.temporary_state(mps.MPSCommandBuffer(), DESCRIPTOR)
    for state, call in ((weights, {}), (elsewhere, {"command_buffer": buffer})):
        with pytest.raises(OrderError, match="the MPSCNNConvolutionWeightsAndBiasesState is a temporary state"):
            kernel.reload_weights_and_biases(state, **call)
    assert elsewhere.read_count == 1
    norm = mps.MPSCNNBatchNormalization(mps.BatchNormalizationDataSource(2))
    pair = mps.MPSCNNNormalizationGammaAndBetaState.temporary_state(buffer, 2)
    norm.reload_gamma_and_beta(pair)
    with pytest.raises(OrderError, match="the MPSCNNNormalizationGammaAndBetaState is a temporary state"):
        norm.reload_gamma_and_beta(pair)
    state = norm.temporary_result_state_for_command_buffer(buffer, X)
    state.read_count = 3
    mps.MPSCNNBatchNormalizationStatistics().encode_batch(X, state)
    norm.encode(X, batch_normalization_state=state)
    mps.MPSCNNBatchNormalizationStatisticsGradient().encode_batch(X, X, state)
    mps.MPSCNNBatchNormalizationGradient().encode(X, X, state)
    with pytest.raises(OrderError, match="batch_normalization_state is a temporary state"):
        norm.encode(X, batch_normalization_state=state)


def test_a_graph_counts_the_reads_of_its_inputs() -> None:
    x = graph.MPSNNImageNode("x")
    compiled = graph.MPSNNGraph(graph.MPSNNMultiplicationNode(x, x).result_image)
    assert compiled.read_count_for_source_image_at_index(0) == 2
    image = mps.MPSTemporaryImage(X)
    with pytest.raises(ValueError, match="read_count of source image 'x' is 1; the graph reads it 2 times"):
        compiled.run([image])
    other = mps.MPSTemporaryImage.temporary_image_with_command_buffer(mps.MPSCommandBuffer(), image.descriptor)
    other.read_count = 2
    with pytest.raises(OrderError, match="source image 'x' is a temporary image of another command buffer"):
        compiled.encode([other], command_buffer=mps.MPSCommandBuffer())
    assert other.read_count == 2
    image.read_count = 5
    compiled.run([image])
    assert image.read_count == 3
    batch = [mps.MPSTemporaryImage(X[k : k + 1]) for k in range(3)]
    for one in batch:
        one.read_count = 2
    compiled.encode_batch([batch])
    assert [one.read_count for one in batch] == [0, 0, 0]


def test_images_and_states_are_synchronized_with_the_name_of_apple() -> None:
    buffer = mps.MPSCommandBuffer()
    _, state = mps.MPSCNNDropout(0.5, 1, (1, 1, 1)).encode(X, return_state=True, command_buffer=buffer)
    mps.MPSImage(X).synchronize(on_command_buffer=buffer)
    state.synchronize(on_command_buffer=buffer)
    buffer.wait_until_completed()
    assert state.mask_data.shape == X.shape
    with pytest.raises(OrderError, match="command_buffer"):
        mps.MPSImage(X).synchronize_on_command_buffer(buffer)


# --- NSUIntegerMax ----------------------------------------------------------------------------------------------------


def test_the_defaults_that_apple_documents_as_a_number() -> None:
    most = mps.NSUIntegerMax
    size = most, most, most
    kernel = mps.MPSCNNPoolingMaxGradient(2, 2, source_size=size, clip_rect=((0, 0, 0), size))
    assert (kernel.source_size, kernel.clip_rect) == (None, None)
    kernel.primary_source_feature_channel_max_count = most
    assert kernel.primary_source_feature_channel_max_count is None
    y, state = mps.MPSCNNPoolingMax(2, 2).encode(X, return_state=True)
    expected = kernel.encode(y, X, state)
    by_hand = mps.MPSCNNPoolingMaxGradient(2, 2, source_size=(most, most, 1), clip_rect=((0, 0, 0), (most, most, 4)))
    with pytest.raises(ValueError, match="clip_rect covers"):
        by_hand.encode(y, X, None, np.zeros_like(X))
    by_hand.clip_rect = (0, 0, 1), size
    into = np.zeros_like(X)
    by_hand.primary_offset = by_hand.secondary_offset = 0, 0, 1
    by_hand.encode(y, X, None, into)
    np.testing.assert_array_equal(into[1:], expected[1:])
    assert not into[0].any()


# --- classes that are not built ---------------------------------------------------------------------------------------


def test_the_sum_over_channels_of_a_graph_has_a_weight() -> None:
    x = graph.MPSNNImageNode("x")
    node = graph.MPSNNReductionFeatureChannelsSumNode(x, weight=0.5)
    assert isinstance(node, graph.MPSNNUnaryReductionNode)
    result = graph.MPSNNGraph(node.result_image).run([X]).image
    np.testing.assert_allclose(result, 0.5 * X.sum(3, keepdims=True), rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError, match="MPSNNUnaryReductionNode is abstract"):
        graph.MPSNNUnaryReductionNode(x)


def test_batches_of_states_of_kernels_with_two_sources() -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 2, 2, 1)
    add = mps.MPSCNNAdd(minimum_value=6.0)
    states = add.result_state_batch_for_primary_image(x, x)
    add.encode(x, x, destination_state=states)
    dx = mps.MPSCNNAddGradient.from_forward(add, False).encode(np.ones_like(x), x, states)
    assert dx.ravel().tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    buffer = mps.MPSCommandBuffer()
    temporary = add.temporary_result_state_batch_for_command_buffer(buffer, x, x)
    assert [state.read_count for state in temporary] == [1, 1]
    single = mps.MPSCNNPoolingMax(1, 1).temporary_result_state_batch_for_command_buffer(buffer, x)
    assert [state.is_temporary for state in single] == [True, True]


def test_functions_of_batches() -> None:
    x = np.ones((1, 2, 2, 1), np.float32)
    image = mps.MPSTemporaryImage(x)
    assert mps.MPSImageBatchIncrementReadCount([image, image, mps.MPSImage(x)], 2) == 2
    assert image.read_count == 3
    with pytest.raises(OrderError, match="amount is -4, and a temporary image has a read_count of 3"):
        mps.MPSImageBatchIncrementReadCount([image], -4)
    with pytest.raises(TypeError, match="batch is of type ndarray; it must be a list of MPSImage"):
        mps.MPSImageBatchSynchronize(x)  # type: ignore[arg-type]
    _, state = mps.MPSCNNDropout(0.5, 0, (1, 1, 1)).encode(x, return_state=True)
    buffer = mps.MPSCommandBuffer()
    mps.MPSStateBatchSynchronize([state, state], buffer)
    with pytest.raises(NotSynchronizedError):
        _ = state.mask_data
    buffer.wait_until_completed()
    assert state.mask_data.shape == x.shape
    assert mps.MPSStateBatchIncrementReadCount(state, 1) == 1


def test_data_sources_may_return_members_of_apples_enumeration() -> None:
    x = np.full((1, 1, 1, 1), 3.0, np.float32)
    descriptor = mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1)
    weights = np.full((1, 1, 1, 1), 0.1, np.float32)
    for kind in (mps.MPSDataType.Float16, mps.MPSDataType.Float32):
        source = mps.ArrayConvolutionDataSource(descriptor, weights, kernel_weights_data_type=kind)
        (y,) = mps.MPSCNNConvolution(source).encode(x).ravel()
        assert y == np.float32(3 * np.float64(np.float32(weights.astype(kind.dtype).item())))
