"""Enumerations and tuples: the numbers of MPS, and strict converters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.errors import UnsupportedError
from mpsref.mps.core import types
from mpsref.mps.core.types import Enumeration
from mpsref.padding import PaddingMethod

ENUMERATIONS: dict[type[Enumeration], dict[str, int]] = {
    mps.MPSImageEdgeMode: {"Zero": 0, "Clamp": 1, "Mirror": 2, "MirrorWithEdge": 3, "Constant": 4},
    mps.MPSImageFeatureChannelFormat: {"NONE": 0, "Unorm8": 1, "Unorm16": 2, "Float16": 3, "Float32": 4},
    mps.MPSDataLayout: {"HeightxWidthxFeatureChannels": 0, "FeatureChannelsxHeightxWidth": 1},
    mps.MTLCommandBufferStatus: {
        "NotEnqueued": 0,
        "Enqueued": 1,
        "Committed": 2,
        "Scheduled": 3,
        "Completed": 4,
        "Error": 5,
    },
}
MEMBERS = [one for kind in ENUMERATIONS for one in kind]


@pytest.mark.parametrize(("kind", "numbers"), ENUMERATIONS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_members_have_the_numbers_of_apple(kind: type[Enumeration], numbers: dict[str, int]) -> None:
    assert {one.name: one.value for one in kind} == numbers


def test_the_padding_method_is_that_of_the_padding_module() -> None:
    assert mps.MPSNNPaddingMethod is PaddingMethod


@pytest.mark.parametrize("one", MEMBERS, ids=repr)
def test_a_member_is_its_number_and_its_lower_case_name(one: Enumeration) -> None:
    word = one.name.lower().rstrip("_")
    for value in (one, one.value, np.int32(one.value), np.array(one.value), word):
        assert types.member("parameter", value, type(one)) is one


@pytest.mark.parametrize("one", MEMBERS, ids=repr)
def test_a_member_prints_as_python(one: Enumeration) -> None:
    assert eval(repr(one), {type(one).__name__: type(one)}) is one


@pytest.mark.parametrize("value", [True, False, np.True_, 1.0, np.float32(1), None, [1], (0,), b"zero", object()])
def test_another_type_is_no_member(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^edge_mode is .* of type .*; it must be one of MPSImageEdgeMode.Zero \(0 or"):
        types.edge_mode("edge_mode", value)


@pytest.mark.parametrize("value", [mps.MPSDataLayout.FeatureChannelsxHeightxWidth, PaddingMethod(1)], ids=repr)
def test_a_member_of_another_enumeration_is_a_slip(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^edge_mode is .* of type .*; it must be one of"):
        types.edge_mode("edge_mode", value)


@pytest.mark.parametrize("value", [-1, 5, 2**60, "", "Zero", "CLAMP", "mirror_with_edge", "clamp ", "none_"])
def test_an_unknown_number_or_word_is_no_member(value: Any) -> None:
    with pytest.raises(
        ValueError,
        match=rf"^edge_mode is {re.escape(repr(value))}(: did you mean \w+\?)?; it must be one of MPSImageEdgeMode",
    ):
        types.edge_modes(*mps.MPSImageEdgeMode)("edge_mode", value)


@pytest.mark.parametrize("mode", mps.MPSImageEdgeMode)
def test_kernels_take_zero_and_clamp_unless_they_say_otherwise(mode: mps.MPSImageEdgeMode) -> None:
    for value in (mode, int(mode), mode.name.lower()):
        assert types.edge_modes(*mps.MPSImageEdgeMode)("edge_mode", value) is mode
        if mode <= mps.MPSImageEdgeMode.Clamp:
            assert types.edge_mode("edge_mode", value) is mode
        else:
            with pytest.raises(ValueError, match=r"Zero \(0 or 'zero'\), MPSImageEdgeMode.Clamp \(1 or 'clamp'\)$"):
                types.edge_mode("edge_mode", value)


def test_a_primary_image_takes_zero_alone() -> None:
    with pytest.raises(ValueError, match=r"^primary_edge_mode is 'clamp'; it must be one of MPSImageEdgeMode.Zero \(0"):
        types.zero_edge_mode("primary_edge_mode", "clamp")


def test_channel_formats_have_dtypes() -> None:
    dtypes = {value: types.channel_format("format", value).dtype for value in ("none", "float16", "float32")}
    assert dtypes == {"none": np.float32, "float16": np.float16, "float32": np.float32}


@pytest.mark.parametrize("value", ["unorm8", 2, mps.MPSImageFeatureChannelFormat.Unorm16])
def test_normalized_integers_cannot_hold_gradients(value: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"MPSImageFeatureChannelFormat.Unorm\d+ clamps .*; use Float16 or"):
        types.channel_format("channel_format", value)


@pytest.mark.parametrize(
    "value", [(1, -2, 3), [1, -2, 3], np.array([1, -2, 3]), (np.int8(1), np.int64(-2), 3), mps.MPSOffset(1, -2, 3)]
)
def test_offset(value: Any) -> None:
    converted = types.offset("offset", value)
    assert converted == mps.MPSOffset(x=1, y=-2, z=3)
    assert [type(number) for number in converted] == [int, int, int]
    assert type(converted) is mps.MPSOffset


def test_offset_without_z() -> None:
    assert types.offset("offset", (4, 5)) == mps.MPSOffset(4, 5) == (4, 5, 0)
    assert types.offset("offset", (-(2**40), 2**40)) == (-(2**40), 2**40, 0)


CONVERTERS: dict[str, Callable[[str, Any], Any]] = {
    "offset": types.offset,
    "origin": types.origin,
    "size": types.size,
    "region": types.region,
}


@pytest.mark.parametrize(
    ("name", "lengths"), [("offset", (0, 1, 4)), ("origin", (0, 2, 4)), ("size", (0, 2, 4)), ("region", (0, 1, 3))]
)
def test_a_tuple_of_another_length_is_refused(name: str, lengths: tuple[int, ...]) -> None:
    for length in lengths:
        with pytest.raises(ValueError, match=f"^{name} is .* of length {length}; it must be "):
            CONVERTERS[name](name, (1,) * length)


@pytest.mark.parametrize(("name", "axes"), [("offset", "xyz"), ("origin", "xyz"), ("size", mps.MTLSize._fields)])
def test_each_entry_must_be_an_integer_and_is_named(name: str, axes: Any) -> None:
    for k, axis in enumerate(axes):
        for bad, error in ((True, TypeError), (1.0, TypeError), (None, TypeError), (-1, ValueError)):
            value = [0, 0, 0]
            value[k] = bad
            if name == "offset" and axis != "z" and bad == -1:
                assert types.offset(name, value)[k] == -1
                continue
            with pytest.raises(error, match=rf"^{name}\.{axis} is .*; it must be an integer"):
                CONVERTERS[name](name, value)
    with pytest.raises(TypeError, match=f"^{name} is None of type NoneType; it must be "):
        CONVERTERS[name](name, None)


@pytest.mark.parametrize(
    "value",
    [
        ((1, 2, 3), (4, 5, 6)),
        [[1, 2, 3], [4, 5, 6]],
        np.array([[1, 2, 3], [4, 5, 6]]),
        mps.MTLRegion(mps.MTLOrigin(1, 2, 3), mps.MTLSize(4, 5, 6)),
    ],
)
def test_region(value: Any) -> None:
    converted = types.region("clip_rect", value)
    assert isinstance(converted, mps.MTLRegion)
    assert isinstance(converted.origin, mps.MTLOrigin)
    assert isinstance(converted.size, mps.MTLSize)
    assert (converted.origin.x, converted.origin.y, converted.origin.z) == (1, 2, 3)
    assert (converted.size.width, converted.size.height, converted.size.depth) == (4, 5, 6)


def test_a_region_names_the_part_that_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"^clip_rect\.size\.depth is -1; it must be an integer >= 0$"):
        types.region("clip_rect", ((0, 0, 0), (1, 1, -1)))
    with pytest.raises(ValueError, match=r"^clip_rect\.origin is \(0, 0\) of length 2; it must be \(x, y, z\)$"):
        types.region("clip_rect", ((0, 0), (1, 1, 1)))
    with pytest.raises(TypeError, match=r"^clip_rect\.size is None of type NoneType; it must be \(width, height, de"):
        types.region("clip_rect", ((0, 0, 0), None))
