"""Average pooling: forward and gradient are one gather.

Both are ``target[j, i] = scale[j, i] * sum of weight[a, b] * source[a, b]``, over a run of rows a and one of columns b.
The forward pass sums the pixels of a window and scales the result by ``1/Ny * 1/Nx``; the gradient weights each
gradient pixel with that factor and sums over the windows that read a pixel. Runs and factors are products of the two
axes, so the sum is separable: first the rows of the run are added up, as long vectors, into a row of sums, then columns
of that row, in blocks that stay in cache. An element costs one multiply-add for each row and one for each column.

Sums are float32, and float64 where they have more than 1,024 terms. Workspace of a thread: a row of sums, and a row of
results where they are stored in another dtype.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpsref.arguments.arrays import Array
from mpsref.kernels.pooling_average import AverageForward, AverageGradient, PoolingAverage
from mpsref.operations import planned
from mpsref.registry import Implementation, OperationKey
from mpsref.tables import Runs
from mpsref_cpu.compiling import compiled
from mpsref_cpu.simd.weighted_sums import Blocks, EvenTerms, weighted_sum
from mpsref_cpu.threads import for_rows

MOST_FLOAT32_TERMS = 1024

MOST_FLOAT32_RUN = 64
"""Like ``MOST_FLOAT32_TERMS``, for windows of whole rows, whose terms are added one after the other."""

BLOCK = 4096
"""Approximate number of elements of a row that are processed at once: 16 KB, half of a usual L1 cache."""

LONG_PIXEL = 128
"""Minimum number of channels for which it is faster to write target columns in their order."""


class Rows(NamedTuple):
    """The y axis: target row j sums ``terms[j]`` source rows from ``first[j]`` on."""

    first: npt.NDArray[np.int64]
    terms: npt.NDArray[np.int64]
    weight: Array
    """A factor for each source row."""
    scale: Array
    """A factor for each target row."""


class Columns(NamedTuple):
    """The x axis, as segments of target columns that are computed alike.

    Segment k has ``length[k]`` target columns: ``start[k]`` and others ``step`` apart. Each sums ``terms[k]`` source
    columns; the run of the first one begins at ``first[k]``, that of each next one ``advance`` further on.
    """

    start: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    terms: npt.NDArray[np.int64]
    step: int
    advance: int
    weight: Array
    """A factor for each source column."""
    scale: Array
    """A factor for each segment."""


def average(problem: AverageForward | AverageGradient, source: Array, out: Array) -> None:
    """Fill ``out``: with the means of windows of ``source``, or with an image's gradient from that of such means."""
    rows, columns = _tables(problem)
    n, height, width, channels = out.shape
    sizes = (rows.weight.size, columns.weight.size, height, width, channels)
    row = out if out.dtype == rows.scale.dtype else rows.scale[:0]
    for_rows(_gather, n * height, source, row, out, sizes, rows, columns)


@planned
def _tables(problem: AverageForward | AverageGradient) -> tuple[Rows, Columns]:
    """Return the two axes of a problem, as compiled code reads them."""
    y, x = problem.runs()
    most = int(y.count.max()) * int(x.count.max())
    whole = (
        isinstance(problem, AverageForward) and problem.output_size[1] == 1 and x.count[0] == problem.source_shape[2]
    )
    dtype = np.float32 if most <= (MOST_FLOAT32_RUN if whole else MOST_FLOAT32_TERMS) else np.float64
    inverse_y, inverse_x = (inverse.astype(dtype) for inverse in problem.reciprocals())
    _, height, width, channels = problem.result_shapes[0]
    (_, source_height, source_width, _), *_ = problem.input_shapes.values()
    stride = problem.spec.windows[1].stride
    first, terms = y.first.astype(np.int64), y.count.astype(np.int64)
    if isinstance(problem, AverageForward):
        if whole:  # windows of whole rows: each pixel is a row of its own
            first, terms, x = first * source_width, terms * source_width, replace(x, count=np.ones_like(x.count))
            source_height, source_width = source_height * source_width, 1
        rows = Rows(first, terms, weight=np.ones(source_height, dtype), scale=inverse_y)
        return rows, _segments(x, channels, 1, stride, weight=np.ones(source_width, dtype), scale=inverse_x)
    rows = Rows(first, terms, weight=inverse_y, scale=np.ones(height, dtype))
    # Each of the next windows reads the pixel a stride further on; meanwhile, adjacent pixels are read by the same
    # windows.
    strided, same = (
        _segments(x, channels, step, advance, weight=inverse_x, scale=np.ones(width, dtype))
        for step, advance in ((stride, 1), (1, 0))
    )
    ordered = same.start.size <= strided.start.size or (stride > 1 and channels >= LONG_PIXEL)
    return rows, same if ordered else strided


def _segments(runs: Runs, channels: int, step: int, advance: int, weight: Array, scale: Array) -> Columns:
    """Group columns that are ``step`` apart and have runs ``advance`` apart, of equal lengths and weights."""
    step, advance = min(step, runs.first.size), min(advance, weight.size)  # longer ones reach no second column
    order = np.argsort(np.arange(runs.first.size) % step, kind="stable")
    first, terms, scale = runs.first[order].astype(np.int64), runs.count[order].astype(np.int64), scale[order]
    changes = np.concatenate([[0], np.cumsum(weight[1:] != weight[:-1])])  # of the weights before each source column
    last = np.maximum(first + terms - 1, 0)
    moved = (np.diff(first) == advance) & (changes[last[1:]] == changes[first[:-1]])
    # Windows whose equal runs are a whole stride apart are all inside the image, so their scales are equal too.
    alike = (np.diff(order) == step) & (np.diff(terms) == 0) & (moved | (terms[1:] == 0))
    alike &= np.arange(1, order.size) % max(1, BLOCK // channels) != 0
    start = np.flatnonzero(np.concatenate([[True], ~alike]))
    length = np.diff(start, append=order.size)
    return Columns(order[start], length, first[start], terms[start], step, advance, weight, scale[start])


@compiled
def _gather(begin, end, source, results, target, sizes, rows, columns):
    """Compute rows ``begin`` to ``end`` of the target, counted through all images.

    ``results``, in which rows are computed, is the target itself, or an empty vector: then each row is computed in a
    vector of its dtype.
    """
    source_height, source_width, height, width, channels = sizes
    pitch = source_width * channels
    in_place = results.size > 0
    if not in_place:
        results = np.empty(width * channels, results.dtype)
    sums, factors = np.empty(pitch, rows.scale.dtype), np.empty(columns.terms.max(), rows.scale.dtype)
    step, advance = columns.step * channels, columns.advance * channels
    for row in range(begin, end):
        image, j = divmod(row, height)
        first, terms, scale = rows.first[j], rows.terms[j], rows.scale[j]
        start = (image * source_height + first) * pitch
        at = row * width * channels if in_place else 0
        if terms == 1:  # no rows to add: columns are read from the source itself
            scale *= rows.weight[first]
        done = 0  # elements of the row of sums
        for k in range(columns.start.size):
            b, count, factor = columns.first[k], columns.terms[k] if terms else 0, scale * columns.scale[k]
            blocks = Blocks(columns.length[k], channels, step, advance)
            if step == channels == advance:  # adjacent columns from adjacent columns: one long block
                blocks = Blocks(1, columns.length[k] * channels, step, advance)
            q, p = at + columns.start[k] * channels, b * channels
            for t in range(count):
                factors[t] = factor * columns.weight[b + t]
            if terms > 1:
                needed = (b + columns.advance * (columns.length[k] - 1) + count) * channels
                if count > 0 and needed > done:
                    new = EvenTerms(start + done, pitch, rows.weight, first)
                    weighted_sum(sums, done, source, new, terms, Blocks(1, needed - done, 0, 0))
                    done = needed
                weighted_sum(results, q, sums, EvenTerms(p, channels, factors, 0), count, blocks)
            else:
                weighted_sum(results, q, source, EvenTerms(start + p, channels, factors, 0), count, blocks)
        if not in_place:
            stored = target[row * width * channels : (row + 1) * width * channels]
            for i in range(stored.size):
                stored[i] = results[i]


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (PoolingAverage, "forward"): average,
    (PoolingAverage, "gradient"): average,
}
