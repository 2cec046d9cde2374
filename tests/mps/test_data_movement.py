"""Slice, reshape and pad with Apple's names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import Pad, Reshape, ShapeError, Slice, UnsupportedError
from mpsref.arguments.arrays import Array
from mpsref.mps import (
    MPSCommandBuffer,
    MPSImageCoordinate,
    MPSImageEdgeMode,
    MPSNNPad,
    MPSNNPadGradient,
    MPSNNReshape,
    MPSNNReshapeGradient,
    MPSNNSlice,
)

F32 = np.float32
X = np.arange(1, 61, dtype=F32).reshape(1, 3, 4, 5)


def random(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(F32)


def test_slice(backend: str) -> None:
    part = MPSNNSlice(1, 2, 3, height=2, feature_channels=1, backend=backend)
    np.testing.assert_array_equal(part.encode(X), X[:, 1:3, 2:, 3:4])
    part.offset_y, part.height = -1, None
    np.testing.assert_array_equal(part.encode(X), Slice((-1, 2, 3), (None, None, 1)).forward(X))
    target = np.empty((1, 4, 2, 1), F32)
    assert part.encode(X, target) is target


def test_reshape(backend: str) -> None:
    size = {"reshaped_width": 2, "reshaped_height": 5, "reshaped_feature_channels": 6}
    for order in ("HWC", "CHW"):
        reshape = MPSNNReshape(element_order=order, backend=backend)
        y, state = reshape.encode(X, **size, return_state=True)
        np.testing.assert_array_equal(y, Reshape((5, 2, 6), order).forward(X))
        gradient = MPSNNReshapeGradient(backend=backend)
        np.testing.assert_array_equal(gradient.encode(y, np.zeros_like(X), state), X)
        assert gradient.element_order == order
        np.testing.assert_array_equal(gradient.encode(y, X), X)
    assert reshape == MPSNNReshape(element_order="CHW", backend=backend)  # no size stays behind


PADS: dict[str, dict[str, Any]] = {
    "zero": {},
    "clamp": {"edge_mode": "clamp"},
    "mirror": {"edge_mode": MPSImageEdgeMode.Mirror},
    "mirrorwithedge": {"edge_mode": 3},
    "constant": {"edge_mode": "constant", "fill_value": 2.5},
}


@pytest.mark.parametrize("name", PADS)
def test_pad(name: Any, backend: str) -> None:
    before, after = (2, 1, 0), (1, 3, 2)  # x, y, channel
    pad = MPSNNPad(before, after, **PADS[name], backend=backend)
    spec = Pad((1, 2, 0), (3, 1, 2), name, fill_value=2.5)
    y, state = pad.encode(X, return_state=True)
    assert y.shape == (1, 7, 7, 7)
    np.testing.assert_array_equal(y, spec.forward(X))
    g = np.random.default_rng(0).integers(-9, 9, y.shape).astype(F32)
    gradient = MPSNNPadGradient(backend=backend)
    np.testing.assert_array_equal(gradient.encode(g, X, state), spec.gradient(g, X))
    assert gradient.padding_size_before == MPSImageCoordinate(2, 1, 0)
    assert gradient.secondary_edge_mode is pad.edge_mode
    again = MPSNNPadGradient(before, after, secondary_edge_mode=pad.edge_mode, backend=backend)
    np.testing.assert_array_equal(again.encode(g, X), spec.gradient(g, X))


def test_a_fill_value_for_each_channel() -> None:
    pad = MPSNNPad((1, 0, 0), (0, 0, 0), fill_value_array=[1, 2, 3, 4, 5, 6], edge_mode="constant")
    assert pad.encode(X)[0, 0, 0].tolist() == [1, 2, 3, 4, 5]
    pad.fill_value_array = np.arange(5)
    assert pad.encode(X)[0, 0, 0].tolist() == [0, 1, 2, 3, 4]


def bad(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_bad_arguments() -> None:
    bad(lambda: MPSNNSlice(0, 0, -1), ValueError, "feature_channel_offset is -1")
    bad(lambda: MPSNNSlice(height=0), ValueError, "height is 0")
    bad(lambda: MPSNNSlice(0.5), TypeError, "offset_y is 0.5")  # type: ignore[arg-type]
    bad(lambda: MPSNNReshape(element_order="C"), ValueError, "element_order is 'C'")
    bad(lambda: MPSNNPad((1, -2, 0)), ValueError, "padding_size_before.y is -2")
    bad(lambda: MPSNNPad((1, 2)), ValueError, "of length 2")  # type: ignore[arg-type]
    bad(lambda: MPSNNPad(1), TypeError, "it must be .x, y, channel.")  # type: ignore[arg-type]
    bad(lambda: MPSNNPad(edge_mode="wrap"), ValueError, "edge_mode is 'wrap'")
    bad(lambda: MPSNNPad(fill_value=np.nan), ValueError, "fill_value is nan")
    bad(lambda: MPSNNPad(fill_value_array="1"), TypeError, "fill_values is '1'")


def test_bad_calls() -> None:
    size = {"reshaped_width": 2, "reshaped_height": 5, "reshaped_feature_channels": 6}
    bad(lambda: MPSNNReshape().encode(X, **(size | {"reshaped_width": 3})), ShapeError, "has 60 elements")
    bad(lambda: MPSNNReshape().encode(X, **(size | {"reshaped_width": 2.0})), TypeError, "reshaped_width is 2.0")
    bad(lambda: MPSNNReshapeGradient().encode(X, random(1, 3, 4, 4)), ShapeError, "has 48 elements")
    bad(lambda: MPSNNSlice(offset_y=3).encode(X), ShapeError, "axis H")
    bad(lambda: MPSNNSlice(feature_channel_offset=4, feature_channels=2).encode(X), ShapeError, "axis C")
    bad(
        lambda: MPSNNSlice(source_feature_channel_offset=4).encode(X), UnsupportedError, "source_feature_channel_offset"
    )
    bad(lambda: MPSNNPad((1, 0, 0), clip_rect=((0, 0, 0), (1, 1, 1))).encode(X), UnsupportedError, "clip_rect")
    pad = MPSNNPad((0, 0, 1), fill_value_array=(1, 2), edge_mode="constant")
    bad(lambda: pad.encode(X), ShapeError, "fill_values has 2 numbers; the padded image has 6 channels")
    bad(
        lambda: MPSNNPadGradient((1, 0, 0)).encode(X, X), ShapeError, r"source_gradient has shape .* has \(1, 3, 5, 5\)"
    )
    _, state = MPSNNPad((1, 0, 0)).encode(X, return_state=True)
    bad(lambda: MPSNNReshapeGradient().encode(X, X, state), TypeError, "left by MPSNNPad")


def test_an_error_changes_nothing() -> None:
    gradient, buffer = MPSNNPadGradient(), MPSCommandBuffer()
    before = gradient.copy()
    _, state = MPSNNPad((1, 0, 0), edge_mode="clamp").encode(X, return_state=True)
    bad(lambda: gradient.encode(X, X, state), ShapeError, "source_gradient")
    assert gradient == before
    buffer.commit()
    bad(lambda: MPSNNSlice().encode(X, command_buffer=buffer), ValueError, "status Committed")
