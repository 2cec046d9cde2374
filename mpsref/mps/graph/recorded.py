"""What the state of a graph's step records of its forward kernel: everything at its default, on whole images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpsref.arguments.arrays import Shape
from mpsref.mps.core.kernel import ImageKernel
from mpsref.mps.core.state import ForwardRecord, SourceProperties
from mpsref.mps.core.types import MTLOrigin, MTLRegion, MTLSize

__all__ = ["record"]


def record(
    kernel: ImageKernel,
    shapes: tuple[Shape, Shape],
    extras: Mapping[str, Any],
    source: SourceProperties | None = None,
) -> ForwardRecord:
    """Return the record of a forward pass from the first of ``shapes`` to the second."""
    source_shape, (n, height, width, channels) = shapes
    properties = kernel._source_properties(0) if source is None else source
    clip = MTLRegion(MTLOrigin(0, 0, 0), MTLSize(width, height, n))
    return ForwardRecord(type(kernel), (properties,), (source_shape,), shapes[1], clip, 0, channels, extras)
