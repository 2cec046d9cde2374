"""Cross-channel normalization: as many pixels at a time as stay in the first-level cache.

They stand in one line, with zeros between them, so that one sum over windows of the line serves all of them: a window
that reaches into the zeros of the next pixel has found the end of its channels. The line between two pixels is computed
too, and not used. An element costs a few vector operations, whatever the size of the window.
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
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.normalization.window_sums import Reach, sum_line
from mpsref_cpu.simd.half import as_storage, load, store
from mpsref_cpu.simd.powers import raise_to_minus
from mpsref_cpu.threads import for_rows

LINE = 2048
"""About how many elements a line has."""

MOST_FLOAT32_TERMS = 1024


def forward(problem: CrossChannelForward, x: Array, out: Array) -> None:
    """Fill y from x, both (N, H, W, C)."""
    pixels, results = as_storage(x), as_storage(out)
    sizes, factors, lines, like = _constants(problem)
    for_rows(_forward, lines, pixels, results, like, sizes, factors, nbytes=x.nbytes + out.nbytes)


def gradient(problem: CrossChannelGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx from g and x, all (N, H, W, C)."""
    gradients, pixels, results = as_storage(g), as_storage(x), as_storage(out)
    sizes, factors, lines, like = _constants(problem)
    nbytes = g.nbytes + x.nbytes + out.nbytes
    for_rows(_gradient, lines, gradients, pixels, results, like, sizes, factors, nbytes=nbytes)


def _constants(problem: CrossChannelProblem) -> tuple[tuple[int, ...], tuple[float, ...], int, Array]:
    """Return (pixels, channels, pixels of a line, reach before and after), parameters, number of lines.

    The last is an empty array of the dtype to compute in.
    """
    spec, (n, height, width, channels) = problem.spec, problem.source_shape
    reach = Reach.of(spec.window, channels, channels)
    pixels = n * height * width
    line = max(1, LINE // (channels + reach.before + reach.after))
    dtype = np.float32 if reach.before + reach.after < MOST_FLOAT32_TERMS else np.float64
    scale = spec.alpha / spec.kernel_size
    factors: Any = tuple(map(dtype, (spec.delta, scale, 2 * scale * spec.beta)))
    sizes = pixels, channels, line, reach.before, reach.after
    return sizes, (spec.beta, *factors), -(-pixels // line), np.empty(0, dtype)


@inlined
def _room(count: int, like: Any, sizes: Any) -> Any:
    """Return memory for so many lines, with zeros before the first pixel and after the last."""
    _, channels, line, before, after = sizes
    return np.empty((count, line * (channels + before + after) + before + after), like.dtype)


@compiled
def _forward(begin: int, end: int, source: Any, target: Any, like: Any, sizes: Any, factors: Any) -> None:
    """Compute the lines ``begin`` to ``end``."""
    pixels, channels, line, before, after = sizes
    stride = channels + before + after
    room = _room(4, like, sizes)
    sums, power = room[2], room[3]
    for k in range(begin, end):
        first, count = k * line, min(line, pixels - k * line)
        _bases(source, first, count, room, sums, sizes, factors)
        raise_to_minus(factors[0], sums, power, count * stride)
        for pixel in range(count):
            p, q = np.uintp((first + pixel) * channels), np.uintp(pixel * stride)
            for c in range(np.uintp(channels)):
                target[p + c] = store(np.float32(load(source[p + c]) * power[q + c]), target[0])


@compiled
def _gradient(
    begin: int, end: int, gradients: Any, source: Any, target: Any, like: Any, sizes: Any, factors: Any
) -> None:
    """Compute the lines ``begin`` to ``end``: every output's share of the sum, then the sums."""
    pixels, channels, line, before, after = sizes
    stride = channels + before + after
    room = _room(6, like, sizes)
    sums, power, share, base = room[2], room[3], room[4], room[5]
    beta, _, _, slope = factors
    for k in range(begin, end):
        first, count = k * line, min(line, pixels - k * line)
        _bases(source, first, count, room, base, sizes, factors)
        raise_to_minus(beta, base, power, count * stride)
        share[:] = 0
        for pixel in range(count):
            p, q = np.uintp((first + pixel) * channels), np.uintp(pixel * stride)
            at = q + np.uintp(after)
            for c in range(np.uintp(channels)):
                ratio = np.true_divide(load(source[p + c]), base[q + c])
                share[at + c] = load(gradients[p + c]) * power[q + c] * ratio
        sum_line(share, count * stride, before + after + 1, 1, sums, room[1])
        for pixel in range(count):
            p, q = np.uintp((first + pixel) * channels), np.uintp(pixel * stride)
            for c in range(np.uintp(channels)):
                own = load(gradients[p + c]) * power[q + c]
                target[p + c] = store(np.float32(own - slope * load(source[p + c]) * sums[q + c]), target[0])


@inlined
def _bases(source: Any, first: int, count: int, room: Any, into: Any, sizes: Any, factors: Any) -> None:
    """Set ``into`` to L of ``count`` pixels, the channels of a pixel at every ``stride``-th place."""
    _, channels, _, before, after = sizes
    stride = channels + before + after
    line = room[0]
    line[:] = 0
    for pixel in range(count):
        p, q = np.uintp((first + pixel) * channels), np.uintp(pixel * stride + before)
        for c in range(np.uintp(channels)):
            value = line.dtype.type(load(source[p + c]))
            line[q + c] = value * value
    sum_line(line, count * stride, before + after + 1, 1, into, room[1])
    for i in range(np.uintp(count * stride)):
        into[i] = factors[1] + factors[2] * into[i]


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (CrossChannelNormalization, "forward"): forward,
    (CrossChannelNormalization, "gradient"): gradient,
}
