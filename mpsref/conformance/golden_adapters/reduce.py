"""Published results of reductions."""

from __future__ import annotations

from collections.abc import Iterator

from mpsref.conformance.golden_entries import Adapter, Comparison, Entry
from mpsref.kernels import Reduce
from mpsref.registry import Backend


def spatial_mean(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Run an entry of the spatial mean."""
    y = Reduce("mean", "spatial").forward(entry.image("x"), backend=backend)
    yield Comparison("y", y, entry.expected["y"])


ADAPTERS: dict[str, Adapter] = {"MPSNNReductionSpatialMeanNode": spatial_mean}
"""By MPS class."""
