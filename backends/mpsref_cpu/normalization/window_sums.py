"""Sums over all windows of an image, first over rows, then along a line.

Nothing is ever subtracted, so that a small sum next to a large one keeps its digits. Terms are added up in registers,
rows first; along a line, windows of K terms, if K is large, as about sqrt(K) sums of sqrt(K) terms, which windows
share. The order of the terms depends on the problem alone.

A line has one row of pixels, with zeros for those outside the image. All functions are for compiled code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpsref.geometry import Window
from mpsref.kernels.normalization_windows import WindowedGradient, WindowedProblem
from mpsref_cpu.compiling import inlined, uncounted
from mpsref_cpu.simd.vectors import (
    broadcast,
    empty_rows,
    load_vector,
    multiply_add,
    plus,
    store_vector,
    times,
    zeros_like,
)

TILE = 4096
"""Approximate number of elements of a tile of wide rows, whose lines and source stay in the L1 and L2 caches."""

WIDE = 32
"""Number of elements of a line that are computed at once; up to as many after its end are computed but not used."""

FEW = 8
"""Maximum number of terms that are added up one by one along a line."""


class Halo(NamedTuple):
    """The windows of one axis, without taps that are outside the image for all of them."""

    before: int
    """The number of taps before the centre, at most."""
    after: int
    """The number of taps after the centre, at most."""
    offset: int
    """The centre of output 0."""
    length: int
    """The number of pixels of the source."""
    outputs: int

    @classmethod
    def of(cls, window: Window, length: int, outputs: int) -> Halo:
        """Return the halo of windows, cut where they are larger than the image: other taps read 0."""
        before, after = window.center, window.kernel - 1 - window.center
        last = window.offset + outputs - 1
        return cls(
            min(before, max(0, last)), min(after, max(0, length - 1 - window.offset)), window.offset, length, outputs
        )


class ImageWindows(NamedTuple):
    """The windows of both axes, and how rows of the result are cut into tiles."""

    y: Halo
    x: Halo
    channels: int
    tile: int
    """The number of pixels of a row of the result that are computed at once."""

    @classmethod
    def of(cls, problem: WindowedProblem) -> ImageWindows:
        """Return the windows of a problem, and tiles that are nearly equal."""
        (_, *lengths, channels), outputs = problem.source_shape, problem.output_size
        y, x = (Halo.of(*axis) for axis in zip(problem.spec.windows, lengths, outputs, strict=True))
        width = lengths[1] if isinstance(problem, WindowedGradient) else outputs[1]
        halo = x.before + x.after
        return cls(y, x, channels, -(-width // -(-width * channels // max(TILE, 2 * halo * channels))))

    @property
    def most_terms(self) -> int:
        """The largest number of terms that are added up in sequence."""
        return self.y.before + self.y.after + 1 + self.x.before + self.x.after + 1


@inlined
def allocate_lines(windows, count, dtype):
    """Return ``count`` lines, each long enough for a tile and the halos of its windows' adjoint windows."""
    _, x, channels, tile = windows
    return empty_rows(count, whole_vectors((tile + 2 * (x.before + x.after)) * channels), dtype)


@inlined
def whole_vectors(length):
    """Return the length of a line of ``length`` elements and at least ``WIDE`` more."""
    return -(-length // WIDE) * WIDE + WIDE


@inlined
def readers(first, count, x):
    """Return ``(first, count)`` of the outputs whose windows have one of ``count`` pixels, and the place of the first.

    Places of a line are counted from the first such output of an axis without ends.
    """
    start = first - x.offset - x.after
    low, high = min(max(start, 0), x.outputs), min(max(start + count + x.before + x.after, 0), x.outputs)
    return (low, high - low), low - start


@uncounted
def clear(line, start, stop):
    """Set elements of a line to 0; assignments to slices take as long as a hundred of them."""
    for i in range(np.uintp(start), np.uintp(stop)):
        line[i] = 0


@uncounted
def add_image_rows(source, image, output, pixels, factor, values, squares, windows):
    """Set two lines to the sums of source pixels and of their squares, times ``factor``, over the rows of windows.

    The windows are those of outputs ``pixels``, (first, count), of a row. Pixels outside the image are zeros.
    """
    y, x, channels, _ = windows
    top, left = output + y.offset - y.before, pixels[0] + x.offset - x.before
    low, high = min(max(top, 0), y.length), min(max(top + y.before + y.after + 1, 0), y.length)
    start, stop = min(max(left, 0), x.length), min(max(left + x.before + pixels[1] + x.after, 0), x.length)
    first, pitch = ((image * y.length + low) * x.length + start) * channels, np.uintp(x.length * channels)
    reached = x.before + pixels[1] + x.after
    at, size, end = min(max(start - left, 0), reached) * channels, (stop - start) * channels, reached * channels
    for line in (values, squares):
        clear(line, 0, at)
        clear(line, at + size, end)
    none = zeros_like(values, WIDE)
    scale = broadcast(factor, none)
    for i in range(0, size if size >= WIDE else 0, WIDE):
        e = min(i, size - WIDE)  # the last vector may overlap the one before
        value, square, p = none, none, np.uintp(first + e)
        for _ in range(low, high):
            taps = load_vector(source, p, none)
            value, square, p = plus(value, taps), multiply_add(square, taps, taps), p + pitch
        store_vector(values, np.uintp(at + e), times(value, scale))
        store_vector(squares, np.uintp(at + e), times(square, scale))
    for e in range(size if size < WIDE else 0):
        found, found_squares, p = values.dtype.type(0), values.dtype.type(0), np.uintp(first + e)
        for _ in range(low, high):
            tap = values.dtype.type(source[p])
            found, found_squares, p = found + tap, found_squares + tap * tap, p + pitch
        values[np.uintp(at + e)] = found * factor
        squares[np.uintp(at + e)] = found_squares * factor


@uncounted
def add_lines(lines, length, count, size, factor, into):
    """Set ``size`` elements of a line to the sum of ``count`` lines, times ``factor``; ``lines`` is one vector."""
    none = zeros_like(into, WIDE)
    scale = broadcast(factor, none)
    for i in range(np.uintp(0), np.uintp(size), np.uintp(WIDE)):
        total, p = none, i
        for _ in range(count):
            total, p = plus(total, load_vector(lines, p, none)), p + np.uintp(length)
        store_vector(into, i, times(total, scale))


@uncounted
def sum_line(line, count, kernel, step, start, sums, room):
    """Set ``sums[i]``, ``i < count``, to ``start`` and the sum of ``line[i + t * step]`` over ``t < kernel``.

    All are lines, with ``WIDE`` more elements than are used.
    """
    run = 1 if kernel <= FEW else int(np.sqrt(kernel))
    runs, rest = divmod(kernel, run)
    parts, into, size, terms, stride, more, first = line, sums, count, runs, run * step, rest, start
    if run > 1:
        into, size, terms, stride, more, first = room, count + (kernel - run) * step, run, step, 0, line.dtype.type(0)
    for _ in range(min(run, 2)):  # one loop for both levels, because each takes a tenth of a second to compile
        for i in range(np.uintp(0), np.uintp(size), np.uintp(WIDE)):
            total, p = broadcast(first, zeros_like(line, WIDE)), i
            for _ in range(terms):
                total, p = plus(total, load_vector(parts, p, total)), p + np.uintp(stride)
            for _ in range(more):
                total, p = plus(total, load_vector(line, p, total)), p + np.uintp(step)
            store_vector(into, i, total)
        parts, into, size, terms, stride, more, first = room, sums, count, runs, run * step, rest, start


@uncounted
def copy_centres(source, image, output, pixels, into, windows):
    """Set ``into`` to the centres of the windows of outputs ``pixels`` of a row; zeros outside the image."""
    y, x, channels, _ = windows
    row, left = output + y.offset, pixels[0] + x.offset
    low = min(pixels[1], max(0, -left)) * channels
    high = max(low, min(pixels[1], x.length - left) * channels)
    if not 0 <= row < y.length:
        high = low
    p = np.uintp(((image * y.length + row) * x.length + left) * channels)
    clear(into, 0, low)
    for i in range(np.uintp(low), np.uintp(high)):
        into[i] = source[p + i]
    clear(into, high, pixels[1] * channels)
