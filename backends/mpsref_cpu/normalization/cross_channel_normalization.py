"""Cross-channel normalization: as many pixels at a time as stay in the L1 cache.

They are put into one line, with zeros between them, so that one sum over windows of the line serves all of them: a
window that extends into the zeros has passed the last channel. The elements between two pixels are computed too, and
not used. Where every window has all channels, a pixel has one sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.cross_channel_normalization import (
    CrossChannelForward,
    CrossChannelGradient,
    CrossChannelNormalization,
    CrossChannelProblem,
)
from mpsref.operations import cached_in_problem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined, uncounted
from mpsref_cpu.normalization.window_sums import Halo, clear, sum_line, whole_vectors
from mpsref_cpu.simd.elementary import raise_to_minus
from mpsref_cpu.simd.reductions import total
from mpsref_cpu.simd.vectors import empty_rows
from mpsref_cpu.threads import for_rows

LINE = 2048
"""Approximate number of elements of a line."""

MOST_FLOAT32_TERMS = 1024


def forward(problem: CrossChannelForward, x: Array, out: Array) -> None:
    """Fill y from x, both (N, H, W, C)."""
    sizes, factors, lines, like = _plan(problem)
    for_rows(_forward, lines, x, out, like, sizes, factors)


def gradient(problem: CrossChannelGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx from g and x, all (N, H, W, C)."""
    sizes, factors, lines, like = _plan(problem)
    for_rows(_gradient, lines, g, x, out, like, sizes, factors)


@cached_in_problem
def _plan(problem: CrossChannelProblem) -> tuple[tuple[int, ...], tuple[float, ...], int, Array]:
    """Return (pixels, channels, pixels of a line, halo before and after), parameters, number of lines.

    The last is an empty array of the dtype to compute in.
    """
    spec, (n, height, width, channels) = problem.spec, problem.source_shape
    halo = Halo.of(spec.window, channels, channels)
    whole = min(halo.before, halo.after) == channels - 1  # every window has all channels
    if whole:
        halo = halo._replace(before=0, after=0)
    pixels = n * height * width
    line = max(1, LINE // (channels + halo.before + halo.after))
    dtype = np.float32 if halo.before + halo.after < MOST_FLOAT32_TERMS else np.float64
    scale = spec.alpha / spec.kernel_size
    factors: Any = tuple(map(dtype, (spec.delta, scale, 2 * scale * spec.beta)))
    sizes = pixels, channels, line, halo.before, halo.after, int(whole)
    return sizes, (spec.beta, *factors), -(-pixels // line), np.empty(0, dtype)


@compiled
def _forward(begin, end, source, target, like, sizes, factors):
    """Compute the lines ``begin`` to ``end``."""
    lines = _allocate(4, like, sizes)
    pixels, channels, line, before, after, _ = sizes
    stride = channels + before + after
    base, power = lines[2], lines[3]
    clear(lines[0], 0, lines.shape[1])
    for k in range(begin, end):
        first, count = k * line, min(line, pixels - k * line)
        _bases(source, first, count, lines, base, sizes, factors)
        raise_to_minus(factors[0], base, power, count * stride)
        for pixel in range(count):
            p, q = np.uintp((first + pixel) * channels), np.uintp(pixel * stride)
            for c in range(np.uintp(channels)):
                target[p + c] = np.float32(source[p + c] * power[q + c])


@compiled
def _gradient(begin, end, gradients, source, target, like, sizes, factors):
    """Compute the lines ``begin`` to ``end``: the term of every output, then the sums."""
    lines = _allocate(6, like, sizes)
    pixels, channels, line, before, after, _ = sizes
    stride = channels + before + after
    base, power, sums, term = lines[2], lines[3], lines[4], lines[5]
    clear(lines[0], 0, lines.shape[1])
    clear(term, 0, lines.shape[1])
    beta, _, _, slope = factors
    for k in range(begin, end):
        first, count = k * line, min(line, pixels - k * line)
        _bases(source, first, count, lines, base, sizes, factors)
        raise_to_minus(beta, base, power, count * stride)
        for pixel in range(count):
            p, q = np.uintp((first + pixel) * channels), np.uintp(pixel * stride)
            at = q + np.uintp(after)
            for c in range(np.uintp(channels)):
                ratio = np.true_divide(source[p + c], base[q + c])
                term[at + c] = gradients[p + c] * power[q + c] * ratio
        _add_up(term, count, like.dtype.type(0), sums, lines, sizes)
        for pixel in range(count):
            p, q = np.uintp((first + pixel) * channels), np.uintp(pixel * stride)
            for c in range(np.uintp(channels)):
                own = gradients[p + c] * power[q + c]
                target[p + c] = np.float32(own - slope * source[p + c] * sums[q + c])


@inlined
def _allocate(count, like, sizes):
    """Return ``count`` lines, with a halo before the first pixel and after the last."""
    _, channels, line, before, after, _ = sizes
    return empty_rows(count, whole_vectors(line * (channels + before + after) + before + after), like.dtype)


@uncounted
def _bases(source, first, count, lines, base, sizes, factors):
    """Set ``base`` to L of ``count`` pixels, which are ``stride`` apart."""
    _, channels, _, before, after, _ = sizes
    squares = lines[0]
    for pixel in range(count):
        p, q = np.uintp((first + pixel) * channels), np.uintp(pixel * (channels + before + after) + before)
        for c in range(np.uintp(channels)):
            value = squares.dtype.type(source[p + c])
            squares[q + c] = factors[2] * value * value
    _add_up(squares, count, factors[1], base, lines, sizes)


@uncounted
def _add_up(line, count, start, into, lines, sizes):
    """Set ``into`` to ``start`` and the sums over the windows of ``count`` pixels."""
    _, channels, _, before, after, whole = sizes
    stride = channels + before + after
    if whole:
        for pixel in range(count):
            q = np.uintp(pixel * stride)
            found = start + total(line, q, channels)
            for c in range(np.uintp(channels)):
                into[q + c] = found
    else:
        sum_line(line, count * stride, before + after + 1, 1, start, into, lines[1])


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (CrossChannelNormalization, "forward"): forward,
    (CrossChannelNormalization, "gradient"): gradient,
}
