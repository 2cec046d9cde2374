"""Spatial normalization: sums of squares over windows, of rows first, then along the row, a band of rows at a time.

The gradient computes, for every output whose window reaches the band, what it hands to all pixels of its window,
``q = g x(c) / T**(beta + 1)``, and sums that over the adjoint windows in the same way.

Sums are float32, and float64 where they have more than 1,024 terms in a row. Workspace: the rows of a band.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.spatial_normalization import SpatialForward, SpatialGradient, SpatialNormalization
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.normalization.row_chunks import Bands, put_row, room_for_lines, room_for_stack
from mpsref_cpu.normalization.window_sums import sum_line, sum_rows
from mpsref_cpu.simd.half import as_storage, load, store
from mpsref_cpu.simd.powers import raise_to_minus
from mpsref_cpu.threads import for_rows

MOST_FLOAT32_TERMS = 1024


def forward(problem: SpatialForward, x: Array, out: Array) -> None:
    """Fill y (N, OH, OW, C) from x (N, H, W, C)."""
    bands = Bands.of(problem)
    factors, like = _factors(problem, bands)
    pixels, results, nbytes = as_storage(x), as_storage(out), x.nbytes + out.nbytes
    for_rows(_forward, x.shape[0] * bands.bands, pixels, results, like, bands, factors, nbytes=nbytes)


def gradient(problem: SpatialGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g (N, OH, OW, C) and x (N, H, W, C)."""
    bands = Bands.of(problem)
    factors, like = _factors(problem, bands)
    gradients, pixels, results = as_storage(g), as_storage(x), as_storage(out)
    nbytes = g.nbytes + x.nbytes + out.nbytes
    for_rows(_gradient, x.shape[0] * bands.bands, gradients, pixels, results, like, bands, factors, nbytes=nbytes)


def _factors(problem: SpatialForward | SpatialGradient, bands: Bands) -> tuple[tuple[float, ...], Array]:
    """Return beta, delta, alpha / N and 2 alpha beta / N, and an empty array of the dtype to compute in."""
    spec = problem.spec
    dtype = np.float32 if bands.most_terms <= MOST_FLOAT32_TERMS else np.float64
    scale = spec.alpha / spec.taps
    rounded: Any = tuple(map(dtype, (spec.delta, scale, 2 * scale * spec.beta)))
    return (spec.beta, *rounded), np.empty(0, dtype)


@compiled
def _forward(begin: int, end: int, source: Any, target: Any, like: Any, bands: Any, factors: Any) -> None:
    """Compute the bands ``begin`` to ``end``, counted through all images."""
    y, x, channels, rows, number = bands
    size = x.outputs * channels
    stack, lines = room_for_stack(bands, rows, like.dtype), room_for_lines(bands, 4, like.dtype)
    base, power, centre = lines[0], lines[1], lines[2][:size]
    for unit in range(begin, end):
        image, band = divmod(unit, number)
        first, count = band * rows, min(rows, y.outputs - band * rows)
        _stack_squares(source, image, first, count, stack, bands)
        for i in range(count):
            _bases(stack[i], size, base, lines[3], bands, factors)
            raise_to_minus(factors[0], base, power, size)
            _put_image_row(source, image, first + i + y.offset, x.offset, centre, bands)
            p = np.uintp((image * y.outputs + first + i) * size)
            for e in range(np.uintp(size)):
                target[p + e] = store(np.float32(centre[e] * power[e]), target[0])


@compiled
def _gradient(
    begin: int, end: int, gradients: Any, source: Any, target: Any, like: Any, bands: Any, factors: Any
) -> None:
    """Compute the bands ``begin`` to ``end``, counted through all images."""
    y, x, channels, rows, number = bands
    size, width = x.outputs * channels, x.length * channels
    kernel_y, kernel_x = y.before + y.after + 1, x.before + x.after + 1
    most = rows + kernel_y - 1
    stack, lines = room_for_stack(bands, most, like.dtype), room_for_lines(bands, 4, like.dtype)
    shares, own = room_for_lines(bands, most, like.dtype), room_for_lines(bands, most, like.dtype)
    base, power, centre, room = lines[0], lines[1], lines[2], lines[3]
    reached = (x.length + kernel_x - 1) * channels
    for unit in range(begin, end):
        image, band = divmod(unit, number)
        count = min(rows, y.length - band * rows)
        first = band * rows - y.offset - y.after  # the first output whose window reaches the band
        outputs = count + kernel_y - 1
        _stack_squares(source, image, first, outputs, stack, bands)
        for i in range(outputs):
            a = first + i
            if not 0 <= a < y.outputs:
                shares[i, :reached] = 0
                own[i, :width] = 0
                continue
            _bases(stack[i], size, base, room, bands, factors)
            raise_to_minus(factors[0], base, power, size)
            _put_image_row(source, image, a + y.offset, x.offset, centre[:size], bands)
            p = np.uintp((image * y.outputs + a) * size)
            for e in range(np.uintp(size)):
                power[e] *= load(gradients[p + e])
                base[e] = power[e] * np.true_divide(centre[e], base[e])
            put_row(power, 0, x.outputs, -x.offset, channels, own[i, :width])
            put_row(base, 0, x.outputs, -x.offset - x.after, channels, shares[i, :reached])
        sum_rows(shares, 0, count, kernel_y)
        for j in range(count):
            sum_line(shares[j], width, kernel_x, channels, base, room)
            p, mine = np.uintp((image * y.length + band * rows + j) * width), own[j + y.after]
            for e in range(np.uintp(width)):
                result = mine[e] - factors[3] * load(source[p + e]) * base[e]
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
def _stack_squares(source: Any, image: int, first: int, count: int, stack: Any, bands: Any) -> None:
    """Fill the stack with the sums of squares over the rows of the windows of outputs ``first ...``."""
    y, x, _, _, _ = bands
    for i in range(count + y.before + y.after):
        row = stack[i]
        _put_image_row(source, image, first + y.offset - y.before + i, x.offset - x.before, row, bands)
        for e in range(np.uintp(row.size)):
            row[e] *= row[e]
    sum_rows(stack, 0, count, y.before + y.after + 1)


@inlined
def _bases(squares: Any, size: int, base: Any, room: Any, bands: Any, factors: Any) -> None:
    """Compute T of a row of outputs from its sums over rows."""
    _, x, channels, _, _ = bands
    sum_line(squares, size, x.before + x.after + 1, channels, base, room)
    for e in range(np.uintp(size)):
        base[e] = factors[1] + factors[2] * base[e]


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (SpatialNormalization, "forward"): forward,
    (SpatialNormalization, "gradient"): gradient,
}
