"""The gradient kernel: worked examples, what a state configures, options, states that do not fit, numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import mps
from mpsref.errors import NotSynchronizedError, ShapeError, UnsupportedError
from tests import examples
from tests.mps.convolution_layers import EXAMPLES, RandomLayer, layer, numbers, row, sums

OPTION = mps.MPSCNNConvolutionGradientOption
E1 = EXAMPLES["E1"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_examples(name: str) -> None:
    example = EXAMPLES[name]
    _, state = example.run()
    gradient = example.gradient()
    dx = gradient.encode(row(*example.g), row(*example.x), state)
    dw, db = sums(state)
    assert dx.ravel().tolist() == list(example.dx)
    assert (dw.ravel().tolist(), db.tolist()) == (list(example.dw), [example.db])
    assert (gradient.kernel_offset_x, gradient.secondary_offset.x) == (example.kernel_offset, example.secondary_offset)
    assert (gradient.kernel_offset_y, gradient.secondary_offset.y, gradient.primary_offset) == (0, 0, (0, 0, 0))


def test_depthwise_example() -> None:
    descriptor = mps.MPSCNNDepthWiseConvolutionDescriptor(3, 1, 2, 4)
    source = mps.ArrayConvolutionDataSource(descriptor, np.ravel([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]]))
    x = np.array([[1, 10], [2, 20], [3, 30]], np.float32).reshape(1, 1, 3, 2)
    y, state = mps.MPSCNNConvolution(source).encode(x, return_state=True)
    gradient = mps.MPSCNNConvolutionGradient(source)
    assert gradient.encode(np.ones_like(y), x, state)[0, 0].tolist() == [[2, 2], [2, 4], [1, 3]]
    dw, db = sums(state)
    assert dw.shape == (4, 1, 3)
    assert dw[:, 0].tolist() == [[3, 6, 5], [3, 6, 5], [30, 60, 50], [30, 60, 50]]
    assert db.tolist() == [3, 3, 3, 3]
    assert (gradient.channel_multiplier, gradient.groups) == (2, 1)


def test_properties_and_defaults() -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(3, 2, 8, 16, stride_in_pixels_y=2, dilation_rate_x=3, groups=2)
    _, gradient = layer(descriptor)
    assert isinstance(gradient, mps.MPSCNNGradientKernel)
    assert (gradient.source_gradient_feature_channels, gradient.source_image_feature_channels) == (16, 8)
    assert (gradient.groups, gradient.channel_multiplier, gradient.is_backwards) == (2, 0, True)
    assert gradient.gradient_option == OPTION.All
    assert gradient.serialize_weights_and_biases is False
    gradient.serialize_weights_and_biases = True
    for side in ("primary", "secondary"):
        names = (
            "kernel_width",
            "kernel_height",
            "stride_in_pixels_x",
            "stride_in_pixels_y",
            "dilation_rate_x",
            "dilation_rate_y",
        )
        assert [getattr(gradient, f"{side}_{name}") for name in names] == [3, 2, 1, 2, 3, 1]
        assert getattr(gradient, f"{side}_offset") == (0, 0, 0)
    assert (gradient.kernel_offset_x, gradient.kernel_offset_y) == (0, 0)
    with pytest.raises(TypeError, match="serialize_weights_and_biases is 'no'"):
        gradient.serialize_weights_and_biases = "no"
    for bad in (0, 4, -1, "none"):
        with pytest.raises(ValueError, match="gradient_option is"):
            gradient.gradient_option = bad
    for value in (1, "gradientwithdata", OPTION.GradientWithData):
        gradient.gradient_option = value
        assert gradient.gradient_option is OPTION.GradientWithData


@pytest.mark.parametrize("into", [False, True])
def test_options_give_the_parts_of_all(into: bool) -> None:
    def run(option: Any, state: Any) -> Any:
        destination = np.full((1, 1, 5, 1), -7, np.float32) if into else None
        gradient = E1.gradient(gradient_option=option)
        gradient.secondary_offset = -1, 0, 0
        return gradient.encode(row(1, 2, 3), row(1, 2, 3, 4, 5), state, destination)

    _, state = E1.run()
    state.synchronize()
    data = run(1, state)
    assert data.ravel().tolist() == list(E1.dx)
    assert not state.gradient_for_weights.any(), "not written: still readable, still zero"
    nothing = run(2, state)
    if into:
        assert (nothing == -7).all()
    else:
        assert nothing is None
    with pytest.raises(NotSynchronizedError):
        _ = state.gradient_for_weights
    dw, db = sums(state)
    assert (dw.ravel().tolist(), db.tolist()) == (list(E1.dw), [E1.db])
    _, state = E1.run()
    np.testing.assert_array_equal(run(3, state), data)
    np.testing.assert_array_equal(sums(state)[0], dw)


def test_the_option_without_data_returns_none_for_every_kind_of_image() -> None:
    _, state = E1.run()
    gradient = E1.gradient(gradient_option=2)
    assert gradient.encode(mps.MPSImage(row(1, 2, 3)), mps.MPSImage(row(1, 2, 3, 4, 5)), state) is None
    batch = mps.MPSImageBatch.from_array(np.full((1, 1, 5, 1), -7, np.float32))
    gradient.secondary_offset = -1, 0, 0
    assert gradient.encode(row(1, 2, 3), row(1, 2, 3, 4, 5), state, batch) is batch
    assert (batch[0].array == -7).all()
    assert sums(state)[0].ravel().tolist() == [32, 44, 20]


@examples(60)
@given(st.integers(0, 2**32))
def test_a_state_makes_the_gradients_the_derivatives(seed: int) -> None:
    """<g, A x> = <A^T g, x> and <dw, w> = <g, A x> with all integers: nothing may differ."""
    case = RandomLayer(seed, True, (-3, 5))
    forward, gradient = layer(case.descriptor, **case.properties)
    y, state = forward.encode(case.x, destination_size=case.size, return_state=True)
    g = case.numbers(*y.shape)
    dx = gradient.encode(g, case.x, state)
    assert dx.shape == case.x.shape
    dw, db = sums(state)
    inner = np.sum(g * y)
    assert np.sum(dx * case.x) == inner
    assert np.sum(dw * forward.data_source.weights_array) == inner
    written = state.record.clip_rect
    rows = slice(written.origin.y, written.origin.y + written.size.height)
    columns = slice(written.origin.x, written.origin.x + written.size.width)
    images = slice(written.origin.z, written.origin.z + written.size.depth)
    np.testing.assert_array_equal(db, g[images, rows, columns].sum(axis=(0, 1, 2)))
    cut = g[images, rows, columns]
    if 0 not in cut.shape:
        again = forward.encode(case.x, destination_size=case.size, return_state=True)[1]
        np.testing.assert_array_equal(gradient.encode(cut, case.x, again), dx)
        np.testing.assert_array_equal(sums(again)[0], dw)


def test_a_tile_of_the_gradient_is_a_part_of_it() -> None:
    forward, gradient = layer(mps.MPSCNNConvolutionDescriptor(3, 2, 2, 4, stride_in_pixels_x=2))
    x = numbers(np.random.default_rng(1), 1, 6, 7, 2)
    y, state = forward.encode(x, return_state=True)
    g = numbers(np.random.default_rng(2), *y.shape)
    whole = gradient.encode(g, x, state)
    first = sums(state)
    _, state = forward.encode(x, return_state=True)
    gradient.clip_rect = (2, 1, 0), (3, 4, 1)
    tile = gradient.encode(g, x, state)
    np.testing.assert_array_equal(tile[:, 1:5, 2:5], whole[:, 1:5, 2:5])
    assert np.count_nonzero(tile) == np.count_nonzero(whole[:, 1:5, 2:5])
    gradient.clip_rect = (2, 1, 0), (0, 4, 1)
    assert not gradient.encode(g, x, state).any()
    np.testing.assert_array_equal(sums(state)[0], 2 * first[0], "the clip is that of dx alone")


def test_clamp_has_a_gradient_for_the_weights_alone() -> None:
    forward, gradient = E1.forward(), E1.gradient()
    forward.edge_mode = "clamp"
    _, state = forward.encode(row(*E1.x), destination_size=(1, 3), return_state=True)
    into = np.full((1, 1, 5, 1), -7, np.float32)
    for destination in (None, into):
        with pytest.raises(UnsupportedError, match=r"set gradient_option to .*GradientWithWeightsAndBias"):
            gradient.encode(row(1, 2, 3), row(*E1.x), state, destination)
    assert (into == -7).all()
    gradient.gradient_option = 2
    gradient.encode(row(1, 2, 3), row(*E1.x), state)
    assert sums(state)[0].ravel().tolist() == [1 * 1 + 2 * 2 + 3 * 4, 22, 1 * 2 + 2 * 4 + 3 * 5]
    free = E1.gradient(gradient_option=1, secondary_edge_mode="clamp")
    with pytest.raises(UnsupportedError):
        free.encode(row(1, 2, 3), row(*E1.x), None, into)


def test_a_state_is_required_but_for_the_data_by_hand() -> None:
    g, x, into = row(1, 2, 3), row(*E1.x), np.zeros((1, 1, 5, 1), np.float32)
    for option in (1, 2, 3):
        with pytest.raises(ValueError, match="gradient_state is None; pass the state of the forward pass"):
            E1.gradient(gradient_option=option).encode(g, x)
    for option in (2, 3):
        with pytest.raises(ValueError, match="gradient_state is None"):
            E1.gradient(gradient_option=option).encode(g, x, None, into)
    assert E1.gradient(gradient_option=1).encode(g, x, None, into).ravel().tolist() == list(E1.dx)


def test_lists_of_states_name_one_object_for_each_image() -> None:
    x, g = np.concatenate([row(*E1.x)] * 2), np.concatenate([row(1, 2, 3)] * 2)
    _, state = E1.forward().encode(x, destination_size=(1, 3), return_state=True)
    _, other = E1.forward().encode(x, destination_size=(1, 3), return_state=True)
    gradient = E1.gradient()
    for bad in ([state], [state] * 3, []):
        with pytest.raises(ValueError, match="it must name one and the same state for each of 2 image"):
            gradient.encode_batch(g, x, bad)
    with pytest.raises(ShapeError, match="source_image has shape"):
        gradient.encode_batch(g, x, [state, other])
    with pytest.raises(ValueError, match="a list of 3 different states, and source_gradient has 2 images"):
        gradient.encode_batch(g, x, [state, other, state])
    gradient.encode_batch(g, x, [state, state])
    assert sums(state)[1].tolist() == [12]


def test_a_state_of_another_layer() -> None:
    g, x = row(1, 2, 3), row(*E1.x)
    _, state = E1.run()
    changes = [{"stride_in_pixels_x": 1}, {"dilation_rate_x": 2, "stride_in_pixels_x": 2}, {"kernel_width": 4}]
    for change in changes:
        arguments: dict[str, Any] = {"kernel_width": 3, "stride_in_pixels_x": 2} | change
        width = arguments.pop("kernel_width")
        _, gradient = layer(mps.MPSCNNConvolutionDescriptor(width, 1, 1, 1, **arguments))
        with pytest.raises(ValueError, match="must be the same"):
            gradient.encode(g, x, state)
    _, depthwise = layer(mps.MPSCNNDepthWiseConvolutionDescriptor(3, 1, 1, 1, stride_in_pixels_x=2))
    with pytest.raises(ValueError, match="kind must be the same"):
        depthwise.encode(g, x, state)
    wide, _ = layer(mps.MPSCNNConvolutionDescriptor(3, 1, 2, 2, stride_in_pixels_x=2))
    _, wide_state = wide.encode(np.zeros((1, 1, 5, 2), np.float32), return_state=True)
    with pytest.raises(ValueError, match="channels"):
        E1.gradient().encode(g, x, wide_state)
    _, pooled = mps.MPSCNNPoolingAverage(3, 1, 2, 1).encode(x, return_state=True)
    with pytest.raises(
        TypeError, match="gradient_state is of type MPSNNGradientState; it must be the MPSCNNConvolution"
    ):
        E1.gradient().encode(g, x, pooled)


def test_destination_image_descriptor() -> None:
    forward, gradient = layer(mps.MPSCNNConvolutionDescriptor(2, 3, 2, 4, stride_in_pixels_x=3), offset=(2, 1, 0))
    x = np.zeros((2, 5, 8, 2), np.float16)
    y, state = forward.encode(x, destination_size=(4, 3), return_state=True)
    made = gradient.destination_image_descriptor_for_source_images((y, x), [state])
    assert (made.shape, made.dtype) == (x.shape, np.float16)
    assert (gradient.kernel_offset_x, gradient.kernel_offset_y) == (1 - 2, 0 - 1)
    assert (gradient.secondary_offset.x, gradient.secondary_offset.y) == (2 - 1, 1 - 1)
    np.testing.assert_array_equal(gradient.encode(y, x, state, np.zeros_like(x)), gradient.copy().encode(y, x, state))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_parameter_gradients_are_float32_and_float64_for_float64(dtype: Any) -> None:
    x = row(*E1.x).astype(dtype)
    _, state = E1.forward().encode(x, destination_size=(1, 3), return_state=True)
    dx = E1.gradient().encode(row(1, 2, 3).astype(dtype), x, state)
    assert dx.dtype == dtype
    for buffer in sums(state):
        assert buffer.dtype == (np.float64 if dtype == np.float64 else np.float32)


def test_float16_sums_are_not_rounded_to_float16() -> None:
    forward, gradient = layer(mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1))
    x = np.ones((1, 64, 64, 1), np.float16)
    _, state = forward.encode(x, return_state=True)
    gradient.encode(x, x, state)
    gradient.encode(x[:, :1, :1] * np.float16(1), x, state, np.zeros_like(x))
    assert sums(state)[1].tolist() == [4097]
