"""Comparison of two images through ``msl/compare.metal``."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.compare import COMPARISONS, Compare, CompareForward
from mpsref.registry import OperationKey
from mpsref_metal.broadcasting import pairing, types_of
from mpsref_metal.launch import Launcher

LARGEST = float(np.finfo(np.float32).max)


def forward(launch: Launcher, problem: CompareForward, x: Array, y: Array, out: Array) -> None:
    """Fill ``out`` with r; fast math has no infinity, so an infinite threshold is the largest number."""
    spec = problem.spec
    threshold = np.array([min(spec.threshold, LARGEST)], np.float32)
    known = (*types_of(x, y), f"constant int COMPARISON = {COMPARISONS.index(spec.comparison_type)};")
    buffers = [x, y, pairing(problem, out.size), threshold]
    launch.into(("operands", "compare"), "forward", buffers, out, known)


IMPLEMENTATIONS: dict[OperationKey, Any] = {(Compare, "forward"): forward}
