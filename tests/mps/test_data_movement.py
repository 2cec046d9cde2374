"""Slice, reshape and pad with Apple's names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import Pad, Reshape, Slice, mps
from mpsref.arguments.arrays import Array

F32 = np.float32
X = np.arange(1, 61, dtype=F32).reshape(1, 3, 4, 5)


def random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(F32)


def test_slice() -> None:
    part = mps.MPSNNSlice(1, 2, 3, height=2, feature_channels=1)
    np.testing.assert_array_equal(part.encode(X), X[:, 1:3, 2:, 3:4])
    part.offset_y, part.height = -1, None
    np.testing.assert_array_equal(part.encode(X), Slice((-1, 2, 3), (None, None, 1)).forward(X))
    target = np.empty((1, 4, 2, 1), F32)
    assert part.encode(X, target) is target


def test_reshape() -> None:
    size = {"reshaped_width": 2, "reshaped_height": 5, "reshaped_feature_channels": 6}
    for order in ("HWC", "CHW"):
        reshape = mps.MPSNNReshape(element_order=order)
        y, state = reshape.encode(X, **size, return_state=True)
        np.testing.assert_array_equal(y, Reshape((5, 2, 6), order).forward(X))
        gradient = mps.MPSNNReshapeGradient()
        np.testing.assert_array_equal(gradient.encode(y, np.zeros_like(X), state), X)
        assert gradient.element_order == order
        np.testing.assert_array_equal(gradient.encode(y, X), X)
    assert reshape == mps.MPSNNReshape(element_order="CHW")  # no size stays behind


PADS: dict[str, dict[str, Any]] = {
    "zero": {},
    "clamp": {"edge_mode": "clamp"},
    "mirror": {"edge_mode": mps.MPSImageEdgeMode.Mirror},
    "mirrorwithedge": {"edge_mode": 3},
    "constant": {"edge_mode": "constant", "fill_value": 2.5},
}


@pytest.mark.parametrize("name", PADS)
def test_pad(name: Any) -> None:
    before, after = (2, 1, 0), (1, 3, 2)  # x, y, channel
    pad = mps.MPSNNPad(before, after, **PADS[name])
    spec = Pad((1, 2, 0), (3, 1, 2), name, fill_value=2.5)
    y, state = pad.encode(X, return_state=True)
    assert y.shape == (1, 7, 7, 7)
    np.testing.assert_array_equal(y, spec.forward(X))
    g = np.random.default_rng(0).integers(-9, 9, y.shape).astype(F32)
    gradient = mps.MPSNNPadGradient()
    np.testing.assert_array_equal(gradient.encode(g, X, state), spec.gradient(g, X))
    assert gradient.padding_size_before == mps.MPSImageCoordinate(2, 1, 0)
    assert gradient.secondary_edge_mode is pad.edge_mode
    again = mps.MPSNNPadGradient(before, after, secondary_edge_mode=pad.edge_mode)
    np.testing.assert_array_equal(again.encode(g, X), spec.gradient(g, X))


def test_a_fill_value_for_each_channel() -> None:
    pad = mps.MPSNNPad((1, 0, 0), (0, 0, 0), fill_value_array=[1, 2, 3, 4, 5, 6], edge_mode="constant")
    assert pad.encode(X)[0, 0, 0].tolist() == [1, 2, 3, 4, 5]
    pad.fill_value_array = np.arange(5)
    assert pad.encode(X)[0, 0, 0].tolist() == [0, 1, 2, 3, 4]
