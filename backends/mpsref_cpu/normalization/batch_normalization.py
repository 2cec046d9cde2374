"""Batch normalization: two reductions and two pointwise passes, each of which reads its images once.

Loops run over *strips*, whole pixels with about 512 numbers in all, so that few channels are as fast as many; vectors
(C,) are repeated to the length of a strip. Reductions cut the pixels into blocks whose size depends on the
shape alone, add each block up in float32, several strips at a time, and merge the blocks in float64, in their order:
results do not depend on the number of threads.

A block's sums of ``d = x - shift`` and ``d * d`` give its mean and m2 in one pass. Digits are lost only where the
shift, the first pixel of the block, is far from the mean; then the block, which is still in cache, is added up again.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.batch_normalization import (
    BatchForward,
    BatchNormalization,
    BatchProblem,
    Gradient,
    Reduction,
    Statistics,
    StatisticsGradient,
)
from mpsref.kernels.neuron import Neuron
from mpsref.operations import cached_in_problem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.activation.functions import Identity, slope, split, value
from mpsref_cpu.activation.neuron import activate, differentiate
from mpsref_cpu.compiling import compiled, generic, inlined
from mpsref_cpu.normalization.strip_sums import add_up, allocate_strips, over_strip, repeat
from mpsref_cpu.threads import for_rows

STRIP = 512
"""Approximate number of elements of a strip, which has at least one pixel."""

ROWS = 16
"""Number of strips that are computed at a time."""

TILE = 1024
"""Number of elements of the tiles in which longer strips are processed, so that their vectors stay in cache."""

BLOCKS, LEAST_PIXELS, MOST_STRIPS = 16, 64, 512
"""Number of blocks of a batch, minimum number of pixels and maximum number of strips of a block. Merging takes time."""

FAR = 64
"""Minimum squared distance of a shift from the mean, in variances, at which digits are lost."""


class BatchPlan(NamedTuple):
    """What depends on the problem alone."""

    names: tuple[str, ...]
    """The names of the inputs."""
    strip: int
    strips: int
    fused: Any
    separate: Neuron | None
    """The activation, if it is a pass of its own; ``fused`` is the identity then."""
    ones: Array
    zeros: Array


@cached_in_problem
def _plan(problem: BatchProblem) -> BatchPlan:
    channels = problem.channels
    strip = channels * max(1, STRIP // channels)
    strips = -(-math.prod(problem.source_shape) // strip)
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    return BatchPlan(tuple(problem.input_shapes), strip, strips, *split(problem.spec.neuron), ones, zeros)


def statistics(problem: Statistics, x: Array, *state: Array, out: tuple[Array, Array]) -> None:
    """Fill mean and m2."""
    block, sums = _block(problem), _block_sums(problem)
    for_rows(_statistics, len(sums), x, block, _plan(problem).strip, sums)
    before = np.array(state, np.float64) if problem.count else sums[0]
    _merge(sums, block, problem.pixels, problem.count, before, *out)


def forward(problem: BatchForward, *inputs: Array, out: Array) -> None:
    """Fill y."""
    plan = _plan(problem)
    given = dict(zip(plan.names, inputs, strict=True))
    for_rows(_forward, plan.strips, given["x"], _vectors(plan, problem, given), plan.fused, out)
    if plan.separate:
        activate(plan.separate, out, out)


def statistics_gradient(problem: StatisticsGradient, *inputs: Array, out: tuple[Array, Array]) -> None:
    """Fill dbeta and dgamma."""
    plan = _plan(problem)
    given = dict(zip(plan.names, inputs, strict=True))
    block, sums = _block(problem), _block_sums(problem)
    vectors = _vectors(plan, problem, given)
    g = _through_activation(plan, given, vectors)
    for_rows(_statistics_gradient, len(sums), g, given["x"], vectors, plan.fused, block, sums)
    totals = np.add.reduce(sums)
    if problem.count:
        totals += given["dbeta"], given["dgamma"]
    with np.errstate(over="ignore"):
        out[0][...], out[1][...] = totals


def gradient(problem: Gradient, *inputs: Array, out: Array) -> None:
    """Fill dx; with frozen statistics and no activation x is not read."""
    plan = _plan(problem)
    given = dict(zip(plan.names, inputs, strict=True))
    vectors = _vectors(plan, problem, given, problem.count)
    kernel = _gradient if problem.count else _frozen
    for_rows(kernel, plan.strips, _through_activation(plan, given, vectors), given["x"], vectors, plan.fused, out)


def _through_activation(plan: BatchPlan, given: dict[str, Array], vectors: Array) -> Array:
    """Return the source gradient, multiplied by the slopes of an activation that is not fused."""
    if not plan.separate:
        return given["g"]
    z = np.empty_like(given["x"])
    for_rows(_forward, plan.strips, given["x"], vectors, plan.fused, z)
    differentiate(plan.separate, given["g"], z, z)
    return z


def _block(problem: Reduction) -> int:
    """Return the pixels of a block."""
    most = MOST_STRIPS * max(1, STRIP // problem.channels)
    return min(max(LEAST_PIXELS, -(-problem.pixels // BLOCKS)), most)


def _block_sums(problem: Reduction) -> Array:
    """Return memory for two float64 sums of each channel and block."""
    return np.empty((-(-problem.pixels // _block(problem)), 2, problem.channels))


MEAN, ROOT, GAMMA, BETA, DBETA, DGAMMA, SCALE = range(7)
"""The vectors of a strip; ROOT is r, SCALE is gamma * r, and the two sums, if there are any, are divided by n."""


def _vectors(plan: BatchPlan, problem: BatchProblem, given: dict[str, Array], count: int = 0) -> Array:
    """Return the vectors, a row each, repeated to the length of a strip; with sums over ``count`` pixels, if any."""
    rows = [given["mean"], given["variance"], given.get("gamma", plan.ones), given.get("beta", plan.zeros)]
    if count:
        rows += given["dbeta"], given["dgamma"]
    vectors: Array = _completed(np.concatenate(rows), len(rows), plan.strip, problem.spec.epsilon, count)
    return vectors


# Indices are unsigned: for signed ones numba generates a test for negative values.


@compiled
def _completed(given, rows, strip, epsilon, n):
    """Return all vectors from the first ``rows`` of them, which are ``given`` one after the other."""
    channels = given.size // rows
    vectors = np.empty((SCALE + 1, strip), np.float32)
    for c in range(channels):
        for row in range(rows):
            vectors[row, c] = given[row * channels + c]
        vectors[ROOT, c] = 1 / np.sqrt(np.float64(vectors[ROOT, c]) + epsilon)
        vectors[SCALE, c] = vectors[GAMMA, c] * vectors[ROOT, c]
        for row in range(DBETA, rows):
            vectors[row, c] = np.float64(vectors[row, c]) / n
    for row in range(rows):
        repeat(vectors[row, :channels], vectors[row])
    repeat(vectors[SCALE, :channels], vectors[SCALE])
    return vectors


@compiled
def _statistics(begin, end, x, block, strip, sums):
    """Set mean and m2 of the blocks ``begin`` to ``end``."""
    channels, room = sums.shape[2], allocate_strips(3, strip)
    shift, squares = room[0], room[1:]
    for k in range(begin, end):
        start = k * block * channels
        stop = min(start + block * channels, x.size)
        for c in range(channels):
            shift[c] = x[start + c]
        mean, m2 = sums[k, 0], sums[k, 1]
        for _ in range(2):
            repeat(shift[:channels], shift[:strip])
            add_up(x, start, stop, strip, shift, squares, x, None)
            over_strip(squares[0], strip, mean)
            over_strip(squares[1], strip, m2)
            if not _centre((stop - start) // channels, shift, mean, m2):
                break
            _copy(mean, shift[:channels])


@inlined
def _centre(n, shift, mean, m2):
    """Set ``mean`` and ``m2`` from the sums of a block of n pixels; return whether a shift was far from a mean."""
    far, fraction = np.int64(0), 1 / np.float64(n)
    for c in range(np.uintp(mean.size)):
        total = mean[c]
        distance = total * fraction
        rest = m2[c] - total * distance
        far += np.int64(total * distance > FAR * rest)
        mean[c] = shift[c] + distance
        m2[c] = 0 if rest < 0 else rest  # a NaN stays
    return bool(far > 0)


@compiled
def _merge(sums, block, pixels, count, before, to_mean, to_m2):
    """Merge mean and m2 of all blocks, one after the other, and those of ``count`` pixels ``before``."""
    mean, m2 = sums[0, 0], sums[0, 1]
    n = np.float64(min(block, pixels))
    for k in range(1, sums.shape[0]):
        b = np.float64(min(block, pixels - k * block))
        _merge_one(n, mean, m2, b, sums[k, 0], sums[k, 1])
        n += b
    if count > 0:
        _merge_one(n, mean, m2, np.float64(count), before[0], before[1])
    _copy(mean, to_mean)
    _copy(m2, to_m2)


# Loops: numba compiles the error messages of operations on whole arrays too, which takes seconds.


@inlined
def _copy(vector, to):
    for c in range(np.uintp(to.size)):
        to[c] = vector[c]


@inlined
def _merge_one(n, mean, m2, b, mean_b, m2_b):
    """Add b pixels to the mean and m2 of n pixels."""
    fraction = b / (n + b)
    weight = n * fraction
    for c in range(np.uintp(mean.size)):
        delta = mean_b[c] - mean[c]
        mean[c] += delta * fraction
        m2[c] += m2_b[c] + delta * delta * weight


@compiled
def _forward(begin, end, x, vectors, neuron, y):
    """Set the strips ``begin`` to ``end`` of y."""
    strip = vectors.shape[1]
    mean, root, gamma, beta = vectors[MEAN], vectors[ROOT], vectors[GAMMA], vectors[BETA]
    for rows in range(begin, end, ROWS):
        for tile in range(0, strip, TILE):
            for k in range(rows, min(rows + ROWS, end)):
                a = np.uintp(k * strip)
                for i in range(np.uintp(tile), np.uintp(min(tile + TILE, strip, x.size - k * strip))):
                    z = (x[a + i] - mean[i]) * root[i] * gamma[i] + beta[i]
                    y[a + i] = value(neuron, z, i)


@compiled
def _statistics_gradient(begin, end, g, x, vectors, neuron, block, sums):
    """Set the sums of g' and of g' * xhat of the blocks ``begin`` to ``end``."""
    channels, strip = sums.shape[2], vectors.shape[1]
    products = allocate_strips(2, strip)
    for k in range(begin, end):
        start, stop = k * block * channels, min((k + 1) * block * channels, x.size)
        _add_up_products(neuron, g, x, start, stop, vectors, products)
        over_strip(products[0], strip, sums[k, 0])
        over_strip(products[1], strip, sums[k, 1])
        for channel in range(np.uintp(channels)):
            sums[k, 1, channel] *= vectors[ROOT, channel]


@generic
def _add_up_products(neuron, g, x, start, stop, vectors, products):
    """Add the sums of g' and of g' (x - mean), for each element of a strip, to the rows of ``products``."""
    if neuron.instance_class is Identity:
        return lambda neuron, g, x, start, stop, vectors, products: add_up(
            x, start, stop, vectors.shape[1], vectors[MEAN], None, g, products
        )
    return _add_up_slopes


def _add_up_slopes(neuron, g, x, start, stop, vectors, products):
    strip, end = np.uintp(vectors.shape[1]), np.uintp(stop)
    mean, root, gamma, beta = vectors[MEAN], vectors[ROOT], vectors[GAMMA], vectors[BETA]
    first, second = products[0], products[1]
    for tile in range(np.uintp(0), strip, np.uintp(TILE)):
        a, edge = np.uintp(start), min(tile + np.uintp(TILE), strip)
        while a + np.uintp(4) * strip <= end:
            b, c, d = a + strip, a + np.uintp(2) * strip, a + np.uintp(3) * strip
            for i in range(tile, edge):
                m, r, s, t = mean[i], root[i], gamma[i], beta[i]
                ga, xa = _upstream(neuron, g, x, a + i, m, r, s, t, i)
                gb, xb = _upstream(neuron, g, x, b + i, m, r, s, t, i)
                gc, xc = _upstream(neuron, g, x, c + i, m, r, s, t, i)
                gd, xd = _upstream(neuron, g, x, d + i, m, r, s, t, i)
                first[i] += (ga + gb) + (gc + gd)
                second[i] += (ga * xa + gb * xb) + (gc * xc + gd * xd)
            a = d + strip
        while a < end:
            for i in range(tile, min(edge, end - a)):
                ga, xa = _upstream(neuron, g, x, a + i, mean[i], root[i], gamma[i], beta[i], i)
                first[i] += ga
                second[i] += ga * xa
            a += strip


@inlined
def _upstream(neuron, g, x, at, mean, root, gamma, beta, i):
    """Return g' of element ``at``, which is element i of its strip, and its distance from the mean."""
    distance = x[at] - mean
    return g[at] * slope(neuron, distance * root * gamma + beta, i), distance


@compiled
def _gradient(begin, end, g, x, vectors, neuron, dx):
    """Set the strips ``begin`` to ``end`` of dx."""
    strip = vectors.shape[1]
    mean, root, gamma, beta = vectors[MEAN], vectors[ROOT], vectors[GAMMA], vectors[BETA]
    scale, dbeta, dgamma = vectors[SCALE], vectors[DBETA], vectors[DGAMMA]
    for rows in range(begin, end, ROWS):
        for tile in range(0, strip, TILE):
            for k in range(rows, min(rows + ROWS, end)):
                a = np.uintp(k * strip)
                for i in range(np.uintp(tile), np.uintp(min(tile + TILE, strip, x.size - k * strip))):
                    xhat = (x[a + i] - mean[i]) * root[i]
                    dz = g[a + i] * slope(neuron, xhat * gamma[i] + beta[i], i)
                    dx[a + i] = scale[i] * (dz - dbeta[i] - xhat * dgamma[i])


@compiled
def _frozen(begin, end, g, x, vectors, neuron, dx):
    """Set the strips ``begin`` to ``end`` of dx where the statistics are constants."""
    strip = vectors.shape[1]
    mean, root, gamma, beta = vectors[MEAN], vectors[ROOT], vectors[GAMMA], vectors[BETA]
    scale = vectors[SCALE]
    for k in range(begin, end):
        a = np.uintp(k * strip)
        for i in range(np.uintp(min(strip, x.size - k * strip))):
            z = (x[a + i] - mean[i]) * root[i] * gamma[i] + beta[i]
            dx[a + i] = scale[i] * (g[a + i] * slope(neuron, z, i))


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (BatchNormalization, "statistics"): statistics,
    (BatchNormalization, "forward"): forward,
    (BatchNormalization, "statistics_gradient"): statistics_gradient,
    (BatchNormalization, "gradient"): gradient,
}
