"""Repeated encodes: they call few functions, and use the current properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import mps, registry
from mpsref.arguments.arrays import Array
from mpsref.mps import graph
from mpsref.mps.core.call import Call
from tests.subjects.classes import calls_of


def random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_a_repeated_encode_sees_every_change_of_a_dtype() -> None:
    """Of average pooling too, which reads no pixel of ``x``."""
    forward, gradient = (
        kind(3, 3, backend="cpu") for kind in (mps.MPSCNNPoolingAverage, mps.MPSCNNPoolingAverageGradient)
    )
    x = random(1, 6, 5, 4)
    y, state = forward.encode(x, return_state=True)
    for _ in range(2):
        gradient.encode(y, x, state)
        for pair in ((y, x.astype(np.float64)), (y.astype(np.float64), x)):
            with pytest.raises(TypeError, match="has dtype float64; backend 'cpu' takes"):
                gradient.encode(*pair, state)


def convolution(scale: int = 1, biases: Any = None, **options: Any) -> mps.MPSCNNConvolution:
    kind = mps.MPSCNNSubPixelConvolutionDescriptor if scale > 1 else mps.MPSCNNConvolutionDescriptor
    descriptor = kind(3, 3, 4, 4, **({"sub_pixel_scale_factor": scale} if scale > 1 else {}))
    source = mps.ArrayConvolutionDataSource(descriptor, random(4, 3, 3, 4), biases)
    return mps.MPSCNNConvolution(source, **options)


@pytest.mark.parametrize(
    ("forward", "gradient"),
    [
        *(
            (getattr(mps, name)(3, 3, 2, 2, backend="cpu"), getattr(mps, f"{name}Gradient")(3, 3, 2, 2))
            for name in ("MPSCNNPoolingMax", "MPSCNNPoolingAverage", "MPSCNNPoolingL2Norm")
        ),
        (mps.MPSCNNNeuronReLU(backend="cpu"), mps.MPSCNNNeuronGradient(mps.MPSNNNeuronDescriptor("relu"))),
        (mps.MPSCNNSoftMax(backend="cpu"), mps.MPSCNNSoftMaxGradient()),
        (mps.MPSCNNCrossChannelNormalization(3, backend="cpu"), mps.MPSCNNCrossChannelNormalizationGradient(3)),
        (convolution(biases=[1, 2, 3, 4], backend="cpu"), None),
        (mps.MPSCNNInstanceNormalization(mps.InstanceNormalizationDataSource(4), backend="cpu"), None),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_a_repeated_encode_crosses_few_functions(forward: Any, gradient: Any) -> None:
    x = random(2, 4, 5, 4)
    y, state = forward.encode(x, return_state=True)
    other = y if "SoftMax" in type(forward).__name__ else x
    for _ in range(2):
        np.testing.assert_array_equal(forward.encode(x), y)
    assert len(calls_of(lambda: forward.encode(x))) <= 30
    if gradient is not None:
        gradient.backend = "cpu"
        dx = gradient.encode(y, other, state)
        for _ in range(2):
            np.testing.assert_array_equal(gradient.encode(y, other, state), dx)
        assert len(calls_of(lambda: gradient.encode(y, other, state))) <= 26


def test_a_repeated_batch_normalization_crosses_few_functions() -> None:
    source = mps.BatchNormalizationDataSource(4, mean=[0] * 4, variance=[1] * 4)
    x, forward = random(2, 4, 5, 4), mps.MPSCNNBatchNormalization(source, backend="cpu")
    y, target = forward.encode(x), np.zeros_like(x)
    for _ in range(2):
        forward.encode(x, target)
    np.testing.assert_array_equal(target, y)
    assert len(calls_of(lambda: forward.encode(x), registry.run)) <= 26
    assert len(calls_of(lambda: forward.encode(x, target), registry.run)) <= 30


def test_a_repeated_encode_uses_reloaded_parameters() -> None:
    x = random(2, 4, 5, 4)
    biased, norm = (
        convolution(biases=[1, 2, 3, 4]),
        mps.MPSCNNInstanceNormalization(mps.InstanceNormalizationDataSource(4, gamma=[1, 2, 3, 4])),
    )
    for _ in range(2):
        y, z = biased.encode(x), norm.encode(x)
    biased.reload_weights_and_biases(
        mps.MPSCNNConvolutionWeightsAndBiasesState(random(4, 3, 3, 4), np.float32([1] * 4))
    )
    norm.reload_gamma_and_beta(mps.MPSCNNNormalizationGammaAndBetaState([2, 4, 6, 8], [0] * 4))
    for _ in range(2):
        np.testing.assert_allclose(biased.encode(x), y - np.float32([0, 1, 2, 3]), atol=1e-5)
        np.testing.assert_allclose(norm.encode(x), 2 * z, rtol=1e-6)


def test_a_repeated_reshape_has_the_size_of_its_own_encode() -> None:
    x, kernel = random(2, 4, 6, 4), mps.MPSNNReshape()
    for height, width in ((6, 4), (4, 6), (6, 4), (8, 3), (8, 3), (6, 4)):
        y = kernel.encode(x, reshaped_width=width, reshaped_height=height, reshaped_feature_channels=4)
        np.testing.assert_array_equal(y, x.reshape(2, height, width, 4))


def test_an_encode_has_the_shape_of_its_sources_after_the_inference_of_another() -> None:
    kernel, slice_ = mps.MPSCNNAdd(), mps.MPSNNSlice(width=2)
    for height in (4, 6, 4):
        x = random(2, height, 5, 4)
        assert kernel.infer_padding((1, 3, 3, 4), (1, 3, 3, 4)) == (1, 3, 3, 4)
        assert slice_.infer_padding((1, 3, 9, 4)) == (1, 3, 2, 4)
        np.testing.assert_array_equal(kernel.encode(x, x), 2 * x)
        np.testing.assert_array_equal(slice_.encode(x), x[:, :, :2])


def test_a_repeated_encode_rearranges_sub_pixels() -> None:
    x, kernel = random(2, 4, 5, 4), convolution(scale=2)
    first = kernel.encode(x)
    assert first.shape == (2, 8, 10, 1)
    for _ in range(2):
        np.testing.assert_array_equal(kernel.encode(x), first)


@pytest.mark.parametrize(
    ("forward", "gradient"),
    [
        (mps.MPSCNNUpsamplingBilinear(2, 2), mps.MPSCNNUpsamplingBilinearGradient(2, 2)),
        (mps.MPSNNPad((1, 0, 0), (0, 2, 0)), mps.MPSNNPadGradient()),
        (mps.MPSCNNMultiply(), mps.MPSCNNMultiplyGradient()),
        (mps.MPSCNNAdd(), mps.MPSCNNAddGradient(primary_scale=2.0)),
        (mps.MPSCNNAdd(), mps.MPSCNNAddGradient(bias=0.5)),
        (mps.MPSCNNAdd(maximum_value=0.5), mps.MPSCNNAddGradient()),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_a_repeated_gradient_of_a_whole_image_uses_its_own_images_and_state(forward: Any, gradient: Any) -> None:
    for factor in (1, 2, -1, 3):
        x = random(2, 4, 5, 4) * np.float32(factor)
        y, state = forward.encode(*[x] * len(forward.prefixes), return_state=True)
        fresh = type(gradient).from_json(gradient.to_json()).encode(y, x, state)
        for _ in range(3):
            np.testing.assert_array_equal(gradient.encode(y, x, state), fresh)
    assert 1 <= len(gradient._calls) <= 8


def test_repeated_encodes_in_wider_dtypes_read_weights_in_theirs() -> None:
    x, kernel = random(2, 4, 5, 4), convolution(biases=[1, 2, 3, 4])
    for dtype in (np.float16, np.float32, np.float64):
        first = kernel.encode(x.astype(dtype))
        for _ in range(2):
            again = kernel.encode(x.astype(dtype))
            assert again.dtype == dtype
            np.testing.assert_array_equal(again, first)


def test_a_repeated_encode_leaves_the_mask_of_its_own_images() -> None:
    add, x = mps.MPSCNNAdd(maximum_value=0.5), random(2, 4, 5, 4)
    for image in (x, -x, x):
        r, state = add.encode(image, image, return_state=True)
        np.testing.assert_array_equal(state.mask, 2 * image < 0.5)
        np.testing.assert_array_equal(r, np.minimum(2 * image, np.float32(0.5)))


def test_a_repeated_encode_validates_again() -> None:
    softmax, gradient, x = mps.MPSCNNSoftMax(), mps.MPSCNNSoftMaxGradient(validate=True), random(2, 4, 5, 4)
    y, state = softmax.encode(x, return_state=True)
    for _ in range(3):
        gradient.encode(x, y, state)
    with pytest.raises(ValueError, match="they must sum to 1"):
        gradient.encode(x, x, state)


def test_a_repeated_encode_refuses_what_the_first_one_refuses() -> None:
    forward, gradient = mps.MPSCNNPoolingMax(2, 2), mps.MPSCNNPoolingMaxGradient(2, 2)
    x = random(1, 4, 4, 4)
    for _ in range(4):
        y, state = forward.encode(x, return_state=True)
        gradient.encode(y, x, state)
    committed = mps.MPSCommandBuffer()
    committed.commit()
    for call in (
        lambda: forward.encode(x, command_buffer=committed),
        lambda: gradient.encode(y, x, state, command_buffer=committed),
    ):
        with pytest.raises(mpsref.OrderError, match="NotEnqueued"):
            call()
    with pytest.raises(TypeError, match="destination_state is of type"):
        forward.encode(x, destination_state=mps.MPSNNBinaryGradientState(state.record))
    with pytest.raises(TypeError, match="gradient_state is of type"):
        gradient.encode(y, x, mps.MPSNNBinaryGradientState(state.record))
    twin = gradient.copy()
    assert twin == gradient
    np.testing.assert_array_equal(twin.encode(y, x, state), gradient.encode(y, x, state))


def test_a_custom_policy_is_called_every_time() -> None:
    calls = []

    class Counting(mps.MPSNNPadding):
        def destination_image_descriptor_for_source_images(
            self, images: Any, states: Any, kernel: Any, size: Any
        ) -> Any:
            calls.append(images)
            return size

    pool = mps.MPSCNNPoolingMax(2, 2, padding=Counting())
    for _ in range(4):
        pool.encode(random(1, 4, 4, 1))
    assert len(calls) == 4


def test_a_kernel_keeps_few_encodes_prepared() -> None:
    pool = mps.MPSCNNPoolingMax(2, 2)
    for _ in range(2):
        for n in range(1, 40):
            assert pool.encode(random(n, 2, 2, 1)).shape == (n, 2, 2, 1)
    assert len(pool._calls) <= 8


def test_encodes_of_two_shapes_are_both_kept() -> None:
    """What an encode leaves as it is stays the same object, so that the calls for other shapes are valid."""
    forward = mps.MPSCNNNeuronReLU(backend="cpu")
    gradient = mps.MPSCNNNeuronGradient(mps.MPSNNNeuronDescriptor("relu"), backend="cpu")
    images = random(1, 8, 8, 4), random(2, 6, 8, 4)
    states = [forward.encode(x, return_state=True) for x in images]
    calls = [(y, x, state) for x, (y, state) in zip(images, states, strict=True)]
    for call in (*calls, *calls):
        gradient.encode(*call)
    assert max(len(calls_of(lambda call=call: gradient.encode(*call))) for call in calls) <= 40


def test_a_property_that_is_set_during_an_encode_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    clamps = mps.MPSNNDefaultPadding(edge_mode=mps.MPSImageEdgeMode.Clamp)
    pool, run = mps.MPSCNNPoolingMax(2, 2, padding=clamps), Call.run

    def run_late(*arguments: Any) -> Any:
        pool.clip_rect = ((0, 0, 0), (1, 1, 1))
        return run(*arguments)

    monkeypatch.setattr(Call, "run", run_late)
    assert pool.encode(random(1, 4, 4, 1)).shape == (1, 4, 4, 1)
    assert pool.edge_mode is mps.MPSImageEdgeMode.Clamp
    assert pool.clip_rect is not None
    assert pool.clip_rect.size == (1, 1, 1)


def test_an_encode_into_a_destination_reads_what_that_without_one_has_read() -> None:
    """A kernel without ``source_size`` reads the forward clip rectangle of the gradient, once a state has set it."""
    x = random(1, 5, 5, 4)
    forward = mps.MPSCNNCrossChannelNormalization(3, clip_rect=((1, 2, 0), (3, 2, 1)))
    y, state = forward.encode(x, destination_size=(5, 5), return_state=True)
    gradient, g = mps.MPSCNNCrossChannelNormalizationGradient(3), random(*y.shape)
    expected = gradient.encode(g, x, state)
    for _ in range(2):
        dx = np.zeros_like(expected)
        gradient.encode(g, x, state, dx)
        np.testing.assert_array_equal(dx, expected)


def test_a_graph_at_a_new_shape_calls_few_functions() -> None:
    """Each of its six steps is placed once, with checks of properties that are one comparison."""
    x, g = graph.MPSNNImageNode("x"), graph.MPSNNImageNode("g")
    pooled = graph.MPSCNNPoolingMaxNode(x, filter_size=2, stride=2)
    relu = graph.MPSCNNNeuronReLUNode(pooled.result_image)
    ends = graph.MPSCNNSoftMaxNode(relu.result_image).training_graph_with_source_gradient(g)
    trained = graph.MPSNNGraph(ends[0].result_image)

    def infer(size: int) -> Any:
        return trained.infer_shapes({"x": (1, size, size, 4), "g": (1, size // 2, size // 2, 4)})

    infer(6)
    assert len(calls_of(lambda: infer(10))) <= 625  # 655 when each property had its own lookup
    assert infer(10)[ends[0].result_image] == (1, 10, 10, 4)
