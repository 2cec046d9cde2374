"""Golden results of images, which no kernel computes."""

from __future__ import annotations

from collections.abc import Iterator

from mpsref.conformance.family import Family
from mpsref.conformance.golden_entries import Comparison, Entry
from mpsref.registry import Backend


def golden_image(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare the pixels of a new image."""
    from mpsref import mps  # only this entry needs it

    height, width = entry.parameters["size"]
    channel_format, channels = entry.parameters["channel_format"], entry.parameters["feature_channels"]
    image = mps.MPSImage(mps.MPSImageDescriptor(channel_format, width, height, channels))
    yield Comparison("pixels", image.array, entry.expected["y"])


FAMILY = Family("image", golden={"MPSImage": golden_image})
