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
from mpsref_metal.launch import Launcher, typedef

FEW = 4096
"""Maximum number of values of a group that is reduced by one simdgroup; larger groups use eight."""

GROUPS = np.dtype(
    [
        *((name, np.uint32) for name in ("elements", "pixels", "channels", "groups", "size", "count")),
        ("epsilon", np.float32),
    ]
)
"""The struct ``Groups``."""


def forward(launch: Launcher, problem: NormalizationForward, x: Array, *vectors: Array, out: Array) -> None:
    """Run ``forward``: statistics, then y."""
    gamma, beta = problem.parameters(vectors, np.float32)
    statistics, groups, known = _statistics(launch, problem, x)
    buffers = [x, gamma, beta, *statistics, groups]
    launch.into(("group_normalization",), "forward", buffers, out, known)


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
    statistics, groups, known = _statistics(launch, problem, x, g)
    part, per_channel, per_group = ("group_normalization",), (dgamma.shape, np.float32), _per_group(problem)
    sums = launch.run(
        part, "channel_sums", [g, x, *statistics, groups], [per_channel] * 2, known, dgamma.size * _threads(problem)
    )
    means = launch.run(part, "group_means", [gamma, *sums, groups], [per_group] * 2, known)
    buffers = [g, x, gamma, *statistics, *means, groups]
    launch.into(part, "gradient", buffers, dx, known)
    dgamma[...], dbeta[...] = sums


def _statistics(
    launch: Launcher, problem: GroupsProblem, x: Array, *g: Array
) -> tuple[list[Array], Array, tuple[str, ...]]:
    """Run ``statistics``; return mean and r, the struct ``Groups``, and the compile-time constants."""
    threads, per_group = _threads(problem), _per_group(problem)
    known = typedef("Storage", x), typedef("Gradient", (*g, x)[0]), f"#define THREADS {threads}"
    _, height, width, channels = problem.source_shape
    sizes = x.size, height * width, channels, problem.groups, channels // problem.groups, problem.count
    groups = np.array((*sizes, problem.spec.epsilon), GROUPS)
    count = math.prod(per_group[0]) * threads
    results = launch.run(("group_normalization",), "statistics", [x, groups], [per_group] * 2, known, count)
    return results, groups, known


def _per_group(problem: GroupsProblem) -> tuple[tuple[int, int], type[np.float32]]:
    return (problem.source_shape[0], problem.groups), np.float32


def _threads(problem: GroupsProblem) -> int:
    return 32 if problem.count <= FEW else 256


IMPLEMENTATIONS = {
    (spec, method): function
    for spec in (InstanceNormalization, GroupNormalization)
    for method, function in (("forward", forward), ("gradient", gradient))
}
