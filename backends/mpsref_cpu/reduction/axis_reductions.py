"""Sums, minima and maxima of the elements of lines, along any of the axes y, x and channel.

A result of a fold is kept in float64, so that no order of terms makes it inaccurate; how the rows of an image are
shared out depends on the image alone, never on the number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import overload

from mpsref.arguments.arrays import Array
from mpsref_cpu.compiling import inlined
from mpsref_cpu.simd.half import load

MOST_UNITS = 8
"""An image whose rows are folded into one is worked on in at most so many parts."""
WIDE = 64
"""About how many elements of a line are folded at once where its channels stay."""
LEAST_ROWS = 8
"""So many rows a part, at least: the parts take a fraction of the memory of the image."""


class Total(NamedTuple):
    """The sum; each of these holds where it starts from."""

    start: float = 0.0


class Least(NamedTuple):
    """The minimum; NaN if there is one."""

    start: float = np.inf


class Greatest(NamedTuple):
    """The maximum; NaN if there is one."""

    start: float = -np.inf


class Plan(NamedTuple):
    """How an image of ``height`` rows is folded: ``units`` parts of ``rows`` rows (the last one may have fewer)."""

    rows: int
    units: int
    pixels: int
    """Of a row of the result: the width, or 1."""
    channels: int
    """Of a pixel of the result: as many as the image has, or 1."""

    @classmethod
    def of(cls, shape: tuple[int, ...], kept: tuple[int, int, int]) -> Plan:
        """Return the plan for an image of ``shape`` (N, H, W, C); ``kept`` is 0 for an axis that is folded."""
        _, height, width, channels = shape
        y, x, c = kept
        rows = 1 if y else -(-height // min(MOST_UNITS, -(-height // LEAST_ROWS)))
        return cls(rows, -(-height // rows), width if x else 1, channels if c else 1)

    def parts(self, n: int) -> Array:
        """Return memory for the folded parts of n images."""
        return np.empty((n, self.units, self.pixels, self.channels))


def join(kind: Any, folded: Any, value: Any) -> Any:
    """Return ``folded`` with one more value."""
    raise NotImplementedError("for compiled code only")


@overload(join)
def _join(kind: Any, folded: Any, value: Any) -> Any:
    def total(kind: Any, folded: Any, value: Any) -> Any:
        return folded + value

    def least(kind: Any, folded: Any, value: Any) -> Any:
        return value if value < folded or value != value else folded

    def greatest(kind: Any, folded: Any, value: Any) -> Any:
        return value if value > folded or value != value else folded

    return {Total: total, Least: least, Greatest: greatest}[kind.instance_class]


def fold_all(kind: Any, values: Any, start: int, size: int) -> Any:
    """Return a run of a vector, folded."""
    raise NotImplementedError("for compiled code only")


@overload(fold_all)
def _fold_all(kind: Any, values: Any, start: int, size: int) -> Any:
    def total(kind: Any, values: Any, start: int, size: int) -> Any:
        return _sum(values, start, size)

    def extremum(kind: Any, values: Any, start: int, size: int) -> Any:
        return _in_chains(kind, values, start, size)

    return total if kind.instance_class is Total else extremum


@numba.njit(nogil=True, fastmath={"contract", "reassoc"}, forceinline=True)
def _sum(values: Any, start: int, size: int) -> Any:
    """Add up a run of a vector; in which order, is left to the compiler, and is always the same."""
    total = np.float64(0)
    first = np.uintp(start)
    for k in range(np.uintp(size)):
        total += np.float64(load(values[first + k]))
    return total


@inlined
def _in_chains(kind: Any, values: Any, start: int, size: int) -> Any:
    """Fold a run of a vector in eight chains, which a processor works on side by side."""
    a = b = c = d = e = f = g = h = np.float64(kind.start)
    whole = start + size // 8 * 8
    for k in range(np.uintp(start), np.uintp(whole), np.uintp(8)):
        a = join(kind, a, np.float64(load(values[k])))
        b = join(kind, b, np.float64(load(values[k + np.uintp(1)])))
        c = join(kind, c, np.float64(load(values[k + np.uintp(2)])))
        d = join(kind, d, np.float64(load(values[k + np.uintp(3)])))
        e = join(kind, e, np.float64(load(values[k + np.uintp(4)])))
        f = join(kind, f, np.float64(load(values[k + np.uintp(5)])))
        g = join(kind, g, np.float64(load(values[k + np.uintp(6)])))
        h = join(kind, h, np.float64(load(values[k + np.uintp(7)])))
    for k in range(np.uintp(whole), np.uintp(start + size)):
        a = join(kind, a, np.float64(load(values[k])))
    first, second = join(kind, join(kind, a, b), join(kind, c, d)), join(kind, join(kind, e, f), join(kind, g, h))
    return join(kind, first, second)


class Line(NamedTuple):
    """``pixels`` pixels of a row from ``column`` on, stored from ``start`` on."""

    start: int
    column: int
    pixels: int
    channels: int


@inlined
def fold_line(kind: Any, values: Any, line: Line, folded: Any, at: int, kept: Any) -> None:
    """Fold a line of ``values`` into the pixels of ``folded`` that begin at ``at``.

    ``kept`` says of y, x and channel whether the axis stays (1) or is folded (0).
    """
    first, column, pixels, channels = line
    size = pixels * channels
    if kept[1] == 1 and kept[2] == 1:
        to, start = np.uintp(at + column * channels), np.uintp(first)
        for k in range(np.uintp(size)):
            folded[to + k] = join(kind, folded[to + k], np.float64(load(values[start + k])))
    elif kept[2] == 1 and 2 * channels > WIDE:
        to = np.uintp(at)
        for p in range(pixels):
            start = np.uintp(first + p * channels)
            for c in range(np.uintp(channels)):
                folded[to + c] = join(kind, folded[to + c], np.float64(load(values[start + c])))
    elif kept[2] == 1:
        group = WIDE // channels  # so many pixels side by side make a loop that is worth it
        wide = np.full(group * channels, kind.start)
        for p in range(0, pixels, group):
            start = np.uintp(first + p * channels)
            for c in range(np.uintp(min(group, pixels - p) * channels)):
                wide[c] = join(kind, wide[c], np.float64(load(values[start + c])))
        for p in range(group):
            for c in range(channels):
                folded[at + c] = join(kind, folded[at + c], wide[p * channels + c])
    elif kept[1] == 1:
        for p in range(pixels):
            to = np.uintp(at + column + p)
            folded[to] = join(kind, folded[to], fold_all(kind, values, first + p * channels, channels))
    else:
        folded[at] = join(kind, folded[at], fold_all(kind, values, first, size))
