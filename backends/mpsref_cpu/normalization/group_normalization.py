"""Instance and group normalization: two passes over the pixels, forward and gradient.

The first pass adds up, for each channel of each chunk of pixels, ``d`` and ``d**2`` (the gradient also ``g`` and
``g d``), where ``d = x - k`` and k is the first pixel of the chunk: a constant channel has d = 0 throughout, and a mean
far from 0 costs no digits. A chunk is short, so its sums are float32; those of the chunks and channels of a group are
merged in float64, in a fixed order. The second pass writes the result.

Loops run over rows of several pixels, so that they are long for few channels too. Workspace: the sums of each chunk.
"""

from __future__ import annotations

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
from mpsref.operations import cached_in_problem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined, uncounted
from mpsref_cpu.normalization.strip_sums import add_up, allocate_strips, over_strip, repeat
from mpsref_cpu.simd.reductions import FEW, sum_of
from mpsref_cpu.simd.vectors import broadcast, load_vector, plus, store_vector, zeros_like
from mpsref_cpu.threads import as_storage, for_rows

ROW = 256
"""Approximate number of elements of a row, which has at least one pixel."""

ROWS = 128
"""Number of rows of a chunk. The error of sums grows with it; with 128 it is a small part of the error bound."""

WORK = 8
"""Number of pixels that are added up in about the time in which a sum is merged."""


class GroupSizes(NamedTuple):
    """How an image is cut."""

    pixels: int
    channels: int
    row: int
    """The number of pixels of a row."""
    chunk: int
    """The number of pixels of a chunk, except the last of an image."""
    chunks: int
    """The number of chunks of an image."""


@cached_in_problem
def _sizes(problem: GroupsProblem) -> GroupSizes:
    _, height, width, channels = problem.source_shape
    pixels = height * width
    row = min(pixels, max(1, ROW // channels))
    chunk = min(pixels, row * ROWS)
    return GroupSizes(pixels, channels, row, chunk, -(-pixels // chunk))


def forward(problem: NormalizationForward, x: Array, *vectors: Array, out: Array) -> None:
    """Fill y (N, H, W, C) from x, and from gamma and beta (C,) where they are given."""
    gamma, beta = problem.parameters(vectors, np.float32)
    sizes, n = _sizes(problem), x.shape[0]
    chunks = n * sizes.chunks
    sums = np.empty((chunks, 2, sizes.channels), np.float32)
    factors = np.empty((n, 3, sizes.channels), np.float32)
    for_rows(_add_up, chunks, x, sums, sizes)
    stored = as_storage(x)  # little of it is read
    groups, epsilon = problem.groups, problem.spec.epsilon
    for_rows(_factors, n, stored, sums, sizes, groups, epsilon, gamma, beta, factors, nbytes=WORK * sums.nbytes)
    for_rows(_normalize, chunks, x, factors, out, sizes)


def gradient(
    problem: NormalizationGradient, g: Array, x: Array, *vectors: Array, out: tuple[Array, Array, Array]
) -> None:
    """Fill dx (N, H, W, C), dgamma and dbeta (N, C) from g and x, and from gamma (C,) where it is given."""
    dx, dgamma, dbeta = out
    gamma = problem.parameters(vectors, np.float32)
    sizes, n = _sizes(problem), x.shape[0]
    chunks = n * sizes.chunks
    sums = np.empty((chunks, 4, sizes.channels), np.float32)
    factors = np.zeros((n, 4, sizes.channels), np.float32)
    for_rows(_add_up_both, chunks, g, x, sums, sizes)
    shape = sizes, problem.groups, problem.spec.epsilon
    for_rows(_slopes, n, as_storage(x), sums, *shape, gamma, dgamma, dbeta, factors, nbytes=WORK * sums.nbytes)
    for_rows(_differentiate, chunks, g, x, factors, dx, sizes)


# Indices are unsigned: for signed ones numba generates a test for negative values.


@compiled
def _add_up(begin, end, source, sums, sizes):
    """Add up d and d**2 over the pixels of the chunks ``begin`` to ``end``, counted through all images."""
    strip, found = sizes.row * sizes.channels, allocate_strips(3, sizes.row * sizes.channels)
    for chunk in range(begin, end):
        start, stop = _begin(source, chunk, found[0, :strip], sizes)
        add_up(source, start, stop, strip, found[0], found[1:], source, None)
        over_strip(found[1], strip, sums[chunk, 0])
        over_strip(found[2], strip, sums[chunk, 1])


@compiled
def _add_up_both(begin, end, gradients, source, sums, sizes):
    """Like ``_add_up``, with the sums of g and g d after those of d and d**2."""
    found = allocate_strips(5, sizes.row * sizes.channels)
    _add_up_both_of_chunks(begin, end, gradients, source, sums, sizes, found)


@uncounted
def _add_up_both_of_chunks(begin, end, gradients, source, sums, sizes, found):
    strip = sizes.row * sizes.channels
    for chunk in range(begin, end):
        start, stop = _begin(source, chunk, found[0, :strip], sizes)
        add_up(source, start, stop, strip, found[0], found[1:3], gradients, found[3:])
        for k in range(4):
            over_strip(found[1 + k], strip, sums[chunk, k])


@inlined
def _begin(source, number, shift, sizes):
    """Return where a chunk begins and ends; set ``shift`` to its first pixel."""
    image, k = divmod(number, sizes.chunks)
    start = (image * sizes.pixels + k * sizes.chunk) * sizes.channels
    for c in range(np.uintp(sizes.channels)):
        shift[c] = source[np.uintp(start) + c]
    repeat(shift[: sizes.channels], shift)
    return start, (image * sizes.pixels + min(sizes.pixels, (k + 1) * sizes.chunk)) * sizes.channels


# These kernels allocate workspace; what they call counts no references, which would take as long as some pixels.


@compiled
def _factors(begin, end, source, sums, sizes, groups, epsilon, gamma, beta, factors):
    """Set ``factors`` (N, 3, C) to mean, scale and shift of ``y = scale (x - mean) + shift``."""
    rows = np.empty((4, sizes.channels))
    _factors_of_images(begin, end, source, sums, sizes, groups, epsilon, gamma, beta, factors, rows)


@uncounted
def _factors_of_images(begin, end, source, sums, sizes, groups, epsilon, gamma, beta, factors, rows):
    mean, r = rows[0], rows[1]
    for image in range(begin, end):
        _statistics(source, sums, image, sizes, groups, epsilon, rows)
        for c in range(np.uintp(sizes.channels)):
            factors[image, 0, c], factors[image, 1, c], factors[image, 2, c] = mean[c], gamma[c] * r[c], beta[c]


@compiled
def _slopes(begin, end, source, sums, sizes, groups, epsilon, gamma, dgamma, dbeta, factors):
    """Fill dgamma and dbeta (N, C), and ``factors`` (N, 4, C): mean, a, b and c of ``dx = a g - b - c (x - mean)``.

    The factors stay zeros if there is nothing to normalize with.
    """
    rows = np.empty((4, sizes.channels))
    _slopes_of_images(begin, end, source, sums, sizes, groups, epsilon, gamma, dgamma, dbeta, factors, rows)


@uncounted
def _slopes_of_images(begin, end, source, sums, sizes, groups, epsilon, gamma, dgamma, dbeta, factors, rows):
    pixels, channels, _, chunk, chunks = sizes
    size = channels // groups
    mean, r, of_g, product = rows[0], rows[1], rows[2], rows[3]
    for image in range(begin, end):
        _statistics(source, sums, image, sizes, groups, epsilon, rows)
        of_g[:] = 0
        product[:] = 0
        for k in range(chunks):
            chunk_number = image * chunks + k
            start = np.uintp((image * pixels + k * chunk) * channels)
            for c in range(np.uintp(channels)):
                away = np.float64(source[start + c]) - mean[c]
                of_g[c] += sums[chunk_number, 2, c]
                product[c] += sums[chunk_number, 3, c] + away * sums[chunk_number, 2, c]
        for c in range(np.uintp(channels)):
            scale, of_xhat = gamma[c] * r[c], product[c] * r[c]
            dgamma[image, c], dbeta[image, c] = of_xhat, of_g[c]
            factors[image, 0, c], factors[image, 1, c] = mean[c], scale
            of_g[c] *= scale
            product[c] = of_xhat * scale * r[c]
        if pixels * size == 1:
            factors[image] = 0
            continue
        _average(of_g, factors[image, 2], size, pixels * size)
        _average(product, factors[image, 3], size, pixels * size)


@inlined
def _statistics(source, sums, image, sizes, groups, epsilon, rows):
    """Set the first of ``rows`` to mean and r of the channels of an image, those of their groups."""
    pixels, channels, _, chunk, chunks = sizes
    first_chunk, number = image * chunks, pixels * (channels // groups)
    mean, r, totals, squares = rows[0], rows[1], rows[2], rows[3]
    totals[:] = 0
    squares[:] = 0
    for k in range(chunks):
        at = np.uintp((image * pixels + k * chunk) * channels)
        count = np.float64(min(chunk, pixels - k * chunk))
        for c in range(np.uintp(channels)):
            totals[c] += source[at + c] * count + sums[first_chunk + k, 0, c]
    _average(totals, mean, channels // groups, number)
    for k in range(chunks):
        at = np.uintp((image * pixels + k * chunk) * channels)
        count = np.float64(min(chunk, pixels - k * chunk))
        fraction = 1 / count
        for c in range(np.uintp(channels)):
            of_d = np.float64(sums[first_chunk + k, 0, c])
            distance = of_d * fraction
            inside = sums[first_chunk + k, 1, c] - of_d * distance
            between = source[at + c] - mean[c] + distance
            squares[c] += (0.0 if inside < 0 else inside) + count * between * between
    _average(squares, r, channels // groups, number)
    for c in range(np.uintp(channels)):
        r[c] = 1 / np.sqrt(r[c] + epsilon)


@uncounted
def _average(values, into, size, number):
    """Set ``into`` to the sum over the group of each channel, divided by ``number``: exact for equal values."""
    if size == 1:
        for c in range(np.uintp(values.size)):
            into[c] = values[c] / number
        return
    n, few = np.uintp(size), np.uintp(FEW)
    for low in range(np.uintp(0), np.uintp(values.size), n):
        lanes, c, end = zeros_like(values, FEW), low, low + n
        while c + few <= end:
            lanes = plus(load_vector(values, c, lanes), lanes)
            c += few
        found = sum_of(lanes) if c > low else 0.0
        while c < end:
            found += values[c]
            c += np.uintp(1)
        found /= number
        c = low
        while c + few <= end:
            store_vector(into, c, broadcast(found, lanes))
            c += few
        while c < end:
            into[c] = found
            c += np.uintp(1)


@compiled
def _normalize(begin, end, source, factors, target, sizes):
    """Write ``scale (x - mean) + beta`` to the pixels of the chunks ``begin`` to ``end``."""
    pixels, channels, row, chunk, chunks = sizes
    size = row * channels
    mean, scale, beta = np.empty(size, np.float32), np.empty(size, np.float32), np.empty(size, np.float32)
    for chunk_number in range(begin, end):
        image, k = divmod(chunk_number, chunks)
        repeat(factors[image, 0], mean)
        repeat(factors[image, 1], scale)
        repeat(factors[image, 2], beta)
        p = (image * pixels + k * chunk) * channels
        stop = (image * pixels + min(pixels, (k + 1) * chunk)) * channels
        while p < stop:
            q = np.uintp(p)
            for i in range(np.uintp(min(size, stop - p))):
                target[q + i] = (source[q + i] - mean[i]) * scale[i] + beta[i]
            p += size


@compiled
def _differentiate(begin, end, gradients, source, factors, target, sizes):
    """Write ``a g - b - c (x - mean)`` to the pixels of the chunks ``begin`` to ``end``."""
    pixels, channels, row, chunk, chunks = sizes
    size = row * channels
    mean, a = np.empty(size, np.float32), np.empty(size, np.float32)
    b, c = np.empty(size, np.float32), np.empty(size, np.float32)
    for chunk_number in range(begin, end):
        image, k = divmod(chunk_number, chunks)
        repeat(factors[image, 0], mean)
        repeat(factors[image, 1], a)
        repeat(factors[image, 2], b)
        repeat(factors[image, 3], c)
        p = (image * pixels + k * chunk) * channels
        stop = (image * pixels + min(pixels, (k + 1) * chunk)) * channels
        while p < stop:
            q = np.uintp(p)
            for i in range(np.uintp(min(size, stop - p))):
                d = source[q + i] - mean[i]
                target[q + i] = gradients[q + i] * a[i] - b[i] - d * c[i]
            p += size


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (spec, method): function
    for spec in (InstanceNormalization, GroupNormalization)
    for method, function in (("forward", forward), ("gradient", gradient))
}
