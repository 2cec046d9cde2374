"""Enumerations and tuples of Metal Performance Shaders, and strict converters for properties.

Offsets, sizes and regions are named tuples in the order of MPS, ``(x, y, z)`` and ``(width, height, depth)``; all other
tuples of mpsref are in array order. Plain tuples are accepted in place of named tuples.

>>> region("clip_rect", ((1, 2, 0), (8, 6, 4)))
MTLRegion(origin=MTLOrigin(x=1, y=2, z=0), size=MTLSize(width=8, height=6, depth=4))
>>> edge_mode("edge_mode", "clamp")
MPSImageEdgeMode.Clamp
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Container, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, SupportsIndex, TypeVar

import numpy as np

from mpsref.arguments.arrays import DType
from mpsref.arguments.parameters import integer, number
from mpsref.arguments.text import Suggesting, did_you_mean, shown
from mpsref.errors import UnsupportedError
from mpsref.padding import PaddingMethod

HEADERS = Path(__file__).parents[1] / "headers.json"
"""The names in Apple's headers."""


class MPSOffset(NamedTuple):
    """A position in a source image, in pixels; ``z`` counts images of the batch. Source: ``MPSCoreTypes.h`` [doc]."""

    x: int
    y: int
    z: int = 0


class MTLOrigin(NamedTuple):
    """The first pixel of a region; ``z`` counts images of the batch. Source: Metal's ``MTLTypes.h`` [doc]."""

    x: int
    y: int
    z: int


class MTLSize(NamedTuple):
    """The extent of a region, in pixels; ``depth`` counts images of the batch. Source: ``MTLTypes.h`` [doc]."""

    width: int
    height: int
    depth: int


NSUIntegerMax: Final = 2**64 - 1
"""The value that Apple documents for sizes and numbers without a limit; legal where ``None`` has this meaning."""

UNLIMITED: Final = MTLSize(NSUIntegerMax, NSUIntegerMax, NSUIntegerMax)
"""The size of everything."""


class MTLRegion(NamedTuple):
    """A rectangle of pixels in some images of a batch. Source: Metal's ``MTLTypes.h`` [doc]."""

    origin: MTLOrigin
    size: MTLSize


class MPSRegion(NamedTuple):
    """A box in an image, in fractions of its size. Source: ``MPSCoreTypes.h`` [doc]."""

    origin: tuple[float, float, float]
    """(x, y, z)"""
    size: tuple[float, float, float]
    """(width, height, depth)"""


MPSNNPaddingMethod = PaddingMethod

MPSRectNoClip: Final = None
"""The clip rectangle of the whole destination."""


@cache
def _enumerations() -> dict[str, dict[str, int]]:
    """Return the members of Apple's enumerations."""
    found: dict[str, dict[str, int]] = json.loads(HEADERS.read_text("utf-8"))["enumerations"]
    return found


class OfApple(Suggesting):
    """The metaclass of enumerations that Apple's headers have, too."""

    def like(cls, name: str) -> str:
        """Return the member of a name in the headers, also one that is cut as in Swift, or one with a name like it."""
        known = _enumerations().get(cls.__name__, {})
        values = {key.removeprefix(cls.__name__).lower(): value for key, value in known.items()}
        cut = name.lower().removeprefix(cls.__name__.lower())
        members: Mapping[str, Any] = cls.__members__
        found = [key for key, one in members.items() if values.get(cut) == one.value]
        return found[0] if found else super().like(name)


class Enumeration(enum.IntEnum, metaclass=OfApple):
    """An enumeration of Metal; the ``repr`` of a member is Python code."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class MPSImageEdgeMode(Enumeration):
    """The values outside an image; most kernels accept ``Zero`` and ``Clamp``. Source: ``MPSCoreTypes.h`` [doc]."""

    Zero = 0
    Clamp = 1
    Mirror = 2
    MirrorWithEdge = 3
    Constant = 4


class MPSImageFeatureChannelFormat(Enumeration):
    """Storage of a channel; ``NONE`` lets the library choose. Source: ``MPSCoreTypes.h`` [doc]."""

    NONE = 0
    Unorm8 = 1
    Unorm16 = 2
    Float16 = 3
    Float32 = 4

    @property
    def dtype(self) -> DType:
        """The dtype of the pixels; float32 for ``NONE`` [design graph-format].

        Raises ``UnsupportedError`` for the normalized integers, which are limited to [0, 1] and cannot hold gradients.

        >>> MPSImageFeatureChannelFormat.Float16.dtype
        dtype('float16')
        """
        if self in (self.Unorm8, self.Unorm16):
            raise UnsupportedError(
                f"channel format {self!r} clamps to [0, 1] and cannot hold gradients; use Float16 or Float32"
            )
        return np.dtype(np.float16 if self is self.Float16 else np.float32)


class MPSDataType(Enumeration):
    """Types of weights that a data source can have. Source: ``MPSCoreTypes.h`` [doc]."""

    UInt8 = 8
    Float16 = 0x10000010
    Float32 = 0x10000020

    @property
    def dtype(self) -> DType:
        """The dtype of NumPy.

        >>> MPSDataType.Float32.dtype
        dtype('float32')
        """
        return np.dtype(self.name.lower())


class MPSDataLayout(Enumeration):
    """The order of the pixels of an image in memory. Source: ``MPSImage.h`` [doc]."""

    HeightxWidthxFeatureChannels = 0
    FeatureChannelsxHeightxWidth = 1


_E = TypeVar("_E", bound=Enumeration)


def member(name: str, value: object, kind: type[_E], legal: Container[_E] | None = None) -> _E:
    """Return a member of ``kind``, given the member, its number, or its name in lower case.

    ``legal`` restricts the legal members. Raises ``TypeError`` for another type (bool, float, a member of another
    enumeration) and ``ValueError`` for a value that is not a legal member.

    >>> member("data_layout", 1, MPSDataLayout)
    MPSDataLayout.FeatureChannelsxHeightxWidth
    """
    found: _E | None = None
    if isinstance(value, str):
        found = next((item for item in kind if _word(item) == value), None)
    elif isinstance(value, kind):
        found = value
    elif isinstance(value, (bool, np.bool_, enum.Enum)) or not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}; it must be {_choices(kind, legal)}")
    else:
        number = integer(name, value)
        found = next((item for item in kind if item == number), None)
    if found is None or (legal is not None and found not in legal):
        like = kind.like(value) if found is None and isinstance(value, str) else ""
        like = "" if like and legal is not None and kind[like] not in legal else did_you_mean(like.lower())
        raise ValueError(f"{name} is {shown(value)}{like}; it must be {_choices(kind, legal)}")
    return found


def _word(item: Enumeration) -> str:
    return item.name.lower()


def _choices(kind: type[_E], legal: Container[_E] | None) -> str:
    members = (item for item in kind if legal is None or item in legal)
    return f"one of {', '.join(f'{item!r} ({item.value} or {_word(item)!r})' for item in members)}"


def edge_modes(*legal: MPSImageEdgeMode) -> Callable[[str, object], MPSImageEdgeMode]:
    """Return the check ``check(name, value)`` for one of the ``legal`` edge modes; errors are those of :func:`member`.

    >>> edge_modes(MPSImageEdgeMode.Zero)("primary_edge_mode", 1)
    Traceback (most recent call last):
    ValueError: primary_edge_mode is 1; it must be one of MPSImageEdgeMode.Zero (0 or 'zero')
    """
    return lambda name, value: member(name, value, MPSImageEdgeMode, legal)


edge_mode = edge_modes(MPSImageEdgeMode.Zero, MPSImageEdgeMode.Clamp)
"""The check for the edge modes of most kernels."""
zero_edge_mode = edge_modes(MPSImageEdgeMode.Zero)
"""The check for the edge mode of kernels that read zeros outside an image."""


def channel_format(name: str, value: object) -> MPSImageFeatureChannelFormat:
    """Return ``value`` as a channel format that images support; errors are those of :func:`member`.

    Raises ``UnsupportedError`` for the normalized integers.

    >>> channel_format("channel_format", "float16")
    MPSImageFeatureChannelFormat.Float16
    """
    chosen = member(name, value, MPSImageFeatureChannelFormat)
    _ = chosen.dtype  # raises for the normalized integers
    return chosen


def offset(name: str, value: object) -> MPSOffset:
    """Return ``value`` as an offset: (x, y, z), or (x, y) with z = 0.

    x and y are any integers, and z >= 0. Raises ``TypeError`` unless ``value`` is a tuple of integers (not bools), and
    ``ValueError`` for another length or a negative z.

    >>> offset("offset", (-1, 2))
    MPSOffset(x=-1, y=2, z=0)
    >>> offset("offset", (0, 0, -1))
    Traceback (most recent call last):
    ValueError: offset.z is -1; it must be an integer >= 0
    """
    numbers = _tuple(name, value, "(x, y) or (x, y, z)", (2, 3))
    lows = (None, None, 0)
    return MPSOffset(*(integer(f"{name}.{axis}", n, low) for axis, n, low in zip("xyz", numbers, lows, strict=False)))


def origin(name: str, value: object) -> MTLOrigin:
    """Return ``value`` as an origin (x, y, z), each >= 0; errors as in :func:`offset`."""
    return MTLOrigin(*unsigned(name, value, MTLOrigin._fields))


def size(name: str, value: object) -> MTLSize:
    """Return ``value`` as a size (width, height, depth), each >= 0, also NSUIntegerMax; errors as in :func:`offset`.

    >>> size("size", (4, 3, 1)).height
    3
    """
    return MTLSize(*unsigned(name, value, MTLSize._fields, most=NSUIntegerMax))


def region(name: str, value: object) -> MTLRegion | None:
    """Return ``value`` as a region ((x, y, z), (width, height, depth)), or ``None`` for ``MPSRectNoClip``.

    Errors as in :func:`offset`.
    """
    if value is None:
        return MPSRectNoClip
    corner, extent = _tuple(name, value, "((x, y, z), (width, height, depth)) or MPSRectNoClip", (2,))
    given = MTLRegion(origin(f"{name}.origin", corner), size(f"{name}.size", extent))
    return MPSRectNoClip if given == ((0, 0, 0), UNLIMITED) else given


def box(name: str, value: object) -> MPSRegion:
    """Return ``value`` as a box ((x, y, z), (width, height, depth)) of finite numbers; z and depth are optional.

    Raises ``TypeError`` or ``ValueError`` for anything else, and for a negative size.
    """
    corner, extent = _tuple(name, value, "((x, y), (width, height))", (2,))
    corner = _tuple(f"{name}.origin", corner, "(x, y, z)", (2, 3))
    extent = _tuple(f"{name}.size", extent, "(width, height, depth)", (2, 3))
    x, y, z = (
        number(f"{name}.origin.{axis}", coordinate) for axis, coordinate in zip("xyz", (*corner, 0.0)[:3], strict=True)
    )
    sizes = zip(("width", "height", "depth"), (*extent, 1.0)[:3], strict=True)
    width, height, depth = (number(f"{name}.size.{axis}", length, low=0) for axis, length in sizes)
    return MPSRegion((x, y, z), (width, height, depth))


def limit(name: str, value: object) -> int | None:
    """Return ``value`` as a largest number, >= 1; ``None`` for ``None`` and NSUIntegerMax, which are no limit."""
    most = value is None or (isinstance(value, int) and value == NSUIntegerMax)
    return None if most else integer(name, value, low=1)


def unsigned(name: str, value: object, axes: tuple[str, ...], most: int | None = None) -> list[int]:
    """Return ``value`` as integers >= 0, one for each axis; ``most`` is legal, too. Errors as in :func:`offset`."""
    numbers = zip(axes, _tuple(name, value, f"({', '.join(axes)})", (len(axes),)), strict=True)
    return [
        most if isinstance(number, int) and number == most else integer(f"{name}.{axis}", number, low=0)
        for axis, number in numbers
    ]


def _tuple(name: str, value: object, legal: str, lengths: tuple[int, ...]) -> tuple[Any, ...]:
    """Return ``value`` as a tuple, whose length must be in ``lengths``."""
    if not isinstance(value, (tuple, list)) and not (isinstance(value, np.ndarray) and value.ndim):
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}; it must be {legal}")
    if len(value) not in lengths:
        raise ValueError(f"{name} is {shown(value)} of length {len(value)}; it must be {legal}")
    return tuple(value)
