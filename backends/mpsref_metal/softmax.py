"""Softmax and log-softmax through ``msl/softmax.metal``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.softmax import ForwardProblem, LogSoftMax, SoftMax
from mpsref_metal.launch import Launcher, typedef


def implementation(function: str) -> Callable[..., None]:
    """Return the implementation that runs an MSL function with one thread per pixel."""

    def run(launch: Launcher, problem: ForwardProblem, *inputs: Array, out: Array) -> None:
        channels = problem.source_shape[3]
        pixels = out.size // channels
        known = typedef("Storage", inputs[-1]), typedef("Gradient", inputs[0])
        buffers = [*inputs, np.array([pixels, channels], np.uint32)]
        launch.into(("softmax",), function, buffers, out, known, pixels)

    return run


IMPLEMENTATIONS = {
    (SoftMax, "forward"): implementation("softmax"),
    (SoftMax, "gradient"): implementation("softmax_gradient"),
    (LogSoftMax, "forward"): implementation("log_softmax"),
    (LogSoftMax, "gradient"): implementation("log_softmax_gradient"),
}
