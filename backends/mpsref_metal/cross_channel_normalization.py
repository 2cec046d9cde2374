"""Cross-channel normalization through ``msl/cross_channel_normalization.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.cross_channel_normalization import (
    CrossChannelForward,
    CrossChannelGradient,
    CrossChannelNormalization,
    CrossChannelProblem,
)
from mpsref_metal.launch import Launcher, divisor, short_sums, typedef

PARTS = "powers", "cross_channel_normalization"


def forward(launch: Launcher, problem: CrossChannelForward, x: Array, out: Array) -> None:
    """Run ``forward``: y from x."""
    known = typedef("Storage", x), typedef("Gradient", x), *short_sums(problem.spec.kernel_size)
    windows, _, *scalars = _constants(problem)
    launch.into(PARTS, "forward", [x, windows, *scalars], out, known)


def gradient(launch: Launcher, problem: CrossChannelGradient, g: Array, x: Array, out: Array) -> None:
    """Run ``shares``, the contribution of each channel, then ``gradient``: dx."""
    known = typedef("Storage", x), typedef("Gradient", g), *short_sums(problem.spec.kernel_size)
    windows, adjoint, *scalars = _constants(problem)
    result = out.shape, np.float32
    own, share = launch.run(PARTS, "shares", [g, x, windows, *scalars], [result] * 2, known)
    launch.into(PARTS, "gradient", [x, own, share, adjoint, *scalars], out, known)


def _constants(problem: CrossChannelProblem) -> list[Array]:
    """Return the windows, their adjoints, the struct ``Sizes`` and the struct ``Parameters``."""
    spec, (n, height, width, channels) = problem.spec, problem.source_shape
    windows, adjoint = problem.reads(), problem.readers()
    scale = spec.alpha / spec.kernel_size
    parameters = np.array([spec.beta, spec.delta, scale, 2 * scale * spec.beta], np.float32)
    return [windows, adjoint, np.array([n * height * width * channels, *divisor(channels)], np.uint32), parameters]


IMPLEMENTATIONS = {
    (CrossChannelNormalization, "forward"): forward,
    (CrossChannelNormalization, "gradient"): gradient,
}
