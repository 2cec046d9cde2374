"""Instance and group normalization: two passes over the pixels, forward and gradient.

The first pass adds up, for each channel of each chunk of pixels, ``d`` and ``d**2`` (the gradient also ``g`` and
``g d``), where ``d = x - k`` and k is the chunk's first pixel: a constant channel has d = 0 throughout, and a mean far
from 0 costs no digits. A chunk is short, so its sums are float32; means and squared deviations of the chunks, then of
the channels of a group, are merged in float64, in a fixed order. The second pass writes the result.

Pixels are worked on in rows of *lanes*: several pixels side by side, so that rows are long also for few channels.
Workspace: the sums of each chunk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.group_normalization import (
    GroupNormalization,
    GroupsProblem,
    InstanceNormalization,
    NormalizationForward,
    NormalizationGradient,
)
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.simd.half import as_storage, load, store
from mpsref_cpu.threads import for_rows

LANES = 256
"""A row has about so many elements, or one pixel."""

ROWS = 128
"""Rows of a chunk. The error of a chunk's sums grows with it; 128 leave most of the bound to the data."""

WORK = 8
"""To merge a sum takes about as long as to add up so many pixels."""


class Sizes(NamedTuple):
    """How an image is cut up."""

    pixels: int
    channels: int
    row: int
    """Pixels of a row of lanes."""
    chunk: int
    """Pixels of a chunk, but for the last of an image."""
    chunks: int
    """Chunks of an image."""

    @classmethod
    def of(cls, problem: GroupsProblem) -> Sizes:
        """Cut the images of a problem up."""
        _, height, width, channels = problem.source_shape
        pixels = height * width
        row = min(pixels, max(1, LANES // channels))
        chunk = min(pixels, row * ROWS)
        return cls(pixels, channels, row, chunk, -(-pixels // chunk))


def forward(problem: NormalizationForward, x: Array, *vectors: Array, out: Array) -> None:
    """Fill y (N, H, W, C) from x, and from gamma and beta (C,) where they are given."""
    gamma, beta = problem.parameters(vectors, np.float32)
    pixels, results, sizes, n = as_storage(x), as_storage(out), Sizes.of(problem), x.shape[0]
    sums = np.empty((n * sizes.chunks, 2, sizes.channels), np.float32)
    factors = np.empty((n, 3, sizes.channels), np.float32)
    groups, epsilon = problem.groups, problem.spec.epsilon
    for_rows(_add_up, n * sizes.chunks, pixels, sums, sizes, nbytes=x.nbytes)
    for_rows(_factors, n, pixels, sums, sizes, groups, epsilon, gamma, beta, factors, nbytes=WORK * sums.nbytes)
    for_rows(_normalize, n * sizes.chunks, pixels, factors, results, sizes, nbytes=x.nbytes + out.nbytes)


def gradient(
    problem: NormalizationGradient, g: Array, x: Array, *vectors: Array, out: tuple[Array, Array, Array]
) -> None:
    """Fill dx (N, H, W, C), dgamma and dbeta (N, C) from g and x, and from gamma (C,) where it is given."""
    dx, dgamma, dbeta = out
    gamma = problem.parameters(vectors, np.float32)
    gradients, pixels, results, sizes, n = as_storage(g), as_storage(x), as_storage(dx), Sizes.of(problem), x.shape[0]
    sums = np.empty((n * sizes.chunks, 4, sizes.channels), np.float32)
    factors = np.zeros((n, 4, sizes.channels), np.float32)
    groups, epsilon = problem.groups, problem.spec.epsilon
    nbytes, chunks = g.nbytes + x.nbytes, n * sizes.chunks
    for_rows(_add_up_both, chunks, gradients, pixels, sums, sizes, nbytes=nbytes)
    for_rows(_slopes, n, pixels, sums, sizes, groups, epsilon, gamma, dgamma, dbeta, factors, nbytes=WORK * sums.nbytes)
    for_rows(_differentiate, chunks, gradients, pixels, factors, results, sizes, nbytes=nbytes + dx.nbytes)


# Indices are unsigned, because a signed one makes numba ask each time whether it counts from the end.


@compiled
def _add_up(begin: int, end: int, source: Any, sums: Any, sizes: Any) -> None:
    """Add up d and d**2 over the pixels of the chunks ``begin`` to ``end``, counted through all images."""
    pixels, channels, row, chunk, chunks = sizes
    lanes = row * channels
    first, total, square = (np.empty(lanes, np.float32), np.empty(lanes, np.float32), np.empty(lanes, np.float32))
    for unit in range(begin, end):
        image, k = divmod(unit, chunks)
        p = (image * pixels + k * chunk) * channels
        stop = (image * pixels + min(pixels, (k + 1) * chunk)) * channels
        _begin(source, p, channels, first)
        total[:] = 0
        square[:] = 0
        while p < stop:
            if p + 4 * lanes <= stop:
                _add_rows(source, p, first, total, square)
                p += 4 * lanes
            else:
                _add_row(source, p, min(lanes, stop - p), first, total, square)
                p += lanes
        _fold(total, sums[unit, 0])
        _fold(square, sums[unit, 1])


@inlined
def _begin(source: Any, p: int, channels: int, first: Any) -> None:
    """Set each lane to its channel of the pixel that begins at ``p``."""
    q = np.uintp(p)
    for start in range(np.uintp(0), np.uintp(first.size), np.uintp(channels)):
        for c in range(np.uintp(channels)):
            first[start + c] = load(source[q + c])


@inlined
def _add_rows(source: Any, p: int, first: Any, total: Any, square: Any) -> None:
    n = np.uintp(first.size)
    q0 = np.uintp(p)
    q1, q2, q3 = q0 + n, q0 + np.uintp(2) * n, q0 + np.uintp(3) * n
    for i in range(n):
        k = first[i]
        d0, d1 = load(source[q0 + i]) - k, load(source[q1 + i]) - k
        d2, d3 = load(source[q2 + i]) - k, load(source[q3 + i]) - k
        total[i] += (d0 + d1) + (d2 + d3)
        square[i] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)


@inlined
def _add_row(source: Any, p: int, n: int, first: Any, total: Any, square: Any) -> None:
    q = np.uintp(p)
    for i in range(np.uintp(n)):
        d = load(source[q + i]) - first[i]
        total[i] += d
        square[i] += d * d


@compiled
def _add_up_both(begin: int, end: int, gradients: Any, source: Any, sums: Any, sizes: Any) -> None:
    """Like ``_add_up``, with the sums of g and g d after those of d and d**2."""
    pixels, channels, row, chunk, chunks = sizes
    lanes = row * channels
    first, total, square = (np.empty(lanes, np.float32), np.empty(lanes, np.float32), np.empty(lanes, np.float32))
    upstream, product = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    for unit in range(begin, end):
        image, k = divmod(unit, chunks)
        p = (image * pixels + k * chunk) * channels
        stop = (image * pixels + min(pixels, (k + 1) * chunk)) * channels
        _begin(source, p, channels, first)
        total[:] = 0
        square[:] = 0
        upstream[:] = 0
        product[:] = 0
        while p < stop:
            if p + 2 * lanes <= stop:
                _add_two_of_both(gradients, source, p, first, total, square, upstream, product)
                p += 2 * lanes
            else:
                n = min(lanes, stop - p)
                _add_row(source, p, n, first, total, square)
                _add_products(gradients, source, p, n, first, upstream, product)
                p += lanes
        _fold(total, sums[unit, 0])
        _fold(square, sums[unit, 1])
        _fold(upstream, sums[unit, 2])
        _fold(product, sums[unit, 3])


@inlined
def _add_two_of_both(
    gradients: Any, source: Any, p: int, first: Any, total: Any, square: Any, upstream: Any, product: Any
) -> None:
    n = np.uintp(first.size)
    q0 = np.uintp(p)
    q1 = q0 + n
    for i in range(n):
        k = first[i]
        g0, g1 = load(gradients[q0 + i]), load(gradients[q1 + i])
        d0, d1 = load(source[q0 + i]) - k, load(source[q1 + i]) - k
        total[i] += d0 + d1
        square[i] += d0 * d0 + d1 * d1
        upstream[i] += g0 + g1
        product[i] += g0 * d0 + g1 * d1


@inlined
def _add_products(gradients: Any, source: Any, p: int, n: int, first: Any, upstream: Any, product: Any) -> None:
    q = np.uintp(p)
    for i in range(np.uintp(n)):
        g = load(gradients[q + i])
        upstream[i] += g
        product[i] += g * (load(source[q + i]) - first[i])


@inlined
def _fold(lanes: Any, into: Any) -> None:
    """Add up the lanes of each channel."""
    channels = np.uintp(into.size)
    for c in range(channels):
        into[c] = lanes[c]
    for start in range(channels, np.uintp(lanes.size), channels):
        for c in range(channels):
            into[c] += lanes[start + c]


@compiled
def _factors(
    begin: int,
    end: int,
    source: Any,
    sums: Any,
    sizes: Any,
    groups: int,
    epsilon: float,
    gamma: Any,
    beta: Any,
    factors: Any,
) -> None:
    """Set ``factors`` (N, 3, C) to mean, scale and shift of ``y = scale (x - mean) + shift``."""
    _, channels, _, _, _ = sizes
    mean, r = np.empty(channels), np.empty(channels)
    for image in range(begin, end):
        _statistics(source, sums, image, sizes, groups, epsilon, mean, r)
        for c in range(np.uintp(channels)):
            factors[image, 0, c], factors[image, 1, c], factors[image, 2, c] = mean[c], gamma[c] * r[c], beta[c]


@compiled
def _slopes(
    begin: int,
    end: int,
    source: Any,
    sums: Any,
    sizes: Any,
    groups: int,
    epsilon: float,
    gamma: Any,
    dgamma: Any,
    dbeta: Any,
    factors: Any,
) -> None:
    """Fill dgamma and dbeta (N, C), and ``factors`` (N, 4, C): mean, a, b and c of ``dx = a g - b - c (x - mean)``.

    The factors stay zeros if there is nothing to normalize with.
    """
    pixels, channels, _, chunk, chunks = sizes
    size = channels // groups
    mean, r, of_g, product = np.empty(channels), np.empty(channels), np.empty(channels), np.empty(channels)
    for image in range(begin, end):
        _statistics(source, sums, image, sizes, groups, epsilon, mean, r)
        of_g[:] = 0
        product[:] = 0
        for k in range(chunks):
            unit = image * chunks + k
            start = np.uintp((image * pixels + k * chunk) * channels)
            for c in range(np.uintp(channels)):
                away = np.float64(load(source[start + c])) - mean[c]
                of_g[c] += sums[unit, 2, c]
                product[c] += sums[unit, 3, c] + away * sums[unit, 2, c]
        for c in range(np.uintp(channels)):
            product[c] *= r[c]
            dgamma[image, c], dbeta[image, c] = product[c], of_g[c]
        if pixels * size == 1:
            continue
        for low in range(0, channels, size):
            of_h, of_product = 0.0, 0.0
            for c in range(np.uintp(low), np.uintp(low + size)):
                of_h += gamma[c] * of_g[c]
                of_product += gamma[c] * product[c]
            of_h *= r[low] / (pixels * size)
            of_product *= r[low] * r[low] / (pixels * size)
            for c in range(np.uintp(low), np.uintp(low + size)):
                factors[image, 0, c], factors[image, 1, c] = mean[c], gamma[c] * r[c]
                factors[image, 2, c], factors[image, 3, c] = of_h, of_product


@inlined
def _statistics(source: Any, sums: Any, image: int, sizes: Any, groups: int, epsilon: float, mean: Any, r: Any) -> None:
    """Set mean and r of the channels of an image to those of their groups.

    First the chunks of each channel are merged, then the channels of each group, which have equal counts.
    """
    pixels, channels, _, chunk, chunks = sizes
    start, first_unit, size = np.uintp(image * pixels * channels), image * chunks, channels // groups
    squares = np.zeros(channels)
    mean[:] = 0
    for k in range(chunks):
        at, count = start + np.uintp(k * chunk * channels), np.float64(min(chunk, pixels - k * chunk))
        for c in range(np.uintp(channels)):
            away = np.float64(load(source[at + c])) - np.float64(load(source[start + c]))
            mean[c] += (away * count + sums[first_unit + k, 0, c]) / pixels
    for k in range(chunks):
        at, count = start + np.uintp(k * chunk * channels), np.float64(min(chunk, pixels - k * chunk))
        for c in range(np.uintp(channels)):
            total = np.float64(sums[first_unit + k, 0, c])
            inside = sums[first_unit + k, 1, c] - total * (total / count)
            away = np.float64(load(source[at + c])) - np.float64(load(source[start + c]))
            between = away + total / count - mean[c]
            squares[c] += (0.0 if inside < 0 else inside) + count * between * between
    for c in range(np.uintp(channels)):
        mean[c] += np.float64(load(source[start + c]))
    n = np.uintp(size)
    shift, deviation = np.zeros(groups), np.zeros(groups)
    for j in range(n):  # groups are the inner loop: a sum waits for the one before
        for group in range(np.uintp(groups)):
            low = group * n
            shift[group] += mean[low + j] - mean[low]
    for group in range(np.uintp(groups)):
        shift[group] /= size
    for j in range(n):
        for group in range(np.uintp(groups)):
            low = group * n
            between = mean[low + j] - mean[low] - shift[group]
            deviation[group] += squares[low + j] + pixels * between * between
    for group in range(np.uintp(groups)):
        deviation[group] = np.true_divide(1.0, np.sqrt(deviation[group] / (pixels * size) + epsilon))
        shift[group] += mean[group * n]
    for group in range(np.uintp(groups)):
        low = group * n
        for c in range(low, low + n):
            mean[c], r[c] = shift[group], deviation[group]


@compiled
def _normalize(begin: int, end: int, source: Any, factors: Any, target: Any, sizes: Any) -> None:
    """Write ``scale (x - mean) + beta`` to the pixels of the chunks ``begin`` to ``end``."""
    pixels, channels, row, chunk, chunks = sizes
    lanes = row * channels
    mean, scale, beta = np.empty(lanes, np.float32), np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    for unit in range(begin, end):
        image, k = divmod(unit, chunks)
        _repeat(factors[image, 0], mean)
        _repeat(factors[image, 1], scale)
        _repeat(factors[image, 2], beta)
        p = (image * pixels + k * chunk) * channels
        stop = (image * pixels + min(pixels, (k + 1) * chunk)) * channels
        while p < stop:
            q = np.uintp(p)
            for i in range(np.uintp(min(lanes, stop - p))):
                target[q + i] = store((load(source[q + i]) - mean[i]) * scale[i] + beta[i], target[0])
            p += lanes


@compiled
def _differentiate(begin: int, end: int, gradients: Any, source: Any, factors: Any, target: Any, sizes: Any) -> None:
    """Write ``a g - b - c (x - mean)`` to the pixels of the chunks ``begin`` to ``end``."""
    pixels, channels, row, chunk, chunks = sizes
    lanes = row * channels
    mean, a = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    b, c = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    for unit in range(begin, end):
        image, k = divmod(unit, chunks)
        _repeat(factors[image, 0], mean)
        _repeat(factors[image, 1], a)
        _repeat(factors[image, 2], b)
        _repeat(factors[image, 3], c)
        p = (image * pixels + k * chunk) * channels
        stop = (image * pixels + min(pixels, (k + 1) * chunk)) * channels
        while p < stop:
            q = np.uintp(p)
            for i in range(np.uintp(min(lanes, stop - p))):
                d = load(source[q + i]) - mean[i]
                target[q + i] = store(load(gradients[q + i]) * a[i] - b[i] - d * c[i], target[0])
            p += lanes


@inlined
def _repeat(channels: Any, lanes: Any) -> None:
    """Set the lanes to the channels, again and again."""
    for start in range(0, lanes.size, channels.size):
        for i in range(channels.size):  # an assignment of slices compiles its error message, too: for two seconds
            lanes[start + i] = channels[i]


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (spec, method): function
    for spec in (InstanceNormalization, GroupNormalization)
    for method, function in (("forward", forward), ("gradient", gradient))
}
