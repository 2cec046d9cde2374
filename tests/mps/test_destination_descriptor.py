"""``destination_image_descriptor_for_source_images``: what an encode without destination configures, before it."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.errors import ShapeError, UnsupportedError

X = np.random.default_rng(0).standard_normal((2, 6, 8, 4)).astype(np.float32)
CLIPPED: dict[str, Any] = {"offset": (1, 2, 0), "clip_rect": ((1, 1, 0), (2, 2, 2))}
WEIGHTS = mps.ArrayConvolutionDataSource(
    mps.MPSCNNConvolutionDescriptor(3, 2, 4, 4, stride_in_pixels_x=2),
    np.arange(96, dtype=np.float32).reshape(4, 2, 3, 4),
)
WHOLE = mps.ArrayConvolutionDataSource(
    mps.MPSCNNConvolutionDescriptor(8, 6, 4, 2), np.arange(384, dtype=np.float32).reshape(2, 6, 8, 4)
)
INSTANCE, GROUP = mps.InstanceNormalizationDataSource(4), mps.GroupNormalizationDataSource(4, 2)
NEURON = mps.MPSNNNeuronDescriptor("elu", 0.5)
ONES = (1, 1, 1)
# forward kernel, properties that move or cut the result, gradient kernel
PAIRS: list[tuple[Any, dict[str, Any], Any]] = [
    (mps.MPSCNNPoolingMax(2, 3, 2, 1), CLIPPED, mps.MPSCNNPoolingMaxGradient(2, 3, 2, 1)),
    (mps.MPSCNNPoolingAverage(2, 3, 2, 1), CLIPPED, mps.MPSCNNPoolingAverageGradient(2, 3, 2, 1)),
    (mps.MPSCNNPoolingL2Norm(2, 3, 2, 1), CLIPPED, mps.MPSCNNPoolingL2NormGradient(2, 3, 2, 1)),
    (mps.MPSCNNDilatedPoolingMax(2, 2, 2, 1), CLIPPED, mps.MPSCNNDilatedPoolingMaxGradient(2, 2, 2, 1)),
    (mps.MPSCNNConvolution(WEIGHTS), CLIPPED, mps.MPSCNNConvolutionGradient(WEIGHTS)),
    (mps.MPSCNNConvolutionTranspose(WEIGHTS), CLIPPED, mps.MPSCNNConvolutionTransposeGradient(WEIGHTS)),
    (mps.MPSCNNFullyConnected(WHOLE), {}, mps.MPSCNNFullyConnectedGradient(WHOLE)),
    (mps.MPSCNNNeuron(NEURON), CLIPPED, mps.MPSCNNNeuronGradient(NEURON)),
    (mps.MPSCNNSoftMax(), CLIPPED, mps.MPSCNNSoftMaxGradient()),
    (mps.MPSCNNLogSoftMax(), CLIPPED, mps.MPSCNNLogSoftMaxGradient()),
    (mps.MPSCNNSpatialNormalization(3, 3), CLIPPED, mps.MPSCNNSpatialNormalizationGradient(3, 3)),
    (mps.MPSCNNLocalContrastNormalization(3, 3), CLIPPED, mps.MPSCNNLocalContrastNormalizationGradient(3, 3)),
    (mps.MPSCNNCrossChannelNormalization(3), CLIPPED, mps.MPSCNNCrossChannelNormalizationGradient(3)),
    (mps.MPSCNNInstanceNormalization(INSTANCE), {}, mps.MPSCNNInstanceNormalizationGradient()),
    (mps.MPSCNNGroupNormalization(GROUP), {}, mps.MPSCNNGroupNormalizationGradient()),
    (mps.MPSCNNUpsamplingNearest(2, 3), {}, mps.MPSCNNUpsamplingNearestGradient(2, 3)),
    (mps.MPSCNNUpsamplingBilinear(2, 3), {}, mps.MPSCNNUpsamplingBilinearGradient(2, 3)),
    (mps.MPSNNPad((0, 1, 0), (2, 0, 1)), {}, mps.MPSNNPadGradient()),
    (mps.MPSCNNDropout(0.5, 1, ONES), {}, mps.MPSCNNDropoutGradient(0.5, 1, ONES)),
]  # fmt: skip
IDS = [type(gradient).__name__ for *_, gradient in PAIRS]


def passed(pair: Any) -> tuple[Array, Array, Any, Any]:
    """Run a forward kernel; return the source gradient, the image that the gradient reads, the state, the kernel."""
    forward, properties, gradient = pair
    forward = forward.copy()
    for name, value in properties.items():
        setattr(forward, name, value)
    y, state = forward.encode(X, **({"destination_size": (5, 4)} if properties else {}), return_state=True)
    g = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
    return g, y if "SoftMax" in type(forward).__name__ else X, state, gradient.copy()


@pytest.mark.parametrize("pair", PAIRS, ids=IDS)
def test_it_configures_a_gradient_as_an_encode_without_destination(pair: Any) -> None:
    g, x, state, automatic = passed(pair)
    by_hand = automatic.copy()
    expected = automatic.encode(g, x, state)
    made = by_hand.destination_image_descriptor_for_source_images([g, x], [state])
    assert (made.shape, made.dtype) == (expected.shape, expected.dtype)
    assert by_hand == automatic
    destination = np.zeros(made.shape, made.dtype)
    assert by_hand.encode(g, x, state, destination) is destination
    np.testing.assert_array_equal(destination, expected)
    assert np.count_nonzero(expected)
    assert by_hand == automatic


@pytest.mark.parametrize("pair", PAIRS, ids=IDS)
def test_an_error_changes_nothing(pair: Any) -> None:
    g, x, state, gradient = passed(pair)
    was = gradient.copy()
    _, other = mps.MPSNNReshape().encode(
        X, reshaped_width=1, reshaped_height=6, reshaped_feature_channels=32, return_state=True
    )
    for images, states, error, message in [
        ([g, x], [other], TypeError, "gradient_state"),
        ([g, x[:1]], [state], ValueError, "source_image"),
        ([g], [state], ValueError, "source_images is a list of 1; it must be a list of 2"),
        (g, [state], TypeError, "source_images is of type ndarray; it must be a list of 2"),
        ([g, x], ["state"], TypeError, r"source_states\[0\] is of type str"),
        ([g, x], [state, state, state], ValueError, "source_states is a list of 3"),
    ]:
        with pytest.raises(error, match=message):
            gradient.destination_image_descriptor_for_source_images(images, states)
        assert gradient == was


@pytest.mark.parametrize("pair", PAIRS, ids=IDS)
@pytest.mark.parametrize("states", [None, [], ()])
def test_it_configures_a_forward_kernel_by_its_padding(pair: Any, states: Any) -> None:
    automatic = pair[0].copy()
    by_hand = automatic.copy()
    expected = automatic.encode(X)
    made = by_hand.destination_image_descriptor_for_source_images([X], states)
    assert (made.shape, made.dtype, made.number_of_images) == (expected.shape, expected.dtype, len(X))
    if "Dropout" not in type(automatic).__name__:
        assert by_hand == automatic
        destination = np.zeros(made.shape, made.dtype)
        np.testing.assert_array_equal(by_hand.encode(X, destination), expected)


@pytest.mark.parametrize("operation", ["Add", "Subtract", "Multiply"])
@pytest.mark.parametrize("secondary", [False, True])
def test_arithmetic(operation: str, secondary: bool) -> None:
    forward = getattr(mps, f"MPSCNN{operation}")(secondary_stride_in_pixels_x=0)
    y = X[:, :, :1] + 1
    made = forward.destination_image_descriptor_for_source_images([X, y])
    result, state = forward.encode(X, y, return_state=True)
    assert made.shape == result.shape
    gradient = getattr(mps, f"MPSCNN{operation}Gradient").from_forward(forward, secondary)
    other = (X, y)[secondary != (operation == "Multiply")]
    expected = gradient.copy().encode(result, other, state)
    made = gradient.destination_image_descriptor_for_source_images([result, other], state)
    assert made.shape == expected.shape == (X, y)[secondary].shape
    np.testing.assert_array_equal(gradient.encode(result, other, state, np.zeros_like(expected)), expected)


def test_batch_normalization_and_losses() -> None:
    norm = mps.MPSCNNBatchNormalization(mps.BatchNormalizationDataSource(4))
    state = norm.result_state_for_source_image(X)
    mps.MPSCNNBatchNormalizationStatistics().encode_batch(X, state)
    assert norm.destination_image_descriptor_for_source_images([X], [state]).shape == X.shape
    gradient = mps.MPSCNNBatchNormalizationGradient()
    assert gradient.destination_image_descriptor_for_source_images([X, X], [state]).shape == X.shape
    for kernel, images in (
        (mps.MPSCNNBatchNormalizationStatistics(), [X]),
        (mps.MPSCNNBatchNormalizationStatisticsGradient(), [X, X]),
    ):
        with pytest.raises(UnsupportedError, match="makes no image"):
            kernel.destination_image_descriptor_for_source_images(images, [state])
    descriptor = mps.MPSCNNLossDescriptor("meansquarederror", "sum")
    assert mps.MPSCNNLoss(descriptor).destination_image_descriptor_for_source_images([X]).shape == X.shape
    forward = mps.MPSNNForwardLoss(descriptor, weight=3.0)
    assert forward.destination_image_descriptor_for_source_images([X]).shape == (2, 1, 1, 1)
    loss, state = forward.encode(X, X + 1, return_state=True)
    backward = mps.MPSNNLossGradient(descriptor)
    assert backward.destination_image_descriptor_for_source_images([loss, X, X], [state]).shape == X.shape
    assert backward.weight == 3
    with pytest.raises(UnsupportedError, match="reshaped_width"):
        mps.MPSNNReshape().destination_image_descriptor_for_source_images([X])


def test_a_transposed_convolution_has_the_size_of_the_convolution_that_it_undoes() -> None:
    y, state = mps.MPSCNNConvolution(WEIGHTS, offset=(1, 1, 0)).encode(X, return_state=True)
    kernel = mps.MPSCNNConvolutionTranspose(WEIGHTS)
    expected = kernel.copy().encode(y, convolution_gradient_state=state)
    made = kernel.destination_image_descriptor_for_source_images([y], [state])
    np.testing.assert_array_equal(kernel.encode(y, np.zeros(made.shape, made.dtype)), expected)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 4), (5, 1)])
def test_a_source_gradient_of_another_size_is_read_as_it_is(height: int, width: int) -> None:
    """After a configuration by a state, a destination is written by the properties, from any source gradient."""
    g, x, state, gradient = passed(PAIRS[IDS.index("MPSCNNNeuronGradient")])
    gradient.destination_image_descriptor_for_source_images([g, x], [state])
    part = g[:, :height, :width]
    small = gradient.encode(part, x, state, np.zeros_like(x))
    assert np.count_nonzero(small) == 2 * 4 * min(height, 4) * min(width, 4)
    with pytest.raises(ShapeError, match="source_gradient has shape"):
        gradient.encode(part, x, state)


def test_every_kernel_on_images_has_the_method() -> None:
    for name in mps.__all__:
        kind = getattr(mps, name)
        if (
            inspect.isclass(kind)
            and issubclass(kind, mps.MPSKernel)
            and not name.startswith(("MPSNNOptimizer", "MPSMatrix"))
            and name != "MPSKernel"
        ):
            assert hasattr(kind, "destination_image_descriptor_for_source_images"), name
