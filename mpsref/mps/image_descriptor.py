"""The descriptor of an image to be: its size and its channel format.

>>> descriptor = MPSImageDescriptor("float16", width=4, height=3, feature_channels=8)
>>> descriptor.width = 5
>>> descriptor
MPSImageDescriptor(channel_format=MPSImageFeatureChannelFormat.Float16, width=5, height=3, feature_channels=8, \
number_of_images=1)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from mpsref.arguments import arrays
from mpsref.arguments.arrays import ImageShape
from mpsref.arguments.parameters import integer
from mpsref.errors import ShapeError
from mpsref.mps import types
from mpsref.mps.types import MPSImageFeatureChannelFormat

__all__ = ["MPSImageDescriptor", "length"]


def length(low: int) -> Callable[[str, Any], int]:
    """Return a strict converter ``convert(name, value)`` for the length of an axis, at least ``low``."""

    def convert(name: str, value: Any) -> int:
        number = integer(name, value)
        if not low <= number <= arrays.AXIS_LIMIT:
            raise ShapeError(f"{name} is {number}; it must be from {low} to {arrays.AXIS_LIMIT}")
        return number

    return convert


@dataclass
class MPSImageDescriptor:
    """Size and format of an image to be. Every property may be set, and is checked then.

    Raises ``TypeError`` for what is no integer, ``ShapeError`` for a length of 0 (only ``number_of_images`` may be 0),
    ``UnsupportedError`` for a format of normalized integers. Source: ``MPSImageDescriptor`` in ``MPSImage.h`` [doc].
    """

    channel_format: MPSImageFeatureChannelFormat
    width: int
    height: int
    feature_channels: int
    number_of_images: int = 1

    _converters: ClassVar[dict[str, Callable[[str, Any], Any]]] = {
        "channel_format": types.channel_format,
        "width": length(1),
        "height": length(1),
        "feature_channels": length(1),
        "number_of_images": length(0),
    }

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._converters:
            raise AttributeError(f"an MPSImageDescriptor has no {name!r} to set, only {', '.join(self._converters)}")
        object.__setattr__(self, name, self._converters[name](name, value))

    @classmethod
    def image_descriptor_with_channel_format(
        cls, channel_format: Any, width: int, height: int, feature_channels: int, number_of_images: int = 1
    ) -> Self:
        """Return a descriptor; Apple's name for the constructor."""
        return cls(channel_format, width, height, feature_channels, number_of_images)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the pixels, which follows from ``channel_format``."""
        return self.channel_format.dtype

    @property
    def shape(self) -> ImageShape:
        """The shape of the pixels, (N, H, W, C)."""
        return self.number_of_images, self.height, self.width, self.feature_channels
