"""Upsampling through ``msl/interpolation.metal``; nearest, whose weights are all 1, too."""

from __future__ import annotations

from typing import Any

from mpsref.arguments.arrays import Array
from mpsref.kernels.upsampling import UpsamplingBilinear, UpsamplingForward, UpsamplingGradient, UpsamplingNearest
from mpsref.registry import OperationKey
from mpsref_metal.interpolation import resample
from mpsref_metal.launch import Launcher


def forward(launch: Launcher, problem: UpsamplingForward, x: Array, out: Array) -> None:
    """Fill ``out`` with the large image."""
    resample(launch, problem.axes, False, x, out)


def gradient(launch: Launcher, problem: UpsamplingGradient, g: Array, out: Array) -> None:
    """Fill ``out`` with dx."""
    resample(launch, problem.axes, True, g, out)


IMPLEMENTATIONS: dict[OperationKey, Any] = {
    (spec, method): function
    for spec in (UpsamplingNearest, UpsamplingBilinear)
    for method, function in {"forward": forward, "gradient": gradient}.items()
}
