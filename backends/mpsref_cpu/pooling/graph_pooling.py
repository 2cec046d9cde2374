"""MPSGraph's max pooling with indices, and a gather for the gradient: tap by tap, for some channels of a pixel at once.

The number of a tap is the sum of what its row, its column, its image and its channel add to it: the tables of the axes
have the first two. Sums of the gradient are float32, and float64 where a pixel may have more than 1,024 terms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.graph_pooling import GraphPoolingForward, GraphPoolingGradient, GraphPoolingMax, Numbered
from mpsref.operations import cached_in_problem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.pooling.windows import MOST_FLOAT32_TERMS, VECTOR
from mpsref_cpu.simd.vectors import (
    broadcast,
    load_vector,
    maximum,
    minus,
    plus,
    prefetch_vector,
    store_vector,
    where_equal,
    where_larger,
    zeros_like,
)
from mpsref_cpu.threads import for_rows

WIDE = 32
"""Number of channels that are computed at once, if there are so many; of fewer, ``VECTOR``, or one."""


class Plan(NamedTuple):
    rows: Numbered
    columns: Numbered
    of_image: int
    """What an image adds to a number."""
    of_channel: Array
    """What each channel adds to a number."""
    no_sums: Any
    """An empty vector of the dtype of the sums."""


@cached_in_problem
def _plan(problem: GraphPoolingForward | GraphPoolingGradient) -> Plan:
    rows, columns = (
        table._replace(first=table.first.astype(np.int64), number=table.number.astype(np.int64), base=table.base.copy())
        for table in problem.tables()
    )
    of_image, _, _, step = problem.numbering
    of_channel = (step * np.arange(problem.source_shape[3])).astype(np.int32)
    most = int(rows.number.max()) * int(columns.number.max())
    return Plan(
        rows, columns, of_image, of_channel, np.empty(0, np.float32 if most <= MOST_FLOAT32_TERMS else np.float64)
    )


def forward(problem: GraphPoolingForward, x: Array, out: tuple[Array, Array]) -> None:
    """Fill y and the indices (N, OH, OW, C) from x (N, H, W, C)."""
    y, indices = out
    n, height, width, channels = y.shape
    for_rows(_forward, n * height, x, y, indices, (*x.shape[1:3], height, width, channels), _plan(problem))


def gradient(problem: GraphPoolingGradient, g: Array, indices: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g and the indices (N, GH, GW, C)."""
    n, height, width, channels = out.shape
    for_rows(_gradient, n * height, g, indices, out, (*g.shape[1:3], height, width, channels), _plan(problem))


@compiled
def _forward(begin, end, x, y, indices, sizes, plan):
    """Compute rows ``begin`` to ``end`` of y and the indices, counted through all images."""
    _walk(begin, end, _largest, (x, y, indices), sizes, plan, x)


@compiled
def _gradient(begin, end, g, indices, dx, sizes, plan):
    """Compute rows ``begin`` to ``end`` of dx, counted through all images."""
    _walk(begin, end, _sum, (g, indices, dx), sizes, plan, plan.no_sums)


@inlined
def _walk(begin, end, compute, arrays, sizes, plan, like):
    """Compute the pixels of rows in vectors of the dtype of ``like``; the last channels may be computed twice."""
    source_height, source_width, height, width, channels = sizes
    rows, columns, of_image, numbers, _ = plan
    row, column = rows.step * source_width * channels, np.uintp(columns.step * channels)
    lanes = WIDE if channels >= WIDE else VECTOR if channels >= VECTOR else 1
    for line in range(begin, end):
        image, a = divmod(line, height)
        first = (image * source_height + rows.first[a]) * source_width
        for b in range(width):
            start = (first + columns.first[b]) * channels
            number = np.int32(image * of_image + rows.base[a] + columns.base[b])
            moves = rows.number[a], row, rows.change, columns.number[b], column, columns.change
            for k in range(0, channels, lanes):
                c = min(k, channels - lanes)
                to, q = np.uintp((line * width + b) * channels + c), np.uintp(c)
                if lanes == WIDE:
                    added = load_vector(numbers, q, zeros_like(numbers, WIDE))
                    compute(arrays, to, start + c, number, moves, added, zeros_like(like, WIDE))
                elif lanes == VECTOR:
                    added = load_vector(numbers, q, zeros_like(numbers, VECTOR))
                    compute(arrays, to, start + c, number, moves, added, zeros_like(like, VECTOR))
                else:
                    added = load_vector(numbers, q, zeros_like(numbers, 1))
                    compute(arrays, to, start + c, number, moves, added, zeros_like(like, 1))


@inlined
def _largest(arrays, to, at, number, moves, of_channel, zero):
    """Find the first of the largest taps: less than NaN no number is."""
    (x, y, indices), (row_count, row, next_row, column_count, column, next_column) = arrays, moves
    best, found = broadcast(np.float32(np.nan), zero), minus(broadcast(np.int32(-1), of_channel), of_channel)
    for _ in range(row_count):
        p, here = np.uintp(at), number
        for _ in range(column_count):
            value = load_vector(x, p, zero)
            prefetch_vector(x, p + column + column, zero)
            found = where_larger(broadcast(here, of_channel), found, value, best)
            best = where_larger(value, best, value, best)
            p, here = p + column, np.int32(here + next_column)
        at, number = at + row, np.int32(number + next_row)
    store_vector(y, to, maximum(best, broadcast(np.float32(-np.inf), zero)))
    store_vector(indices, to, plus(found, of_channel))


@inlined
def _sum(arrays, to, at, number, moves, of_channel, total):
    """Add up the gradients of the windows that have selected the pixel."""
    (g, indices, dx), (row_count, row, next_row, column_count, column, next_column) = arrays, moves
    for _ in range(row_count):
        p, here = np.uintp(at), number
        for _ in range(column_count):
            wanted, found = plus(of_channel, broadcast(here, of_channel)), load_vector(indices, p, of_channel)
            total = plus(total, where_equal(load_vector(g, p, total), found, wanted))
            p, here = p + column, np.int32(here + next_column)
        at, number = at + row, np.int32(number + next_row)
    store_vector(dx, to, total)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (GraphPoolingMax, "forward"): forward,
    (GraphPoolingMax, "gradient"): gradient,
}
