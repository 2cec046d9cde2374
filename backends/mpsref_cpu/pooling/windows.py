"""What max and L2-norm pooling share: both axes as compiled code reads them, and how the work is cut.

Both kernels are separable, forward and backward: one dimension after the other. Their gradients go down the image
row by row. What they computed of a window row, or of a source row, they keep as long as the rows that need it follow
each other; it is computed again where a piece of work begins in the middle of an image, so pieces are high bands.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpsref import tables
from mpsref_cpu.compiling import inlined, uncounted
from mpsref_cpu.threads import threads_for

Indices = npt.NDArray[np.int64]

MOST_FLOAT32_TERMS = 1024
"""Sums of more terms are float64."""

CACHE = 1 << 18
"""Bytes that the rows kept by a thread may take, as far as channels can be cut for it: half a usual L2 cache."""

NARROWEST = 32
"""Channels of a part, at least: a few vectors, and no cache line shared by many threads."""

VECTOR = 8
"""Channels that kernels take at once, at least where there are as many."""

HIGH = 4
"""A band is so many windows high, at least."""


class Windows(NamedTuple):
    """What the windows of an axis read, as in :class:`mpsref.tables.Reads`."""

    before: npt.NDArray[np.float64]
    first: Indices
    count: Indices  # type: ignore[assignment]  # tuples have a method of this name
    after: npt.NDArray[np.float64]
    step: int
    low: int
    high: int
    most: int
    """The longest list that :func:`list_reads` makes."""

    @classmethod
    def of(cls, reads: tables.Reads) -> Windows:
        """Return the table in the dtypes of compiled code; counts of taps may be huge, and become factors."""
        before, after = reads.before.astype(np.float64), reads.after.astype(np.float64)
        first, count = reads.first.astype(np.int64), reads.count.astype(np.int64)
        return cls(before, first, count, after, reads.step, reads.low, reads.high, int(count.max()) + 2)

    def distinct(self) -> Windows:
        """Leave out what is read before or after the run if it is the run's own first or last pixel."""
        last = self.first + (self.count - 1) * self.step
        before = np.where((self.count > 0) & (self.first == self.low), 0, self.before)
        after = np.where((self.count > 0) & (last == self.high), 0, self.after)
        return self._replace(before=before, after=after)


class Pixels(NamedTuple):
    """What the destination pixels of an axis stand for, as in :class:`mpsref.tables.Touching`."""

    pixel: Indices
    first: Indices
    count: Indices  # type: ignore[assignment]  # tuples have a method of this name
    most: int
    """The largest count, at least 1."""
    begin: int
    end: int
    """All gradient pixels that count for any destination pixel lie in ``[begin, end)``."""

    @classmethod
    def of(cls, touching: tables.Touching) -> Pixels:
        """Return the table in the dtype of compiled code."""
        pixel, first, count = (a.astype(np.int64) for a in (touching.pixel, touching.first, touching.count))
        used = count > 0
        begin = int(first[used].min()) if used.any() else 0
        end = int((first + count)[used].max()) if used.any() else 0
        return cls(pixel, first, count, max(1, int(count.max())), begin, end)


class Groups(NamedTuple):
    """Positions of an axis that are computed alike: ``length[k]`` of them, ``start[k]`` and others ``step`` apart.

    What one of them reads lies ``advance`` after what the one before it reads.
    """

    start: Indices
    length: Indices
    step: int
    advance: int


def groups_of_windows(
    windows: Windows, stride: int, alone: npt.NDArray[np.bool_], begin: int, end: int, *equal: Indices
) -> Groups:
    """Group the windows in ``[begin, end)``; each of those that are marked stays alone."""
    first, count = windows.first[begin:end], windows.count[begin:end]
    groups = _groups(1, alone[begin:end], (first, stride), (count, 0), *((e[begin:end], 0) for e in equal))
    return groups._replace(start=groups.start + begin, advance=min(stride, tables.LARGEST))


def groups_of_pixels(pixels: Pixels, alone: npt.NDArray[np.bool_], stride: int) -> Groups:
    """Group destination pixels; each of those that are marked stays alone."""
    step = min(stride, pixels.pixel.size)
    position = np.arange(pixels.pixel.size)
    unread = pixels.count == 0
    first = np.where(unread, position // step, pixels.first)
    pixel = np.where(unread, position, pixels.pixel)
    return _groups(step, alone, (first, 1), (pixels.count, 0), (pixel, step))


def _groups(step: int, alone: npt.NDArray[np.bool_], *moves: tuple[Indices, int]) -> Groups:
    """Group positions that are ``step`` apart and along which each of the columns goes up by its constant."""
    order = np.argsort(np.arange(alone.size) % step, kind="stable")
    alike = (np.diff(order) == step) & ~alone[order[1:]] & ~alone[order[:-1]]
    for column, move in moves:
        alike &= np.diff(column[order]) == move
    start = np.flatnonzero(np.concatenate([[True], ~alike])) if order.size else order
    return Groups(order[start], np.diff(start, append=order.size), step, 1)


def places(pixels: Pixels) -> Indices:
    """Return the destination pixel that stands for each source pixel of an axis, -1 where none does."""
    place = np.full(pixels.pixel.size, -1)
    standing = np.flatnonzero(pixels.pixel >= 0)
    place[pixels.pixel[standing]] = standing
    return place


def part_width(images: int, channels: int, nbytes: int, kept: int) -> int:
    """Return how many channels are computed together.

    All, unless the rows kept (``kept`` bytes a channel) outgrow the cache, or there are fewer images than the threads
    need: to cut the rows of an image costs rows computed twice, to cut its channels does not. No part is narrower than
    a vector, so that channels are computed alike in whatever part they are.
    """
    wanted = max(-(-threads_for(nbytes) // images), -(-channels * kept // CACHE))
    parts = max(1, min(wanted, channels // NARROWEST))
    if parts == 1:
        return channels
    part = -(-channels // (parts * VECTOR)) * VECTOR
    while 0 < channels % part < VECTOR:
        part += VECTOR
    return min(part, channels)


def band_height(units: int, height: int, extent: int, nbytes: int) -> int:
    """Return how many rows a piece of work has, if images or parts of them (``units``) are ``height`` rows high.

    ``HIGH`` windows (``extent`` rows each) or more, unless some thread would then have nothing to do.
    """
    return -(-height // max(height // (HIGH * extent), min(height, -(-threads_for(nbytes) // units))))


@inlined
def first_row(piece: int, height: int, band: int) -> int:
    """Return where a piece of work begins, counted through all units; ``band`` is its height."""
    bands = -(-height // band)
    return piece // bands * height + piece % bands * band


@uncounted
def list_reads(windows: Windows, i: int, pixels: Any, times: Any) -> int:
    """Write down what window i reads, in the order of its taps: pixels (-1: the value 0), each so many times."""
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
