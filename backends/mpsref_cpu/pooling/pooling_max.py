"""Max pooling: the forward pass, and the choice between two algorithms for the gradient.

Forward: separable. First the maximum over the rows of a window, as long vectors, then over columns of these maxima: one
comparison an element for each row and each column of the window. It starts from -inf, and skips NaN.

Gradient: neither variant stores an index image. Windows of few taps scatter their gradient tap by tap
(:mod:`mpsref_cpu.pooling.max_gradient_small`), larger ones process one axis after the other
(:mod:`mpsref_cpu.pooling.max_gradient_large`).
"""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.pooling import PoolingForward, PoolingGradient
from mpsref.kernels.pooling_max import PoolingMax
from mpsref.operations import cached_in_problem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined, internal
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


@cached_in_problem
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
# offset ``b * advance``. Indices are unsigned: for signed ones numba generates a test for negative values.


@internal
def _largest(into, at, source, starts, count, walk):
    """Set each block to the largest of ``count`` reads, from ``source[starts[t]]`` on; a start of -1 reads zeros.

    Each call of :func:`_take` is a pass over the blocks.
    """
    done = 0
    while done < count:
        first, second, third = starts[done], starts[min(done + 1, count - 1)], starts[min(done + 2, count - 1)]
        if first < 0:
            if done == 0:
                _take(into, at, source, (0, 0, 0), 0, True, walk)
            else:
                _take(into, at, source, (0, 0, 0), 0, False, walk)
            done += 1
        elif done == 0 and count >= 3 and second >= 0 and third >= 0:
            _take(into, at, source, (first, second, third), 3, True, walk)
            done = 3
        else:
            pair = first, second if second >= 0 else first, 0
            if done == 0:
                _take(into, at, source, pair, 2, True, walk)
            else:
                _take(into, at, source, pair, 2, False, walk)
            done += 2 if second >= 0 else 1


@internal
def _larger(best, value):
    """Return the larger of a number and a value, which is skipped if it is NaN."""
    return value if value > best else best


@inlined
def _take(into, at, source, starts, number, fresh, walk):
    """Set each block to the largest of ``number`` reads and, unless it is ``fresh``, of itself; no reads are a zero.

    Where it is inlined ``number`` and ``fresh`` are constants, for which LLVM specializes the loops.
    """
    blocks, n, step, advance = walk
    q, x0, x1, x2 = np.uintp(at), np.uintp(starts[0]), np.uintp(starts[1]), np.uintp(starts[2])
    for _ in range(blocks):
        for i in range(np.uintp(n)):
            best = np.float32(-np.inf) if fresh else into[q + i]
            best = _larger(best, source[x0 + i] if number else np.float32(0))
            if number > 1:
                best = _larger(best, source[x1 + i])
            if number > 2:
                best = _larger(best, source[x2 + i])
            into[q + i] = best
        q, x0 = q + np.uintp(step), x0 + np.uintp(advance)
        x1, x2 = x1 + np.uintp(advance), x2 + np.uintp(advance)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (PoolingMax, "forward"): forward,
    (PoolingMax, "gradient"): gradient,
}
