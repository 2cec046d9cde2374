"""Interpolation by the operator Resize."""

from __future__ import annotations

from typing import Any

from mpsref.arguments.arrays import Array
from mpsref_onnxruntime.run import evaluate, floats, integers


def resized(problem: Any, x: Array, out: Array, mode: str, coordinates: str, box: tuple[float, ...] = ()) -> None:
    """Compute ``Resize`` with a mode, a transformation of coordinates, and a box (y0, x0, y1, x1) if it has one."""
    n, height, width, c = problem.large_shape
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
    roi = floats(0, 0, *box[:2], 1, 1, *box[2:]) if box else ""
    sizes = integers(n, c, height, width)
    out[...] = evaluate(problem, lambda graph, x: graph("Resize", x, roi, "", sizes, **attributes), x)
