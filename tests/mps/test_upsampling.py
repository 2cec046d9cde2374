"""The upsampling classes and bilinear resize: sizes, states, the adjoint, what is not supported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import ShapeError, UpsamplingBilinear, UpsamplingNearest, mps
from mpsref.arguments.arrays import Array

F32 = np.float32
NEAREST = mps.MPSCNNUpsamplingNearest(3, 2), mps.MPSCNNUpsamplingNearestGradient(3, 2)
LINEAR = mps.MPSCNNUpsamplingBilinear(3, 2), mps.MPSCNNUpsamplingBilinearGradient(3, 2)
ALIGNED = mps.MPSCNNUpsamplingBilinear(3, 2, True), mps.MPSCNNUpsamplingBilinearGradient(3, 2, align_corners=True)
CLAMPED = mps.MPSCNNUpsamplingBilinear(3, 2, edge_mode="clamp"), mps.MPSCNNUpsamplingBilinearGradient(3, 2)
FORMS: dict[str, tuple[Any, Any, Any]] = {
    "nearest": (*NEAREST, UpsamplingNearest((2, 3))),
    "bilinear": (*LINEAR, UpsamplingBilinear((2, 3))),
    "aligned": (*ALIGNED, UpsamplingBilinear((2, 3), True)),
    "clamped": (*CLAMPED, UpsamplingBilinear((2, 3), edge_mode="clamp")),
}


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


@pytest.mark.parametrize("name", FORMS)
def test_the_functional_form(name: str) -> None:
    forward, gradient, spec = FORMS[name]
    forward, gradient = forward.copy(), gradient.copy()
    x = random(2, 4, 5, 3)
    y, state = forward.encode(x, return_state=True)
    assert y.shape == (2, 8, 15, 3)
    np.testing.assert_array_equal(y, spec.forward(x))
    g = random(*y.shape, seed=1)
    dx = gradient.encode(g, np.zeros_like(x), state)
    np.testing.assert_array_equal(dx, spec.gradient(g, x.shape))
    target = np.empty_like(x)
    assert gradient.encode(g, x, None, target) is target
    np.testing.assert_array_equal(target, dx)


def test_a_state_sets_the_edge_mode_of_the_gradient() -> None:
    forward, gradient = (kernel.copy() for kernel in CLAMPED)
    x = random(1, 2, 2, 1)
    _, state = forward.encode(x, return_state=True)
    ones = np.ones((1, 4, 6, 1), F32)
    alone = gradient.encode(ones, x)
    assert gradient.secondary_edge_mode is mps.MPSImageEdgeMode.Zero
    assert gradient.encode(ones, x, state).sum() == 24
    assert gradient.secondary_edge_mode is mps.MPSImageEdgeMode.Clamp
    assert alone.sum() < 24


def test_properties() -> None:
    kernel = mps.MPSCNNUpsamplingBilinear(3, 2, True)
    assert (kernel.scale_factor_x, kernel.scale_factor_y, kernel.align_corners) == (3.0, 2.0, True)
    assert isinstance(kernel.scale_factor_x, float)
    assert mps.MPSCNNUpsamplingNearest(3, 2).align_corners is False
    for name in ("scale_factor_x", "align_corners", "integer_scale_factor_y"):
        with pytest.raises(mps.PropertyError, match="read-only"):
            setattr(kernel, name, 1)


def test_resize() -> None:
    x = np.array([[3, 4], [6, 10]], F32).reshape(1, 2, 2, 1)
    resize = mps.MPSNNResizeBilinear(3, 3)
    expected = [[3, 11 / 3, 4], [5, 7, 8], [6, 26 / 3, 10]]
    np.testing.assert_allclose(resize.encode(x)[0, :, :, 0], expected, rtol=1e-6)
    assert mps.MPSNNResizeBilinear(resize_width=4, resize_height=1).encode(x).shape == (1, 1, 4, 1)


def test_shapes_and_states_that_do_not_fit() -> None:
    x = random(1, 4, 4, 1)
    up = mps.MPSCNNUpsamplingNearest(2, 2)
    y, state = up.encode(x, return_state=True)
    with pytest.raises(ShapeError, match="has room for"):
        up.encode(x, np.empty((1, 8, 7, 1), F32))
    with pytest.raises(ValueError, match=r"gradient_state was left by UpsamplingNearest\(scale=\(2, 2\)\)"):
        mps.MPSCNNUpsamplingNearestGradient(4, 2).encode(y, x, state)


def test_a_source_gradient_of_another_size_is_named() -> None:
    gradient, x = mps.MPSCNNUpsamplingNearestGradient(2, 2), np.zeros((1, 2, 2, 1), np.float32)
    for state in (None, mps.MPSCNNUpsamplingNearest(2, 2).encode(x, return_state=True)[1]):
        with pytest.raises(ShapeError, match=r"source_gradient has shape \(1, 4, 3, 1\); the result .* \(1, 4, 4, 1\)"):
            gradient.encode(np.ones((1, 4, 3, 1), np.float32), x, state)
