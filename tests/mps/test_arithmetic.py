"""The arithmetic classes: properties, states and masks, gradients that are derivatives, what is not supported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import Arithmetic, ShapeError, mps
from mpsref.arguments.arrays import Array
from mpsref.mps import graph

F32 = np.float32
GRADIENTS: dict[Any, Any] = {
    mps.MPSCNNAdd: mps.MPSCNNAddGradient,
    mps.MPSCNNSubtract: mps.MPSCNNSubtractGradient,
    mps.MPSCNNMultiply: mps.MPSCNNMultiplyGradient,
}
NAMES: dict[Any, Any] = {mps.MPSCNNAdd: "add", mps.MPSCNNSubtract: "subtract", mps.MPSCNNMultiply: "multiply"}
SCALES: dict[str, Any] = {"primary_scale": 2.0, "secondary_scale": -0.5, "bias": 0.25}
PER_CHANNEL: dict[str, Any] = {"secondary_stride_in_pixels_x": 0, "secondary_stride_in_pixels_y": 0}
PER_PIXEL: dict[str, Any] = {"secondary_stride_in_feature_channels": 0}
CLAMP: dict[str, Any] = {"minimum_value": -1.0, "maximum_value": 1.5}


def random(*shape: int, dtype: Any = F32, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def gradients(forward: Any, x: Array, y: Array, g: Array, state: Any) -> list[Array]:
    kind = GRADIENTS[type(forward)]
    multiply = kind is mps.MPSCNNMultiplyGradient
    return [
        kind.from_forward(forward, False).encode(g, y if multiply else x, state),
        kind.from_forward(forward, True).encode(g, x if multiply else y, state),
    ]


@pytest.mark.parametrize("clamp", [{}, CLAMP], ids=["", "clamped"])
@pytest.mark.parametrize("strides", [{}, PER_CHANNEL, PER_PIXEL], ids=["", "channels", "pixels"])
@pytest.mark.parametrize("kind", NAMES)
def test_gradients_are_those_of_the_functional_form(kind: Any, strides: Any, clamp: Any) -> None:
    x, g = random(2, 4, 3, 5), random(2, 4, 3, 5, seed=1)
    offset = {"secondary_offset": (2, 1), "secondary_source_feature_channel_offset": 3} if strides else {}
    shape = {(): (4, 3, 5), tuple(PER_CHANNEL): (2, 3, 8), tuple(PER_PIXEL): (5, 5, 4)}[tuple(strides)]
    y = random(2, *shape, seed=2)
    forward = kind(**SCALES, **strides, **offset, **clamp)
    r, state = forward.encode(x, y, return_state=True)
    assert (state.mask is None) == (not clamp)
    spec = forward._function()
    assert isinstance(spec, Arithmetic)
    np.testing.assert_allclose(r, spec.forward(x, y), rtol=1e-5, atol=1e-5)
    for mine, right in zip(gradients(forward, x, y, g, state), spec.gradient(g, x, y), strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-5, atol=1e-5)


def test_the_state_sets_the_strides_of_the_source_image() -> None:
    x, y = random(1, 4, 3, 5), random(1, 1, 1, 5)
    _, state = mps.MPSCNNAdd(**PER_CHANNEL).encode(x, y, return_state=True)
    gradient = mps.MPSCNNAddGradient(True)
    assert gradient.encode(x, y, state).shape == y.shape
    assert (gradient.secondary_stride_in_pixels_x, gradient.secondary_stride_in_feature_channels) == (0, 1)


def test_without_a_state_the_strides_are_those_that_are_set() -> None:
    g, y = random(1, 4, 3, 5), random(1, 1, 1, 5)
    np.testing.assert_allclose(
        mps.MPSCNNAddGradient(True, **PER_CHANNEL).encode(g, y), g.sum((1, 2), keepdims=True), rtol=1e-5
    )
    np.testing.assert_allclose(mps.MPSCNNMultiplyGradient(False, **PER_CHANNEL).encode(g, y), g * y)
    with pytest.raises(ShapeError, match="axis H"):
        mps.MPSCNNMultiplyGradient(False).encode(g, y)


def test_scales_of_the_gradient() -> None:
    """The header has the caller negate; the default of our secondary subtraction filter does."""
    assert [mps.MPSCNNSubtractGradient(secondary).primary_scale for secondary in (False, True)] == [1, -1]
    assert mps.MPSCNNSubtractGradient(True, primary_scale=3).primary_scale == 3
    subtract = mps.MPSCNNSubtract(primary_scale=2, secondary_scale=5)
    both = [mps.MPSCNNSubtractGradient.from_forward(subtract, secondary).primary_scale for secondary in (False, True)]
    assert both == [2, -5]
    multiply = mps.MPSCNNMultiplyGradient.from_forward(mps.MPSCNNMultiply(primary_scale=2, secondary_scale=5), True)
    assert (multiply.primary_scale, multiply.secondary_scale) == (2, 5)


def test_bias_and_clamp_of_the_gradient_come_last() -> None:
    g, x = np.array([1, 2, 3, 4], F32).reshape(1, 1, 4, 1), np.zeros((1, 1, 1, 1), F32)
    gradient = mps.MPSCNNAddGradient(secondary_stride_in_pixels_x=0, primary_scale=0.5, bias=2.0)
    assert gradient.encode(g, x).item() == 7
    gradient.maximum_value = 6.5
    assert gradient.encode(g, x).item() == 6.5


def test_a_mask_in_float16_is_decided_in_float32() -> None:
    """2048 + 1 is no float16: stored, the result is the bound 2048, but it was above."""
    x, y = (np.array([n], np.float16).reshape(1, 1, 1, 1) for n in (2048, 1))
    _, state = mps.MPSCNNAdd(maximum_value=2048.5).encode(x, y, return_state=True)
    assert state.mask.item() == 0
    _, state = mps.MPSCNNAdd(maximum_value=2049.5).encode(x, y, return_state=True)
    assert state.mask.item() == 1


def test_states_are_equal_as_their_masks_are() -> None:
    x = random(1, 2, 2, 3)
    add = mps.MPSCNNAdd(**CLAMP)
    states = [add.encode(x, y, return_state=True)[1] for y in (x, x, x + 1)]
    assert states[0] == states[1]
    assert states[0] != states[2]
    with pytest.raises(ValueError, match="read-only"):
        states[0].mask[...] = 0


def test_compare() -> None:
    x, y = np.array([1, 2, 3], F32).reshape(1, 1, 3, 1), np.full((1, 1, 1, 1), 2, F32)
    compare = mps.MPSNNCompare(secondary_stride_in_pixels_x=0)
    assert compare.comparison_type is mps.MPSNNComparisonType.Equal
    assert compare.encode(x, y).ravel().tolist() == [0, 1, 0]
    compare.threshold = 1
    assert compare.encode(x, y).ravel().tolist() == [1, 1, 1]
    for kind in (mps.MPSNNComparisonType.LessOrEqual, 3, "lessorequal"):
        compare.comparison_type = kind
        assert compare.encode(x, y).ravel().tolist() == [1, 1, 0]


def test_a_graph_has_the_gradients_of_a_product_whose_operands_differ_in_size() -> None:
    x, y = random(1, 3, 4, 2), random(1, 1, 1, 2)
    a, b = graph.MPSNNImageNode("a"), graph.MPSNNImageNode("b")
    node = graph.MPSNNMultiplicationNode(a, b, secondary_stride_in_pixels_x=0, secondary_stride_in_pixels_y=0)
    made = graph.training_graph(graph.MPSNNInitialGradientNode(node.result_image))
    run = graph.MPSNNGraph([made.gradient_image(a), made.gradient_image(b)]).run({"a": x, "b": y})
    np.testing.assert_allclose(run.images[0], np.broadcast_to(y, x.shape), rtol=1e-6)
    np.testing.assert_allclose(run.images[1], x.sum((1, 2), keepdims=True), rtol=1e-5)
