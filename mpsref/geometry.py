"""One axis of a windowed kernel: where its windows lie, which pixels they read, and what a gradient gathers.

Everything is integer arithmetic on one spatial axis; a two-dimensional window is the product of two of these.
The letters of the formulas, here and in all other files:

====== ==================================================================================================
L      length of the source image
K s d  kernel size, stride, dilation
o      offset: the source coordinate of the *centre* of window 0
E      dilated extent, ``(K - 1) * d + 1``
c      centre inside the window, ``E // 2``: an even window has one pixel more above and to the left of it
ev     1 if E is even, else 0; always ``2 * c == E - 1 + ev``
i t    window and tap; tap ``t`` of window ``i`` reads source pixel ``o + s * i - c + d * t``
j      source pixel
u p0   pixel of the source gradient; window ``i`` belongs to ``u = p0 + i``
====== ==================================================================================================

Source: notes in ``MPSCNNPooling.h``, ``MPSCNNConvolution.h`` and ``MPSCNNKernel.h`` [doc]; inverse relations [math].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

__all__ = [
    "EDGE_MODES",
    "EdgeMode",
    "Window",
    "ceil_div",
    "clip",
    "effective_offset",
    "floor_div",
    "included_windows",
    "tdiv2",
]

EdgeMode: TypeAlias = Literal["zero", "clamp"]
"""What a tap outside the image reads; average pooling takes "clamp" to mean that the window shrinks."""

EDGE_MODES: tuple[EdgeMode, ...] = ("zero", "clamp")

Value = TypeVar("Value")


def by_axis(function: Callable[..., Value], *columns: Any) -> tuple[Value, Value]:
    """Return ``function`` for both axes: of the first element of each column for y, of the second for x.

    >>> by_axis(ceil_div, (7, 5), (2, 3))
    (4, 2)
    """
    y, x = (function(*axis) for axis in zip(*columns, strict=True))
    return y, x


def floor_div(a: int, b: int) -> int:
    """Return floor(a / b) for b > 0. C, MSL and CUDA truncate instead: never use their ``/`` on negative numbers."""
    return a // b


def ceil_div(a: int, b: int) -> int:
    """Return ceil(a / b) for b > 0.

    >>> ceil_div(7, 2), ceil_div(-7, 2)
    (4, -3)
    """
    return -(-a // b)


def tdiv2(a: int) -> int:
    """Return a / 2 rounded toward zero, as C divides; padding policies are defined with it.

    >>> [tdiv2(a) for a in (3, 1, 0, -1, -2, -3)]
    [1, 0, 0, 0, -1, -1]
    """
    return a // 2 if a >= 0 else -(-a // 2)


def clip(origin: int, size: int | None, length: int) -> tuple[int, int]:
    """Intersect the clip ``[origin, origin + size)`` with an image axis; return (origin, n), n possibly 0.

    ``None`` stands for "up to the end". Destination pixel ``origin + i`` holds result ``i``, ``0 <= i < n``.

    >>> clip(2, 9, 8), clip(9, 1, 8), clip(0, None, 8)
    ((2, 6), (9, 0), (0, 8))
    """
    rest = length - origin
    return origin, max(0, rest if size is None else min(size, rest))


def effective_offset(primary_offset: int, kernel_offset: int, stride: int) -> int:
    """Return e = s * p0 + ko, the place of the rotated window over the zero-inserted gradient.

    The decomposition is not unique: shifting ``p0`` by m and ``ko`` by -s*m leaves it as it is.

    >>> [effective_offset(p0, ko, 2) for p0, ko in [(2, 0), (1, 2), (3, -2)]]
    [4, 4, 4]
    """
    return stride * primary_offset + kernel_offset


def included_windows(primary_offset: int, source_size: int | None, gradient_length: int) -> range:
    """Return the windows i whose gradient pixel ``p0 + i`` counts: ``[p0, p0 + source_size)`` within the image.

    >>> included_windows(-1, None, 3), included_windows(2, 5, 4)
    (range(1, 4), range(0, 2))
    """
    stop = gradient_length - primary_offset
    if source_size is not None:
        stop = min(stop, source_size)
    start = max(0, -primary_offset)
    return range(start, max(start, stop))


@dataclass(frozen=True, slots=True)
class Window:
    """A window that slides along one axis.

    >>> w = Window(kernel=2, stride=3, offset=1)
    >>> [[w.tap(i, t) for t in range(2)] for i in range(3)]
    [[0, 1], [3, 4], [6, 7]]
    """

    kernel: int
    stride: int = 1
    dilation: int = 1
    offset: int = 0

    @property
    def extent(self) -> int:
        """E: pixels from the first tap to the last, both included."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def center(self) -> int:
        """The pixels of the window to the left of its centre (c)."""
        return self.extent // 2

    @property
    def even(self) -> int:
        """ev: 1 if the extent is even, else 0."""
        return 1 - self.extent % 2

    def start(self, i: int) -> int:
        """Return the source pixel of the first tap of window i."""
        return self.offset + self.stride * i - self.center

    def tap(self, i: int, t: int) -> int:
        """Return the source pixel that tap t of window i reads; it may lie outside the image."""
        return self.start(i) + self.dilation * t

    def default_outputs(self, length: int) -> int:
        """Return how many windows have their centre before the end of the image: ``ceil((L - o) / s)``."""
        return ceil_div(length - self.offset, self.stride)

    def taps_between(self, i: int, low: int, high: int) -> range:
        """Return the taps of window i that read a pixel in ``[low, high)``."""
        begin = self._taps_below(i, low)
        return range(begin, max(begin, self._taps_below(i, high)))

    def inside(self, i: int, length: int) -> slice:
        """Return the source pixels of window i that lie inside the image, as a slice (possibly empty).

        >>> Window(kernel=3, stride=2).inside(0, length=5)
        slice(0, 2, 1)
        """
        taps = self.taps_between(i, 0, length)
        begin = self.tap(i, taps.start) if taps else 0
        return slice(begin, begin + len(taps) * self.dilation, self.dilation)

    def reads(self, i: int, length: int, edge_mode: EdgeMode) -> list[tuple[int | None, int]]:
        """Return what the taps of window i read, in their order: (pixel, how many consecutive taps read it).

        ``None`` stands for a zero outside the image. With "clamp", taps outside read the nearest pixel of the image.

        >>> Window(kernel=4, stride=3).reads(0, 5, "clamp"), Window(kernel=4, stride=3).reads(0, 5, "zero")
        ([(0, 2), (0, 1), (1, 1)], [(None, 2), (0, 1), (1, 1)])
        """
        before, inside = self._taps_below(i, 0), self.taps_between(i, 0, length)
        after = self.kernel - before - len(inside)
        low, high = (0, length - 1) if edge_mode == "clamp" else (None, None)
        middle: list[tuple[int | None, int]] = [(self.tap(i, t), 1) for t in inside]
        return [read for read in ((low, before), *middle, (high, after)) if read[1]]

    def taps_on(self, i: int, j: int, length: int, edge_mode: EdgeMode) -> range:
        """Return the taps of window i that read pixel j of the image: with "clamp", also taps outside, at its ends.

        >>> Window(kernel=4, stride=3).taps_on(0, 0, 5, "clamp"), Window(kernel=4, stride=3).taps_on(0, 0, 5, "zero")
        (range(0, 3), range(2, 3))
        """
        low, high = j, j + 1
        if edge_mode == "clamp":
            low = min(low, self.start(i)) if j == 0 else low
            high = max(high, self.start(i) + self.extent) if high == length else high
        return self.taps_between(i, low, high)

    def _taps_below(self, i: int, high: int) -> int:
        """Return how many taps of window i read a pixel before ``high``."""
        return max(0, min(self.kernel, ceil_div(high - self.start(i), self.dilation)))

    def divisor(self, i: int, length: int, edge_mode: EdgeMode, zero_pad: int = 0) -> int:
        """Return N(i), what average pooling divides the sum of window i by.

        Edge mode "zero" counts all K taps. "clamp" counts those inside the image and inside a ring of ``zero_pad``
        zeros on both sides of it; the count can be 0. Source: ``MPSCNNKernel.h``, ``MPSCNNPooling.h`` [doc].

        >>> w = Window(kernel=4, stride=3)
        >>> [w.divisor(i, 5, "clamp", 1) for i in range(3)]
        [3, 4, 2]
        """
        if edge_mode == "zero":
            return self.kernel
        taps = self.taps_between(i, -zero_pad, length + zero_pad)
        return taps.stop - taps.start

    def cover(self, j: int, n: int) -> range:
        """Return the windows in ``[0, n)`` whose extent spans source pixel j (with dilation, not all have a tap there).

        >>> Window(kernel=3, stride=2).cover(1, n=4)
        range(0, 2)
        """
        begin = min(n, max(0, ceil_div(j - self.offset + self.even - self.center, self.stride)))
        end = min(n, floor_div(j - self.offset + self.center, self.stride) + 1)
        return range(begin, max(begin, end))

    def gather_set(self, j: int, n: int) -> Iterator[tuple[int, int]]:
        """Yield each (window, tap) with window in ``[0, n)`` whose tap reads source pixel j.

        >>> list(Window(kernel=3, stride=2).gather_set(1, n=4))
        [(0, 2), (1, 0)]
        """
        for i in self.cover(j, n):
            tap, remainder = divmod(j - self.start(i), self.dilation)
            if not remainder:
                yield i, tap

    @property
    def window_step(self) -> int:
        """Distance of two consecutive windows that both have a tap at the same pixel: ``d / gcd(s, d)``."""
        return self.dilation // math.gcd(self.stride, self.dilation)

    @property
    def tap_step(self) -> int:
        """What the tap decreases by from one such window to the next: ``s / gcd(s, d)``."""
        return self.stride // math.gcd(self.stride, self.dilation)

    def kernel_offset(self, clip_origin: int = 0) -> int:
        """Return the canonical kernel offset, ``ev - o + clip_origin``: destination pixel = source pixel.

        Source: ``MPSCNNConvolution.h`` for a clip origin of 0 [doc]; the origin's term [choice pooling-state-position].
        """
        return self.even - self.offset + clip_origin

    def pooling_kernel_offset(self) -> int:
        """Return what an unset kernel offset means to a pooling gradient that is given its destination.

        ``max(ev - o, ev - c)``: the first clip pixel is the first pixel of the first window inside the image.
        Source: ``MPSCNNPooling.h`` [doc, put in these terms by math].
        """
        return max(self.even - self.offset, self.even - self.center)

    def represented_pixel(self, q: int, kernel_offset: int) -> int:
        """Return J(q) = q + ko + o - ev, the source pixel whose gradient destination pixel q of the clip holds.

        >>> w = Window(kernel=4, stride=2, offset=-1)
        >>> [w.represented_pixel(q, w.kernel_offset()) for q in range(3)]
        [0, 1, 2]
        """
        return q + kernel_offset + self.offset - self.even
