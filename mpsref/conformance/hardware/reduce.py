"""Published results of reductions."""

from __future__ import annotations

from collections.abc import Iterator

from mpsref.conformance.hardware.adapter import Adapter, Compared
from mpsref.conformance.hardware.entries import Entry
from mpsref.kernels import Reduce
from mpsref.registry import Backend

__all__ = ["ADAPTERS"]


def spatial_mean(entry: Entry, backend: Backend) -> Iterator[Compared]:
    """Run an entry of the spatial mean."""
    y = Reduce("mean", "spatial").forward(entry.image("x"), backend=backend)
    yield Compared("y", y, entry.expected["y"])


ADAPTERS: dict[str, Adapter] = {"MPSNNReductionSpatialMeanNode": spatial_mean}
"""By MPS class."""
