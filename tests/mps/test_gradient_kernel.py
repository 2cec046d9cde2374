"""The base class of gradient kernels: configuration by a state, by properties, or by a padding policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.errors import OrderError, ShapeError
from tests.mps.fakes import Difference, Shift, ShiftGradient

X = np.arange(3 * 6 * 7 * 12, dtype=np.float32).reshape(3, 6, 7, 12)


def ramp(*shape: int) -> Array:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def forward(**properties: Any) -> mps.MPSCNNPoolingAverage:
    """Return a kernel whose properties are distinct numbers, none of them a default."""
    return mps.MPSCNNPoolingAverage(
        2,
        3,
        3,
        2,
        offset=(1, 2, 1),
        edge_mode="clamp",
        zero_pad_size_x=1,
        zero_pad_size_y=2,
        clip_rect=((1, 2, 2), (2, 3, 1)),
        source_feature_channel_offset=4,
        source_feature_channel_max_count=3,
        destination_feature_channel_offset=8,
        **properties,
    )


def test_a_state_sets_every_property_and_they_stay_set() -> None:
    _, state = forward().encode(X, np.zeros((4, 6, 5, 16), np.float32), return_state=True)
    gradient = mps.MPSCNNPoolingAverageGradient(2, 3, 3, 2)
    dx = gradient.encode(ramp(4, 6, 5, 16), X, state)
    assert dx.shape == X.shape
    expected = {
        "primary_offset": mps.MPSOffset(1, 2, 2),
        "source_size": (2, 3, 1),
        "primary_source_feature_channel_offset": 8,
        "primary_source_feature_channel_max_count": 3,
        "secondary_offset": mps.MPSOffset(1, 2, 1),
        "secondary_edge_mode": mps.MPSImageEdgeMode.Clamp,
        "secondary_source_feature_channel_offset": 4,
        "secondary_source_feature_channel_max_count": 3,
        "destination_feature_channel_offset": 4,
        "kernel_offset_x": 0,
        "kernel_offset_y": 1 - 2,
        "zero_pad_size_x": 1,
        "zero_pad_size_y": 2,
    }
    assert {name: getattr(gradient, name) for name in expected} == expected
    assert gradient.clip_rect is not None
    assert (gradient.clip_rect.origin, gradient.clip_rect.size.depth) == ((0, 0, 1), 1)


def test_each_axis_of_the_source_gradient_is_whole_or_the_clip_alone() -> None:
    _, state = forward().encode(X, np.zeros((4, 6, 5, 16), np.float32), return_state=True)
    whole = ramp(4, 6, 5, 16)
    part = whole[2:3, 2:5, 1:3, 8:11]
    expected = mps.MPSCNNPoolingAverageGradient(2, 3, 3, 2).encode(whole, X, state)
    assert np.count_nonzero(expected)
    for axes in np.ndindex(2, 2, 2, 2):
        cuts = (slice(2, 3), slice(2, 5), slice(1, 3), slice(8, 11))
        g = whole[tuple(cut if chosen else slice(None) for cut, chosen in zip(cuts, axes, strict=True))]
        gradient = mps.MPSCNNPoolingAverageGradient(2, 3, 3, 2)
        np.testing.assert_array_equal(gradient.encode(g, X, state), expected)
        n, y, x, c = (0 if chosen else origin for origin, chosen in zip((2, 2, 1, 8), axes, strict=True))
        assert gradient.primary_offset == (x, y, n)
        assert gradient.primary_source_feature_channel_offset == c
    np.testing.assert_array_equal(mps.MPSCNNPoolingAverageGradient(2, 3, 3, 2).encode(part, X, state), expected)
    for wrong in (whole[:2], whole[:, :4], whole[:, :, :4], whole[..., :4], np.zeros((5, 6, 5, 16), np.float32)):
        with pytest.raises(ShapeError, match="source_gradient has shape"):
            mps.MPSCNNPoolingAverageGradient(2, 3, 3, 2).encode(wrong, X, state)


def test_the_own_clip_rectangle_selects_a_part_of_the_same_gradient() -> None:
    _, state = forward().encode(X, np.zeros((4, 6, 5, 16), np.float32), return_state=True)
    g, gradient = ramp(4, 6, 5, 16), mps.MPSCNNPoolingAverageGradient(2, 3, 3, 2)
    whole = gradient.encode(g, X, state)
    gradient.clip_rect = ((2, 1, 0), (4, 3, 3))
    part = gradient.encode(g, X, state)
    assert gradient.clip_rect == ((2, 1, 1), (4, 3, 1))
    assert (gradient.kernel_offset_x, gradient.kernel_offset_y) == (2, 1 + 1 - 2)  # c = 1 and o = 1 in x, 2 in y
    expected = np.zeros_like(whole)
    expected[:, 1:4, 2:6] = whole[:, 1:4, 2:6]
    assert np.count_nonzero(expected)
    np.testing.assert_array_equal(part, expected)


def test_without_offset_and_clip_the_clip_rectangle_stays_open() -> None:
    gradient = mps.MPSCNNPoolingAverageGradient(3, 3)
    for height in (4, 6):
        x = X[:, :height]
        y, state = mps.MPSCNNPoolingAverage(3, 3).encode(x, return_state=True)
        assert gradient.encode(ramp(*y.shape), x, state).shape == x.shape
        assert gradient.clip_rect is None


def test_one_kernel_serves_images_of_any_size_one_after_the_other() -> None:
    gradient = mps.MPSCNNPoolingAverageGradient(3, 3)
    for images, height in ((3, 4), (2, 6), (3, 6)):
        x = X[:images, :height]
        y, state = mps.MPSCNNPoolingAverage(3, 3, offset=(0, 0, 1)).encode(
            x, destination_size=(height, 7), return_state=True
        )
        dx = gradient.encode(ramp(*y.shape), x, state)
        assert not dx[0].any()
        assert dx[1:].all()


def test_a_state_is_a_snapshot_that_serves_twice() -> None:
    pool = mps.MPSCNNPoolingAverage(3, 3)
    y, state = pool.encode(X, return_state=True)
    pool.edge_mode, pool.offset = "clamp", (2, 2, 0)
    gradient = mps.MPSCNNPoolingAverageGradient(3, 3)
    first = gradient.encode(ramp(*y.shape), X, state)
    assert gradient.secondary_edge_mode is mps.MPSImageEdgeMode.Zero
    np.testing.assert_array_equal(gradient.encode(ramp(*y.shape), X, state), first)


def test_states_that_do_not_fit_raise_and_change_nothing() -> None:
    y, state = mps.MPSCNNPoolingAverage(2, 3, 3, 2).encode(X, return_state=True)
    for numbers in ((3, 3, 3, 2), (2, 2, 3, 2), (2, 3, 2, 2), (2, 3, 3, 3)):
        gradient = mps.MPSCNNPoolingAverageGradient(*numbers)
        was = gradient.copy()
        with pytest.raises(ValueError, match=rf"dilations .* are \({str(numbers)[1:-1]}"):
            gradient.encode(y, X, state)
        assert gradient == was
    gradient = mps.MPSCNNPoolingAverageGradient(2, 3, 3, 2)
    for wrong in (X[:2], X[:, 1:], X[:, :, 1:], X[..., 1:]):
        with pytest.raises(ShapeError, match="source_image has shape"):
            gradient.encode(y, wrong, state)
    for other in (mps.MPSCNNPoolingMax(2, 3, 3, 2), mps.MPSCNNPoolingL2Norm(2, 3, 3, 2)):
        _, foreign = other.encode(X, return_state=True)
        for destination in (None, np.zeros_like(X)):
            with pytest.raises(
                TypeError, match=f"left by {type(other).__name__}; .* needs one of MPSCNNPoolingAverage"
            ):
                gradient.encode(y, X, foreign, destination)
    _, binary = Difference().encode(X, X, return_state=True)
    for nonsense in (binary, "state", y):
        with pytest.raises(TypeError, match="gradient_state is of type"):
            gradient.encode(y, X, nonsense)
    assert gradient == mps.MPSCNNPoolingAverageGradient(2, 3, 3, 2)


def test_both_sides_must_agree() -> None:
    gradient = mps.MPSCNNPoolingAverageGradient(3, 3, 2, 2)
    gradient.primary_stride_in_pixels_y = 3
    y, state = mps.MPSCNNPoolingAverage(3, 3, 2, 2).encode(X, return_state=True)
    for arguments in ((y, X, state), (y, X, None, np.zeros_like(X)), (y, X)):
        with pytest.raises(ValueError, match="for the primary and"):
            gradient.encode(*arguments)
    gradient.secondary_stride_in_pixels_y = 3
    assert gradient.encode(y, X, None, np.zeros_like(X)).shape == X.shape
    for bad in ("clamp", 1, mps.MPSImageEdgeMode.Mirror):
        with pytest.raises(ValueError, match="primary_edge_mode"):
            gradient.primary_edge_mode = bad


@pytest.mark.parametrize("part_of_g", [False, True])
def test_a_kernel_without_a_source_size_gets_the_clip_alone(part_of_g: bool) -> None:
    shift = Shift(
        factor=5,
        offset=(1, -1, 1),
        clip_rect=((2, 1, 1), (3, 4, 2)),
        source_feature_channel_offset=4,
        source_feature_channel_max_count=5,
        destination_feature_channel_offset=4,
    )
    y, state = shift.encode(X, np.zeros((4, 6, 7, 12), np.float32), return_state=True)
    g = ramp(*y.shape)
    expected = np.zeros_like(X)
    for b, row, column in np.ndindex(2, 4, 3):
        if row - 1 >= 0:
            expected[1 + b, row - 1, 1 + column, 4:9] = 5 * g[1 + b, 1 + row, 2 + column, 4:9]
    gradient = ShiftGradient()
    np.testing.assert_array_equal(gradient.encode(g[1:3, 1:5, 2:5] if part_of_g else g, X, state), expected)
    assert gradient.primary_offset == (0, 0, 0 if part_of_g else 1)
    assert gradient.secondary_offset == (1, -1, 1)
    assert (gradient.kernel_offset_x, gradient.kernel_offset_y) == (-1, 1)
    assert gradient.factor == 5
    assert float(np.sum(y.astype(float)[1:3, 1:5, 2:5, 4:9] * g[1:3, 1:5, 2:5, 4:9])) == float(
        np.sum(X * expected.astype(float))
    )


def test_a_given_destination_takes_every_property_as_it_is() -> None:
    y, state = mps.MPSCNNPoolingAverage(3, 3, offset=(1, 1, 0)).encode(X, destination_size=(4, 5), return_state=True)
    gradient = mps.MPSCNNPoolingAverageGradient(3, 3, secondary_offset=(1, 1, 0), zero_pad_size_x=3)
    was, dx = gradient.copy(), np.full((3, 9, 9, 12), 7.0, np.float32)
    assert gradient.encode(ramp(*y.shape), X, state, dx) is dx
    assert gradient == was
    automatic = mps.MPSCNNPoolingAverageGradient(3, 3).encode(ramp(*y.shape), X, state)
    np.testing.assert_array_equal(dx[:, :6, :7], automatic)
    assert not dx[:, 6:].any()
    assert not dx[:, :, 7:].any()


@pytest.mark.parametrize("method", [mps.MPSNNPaddingMethod.SizeSame, mps.MPSNNPaddingMethod.SizeValidOnly])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_without_state_and_destination_the_inverse_policy_undoes_stride_one(method: Any, size: int) -> None:
    padding = mps.MPSNNDefaultPadding(method)
    pool = mps.MPSCNNPoolingAverage(size, size, padding=padding)
    y, state = pool.encode(X, return_state=True)
    g = ramp(*y.shape)
    gradient = mps.MPSCNNPoolingAverageGradient(size, size, secondary_offset=pool.offset, padding=padding.inverse())
    dx = gradient.encode(g, X)
    np.testing.assert_array_equal(dx, mps.MPSCNNPoolingAverageGradient(size, size).encode(g, X, state))
    assert gradient.primary_offset == (0, 0, 0)
    assert gradient.kernel_offset_x == min(0, size // 2 - pool.offset.x)


def test_without_state_the_policy_sizes_the_destination_from_the_gradient() -> None:
    policy = mps.MPSNNDefaultPadding(mps.MPSNNPaddingMethod.SizeFull, "clamp")
    gradient = mps.MPSCNNPoolingAverageGradient(3, 3, 2, 2, padding=policy, destination_feature_channel_offset=4)
    assert gradient.encode(ramp(2, 3, 4, 2), ramp(2, 6, 8, 2)).shape == (2, 2 * 2 + 3, 3 * 2 + 3, 6)
    assert gradient.secondary_edge_mode is mps.MPSImageEdgeMode.Clamp


def test_bad_calls_write_nothing() -> None:
    y, state = mps.MPSCNNPoolingAverage(3, 3).encode(X, return_state=True)
    g = np.array(y)
    buffer = mps.MPSCommandBuffer()
    buffer.commit()
    cases: list[tuple[Any, tuple[Any, ...], Any, str]] = [
        ({}, (g, X, None, g), ValueError, "destination_gradient shares memory with source_gradient"),
        ({}, (g, X, None, X), ValueError, "destination_gradient shares memory with source_image"),
        ({}, (g[:2], X, None, np.full_like(X, 7)), ValueError, "source_gradient has only 2"),
        ({}, (g, X[:2], None, np.full_like(X, 7)), ValueError, "source_image has only 2"),
        ({"primary_offset": (0, 0, 1)}, (g, X, None, np.full_like(X, 7)), ValueError, r"primary_offset\.z is 1"),
        ({"secondary_offset": (0, 0, 1)}, (g, X, None, np.full_like(X, 7)), ValueError, r"secondary_offset\.z is 1"),
        ({}, (g, X, None, np.full((3, 6, 7, 8), 7.0, np.float32)), ValueError, "destination_gradient has only 8"),
        ({}, (g[..., :8], X, None, np.full_like(X, 7)), ShapeError, "8 channels are read of source_gradient and 12"),
        ({"clip_rect": ((0, 0, 3), (1, 1, 1))}, (g, X, None, np.full_like(X, 7)), ValueError, "clip_rect"),
        ({}, (g[0], X, None, np.full_like(X, 7)), ShapeError, "source_gradient"),
        ({}, (g, X[0], None, np.full_like(X, 7)), ShapeError, "source_image"),
        ({}, (g, X[0], state), ShapeError, "source_image"),
    ]
    for properties, arguments, error, message in cases:
        gradient = mps.MPSCNNPoolingAverageGradient(3, 3, **properties)
        before = [np.array(one) for one in arguments if isinstance(one, np.ndarray)]
        was = gradient.copy()
        with pytest.raises(error, match=message):
            gradient.encode(*arguments)
        for now, then in zip([one for one in arguments if isinstance(one, np.ndarray)], before, strict=True):
            np.testing.assert_array_equal(now, then)
        assert gradient == was
    with pytest.raises(OrderError, match="command_buffer"):
        mps.MPSCNNPoolingAverageGradient(3, 3).encode_batch(g, X, state, command_buffer=buffer)


def test_a_destination_is_written_with_the_properties_that_another_state_has_set() -> None:
    """Not with the clip rectangle of the state of the encode, which has configured nothing."""
    x = np.random.default_rng(0).standard_normal((1, 4, 4, 2)).astype(np.float32)
    gradient, out = mps.MPSCNNNeuronGradient(mps.MPSNNNeuronDescriptor("relu")), np.empty_like(x)
    y, state = mps.MPSCNNNeuronReLU().encode(x, return_state=True)
    clipped = mps.MPSCNNNeuronReLU(clip_rect=((1, 1, 0), (2, 2, 1)))
    _, other = clipped.encode(x, destination_size=(4, 4), return_state=True)
    dx = gradient.encode(y, x, state)
    gradient.encode(y, x, other, out)
    np.testing.assert_array_equal(out, dx)
