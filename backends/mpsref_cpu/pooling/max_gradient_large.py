"""The gradient of max pooling with larger windows: maxima of sorted keys, then one addition for each window.

A key (:mod:`mpsref_cpu.simd.keys`) is the value of a pixel and its place: larger for larger values, and among equal
ones for the first in raster order. So the maximum of the keys of a window, in any order, is the pixel that receives its
gradient. A NaN is smaller than every number, with a place outside the image. Maxima of K consecutive keys are computed
from those of fewer, three at a time, first along the rows, then along the columns: for 13 x 13 taps, 6 passes. A window
then adds its ``g`` at the place in its key.

Pixels outside the image are included in the rows of keys, as zeros with a place around the image, or as repetitions.
All of a chunk, some rows of dx for some channels, is computed at once. Every element of dx adds up its windows in
raster order, whatever the threads, in float32, and in float64 where there may be more than 1,024.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpsref import tables
from mpsref.arguments.arrays import Array
from mpsref.geometry import Window
from mpsref.kernels.pooling import PoolingGradient
from mpsref.operations import cached_in_problem
from mpsref_cpu.compiling import compiled, inlined, uncounted
from mpsref_cpu.pooling.windows import LEAST_CHANNELS, MOST_FLOAT32_TERMS, Indices, RowChunks, WindowPixels
from mpsref_cpu.simd.keys import LAST_PLACE, NO_KEY, key, place_of
from mpsref_cpu.simd.vectors import CACHE_LINE
from mpsref_cpu.threads import for_rows

ROWS_OF_CHUNK = 5
"""Number of rows of keys of a chunk, in extents of a window; :class:`RowChunks` cuts rows accordingly."""


class Axis(NamedTuple):
    """The windows of an axis on its *positions*: its pixels from position ``zero`` on, and some outside the image."""

    start: Indices
    """The position of the first tap of each window."""
    passes: npt.NDArray[np.int64]
    """For each pass, the distances of the second and the third key of which it takes the maximum."""
    span: int
    """The distance between the first and the last tap of a window."""
    length: int
    """The number of positions that are computed."""
    zero: int
    low: int
    """The pixel that positions before the image read, -1 if it is outside the image."""
    high: int
    pixels: WindowPixels

    @classmethod
    def of(cls, window: Window, reads: tables.Reads, touching: tables.Touching, length: int) -> Axis:
        """Return the axis without taps before and after the image that repeat another tap."""
        before, first, count = (a.astype(np.int64) for a in (reads.before, reads.first, reads.count))
        taps = min(window.kernel, int(count.max()) + 2)
        before -= np.clip(before - 1, 0, window.kernel - taps)
        start = np.where(count > 0, first - before * reads.step, np.where(before > 0, -taps * reads.step, length))
        passes: list[tuple[int, int]] = []
        done = 1
        while done < taps or not passes:
            following = min(3 * done, taps)
            passes.append(((following - done + 1) // 2 * reads.step, (following - done) * reads.step))
            done = following
        low, high = (reads.low, reads.high) if reads.low >= 0 else (-1, length)
        zero = max(0, -int(start.min()))
        distances = np.array(passes, np.int64).reshape(-1, 2)
        start, span = start + zero, (taps - 1) * reads.step
        length = int(start.max()) + span + 1
        return cls(start, distances, span, length, zero, low, high, WindowPixels.of(touching))

    def bands(self, height: int) -> npt.NDArray[np.int64]:
        """Return the windows that read each band of pixels, the positions that they read, and the pixels there."""
        bands = []
        for j in range(0, self.pixels.pixel.size, height):
            first, count = self.pixels.first[j : j + height], self.pixels.count[j : j + height]
            windows = positions = np.zeros(2, np.int64)
            if count.any():
                windows = np.array([first[count > 0].min(), (first + count).max()])
                start = self.start[slice(*windows)]
                positions = np.array([start.min(), start.max() + self.span + 1])
            first_pixel, last_pixel = np.clip(positions - np.array([0, 1]) - self.zero, self.low, self.high)
            bands.append([*windows, *positions, first_pixel, last_pixel + 1])
        return np.array(bands, np.int64)


class LargeMaxPlan(NamedTuple):
    axes: tuple[Axis, Axis]
    bands: npt.NDArray[np.int64]
    no_sums: Any
    """An empty vector of the dtype of the sums."""
    chunks: RowChunks


def serves(problem: PoolingGradient) -> bool:
    """Whether dilations are shorter than the image: there are few positions outside it."""
    rows, columns = problem.spec.windows
    return rows.dilation <= problem.source_shape[1] and columns.dilation <= problem.source_shape[2]


@cached_in_problem
def _plan(problem: PoolingGradient) -> LargeMaxPlan:
    geometry = zip(problem.spec.windows, problem.reads(), problem.touching(), problem.source_shape[1:3], strict=True)
    rows, columns = (Axis.of(*known) for known in geometry)
    most = rows.pixels.most * columns.pixels.most
    row_bytes = 8 * min(ROWS_OF_CHUNK * (rows.span + 1), rows.length) * (columns.length - columns.span)
    no_sums = np.empty(0, np.float32 if most <= MOST_FLOAT32_TERMS else np.float64)
    chunks = RowChunks.of(problem, row_bytes, LEAST_CHANNELS)
    return LargeMaxPlan((rows, columns), rows.bands(chunks.rows), no_sums, chunks)


def gradient(problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
    """Fill dx (N, H, W, C) from g (N, GH, GW, C) and x (N, H, W, C)."""
    axes, bands, no_sums, chunks = _plan(problem)
    sizes = *g.shape[1:3], *out.shape[1:], *chunks[:2]
    for_rows(_gradient, chunks.number, g, x, out, sizes, axes, bands, no_sums)


@compiled
def _gradient(begin, end, g, x, dx, sizes, axes, bands, no_sums):
    """Compute the chunks ``begin`` to ``end`` of dx."""
    _, _, _, width, _, chunk_channels, _ = sizes
    columns = axes[1]
    pitch = (columns.length - columns.span) * chunk_channels
    keys = _aligned(_longest(bands, 2) * pitch)
    row_keys = _aligned(columns.length * chunk_channels), _aligned(columns.length * chunk_channels)
    sums = np.empty(_longest(bands, 4) * (width + 2) * chunk_channels, no_sums.dtype)
    for chunk in range(begin, end):
        _chunk(chunk, g, x, sums, dx, sizes, axes, bands, keys, row_keys, pitch)


@inlined
def _longest(bands, begin):
    """Return the length of the longest range of a band, whose limits are in the columns ``begin`` and ``begin + 1``."""
    found = 0
    for k in range(bands.shape[0]):
        found = max(found, bands[k, begin + 1] - bands[k, begin])
    return found


@inlined
def _aligned(size):
    """Return a vector of ``size`` keys that begins at a cache line: others take twice the time to load."""
    memory = np.empty(size + CACHE_LINE // 8, np.int64)
    return memory[-memory.ctypes.data % CACHE_LINE // 8 :]


@inlined
def _pixel(axis, position):
    """Return the pixel at a position; before and after the image, its neighbour or the one that is read there."""
    return min(max(position - axis.zero, axis.low), axis.high)


@uncounted
def _chunk(chunk, g, x, sums, dx, sizes, axes, bands, keys, row_keys, pitch):
    gradient_height, gradient_width, height, width, channels, chunk_channels, chunk_rows = sizes
    rows, columns = axes
    plane, band = divmod(chunk, bands.shape[0])
    low, high, begin, end, first_pixel, end_pixel = bands[band]
    chunks = -(-channels // chunk_channels)
    image, c = plane // chunks, plane % chunks * chunk_channels
    n = min(chunk_channels, channels - c)
    sum_pitch = (width + 2) * n

    for p in range(begin, end):
        at, pixel = (p - begin) * pitch, _pixel(rows, p)
        if p > begin and pixel == _pixel(rows, p - 1):
            for i in range(np.uintp(pitch)):
                keys[np.uintp(at) + i] = keys[np.uintp(at - pitch) + i]
        else:
            start = (image * height + pixel) * width * channels + c if 0 <= pixel < height else -1
            _row_of_keys(keys, at, x, start, channels, n, (pixel - first_pixel) * sum_pitch, columns, width, row_keys)
    positions = end - begin
    for k in range(rows.passes.shape[0]):
        near, far = rows.passes[k]
        positions -= far
        for p in range(positions):
            _raise(keys, p * pitch, near * pitch, far * pitch, pitch)

    sums[: (end_pixel - first_pixel) * sum_pitch] = 0
    for a in range(low, high):
        for b in range(columns.pixels.begin, columns.pixels.end):
            at = ((image * gradient_height + a) * gradient_width + b) * channels + c
            p, q = np.uintp((rows.start[a] - begin) * pitch + columns.start[b] * n), np.uintp(at)
            for i in range(np.uintp(n)):
                sums[place_of(keys[p + i])] += g[q + i]

    for k in range(band * chunk_rows, min((band + 1) * chunk_rows, height)):
        for q in range(width):
            at = ((image * height + k) * width + q) * channels + c
            stored = dx[at : at + n]
            if rows.pixels.count[k] > 0 and columns.pixels.pixel[q] >= 0:
                p = (rows.pixels.pixel[k] - first_pixel) * sum_pitch + (columns.pixels.pixel[q] + 1) * n
                for i in range(np.uintp(n)):
                    stored[i] = np.float32(sums[np.uintp(p) + i])
            else:
                stored[:] = 0


@uncounted
def _row_of_keys(keys, at, x, start, channels, n, place, columns, width, row_keys):
    """Compute the maxima along the row at ``x[start]``, -1 for one outside the image, of ``n`` channels."""
    first, second = row_keys
    positions, of_nan = columns.length, NO_KEY | (LAST_PLACE - place)
    for p in range(positions):
        pixel = _pixel(columns, p)
        there, q = place + (pixel + 1) * n, np.uintp(p * n)
        if p > 0 and pixel == _pixel(columns, p - 1):
            for i in range(np.uintp(n)):
                first[q + i] = first[np.uintp(p * n - n) + i]
        elif start >= 0 and 0 <= pixel < width:
            source = np.uintp(start + pixel * channels)
            for i in range(np.uintp(n)):
                value = x[source + i]
                first[q + i] = key(value, there + np.int64(i)) if value == value else of_nan
        else:
            for i in range(np.uintp(n)):
                first[q + i] = key(np.float32(0), there + np.int64(i))
    for k in range(columns.passes.shape[0] - 1):
        near, far = columns.passes[k]
        positions -= far
        _maxima(second, 0, first, near * n, far * n, positions * n)
        first, second = second, first
    near, far = columns.passes[-1]
    _maxima(keys, at, first, near * n, far * n, (positions - far) * n)


@uncounted
def _maxima(into, at, source, near, far, count):
    """Set ``into`` to the largest of a key of ``source`` and those ``near`` and ``far`` elements on."""
    q, p1, p2 = np.uintp(at), np.uintp(near), np.uintp(far)
    for i in range(np.uintp(count)):
        into[q + i] = max(source[i], max(source[p1 + i], source[p2 + i]))


@uncounted
def _raise(keys, at, near, far, count):
    """Like :func:`_maxima`, in place, for ``count <= near``: LLVM sees that keys read and written do not overlap."""
    q, p1, p2 = np.uintp(at), np.uintp(at + near), np.uintp(at + far)
    for i in range(np.uintp(count)):
        keys[q + i] = max(keys[q + i], max(keys[p1 + i], keys[p2 + i]))
