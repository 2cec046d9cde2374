"""Instance and group normalization through ``msl/group_normalization.metal`` and ``msl/held_groups.metal``."""

from __future__ import annotations

import math
from typing import NamedTuple

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
HELD_FILES = ("held_groups",)

MEMBERS = (32, 64), (256, math.inf)
"""Numbers of threads that merge the moments of a group, with the maximum number of these moments."""

LEAST, SUMS = 64, 2**18
"""Minimum number of pixels of a chunk, which one thread adds up, and approximate number of sums of chunks."""

DIVISORS = "pixels", "channels", "chunks"
GROUPS = np.dtype(
    [
        ("count", "u4"),
        *((name, "u4", (4,)) for name in DIVISORS),
        *((name, "u4") for name in ("in_a_chunk", "size")),
        *((name, "f4") for name in ("values", "epsilon")),
    ]
)
"""The struct ``Groups``."""

HELD = 8
"""Number of packs of an image that a thread of ``held_groups`` keeps in registers."""

CHANNELS, THREADS = 16, (64, 128, 256, 512)
"""Minimum number of neighbouring channels of a slab, and the numbers of threads of a threadgroup."""

MOST_COLUMNS = 16
"""Maximum number of packs of a pixel in a slab, as in ``msl/held_groups.metal``."""

SLABS = np.dtype(
    [
        *((name, "u4") for name in ("pixels", "channels", "slabs", "columns", "size")),
        *((name, "f4") for name in ("values", "epsilon")),
    ]
)


class Slabs(NamedTuple):
    """The threadgroups of ``held_groups``: packs of a slab, threads, and channels of a pack."""

    columns: int
    threads: int
    width: int

    def arguments(self, problem: GroupsProblem, x: Array, g: Array) -> tuple[Array, tuple[str, ...], int]:
        """Return the struct ``Slabs``, the compile-time constants, and the number of threads."""
        n, height, columns, channels = problem.source_shape
        packs, size = channels // self.width, channels // problem.groups
        slabs = packs // self.columns
        sizes = height * columns, packs, slabs, self.columns
        numbers = size // self.width if size > 1 else 0, problem.count, problem.spec.epsilon
        known = (
            *types(self.width, Storage=x, Gradient=g),
            f"#define THREADS {self.threads}",
            f"constant constexpr uint HELD = {HELD};",
        )
        return np.array([(*sizes, *numbers)], SLABS), known, n * slabs * self.threads


def forward(launch: Launcher, problem: NormalizationForward, x: Array, *vectors: Array, out: Array) -> None:
    """Run ``forward``: statistics, then y."""
    gamma, beta = problem.parameters(vectors, np.float32)
    width = width_of(x.shape[3], x, gamma, beta, out)
    if slabs := slabs_of(problem, width):
        sizes, known, count = slabs.arguments(problem, x, x)
        launch.into(HELD_FILES, "held_forward", [x, gamma, beta, sizes], out, known, count)
        return
    known = _known(problem, width, x, x)
    per_chunk, per_channel = (_per_chunk(problem), np.float32), ((x.shape[0], x.shape[3]), np.float32)
    chunks = math.prod(_per_chunk(problem)) // width
    buffers = [x, _groups(problem, chunks, width)]
    moments = launch.run(FILES, "moments_of_chunks", buffers, [per_chunk] * 2, known, chunks)
    merging, threads = _merging(problem)
    buffers = [*moments, _groups(problem, threads, 1)]
    statistics = launch.run(FILES, "statistics", buffers, [per_channel] * 2, merging, threads)
    count = out.size // width
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
    width = width_of(x.shape[3], g, x, gamma, *out)
    if slabs := slabs_of(problem, width):
        sizes, known, count = slabs.arguments(problem, x, g)
        launch.into(HELD_FILES, "held_gradient", [g, x, gamma, sizes], out, known, count)
        return
    known = _known(problem, width, x, g)
    per_chunk, per_channel = (_per_chunk(problem), np.float32), (dgamma.shape, np.float32)
    count = math.prod(_per_chunk(problem)) // width
    buffers = [g, x, _groups(problem, count, width)]
    *moments, products, gradients = launch.run(
        FILES, "moments_and_sums_of_chunks", buffers, [per_chunk] * 4, known, count
    )
    merging, threads = _merging(problem)
    of_group = _groups(problem, threads, 1)
    statistics = launch.run(FILES, "statistics", [*moments, of_group], [per_channel] * 2, merging, threads)
    count = dgamma.size // width
    buffers = [x, products, gradients, *statistics, _groups(problem, count, width)]
    sums = launch.run(FILES, "channel_sums", buffers, [per_channel] * 2, known, count)
    means = launch.run(FILES, "group_means", [gamma, *sums, of_group], [per_channel] * 2, merging, threads)
    count = dx.size // width
    buffers = [g, x, gamma, *statistics, *means, _groups(problem, count, width)]
    launch.into(FILES, "gradient", buffers, dx, known, count)
    dgamma[...], dbeta[...] = sums


def slabs_of(problem: GroupsProblem, width: int) -> Slabs | None:
    """Return the slabs of images whose groups fit in the registers of a threadgroup, or None."""
    _, height, length, channels = problem.source_shape
    size = channels // problem.groups
    width = width if size == 1 or size % width == 0 else 1
    packs, of_group = channels // width, max(1, size // width)
    if of_group & (of_group - 1):
        return None
    for threads in THREADS:
        columns = min(packs & -packs, MOST_COLUMNS)  # the largest power of 2 that divides the packs
        while columns >= of_group and (columns == packs or columns * width >= CHANNELS):
            if height * length <= HELD * threads // columns:
                return Slabs(columns, threads, width)
            columns //= 2
    return None


def _merging(problem: GroupsProblem) -> tuple[tuple[str, ...], int]:
    """Return the compile-time constants of functions with a threadgroup for each group, and the number of threads."""
    of_group = _chunks(problem)[1] * problem.source_shape[3] // problem.groups
    members = next(number for number, most in MEMBERS if of_group <= most)
    known = *types(1, Storage=np.float32, Gradient=np.float32), f"#define THREADS {members}"
    return known, problem.source_shape[0] * problem.groups * members


def _known(problem: GroupsProblem, width: int, x: Array, g: Array) -> tuple[str, ...]:
    """Return the compile-time constants: the types of pixels, and whether sums are short."""
    return *types(width, Storage=x, Gradient=g), *short_sums(max(_chunks(problem)))


def _chunks(problem: GroupsProblem) -> tuple[int, int]:
    """Return the number of pixels of a chunk, and the number of chunks of an image."""
    n, height, columns, channels = problem.source_shape
    most = max(1, SUMS // (n * channels))
    in_a_chunk = max(LEAST, -(-height * columns // most))
    return in_a_chunk, -(-height * columns // in_a_chunk)


def _per_chunk(problem: GroupsProblem) -> tuple[int, int, int]:
    """Return the shape of values for each chunk and channel."""
    n, _, _, channels = problem.source_shape
    return n, _chunks(problem)[1], channels


def _groups(problem: GroupsProblem, count: int, width: int) -> Array:
    """Return the struct ``Groups``."""
    _, height, columns, channels = problem.source_shape
    in_a_chunk, chunks = _chunks(problem)
    divisors = map(divisor, (height * columns, channels // width, chunks))
    sizes = in_a_chunk, channels // problem.groups
    return np.array((count, *divisors, *sizes, problem.count, problem.spec.epsilon), GROUPS)


IMPLEMENTATIONS = {
    (spec, method): function
    for spec in (InstanceNormalization, GroupNormalization)
    for method, function in (("forward", forward), ("gradient", gradient))
}
