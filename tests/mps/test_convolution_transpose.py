"""Transposed convolution: worked examples, policies, pairing with a convolution, gradients, errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.errors import NotSynchronizedError, ShapeError
from tests import examples
from tests.kernels.test_convolution_transpose import LINES
from tests.mps.convolution_layers import PlainSource, RandomLayer, numbers, row, sums


def descriptor(width: int = 3, stride: int = 2, **more: Any) -> mps.MPSCNNConvolutionDescriptor:
    return mps.MPSCNNConvolutionDescriptor(width, 1, 1, 1, stride_in_pixels_x=stride, **more)


def pair_of(
    description: Any, weights: Any = None, **properties: Any
) -> tuple[mps.MPSCNNConvolutionTranspose, mps.MPSCNNConvolutionTransposeGradient]:
    if weights is None:
        weights = numbers(np.random.default_rng(0), *description.weights_shape)
    source = mps.ArrayConvolutionDataSource(description, weights)
    backend = properties.pop("backend", "reference")
    return (
        mps.MPSCNNConvolutionTranspose(source, backend=backend, **properties),
        mps.MPSCNNConvolutionTransposeGradient(source, backend=backend),
    )


@pytest.mark.parametrize("name", LINES)
def test_worked_examples(name: str) -> None:
    spec, x, w, y, g, dx, dw = LINES[name]
    forward, gradient = pair_of(descriptor(len(w)), w, kernel_offset_x=spec.kernel_offset[1])
    result, state = forward.encode_batch(row(*x), destination_size=(1, len(y)), return_state=True)
    assert result.ravel().tolist() == list(y)
    assert gradient.encode_batch(row(*g), row(*x), state).ravel().tolist() == list(dx)
    assert [buffer.ravel().tolist() for buffer in sums(state)] == [list(dw), [sum(g)]]


def test_properties_and_defaults() -> None:
    forward, gradient = pair_of(mps.MPSCNNConvolutionDescriptor(3, 2, 8, 16, groups=2, stride_in_pixels_y=2))
    assert isinstance(forward, mps.MPSCNNKernel)
    assert isinstance(gradient, mps.MPSCNNGradientKernel)
    assert (forward.input_feature_channels, forward.output_feature_channels, forward.groups) == (8, 16, 2)
    assert (forward.kernel_offset_x, forward.kernel_offset_y, forward.offset) == (0, 0, (0, 0, 0))
    assert forward.accumulator_precision_option is mps.MPSNNConvolutionAccumulatorPrecisionOption.Float
    assert forward.is_backwards
    assert forward.is_result_state_reused_across_batch
    assert (gradient.source_gradient_feature_channels, gradient.source_image_feature_channels) == (16, 8)
    with pytest.raises(ValueError, match=r"edge_mode is 'clamp'; it must be one of MPSImageEdgeMode.Zero"):
        forward.edge_mode = "clamp"
    with pytest.raises(TypeError, match=r"kernel_offset_x is 1.5"):
        forward.kernel_offset_x = 1.5


@pytest.mark.parametrize(("size", "width", "left"), [("SizeSame", 9, 1), ("SizeValidOnly", 7, 0), ("SizeFull", 11, 2)])
def test_policies_run_in_reverse(size: str, width: int, left: int) -> None:
    method = getattr(mps.MPSNNPaddingMethod, size)
    forward, _ = pair_of(descriptor(), (1, 10, 100), offset=(5, 5, 0), kernel_offset_y=3)
    forward.padding = mps.MPSNNDefaultPadding.padding_with_method(method)
    y = forward.encode(row(1, 2, 3, 4, 5))
    assert y.shape == (1, 1, width, 1)
    assert (forward.offset, forward.kernel_offset_x, forward.kernel_offset_y) == ((0, 0, 0), 1 - left, 0)
    wide = pair_of(descriptor(), (1, 10, 100), kernel_offset_x=-1)[0].encode(
        row(1, 2, 3, 4, 5), destination_size=(1, 11)
    )
    assert y.ravel().tolist() == wide.ravel()[2 - left : 2 - left + width].tolist()


def test_a_policy_that_sets_clamp_is_refused() -> None:
    forward, _ = pair_of(descriptor())
    forward.padding = mps.MPSNNDefaultPadding.padding_for_tensorflow_average_pooling()
    with pytest.raises(ValueError, match=r"edge_mode is MPSImageEdgeMode.Clamp"):
        forward.encode(row(1, 2, 3))


def exchanged(weights: Array, groups: int) -> Array:
    """Rotated by 180 degrees, input and output channels of each group exchanged."""
    out, height, width, per_group = weights.shape
    grouped = weights[:, ::-1, ::-1].reshape(groups, out // groups, height, width, per_group)
    return grouped.transpose(0, 4, 2, 3, 1).reshape(groups * per_group, height, width, out // groups)


@examples(50)
@given(
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)), stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    offset=st.tuples(st.integers(-3, 5), st.integers(-3, 5)), size=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    outputs=st.tuples(st.integers(1, 4), st.integers(1, 4)), groups=st.sampled_from([1, 2]), seed=st.integers(0, 99),
)  # fmt: skip
def test_paired_with_a_convolution_it_is_the_exact_adjoint(
    kernel: Any, stride: Any, offset: Any, size: Any, outputs: Any, groups: int, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    channels = (8, 16) if groups == 2 else (2, 3)
    strides = {"stride_in_pixels_x": stride[0], "stride_in_pixels_y": stride[1], "groups": groups}
    description = mps.MPSCNNConvolutionDescriptor(*kernel, *channels, **strides)
    weights = numbers(generator, *description.weights_shape)
    source = mps.ArrayConvolutionDataSource(description, weights)
    convolution = mps.MPSCNNConvolution(source, offset=(*offset, 0))
    x = numbers(generator, 1, *size, channels[0])
    y, state = convolution.encode(x, destination_size=outputs, return_state=True)
    g = numbers(generator, *y.shape)

    back = mps.MPSCNNConvolutionDescriptor(*kernel, *channels[::-1], **strides)
    transpose, _ = pair_of(back, exchanged(weights, groups), offset=(9, 9, 0), kernel_offset_x=7)
    dx = transpose.encode(g, convolution_gradient_state=state)
    np.testing.assert_array_equal(dx, mps.MPSCNNConvolutionGradient(source).encode(g, x, state))
    expected = [(1 - size % 2) - o for size, o in zip(kernel, offset, strict=True)]
    assert [transpose.kernel_offset_x, transpose.kernel_offset_y] == expected
    assert transpose.offset == (0, 0, 0)


def test_the_state_says_what_it_is_paired_with() -> None:
    convolution = mps.MPSCNNConvolution(mps.ArrayConvolutionDataSource(descriptor(), (1, 2, 3)))
    x = row(1, 2, 3, 4, 5)
    y, state = convolution.encode(x, return_state=True)
    transpose, _ = pair_of(descriptor())
    z, paired = transpose.encode(y, convolution_gradient_state=[state], return_state=True)
    assert z.shape == x.shape
    assert type(paired) is mps.MPSCNNConvolutionTransposeGradientState
    assert isinstance(paired, mps.MPSCNNConvolutionGradientState)
    assert (paired.convolution_transpose, paired.convolution) == (transpose, convolution)
    assert (paired.source_width, paired.source_height) == (3, 1)
    _, alone = transpose.encode(y, return_state=True)
    assert (alone.convolution_transpose, alone.convolution) == (transpose, None)
    transpose.encode(y, convolution_gradient_state=state, destination_state=alone)
    assert alone.convolution is convolution
    transpose.encode(y, destination_state=[alone])
    assert alone.convolution is None
    made = transpose.result_state_for_source_image(y, [state], np.zeros_like(x))
    assert (made.convolution_transpose, made.convolution) == (transpose, convolution)
    assert transpose.result_state_batch_for_source_image(y, (), np.zeros_like(x)).convolution is None


def test_repeated_pairs_have_the_geometry_of_their_state() -> None:
    """Also after the offsets were set, with another state, and with none."""
    one, _ = pair_of(descriptor())
    states = []
    for offset, width in ((0, 7), (1, 7), (1, 6)):
        source = mps.ArrayConvolutionDataSource(descriptor(), np.ones((1, 1, 3, 1), np.float32))
        convolution = mps.MPSCNNConvolution(source, backend="reference", offset=(offset, 0, 0))
        states.append(convolution.encode(row(*range(width)), destination_size=(1, 3), return_state=True)[1])
    x, order = row(1, 2, 3), (0, 0, 1, 2, 2, 0)
    for k, target in itertools.product(order, (None, "destination_image", "destination_state")):
        one.kernel_offset_x = 5
        call: dict[str, Any] = {"convolution_gradient_state": states[k]}
        expected = pair_of(descriptor())[0].encode(x, **call)
        if target == "destination_image":
            call[target] = np.full_like(expected, 9)
        elif target is not None:
            call[target] = one.result_state_for_source_image(x)
        np.testing.assert_array_equal(one.encode(x, **call), expected)
        assert one.kernel_offset_x != 5
        if target == "destination_state":
            assert call[target].convolution is states[k].convolution
        one.kernel_offset_x = 0
        plain = pair_of(descriptor())[0].encode(x, destination_size=(1, 7))
        np.testing.assert_array_equal(one.encode(x, destination_size=(1, 7)), plain)


def test_a_pair_that_does_not_fit() -> None:
    transpose, _ = pair_of(descriptor(), kernel_offset_x=4)
    y = row(1, 2, 3)

    def state_of(description: Any) -> Any:
        weights = np.zeros(description.weights_shape)
        kernel = mps.MPSCNNConvolution(mps.ArrayConvolutionDataSource(description, weights))
        return kernel.encode(row(1, 2, 3, 4, 5, 6), return_state=True)[1]

    for other in (descriptor(width=4), descriptor(stride=1), descriptor(dilation_rate_x=2)):
        with pytest.raises(ValueError, match=r"of the convolution are .* they must be the same"):
            transpose.encode(y, convolution_gradient_state=state_of(other))
    with pytest.raises(
        TypeError, match="convolution_gradient_state is of type MPSCNNConvolutionTransposeGradientState"
    ):
        transpose.encode(y, convolution_gradient_state=transpose.copy().encode(y, return_state=True)[1])
    with pytest.raises(TypeError, match="convolution_gradient_state is of type int"):
        transpose.encode(y, convolution_gradient_state=3)
    state = state_of(descriptor())
    with pytest.raises(ShapeError, match=r"destination_size has height and width \(1, 7\); .* must be \(1, 6\)"):
        transpose.encode(y, convolution_gradient_state=state, destination_size=(1, 7))
    into = np.zeros((1, 1, 5, 1), np.float32)
    with pytest.raises(ShapeError, match=r"destination_image has height and width \(1, 5\)"):
        transpose.encode(y, into, convolution_gradient_state=state)
    with pytest.raises(ValueError, match="different object"):
        transpose.encode(y, convolution_gradient_state=[state, state])
    assert transpose.kernel_offset_x == 4, "no property has changed"
    into = np.zeros((1, 1, 6, 1), np.float32)
    assert transpose.encode(y, into, convolution_gradient_state=state) is into
    again = transpose.encode(y, convolution_gradient_state=state, destination_size=(1, 6))
    np.testing.assert_array_equal(again, into)


@examples(50)
@given(st.integers(0, 2**32))
def test_gradients_are_the_derivatives(seed: int) -> None:
    case = RandomLayer(seed, False, (-2, 2), kernel_offset_x=(-4, 4), kernel_offset_y=(-4, 4))
    forward, gradient = pair_of(case.descriptor, **case.properties)
    y, state = forward.encode(case.x, destination_size=case.size, return_state=True)
    g = case.numbers(*y.shape)
    gradient.primary_offset, gradient.kernel_offset_x, gradient.secondary_offset = (3, 3, 0), 5, (1, 1, 0)
    gradient.secondary_edge_mode = mps.MPSImageEdgeMode.Clamp
    dx = gradient.encode(g, case.x, state)
    assert dx.shape == case.x.shape
    inner = np.sum(g * y)
    assert np.sum(dx * case.x) == inner
    dw, _ = sums(state)
    assert np.sum(dw * forward.data_source.weights_array) == inner
    other, state = gradient.copy(), forward.encode(case.x, destination_size=y.shape[1:3], return_state=True)[1]
    other.kernel_offset_x, other.primary_offset, other.clip_rect = -3, (1, 1, 0), None
    other.destination_feature_channel_offset = 0
    into = np.zeros_like(case.x)
    other.encode(g, case.x, state, into)
    np.testing.assert_array_equal(into, dx, "given a destination, the geometry still comes from the state")


def test_a_tile_of_the_gradient() -> None:
    forward, gradient = pair_of(mps.MPSCNNConvolutionDescriptor(3, 3, 2, 2, stride_in_pixels_x=2))
    x = numbers(np.random.default_rng(1), 1, 5, 6, 2)
    y, state = forward.encode(x, return_state=True)
    whole = gradient.encode(y, x, state)
    gradient.clip_rect = (1, 2, 0), (3, 2, 1)
    tile = gradient.encode(y, x, state)
    np.testing.assert_array_equal(tile[:, 2:4, 1:4], whole[:, 2:4, 1:4])
    assert np.count_nonzero(tile) == np.count_nonzero(whole[:, 2:4, 1:4])


def test_the_gradient_needs_a_state_and_its_size() -> None:
    forward, gradient = pair_of(descriptor())
    x = row(1, 2, 3)
    y, state = forward.encode(x, return_state=True)
    for option in (1, 2, 3):
        gradient.gradient_option = option
        for destination in (None, np.zeros_like(x)):
            with pytest.raises(ValueError, match="gradient_state is None; pass the state of the forward pass"):
                gradient.encode(y, x, None, destination)
    with pytest.raises(ShapeError, match=r"destination_gradient has height and width \(1, 4\); they must be \(1, 3\)"):
        gradient.encode(y, x, state, np.zeros((1, 1, 4, 1), np.float32))
    with pytest.raises(ShapeError, match="source_gradient has shape"):
        gradient.encode(y[:, :, 1:], x, state)
    convolution = mps.MPSCNNConvolution(forward.data_source)
    _, other = convolution.encode(x, return_state=True)
    with pytest.raises(TypeError, match="it must be the MPSCNNConvolutionTransposeGradientState"):
        gradient.encode(y, x, other)
    with pytest.raises(TypeError, match="gradient_state was left by MPSCNNConvolutionTranspose"):
        mps.MPSCNNConvolutionGradient(forward.data_source).encode(y, x, state)
    with pytest.raises(NotSynchronizedError):
        _ = state.gradient_for_weights


def test_weights_are_float32() -> None:
    half = PlainSource(descriptor(), np.ones(3, np.float16))
    for kind in (mps.MPSCNNConvolutionTranspose, mps.MPSCNNConvolutionTransposeGradient):
        with pytest.raises(ValueError, match=r"data_type\(\) is 'float16'; here it must be 'float32'"):
            kind(half)
        with pytest.raises(ValueError, match="dilation_rate_x and _y are 2 and 1; they must be 1"):
            kind(mps.ArrayConvolutionDataSource(descriptor(dilation_rate_x=2), np.ones(3)))
        sub_pixel = mps.MPSCNNSubPixelConvolutionDescriptor(1, 1, 1, 4, sub_pixel_scale_factor=2)
        with pytest.raises(NotImplementedError, match="sub_pixel_scale_factor is 2"):
            kind(mps.ArrayConvolutionDataSource(sub_pixel, np.ones(4)))


def test_a_node_without_the_state_of_a_convolution_takes_its_weights_by_name() -> None:
    image = mps.graph.MPSNNImageNode("x")
    source = mps.ArrayConvolutionDataSource(mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1), [3.0])
    node = mps.graph.MPSCNNConvolutionTransposeNode(image, weights=source)
    assert mps.graph.MPSNNGraph(node.result_image).run([np.ones((1, 1, 1, 1))]).image.item() == 3
    with pytest.raises(TypeError, match="lacks weights; pass a data source"):
        mps.graph.MPSCNNConvolutionTransposeNode(image)
