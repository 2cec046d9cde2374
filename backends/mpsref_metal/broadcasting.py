"""Arguments of ``msl/operands.metal`` and ``msl/fold_rows.metal`` for a problem with two operands."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.broadcasting import BroadcastProblem
from mpsref_metal.launch import Launcher, typedef


def pairing(problem: BroadcastProblem, count: int) -> Array:
    """Return the struct ``Pairing`` for a launch of ``count`` threads."""
    walks = [
        number
        for operand, shape in zip(problem.spec.operands, (problem.source_shape, problem.secondary_shape), strict=True)
        for number in (*shape[1:], *operand.offset, *operand.strides)
    ]
    return np.array([count, *problem.shape[1:], *walks], np.uint32)


def types_of(x: Array, y: Array) -> tuple[str, str]:
    """Return the typedefs of both operands."""
    return typedef("Primary", x), typedef("Secondary", y)


def fold_rows(launch: Launcher, rows: Array) -> Array:
    """Return the sum of ``rows`` (N, H, W, C), float32, over H: (N, 1, W, C)."""
    n, height, width, channels = rows.shape
    shape = n, 1, width, channels
    table = np.array([n * width * channels, height, width * channels], np.uint32)
    return launch.run(("fold_rows",), "fold_rows", [rows, table], [(shape, np.float32)])[0]
