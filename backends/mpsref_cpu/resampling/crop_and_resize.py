"""Bilinear resize of a box: interpolation where the box lies on the image, zeros outside."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.crop_and_resize import CropAndResizeBilinear, CropAndResizeForward
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.resampling.interpolation import resample


def forward(problem: CropAndResizeForward, x: Array, out: Array) -> None:
    """Fill ``out`` with interpolated pixels and zeros."""
    vertical, horizontal = (axis.inside() for axis in problem.axes)
    out.fill(0)
    if vertical is None or horizontal is None:
        return
    (top, rows), (left, columns) = vertical, horizontal
    n, *_, channels = out.shape
    found = np.empty((n, rows.outputs, columns.outputs, channels), out.dtype)
    resample((rows, columns), False, x, found)
    out[:, top : top + rows.outputs, left : left + columns.outputs] = found


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(CropAndResizeBilinear, "forward"): forward}
