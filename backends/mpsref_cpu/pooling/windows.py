"""Windows of max pooling as compiled code reads them, and how gradients of pooling are cut into chunks.

Max and L2-norm pooling are separable: one axis after the other. Their gradients go down an image row by row and keep
what they computed of a row of windows, or of a source row, as long as later rows need it. Where a chunk begins
in the middle of an image, these rows are computed again, so chunks are many rows high.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpsref import tables
from mpsref.kernels.pooling import PoolingGradient
from mpsref_cpu.compiling import inlined, uncounted
from mpsref_cpu.threads import threads_for

Indices = npt.NDArray[np.int64]

MOST_FLOAT32_TERMS = 1024
"""Maximum number of terms of a float32 sum; longer sums are float64."""

CACHE = 1 << 18
"""Maximum number of bytes of the rows that a thread keeps, half a usual L2 cache; channels are cut accordingly."""

LEAST_CHANNELS = 32
"""Minimum number of channels of a chunk: a few vectors, and no cache line is shared by many threads."""

VECTOR = 8
"""Number of channels that kernels process at once, if there are so many."""

LEAST_WINDOWS = 4
"""Minimum height of a chunk, in windows."""


class Windows(NamedTuple):
    """The pixels that the windows of an axis read, as in :class:`mpsref.tables.Reads`."""

    before: npt.NDArray[np.float64]
    first: Indices
    count: Indices  # type: ignore[assignment]  # tuples have a method of this name
    after: npt.NDArray[np.float64]
    step: int
    low: int
    high: int
    most: int
    """The length of the longest list of :func:`list_reads`."""

    @classmethod
    def of(cls, reads: tables.Reads) -> Windows:
        """Return the table in the dtypes of compiled code; counts of taps may be huge, and are factors."""
        before, after = reads.before.astype(np.float64), reads.after.astype(np.float64)
        first, count = reads.first.astype(np.int64), reads.count.astype(np.int64)
        return cls(before, first, count, after, reads.step, reads.low, reads.high, int(count.max()) + 2)

    def distinct(self) -> Windows:
        """Drop reads before or after the run of the run's own first or last pixel, which do not change a maximum."""
        last = self.first + (self.count - 1) * self.step
        before = np.where((self.count > 0) & (self.first == self.low), 0, self.before)
        after = np.where((self.count > 0) & (last == self.high), 0, self.after)
        return self._replace(before=before, after=after)


class WindowPixels(NamedTuple):
    """The windows that read each pixel of an axis, as in :class:`mpsref.tables.Touching`."""

    pixel: Indices
    first: Indices
    count: Indices  # type: ignore[assignment]  # tuples have a method of this name
    most: int
    """The largest count, at least 1."""
    begin: int
    end: int
    """All windows that read any pixel lie in ``[begin, end)``."""

    @classmethod
    def of(cls, touching: tables.Touching) -> WindowPixels:
        """Return the table in the dtype of compiled code."""
        pixel, first, count = (a.astype(np.int64) for a in (touching.pixel, touching.first, touching.count))
        used = count > 0
        begin = int(first[used].min()) if used.any() else 0
        end = int((first + count)[used].max()) if used.any() else 0
        return cls(pixel, first, count, max(1, int(count.max())), begin, end)


class Groups(NamedTuple):
    """Groups of windows of an axis that are computed alike: ``length[k]`` windows from ``start[k]`` on.

    Each reads what the one before it reads, ``advance`` further on.
    """

    start: Indices
    length: Indices
    advance: int


def groups_of_windows(
    windows: Windows, stride: int, alone: npt.NDArray[np.bool_], begin: int, end: int, *equal: Indices
) -> Groups:
    """Group the windows in ``[begin, end)`` that read alike, apart from those marked as ``alone``."""
    first, count, alone = windows.first[begin:end], windows.count[begin:end], alone[begin:end]
    alike = (np.diff(first) == stride) & (np.diff(count) == 0) & ~alone[1:] & ~alone[:-1]
    for column in equal:
        alike &= np.diff(column[begin:end]) == 0
    start = np.flatnonzero(np.concatenate([[True], ~alike])) if first.size else first
    return Groups(start + begin, np.diff(start, append=first.size), min(stride, tables.LARGEST))


def representatives(pixels: WindowPixels) -> Indices:
    """Return the gradient pixel of each source pixel of an axis, -1 where there is none."""
    result = np.full(pixels.pixel.size, -1)
    found = np.flatnonzero(pixels.pixel >= 0)
    result[pixels.pixel[found]] = found
    return result


class RowChunks(NamedTuple):
    """How a gradient (N, H, W, C) is cut: ``number`` chunks, each of ``channels`` channels and ``rows`` rows at most.

    They are counted along the rows, then through the chunks of channels, then through the images.
    """

    channels: int
    rows: int
    number: int

    @classmethod
    def of(cls, problem: PoolingGradient, row_bytes: int, multiple: int = VECTOR) -> RowChunks:
        """Cut the gradient of a problem; the rows that a thread keeps take ``row_bytes`` bytes for each channel."""
        n, height, _, channels = problem.source_shape
        nbytes = 4 * sum(map(math.prod, (*problem.input_shapes.values(), problem.source_shape)))
        width = chunk_width(n, channels, nbytes, row_bytes, multiple)
        columns = n * -(-channels // width)
        extent = min(problem.spec.windows[0].extent, height)
        wanted = max(height // (LEAST_WINDOWS * extent), min(height, -(-threads_for(nbytes) // columns)))
        rows = -(-height // wanted)
        return cls(width, rows, columns * -(-height // rows))


def chunk_width(images: int, channels: int, nbytes: int, row_bytes: int, multiple: int = VECTOR) -> int:
    """Return how many channels are computed together, a ``multiple`` if not all.

    All, unless the rows that are kept outgrow the cache, or there are fewer images than threads: chunks of rows compute
    some rows twice, chunks of channels compute nothing twice. No chunk is narrower than a vector, so that each channel
    is computed in the same way in any chunk.
    """
    wanted = max(-(-threads_for(nbytes) // images), -(-channels * row_bytes // CACHE))
    chunks = max(1, min(wanted, channels // LEAST_CHANNELS))
    if chunks == 1:
        return channels
    width = -(-channels // (chunks * multiple)) * multiple
    while 0 < channels % width < VECTOR:
        width += VECTOR
    return min(width, channels)


@inlined
def first_row(chunk, height, rows):
    """Return the first row of a chunk of ``rows`` rows, counted through all images of ``height`` rows."""
    chunks = -(-height // rows)
    return chunk // chunks * height + chunk % chunks * rows


@uncounted
def list_reads(windows, i, pixels, times):
    """List the pixels that window i reads, in the order of taps (-1: the value 0), and how often; return how many."""
    k = 0
    if windows.before[i] > 0:
        pixels[0], times[0] = windows.low, windows.before[i]
        k = 1
    for t in range(windows.count[i]):
        pixels[k], times[k] = windows.first[i] + t * windows.step, 1.0
        k += 1
    if windows.after[i] > 0:
        pixels[k], times[k] = windows.high, windows.after[i]
        k += 1
    return k
