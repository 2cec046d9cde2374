"""Spatial, local contrast and cross-channel normalization classes: properties, states, geometry, archives, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import mps
from mpsref.arguments.arrays import Array

SPATIAL = mps.MPSCNNSpatialNormalization, mps.MPSCNNSpatialNormalizationGradient
CONTRAST = mps.MPSCNNLocalContrastNormalization, mps.MPSCNNLocalContrastNormalizationGradient
CHANNELS = mps.MPSCNNCrossChannelNormalization, mps.MPSCNNCrossChannelNormalizationGradient
WINDOWED: list[Any] = [SPATIAL, CONTRAST]
PAIRS: list[Any] = [*WINDOWED, CHANNELS]
WORDS = {"alpha": 2.0, "beta": 0.75, "delta": 0.5}


def noise(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng((seed, *shape)).uniform(-2, 2, shape).astype(dtype)


def made(kind: Any, size: int = 3, **properties: Any) -> Any:
    return kind(size, **properties) if kind in CHANNELS else kind(size, size, **properties)


def function(kind: Any, size: int = 3, offset: tuple[int, int] = (0, 0), **parameters: Any) -> Any:
    """The functional form of a class."""
    if kind in CHANNELS:
        return mpsref.CrossChannelNormalization(size, **parameters)
    spec: Any = mpsref.SpatialNormalization if kind in SPATIAL else mpsref.LocalContrastNormalization
    return spec(size, offset=offset, **parameters)


# --- properties -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*SPATIAL, *CHANNELS], ids=lambda kind: kind.__name__)
def test_defaults_of_the_quotients(kind: Any) -> None:
    kernel = made(kind)
    assert (kernel.alpha, kernel.beta, kernel.delta) == (1.0, 5.0, 1.0)


@pytest.mark.parametrize("kind", CONTRAST, ids=lambda kind: kind.__name__)
def test_defaults_of_local_contrast(kind: Any) -> None:
    kernel = kind(3, 3)
    values = kernel.alpha, kernel.beta, kernel.delta, kernel.p0, kernel.pm, kernel.ps
    assert values == (0.0, 0.5, 1 / 1024, 1.0, 0.0, 1.0)
    kernel.alpha = -3.0  # no sign rule is documented
    assert kernel.alpha == -3.0


# --- forward and gradient ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_the_functional_form_computes(pair: Any, size: int) -> None:
    x, g = noise(2, 5, 6, 4), noise(2, 5, 6, 4, seed=1)
    forward, gradient = (made(kind, size, **WORDS) for kind in pair)
    spec = function(pair[0], size, **WORDS)
    y, state = forward.encode(x, return_state=True)
    np.testing.assert_array_equal(y, spec.forward(x))
    np.testing.assert_array_equal(gradient.encode(g, x, state), spec.gradient(g, x))
    images = mps.MPSImage(x), mps.MPSImage(g)
    result, state = forward.encode(images[0], return_state=True)
    assert isinstance(result, mps.MPSImage)
    np.testing.assert_array_equal(gradient.encode(images[1], images[0], state).array, spec.gradient(g, x))


@pytest.mark.parametrize("pair", WINDOWED, ids=lambda pair: pair[0].__name__)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("offset", [(0, 0), (1, -1), (2, 1)])
def test_an_offset_is_taken_from_the_state(pair: Any, size: int, offset: tuple[int, int]) -> None:
    x = noise(1, 6, 7, 2)
    forward, gradient = (made(kind, size, **WORDS) for kind in pair)
    forward.offset = offset
    y, state = forward.encode(x, destination_size=(4, 5), return_state=True)
    spec = function(pair[0], size, offset[::-1], **WORDS)
    np.testing.assert_array_equal(y, spec.forward(x, (4, 5)))
    g = noise(1, 4, 5, 2, seed=1)
    np.testing.assert_array_equal(gradient.encode(g, x, state), spec.gradient(g, x))
    assert gradient.secondary_offset[:2] == offset


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__)
def test_a_clip_rectangle_and_channels(pair: Any) -> None:
    """Parts of images, forward and back: pixels that the forward pass did not read get 0."""
    x = noise(2, 6, 7, 12)
    forward, gradient = (made(kind, 3, **WORDS) for kind in pair)
    forward.clip_rect = (1, 2, 1), (4, 3, 1)
    forward.offset = (1, 1, 1)
    forward.source_feature_channel_offset, forward.source_feature_channel_max_count = 4, 5
    destination = np.full((2, 6, 6, 8), 9, np.float32)
    _, state = forward.encode(x, destination, return_state=True)
    spec = function(pair[0], 3, (1, 1), **WORDS)
    part = spec.forward(x[1:, 1:4, 1:5, 4:9]) if pair is CHANNELS else spec.forward(x[1:, :, :, 4:9], (3, 4))
    np.testing.assert_array_equal(destination[1, 2:5, 1:5, :5], part[0])
    destination[1, 2:5, 1:5, :5] = 9
    assert (destination == 9).all()
    g = noise(2, 6, 6, 8, seed=1)
    dx = gradient.encode(g, x, state)
    used = np.ascontiguousarray(g[1:, 2:5, 1:5, :5])
    due = np.zeros_like(x)
    if pair is CHANNELS:
        due[1:, 1:4, 1:5, 4:9] = spec.gradient(used, np.ascontiguousarray(x[1:, 1:4, 1:5, 4:9]))
    else:
        due[1:, :, :, 4:9] = spec.gradient(used, np.ascontiguousarray(x[1:, :, :, 4:9]))
    np.testing.assert_allclose(dx, due, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__)
@pytest.mark.parametrize("size", [2, 3])
def test_a_given_destination_uses_the_properties_as_they_are(pair: Any, size: int) -> None:
    """J(q) = q + kernel_offset + offset - ev: with a kernel offset of ev - offset, pixels lie on pixels."""
    x, g = noise(1, 5, 6, 2), noise(1, 5, 6, 2, seed=1)
    gradient = made(pair[1], size, **WORDS)
    even = 0 if pair is CHANNELS else 1 - size % 2
    full = function(pair[0], size, **WORDS).gradient(g, x)
    destination = np.full_like(x, 7)
    gradient.kernel_offset_x = gradient.kernel_offset_y = even
    assert gradient.encode(g, x, None, destination) is destination
    np.testing.assert_allclose(destination, full, rtol=1e-6, atol=1e-7)
    gradient.kernel_offset_x = even + 2
    gradient.encode(g, x, None, destination)
    np.testing.assert_allclose(destination[:, :, :-2], full[:, :, 2:], rtol=1e-6, atol=1e-7)
    assert not destination[:, :, -2:].any()


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__)
def test_a_primary_offset_moves_the_gradient_pixels(pair: Any) -> None:
    x, g = noise(1, 5, 6, 2), noise(1, 5, 6, 2, seed=1)
    gradient = made(pair[1], 3, **WORDS)
    gradient.primary_offset = (1, 2)
    destination = np.zeros_like(x)
    gradient.encode(g, x, None, destination)
    if pair is CHANNELS:
        moved = np.zeros_like(g)
        moved[:, :3, :5] = g[:, 2:, 1:]
        due = function(pair[0], 3, **WORDS).gradient(moved, x)
    else:
        due = function(pair[0], 3, (-2, -1), **WORDS).gradient(g, x)
    np.testing.assert_allclose(destination, due, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__)
def test_without_state_and_destination_the_padding_policy_decides(pair: Any) -> None:
    x, g = noise(1, 5, 6, 2), noise(1, 5, 6, 2, seed=1)
    due = function(pair[0], 3, **WORDS).gradient(g, x)
    np.testing.assert_allclose(made(pair[1], 3, **WORDS).encode(g, x), due, rtol=1e-6, atol=1e-7)


def test_the_channel_window_ignores_the_edge_mode() -> None:
    x, g = noise(1, 3, 3, 4), noise(1, 3, 3, 4, seed=1)
    results = []
    for edge_mode in ("zero", "clamp"):
        norm = mps.MPSCNNCrossChannelNormalization(3, edge_mode=edge_mode, offset=(-1, 0))
        y, state = norm.encode(x, destination_size=(3, 3), return_state=True)
        assert not y[:, :, 0].any()
        results.append((y, mps.MPSCNNCrossChannelNormalizationGradient(3).encode(g, x, state)))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
    due = mpsref.CrossChannelNormalization(3).gradient(
        np.ascontiguousarray(g[:, :, 1:]), np.ascontiguousarray(x[:, :, :2])
    )
    np.testing.assert_allclose(results[0][1][:, :, :2], due, rtol=1e-6, atol=1e-7)
    assert not results[0][1][:, :, 2].any()


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", WINDOWED, ids=lambda pair: pair[0].__name__)
def test_another_edge_mode_is_refused_when_it_is_used(pair: Any) -> None:
    x = noise(1, 4, 4, 1)
    forward, gradient = (made(kind) for kind in pair)
    _, state = forward.encode(x, return_state=True)
    forward.edge_mode = "clamp"
    before = forward.copy()
    with pytest.raises(ValueError, match=r"edge_mode is MPSImageEdgeMode.Clamp"):
        forward.encode(x)
    tensorflow = mps.MPSNNDefaultPadding.padding_for_tensorflow_average_pooling()
    with pytest.raises(ValueError, match=r"edge_mode is MPSImageEdgeMode.Clamp"):
        made(pair[0], padding=tensorflow).encode(x)
    assert forward == before
    gradient.secondary_edge_mode = "clamp"
    destination = np.zeros_like(x)
    with pytest.raises(ValueError, match=r"secondary_edge_mode is MPSImageEdgeMode.Clamp"):
        gradient.encode(x.copy(), x, None, destination)
    assert not destination.any()
    assert gradient.encode(x.copy(), x, state).any()  # the state sets it again


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__)
def test_a_state_with_other_parameters_is_refused(pair: Any) -> None:
    x = noise(1, 4, 4, 2)
    _, state = made(pair[0], **WORDS).encode(x, return_state=True)
    for name in ("alpha", "beta", "delta", *(("p0", "pm", "ps") if pair is CONTRAST else ())):
        gradient = made(pair[1], **WORDS)
        setattr(gradient, name, 0.125)
        before = gradient.copy()
        with pytest.raises(ValueError, match=rf"{name} is 0.125; that of the forward kernel in gradient_state is"):
            gradient.encode(x.copy(), x, state)
        assert gradient == before
    with pytest.raises(ValueError, match=r"kernel size|kernel_size"):
        made(pair[1], 5, **WORDS).encode(x.copy(), x, state)


@pytest.mark.parametrize("name", ["MPSCNNSpatialNormalizationNode", "MPSCNNLocalContrastNormalizationNode"])
@pytest.mark.parametrize("method", [mps.MPSNNPaddingMethod.SizeValidOnly, mps.MPSNNPaddingMethod.SizeFull])
def test_the_gradient_node_has_the_size_that_the_padding_policy_gives(name: str, method: Any) -> None:
    x, g = mps.graph.MPSNNImageNode("x"), mps.graph.MPSNNImageNode("g")
    node = getattr(mps.graph, name)(x, 3, padding_policy=mps.MPSNNDefaultPadding.padding_with_method(method))
    image = np.random.default_rng(0).standard_normal((1, 3, 3, 1))
    forward = mps.graph.MPSNNGraph(node.result_image, format="float64")
    back = mps.graph.MPSNNGraph(node.gradient_filter_with_source(g).result_image, format="float64")
    dx = back.run({"x": image, "g": np.ones_like(forward.run([image]).image)}).image
    for index in np.ndindex(image.shape):
        step = np.zeros_like(image)
        step[index] = 1e-6
        difference = (forward.run([image + step]).image - forward.run([image - step]).image).sum() / 2e-6
        np.testing.assert_allclose(dx[index], difference, rtol=1e-5, atol=1e-8)
