"""Reshape: a copy, in equal parts; in the order CHW a copy of transposed axes."""

from __future__ import annotations

import math

from mpsref.images import Array
from mpsref.kernels.reshape import Reshape, ReshapeProblem, reshape
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.half import as_storage
from mpsref_cpu.movement import copy_channels
from mpsref_cpu.parallel import for_rows

__all__ = ["IMPLEMENTATIONS"]

PARTS = 5040
"""At most; a number with so many divisors that it has many in common with the size of an image."""


def copy(problem: ReshapeProblem, source: Array, out: Array) -> None:
    """Fill ``out`` with the elements of ``source`` in their order."""
    if problem.spec.element_order == "CHW":
        out[...] = reshape(problem, source)
        return
    parts = math.gcd(out.size, PARTS)
    long = out.size // parts
    for_rows(copy_channels, parts, 2 * out.nbytes, as_storage(source), as_storage(out), (long, 0, long, 0, long, long))


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(Reshape, "forward"): copy, (Reshape, "gradient"): copy}
