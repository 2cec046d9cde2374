"""Which kernels are under test: one line a kernel."""

from __future__ import annotations

from collections.abc import Mapping

from mpsref import kernels, registry
from mpsref.conformance import pooling
from mpsref.conformance.subject import Subject

__all__ = ["SUBJECTS"]

SUBJECTS: Mapping[type[registry.Spec], Subject] = {
    kernels.PoolingAverage: pooling.AVERAGE,
    kernels.PoolingMax: pooling.MAX,
    kernels.PoolingL2Norm: pooling.L2NORM,
}
