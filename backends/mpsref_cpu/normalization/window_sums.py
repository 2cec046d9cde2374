"""Sums over all windows of a line or of a stack of rows, at a cost that hardly depends on the size of the window.

Nothing is ever subtracted, so that a small sum next to a large one keeps its digits. Rows are summed block by block: a
window of K rows is the end of one block of K rows and the start of the next, whose partial sums are shared; three
additions a row, whatever K is. On a line, sums of 2, 4, 8, ... elements are computed by doubling, and those in the
binary representation of K are added up.

Spatial and local contrast normalization compute their results in chunks of rows, from a stack of source rows with a
halo of the window on both sides. Chunks depend on the problem alone, and so do the results, whatever the number of
threads. Rows in which two chunks overlap are computed twice; a chunk has about twice as many rows as the window, so
that the cost hardly depends on its size.

Workspaces are C-contiguous. All functions are for compiled code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpsref.geometry import Window
from mpsref.kernels.normalization_windows import WindowedGradient, WindowedProblem
from mpsref_cpu.compiling import inlined, internal
from mpsref_cpu.simd.half import load

CHUNK = 1 << 14
"""Elements of a chunk of narrow rows, about."""


class Halo(NamedTuple):
    """The windows of one axis, without taps that are outside the image for all of them."""

    before: int
    """Taps before a centre, at most."""
    after: int
    """Taps after a centre, at most."""
    offset: int
    """The centre of output 0."""
    length: int
    """Pixels of the source."""
    outputs: int

    @classmethod
    def of(cls, window: Window, length: int, outputs: int) -> Halo:
        """Return the halo of windows, cut where they are larger than the image: other taps read 0."""
        before, after = window.center, window.kernel - 1 - window.center
        last = window.offset + outputs - 1
        return cls(
            min(before, max(0, last)), min(after, max(0, length - 1 - window.offset)), window.offset, length, outputs
        )


@internal
def sum_rows(rows, first, count, kernel):
    """Replace row i of ``rows``, ``first <= i < first + count``, by the sum of rows i ... i + kernel - 1.

    The rows that are read, ``kernel - 1`` more, lose their values.
    """
    if kernel == 1:
        return
    width = np.uintp(rows.shape[1])
    head = np.empty(rows.shape[1], rows.dtype)
    for start in range(first, first + count, kernel):
        for i in range(start + kernel - 2, start - 1, -1):  # from here on, row i is the sum of the rest of its block
            _add(rows[i], rows[i + 1], width)
        head[:] = 0
        for i in range(start + 1, min(start + kernel, first + count)):
            _add(head, rows[i + kernel - 1], width)
            _add(rows[i], head, width)


@inlined
def _add(into, term, width):
    for i in range(width):
        into[i] += term[i]


@internal
def sum_line(line, count, kernel, step, sums, room):
    """Set ``sums[i]``, ``i < count``, to the sum of ``line[i + t * step]`` over ``t < kernel``.

    ``line`` has ``count + (kernel - 1) * step`` elements, which lose their values; ``room`` is as large.
    """
    n, taken, power = count + (kernel - 1) * step, 0, 1
    here, there = line, room
    while True:
        if kernel & power:
            q = np.uintp(taken * step)
            if taken == 0:
                for i in range(np.uintp(count)):
                    sums[i] = here[q + i]
            else:
                for i in range(np.uintp(count)):
                    sums[i] += here[q + i]
            taken += power
        if taken == kernel:
            return
        n -= power * step
        q = np.uintp(power * step)
        for i in range(np.uintp(n)):
            there[i] = here[i] + here[q + i]
        here, there = there, here
        power *= 2


class RowChunks(NamedTuple):
    """The windows of both axes, and how the rows of the result are cut into chunks."""

    y: Halo
    x: Halo
    channels: int
    rows: int
    """Rows of a chunk, except the last of an image."""
    number: int
    """Chunks of an image."""

    @classmethod
    def of(cls, problem: WindowedProblem) -> RowChunks:
        """Cut the result of a problem into chunks."""
        (_, *lengths, channels), outputs = problem.source_shape, problem.output_size
        y, x = (Halo.of(*axis) for axis in zip(problem.spec.windows, lengths, outputs, strict=True))
        height, width = lengths if isinstance(problem, WindowedGradient) else outputs
        rows = min(height, max(8, 2 * (y.before + y.after), CHUNK // (width * channels)))
        return cls(y, x, channels, rows, -(-height // rows))

    @property
    def most_terms(self) -> int:
        """The most terms that are added up in sequence."""
        return self.y.before + self.y.after + 1 + self.x.before + self.x.after + 1


@inlined
def allocate_stack(chunks, outputs, dtype):
    """Return memory for the source rows of ``outputs`` rows of outputs."""
    y, x, channels, _, _ = chunks
    return np.empty((outputs + y.before + y.after, (x.outputs + x.before + x.after) * channels), dtype)


@inlined
def allocate_lines(chunks, count, dtype):
    """Return memory for ``count`` lines, each as long as the longest."""
    _, x, channels, _, _ = chunks
    return np.empty((count, (max(x.outputs, x.length) + x.before + x.after) * channels), dtype)


@inlined
def copy_row(source, start, length, first, channels, into):
    """Copy pixels ``first ...`` of a row of ``length`` pixels at ``source[start]``; zeros where there are none."""
    width = into.size // channels
    low = min(width, max(0, -first))
    high = max(low, min(width, length - first))
    into[: low * channels] = 0
    into[high * channels :] = 0
    p, q = np.uintp(start + (first + low) * channels), np.uintp(low * channels)
    for i in range(np.uintp((high - low) * channels)):
        into[q + i] = load(source[p + i])


@inlined
def copy_image_row(source, image, row, first, into, chunks):
    """Copy the pixels from ``first`` on of a row of an image; zeros outside."""
    y, x, channels, _, _ = chunks
    if 0 <= row < y.length:
        copy_row(source, (image * y.length + row) * x.length * channels, x.length, first, channels, into)
    else:
        into[:] = 0
