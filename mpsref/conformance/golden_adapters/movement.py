"""Published results of concatenation nodes."""

from __future__ import annotations

from collections.abc import Iterator

from mpsref.conformance.golden_entries import Adapter, Comparison, Entry
from mpsref.kernels import Concatenation
from mpsref.registry import Backend


def concatenation(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Run an entry on its sources x0, x1, ..."""
    sources = [entry.image(name) for name in sorted(entry.inputs)]
    y = Concatenation(entry.parameters["channel_alignment"]).forward(sources, backend=backend)
    yield Comparison("y", y, entry.expected["y"])


ADAPTERS: dict[str, Adapter] = {"MPSNNConcatenationNode": concatenation}
"""By MPS class."""
