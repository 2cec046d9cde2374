"""Comparison of two images through ``msl/compare.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.compare import COMPARISONS, Compare, CompareForward
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.broadcasting import pair_width, pairing, types_of
from mpsref_metal.launch import Launcher

LARGEST = float(np.finfo(np.float32).max)


def forward(launch: Launcher, problem: CompareForward, x: Array, y: Array, out: Array) -> None:
    """Fill ``out`` with r; fast math has no infinity, so an infinite threshold becomes the largest float32."""
    spec = problem.spec
    threshold = np.array([min(spec.threshold, LARGEST)], np.float32)
    width = pair_width(problem, x, y, out)
    known = (*types_of(problem, x, y, width), f"constant int COMPARISON = {COMPARISONS.index(spec.comparison_type)};")
    buffers = [x, y, pairing(problem, out.size // width, width), threshold]
    launch.into(("operands", "compare"), "forward", buffers, out, known, out.size // width)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(Compare, "forward"): forward}
