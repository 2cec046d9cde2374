"""Local contrast normalization: sums of x and of x**2 over windows, of rows first, then along the row, band by band.

These sums are float64: their 29 digits more than those of a pixel are what ``V = sum(x**2) / N - M**2`` may lose, so
that this V is as good as one from centred float32 values. The gradient computes, for every output whose window reaches
the band, what it hands to the pixels of its window, ``b x(j) + a``, and sums a and b over the adjoint windows.

Workspace: the rows of a band.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.local_contrast_normalization import (
    LocalContrastForward,
    LocalContrastGradient,
    LocalContrastNormalization,
)
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.normalization.row_chunks import Bands, put_row, room_for_lines, room_for_stack
from mpsref_cpu.normalization.window_sums import sum_line, sum_rows
from mpsref_cpu.simd.half import as_storage, load, store
from mpsref_cpu.simd.powers import raise_to_minus
from mpsref_cpu.threads import for_rows


def forward(problem: LocalContrastForward, x: Array, out: Array) -> None:
    """Fill y (N, OH, OW, C) from x (N, H, W, C)."""
    bands, factors = Bands.of(problem), _factors(problem)
    pixels, results = as_storage(x), as_storage(out)
    for_rows(_forward, x.shape[0] * bands.bands, pixels, results, bands, factors, nbytes=x.nbytes + out.nbytes)


def gradient(problem: LocalContrastGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g (N, OH, OW, C) and x (N, H, W, C)."""
    bands, factors = Bands.of(problem), _factors(problem)
    gradients, pixels, results = as_storage(g), as_storage(x), as_storage(out)
    nbytes = g.nbytes + x.nbytes + out.nbytes
    for_rows(_gradient, x.shape[0] * bands.bands, gradients, pixels, results, bands, factors, nbytes=nbytes)


def _factors(problem: LocalContrastForward | LocalContrastGradient) -> tuple[float, ...]:
    """Return alpha, beta, delta, p0, pm, ps, N."""
    spec = problem.spec
    return spec.alpha, spec.beta, spec.delta, spec.p0, spec.pm, spec.ps, float(spec.taps)


@compiled
def _forward(begin: int, end: int, source: Any, target: Any, bands: Any, factors: Any) -> None:
    """Compute the bands ``begin`` to ``end``, counted through all images."""
    y, x, channels, rows, number = bands
    _, beta, _, p0, pm, ps, _ = factors
    size = x.outputs * channels
    stacks = room_for_stack(bands, rows, np.float64), room_for_stack(bands, rows, np.float64)
    lines = room_for_lines(bands, 5, np.float64)
    mean, base, power, centre, room = lines[0], lines[1], lines[2], lines[3], lines[4]
    for unit in range(begin, end):
        image, band = divmod(unit, number)
        first, count = band * rows, min(rows, y.outputs - band * rows)
        _stack(source, image, first, count, stacks, bands)
        for i in range(count):
            _statistics(stacks[0][i], stacks[1][i], size, mean, base, room, bands, factors)
            raise_to_minus(beta, base, power, size)
            _put_image_row(source, image, first + i + y.offset, x.offset, centre[:size], bands)
            p = np.uintp((image * y.outputs + first + i) * size)
            for e in range(np.uintp(size)):
                result = pm + ps * (centre[e] - p0 * mean[e]) * power[e]
                target[p + e] = store(np.float32(result), target[0])


@compiled
def _gradient(begin: int, end: int, gradients: Any, source: Any, target: Any, bands: Any, factors: Any) -> None:
    """Compute the bands ``begin`` to ``end``, counted through all images."""
    y, x, channels, rows, number = bands
    alpha, beta, _, p0, _, ps, taps = factors
    size, width = x.outputs * channels, x.length * channels
    kernel_y, kernel_x = y.before + y.after + 1, x.before + x.after + 1
    most = rows + kernel_y - 1
    stacks = room_for_stack(bands, most, np.float64), room_for_stack(bands, most, np.float64)
    own, of_pixel = room_for_lines(bands, most, np.float64), room_for_lines(bands, most, np.float64)
    of_mean, lines = room_for_lines(bands, most, np.float64), room_for_lines(bands, 5, np.float64)
    mean, base, power, centre, room = lines[0], lines[1], lines[2], lines[3], lines[4]
    reached = (x.length + kernel_x - 1) * channels
    for unit in range(begin, end):
        image, band = divmod(unit, number)
        count = min(rows, y.length - band * rows)
        first = band * rows - y.offset - y.after  # the first output whose window reaches the band
        outputs = count + kernel_y - 1
        _stack(source, image, first, outputs, stacks, bands)
        for i in range(outputs):
            a = first + i
            if not 0 <= a < y.outputs:
                own[i, :width] = 0
                of_pixel[i, :reached] = 0
                of_mean[i, :reached] = 0
                continue
            _statistics(stacks[0][i], stacks[1][i], size, mean, base, room, bands, factors)
            raise_to_minus(beta, base, power, size)
            _put_image_row(source, image, a + y.offset, x.offset, centre[:size], bands)
            p = np.uintp((image * y.outputs + a) * size)
            for e in range(np.uintp(size)):
                slope = ps * load(gradients[p + e]) * power[e]
                ratio = np.true_divide(centre[e] - p0 * mean[e], base[e])
                power[e] = slope
                base[e] = 2 * alpha * beta / taps * slope * ratio
                mean[e] = p0 / taps * slope - base[e] * mean[e]
            put_row(power, 0, x.outputs, -x.offset, channels, own[i, :width])
            put_row(base, 0, x.outputs, -x.offset - x.after, channels, of_pixel[i, :reached])
            put_row(mean, 0, x.outputs, -x.offset - x.after, channels, of_mean[i, :reached])
        sum_rows(of_pixel, 0, count, kernel_y)
        sum_rows(of_mean, 0, count, kernel_y)
        for j in range(count):
            sum_line(of_pixel[j], width, kernel_x, channels, base, room)
            sum_line(of_mean[j], width, kernel_x, channels, mean, room)
            p, mine = np.uintp((image * y.length + band * rows + j) * width), own[j + y.after]
            for e in range(np.uintp(width)):
                result = mine[e] - mean[e] - load(source[p + e]) * base[e]
                target[p + e] = store(np.float32(result), target[0])


@inlined
def _put_image_row(source: Any, image: int, row: int, first: int, into: Any, bands: Any) -> None:
    """Copy the pixels from ``first`` on of a row of an image; zeros outside."""
    y, x, channels, _, _ = bands
    if 0 <= row < y.length:
        put_row(source, (image * y.length + row) * x.length * channels, x.length, first, channels, into)
    else:
        into[:] = 0


@inlined
def _stack(source: Any, image: int, first: int, count: int, stacks: Any, bands: Any) -> None:
    """Fill the stacks with the sums of x and of x**2 over the rows of the windows of outputs ``first ...``."""
    y, x, _, _, _ = bands
    values, squares = stacks
    for i in range(count + y.before + y.after):
        row = values[i]
        _put_image_row(source, image, first + y.offset - y.before + i, x.offset - x.before, row, bands)
        for e in range(np.uintp(row.size)):
            squares[i, e] = row[e] * row[e]
    sum_rows(values, 0, count, y.before + y.after + 1)
    sum_rows(squares, 0, count, y.before + y.after + 1)


@inlined
def _statistics(
    values: Any, squares: Any, size: int, mean: Any, base: Any, room: Any, bands: Any, factors: Any
) -> None:
    """Compute M and T of a row of outputs from its sums over rows."""
    _, x, channels, _, _ = bands
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
