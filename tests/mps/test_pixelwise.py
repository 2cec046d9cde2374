"""Kernels that compute each pixel on its own, neurons and softmax: offsets, edge modes, clips and channels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mpsref import LogSoftMax, Neuron, ShapeError, SoftMax, mps
from mpsref.arguments.arrays import Array

SIGMOID = mps.MPSNNNeuronDescriptor("sigmoid")


class Pair:
    """A class and that of its gradient, and what both compute of one pixel."""

    def __init__(self, forward: Any, gradient: Any, function: Any, *arguments: Any, **checks: Any) -> None:
        self.kind, self.arguments, self.function = forward, arguments, function
        self.gradient = lambda: gradient(*arguments, **checks)
        self.unchecked = lambda: gradient(*arguments)
        self._reads_result = not isinstance(function, Neuron)

    def forward(self, **properties: Any) -> Any:
        return self.kind(*self.arguments, **properties)

    def slope(self, g: Array, x: Array, y: Array) -> Array:
        result: Array = self.function.gradient(g, y if self._reads_result else x)
        return result

    def brute_force(self, x: Array, g: Array, o: tuple[int, int], clamp: bool) -> tuple[Array, Array]:
        """Forward and gradient, result by result, as compositions of a copy and the function of one pixel."""
        n, height, width, c = x.shape
        y, dx = np.zeros(g.shape), np.zeros(x.shape)
        for i, k in itertools.product(range(g.shape[1]), range(g.shape[2])):
            j, m = i + o[0], k + o[1]
            if clamp:
                j, m = min(max(j, 0), height - 1), min(max(m, 0), width - 1)
            inside = 0 <= j < height and 0 <= m < width
            pixel = x[:, j : j + 1, m : m + 1] if inside else np.zeros((n, 1, 1, c))
            y[:, i : i + 1, k : k + 1] = result = self.function.forward(pixel)
            if inside:
                dx[:, j, m] += self.slope(g[:, i : i + 1, k : k + 1], pixel, result)[:, 0, 0]
        return y, dx


PAIRS = [
    Pair(mps.MPSCNNNeuron, mps.MPSCNNNeuronGradient, Neuron("sigmoid"), SIGMOID),
    Pair(mps.MPSCNNSoftMax, mps.MPSCNNSoftMaxGradient, SoftMax(), validate=True),
    Pair(mps.MPSCNNLogSoftMax, mps.MPSCNNLogSoftMaxGradient, LogSoftMax(), validate=True),
]
every_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.kind.__name__)


@pytest.mark.parametrize("edge_mode", ["zero", "clamp"])
@pytest.mark.parametrize("offset", [(0, 0), (1, 0), (0, -2), (-1, 3), (9, -9)], ids=str)
@pytest.mark.parametrize("size", [(3, 4), (2, 6), (5, 2)], ids=str)
@every_pair
def test_offsets_and_edge_modes(pair: Pair, size: tuple[int, int], offset: tuple[int, int], edge_mode: str) -> None:
    rng = np.random.default_rng(3)
    x, g = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((2, *size, 5))
    forward = pair.forward(offset=offset, edge_mode=edge_mode)
    y, state = forward.encode(x, destination_size=size, return_state=True)
    expected_y, expected_dx = pair.brute_force(x, g, offset[::-1], edge_mode == "clamp")
    np.testing.assert_allclose(y, expected_y, rtol=1e-13)
    gradient, source = pair.gradient(), y if pair._reads_result else x
    np.testing.assert_allclose(gradient.encode(g, source, state), expected_dx, rtol=1e-11, atol=1e-14)
    if any(offset) or size == x.shape[1:3]:  # by hand: what the state has set, into a given destination
        given = np.full(x.shape, 7.0)
        np.testing.assert_allclose(gradient.encode(g, source, None, given), expected_dx, rtol=1e-11, atol=1e-14)
    if not pair._reads_result:  # a part of it
        gradient.clip_rect = (1, 1, 0), (3, 2, 2)
        part = gradient.encode(g, source, state)
        np.testing.assert_allclose(part[:, 1:3, 1:4], expected_dx[:, 1:3, 1:4], rtol=1e-12, atol=1e-15)
        part[:, 1:3, 1:4] = 0
        assert not part.any()


@every_pair
def test_a_forward_clip_and_channels(pair: Pair) -> None:
    """The result is read where it was written, the gradient written where the source was read; the rest is 0."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((3, 4, 5, 8))
    kernel = pair.forward(clip_rect=((1, 2, 1), (2, 9, 1)), offset=(2, 0, 2))
    kernel.source_feature_channel_offset, kernel.destination_feature_channel_offset = 4, 8
    y, state = kernel.encode(x, destination_size=(4, 5), return_state=True)
    assert y.shape == (2, 4, 5, 12)
    part, read = y[1:2, 2:, 1:3, 8:], x[2:, :2, 2:4, 4:]
    np.testing.assert_array_equal(part, pair.function.forward(read))
    g = rng.standard_normal(y.shape)
    dx = pair.gradient().encode(g, y if pair._reads_result else x, state)
    expected = np.zeros_like(x)
    expected[2:, :2, 2:4, 4:] = pair.slope(g[1:2, 2:, 1:3, 8:], read, part)
    np.testing.assert_allclose(dx, expected, rtol=1e-13)


@every_pair
def test_images_that_do_not_fit(pair: Pair) -> None:
    x = np.ones((2, 3, 4, 3), np.float32)
    for other in (x[:, 1:], x[:, :, 1:]):
        with pytest.raises(ShapeError, match="they must be equal unless an offset"):
            pair.unchecked().encode(other, x)
        with pytest.raises(ShapeError, match="they must be equal unless an offset"):
            pair.unchecked().encode(x, x, None, np.zeros_like(other))
    with pytest.raises(ShapeError, match="3 channels are read of source_gradient and 2 of source_image"):
        pair.unchecked().encode(x, x[..., 1:])
