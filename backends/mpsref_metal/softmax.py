"""Softmax and log-softmax through ``msl/softmax.metal``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.softmax import ForwardProblem, LogSoftMax, SoftMax
from mpsref_metal.launch import Launcher, types, width_of

PACKS = 8
"""Approximate number of packs of channels that a thread reads, if the SIMD group of a pixel is not full."""


def lanes_of(packs: int) -> int:
    """Return the number of threads that share a pixel with this many packs of channels: a power of 2 up to 32."""
    return min(32, 1 << max(0, -(-packs // PACKS) - 1).bit_length())


def implementation(function: str) -> Callable[..., None]:
    """Return the implementation that runs an MSL function with one to 32 threads per pixel."""

    def run(launch: Launcher, problem: ForwardProblem, *inputs: Array, out: Array) -> None:
        channels = problem.source_shape[3]
        pixels = out.size // channels
        width = width_of(channels, *inputs, out)
        lanes = lanes_of(channels // width)
        known = *types(width, Storage=inputs[-1], Gradient=inputs[0]), f"constant constexpr uint LANES = {lanes};"
        buffers = [*inputs, np.array([pixels, channels // width], np.uint32)]
        launch.into(("lanes", "softmax"), function, buffers, out, known, pixels * lanes)

    return run


IMPLEMENTATIONS = {
    (SoftMax, "forward"): implementation("softmax"),
    (SoftMax, "gradient"): implementation("softmax_gradient"),
    (LogSoftMax, "forward"): implementation("log_softmax"),
    (LogSoftMax, "gradient"): implementation("log_softmax_gradient"),
}
