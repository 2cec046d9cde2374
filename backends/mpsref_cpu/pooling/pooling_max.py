"""Max pooling: the forward pass, and the choice between two algorithms for the gradient.

Forward: separable. First the maximum over the rows of a window, as long vectors, then over columns of these maxima: one
comparison an element for each row and each column of the window. NaN is larger than everything.

Gradient: neither variant stores an index image. Windows of few taps scatter their gradient tap by tap
(:mod:`mpsref_cpu.pooling.max_gradient_small`), larger ones process one axis after the other
(:mod:`mpsref_cpu.pooling.max_gradient_large`).
"""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.pooling import PoolingForward, PoolingGradient
from mpsref.kernels.pooling_max import PoolingMax
from mpsref.operations import planned
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, internal
from mpsref_cpu.pooling import max_gradient_large, max_gradient_small
from mpsref_cpu.pooling.windows import Groups, Windows, groups_of_windows, list_reads
from mpsref_cpu.threads import for_rows

MOST_TAPS = 16
"""Maximum number of taps of a window for which it is faster to scatter the gradient tap by tap."""


def forward(problem: PoolingForward, x: Array, out: Array) -> None:
    """Fill y (N, OH, OW, C) from x (N, H, W, C)."""
    rows, columns, groups = _tables(problem)
    n, height, width, channels = out.shape
    sizes = (x.shape[1], x.shape[2], height, width, channels)
    for_rows(_forward, n * height, x, out, sizes, rows, columns, groups)


def gradient(problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g (N, GH, GW, C) and x (N, H, W, C)."""
    rows, columns = problem.spec.windows
    few = rows.kernel * columns.kernel <= MOST_TAPS or not max_gradient_large.serves(problem)
    algorithm = max_gradient_small if few else max_gradient_large
    algorithm.gradient(problem, g, x, out)


@planned
def _tables(problem: PoolingForward) -> tuple[Windows, Windows, Groups]:
    rows, columns = (Windows.of(reads).distinct() for reads in problem.reads())
    alone = (columns.before > 0) | (columns.after > 0)
    return rows, columns, groups_of_windows(columns, problem.spec.windows[1].stride, alone, 0, columns.first.size)


@compiled
def _forward(begin, end, x, y, sizes, rows, columns, groups):
    """Compute rows ``begin`` to ``end`` of y, counted through all images."""
    source_height, source_width, height, width, channels = sizes
    pitch = source_width * channels
    row_maxima = np.empty(pitch, np.float32)  # for each source column, over the rows of the window
    largest = np.empty(width * channels, np.float32)
    reads = np.empty(max(rows.most, columns.most), np.int64)
    times = np.empty(reads.size, np.float64)
    for row in range(begin, end):
        image, a = divmod(row, height)
        count = list_reads(rows, a, reads, times)
        for k in range(count):
            if reads[k] >= 0:
                reads[k] = (image * source_height + reads[k]) * pitch
        _largest(row_maxima, 0, x, reads, count, (1, pitch, 0, 0))
        for k in range(groups.start.size):
            b = groups.start[k]
            count = list_reads(columns, b, reads, times)
            for t in range(count):
                reads[t] = max(-1, reads[t] * channels)
            walk = (groups.length[k], channels, channels, groups.advance * channels)
            if groups.advance == 1:  # adjacent windows: one long block
                walk = (1, groups.length[k] * channels, 0, 0)
            _largest(largest, b * channels, row_maxima, reads, count, walk)
        stored = y[row * width * channels : (row + 1) * width * channels]
        for i in range(stored.size):
            stored[i] = largest[i]


# A *walk* is (blocks, size, step, advance): block b of ``size`` elements is written at offset ``b * step`` and read at
# offset ``b * advance``. Each function makes one pass over the blocks. Indices are unsigned: for signed ones numba
# generates a test for negative values.


@internal
def _largest(into, at, source, starts, count, walk):
    """Set each block to the largest of ``count`` reads, from ``source[starts[t]]`` on; a start of -1 reads zeros."""
    if starts[0] < 0:
        _set_0(into, at, walk)
        done = 1
    elif count >= 3 and starts[1] >= 0 and starts[2] >= 0:
        _set_3(into, at, source, starts[0], starts[1], starts[2], walk)
        done = 3
    else:
        second = starts[min(1, count - 1)]
        _set_2(into, at, source, starts[0], second if second >= 0 else starts[0], walk)
        done = 2 if second >= 0 else 1
    while done < count:
        if starts[done] < 0:
            _raise_0(into, at, walk)
            done += 1
        else:
            second = starts[min(done + 1, count - 1)]
            _raise_2(into, at, source, starts[done], second if second >= 0 else starts[done], walk)
            done += 2 if second >= 0 else 1


@internal
def _larger(best, value):
    """Return the larger of two, NaN if one of them is."""
    return value if (value > best) | (value != value) else best


@internal
def _set_0(into, at, walk):
    blocks, n, step, _ = walk
    q = np.uintp(at)
    for _ in range(blocks):
        for i in range(np.uintp(n)):
            into[q + i] = 0
        q += np.uintp(step)


@internal
def _raise_0(into, at, walk):
    blocks, n, step, _ = walk
    q = np.uintp(at)
    zero = np.float32(0)
    for _ in range(blocks):
        for i in range(np.uintp(n)):
            into[q + i] = _larger(into[q + i], zero)
        q += np.uintp(step)


@internal
def _set_2(into, at, source, start0, start1, walk):
    blocks, n, step, advance = walk
    q, x0, x1 = np.uintp(at), np.uintp(start0), np.uintp(start1)
    for _ in range(blocks):
        for i in range(np.uintp(n)):
            into[q + i] = _larger(source[x0 + i], source[x1 + i])
        q += np.uintp(step)
        x0 += np.uintp(advance)
        x1 += np.uintp(advance)


@internal
def _set_3(into, at, source, start0, start1, start2, walk):
    blocks, n, step, advance = walk
    q, x0, x1, x2 = np.uintp(at), np.uintp(start0), np.uintp(start1), np.uintp(start2)
    for _ in range(blocks):
        for i in range(np.uintp(n)):
            into[q + i] = _larger(_larger(source[x0 + i], source[x1 + i]), source[x2 + i])
        q += np.uintp(step)
        x0 += np.uintp(advance)
        x1 += np.uintp(advance)
        x2 += np.uintp(advance)


@internal
def _raise_2(into, at, source, start0, start1, walk):
    blocks, n, step, advance = walk
    q, x0, x1 = np.uintp(at), np.uintp(start0), np.uintp(start1)
    for _ in range(blocks):
        for i in range(np.uintp(n)):
            into[q + i] = _larger(_larger(into[q + i], source[x0 + i]), source[x1 + i])
        q += np.uintp(step)
        x0 += np.uintp(advance)
        x1 += np.uintp(advance)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (PoolingMax, "forward"): forward,
    (PoolingMax, "gradient"): gradient,
}
