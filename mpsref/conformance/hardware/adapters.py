"""The adapters of all families."""

from __future__ import annotations

from mpsref.conformance.hardware import (
    arithmetic,
    batch_normalization,
    convolution,
    graph,
    loss,
    movement,
    neuron,
    normalization,
    pooling,
    reduce,
    softmax,
    upsampling,
)
from mpsref.conformance.hardware.adapter import Adapter, Compared

__all__ = ["ADAPTERS", "Adapter", "Compared"]

FAMILIES = (
    arithmetic,
    batch_normalization,
    convolution,
    graph,
    loss,
    movement,
    neuron,
    normalization,
    pooling,
    reduce,
    softmax,
    upsampling,
)

ADAPTERS: dict[str, Adapter] = {kernel: adapter for family in FAMILIES for kernel, adapter in family.ADAPTERS.items()}
"""The adapter of each MPS class; a class that is not listed is not implemented yet."""
