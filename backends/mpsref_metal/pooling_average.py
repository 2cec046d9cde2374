"""Average pooling through ``msl/pooling_average.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.images import Array
from mpsref.kernels.pooling_average import AverageForward, AverageGradient
from mpsref_metal.launch import Launcher, runs_buffer

__all__ = ["forward", "gradient"]


def forward(launch: Launcher, problem: AverageForward, x: Array, out: Array) -> None:
    """y (N, OH, OW, C) from x (N, H, W, C)."""
    _run(launch, "forward", problem, x, out)


def gradient(launch: Launcher, problem: AverageGradient, g: Array, out: Array) -> None:
    """dx (N, H, W, C) from g (N, GH, GW, C)."""
    _run(launch, "gradient", problem, g, out)


def _run(launch: Launcher, function: str, problem: AverageForward | AverageGradient, source: Array, out: Array) -> None:
    _, height, width, channels = out.shape
    scalars = {
        "channels": channels,
        "height": height,
        "width": width,
        "source_height": source.shape[1],
        "source_width": source.shape[2],
    }
    buffers = [runs_buffer(runs) for runs in problem.runs()]
    factors = [inverse.astype(np.float32) for inverse in problem.reciprocals()]
    launch("pooling_average", function, scalars, [source, *buffers, *factors], out)
