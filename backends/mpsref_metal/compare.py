"""Comparison of two images through ``msl/compare.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.compare import COMPARISONS, Compare, CompareForward
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.broadcasting import pair_width, pairing, types_of
from mpsref_metal.launch import Launcher

COMPARISON = np.dtype([("type", "u4"), ("threshold", "f4")])
LARGEST = float(np.finfo(np.float32).max)


def forward(launch: Launcher, problem: CompareForward, x: Array, y: Array, out: Array) -> None:
    """Fill ``out`` with r; fast math has no infinity, so an infinite threshold becomes the largest float32."""
    spec = problem.spec
    comparison = COMPARISONS.index(spec.comparison_type), min(spec.threshold, LARGEST)
    width = pair_width(problem, x, y, out)
    count = out.size // width
    buffers = [x, y, pairing(problem, count, width), np.array([comparison], COMPARISON)]
    launch.into(("operands", "compare"), "forward", buffers, out, types_of(problem, x, y, width), count)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(Compare, "forward"): forward}
