"""Spatial normalization: sums of squares over windows, first of rows, then along the row, in chunks of rows.

The gradient computes the contribution of every output to the pixels of its window, ``q = g x(c) / T**(beta + 1)``, and
sums it over the adjoint windows in the same way.

Sums are float32, and float64 where they have more than 1,024 terms in a row. Workspace: the rows of a chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.spatial_normalization import SpatialForward, SpatialGradient, SpatialNormalization
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

MOST_FLOAT32_TERMS = 1024


def forward(problem: SpatialForward, x: Array, out: Array) -> None:
    """Fill y (N, OH, OW, C) from x (N, H, W, C)."""
    chunks, factors, like = _plan(problem)
    for_rows(_forward, x.shape[0] * chunks.number, x, out, like, chunks, factors)


def gradient(problem: SpatialGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g (N, OH, OW, C) and x (N, H, W, C)."""
    chunks, factors, like = _plan(problem)
    for_rows(_gradient, x.shape[0] * chunks.number, g, x, out, like, chunks, factors)


@planned
def _plan(problem: SpatialForward | SpatialGradient) -> tuple[RowChunks, tuple[float, ...], Array]:
    """Return the chunks; beta, delta, alpha / N and 2 alpha beta / N; and an empty array of the dtype of the sums."""
    spec, chunks = problem.spec, RowChunks.of(problem)
    dtype = np.float32 if chunks.most_terms <= MOST_FLOAT32_TERMS else np.float64
    scale = spec.alpha / spec.taps
    rounded: Any = tuple(map(dtype, (spec.delta, scale, 2 * scale * spec.beta)))
    return chunks, (spec.beta, *rounded), np.empty(0, dtype)


@compiled
def _forward(begin, end, source, target, like, chunks, factors):
    """Compute the chunks ``begin`` to ``end``, counted through all images."""
    y, x, channels, rows, number = chunks
    size = x.outputs * channels
    stack, lines = allocate_stack(chunks, rows, like.dtype), allocate_lines(chunks, 4, like.dtype)
    base, power, centre = lines[0], lines[1], lines[2][:size]
    for k in range(begin, end):
        image, chunk = divmod(k, number)
        first, count = chunk * rows, min(rows, y.outputs - chunk * rows)
        _stack_squares(source, image, first, count, stack, chunks)
        for i in range(count):
            _bases(stack[i], size, base, lines[3], chunks, factors)
            raise_to_minus(factors[0], base, power, size)
            copy_image_row(source, image, first + i + y.offset, x.offset, centre, chunks)
            p = np.uintp((image * y.outputs + first + i) * size)
            for e in range(np.uintp(size)):
                target[p + e] = store(np.float32(centre[e] * power[e]), target[0])


@compiled
def _gradient(begin, end, gradients, source, target, like, chunks, factors):
    """Compute the chunks ``begin`` to ``end``, counted through all images."""
    y, x, channels, rows, number = chunks
    size, width = x.outputs * channels, x.length * channels
    kernel_y, kernel_x = y.before + y.after + 1, x.before + x.after + 1
    most = rows + kernel_y - 1
    stack, lines = allocate_stack(chunks, most, like.dtype), allocate_lines(chunks, 4, like.dtype)
    terms, own = allocate_lines(chunks, most, like.dtype), allocate_lines(chunks, most, like.dtype)
    base, power, centre, room = lines[0], lines[1], lines[2], lines[3]
    reached = (x.length + kernel_x - 1) * channels
    for k in range(begin, end):
        image, chunk = divmod(k, number)
        count = min(rows, y.length - chunk * rows)
        first = chunk * rows - y.offset - y.after  # the first output whose window reaches the chunk
        outputs = count + kernel_y - 1
        _stack_squares(source, image, first, outputs, stack, chunks)
        for i in range(outputs):
            a = first + i
            if not 0 <= a < y.outputs:
                terms[i, :reached] = 0
                own[i, :width] = 0
                continue
            _bases(stack[i], size, base, room, chunks, factors)
            raise_to_minus(factors[0], base, power, size)
            copy_image_row(source, image, a + y.offset, x.offset, centre[:size], chunks)
            p = np.uintp((image * y.outputs + a) * size)
            for e in range(np.uintp(size)):
                power[e] *= load(gradients[p + e])
                base[e] = power[e] * np.true_divide(centre[e], base[e])
            copy_row(power, 0, x.outputs, -x.offset, channels, own[i, :width])
            copy_row(base, 0, x.outputs, -x.offset - x.after, channels, terms[i, :reached])
        sum_rows(terms, 0, count, kernel_y)
        for j in range(count):
            sum_line(terms[j], width, kernel_x, channels, base, room)
            p, mine = np.uintp((image * y.length + chunk * rows + j) * width), own[j + y.after]
            for e in range(np.uintp(width)):
                result = mine[e] - factors[3] * load(source[p + e]) * base[e]
                target[p + e] = store(np.float32(result), target[0])


@inlined
def _stack_squares(source, image, first, count, stack, chunks):
    """Fill the stack with the sums of squares over the rows of the windows of outputs ``first ...``."""
    y, x, _, _, _ = chunks
    for i in range(count + y.before + y.after):
        row = stack[i]
        copy_image_row(source, image, first + y.offset - y.before + i, x.offset - x.before, row, chunks)
        for e in range(np.uintp(row.size)):
            row[e] *= row[e]
    sum_rows(stack, 0, count, y.before + y.after + 1)


@inlined
def _bases(squares, size, base, room, chunks, factors):
    """Compute T of a row of outputs from its sums over rows."""
    _, x, channels, _, _ = chunks
    sum_line(squares, size, x.before + x.after + 1, channels, base, room)
    for e in range(np.uintp(size)):
        base[e] = factors[1] + factors[2] * base[e]


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (SpatialNormalization, "forward"): forward,
    (SpatialNormalization, "gradient"): gradient,
}
