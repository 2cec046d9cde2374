"""Encodes: the pixels, channels and images that a kernel reads and writes, and illegal arguments."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.errors import ShapeError
from mpsref.mps import MPSImageEdgeMode, MPSNNDefaultPadding, MPSNNPaddingMethod
from tests.mps.fakes import Difference, Shift, Sum


def counted(*shape: int, dtype: Any = np.float32) -> Array:
    return np.arange(1, 1 + np.prod(shape), dtype=dtype).reshape(shape)


def test_a_given_destination_keeps_what_lies_outside_the_clip() -> None:
    x, y = counted(3, 4, 5, 8), np.full((4, 6, 7, 12), -1.0, np.float32)
    kernel = Shift(
        offset=(1, 2, 1),
        clip_rect=((2, 1, 1), (3, 2, 2)),
        source_feature_channel_offset=4,
        source_feature_channel_max_count=3,
        destination_feature_channel_offset=8,
    )
    assert kernel.encode(x, y) is y
    expected = np.full_like(y, -1)
    expected[1:3, 1:3, 2:5, 8:11] = x[1:3, 2:4, 1:4, 4:7]
    np.testing.assert_array_equal(y, expected)


def test_an_allocated_destination_is_zero_outside_the_clip() -> None:
    x = counted(3, 4, 5, 8)
    kernel = Shift(
        offset=(0, 0, 1),
        clip_rect=((2, 1, 2), (99, 1, 1)),
        source_feature_channel_offset=4,
        padding=MPSNNDefaultPadding(MPSNNPaddingMethod.SizeFull),
    )
    kernel.destination_feature_channel_offset = 4
    y = kernel.encode(x, destination_size=(3, 4))
    expected = np.zeros((2 + 3 - 1, 3, 4, 4 + 4), np.float32)
    expected[2:3, 1:2, 2:4, 4:8] = x[1:2, 0:1, 0:2, 4:8]
    np.testing.assert_array_equal(y, expected)
    assert kernel.encode(x, None, destination_size=4).shape == (4, 4, 4, 8)


def test_no_clip_takes_every_image_that_is_left() -> None:
    x = counted(5, 2, 2, 1)
    np.testing.assert_array_equal(Shift(offset=(0, 0, 3)).encode(x), x[3:])
    assert Shift(offset=(0, 0, 5)).encode(x).shape == (0, 2, 2, 1)
    assert Shift().encode(x[:0]).shape == (0, 2, 2, 1)


def test_offset_counts_only_where_padding_does_not_decide() -> None:
    x = counted(1, 3, 3, 1)
    kernel = Shift(offset=(1, 1, 0))
    assert kernel.encode(x, destination_size=(3, 3))[0, 0, 0, 0] == 5
    np.testing.assert_array_equal(kernel.encode(x, np.zeros_like(x))[0, 0, 0], 5)
    np.testing.assert_array_equal(kernel.encode(x), x)
    assert kernel.offset == (0, 0, 0)


@pytest.mark.parametrize(
    "clip", [((0, 0, 0), (0, 3, 1)), ((0, 0, 0), (3, 0, 1)), ((3, 0, 0), (1, 1, 1)), ((0, 9, 0), (1, 1, 1))]
)
def test_an_empty_clip_writes_nothing(clip: Any) -> None:
    y = np.full((1, 3, 3, 1), 7.0, np.float32)
    _, state = Shift(clip_rect=clip).encode(counted(1, 3, 3, 1), y, return_state=True)
    assert (y == 7).all()
    assert 0 in state.record.clip_rect.size
    assert not Shift(clip_rect=clip).encode(counted(1, 3, 3, 1)).any()


def test_channel_counts_are_truncated() -> None:
    x = counted(1, 2, 2, 7)
    kernel = Shift(source_feature_channel_offset=4, source_feature_channel_max_count=100)
    np.testing.assert_array_equal(kernel.encode(x), x[..., 4:])
    kernel.source_feature_channel_max_count = 2
    np.testing.assert_array_equal(kernel.encode(x), x[..., 4:6])


X, READ_ONLY_IMAGE = counted(2, 3, 3, 8), np.zeros((2, 3, 3, 8), np.float32)
READ_ONLY_IMAGE.flags.writeable = False
ALIASED = np.zeros((2, 3, 3, 8), np.float32)
BAD_CALLS = [
    ({"source_feature_channel_offset": 8}, X, None, ValueError, "source_feature_channel_offset is 8; it must be < 8"),
    ({"source_feature_channel_offset": 2**40}, X, None, ValueError, "source_feature_channel_offset"),
    (
        {"destination_feature_channel_offset": 4},
        X,
        None,
        ValueError,
        "destination_feature_channel_offset is 4.*has only 8",
    ),
    ({"offset": (0, 0, 1)}, X, None, ValueError, r"offset\.z is 1 and 2 image\(s\)"),
    ({"offset": (0, 0, 2), "clip_rect": ((0, 0, 0), (1, 1, 1))}, X, None, ValueError, r"offset\.z is 2"),
    ({"clip_rect": ((0, 0, 1), (3, 3, 2))}, X, None, ValueError, "clip_rect covers the images from 1 to 2"),
    ({"clip_rect": ((0, 0, 0), (0, 0, 3))}, X, None, ValueError, "clip_rect"),
    ({}, X[:1], None, ValueError, "source_image has only 1"),
    ({}, X, X, ValueError, "shares memory with source_image"),
    ({}, ALIASED[..., ::-1], ALIASED, ValueError, "shares memory"),
    ({}, X, READ_ONLY_IMAGE, ValueError, "destination_image is read-only"),
    ({}, X, np.zeros((3, 3, 8), np.float32), ShapeError, "destination_image has shape"),
    ({}, X, np.zeros((2, 3, 3, 8), np.int32), TypeError, "destination_image has dtype int32"),
    ({}, X, [[1.0]], TypeError, "destination_image is of type list"),
    ({}, X[0], None, ShapeError, "source_image"),
    ({}, X.astype(int), None, TypeError, "source_image has dtype"),
]


@pytest.mark.parametrize(("properties", "x", "y", "error", "message"), BAD_CALLS)
def test_bad_calls_raise_and_write_nothing(properties: Any, x: Any, y: Any, error: Any, message: str) -> None:
    kernel = Shift(**properties)
    y = np.full((2, 3, 3, 8), 7.0, np.float32) if y is None else y
    before, was = copy.deepcopy(y), kernel.copy()
    with pytest.raises(error, match=message):
        kernel.encode(x, y)
    np.testing.assert_array_equal(y, before)
    assert kernel == was


def test_bad_sizes_and_offsets_of_allocated_destinations() -> None:
    with pytest.raises(ValueError, match=r"offset\.z is 3; it must be <= 2"):
        Shift(offset=(0, 0, 3)).encode(X)
    for size in (0, (1, 0), (1, 2, 3)):
        with pytest.raises(ValueError, match="destination_size"):
            Shift().encode(X, destination_size=size)
    with pytest.raises(TypeError, match="destination_size"):
        Shift().encode(X, destination_size=2.0)
    with pytest.raises(ValueError, match="destination_image and destination_size are both given"):
        Shift().encode(X, np.zeros_like(X), destination_size=3)
    with pytest.raises(ShapeError, match="cannot be allocated"):
        Shift().encode(X, destination_size=(2**30, 2**30))


def test_an_error_changes_no_property_even_after_padding_has_set_some() -> None:
    kernel = mps.MPSCNNPoolingAverage(2, 2, padding=MPSNNDefaultPadding.padding_for_tensorflow_average_pooling())
    kernel.source_feature_channel_offset = 8
    was = kernel.copy()
    with pytest.raises(ValueError, match="source_feature_channel_offset"):
        kernel.encode(X)
    assert kernel == was
    kernel.source_feature_channel_offset = 0
    kernel.encode(X)
    assert kernel.offset == (1, 1, 0)
    assert kernel.edge_mode is MPSImageEdgeMode.Clamp


def test_members_of_a_list_are_written() -> None:
    batch = mps.MPSImageBatch.from_array(X)
    assert type(Shift().encode(mps.MPSTemporaryImage(X))) is mps.MPSImage
    members = [mps.MPSImage(np.zeros_like(X[:1])) for _ in range(2)]
    assert Shift().encode(mps.MPSImage(X), members) is members
    np.testing.assert_array_equal(members[1].array, X[1:])
    with pytest.raises(ValueError, match="shares memory"):
        Shift().encode(batch, [batch[0], mps.MPSImage(X[:1])])


def test_a_batch_as_destination_keeps_what_lies_outside_the_clip() -> None:
    members = mps.MPSImageBatch.from_array(np.full_like(X, 7))
    Shift(clip_rect=((1, 1, 1), (1, 1, 1))).encode(X, members)
    expected = np.full_like(X, 7)
    expected[1, 1, 1] = X[0, 0, 0]
    np.testing.assert_array_equal(members.to_array(), expected)


@pytest.mark.parametrize("source", ["<f2", "<f4", ">f4", "<f8"])
@pytest.mark.parametrize("target", ["<f2", "<f4", ">f4", "<f8"])
def test_a_destination_may_have_another_dtype(source: str, target: str) -> None:
    x = (counted(1, 2, 2, 1) / 3).astype(source)
    y = mps.MPSCNNPoolingAverage(1, 1).encode(x, np.zeros(x.shape, target))
    assert y.dtype == np.dtype(target)
    np.testing.assert_array_equal(y, x.astype(target))
    assert Shift().encode(x).dtype == np.dtype(source).newbyteorder("=")


def test_storing_in_float16_overflows_to_infinity() -> None:
    y = mps.MPSCNNPoolingAverage(1, 1).encode(
        np.full((1, 1, 1, 1), 1e6, np.float32), np.zeros((1, 1, 1, 1), np.float16)
    )
    assert np.isinf(y).all()


def test_two_sources_have_their_own_properties() -> None:
    a, b = counted(2, 3, 3, 4), 100 * counted(3, 4, 4, 8)
    kernel = Difference(
        primary_offset=(1, 0, 0),
        secondary_offset=(0, 2, 1),
        secondary_source_feature_channel_offset=4,
        clip_rect=((0, 0, 0), (2, 2, 2)),
    )
    result, state = kernel.encode(a, b, destination_size=(2, 2), return_state=True)
    np.testing.assert_array_equal(result, a[:, 0:2, 1:3] - b[1:3, 2:4, 0:2, 4:])
    assert isinstance(state, mps.MPSNNBinaryGradientState)
    assert (state.primary.offset, state.secondary.offset) == ((1, 0, 0), (0, 2, 1))
    assert state.record.source_shapes == (a.shape, b.shape)
    for name, bad in [("primary_source_feature_channel_offset", 4), ("secondary_source_feature_channel_offset", 8)]:
        with pytest.raises(ValueError, match=f"{name} is {bad}"):
            Difference(**{name: bad}).encode(a, b, np.zeros_like(a))
    with pytest.raises(ValueError, match=r"secondary_offset\.z is 2"):
        Difference(secondary_offset=(0, 0, 2)).encode(a, b[..., :4], np.zeros_like(a))


def test_a_policy_that_gives_two_sources_different_sizes_raises() -> None:
    kernel = Difference()
    np.testing.assert_array_equal(kernel.encode(X, X), 0)
    with pytest.raises(ShapeError, match="different output sizes"):
        kernel.encode(X, X[:, :2])


def test_a_policy_places_the_windows_of_each_source() -> None:
    top_left = MPSNNDefaultPadding(
        MPSNNPaddingMethod.SizeSame | MPSNNPaddingMethod.AlignTopLeft, MPSImageEdgeMode.Clamp
    )
    kernel = Sum(3, kernel_width=(1, 3, 5), padding=top_left)
    kernel.encode([X, X, X])
    assert [offset.x for offset in kernel.offset] == [0, -1, -2]
    assert kernel.edge_mode == (MPSImageEdgeMode.Clamp,) * 3


def test_many_sources() -> None:
    kernel = Sum(3)
    kernel.set_offset((1, 0, 0), 1)
    kernel.set_source_feature_channel_offset(4, 2)
    kernel.set_source_feature_channel_max_count(4, 0)
    kernel.set_source_feature_channel_max_count(4, 1)
    assert kernel.offset_at_index(1) == (1, 0, 0)
    assert kernel.offset == ((0, 0, 0), (1, 0, 0), (0, 0, 0))
    result, state = kernel.encode([X, X, X], destination_size=(3, 2), return_state=True)
    np.testing.assert_array_equal(result, X[:, :, :2, :4] + 10 * X[:, :, 1:, :4] + 100 * X[:, :, :2, 4:])
    assert isinstance(state, mps.MPSNNMultiaryGradientState)
    assert [source.offset.x for source in state.record.sources] == [0, 1, 0]
    kernel.encode([X, X, X])
    assert kernel.offset == ((0, 0, 0),) * 3
    with pytest.raises(ValueError, match=r"source_feature_channel_offset\[2\] is 8"):
        Sum(3, source_feature_channel_offset=(0, 0, 8)).encode([X, X, X])
    with pytest.raises(ValueError, match="source_images has 2 images"):
        kernel.encode([X, X])


def test_a_destination_of_another_dtype_keeps_the_pixels_outside_of_the_clip_rectangle() -> None:
    x, out = np.ones((1, 3, 3, 1), np.float32), np.full((1, 3, 3, 1), 7, np.float16)
    mps.MPSCNNNeuronReLU(clip_rect=((1, 0, 0), (1, 2, 1))).encode(x, out)
    assert out[0, ..., 0].tolist() == [[7, 1, 7], [7, 1, 7], [7, 7, 7]]
