"""Average pooling: forward and gradient are one gather, a separable sum (:mod:`mpsref_cpu.pooling.separable`).

The forward pass sums the pixels of a window, all with the weight ``1/Ny * 1/Nx`` of the window. The gradient sums over
the windows that read a pixel, with the same weights. Workspace of a thread: a row of sums, and a row of results where
they are stored in another dtype.
"""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.interpolation import WeightTable
from mpsref.kernels.pooling_average import AverageForward, AverageGradient, PoolingAverage
from mpsref.operations import cached_in_problem
from mpsref.registry import Implementation, OperationKey
from mpsref.tables import Runs
from mpsref_cpu.compiling import compiled
from mpsref_cpu.pooling.separable import LONG_PIXEL, Axes, axes_of, memory_for, sum_row
from mpsref_cpu.pooling.windows import MOST_FLOAT32_TERMS
from mpsref_cpu.threads import for_rows

MOST_FLOAT32_RUN = 64
"""Like ``MOST_FLOAT32_TERMS``, for windows of whole rows, whose terms are added one after the other."""


def average(problem: AverageForward | AverageGradient, source: Array, out: Array) -> None:
    """Fill ``out``: with the means of windows of ``source``, or with an image's gradient from that of such means."""
    axes, source_height, source_width = _plan(problem)
    n, height, width, channels = out.shape
    sizes = (source_height, source_width, height, width, channels)
    row = out if out.dtype == axes[0].weights.dtype else axes[0].weights[:0]
    for_rows(_average, n * height, source, row, out, sizes, axes)


@cached_in_problem
def _plan(problem: AverageForward | AverageGradient) -> tuple[Axes, int, int]:
    """Return the axes of a problem, and the numbers of rows and columns of its source."""
    y, x = problem.runs()
    inverse_y, inverse_x = problem.reciprocals()
    channels, stride = problem.result_shapes[0][3], problem.spec.windows[1].stride
    height, width = next(iter(problem.input_shapes.values()))[1:3]
    terms, most = int(y.count.max()) * int(x.count.max()), MOST_FLOAT32_TERMS
    if isinstance(problem, AverageGradient):
        # Each of the next windows reads the pixel a stride further on; adjacent pixels are read by the same windows.
        moves = [(1, 0)] if stride > 1 and channels >= LONG_PIXEL else [(1, 0), (stride, 1)]
        of_y, of_x = (
            WeightTable(y.first, y.count, y.first, inverse_y),
            WeightTable(x.first, x.count, x.first, inverse_x),
        )
    else:
        moves, pixels = [(1, stride)], 1
        if len(x.count) == 1 and x.count[0] == width:  # windows of whole rows: each pixel is a row of its own
            height, width, pixels, most = height * width, 1, width, MOST_FLOAT32_RUN
        of_y, of_x = _of_windows(y, pixels, inverse_y), _of_windows(x, 1, inverse_x)
        if pixels > 1:
            of_x = of_x._replace(number=np.ones_like(of_x.number))
    dtype = np.float32 if terms <= most else np.float64
    return axes_of(of_y, of_x, channels, dtype, *moves), height, width


def _of_windows(runs: Runs, pixels: int, inverse: Array) -> WeightTable:
    """Return the table of windows with one weight each, and ``pixels`` pixels for each of a run."""
    values, kind = np.unique(inverse, return_inverse=True)
    longest = np.zeros(values.size, np.int64)
    np.maximum.at(longest, kind, runs.count * pixels)
    start = np.cumsum(longest) - longest
    return WeightTable(runs.first * pixels, runs.count * pixels, start[kind], np.repeat(values, longest))


@compiled
def _average(begin, end, source, results, target, sizes, axes):
    """Compute rows ``begin`` to ``end`` of the target, counted through all images.

    ``results``, in which rows are computed, is the target itself, or an empty vector: then each row is computed in a
    vector of its dtype.
    """
    source_height, source_width, height, width, channels = sizes
    in_place, pitch = results.size > 0, width * channels
    if not in_place:
        results = np.empty(pitch, results.dtype)
    memory = memory_for(source_width * channels, *axes)
    for row in range(begin, end):
        image, j = divmod(row, height)
        start, at = image * source_height * source_width * channels, row * pitch if in_place else 0
        sum_row(results, at, source, start, source_width, channels, j, axes, memory, False)
        if not in_place:
            stored = target[row * pitch : (row + 1) * pitch]
            for i in range(stored.size):
                stored[i] = results[i]


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (PoolingAverage, "forward"): average,
    (PoolingAverage, "gradient"): average,
}
