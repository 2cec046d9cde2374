"""Tests of instance, group, spatial, local contrast and cross-channel normalization."""

from __future__ import annotations

from mpsref.conformance.families.normalization import groups, windows
from mpsref.conformance.family import Family
from mpsref.kernels import GroupNormalization, InstanceNormalization

FAMILY = Family(
    "normalization",
    {**groups.KERNELS, **windows.KERNELS},
    {**groups.MUTANTS, **windows.MUTANTS},
    windows.GOLDEN,
    {
        **dict.fromkeys((InstanceNormalization, GroupNormalization), groups.torch_equivalent),
        **windows.TORCH_EQUIVALENTS,
    },
)
