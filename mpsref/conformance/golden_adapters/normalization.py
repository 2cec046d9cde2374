"""The adapters of the windowed normalization classes; of instance and group normalization no public result is known."""

from __future__ import annotations

from collections.abc import Iterator

from mpsref.conformance.golden_entries import Adapter, Comparison, Entry
from mpsref.kernels import CrossChannelNormalization, LocalContrastNormalization, SpatialNormalization
from mpsref.registry import Backend

Windowed = type[SpatialNormalization] | type[LocalContrastNormalization] | type[CrossChannelNormalization]


def forward_of(spec_type: Windowed) -> Adapter:
    """Return the adapter of a class, forward."""

    def adapter(entry: Entry, backend: Backend) -> Iterator[Comparison]:
        y = spec_type(**entry.parameters).forward(entry.image("x"), backend=backend)
        yield Comparison("y", y, entry.expected["y"])

    return adapter


ADAPTERS: dict[str, Adapter] = {
    "MPSCNNSpatialNormalization": forward_of(SpatialNormalization),
    "MPSCNNLocalContrastNormalization": forward_of(LocalContrastNormalization),
    "MPSCNNCrossChannelNormalization": forward_of(CrossChannelNormalization),
}
"""The adapter of each MPS class."""
