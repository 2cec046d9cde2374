"""Upsampling through ``msl/interpolation.metal``; for nearest upsampling all weights are 1."""

from __future__ import annotations

from mpsref.arguments.arrays import Array
from mpsref.kernels.upsampling import SampledProblem, UpsamplingBilinear, UpsamplingNearest
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.interpolation import resample
from mpsref_metal.launch import Launcher


def forward(launch: Launcher, problem: SampledProblem, x: Array, out: Array) -> None:
    """Fill ``out`` with the sampled image."""
    resample(launch, problem.axes, False, x, out)


def gradient(launch: Launcher, problem: SampledProblem, g: Array, out: Array) -> None:
    """Fill ``out`` with dx."""
    resample(launch, problem.axes, True, g, out)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (UpsamplingNearest, "forward"): forward,
    (UpsamplingNearest, "gradient"): gradient,
    (UpsamplingBilinear, "forward"): forward,
    (UpsamplingBilinear, "gradient"): gradient,
}
