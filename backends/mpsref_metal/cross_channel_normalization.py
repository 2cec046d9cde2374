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
from mpsref_metal.launch import WIDE, Launcher, divisor, short_sums, typedef, types, width_of

PARTS = "powers", "cross_channel_normalization"

THREADS, SLOTS = 128, 160
"""Numbers of threads of a threadgroup with whole pixels, one for each pack, and of packs in its threadgroup memory."""


def forward(launch: Launcher, problem: CrossChannelForward, x: Array, out: Array) -> None:
    """Run ``forward``: y from x."""
    if together := _together(problem, x, out):
        _in_one_step(launch, problem, together, x, out=out)
        return
    known = typedef("Storage", x), typedef("Gradient", x), *short_sums(problem.spec.kernel_size)
    buffers = [x, problem.reads(), _sizes(problem), _parameters(problem)]
    launch.into(PARTS, "forward", buffers, out, known)


def gradient(launch: Launcher, problem: CrossChannelGradient, g: Array, x: Array, out: Array) -> None:
    """Run ``gradient`` in one step, or ``shares``, the contribution of each channel, then ``gradient``: dx."""
    if together := _together(problem, g, x, out):
        _in_one_step(launch, problem, together, g, x, out=out)
        return
    known = typedef("Storage", x), typedef("Gradient", g), *short_sums(problem.spec.kernel_size)
    scalars = [_sizes(problem), _parameters(problem)]
    result = out.shape, np.float32
    own, share = launch.run(PARTS, "shares", [g, x, problem.reads(), *scalars], [result] * 2, known)
    launch.into(PARTS, "gradient", [x, own, share, problem.readers(), *scalars], out, known)


def _together(problem: CrossChannelProblem, *arrays: Array) -> int:
    """Return how many whole pixels a threadgroup has in threadgroup memory; 0 if only the simple form is possible."""
    spec, channels = problem.spec, problem.source_shape[3]
    before = spec.window.center
    if width_of(channels, *arrays) < WIDE or max(before, spec.kernel_size - 1 - before) > WIDE:
        return 0
    packs = channels // WIDE
    return min(THREADS // packs, (SLOTS - 1) // (packs + 1))


def _in_one_step(launch: Launcher, problem: CrossChannelProblem, together: int, *images: Array, out: Array) -> None:
    """Run the form of ``forward`` or ``gradient`` for whole pixels."""
    spec, (n, height, width, channels) = problem.spec, problem.source_shape
    constants = "#define WHOLE_PIXELS", f"#define THREADS {THREADS}", f"#define SLOTS {SLOTS}"
    known = *types(WIDE, Storage=images[-1], Gradient=images[0]), *constants
    pixels, before = n * height * width, spec.window.center
    sizes = pixels, together, *divisor(channels // WIDE), before, spec.kernel_size - 1 - before
    buffers = [*images, np.array(sizes, np.uint32), _parameters(problem)]
    launch.into(PARTS, problem.method, buffers, out, known, -(-pixels // together) * THREADS)


def _sizes(problem: CrossChannelProblem) -> Array:
    """Return the struct ``ChannelSizes``, of the simple form."""
    n, height, width, channels = problem.source_shape
    return np.array([n * height * width * channels, *divisor(channels)], np.uint32)


def _parameters(problem: CrossChannelProblem) -> Array:
    """Return the struct ``Parameters``."""
    spec = problem.spec
    scale = spec.alpha / spec.kernel_size
    return np.array([spec.beta, spec.delta, scale, 2 * scale * spec.beta], np.float32)


IMPLEMENTATIONS = {
    (CrossChannelNormalization, "forward"): forward,
    (CrossChannelNormalization, "gradient"): gradient,
}
