"""The golden adapters of all families."""

from __future__ import annotations

from mpsref.conformance.golden_adapters import (
    arithmetic,
    batch_normalization,
    convolution,
    graph,
    loss,
    movement,
    neuron,
    normalization,
    reduce,
    softmax,
    upsampling,
)
from mpsref.conformance.golden_entries import Adapter

FAMILIES = (
    arithmetic,
    batch_normalization,
    convolution,
    graph,
    loss,
    movement,
    neuron,
    normalization,
    reduce,
    softmax,
    upsampling,
)

ADAPTERS: dict[str, Adapter] = {kernel: adapter for family in FAMILIES for kernel, adapter in family.ADAPTERS.items()}
"""The adapter of each MPS class; a class that is not listed is not implemented yet."""
