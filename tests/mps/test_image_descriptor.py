"""Image descriptors: checked whenever something is set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref.arguments.arrays import AXIS_LIMIT
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.mps.core import types
from mpsref.mps.core.image import MPSImageDescriptor
from mpsref.mps.core.types import MPSImageFeatureChannelFormat

Float16, Float32 = MPSImageFeatureChannelFormat.Float16, MPSImageFeatureChannelFormat.Float32


def test_a_descriptor_has_the_properties_of_apple() -> None:
    descriptor = MPSImageDescriptor("float16", 4, 3, 8)
    assert descriptor == MPSImageDescriptor.image_descriptor_with_channel_format(Float16, 4, 3, 8, 1)
    assert (descriptor.width, descriptor.height, descriptor.feature_channels) == (4, 3, 8)
    assert descriptor.channel_format is Float16
    assert descriptor.number_of_images == 1
    assert descriptor.dtype == np.float16
    assert descriptor.shape == (1, 3, 4, 8)


def test_a_descriptor_prints_as_python() -> None:
    descriptor = MPSImageDescriptor(Float32, 4, 3, 8, 2)
    names = {**vars(types), "MPSImageDescriptor": MPSImageDescriptor}
    assert eval(repr(descriptor), names) == descriptor


def test_a_descriptor_can_be_changed() -> None:
    descriptor = MPSImageDescriptor(Float32, 4, 3, 8)
    descriptor.width, descriptor.channel_format = 7, 3  # type: ignore[assignment]
    assert descriptor == MPSImageDescriptor(Float16, 7, 3, 8)
    assert descriptor.channel_format is Float16
    for name in ("widht", "dtype", "shape"):
        with pytest.raises(
            AttributeError, match=rf"^an MPSImageDescriptor has no '{name}' to set, only channel_format"
        ):
            setattr(descriptor, name, 1)


@pytest.mark.parametrize("name", ["width", "height", "feature_channels", "number_of_images"])
def test_lengths_of_a_descriptor(name: str) -> None:
    low = 0 if name == "number_of_images" else 1
    descriptor = MPSImageDescriptor(Float32, 4, 3, 8, 2)
    for length in (low, AXIS_LIMIT):
        setattr(descriptor, name, length)
        assert getattr(descriptor, name) == length
    for length in (low - 1, -5, AXIS_LIMIT + 1):
        with pytest.raises(ShapeError, match=f"^{name} is {length}; it must be from {low} to {AXIS_LIMIT}$"):
            setattr(descriptor, name, length)
    for wrong in (True, 1.0, None, "1", [1]):
        with pytest.raises(TypeError, match=f"^{name} is .*; it must be an integer$"):
            setattr(descriptor, name, wrong)
    assert getattr(descriptor, name) == AXIS_LIMIT


@pytest.mark.parametrize(("value", "error"), [("unorm8", UnsupportedError), (5, ValueError), (1.0, TypeError)])
def test_formats_that_an_image_cannot_have(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"channel.format"):
        MPSImageDescriptor(value, 1, 1, 1)
