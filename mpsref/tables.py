"""Per-axis tables: what a backend needs to know of the geometry, as short vectors of integers.

A backend walks over its destination and looks up, on each axis, a run of pixels or windows. No backend decides what
an edge mode, a padding or a clip means. Tables are computed exactly for offsets and sizes of any magnitude, clipped to
the arrays, and only then stored as int32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mpsref.geometry import EdgeMode, Window, clip, included_windows

__all__ = ["IntVector", "Runs", "divisors", "gather_runs", "reciprocals", "tap_runs"]

IntVector = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """For each destination pixel ``count`` source indices ``first, first + step, ...``, and the tap of the first.

    In a forward table the indices are source pixels and the taps go up by one; in a gradient table they are pixels of
    the source gradient, ``window_step`` apart, and the taps go down by ``tap_step``. All indices of a run are inside
    the array; where ``count`` is 0, ``first`` is 0 too.
    """

    first: IntVector
    count: IntVector
    tap: IntVector
    step: int
    tap_step: int


def _range(n: int, *magnitudes: int | None) -> npt.NDArray[Any]:
    """Return 0, 1, ..., n - 1 as int64, or as Python integers where int64 might overflow."""
    small = all(m is None or abs(m) < 2**30 for m in (n, *magnitudes))
    return np.arange(n, dtype=np.int64 if small else object)


def _runs(first: npt.NDArray[Any], count: npt.NDArray[Any], tap: npt.NDArray[Any], step: int, tap_step: int) -> Runs:
    """Store the table as int32, zeros where a run is empty."""
    count = np.maximum(count, 0)
    some = count > 0
    # Taps (and tap steps) of 2**31 or more belong to kernels without weights, where nobody asks: they need only fit.
    tap = np.minimum(tap, 2**31 - 1)
    first, count, tap = (np.where(some, column, 0).astype(np.int32) for column in (first, count, tap))
    for column in (first, count, tap):
        column.flags.writeable = False
    # A step of 2**31 or more has no second element inside an array: it too need only fit.
    return Runs(first, count, tap, min(step, 2**31 - 1), min(tap_step, 2**31 - 1))


@lru_cache(maxsize=256)
def tap_runs(window: Window, outputs: int, length: int) -> Runs:
    """Return, for each of the windows 0 ... outputs - 1, the source pixels inside an image of ``length`` pixels.

    >>> runs = tap_runs(Window(kernel=3, stride=2), outputs=3, length=5)
    >>> runs.first.tolist(), runs.count.tolist(), runs.tap.tolist()
    ([0, 1, 3], [2, 3, 2], [1, 0, 0])
    """
    d = window.dilation
    i = _range(outputs, window.offset, window.stride * outputs, window.extent, d, length)
    start = window.offset + window.stride * i - window.center
    begin = np.maximum(0, -(start // d))  # first tap at or after pixel 0
    end = np.minimum(window.kernel, -((start - length) // d))  # first tap at or after the end of the image
    return _runs(start + d * begin, end - begin, begin, d, 1)


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
    """Return, for each destination pixel of an axis as long as the source, the gradient pixels it sums over.

    Pixels outside the clip, pixels that represent nothing inside the source, and pixels that no window reads have an
    empty run. ``kernel_offset=None`` is the canonical one: destination pixel = source pixel.

    >>> runs = gather_runs(Window(kernel=3, stride=2), length=5, gradient_length=3)
    >>> runs.first.tolist(), runs.count.tolist()
    ([0, 0, 1, 1, 2], [1, 2, 1, 2, 1])
    """
    s, d = window.stride, window.dilation
    if kernel_offset is None:
        kernel_offset = window.kernel_offset(clip_origin)
    origin, n = clip(clip_origin, clip_size, length)
    included = included_windows(primary_offset, source_size, gradient_length)
    limits = (window.offset, s, d, window.extent, kernel_offset, origin, primary_offset)
    q = _range(length, gradient_length, *limits)
    j = q - origin + kernel_offset + window.offset - window.even  # Window.represented_pixel
    reach = j - window.offset + window.center  # s * i + d * t for every (window, tap) that reads j
    low = np.maximum(included.start, -((window.extent - 1 - reach) // s))
    high = np.minimum(included.stop - 1, reach // s)
    # s * i = reach (mod d) has solutions only where gcd(s, d) divides reach; they are window_step apart.
    common = d // window.window_step
    inverse = pow(window.tap_step, -1, window.window_step)
    first = low + (reach // common % window.window_step * inverse - low) % window.window_step
    count = (high - first) // window.window_step + 1
    legal = (q >= origin) & (q < origin + n) & (j >= 0) & (j < length) & (reach % common == 0)
    count = np.where(legal, count, 0)
    tap = (reach - s * first) // d
    return _runs(primary_offset + first, count, tap, window.window_step, window.tap_step)


@lru_cache(maxsize=256)
def reciprocals(
    window: Window, first: int, n: int, length: int, edge_mode: EdgeMode, zero_pad: int = 0
) -> npt.NDArray[np.float64]:
    """Return 1/N of the windows ``first ... first + n - 1``, and 0 where N is 0: no tap of it is inside the image.

    >>> reciprocals(Window(kernel=2, stride=3, offset=-1), 0, 3, length=2, edge_mode="clamp").tolist()
    [0.0, 1.0, 0.0]
    """
    counts = divisors(window, first, n, length, edge_mode, zero_pad).astype(np.float64)
    inverse = np.divide(1.0, counts, out=np.zeros(n), where=counts > 0)
    inverse.flags.writeable = False
    return inverse


def divisors(
    window: Window, first: int, n: int, length: int, edge_mode: EdgeMode, zero_pad: int = 0
) -> npt.NDArray[Any]:
    """Return N of the windows ``first ... first + n - 1`` as integers (Python integers where they are huge).

    >>> divisors(Window(kernel=4, stride=3), 0, 3, length=5, edge_mode="clamp", zero_pad=1).tolist()
    [3, 4, 2]
    """
    d = window.dilation
    limits = (first, window.offset, window.stride * (abs(first) + n), window.extent, d, zero_pad, length)
    i = first + _range(n, *limits)
    if edge_mode == "zero":
        return np.full(n, window.kernel, dtype=i.dtype)
    start = window.offset + window.stride * i - window.center
    begin = np.maximum(0, -((start + zero_pad) // d))
    end = np.minimum(window.kernel, -((start - length - zero_pad) // d))
    counts: npt.NDArray[Any] = np.maximum(end - begin, 0)
    return counts
