"""Average pooling: forward and gradient are one gather.

Both are ``target[j, i] = sum over a in rows[j], b in columns[i] of weight * source[a, b]``: the forward pass sums the
pixels of a window and scales each result by ``1/Ny * 1/Nx``; the gradient scales each gradient pixel so and sums over
the windows that read a pixel. The sum is separable: first the rows of ``source`` are added up, each a long vector, into
one row of sums that stays in cache, then columns of that row. A tap costs one multiply-add per axis and element.

Sums are float32, and float64 where they have more than 1,024 terms. Workspace: a row or two a thread.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from mpsref.images import Array
from mpsref.kernels.pooling_average import AverageForward, AverageGradient, PoolingAverage
from mpsref.registry import Implementation, OperationKey
from mpsref.tables import Runs
from mpsref_cpu.half import as_storage, load, store
from mpsref_cpu.parallel import for_rows

__all__ = ["IMPLEMENTATIONS"]

MOST_FLOAT32_TERMS = 1024

compiled = njit(cache=True, nogil=True, fastmath={"contract"})  # fused multiply-add, and nothing that changes results


class Rows(NamedTuple):
    """The y axis: target row j sums ``count[j]`` source rows from ``first[j]`` on."""

    first: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    weight: Array
    """A factor for each source row."""
    scale: Array
    """A factor for each target row."""


class Columns(NamedTuple):
    """The x axis, in segments of target columns that are computed alike.

    Segment k has ``length[k]`` target columns from ``start[k]`` on, ``step`` apart; each sums ``count[k]`` source columns,
    the first target column from ``first[k]`` on and each next one from ``advance`` further on.
    """

    start: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]
    step: int
    advance: int
    weight: Array
    scale: Array


def forward(problem: AverageForward, x: Array, out: Array) -> None:
    """Fill ``out`` with the mean of each window of ``x``."""
    _run(problem, x, out)


def gradient(problem: AverageGradient, g: Array, out: Array) -> None:
    """Fill ``out`` with the gradient of the source image, from the gradient ``g`` of the result."""
    _run(problem, g, out)


def _run(problem: AverageForward | AverageGradient, source: Array, out: Array) -> None:
    rows, columns = _tables(problem)
    n, target_height, target_width, channels = out.shape
    sizes = source.shape[1], source.shape[2], target_height, target_width, channels
    pixels, results = as_storage(source), as_storage(out)
    dtype = rows.weight.dtype
    in_place = results.dtype == dtype

    def body(begin: int, end: int) -> None:
        sums = np.empty(sizes[1] * channels, dtype)
        into = results if in_place else np.empty(target_width * channels, dtype)
        _gather(begin, end, pixels, sums, into, in_place, results, sizes, rows, columns)

    for_rows(body, n * target_height, source.nbytes + out.nbytes)


@lru_cache(maxsize=256)
def _tables(problem: AverageForward | AverageGradient) -> tuple[Rows, Columns]:
    """Return the two axes of a problem as compiled code reads them."""
    y, x = problem.runs()
    terms = int(y.count.max()) * int(x.count.max())
    dtype = np.float32 if terms <= MOST_FLOAT32_TERMS else np.float64
    inverse_y, inverse_x = (inverse.astype(dtype) for inverse in problem.reciprocals())
    stride = problem.spec.strides[1]
    if isinstance(problem, AverageForward):
        _, height, width, _ = problem.source_shape
        weight_y, weight_x, scale_y, scale_x = np.ones(height, dtype), np.ones(width, dtype), inverse_y, inverse_x
        step, advance = 1, stride
    else:
        weight_y, weight_x, scale_y, scale_x = inverse_y, inverse_x, np.ones_like(y.first, dtype), np.ones_like(x.first, dtype)
        step, advance = stride, 1
    return Rows(y.first, y.count, weight_y, scale_y), _segments(x, step, advance, weight_x, scale_x)


def _segments(runs: Runs, step: int, advance: int, weight: Array, scale: Array) -> Columns:
    """Group the columns ``q, q + step, ...`` whose runs are ``advance`` apart, with equal counts and factors."""
    step = min(step, runs.first.size)
    order = np.argsort(np.arange(runs.first.size) % step, kind="stable")
    first, count, scale = runs.first[order].astype(np.int64), runs.count[order].astype(np.int64), scale[order]
    changes = np.concatenate([[0], np.cumsum(weight[1:] != weight[:-1])])  # of the weight, up to each source column
    last = first + count - 1
    moved = (np.diff(first) == advance) & (changes[last[1:]] == changes[first[:-1]])
    alike = (np.diff(order) == step) & (np.diff(count) == 0) & (np.diff(scale) == 0) & (moved | (count[1:] == 0))
    start = np.flatnonzero(np.concatenate([[True], ~alike]))
    length = np.diff(np.append(start, order.size))
    return Columns(order[start], length, first[start], count[start], step, min(advance, 2**31), weight, scale[start])


@compiled
def _gather(
    begin: int,
    end: int,
    source: Any,
    sums: Any,
    into: Any,
    in_place: bool,
    target: Any,
    sizes: Any,
    rows: Rows,
    columns: Columns,
) -> None:
    """Compute the rows ``begin ... end - 1`` of all images, counted through."""
    height, width, target_height, target_width, channels = sizes
    pitch, target_pitch = width * channels, target_width * channels
    to, of = columns.step * channels, columns.advance * channels
    one = sums.dtype.type(1)
    for row in range(begin, end):
        image, j = divmod(row, target_height)
        first, count, scale = rows.first[j], rows.count[j], rows.scale[j]
        start = (image * height + first) * pitch
        at = row * target_pitch if in_place else 0
        if count > 1:
            _weighted_sum(sums, 0, 0, source, start, 0, pitch, 1, pitch, rows.weight, first, count, one)
        else:  # there is nothing to add up: read the row itself
            scale *= rows.weight[first]
        for k in range(columns.start.size):
            blocks, size, terms = columns.length[k], channels, columns.count[k] if count else 0
            if to == channels and of == channels:  # neighbours of neighbours: one long block
                blocks, size = 1, blocks * channels
            q, b = at + columns.start[k] * channels, columns.first[k]
            factor = scale * columns.scale[k]
            if count > 1:
                _weighted_sum(
                    into, q, to, sums, b * channels, of, channels, blocks, size, columns.weight, b, terms, factor
                )
            else:
                _weighted_sum(
                    into, q, to, source, start + b * channels, of, channels, blocks, size, columns.weight, b, terms, factor
                )
        if not in_place:
            stored = target[row * target_pitch : (row + 1) * target_pitch]
            for i in range(target_pitch):
                stored[i] = store(into[i], stored[i])


@compiled
def _weighted_sum(
    into: Any,
    at: int,
    to: int,
    source: Any,
    start: int,
    of: int,
    tap: int,
    blocks: int,
    size: int,
    weight: Any,
    first: int,
    count: int,
    scale: float,
) -> None:
    """Set ``into[at + to * b + i] = scale * sum of weight[first + t] * source[start + of * b + tap * t + i], t < count``.

    For ``b < blocks`` and ``i < size``. Up to three terms are added at once, so that ``into`` is seldom read back.
    """
    if count == 0:
        _set_0(into, at, to, blocks, size)
    elif count == 1:
        _set_1(into, at, to, source, start, of, blocks, size, scale * weight[first])
    elif count % 2 == 0:
        _set_2(into, at, to, source, start, of, tap, blocks, size, scale * weight[first], scale * weight[first + 1])
    else:
        _set_3(
            into, at, to, source, start, of, tap, blocks, size, scale * weight[first], scale * weight[first + 1], scale * weight[first+2]
        )
    for t in range(2 + count % 2, count, 2):
        _add_2(into, at, to, source, start + t * tap, of, tap, blocks, size, scale * weight[first + t], scale * weight[first + t + 1])

# Unsigned indices below: numba looks at each signed one whether it counts from the end, and then does not vectorize.
@compiled
def _set_0(into: Any, at: int, to: int, blocks: int, size: int) -> None:
    q, n = np.uintp(at), np.uintp(size)
    for _ in range(blocks):
        for i in range(n):
            into[q + i] = 0
        q += np.uintp(to)


@compiled
def _set_1(into: Any, at: int, to: int, source: Any, start: int, of: int, blocks: int, size: int, w: float) -> None:
    q, x, n = np.uintp(at), np.uintp(start), np.uintp(size)
    for _ in range(blocks):
        for i in range(n):
            into[q + i] = w * load(source[x + i])
        q += np.uintp(to)
        x += np.uintp(of)


@compiled
def _set_2(into: Any, at: int, to: int, source: Any, start: int, of: int, tap: int, blocks: int, size: int, w0: float, w1: float) -> None:
    q, x, y, n = np.uintp(at), np.uintp(start), np.uintp(start + tap), np.uintp(size)
    for _ in range(blocks):
        for i in range(n):
            into[q + i] = w0 * load(source[x + i]) + w1 * load(source[y + i])
        q += np.uintp(to)
        x += np.uintp(of)
        y += np.uintp(of)

@compiled
def _add_2(into: Any, at: int, to: int, source: Any, start: int, of: int, tap: int, blocks: int, size: int, w0: float, w1: float) -> None:
    q, x, y, n = np.uintp(at), np.uintp(start), np.uintp(start + tap), np.uintp(size)
    for _ in range(blocks):
        for i in range(n):
            into[q + i] += w0 * load(source[x + i]) + w1 * load(source[y + i])
        q += np.uintp(to)
        x += np.uintp(of)
        y += np.uintp(of)

@compiled
def _set_3(into: Any, at: int, to: int, source: Any, start: int, of: int, tap: int, blocks: int, size: int, w0: float, w1: float, w2: float) -> None:
    q, x, y, z, n = np.uintp(at), np.uintp(start), np.uintp(start + tap), np.uintp(start + 2 * tap), np.uintp(size)
    for _ in range(blocks):
        for i in range(n):
            into[q + i] = w0 * load(source[x + i]) + w1 * load(source[y + i]) + w2 * load(source[z + i])
        q += np.uintp(to)
        x += np.uintp(of)
        y += np.uintp(of)
        z += np.uintp(of)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (PoolingAverage, "forward"): forward,
    (PoolingAverage, "gradient"): gradient,
}
