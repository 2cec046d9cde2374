"""Bilinear resize through ``msl/interpolation.metal``."""

from __future__ import annotations

from mpsref.arguments.arrays import Array
from mpsref.kernels.resize import ResizeBilinear, ResizeForward
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.interpolation import resample
from mpsref_metal.launch import Launcher


def forward(launch: Launcher, problem: ResizeForward, x: Array, out: Array) -> None:
    """Fill ``out`` with interpolated pixels."""
    resample(launch, problem.axes, False, x, out)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(ResizeBilinear, "forward"): forward}
