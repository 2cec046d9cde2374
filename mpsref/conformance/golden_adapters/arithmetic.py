"""Published results of arithmetic nodes and kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpsref.conformance.golden_entries import Adapter, Comparison, Entry
from mpsref.kernels import Arithmetic
from mpsref.kernels.arithmetic import Name
from mpsref.registry import Backend

CHAINS: dict[str, tuple[Name, str]] = {
    "graph-add-then-add": ("add", "y"),
    "graph-add-then-subtract": ("add", "y"),
    "arithmetic-minus-divide-metaltensors": ("subtract", "z"),
}
"""Entries of two operations: the first one is on x and y, that of the entry on its result and this image."""


def forward(operation: Name) -> Adapter:
    """Return the adapter of an operation of two images."""

    def adapter(entry: Entry, backend: Backend) -> Iterator[Comparison]:
        x, y = entry.image("x"), entry.image("y")
        if entry.id in CHAINS:
            before, other = CHAINS[entry.id]
            x, y = Arithmetic(before).forward(x, y, backend=backend), entry.image(other)
        r = Arithmetic(operation, **entry.parameters).forward(x, y, backend=backend)
        yield Comparison("r", r, entry.expected["r"])

    return adapter


def gradient(operation: Name) -> Adapter:
    """Return the adapter of a gradient node. Which of its two results an entry is about stands in its numbers."""

    def adapter(entry: Entry, backend: Backend) -> Iterator[Comparison]:
        g = entry.image("g")
        sources: list[Any] = [entry.image(name) if name in entry.inputs else g.shape for name in ("x", "y")]
        dx, dy = Arithmetic(operation).gradient(g, *sources, backend=backend)
        for name, got in (("dx", dx), ("dy", dy), ("d", dx), ("d", dy)):
            if name in entry.expected:
                yield Comparison(name, got, entry.expected[name])

    return adapter


ADAPTERS: dict[str, Adapter] = {
    "MPSNNAdditionNode": forward("add"),
    "MPSNNSubtractionNode": forward("subtract"),
    "MPSNNMultiplicationNode": forward("multiply"),
    "MPSNNDivisionNode": forward("divide"),
    "MPSImageAdd": forward("add"),
    "MPSNNAdditionGradientNode": gradient("add"),
    "MPSNNMultiplicationGradientNode": gradient("multiply"),
}
"""By MPS class; MPSImageAdd is the image kernel with the formula of MPSCNNAdd."""
