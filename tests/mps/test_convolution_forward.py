"""The forward kernel: worked examples, properties, clip and channels, depthwise, sub-pixel, fused neuron, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import mps
from mpsref.errors import ShapeError
from mpsref.mps import graph
from tests.mps.convolution_layers import EXAMPLES, PlainSource, numbers


def layer(descriptor: Any, seed: int = 0, biases: bool = True, **properties: Any) -> mps.MPSCNNConvolution:
    """A kernel with small integers for weights."""
    generator = np.random.default_rng(seed)
    weights = numbers(generator, *descriptor.weights_shape)
    b = numbers(generator, descriptor.output_feature_channels) if biases else None
    return mps.MPSCNNConvolution(mps.ArrayConvolutionDataSource(descriptor, weights, b), **properties)


def functional(kernel: mps.MPSCNNConvolution, **changes: Any) -> tuple[mpsref.Convolution, Any, Any]:
    """The functional form of a kernel, its weights, and its biases."""
    descriptor, source = kernel.descriptor, kernel.data_source
    spec = mpsref.Convolution(
        **{
            "kernel_size": (descriptor.kernel_height, descriptor.kernel_width),
            "strides": (descriptor.stride_in_pixels_y, descriptor.stride_in_pixels_x),
            "dilations": (descriptor.dilation_rate_y, descriptor.dilation_rate_x),
            "offset": (kernel.offset.y, kernel.offset.x),
            "groups": descriptor.effective_groups,
            "edge_mode": ("zero", "clamp")[kernel.edge_mode],
        }
        | changes
    )
    weights = source.weights_array
    return spec, weights if weights.ndim == 4 else weights[..., None], source.biases_array


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples(name: str) -> None:
    example = EXAMPLES[name]
    y, _ = example.run()
    assert y.ravel().tolist() == list(example.y)


def test_sub_pixel_example() -> None:
    descriptor = mps.MPSCNNSubPixelConvolutionDescriptor(1, 1, 1, 8, sub_pixel_scale_factor=2)
    kernel = mps.MPSCNNConvolution(mps.ArrayConvolutionDataSource(descriptor, np.arange(8)))
    y = kernel.encode(np.ones((1, 1, 1, 1), np.float32))
    assert y[0].tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_every_property_reaches_its_axis() -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(
        4, 3, 8, 16, stride_in_pixels_x=2, stride_in_pixels_y=3, dilation_rate_x=1, dilation_rate_y=2, groups=2
    )
    kernel = layer(descriptor, offset=(2, -1, 0), edge_mode="clamp")
    assert (kernel.kernel_width, kernel.kernel_height, kernel.stride_in_pixels_x, kernel.stride_in_pixels_y) == (
        4,
        3,
        2,
        3,
    )
    assert (kernel.dilation_rate_x, kernel.dilation_rate_y, kernel.groups) == (1, 2, 2)
    assert (kernel.input_feature_channels, kernel.output_feature_channels) == (8, 16)
    assert (kernel.channel_multiplier, kernel.sub_pixel_scale_factor) == (0, 1)
    assert kernel.is_result_state_reused_across_batch
    assert isinstance(kernel, mps.MPSCNNKernel)
    x = numbers(np.random.default_rng(1), 2, 9, 8, 8)
    spec, weights, biases = functional(kernel)
    np.testing.assert_array_equal(kernel.encode(x, destination_size=(3, 4)), spec.forward(x, weights, biases, (3, 4)))


def test_defaults() -> None:
    kernel = layer(mps.MPSCNNConvolutionDescriptor(3, 3, 1, 1))
    assert (kernel.offset, kernel.edge_mode, kernel.clip_rect) == ((0, 0, 0), mps.MPSImageEdgeMode.Zero, None)
    assert kernel.accumulator_precision_option is mps.MPSNNConvolutionAccumulatorPrecisionOption.Float
    assert kernel.fused_neuron_descriptor.neuron_type is mps.MPSCNNNeuronType.NONE


def test_the_clip_moves_what_is_written_and_not_what_is_read() -> None:
    kernel = layer(mps.MPSCNNConvolutionDescriptor(3, 2, 2, 4), offset=(1, 0, 1))
    kernel.clip_rect = (2, 1, 1), (3, 9, 1)
    kernel.destination_feature_channel_offset = 4
    x = numbers(np.random.default_rng(1), 3, 6, 7, 2)
    into = np.full((3, 5, 6, 9), -7, np.float32)
    assert kernel.encode(x, into) is into
    spec, weights, biases = functional(kernel)
    expected = np.full_like(into, -7)
    expected[1:2, 1:5, 2:5, 4:8] = spec.forward(x[1:2], weights, biases, (4, 3))
    np.testing.assert_array_equal(into, expected)


@pytest.mark.parametrize("most", [None, 4, 9])
@pytest.mark.parametrize("kind", ["Convolution", "FullyConnected", "ConvolutionTranspose"])
def test_as_many_channels_are_read_as_the_weights_are_for(kind: str, most: int | None) -> None:
    """From the offsets on, in all images of a layer and its gradient."""
    rng = np.random.default_rng(1)
    source = mps.ArrayConvolutionDataSource(
        mps.MPSCNNConvolutionDescriptor(3, 3, 4, 8), numbers(rng, 8, 3, 3, 4), numbers(rng, 8)
    )
    x = numbers(rng, 2, 3, 3, 12)
    forward, backward = getattr(mps, f"MPSCNN{kind}"), getattr(mps, f"MPSCNN{kind}Gradient")
    for first in (0, 4, 8):
        part = x[..., first : first + 4]
        expected, plain = forward(source).encode(part, return_state=True)
        kernel = forward(source, source_feature_channel_offset=first, source_feature_channel_max_count=most)
        y, state = kernel.encode(x, return_state=True)
        np.testing.assert_array_equal(y, expected)
        g = numbers(rng, *y.shape[:3], 20)
        gradient = backward(source)
        dx = gradient.encode(g[..., 8:16], x, state)
        np.testing.assert_array_equal(dx[..., first : first + 4], backward(source).encode(g[..., 8:16], part, plain))
        assert dx.shape == x.shape
        assert np.count_nonzero(dx) == np.count_nonzero(dx[..., first : first + 4])
        for one in (state, plain):
            one.synchronize()
        np.testing.assert_array_equal(state.gradient_for_weights, plain.gradient_for_weights)
        if kind == "ConvolutionTranspose":
            continue  # its gradient needs the state, whose result has 8 channels
        gradient.gradient_option, gradient.primary_source_feature_channel_offset = 1, 8
        gradient.primary_source_feature_channel_max_count = None if most is None else 2 * most
        gradient.secondary_source_feature_channel_max_count = most
        np.testing.assert_array_equal(gradient.encode(g, x, None, np.zeros_like(x)), dx)
    for wrong in (x[..., :10], x[..., :3]):
        with pytest.raises(ShapeError, match=r"[23] channels are read of source_image; they must be 4.*channel_offset"):
            forward(source, source_feature_channel_offset=8 if wrong.shape[3] > 8 else 0).encode(wrong)
    with pytest.raises(ShapeError, match="3 channels are read of source_image; they must be 4"):
        forward(source, source_feature_channel_max_count=3).encode(x)


def test_a_node_reads_whole_images() -> None:
    source = mps.ArrayConvolutionDataSource(mps.MPSCNNConvolutionDescriptor(1, 1, 4, 2), np.ones((2, 1, 1, 4)))
    x = graph.MPSNNImageNode("x")
    for node in (
        graph.MPSCNNConvolutionNode(x, source),
        graph.MPSCNNFullyConnectedNode(x, source),
        graph.MPSCNNConvolutionTransposeNode(x, None, source),
    ):
        with pytest.raises(ShapeError, match="its weights"):
            graph.MPSNNGraph(node.result_image).infer_shapes([(1, 1, 1, 12)])


def test_the_default_policy_is_same_and_sets_the_offset() -> None:
    x = numbers(np.random.default_rng(1), 1, 8, 8, 1)
    kernel = layer(mps.MPSCNNConvolutionDescriptor(3, 4, 1, 1, stride_in_pixels_x=2), offset=(5, 5, 0))
    y = kernel.encode(x)
    assert (y.shape, kernel.offset) == ((1, 8, 4, 1), (0, 0, 0))


@pytest.mark.parametrize("multiplier", [1, 2, 3])
def test_depthwise_is_grouped(multiplier: int) -> None:
    descriptor = mps.MPSCNNDepthWiseConvolutionDescriptor(2, 3, 5, 5 * multiplier, stride_in_pixels_y=2)
    kernel = layer(descriptor, offset=(1, 1, 0))
    x = numbers(np.random.default_rng(1), 2, 6, 5, 5)
    spec, weights, biases = functional(kernel, groups=5)
    np.testing.assert_array_equal(kernel.encode(x, destination_size=(3, 4)), spec.forward(x, weights, biases, (3, 4)))


@pytest.mark.parametrize("clip", [None, ((1, 2, 0), (5, 3, 1)), ((0, 0, 0), (1, 1, 1))])
@pytest.mark.parametrize("factor", [2, 3])
def test_sub_pixel_is_depth_to_space(factor: int, clip: Any) -> None:
    """Neuron and biases come before the rearrangement; sizes that the factor does not divide are cut."""
    descriptor = mps.MPSCNNSubPixelConvolutionDescriptor(3, 3, 2, 2 * factor**2, sub_pixel_scale_factor=factor)
    kernel = layer(descriptor, clip_rect=clip)
    x = numbers(np.random.default_rng(1), 1, 4, 5, 2)
    into = np.full((1, 7, 8, 2), -99, np.float32)
    kernel.encode(x, into)
    spec, weights, biases = functional(kernel)
    top, left, height, width = (0, 0, 7, 8) if clip is None else (clip[0][1], clip[0][0], clip[1][1], clip[1][0])
    windows = -(-height // factor), -(-width // factor)
    image = spec.forward(x, weights, biases, windows)
    expected = np.full_like(into, -99)
    for y in range(height):
        for column in range(width):
            first = 2 * (factor * (y % factor) + column % factor)
            expected[:, top + y, left + column] = image[:, y // factor, column // factor, first : first + 2]
    np.testing.assert_array_equal(into, expected)


def test_sub_pixel_policy_makes_the_larger_image() -> None:
    descriptor = mps.MPSCNNSubPixelConvolutionDescriptor(3, 3, 1, 8, stride_in_pixels_x=2, sub_pixel_scale_factor=2)
    kernel = layer(descriptor)
    assert kernel.encode(np.ones((2, 3, 5, 1), np.float32)).shape == (2, 6, 6, 2)
    with pytest.raises(ValueError, match="destination_image has only 1"):
        kernel.encode(np.ones((1, 3, 5, 1), np.float32), np.ones((1, 6, 6, 1), np.float32))


def test_fused_neurons() -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(1, 1, 1, 2)
    descriptor.fused_neuron_descriptor = mps.MPSNNNeuronDescriptor(mps.MPSCNNNeuronType.ReLU, 0.5)
    source = mps.ArrayConvolutionDataSource(descriptor, [1, -1], [0, 1])
    x = np.array([-4, 4], np.float32).reshape(1, 1, 2, 1)
    kernel = mps.MPSCNNConvolution(source)
    assert kernel.encode(x)[0, 0].tolist() == [[-2, 5], [4, -1.5]]
    descriptor.set_neuron_to_prelu([0.25, 0.5])
    kernel.reload_weights_and_biases_from_data_source()
    assert kernel.encode(x)[0, 0].tolist() == [[-1, 5], [4, -1.5]]
    _, state = kernel.encode(x, return_state=True)
    assert state.convolution is kernel, "a transposed convolution may need it"


def test_accumulator_precision() -> None:
    option = mps.MPSNNConvolutionAccumulatorPrecisionOption
    descriptor = mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1)
    kernel = mps.MPSCNNConvolution(PlainSource(descriptor, np.ones(1, np.float32)), accumulator_precision_option="half")
    assert kernel.accumulator_precision_option is option.Half
    x = np.full((1, 1, 1, 1), 1 + 2.0**-20, np.float32)
    assert kernel.encode(x).item() == x.item(), "it has no effect"
    exact = layer(descriptor)
    exact.accumulator_precision_option = option.Float
    words = "with float32 kernel weights it must be MPSNNConvolutionAccumulatorPrecisionOption.Float"
    with pytest.raises(ValueError, match=words):
        exact.accumulator_precision_option = option.Half
    with pytest.raises(ValueError, match=words):
        layer(descriptor, accumulator_precision_option=0)
    kernel.data_source.kernel_weights_data_type = lambda: "float32"
    with pytest.raises(ValueError, match=words):
        kernel.reload_weights_and_biases_from_data_source()


def test_the_state_that_an_encode_would_leave() -> None:
    kernel = layer(mps.MPSCNNConvolutionDescriptor(3, 3, 2, 4), offset=(1, 1, 0), clip_rect=((1, 0, 0), (3, 2, 1)))
    x, into = np.zeros((2, 4, 5, 2), np.float32), np.zeros((1, 3, 4, 4), np.float32)
    made = kernel.result_state_for_source_image(x, [], into)
    assert not into.any()
    _, left = kernel.encode(x, into, return_state=True)
    assert (made.record.sources, made.record.clip_rect, made.record.source_shapes, made.record.destination_shape) == (
        left.record.sources, left.record.clip_rect, left.record.source_shapes, left.record.destination_shape
    )  # fmt: skip
    assert made.convolution is kernel
    assert isinstance(kernel.result_state_batch_for_source_image(x, (), into), type(made))
    with pytest.raises(ValueError, match="MPSCNNConvolution reads none: pass None"):
        kernel.result_state_for_source_image(x, [made], into)
    was, inferred = kernel.copy(), kernel.result_state_for_source_image(x, None)
    assert inferred.record == kernel.encode(x, return_state=True)[1].record
    assert kernel.offset != was.offset
