"""How PyTorch spells the kernels: one module a family, so that the benchmark can time it beside the backends.

Each kernel has one function that turns a problem into a call at PyTorch's lowest level, or says that it has no words
for it. The call computes into ``outs``, or into new memory where that is ``None``.
"""

from __future__ import annotations

from collections.abc import Mapping

from mpsref.bench.pytorch import Spelling
from mpsref.bench.spellings import pointwise
from mpsref.registry import Spec

__all__ = ["SPELLINGS"]

FAMILIES = (pointwise,)

SPELLINGS: Mapping[type[Spec], Spelling] = {kernel: f for family in FAMILIES for kernel, f in family.SPELLINGS.items()}
"""The function of each kernel."""
