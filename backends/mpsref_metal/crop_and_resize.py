"""Bilinear resize of a box through ``msl/interpolation.metal``; outputs beside the image read nothing."""

from __future__ import annotations

from typing import Any

from mpsref.arguments.arrays import Array
from mpsref.kernels.crop_and_resize import CropAndResizeBilinear, CropAndResizeForward
from mpsref.registry import OperationKey
from mpsref_metal.interpolation import resample
from mpsref_metal.launch import Launcher


def forward(launch: Launcher, problem: CropAndResizeForward, x: Array, out: Array) -> None:
    """Fill ``out`` with interpolated pixels and zeros."""
    resample(launch, problem.axes, False, x, out)


IMPLEMENTATIONS: dict[OperationKey, Any] = {(CropAndResizeBilinear, "forward"): forward}
