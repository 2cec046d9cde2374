"""The softmax classes: the result as secondary source, offsets and edge modes, validation, states, saving."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mpsref import LogSoftMax, ShapeError, SoftMax, mps
from mpsref.arguments.arrays import Array
from tests.mps.fakes import NAMES

PAIRS: list[tuple[Any, Any, Any]] = [
    (mps.MPSCNNSoftMax, mps.MPSCNNSoftMaxGradient, SoftMax()),
    (mps.MPSCNNLogSoftMax, mps.MPSCNNLogSoftMaxGradient, LogSoftMax()),
]
KINDS = [kind for pair in PAIRS for kind in pair[:2]]


@pytest.mark.parametrize(("forward", "gradient", "function"), PAIRS)
@pytest.mark.parametrize("backend", ["reference", "cpu", "metal:clang"])
def test_a_training_step(forward: Any, gradient: Any, function: Any, backend: str) -> None:
    rng = np.random.default_rng(1)
    x, g = rng.standard_normal((2, 2, 3, 4, 5)).astype(np.float32)
    y, state = forward(backend=backend).encode(x, return_state=True)
    np.testing.assert_array_equal(y, function.forward(x, backend=backend))
    expected = function.gradient(g, y, backend=backend)
    kernel = gradient(backend=backend, validate=True)
    for dx in (kernel.encode(g, y, state), kernel.encode(g, y), kernel.encode(g, y, None, np.zeros_like(x))):
        np.testing.assert_array_equal(dx, expected)


@pytest.mark.parametrize(("forward", "gradient", "function"), PAIRS)
def test_the_source_in_place_of_the_result(forward: Any, gradient: Any, function: Any) -> None:
    """Apple's other gradient kernels read the source; the mistake is silent unless it is looked for."""
    x = np.random.default_rng(2).standard_normal((2, 3, 2, 3))
    y, state = forward().encode(x, return_state=True)
    assert not np.allclose(gradient().encode(x, x, state), gradient().encode(x, y, state))
    with pytest.raises(
        ValueError, match=rf"sum to .* at pixel \(0, 0, 0\).* the result of {forward.__name__}, not its"
    ):
        gradient(validate=True).encode(x, x, state)
    y[1, 2, 1] = np.nan
    with pytest.raises(ValueError, match=r"at pixel \(1, 2, 1\)"):
        gradient(validate=True).encode(x, y, state)
    with pytest.raises(TypeError, match="validate is 1"):
        gradient(validate=1)


def brute_force(function: Any, x: Array, g: Array, o: tuple[int, int], clamp: bool) -> tuple[Array, Array]:
    """Forward and gradient, result by result, as compositions of a copy and softmax of one pixel."""
    n, height, width, c = x.shape
    y, dx = np.zeros(g.shape), np.zeros(x.shape)
    for i, k in itertools.product(range(g.shape[1]), range(g.shape[2])):
        j, m = i + o[0], k + o[1]
        if clamp:
            j, m = min(max(j, 0), height - 1), min(max(m, 0), width - 1)
        inside = 0 <= j < height and 0 <= m < width
        pixel = x[:, j, m] if inside else np.zeros((n, c))
        y[:, i : i + 1, k : k + 1] = function.forward(pixel[:, None, None])
        if inside:
            result = y[:, i : i + 1, k : k + 1]
            dx[:, j, m] += function.gradient(g[:, i : i + 1, k : k + 1], result)[:, 0, 0]
    return y, dx


@pytest.mark.parametrize("edge_mode", ["zero", "clamp"])
@pytest.mark.parametrize("offset", [(0, 0), (1, 0), (0, -2), (-1, 3), (9, -9)], ids=str)
@pytest.mark.parametrize("size", [(3, 4), (2, 6), (5, 2)], ids=str)
@pytest.mark.parametrize(("forward", "gradient", "function"), PAIRS)
def test_offsets_and_edge_modes(
    forward: Any, gradient: Any, function: Any, size: tuple[int, int], offset: tuple[int, int], edge_mode: str
) -> None:
    rng = np.random.default_rng(3)
    x, g = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((2, *size, 5))
    y, state = forward(offset=offset, edge_mode=edge_mode).encode(x, destination_size=size, return_state=True)
    expected_y, expected_dx = brute_force(function, x, g, offset[::-1], edge_mode == "clamp")
    np.testing.assert_allclose(y, expected_y, rtol=1e-13)
    kernel = gradient(validate=True)
    np.testing.assert_allclose(kernel.encode(g, y, state), expected_dx, rtol=1e-11, atol=1e-14)
    if any(offset) or size == x.shape[1:3]:
        given = np.full(x.shape, 7.0)
        np.testing.assert_allclose(kernel.encode(g, y, None, given), expected_dx, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize(("forward", "gradient", "function"), PAIRS)
def test_a_forward_clip_and_channels(forward: Any, gradient: Any, function: Any) -> None:
    """The result is read where it was written, the gradient written where the source was read."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((3, 4, 5, 8))
    kernel = forward(clip_rect=((1, 2, 1), (2, 9, 1)), offset=(2, 0, 2))
    kernel.source_feature_channel_offset, kernel.destination_feature_channel_offset = 4, 8
    y, state = kernel.encode(x, destination_size=(4, 5), return_state=True)
    assert y.shape == (2, 4, 5, 12)
    part = y[1:2, 2:, 1:3, 8:]
    np.testing.assert_array_equal(part, function.forward(x[2:, :2, 2:4, 4:]))
    g = rng.standard_normal(y.shape)
    dx = gradient(validate=True).encode(g, y, state)
    expected = np.zeros_like(x)
    expected[2:, :2, 2:4, 4:] = function.gradient(g[1:2, 2:, 1:3, 8:], part)
    np.testing.assert_allclose(dx, expected, rtol=1e-13)


@pytest.mark.parametrize(("forward", "gradient", "function"), PAIRS)
def test_images_that_do_not_fit(forward: Any, gradient: Any, function: Any) -> None:
    x = np.ones((2, 3, 4, 3), np.float32)
    y, state = forward().encode(x, destination_size=(3, 2), return_state=True)
    with pytest.raises(ShapeError, match=r"source_image .* it must be the result of the forward pass, \(2, 3, 2, 3\)"):
        gradient().encode(y, x, state)
    with pytest.raises(ShapeError, match="they must be equal where no offset"):
        gradient().encode(y, x)
    other = mps.MPSCNNLogSoftMax if forward is mps.MPSCNNSoftMax else mps.MPSCNNSoftMax
    _, wrong = other().encode(x, return_state=True)
    with pytest.raises(TypeError, match=f"gradient_state was left by {other.__name__}"):
        gradient().encode(x, x, wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_print_copy_and_save(kind: Any) -> None:
    kernel = kind(clip_rect=((1, 2, 3), (4, 5, 6)))
    if "Gradient" in kind.__name__:
        kernel.validate = True
    assert kernel != kind()
    for twin in (eval(repr(kernel), NAMES), kernel.copy(), kind.from_json(kernel.to_json())):
        assert type(twin) is kind
        assert twin == kernel
        assert twin.to_json() == kernel.to_json()
    with pytest.raises(TypeError):
        kind(1)
    with pytest.raises(TypeError, match="beta is no property"):
        kind(beta=1)
