"""Softmax and log-softmax through ``msl/softmax.metal``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.softmax import ForwardProblem, LogSoftMax, SoftMax
from mpsref_metal.launch import Launcher, types, width_of

HELD = {1: (2, 8), 4: (3,), 8: (3,), 32: (3, 8)}
"""Numbers of packs that a thread keeps in registers, by the number of threads that share a pixel: the first number that
suffices for all packs of a pixel, or the last one. A number that is too large costs loads."""


def lanes_of(packs: int) -> int:
    """Return the number of threads that share a pixel with this many packs of channels."""
    return 1 if packs <= 8 else 4 if packs <= 12 else 8 if packs <= 24 else 32


def implementation(function: str) -> Callable[..., None]:
    """Return the implementation that runs an MSL function with 1, 4, 8 or 32 threads per pixel."""

    def run(launch: Launcher, problem: ForwardProblem, *inputs: Array, out: Array) -> None:
        channels = problem.source_shape[3]
        pixels = out.size // channels
        width = width_of(channels, *inputs, out)
        packs = channels // width
        lanes = lanes_of(packs)
        held = next((number for number in HELD[lanes] if packs <= number * lanes), HELD[lanes][-1])
        known = (
            *types(width, Storage=inputs[-1], Gradient=inputs[0]),
            f"constant constexpr uint LANES = {lanes};",
            f"constant constexpr uint HELD = {held};",
        )
        buffers = [*inputs, np.array([pixels, packs], np.uint32)]
        launch.into(("lanes", "softmax"), function, buffers, out, known, pixels * lanes)

    return run


IMPLEMENTATIONS = {
    (SoftMax, "forward"): implementation("softmax"),
    (SoftMax, "gradient"): implementation("softmax_gradient"),
    (LogSoftMax, "forward"): implementation("log_softmax"),
    (LogSoftMax, "gradient"): implementation("log_softmax_gradient"),
}
