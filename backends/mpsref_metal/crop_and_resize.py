"""Bilinear resize of a box through ``msl/interpolation.metal``; outputs outside the image are zero."""

from __future__ import annotations

from mpsref.arguments.arrays import Array
from mpsref.kernels.crop_and_resize import CropAndResizeBilinear, CropAndResizeForward
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.interpolation import resample
from mpsref_metal.launch import Launcher


def forward(launch: Launcher, problem: CropAndResizeForward, x: Array, out: Array) -> None:
    """Fill ``out`` with interpolated pixels and zeros."""
    resample(launch, problem.axes, False, x, out)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(CropAndResizeBilinear, "forward"): forward}
