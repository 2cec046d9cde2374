"""Fully connected layers: the worked example, equality with a convolution, what is ignored, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.errors import ShapeError
from tests.mps.convolution_layers import numbers, sums

EXAMPLE = mps.MPSCNNConvolutionDescriptor(2, 2, 2, 2)
X = np.arange(1, 9, dtype=np.float32).reshape(1, 2, 2, 2)


def layer(
    backend: str = "reference",
) -> tuple[mps.MPSCNNFullyConnected, mps.MPSCNNFullyConnectedGradient, Array, Array]:
    """A layer on images of 3 by 4 pixels."""
    generator = np.random.default_rng(0)
    description = mps.MPSCNNConvolutionDescriptor(4, 3, 2, 5)
    source = mps.ArrayConvolutionDataSource(
        description, numbers(generator, *description.weights_shape), numbers(generator, 5)
    )
    x, g = numbers(generator, 3, 3, 4, 2), numbers(generator, 3, 1, 1, 5)
    return (
        mps.MPSCNNFullyConnected(source, backend=backend),
        mps.MPSCNNFullyConnectedGradient(source, backend=backend),
        x,
        g,
    )


def test_it_is_a_convolution_around_the_middle() -> None:
    forward, gradient, x, g = layer()
    convolution = mps.MPSCNNConvolution(forward.data_source, offset=(2, 1, 0))
    y, state = forward.encode(x, return_state=True)
    expected, other = convolution.encode(x, destination_size=(1, 1), return_state=True)
    np.testing.assert_array_equal(y, expected)
    dx = gradient.encode(g, x, state)
    np.testing.assert_array_equal(dx, mps.MPSCNNConvolutionGradient(forward.data_source).encode(g, x, other))
    for mine, theirs in zip(sums(state), sums(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    forward.offset = -5, 7, 0
    mixed = forward.encode(x, destination_size=(1, 1), return_state=True)[1]
    np.testing.assert_array_equal(mps.MPSCNNConvolutionGradient(forward.data_source).encode(g, x, mixed), dx)


def test_classes() -> None:
    forward, gradient, _, _ = layer()
    assert isinstance(forward, mps.MPSCNNConvolution)
    assert isinstance(gradient, mps.MPSCNNConvolutionGradient)
    x, g = np.zeros((1, 3, 4, 2), np.float32), np.zeros((1, 1, 1, 5), np.float32)
    _, state = mps.MPSCNNConvolution(forward.data_source).encode(x, destination_size=(1, 1), return_state=True)
    with pytest.raises(TypeError, match="gradient_state was left by MPSCNNConvolution"):
        gradient.encode(g, x, state)


def test_the_default_policy_makes_one_pixel() -> None:
    forward, _, x, _ = layer()
    assert forward.padding == mps.MPSNNDefaultPadding.padding_with_method(mps.MPSNNPaddingMethod.SizeValidOnly)
    assert forward.encode(x).shape == (3, 1, 1, 5)
    forward.padding = mps.MPSNNDefaultPadding()
    with pytest.raises(ShapeError, match=r"the result is 3 x 4; a fully connected layer's is \(1, 1\)"):
        forward.encode(x)


def test_offsets_and_edge_modes_are_ignored() -> None:
    forward, gradient, x, g = layer()
    y, state = forward.encode(x, destination_size=(1, 1), return_state=True)
    dx = gradient.encode(g, x, state)
    forward.offset, forward.edge_mode = (7, -3, 0), "clamp"
    y2, moved = forward.encode(x, destination_size=(1, 1), return_state=True)
    np.testing.assert_array_equal(y2, y)
    np.testing.assert_array_equal(gradient.encode(g, x, moved), dx)
    by_hand = mps.MPSCNNFullyConnectedGradient(
        gradient.data_source,
        gradient_option=1,
        primary_offset=(4, 4, 0),
        kernel_offset_x=3,
        secondary_edge_mode="clamp",
    )
    into = np.full_like(x, -7)
    np.testing.assert_array_equal(by_hand.encode(g, x, None, into), dx)
    by_hand.clip_rect = (1, 1, 0), (2, 1, 3)
    into[:] = -7
    by_hand.encode(g, x, None, into)
    np.testing.assert_array_equal(into[:, 1:2, 1:3], dx[:, 1:2, 1:3])
    assert np.count_nonzero(into == -7) >= into.size - dx[:, 1:2, 1:3].size
    by_hand.clip_rect = None
    with pytest.raises(ShapeError, match="clip_rect covers the rows below 4 and the columns below 5"):
        by_hand.encode(g, x, None, np.zeros((3, 4, 5, 2), np.float32))


def test_the_pixel_may_lie_anywhere_in_a_destination() -> None:
    forward, gradient, x, g = layer()
    y = forward.encode(x)
    forward.clip_rect = (2, 1, 0), (1, 1, 3)
    into = np.full((3, 4, 4, 5), -7, np.float32)
    _, state = forward.encode(x, into, return_state=True)
    np.testing.assert_array_equal(into[:, 1:2, 2:3], y)
    into[:, 1:2, 2:3] = -7
    assert (into == -7).all()
    whole = np.zeros_like(into)
    whole[:, 1:2, 2:3] = g
    np.testing.assert_array_equal(gradient.encode(whole, x, state), gradient.encode(g, x, state))
    forward.clip_rect = (2, 1, 0), (2, 1, 3)
    with pytest.raises(ShapeError, match="the result is 1 x 2"):
        forward.encode(x, into)


@pytest.mark.parametrize("kind", [mps.MPSCNNFullyConnected, mps.MPSCNNFullyConnectedGradient])
def test_what_a_descriptor_may_not_have(kind: Any) -> None:
    for name in ("stride_in_pixels_x", "stride_in_pixels_y", "dilation_rate_x", "dilation_rate_y", "groups"):
        description = mps.MPSCNNConvolutionDescriptor(2, 2, 8, 8, **{name: 2})
        with pytest.raises(ValueError, match=f"{name} is 2; it must be 1 for {kind.__name__}"):
            kind(mps.ArrayConvolutionDataSource(description, np.zeros(description.weights_shape)))
    for other in (mps.MPSCNNDepthWiseConvolutionDescriptor, mps.MPSCNNSubPixelConvolutionDescriptor):
        description = other(2, 2, 8, 8)
        with pytest.raises(ValueError, match="takes an MPSCNNConvolutionDescriptor alone"):
            kind(mps.ArrayConvolutionDataSource(description, np.zeros(description.weights_shape)))


def test_a_fused_neuron() -> None:
    description = EXAMPLE.copy()
    description.fused_neuron_descriptor = mps.MPSNNNeuronDescriptor(mps.MPSCNNNeuronType.ReLU, 0.5)
    forward = mps.MPSCNNFullyConnected(mps.ArrayConvolutionDataSource(description, [*[1] * 8, *[-1] * 8]))
    assert forward.encode(X).ravel().tolist() == [36, -18]
