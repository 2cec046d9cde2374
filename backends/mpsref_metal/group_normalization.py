"""Instance and group normalization through ``msl/group_normalization.metal``."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.group_normalization import (
    GroupNormalization,
    GroupsProblem,
    InstanceNormalization,
    NormalizationForward,
    NormalizationGradient,
)
from mpsref_metal.launch import Launcher, divisor, short_sums, types, width_of

FILES = "moments", "group_normalization"

FEW = 64
"""Maximum number of moments of a group that one SIMD group merges; two merge more."""

LEAST, SUMS = 64, 2**20
"""Minimum number of pixels of a part, which one thread adds up, and approximate number of sums of parts."""

DIVISORS = "pixels", "channels", "parts"
GROUPS = np.dtype(
    [
        ("count", "u4"),
        *((name, "u4", (4,)) for name in DIVISORS),
        *((name, "u4") for name in ("in_a_part", "size")),
        *((name, "f4") for name in ("values", "epsilon")),
    ]
)
"""The struct ``Groups``."""


def forward(launch: Launcher, problem: NormalizationForward, x: Array, *vectors: Array, out: Array) -> None:
    """Run ``forward``: statistics, then y."""
    gamma, beta = problem.parameters(vectors, np.float32)
    width = width_of(x.shape[3], x, gamma, beta, out)
    known = _known(problem, width, x, x)
    count = out.size // width
    statistics = _statistics(launch, problem, x, width, known)
    buffers = [x, gamma, beta, *statistics, _groups(problem, count, width)]
    launch.into(FILES, "forward", buffers, out, known, count)


def gradient(
    launch: Launcher,
    problem: NormalizationGradient,
    g: Array,
    x: Array,
    *vectors: Array,
    out: tuple[Array, Array, Array],
) -> None:
    """Run ``gradient``: statistics, dgamma and dbeta, their means over each group, then dx."""
    dx, dgamma, dbeta = out
    gamma = problem.parameters(vectors, np.float32)
    width = width_of(x.shape[3], g, x, gamma, dx)
    known = _known(problem, width, x, g)
    statistics = _statistics(launch, problem, x, width, known)
    per_part, per_channel = (_per_part(problem), np.float32), (dgamma.shape, np.float32)
    count = math.prod(_per_part(problem)) // width
    buffers = [g, x, *statistics, _groups(problem, count, width)]
    parts = launch.run(FILES, "sums_of_parts", buffers, [per_part] * 2, known, count)
    count = dgamma.size // width
    sums = launch.run(FILES, "channel_sums", [*parts, _groups(problem, count, width)], [per_channel] * 2, known, count)
    buffers = [gamma, *sums, _groups(problem, dgamma.size, 1)]
    means = launch.run(FILES, "group_means", buffers, [per_channel] * 2, types(1, Storage=x, Gradient=g))
    count = dx.size // width
    buffers = [g, x, gamma, *statistics, *means, _groups(problem, count, width)]
    launch.into(FILES, "gradient", buffers, dx, known, count)
    dgamma[...], dbeta[...] = sums


def _statistics(launch: Launcher, problem: GroupsProblem, x: Array, width: int, known: tuple[str, ...]) -> list[Array]:
    """Run ``moments_of_parts`` and ``statistics``; return mean and r of the group of each channel of each image."""
    n, _, _, channels = problem.source_shape
    count = math.prod(_per_part(problem)) // width
    moments = launch.run(
        FILES,
        "moments_of_parts",
        [x, _groups(problem, count, width)],
        [(_per_part(problem), np.float32)] * 2,
        known,
        count,
    )
    members = 32 if _parts(problem)[1] * channels // problem.groups <= FEW else 64
    threads = n * problem.groups * members
    merging = *types(1, Storage=x, Gradient=x), f"#define THREADS {members}"
    buffers = [*moments, _groups(problem, threads, 1)]
    return launch.run(FILES, "statistics", buffers, [((n, channels), np.float32)] * 2, merging, threads)


def _known(problem: GroupsProblem, width: int, x: Array, g: Array) -> tuple[str, ...]:
    """Return the compile-time constants: the types of pixels, and whether sums are short."""
    return *types(width, Storage=x, Gradient=g), *short_sums(max(_parts(problem)))


def _parts(problem: GroupsProblem) -> tuple[int, int]:
    """Return the number of pixels of a part, and the number of parts of an image."""
    n, height, columns, channels = problem.source_shape
    most = max(1, SUMS // (n * channels))
    in_a_part = max(LEAST, -(-height * columns // most))
    return in_a_part, -(-height * columns // in_a_part)


def _per_part(problem: GroupsProblem) -> tuple[int, int, int]:
    """Return the shape of values for each part and channel."""
    n, _, _, channels = problem.source_shape
    return n, _parts(problem)[1], channels


def _groups(problem: GroupsProblem, count: int, width: int) -> Array:
    """Return the struct ``Groups``."""
    _, height, columns, channels = problem.source_shape
    in_a_part, parts = _parts(problem)
    divisors = map(divisor, (height * columns, channels // width, parts))
    sizes = in_a_part, channels // problem.groups
    return np.array((count, *divisors, *sizes, problem.count, problem.spec.epsilon), GROUPS)


IMPLEMENTATIONS = {
    (spec, method): function
    for spec in (InstanceNormalization, GroupNormalization)
    for method, function in (("forward", forward), ("gradient", gradient))
}
