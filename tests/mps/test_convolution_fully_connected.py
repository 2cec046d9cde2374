"""Fully connected layers: the worked example, equality with a convolution, what is ignored, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref.arguments.arrays import Array
from mpsref.errors import ShapeError
from mpsref.mps import (
    ArrayConvolutionDataSource,
    MPSCNNConvolution,
    MPSCNNConvolutionDescriptor,
    MPSCNNConvolutionGradient,
    MPSCNNDepthWiseConvolutionDescriptor,
    MPSCNNFullyConnected,
    MPSCNNFullyConnectedGradient,
    MPSCNNNeuronType,
    MPSCNNSubPixelConvolutionDescriptor,
    MPSNNNeuronDescriptor,
)
from mpsref.mps.core.padding import MPSNNDefaultPadding
from mpsref.mps.core.types import MPSNNPaddingMethod
from tests.mps.convolution_layers import numbers, require, sums

EXAMPLE = MPSCNNConvolutionDescriptor(2, 2, 2, 2)
X = np.arange(1, 9, dtype=np.float32).reshape(1, 2, 2, 2)
G = np.array([1, -1], np.float32).reshape(1, 1, 1, 2)


def layer(backend: str = "reference") -> tuple[MPSCNNFullyConnected, MPSCNNFullyConnectedGradient, Array, Array]:
    """A layer on images of 3 by 4 pixels."""
    generator = np.random.default_rng(0)
    description = MPSCNNConvolutionDescriptor(4, 3, 2, 5)
    source = ArrayConvolutionDataSource(
        description, numbers(generator, *description.weights_shape), numbers(generator, 5)
    )
    x, g = numbers(generator, 3, 3, 4, 2), numbers(generator, 3, 1, 1, 5)
    return MPSCNNFullyConnected(source, backend=backend), MPSCNNFullyConnectedGradient(source, backend=backend), x, g


def test_worked_example(backend: str) -> None:
    require(backend, mpsref.FullyConnected)
    weights = 0.1 * np.arange(16)
    source = ArrayConvolutionDataSource(EXAMPLE, weights, [0.5, -0.5])
    y, state = MPSCNNFullyConnected(source, backend=backend).encode_batch(X, return_state=True)
    np.testing.assert_allclose(y.ravel(), [17.3, 45.1], rtol=1e-6)
    dx = MPSCNNFullyConnectedGradient(source, backend=backend).encode_batch(G, X, state)
    np.testing.assert_allclose(dx.ravel(), [-0.8] * 8, rtol=1e-6)
    dw, db = sums(state)
    np.testing.assert_array_equal(dw.reshape(2, 8), [range(1, 9), range(-1, -9, -1)])
    assert db.tolist() == [1, -1]


def test_it_is_a_convolution_around_the_middle(backend: str) -> None:
    forward, gradient, x, g = layer(require(backend, mpsref.FullyConnected))
    convolution = MPSCNNConvolution(forward.data_source, backend=require(backend), offset=(2, 1, 0))
    y, state = forward.encode(x, return_state=True)
    expected, other = convolution.encode(x, destination_size=(1, 1), return_state=True)
    np.testing.assert_array_equal(y, expected)
    dx = gradient.encode(g, x, state)
    np.testing.assert_array_equal(
        dx, MPSCNNConvolutionGradient(forward.data_source, backend=backend).encode(g, x, other)
    )
    for mine, theirs in zip(sums(state), sums(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    forward.offset = -5, 7, 0
    mixed = forward.encode(x, destination_size=(1, 1), return_state=True)[1]
    np.testing.assert_array_equal(MPSCNNConvolutionGradient(forward.data_source).encode(g, x, mixed), dx)


def test_classes() -> None:
    forward, gradient, _, _ = layer()
    assert isinstance(forward, MPSCNNConvolution)
    assert isinstance(gradient, MPSCNNConvolutionGradient)
    x, g = np.zeros((1, 3, 4, 2), np.float32), np.zeros((1, 1, 1, 5), np.float32)
    _, state = MPSCNNConvolution(forward.data_source).encode(x, destination_size=(1, 1), return_state=True)
    with pytest.raises(TypeError, match="gradient_state was left by MPSCNNConvolution"):
        gradient.encode(g, x, state)


def test_the_default_policy_makes_one_pixel() -> None:
    forward, _, x, _ = layer()
    assert forward.padding == MPSNNDefaultPadding.padding_with_method(MPSNNPaddingMethod.SizeValidOnly)
    assert forward.encode(x).shape == (3, 1, 1, 5)
    forward.padding = MPSNNDefaultPadding()
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
    by_hand = MPSCNNFullyConnectedGradient(
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


@pytest.mark.parametrize("shape", [(1, 4, 3, 2), (1, 3, 5, 2), (1, 2, 4, 2)])
def test_the_source_has_the_size_of_the_kernel(shape: Any) -> None:
    forward, gradient, _, g = layer()
    x = np.zeros(shape, np.float32)
    with pytest.raises(ValueError, match=r"the source image is .*; it must have the kernel_size \(3, 4\)"):
        forward.encode(x, destination_size=(1, 1))
    gradient.gradient_option = 1
    with pytest.raises(ValueError, match=r"the source image is .*; it must have the kernel_size \(3, 4\)"):
        gradient.encode(g[:1], x, None, np.zeros_like(x))


@pytest.mark.parametrize("kind", [MPSCNNFullyConnected, MPSCNNFullyConnectedGradient])
def test_what_a_descriptor_may_not_have(kind: Any) -> None:
    for name in ("stride_in_pixels_x", "stride_in_pixels_y", "dilation_rate_x", "dilation_rate_y", "groups"):
        description = MPSCNNConvolutionDescriptor(2, 2, 8, 8, **{name: 2})
        with pytest.raises(ValueError, match=f"{name} is 2; it must be 1 for {kind.__name__}"):
            kind(ArrayConvolutionDataSource(description, np.zeros(description.weights_shape)))
    for other in (MPSCNNDepthWiseConvolutionDescriptor, MPSCNNSubPixelConvolutionDescriptor):
        description = other(2, 2, 8, 8)
        with pytest.raises(ValueError, match="takes an MPSCNNConvolutionDescriptor alone"):
            kind(ArrayConvolutionDataSource(description, np.zeros(description.weights_shape)))


def test_a_fused_neuron() -> None:
    description = EXAMPLE.copy()
    description.fused_neuron_descriptor = MPSNNNeuronDescriptor(MPSCNNNeuronType.ReLU, 0.5)
    forward = MPSCNNFullyConnected(ArrayConvolutionDataSource(description, [*[1] * 8, *[-1] * 8]))
    assert forward.encode(X).ravel().tolist() == [36, -18]


def test_updates_are_those_of_a_convolution() -> None:
    forward, gradient, x, g = layer()
    for size in ([3], [1, 2]):
        state, first = None, 0
        for count in size:
            _, state = forward.encode(x[first : first + count], return_state=True, destination_state=state)
            gradient.encode(g[first : first + count], x[first : first + count], state)
            first += count
        assert state is not None
        if size == [3]:
            whole = sums(state)
    for mine, theirs in zip(sums(state), whole, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    result = forward.export_weights_and_biases()
    result.device_write(np.zeros(forward.weights_shape, np.float32))
    forward.reload_weights_and_biases(result)
    gradient.reload_weights_and_biases(result)
    assert forward.encode(x)[0].ravel().tolist() == forward.data_source.biases_array.tolist()
    assert not gradient.encode(g, x, forward.encode(x, return_state=True)[1]).any()
