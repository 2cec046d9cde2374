"""MPSGraph's max pooling with indices: a row of windows at a time, tap by tap, and a gather for the gradient.

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
from mpsref_cpu.compiling import compiled
from mpsref_cpu.pooling.windows import MOST_FLOAT32_TERMS
from mpsref_cpu.threads import for_rows


class Plan(NamedTuple):
    rows: Numbered
    columns: Numbered
    of_image: int
    """What an image adds to a number."""
    of_channel: int
    no_sums: Any
    """An empty vector of the dtype of the sums."""


@cached_in_problem
def _plan(problem: GraphPoolingForward | GraphPoolingGradient) -> Plan:
    rows, columns = (
        table._replace(first=table.first.astype(np.int64), number=table.number.astype(np.int64), base=table.base.copy())
        for table in problem.tables()
    )
    of_image, _, _, of_channel = problem.numbering
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
    source_height, source_width, height, width, channels = sizes
    rows, columns, of_image, of_channel, _ = plan
    n, of_channels = np.uintp(channels), (np.arange(channels) * of_channel).astype(np.int32)
    for line in range(begin, end):
        image, a = divmod(line, height)
        for b in range(width):
            to = np.uintp((line * width + b) * channels)
            for c in range(n):
                y[to + c] = -np.inf
                indices[to + c] = -1
            for i in range(rows.number[a]):
                row = (image * source_height + rows.first[a] + i * rows.step) * source_width
                of_row = rows.base[a] + i * rows.change + image * of_image
                for k in range(columns.number[b]):
                    at = np.uintp((row + columns.first[b] + k * columns.step) * channels)
                    number = np.int32(of_row + columns.base[b] + k * columns.change)
                    for c in range(n):
                        value = x[at + c]
                        better = (value > y[to + c]) | ((indices[to + c] < 0) & (value == value))
                        y[to + c] = value if better else y[to + c]
                        indices[to + c] = np.int32(number + of_channels[c]) if better else indices[to + c]


@compiled
def _gradient(begin, end, g, indices, dx, sizes, plan):
    """Compute rows ``begin`` to ``end`` of dx, counted through all images."""
    gradient_height, gradient_width, height, width, channels = sizes
    rows, columns, of_image, of_channel, no_sums = plan
    n, sums = np.uintp(channels), np.empty(channels, no_sums.dtype)
    of_channels = (np.arange(channels) * of_channel).astype(np.int32)
    for line in range(begin, end):
        image, j = divmod(line, height)
        for q in range(width):
            sums[:] = 0
            for i in range(rows.number[j]):
                row = (image * gradient_height + rows.first[j] + i * rows.step) * gradient_width
                of_row = rows.base[j] + i * rows.change + image * of_image
                for k in range(columns.number[q]):
                    at = np.uintp((row + columns.first[q] + k * columns.step) * channels)
                    number = np.int32(of_row + columns.base[q] + k * columns.change)
                    for c in range(n):
                        value, is_selected = g[at + c], np.int32(indices[at + c] - of_channels[c]) == number
                        sums[c] += value if is_selected else np.float32(0)
            to = np.uintp((line * width + q) * channels)
            for c in range(n):
                dx[to + c] = np.float32(sums[c])


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (GraphPoolingMax, "forward"): forward,
    (GraphPoolingMax, "gradient"): gradient,
}
