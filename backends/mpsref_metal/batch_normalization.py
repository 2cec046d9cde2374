"""Batch normalization through ``msl/batch_normalization.metal``: two launches for a reduction, one otherwise."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.batch_normalization import (
    BatchForward,
    BatchNormalization,
    BatchProblem,
    Gradient,
    Inputs,
    Reduction,
    Statistics,
    StatisticsGradient,
)
from mpsref_metal.launch import Launcher, divisor, short_sums, types, width_of
from mpsref_metal.neuron import neuron_parameters

SOURCE = "neuron", "moments", "batch_normalization"

GROUP = 256
"""Number of threads of the threadgroup that merges the chunks of a channel, ``group_size`` in the MSL source."""

LEAST, CHUNKS, SUMS = 64, 64, 2**18
"""Minimum number of pixels of a chunk, which one thread adds up; maximum numbers of chunks and of their sums."""

BATCH = np.dtype(
    [
        ("count", "u4"),
        ("channels", "u4", (4,)),
        *((name, "u4") for name in ("pixels", "in_a_chunk", "chunks", "before")),
        ("epsilon", "f4"),
    ]
)

TOGETHER = 4
"""Number of pixels that a thread of the gradient computes with the same factors."""


def statistics(launch: Launcher, problem: Statistics, x: Array, *state: Array, out: tuple[Array, Array]) -> None:
    """Run ``statistics_of_chunks``, then ``statistics``."""
    before = state or (np.zeros(problem.channels, np.float32),) * 2
    width = width_of(problem.channels, x, *before, *out)
    sums, batch, known = _of_chunks(launch, problem, "statistics_of_chunks", Inputs(x), [x], width)
    count = problem.channels // width * GROUP
    launch.into(SOURCE, "statistics", [*sums, *before, batch], out, known, count)


def forward(launch: Launcher, problem: BatchForward, *inputs: Array, out: Array) -> None:
    """Run ``forward``."""
    given = problem.named(inputs)
    buffers = [given.x, given.mean, given.variance, *_scale(given), neuron_parameters(problem.spec.neuron)]
    width = width_of(problem.channels, *buffers[:-1], out)
    count = out.size // width
    buffers.append(_batch(problem, count, width, (1, problem.pixels)))
    launch.into(SOURCE, "forward", buffers, out, _known(problem, given, width), count)


def statistics_gradient(
    launch: Launcher, problem: StatisticsGradient, *inputs: Array, out: tuple[Array, Array]
) -> None:
    """Run ``sums_of_chunks``, then ``sums``."""
    given = problem.named(inputs)
    zeros = np.zeros(problem.channels, np.float32)
    before = (given.dbeta, given.dgamma) if problem.count else (zeros, zeros)
    buffers = [given.g, given.x, given.mean, given.variance, *_scale(given), neuron_parameters(problem.spec.neuron)]
    width = width_of(problem.channels, *buffers, *before, *out)
    sums, batch, known = _of_chunks(launch, problem, "sums_of_chunks", given, buffers, width)
    launch.into(SOURCE, "sums", [*sums, *before, batch], out, known, problem.channels // width * GROUP)


def gradient(launch: Launcher, problem: Gradient, *inputs: Array, out: Array) -> None:
    """Run ``gradient``."""
    given = problem.named(inputs)
    sums = (given.dbeta, given.dgamma) if problem.count else (np.zeros(given.mean.shape, np.float32),) * 2
    buffers = [given.g, given.x, given.mean, given.variance, *_scale(given), *sums]
    width = width_of(problem.channels, *buffers, out)
    chunks = -(-problem.pixels // TOGETHER)
    count = chunks * problem.channels // width
    batch = _batch(problem, count, width, (TOGETHER, chunks), problem.count)
    buffers += [neuron_parameters(problem.spec.neuron), batch]
    launch.into(SOURCE, "gradient", buffers, out, _known(problem, given, width), count)


def _of_chunks(
    launch: Launcher, problem: Reduction, function: str, given: Inputs, buffers: list[Array], width: int
) -> tuple[list[Array], Array, tuple[str, ...]]:
    """Return two values for each chunk of pixels and channel, and the last buffer and constants of later functions."""
    in_a_chunk, chunks = _chunks(problem)
    count, known = chunks * problem.channels // width, _known(problem, given, width)
    batch = _batch(problem, count, width, (in_a_chunk, chunks), problem.count)
    of_chunks = [((chunks, problem.channels), np.float32)] * 2
    return launch.run(SOURCE, function, [*buffers, batch], of_chunks, known, count=count), batch, known


def _chunks(problem: BatchProblem) -> tuple[int, int]:
    """Return the number of pixels of a chunk, and the number of chunks."""
    most = max(CHUNKS, SUMS // problem.channels)
    in_a_chunk = max(LEAST, -(-problem.pixels // most))
    return in_a_chunk, -(-problem.pixels // in_a_chunk)


def _batch(problem: BatchProblem, count: int, width: int, chunks: tuple[int, int], before: int = 0) -> Array:
    """Return the struct ``Batch``; ``chunks`` are the number of pixels of a chunk, and of chunks."""
    with np.errstate(over="ignore"):
        epsilon = np.float32(problem.spec.epsilon)
    values = (count, divisor(problem.channels // width), problem.pixels, *chunks, before, epsilon)
    return np.array([values], BATCH)


def _known(problem: BatchProblem, given: Inputs, width: int) -> tuple[str, ...]:
    """Return the compile-time constants: the types of pixels, and whether sums are short."""
    images = types(width, Storage=given.x, Gradient=given.x if given.g is None else given.g)
    return *images, *short_sums(_chunks(problem)[0])


def _scale(given: Inputs) -> tuple[Array, Array]:
    """Return gamma and beta, which default to 1 and 0."""
    gamma = np.ones(given.mean.shape, np.float32) if given.gamma is None else given.gamma
    return gamma, np.zeros(given.mean.shape, np.float32) if given.beta is None else given.beta


IMPLEMENTATIONS = {
    (BatchNormalization, "statistics"): statistics,
    (BatchNormalization, "forward"): forward,
    (BatchNormalization, "statistics_gradient"): statistics_gradient,
    (BatchNormalization, "gradient"): gradient,
}
