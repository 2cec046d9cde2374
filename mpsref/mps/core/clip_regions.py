"""Clip regions: the ranges of an image (N, H, W, C) that a kernel reads and writes.

Result ``i`` is written to destination pixel ``clip_rect.origin + i``, and image ``clip_rect.origin.z + b`` of the
destination is computed from image ``offset.z + b`` of a source. Source: notes in ``MPSCNNKernel.h`` [doc].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from mpsref import geometry
from mpsref.arguments.arrays import Shape
from mpsref.arguments.parameters import Pair
from mpsref.mps.core.types import MTLOrigin, MTLRegion, MTLSize, NSUIntegerMax


class Region(NamedTuple):
    """A rectangular region of an image (N, H, W, C), as an index of the array."""

    images: slice
    rows: slice
    columns: slice
    channels: slice

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The numbers of images, rows, columns and channels."""
        n, y, x, c = self
        return n.stop - n.start, y.stop - y.start, x.stop - x.start, c.stop - c.start

    @property
    def size(self) -> Pair:
        """(height, width)."""
        return self.shape[1:3]

    @property
    def clip_rect(self) -> MTLRegion:
        """The region as an ``MTLRegion``, which has no channels."""
        n, height, width, _ = self.shape
        return MTLRegion(MTLOrigin(self.columns.start, self.rows.start, self.images.start), MTLSize(width, height, n))


NameOf: TypeAlias = Callable[[int, str], str]
"""``name(k, property)`` returns the name of a property of a kernel for its source ``k``."""


def whole(shape: Shape) -> Region:
    """Return all of an image of ``shape``."""
    n, height, width, channels = shape
    return Region(slice(0, n), slice(0, height), slice(0, width), slice(0, channels))


def count(indices: slice) -> int:
    """Return the length of a slice ``[start, stop)``."""
    return int(indices.stop - indices.start)


def overlap(first: int, n: int, length: int) -> tuple[slice, slice]:
    """Return which of ``n`` pixels from ``first`` on are on an axis of ``length``, and where they are on the axis."""
    begin = max(0, first)
    end = max(begin, min(first + n, length))
    return slice(begin - first, end - first), slice(begin, end)


def channels_read(image: str, name: NameOf, k: int, shape: Shape, offset: int, max_count: int | None) -> slice:
    """Return the channels of source ``k`` that a kernel reads: at most ``max_count``, starting at ``offset``.

    Raises ``ValueError`` for an offset beyond the last channel.
    """
    channels = shape[3]
    if offset >= channels:
        property_name = name(k, "source_feature_channel_offset")
        raise ValueError(f"{property_name} is {offset}; it must be < {channels}, the number of channels of {image}")
    rest = channels - offset
    return slice(offset, offset + (rest if max_count is None else min(max_count, rest)))


def images_read(image: str, name: NameOf, k: int, shape: Shape, z: int, depth: int) -> slice:
    """Return the images of source ``k`` that a kernel reads: ``depth`` images, starting at ``z``.

    Raises ``ValueError`` if the batch is too small.
    """
    if z + depth > shape[0]:
        property_name = name(k, "offset")
        raise ValueError(
            f"{property_name}.z is {z} and {depth} image(s) are to be processed, but {image} has only {shape[0]}: make "
            f"the sum of both at most {shape[0]}, by the offset or by the depth of clip_rect or of the destination"
        )
    return slice(z, z + depth)


def destination_region(
    image: str, shape: Shape, clip_rect: MTLRegion | None, channel_offset: int, channels: int
) -> Region:
    """Return the region of a destination of ``shape`` that a kernel writes.

    Rows and columns of the clip rectangle outside the image are ignored; images and channels that do not exist raise
    ``ValueError``.
    """
    n, height, width, c = shape
    if channel_offset + channels > c:
        raise ValueError(
            f"destination_feature_channel_offset is {channel_offset} and {channels} channel(s) are to be written, but "
            f"{image} has only {c}: pass an image with at least {channel_offset + channels}"
        )
    written = slice(channel_offset, channel_offset + channels)
    if clip_rect is None:
        return Region(slice(0, n), slice(0, height), slice(0, width), written)
    (x, y, z), (w, h, depth) = clip_rect
    if depth == NSUIntegerMax:
        depth = max(0, n - z)
    if z + depth > n:
        raise ValueError(
            f"clip_rect covers the images from {z} to {z + depth - 1} of the batch, but {image} has only {n}: "
            "its origin.z + size.depth must not be larger"
        )
    rows, columns = geometry.clip(y, h, height)[1], geometry.clip(x, w, width)[1]
    return Region(slice(z, z + depth), slice(y, y + rows), slice(x, x + columns), written)
