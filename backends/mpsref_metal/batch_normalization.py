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
from mpsref_metal.launch import Launcher, store, typedef
from mpsref_metal.neuron import neuron_parameters

SOURCE = "neuron", "batch_normalization"

GROUP = 64
"""Threads of the threadgroup that adds up the chunks of a channel, as in the MSL source."""

LEAST, CHUNKS = 64, 512
"""Minimum number of pixels of a chunk, which one thread adds up, and maximum number of chunks."""

BATCH = np.dtype(
    [(name, "u4") for name in ("count", "channels", "pixels", "in_a_chunk", "chunks", "before")] + [("epsilon", "f4")]
)


def statistics(launch: Launcher, problem: Statistics, x: Array, *state: Array, out: tuple[Array, Array]) -> None:
    """Run ``statistics_of_parts``, then ``statistics``."""
    known = _known(problem, Inputs(x))
    _reduce(launch, problem, ("statistics_of_parts", "statistics"), [x], state, known, out)


def forward(launch: Launcher, problem: BatchForward, *inputs: Array, out: Array) -> None:
    """Run ``forward``."""
    given = problem.named(inputs)
    buffers = [given.x, given.mean, given.variance, *_scale(given), neuron_parameters(problem.spec.neuron)]
    batch = _batch(problem, out.size)
    launch.into(SOURCE, "forward", [*buffers, batch], out, _known(problem, given))


def statistics_gradient(
    launch: Launcher, problem: StatisticsGradient, *inputs: Array, out: tuple[Array, Array]
) -> None:
    """Run ``sums_of_parts``, then ``statistics_gradient``."""
    given = problem.named(inputs)
    buffers = [given.g, given.x, given.mean, given.variance, *_scale(given), neuron_parameters(problem.spec.neuron)]
    state = (given.dbeta, given.dgamma) if problem.count else ()
    _reduce(launch, problem, ("sums_of_parts", "statistics_gradient"), buffers, state, _known(problem, given), out)


def gradient(launch: Launcher, problem: Gradient, *inputs: Array, out: Array) -> None:
    """Run ``gradient``."""
    given = problem.named(inputs)
    sums = (given.dbeta, given.dgamma) if problem.count else (np.zeros(given.mean.shape, np.float32),) * 2
    buffers = [given.g, given.x, given.mean, given.variance, *_scale(given), *sums]
    buffers += [neuron_parameters(problem.spec.neuron), _batch(problem, out.size, problem.count)]
    launch.into(SOURCE, "gradient", buffers, out, _known(problem, given))


def _reduce(
    launch: Launcher,
    problem: Reduction,
    stages: tuple[str, str],
    buffers: list[Array],
    state: tuple[Array, ...],
    known: tuple[str, ...],
    out: tuple[Array, Array],
) -> None:
    """Reduce chunks of pixels, then reduce the chunks together with the state; fill ``out``."""
    channels = problem.channels
    batch = _batch(problem, _chunks(problem)[1] * channels, problem.count)
    of_chunks = [((int(batch["chunks"][0]), channels), np.float32)] * 2
    chunks = launch.run(SOURCE, stages[0], [*buffers, batch], of_chunks, known)
    before = state or (np.zeros(channels, np.float32),) * 2
    results = [((channels,), np.float32)] * 2
    joined = launch.run(SOURCE, stages[1], [*chunks, *before, batch], results, known, count=channels * GROUP)
    for result, target in zip(joined, out, strict=True):
        store(result, target)


def _chunks(problem: BatchProblem) -> tuple[int, int]:
    """Return the number of pixels of a chunk, and the number of chunks."""
    in_a_chunk = max(LEAST, -(-problem.pixels // CHUNKS))
    return in_a_chunk, -(-problem.pixels // in_a_chunk)


def _batch(problem: BatchProblem, count: int, before: int = 0) -> Array:
    """Return the struct ``Batch``."""
    with np.errstate(over="ignore"):
        epsilon = np.float32(problem.spec.epsilon)
    values = (count, problem.channels, problem.pixels, *_chunks(problem), before, epsilon)
    return np.array([values], BATCH)


def _known(problem: BatchProblem, given: Inputs) -> tuple[str, ...]:
    """Return the compile-time constants: the types of pixels."""
    g = given.x if given.g is None else given.g
    return typedef("Storage", given.x), typedef("Gradient", g)


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
