"""The adapters of graph nodes and of images: sizes and properties, which no functional form has."""

from __future__ import annotations

from collections.abc import Iterator

from mpsref.conformance.golden_entries import Adapter, Comparison, Entry
from mpsref.registry import Backend


def fresh_image(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare what an image holds before anything is written to it."""
    from mpsref import mps

    height, width = entry.parameters["size"]
    channel_format, channels = entry.parameters["channel_format"], entry.parameters["feature_channels"]
    image = mps.MPSImage(mps.MPSImageDescriptor(channel_format, width, height, channels))
    yield Comparison("pixels", image.array, entry.expected["y"])


ADAPTERS: dict[str, Adapter] = {
    "MPSImage": fresh_image,
}
