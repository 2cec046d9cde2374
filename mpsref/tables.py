"""Index tables of one axis: the geometry of a kernel as short vectors of integers, for use in backends.

A backend iterates over the destination and reads, for each axis, a run of pixels or windows from a table. Edge modes,
padding and clip rectangles are resolved in the tables, not in backends. Tables are computed exactly for offsets and
sizes of any magnitude, clipped to the arrays, and then stored as int32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mpsref.geometry import EdgeMode, Window, clip, included_windows

IntVector = npt.NDArray[np.int32]

LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """For each destination pixel ``count`` source indices ``first, first + step, ...``, and the tap of the first.

    In a forward table the indices are source pixels, and the tap increases by one. In a gradient table they are pixels
    of the source gradient with distance ``window_step``, and the tap decreases by ``tap_step``. All indices of a run
    are inside the array; if ``count`` is 0, ``first`` is 0.
    """

    first: IntVector
    count: IntVector
    tap: IntVector
    step: int
    tap_step: int


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """The pixels that the taps of each window of an axis read, in the order of the taps.

    The first ``before`` taps read the pixel ``low``, the next ``count`` taps the pixels ``first, first + step, ...``,
    and the last ``after`` taps the pixel ``high``. If ``low`` or ``high`` is -1, these taps read the value 0.
    """

    before: npt.NDArray[np.int64]
    first: IntVector
    count: IntVector
    after: npt.NDArray[np.int64]
    step: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, eq=False)
class Touching:
    """For each destination pixel its source pixel, and the gradient pixels whose windows may read this source pixel.

    These are the ``count`` consecutive gradient pixels from ``first`` on. With dilation, the taps of some of their
    windows skip the source pixel; with "clamp", windows outside the image that are clamped to it are included.
    ``pixel`` is -1 if the destination pixel is not computed.
    """

    pixel: IntVector
    first: IntVector
    count: IntVector


@lru_cache(maxsize=256)
def tap_runs(window: Window, outputs: int, length: int) -> Runs:
    """Return the source pixels inside an image of ``length`` pixels for each of the windows 0 ... outputs - 1.

    >>> runs = tap_runs(Window(kernel=3, stride=2), outputs=3, length=5)
    >>> runs.first.tolist(), runs.count.tolist(), runs.tap.tolist()
    ([0, 1, 3], [2, 3, 2], [1, 0, 0])
    """
    start = _starts(window, 0, outputs, length)
    begin, count = _taps_between(window, start, 0, length)
    return _runs(start + window.dilation * begin, count, begin, window.dilation, 1)


@lru_cache(maxsize=256)
def reads(window: Window, first: int, n: int, length: int, edge_mode: EdgeMode) -> Reads:
    """Return the pixels of an image of ``length`` pixels that the windows ``first ... first + n - 1`` read.

    >>> table = reads(Window(kernel=4, stride=3), 0, 3, length=5, edge_mode="clamp")
    >>> table.before.tolist(), table.first.tolist(), table.count.tolist(), table.after.tolist(), table.low, table.high
    ([2, 0, 0], [0, 1, 4], [2, 4, 1], [0, 0, 3], 0, 4)
    """
    start = _starts(window, first, n, length)
    begin, count = _taps_between(window, start, 0, length)
    pixel = np.where(count > 0, start + window.dilation * begin, 0)
    low, high = (0, length - 1) if edge_mode == "clamp" else (-1, -1)
    before, after = (_frozen(taps, np.int64) for taps in (begin, window.kernel - begin - count))
    return Reads(before, _frozen(pixel), _frozen(count), after, min(window.dilation, LARGEST), low, high)


@lru_cache(maxsize=256)
def gather_runs(
    window: Window,
    length: int,
    gradient_length: int,
    primary_offset: int = 0,
    source_size: int | None = None,
    kernel_offset: int | None = None,
    clip_origin: int = 0,
    clip_size: int | None = None,
) -> Runs:
    """Return the gradient pixels that each destination pixel sums, for a destination of the length of the source.

    The run is empty for pixels outside the clip, pixels that represent no pixel inside the source, and pixels that no
    window reads. ``kernel_offset=None`` is the canonical offset: destination pixel = source pixel.

    >>> runs = gather_runs(Window(kernel=3, stride=2), length=5, gradient_length=3)
    >>> runs.first.tolist(), runs.count.tolist()
    ([0, 0, 1, 1, 2], [1, 2, 1, 2, 1])
    """
    s, d = window.stride, window.dilation
    included = included_windows(primary_offset, source_size, gradient_length)
    j, legal = _represented(window, length, kernel_offset, clip_origin, clip_size, primary_offset, gradient_length)
    reach = j - window.offset + window.center  # s * i + d * t for every (window, tap) that reads j
    low = np.maximum(included.start, -((window.extent - 1 - reach) // s))
    high = np.minimum(included.stop - 1, reach // s)
    # s * i = reach (mod d) has solutions only where gcd(s, d) divides reach; they are window_step apart.
    common = d // window.window_step
    inverse = pow(window.tap_step, -1, window.window_step)
    first = low + (reach // common % window.window_step * inverse - low) % window.window_step
    count = np.where(legal & (reach % common == 0), (high - first) // window.window_step + 1, 0)
    tap = (reach - s * first) // d
    return _runs(primary_offset + first, count, tap, window.window_step, window.tap_step)


@lru_cache(maxsize=256)
def touching(
    window: Window,
    length: int,
    gradient_length: int,
    edge_mode: EdgeMode,
    primary_offset: int = 0,
    source_size: int | None = None,
    kernel_offset: int | None = None,
    clip_origin: int = 0,
    clip_size: int | None = None,
) -> Touching:
    """Return, for each destination pixel, its source pixel and the gradient pixels whose windows may read it.

    >>> table = touching(Window(kernel=3, stride=2, offset=-2), 4, gradient_length=4, edge_mode="clamp")
    >>> table.pixel.tolist(), table.first.tolist(), table.count.tolist()
    ([0, 1, 2, 3], [0, 1, 2, 2], [2, 2, 1, 2])
    """
    s = window.stride
    included = included_windows(primary_offset, source_size, gradient_length)
    j, legal = _represented(window, length, kernel_offset, clip_origin, clip_size, primary_offset, gradient_length)
    reach = j - window.offset + window.center
    low = np.maximum(included.start, -((window.extent - 1 - reach) // s))
    high = np.minimum(included.stop - 1, reach // s)
    if edge_mode == "clamp":  # windows outside the image read the first or the last pixel
        low = np.where(j == 0, included.start, low)
        high = np.where(j == length - 1, included.stop - 1, high)
    count = np.where(legal, np.maximum(high - low + 1, 0), 0)
    first = np.where(count > 0, primary_offset + low, 0)
    return Touching(_frozen(np.where(legal, j, -1)), _frozen(first), _frozen(count))


@lru_cache(maxsize=256)
def reciprocals(
    window: Window, first: int, n: int, length: int, edge_mode: EdgeMode, zero_pad: int = 0
) -> npt.NDArray[np.float64]:
    """Return 1/N of the windows ``first ... first + n - 1``, and 0 if N is 0 (no tap inside the image).

    >>> reciprocals(Window(kernel=2, stride=3, offset=-1), 0, 3, length=2, edge_mode="clamp").tolist()
    [0.0, 1.0, 0.0]
    """
    counts = divisors(window, first, n, length, edge_mode, zero_pad).astype(np.float64)
    return _frozen(np.divide(1.0, counts, out=np.zeros(n), where=counts > 0), np.float64)


def divisors(
    window: Window, first: int, n: int, length: int, edge_mode: EdgeMode, zero_pad: int = 0
) -> npt.NDArray[Any]:
    """Return N of the windows ``first ... first + n - 1`` as int64, or as Python integers where int64 might overflow.

    >>> divisors(Window(kernel=4, stride=3), 0, 3, length=5, edge_mode="clamp", zero_pad=1).tolist()
    [3, 4, 2]
    """
    start = _starts(window, first, n, length, zero_pad)
    if edge_mode == "zero":
        return np.full(n, window.kernel, dtype=start.dtype)
    return _taps_between(window, start, -zero_pad, length + zero_pad)[1]


def _range(n: int, *magnitudes: int | None) -> npt.NDArray[Any]:
    """Return 0, 1, ..., n - 1 as int64, or as Python integers where int64 might overflow."""
    small = all(m is None or abs(m) < 2**30 for m in (n, *magnitudes))
    return np.arange(n, dtype=np.int64 if small else object)


def _starts(window: Window, first: int, n: int, *magnitudes: int) -> npt.NDArray[Any]:
    """Return the source pixel of the first tap of the windows ``first ... first + n - 1``."""
    farthest = window.stride * (abs(first) + n)
    i = first + _range(n, first, farthest, window.offset, window.extent, window.dilation, *magnitudes)
    start: npt.NDArray[Any] = window.offset + window.stride * i - window.center
    return start


def _taps_between(
    window: Window, start: npt.NDArray[Any], low: int, high: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return, for each window, the first tap that reads a pixel in ``[low, high)``, and the number of these taps."""
    begin, end = (
        np.clip(-((start - bound) // window.dilation), 0, window.kernel)  # taps before the bound
        for bound in (low, high)
    )
    return begin, end - begin


def _represented(
    window: Window, length: int, kernel_offset: int | None, clip_origin: int, clip_size: int | None, *magnitudes: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the source pixel J(q) of each destination pixel q, and whether it is inside the clip and the image."""
    origin, n = clip(clip_origin, clip_size, length)
    if kernel_offset is None:
        kernel_offset = window.kernel_offset(clip_origin)
    limits = (window.offset, window.stride, window.dilation, window.extent, kernel_offset, origin, *magnitudes)
    q = _range(length, *limits)
    j = q - origin + kernel_offset + window.offset - window.even  # Window.represented_pixel
    return j, (q >= origin) & (q < origin + n) & (j >= 0) & (j < length)


def _runs(first: npt.NDArray[Any], count: npt.NDArray[Any], tap: npt.NDArray[Any], step: int, tap_step: int) -> Runs:
    """Store the table as int32, with zeros for empty runs."""
    count = np.maximum(count, 0)
    # Taps and tap steps of 2**31 or more occur only in kernels without weights, which do not read them. A run with a
    # step of 2**31 or more has a single element. Both are limited to the range of int32.
    tap = np.minimum(tap, LARGEST)
    first, count, tap = (_frozen(np.where(count > 0, column, 0)) for column in (first, count, tap))
    return Runs(first, count, tap, min(step, LARGEST), min(tap_step, LARGEST))


def _frozen(values: npt.NDArray[Any], dtype: type[np.generic] = np.int32) -> npt.NDArray[Any]:
    """Return a read-only copy in a dtype of fixed size; tables are shared."""
    copy = values.astype(dtype)
    copy.flags.writeable = False
    return copy
