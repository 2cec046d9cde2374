"""Local contrast normalization: sums of x and x**2 over windows, first of rows, then along the row, in chunks of rows.

The sums are float64: ``V = sum(x**2) / N - M**2`` may lose the 29 bits that float64 has more than a pixel, and is still
as good as one from centred float32 values. The gradient computes the contribution of every output to the pixels of its
window, ``b x(j) + a``, and sums a and b over the adjoint windows. Workspace: the rows of a chunk.
"""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.local_contrast_normalization import (
    LocalContrastForward,
    LocalContrastGradient,
    LocalContrastNormalization,
)
from mpsref.operations import planned
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.normalization.window_sums import (
    RowChunks,
    allocate_lines,
    allocate_stack,
    copy_image_row,
    copy_row,
    sum_line,
    sum_rows,
)
from mpsref_cpu.simd.half import load, store
from mpsref_cpu.simd.powers import raise_to_minus
from mpsref_cpu.threads import for_rows


def forward(problem: LocalContrastForward, x: Array, out: Array) -> None:
    """Fill y (N, OH, OW, C) from x (N, H, W, C)."""
    chunks, factors = _plan(problem)
    for_rows(_forward, x.shape[0] * chunks.number, x, out, chunks, factors)


def gradient(problem: LocalContrastGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g (N, OH, OW, C) and x (N, H, W, C)."""
    chunks, factors = _plan(problem)
    for_rows(_gradient, x.shape[0] * chunks.number, g, x, out, chunks, factors)


@planned
def _plan(problem: LocalContrastForward | LocalContrastGradient) -> tuple[RowChunks, tuple[float, ...]]:
    """Return the chunks; and alpha, beta, delta, p0, pm, ps, N."""
    spec = problem.spec
    factors = spec.alpha, spec.beta, spec.delta, spec.p0, spec.pm, spec.ps, float(spec.taps)
    return RowChunks.of(problem), factors


@compiled
def _forward(begin, end, source, target, chunks, factors):
    """Compute the chunks ``begin`` to ``end``, counted through all images."""
    y, x, channels, rows, number = chunks
    _, beta, _, p0, pm, ps, _ = factors
    size = x.outputs * channels
    stacks = allocate_stack(chunks, rows, np.float64), allocate_stack(chunks, rows, np.float64)
    lines = allocate_lines(chunks, 5, np.float64)
    mean, base, power, centre, room = lines[0], lines[1], lines[2], lines[3], lines[4]
    for k in range(begin, end):
        image, chunk = divmod(k, number)
        first, count = chunk * rows, min(rows, y.outputs - chunk * rows)
        _stack(source, image, first, count, stacks, chunks)
        for i in range(count):
            _statistics(stacks[0][i], stacks[1][i], size, mean, base, room, chunks, factors)
            raise_to_minus(beta, base, power, size)
            copy_image_row(source, image, first + i + y.offset, x.offset, centre[:size], chunks)
            p = np.uintp((image * y.outputs + first + i) * size)
            for e in range(np.uintp(size)):
                result = pm + ps * (centre[e] - p0 * mean[e]) * power[e]
                target[p + e] = store(np.float32(result), target[0])


@compiled
def _gradient(begin, end, gradients, source, target, chunks, factors):
    """Compute the chunks ``begin`` to ``end``, counted through all images."""
    y, x, channels, rows, number = chunks
    alpha, beta, _, p0, _, ps, taps = factors
    size, width = x.outputs * channels, x.length * channels
    kernel_y, kernel_x = y.before + y.after + 1, x.before + x.after + 1
    most = rows + kernel_y - 1
    stacks = allocate_stack(chunks, most, np.float64), allocate_stack(chunks, most, np.float64)
    own, of_pixel = allocate_lines(chunks, most, np.float64), allocate_lines(chunks, most, np.float64)
    of_mean, lines = allocate_lines(chunks, most, np.float64), allocate_lines(chunks, 5, np.float64)
    mean, base, power, centre, room = lines[0], lines[1], lines[2], lines[3], lines[4]
    reached = (x.length + kernel_x - 1) * channels
    for k in range(begin, end):
        image, chunk = divmod(k, number)
        count = min(rows, y.length - chunk * rows)
        first = chunk * rows - y.offset - y.after  # the first output whose window reaches the chunk
        outputs = count + kernel_y - 1
        _stack(source, image, first, outputs, stacks, chunks)
        for i in range(outputs):
            a = first + i
            if not 0 <= a < y.outputs:
                own[i, :width] = 0
                of_pixel[i, :reached] = 0
                of_mean[i, :reached] = 0
                continue
            _statistics(stacks[0][i], stacks[1][i], size, mean, base, room, chunks, factors)
            raise_to_minus(beta, base, power, size)
            copy_image_row(source, image, a + y.offset, x.offset, centre[:size], chunks)
            p = np.uintp((image * y.outputs + a) * size)
            for e in range(np.uintp(size)):
                slope = ps * load(gradients[p + e]) * power[e]
                ratio = np.true_divide(centre[e] - p0 * mean[e], base[e])
                power[e] = slope
                base[e] = 2 * alpha * beta / taps * slope * ratio
                mean[e] = p0 / taps * slope - base[e] * mean[e]
            copy_row(power, 0, x.outputs, -x.offset, channels, own[i, :width])
            copy_row(base, 0, x.outputs, -x.offset - x.after, channels, of_pixel[i, :reached])
            copy_row(mean, 0, x.outputs, -x.offset - x.after, channels, of_mean[i, :reached])
        sum_rows(of_pixel, 0, count, kernel_y)
        sum_rows(of_mean, 0, count, kernel_y)
        for j in range(count):
            sum_line(of_pixel[j], width, kernel_x, channels, base, room)
            sum_line(of_mean[j], width, kernel_x, channels, mean, room)
            p, mine = np.uintp((image * y.length + chunk * rows + j) * width), own[j + y.after]
            for e in range(np.uintp(width)):
                result = mine[e] - mean[e] - load(source[p + e]) * base[e]
                target[p + e] = store(np.float32(result), target[0])


@inlined
def _stack(source, image, first, count, stacks, chunks):
    """Fill the stacks with the sums of x and of x**2 over the rows of the windows of outputs ``first ...``."""
    y, x, _, _, _ = chunks
    values, squares = stacks
    for i in range(count + y.before + y.after):
        row = values[i]
        copy_image_row(source, image, first + y.offset - y.before + i, x.offset - x.before, row, chunks)
        for e in range(np.uintp(row.size)):
            squares[i, e] = row[e] * row[e]
    sum_rows(values, 0, count, y.before + y.after + 1)
    sum_rows(squares, 0, count, y.before + y.after + 1)


@inlined
def _statistics(values, squares, size, mean, base, room, chunks, factors):
    """Compute M and T of a row of outputs from its sums over rows."""
    _, x, channels, _, _ = chunks
    alpha, _, delta, _, _, _, taps = factors
    sum_line(values, size, x.before + x.after + 1, channels, mean, room)
    sum_line(squares, size, x.before + x.after + 1, channels, base, room)
    for e in range(np.uintp(size)):
        m = mean[e] / taps
        variance = base[e] / taps - m * m
        mean[e] = m
        base[e] = delta + alpha * (0.0 if variance < 0 else variance)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (LocalContrastNormalization, "forward"): forward,
    (LocalContrastNormalization, "gradient"): gradient,
}
