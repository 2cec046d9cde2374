"""Bilinear resize: the weighted sums of upsampling at other positions."""

from __future__ import annotations

from mpsref.arguments.arrays import Array
from mpsref.kernels.resize import ResizeBilinear, ResizeForward
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.resampling.interpolation import resample


def forward(problem: ResizeForward, x: Array, out: Array) -> None:
    """Fill ``out`` with interpolated pixels."""
    resample(problem.axes, False, x, out)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(ResizeBilinear, "forward"): forward}
