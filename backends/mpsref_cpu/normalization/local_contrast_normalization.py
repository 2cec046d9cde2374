"""Local contrast normalization: a row at a time, sums of x and x**2 over the rows of its windows, then along the row.

All is float64: ``V = sum(x**2) / N - M**2`` may lose the 29 bits that float64 has more than a pixel, and is still as
good as one from centred float32 values; ``T = delta + alpha V`` may be beyond the range of float32. The gradient
computes the contribution of every output to the pixels of its window, ``b x(j) + a``, and sums a and b over the adjoint
windows. It keeps as many rows of them as the window has.
"""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.local_contrast_normalization import (
    LocalContrastForward,
    LocalContrastGradient,
    LocalContrastNormalization,
)
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


def forward(problem: LocalContrastForward, x: Array, out: Array) -> None:
    """Fill y (N, OH, OW, C) from x (N, H, W, C)."""
    for_rows(_forward, out.shape[0] * out.shape[1], x, out, *_plan(problem))


def gradient(problem: LocalContrastGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g (N, OH, OW, C) and x (N, H, W, C)."""
    for_rows(_gradient, out.shape[0] * out.shape[1], g, x, out, *_plan(problem))


@cached_in_problem
def _plan(problem: LocalContrastForward | LocalContrastGradient) -> tuple[ImageWindows, tuple[float, ...]]:
    """Return the windows; and alpha, beta, delta, p0, pm, ps, 1 / N."""
    spec = problem.spec
    factors = spec.alpha, spec.beta, spec.delta, spec.p0, spec.pm, spec.ps, 1 / spec.taps
    return ImageWindows.of(problem), factors


@compiled
def _forward(begin, end, source, target, windows, factors):
    """Compute the rows ``begin`` to ``end``, counted through all images."""
    lines = allocate_lines(windows, 8, np.float64)
    y, x, channels, tile = windows
    _, _, _, p0, pm, ps, _ = factors
    mean, power, centre = lines[2], lines[6], lines[7]
    for row in range(begin, end):
        image, output = divmod(row, y.outputs)
        for first in range(0, x.outputs, tile):
            pixels = first, min(tile, x.outputs - first)
            _statistics(source, image, output, pixels, lines, windows, factors)
            p = np.uintp((row * x.outputs + first) * channels)
            for e in range(np.uintp(pixels[1] * channels)):
                result = pm + ps * (centre[e] - p0 * mean[e]) * power[e]
                target[p + e] = np.float32(result)


@compiled
def _gradient(begin, end, gradients, source, target, windows, factors):
    """Compute the rows ``begin`` to ``end``, counted through all images."""
    y, x, channels, tile = windows
    height, width = y.before + y.after + 1, x.before + x.after + 1
    lines = allocate_lines(windows, 12 + 3 * height, np.float64)  # each call takes a tenth of a second to compile
    sums, own = lines[8:12], lines[12 : 12 + height]
    weights, shifts = lines[12 + height : 12 + 2 * height], lines[12 + 2 * height :]
    rings = weights.ravel(), shifts.ravel()
    columns, weight, shift = sums[0], sums[1], sums[2]
    for first in range(0, x.length, tile):
        count = min(tile, x.length - first)
        size, reached, after = count * channels, (count + width - 1) * channels, np.uintp(x.after * channels)
        for k in range(height):
            clear(own[k], 0, own.shape[1])
            clear(weights[k], 0, weights.shape[1])
            clear(shifts[k], 0, shifts.shape[1])
        for row in range(begin, end):
            image, j = divmod(row, y.length)
            last = j - y.offset + y.before  # the last row of outputs whose windows have this row
            terms = own, weights, shifts
            for output in range(last if row > begin and j else last - height + 1, last + 1):
                _terms(gradients, source, image, output, first, count, terms, lines, windows, factors)
            add_lines(rings[0], weights.shape[1], height, reached, 1.0, columns)
            sum_line(columns, size, width, channels, 0.0, weight, sums[3])
            add_lines(rings[1], shifts.shape[1], height, reached, 1.0, columns)
            sum_line(columns, size, width, channels, 0.0, shift, sums[3])
            p, k = np.uintp((row * x.length + first) * channels), np.uintp((last - y.before) % height)
            for e in range(np.uintp(size)):
                result = own[k, after + e] - shift[e] - source[p + e] * weight[e]
                target[p + e] = np.float32(result)


@uncounted
def _terms(gradients, source, image, output, first, count, terms, lines, windows, factors):
    """Set lines to ``ps g / T**beta``, b and a of outputs whose windows have one of the pixels."""
    y, x, channels, _ = windows
    alpha, beta, _, p0, _, ps, share = factors
    k = output % terms[0].shape[0]
    own, weight, shift = terms[0][k], terms[1][k], terms[2][k]
    if not 0 <= output < y.outputs:
        clear(own, 0, own.size)
        clear(weight, 0, weight.size)
        clear(shift, 0, shift.size)
        return
    mean, base, power, centre = lines[2], lines[5], lines[6], lines[7]
    pixels, at = readers(first, count, x)
    _statistics(source, image, output, pixels, lines, windows, factors)
    p, q = np.uintp(((image * y.outputs + output) * x.outputs + pixels[0]) * channels), np.uintp(at * channels)
    size, scale = np.uintp(pixels[1] * channels), 2 * alpha * beta * share
    # Three loops: LLVM vectorizes loops with few arrays.
    for e in range(size):
        own[q + e] = ps * gradients[p + e] * power[e]
    for e in range(size):
        weight[q + e] = scale * own[q + e] * np.true_divide(centre[e] - p0 * mean[e], base[e])
    for e in range(size):
        shift[q + e] = p0 * share * own[q + e] - weight[q + e] * mean[e]


@uncounted
def _statistics(source, image, output, pixels, lines, windows, factors):
    """Compute M, T, ``T**-beta`` and the centres of outputs of a row."""
    _, x, channels, _ = windows
    alpha, beta, delta, _, _, _, share = factors
    values, squares, mean, square, room = lines[0], lines[1], lines[2], lines[3], lines[4]
    base, power, centre = lines[5], lines[6], lines[7]
    size, kernel = pixels[1] * channels, x.before + x.after + 1
    add_image_rows(source, image, output, pixels, share, values, squares, windows)
    sum_line(values, size, kernel, channels, 0.0, mean, room)
    sum_line(squares, size, kernel, channels, 0.0, square, room)
    for e in range(np.uintp(size)):
        variance = square[e] - mean[e] * mean[e]
        base[e] = delta + alpha * (0.0 if variance < 0 else variance)
    raise_to_minus(beta, base, power, size)
    copy_centres(source, image, output, pixels, centre, windows)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (LocalContrastNormalization, "forward"): forward,
    (LocalContrastNormalization, "gradient"): gradient,
}
