"""Spatial normalization: a row at a time, sums of squares over the rows of its windows, then along the row.

The gradient computes the contribution of every output to the pixels of its window, ``q = g x(c) / T**(beta + 1)``, and
sums it over the adjoint windows in the same way. It keeps as many rows of them as the window has.

Sums are float32, and float64 where they have more than 1,024 terms in a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.spatial_normalization import SpatialForward, SpatialGradient, SpatialNormalization
from mpsref.operations import cached_in_problem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, uncounted
from mpsref_cpu.normalization.window_sums import (
    ImageWindows,
    add_image_rows,
    add_lines,
    allocate_lines,
    clear,
    copy_centres,
    readers,
    sum_line,
)
from mpsref_cpu.simd.elementary import raise_to_minus
from mpsref_cpu.threads import for_rows

MOST_FLOAT32_TERMS = 1024


def forward(problem: SpatialForward, x: Array, out: Array) -> None:
    """Fill y (N, OH, OW, C) from x (N, H, W, C)."""
    for_rows(_forward, out.shape[0] * out.shape[1], x, out, *_plan(problem))


def gradient(problem: SpatialGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g (N, OH, OW, C) and x (N, H, W, C)."""
    for_rows(_gradient, out.shape[0] * out.shape[1], g, x, out, *_plan(problem))


@cached_in_problem
def _plan(problem: SpatialForward | SpatialGradient) -> tuple[Array, ImageWindows, tuple[float, ...]]:
    """Return an empty array of the dtype of the sums; the windows; beta, delta, alpha / N and 2 alpha beta / N."""
    spec, windows = problem.spec, ImageWindows.of(problem)
    dtype = np.float32 if windows.most_terms <= MOST_FLOAT32_TERMS else np.float64
    scale = spec.alpha / spec.taps
    rounded: Any = tuple(map(dtype, (spec.delta, scale, 2 * scale * spec.beta)))
    return np.empty(0, dtype), windows, (spec.beta, *rounded)


@compiled
def _forward(begin, end, source, target, like, windows, factors):
    """Compute the rows ``begin`` to ``end``, counted through all images."""
    y, x, channels, tile = windows
    lines = allocate_lines(windows, 5, like.dtype)
    base, power, centre = lines[2], lines[3], lines[4]
    for row in range(begin, end):
        image, output = divmod(row, y.outputs)
        for first in range(0, x.outputs, tile):
            pixels = first, min(tile, x.outputs - first)
            size = pixels[1] * channels
            _bases(source, image, output, pixels, base, lines, windows, factors)
            raise_to_minus(factors[0], base, power, size)
            copy_centres(source, image, output, pixels, centre, windows)
            p = np.uintp((row * x.outputs + first) * channels)
            for e in range(np.uintp(size)):
                target[p + e] = np.float32(centre[e] * power[e])


@compiled
def _gradient(begin, end, gradients, source, target, like, windows, factors):
    """Compute the rows ``begin`` to ``end``, counted through all images."""
    y, x, channels, tile = windows
    height, width = y.before + y.after + 1, x.before + x.after + 1
    lines = allocate_lines(windows, 5 + 2 * height, like.dtype)  # each call takes a tenth of a second to compile
    terms, own = lines[5 : 5 + height], lines[5 + height :]
    ring = terms.ravel()
    sums, columns, zero = lines[2], lines[3], lines.dtype.type(0)
    for first in range(0, x.length, tile):
        count = min(tile, x.length - first)
        size, shift = count * channels, np.uintp(x.after * channels)
        for k in range(height):
            clear(terms[k], 0, terms.shape[1])
            clear(own[k], 0, own.shape[1])
        for row in range(begin, end):
            image, j = divmod(row, y.length)
            last = j - y.offset + y.before  # the last row of outputs whose windows have this row
            for output in range(last if row > begin and j else last - height + 1, last + 1):
                _terms(gradients, source, image, output, first, count, terms, own, lines, windows, factors)
            add_lines(ring, terms.shape[1], height, (count + width - 1) * channels, factors[3], columns)
            sum_line(columns, size, width, channels, zero, sums, lines[1])
            p, k = np.uintp((row * x.length + first) * channels), np.uintp((last - y.before) % height)
            for e in range(np.uintp(size)):
                target[p + e] = np.float32(own[k, shift + e] - source[p + e] * sums[e])


@uncounted
def _terms(gradients, source, image, output, first, count, terms, own, lines, windows, factors):
    """Set lines to ``g x(c) / T**(beta + 1)`` and ``g / T**beta`` of outputs whose windows have one of the pixels."""
    y, x, channels, _ = windows
    term, mine = terms[output % terms.shape[0]], own[output % terms.shape[0]]
    if not 0 <= output < y.outputs:
        clear(term, 0, term.size)
        clear(mine, 0, mine.size)
        return
    base, power, centre = lines[2], lines[3], lines[4]
    pixels, at = readers(first, count, x)
    _bases(source, image, output, pixels, base, lines, windows, factors)
    raise_to_minus(factors[0], base, power, pixels[1] * channels)
    copy_centres(source, image, output, pixels, centre, windows)
    p, q = np.uintp(((image * y.outputs + output) * x.outputs + pixels[0]) * channels), np.uintp(at * channels)
    for e in range(np.uintp(pixels[1] * channels)):
        mine[q + e] = gradients[p + e] * power[e]
    for e in range(np.uintp(pixels[1] * channels)):  # in a loop of its own: LLVM vectorizes loops with few arrays
        term[q + e] = mine[q + e] * np.true_divide(centre[e], base[e])


@uncounted
def _bases(source, image, output, pixels, base, lines, windows, factors):
    """Compute T of outputs of a row."""
    _, x, channels, _ = windows
    add_image_rows(source, image, output, pixels, factors[2], lines[1], lines[0], windows)
    kernel = x.before + x.after + 1
    sum_line(lines[0], pixels[1] * channels, kernel, channels, factors[1], base, lines[1])


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (SpatialNormalization, "forward"): forward,
    (SpatialNormalization, "gradient"): gradient,
}
