"""Tests of instance, group, spatial, local contrast and cross-channel normalization."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from mpsref.conformance.families.normalization import groups, windows
from mpsref.conformance.family import Family
from mpsref.conformance.layer import Layer
from mpsref.kernels import GroupNormalization, InstanceNormalization

# --- layers -----------------------------------------------------------------------------------------------------------

MOST_PIXELS = 20
"""On an axis of a small windowed layer: there is a window at every pixel, and more of them show nothing new."""


@dataclass(frozen=True)
class NormalizationLayer(Layer):
    """A layer whose windows or groups shrink with it."""

    def small(self, channels: int = 3, batch: int = 1) -> Self:
        """Return this layer with fewer channels, groups, images and, where there are windows, pixels.

        >>> from mpsref.conformance import layers
        >>> small = layers.by_name("resnet50_gn.layer4").small(channels=5)
        >>> small.spec.groups, small.source_shape
        (2, (1, 7, 7, 4))
        """
        spec = self.spec
        _, height, width, _ = self.source_shape
        if isinstance(spec, GroupNormalization):
            count = spec.groups if channels >= spec.groups else 2
            spec, channels = replace(spec, groups=count), channels // count * count
        if not isinstance(spec, (GroupNormalization, InstanceNormalization)):
            height, width = min(height, MOST_PIXELS), min(width, MOST_PIXELS)
        return replace(self, spec=spec, source_shape=(batch, height, width, channels))


FAMILY = Family(
    "normalization",
    {**groups.KERNELS, **windows.KERNELS},
    {**groups.MUTANTS, **windows.MUTANTS},
    windows.GOLDEN,
    layer=NormalizationLayer.read,
)
