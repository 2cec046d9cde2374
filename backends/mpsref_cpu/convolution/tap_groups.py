"""Axes cut into parts: positions that use the same taps, and read the same pixels relative to where each begins.

Inside the image all positions are one part; each border adds a few. Within a part there are no cases: every position
sums the same products, shifted. So edge modes, offsets, dilations and the strides of gradients are settled here, and
compiled code knows none of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Table: TypeAlias = npt.NDArray[np.integer[Any]]
"""The pixel of each position and tap of an axis, -1 where there is none."""


NOTHING = np.empty(0, np.int64)


class Parts(NamedTuple):
    """The parts of an axis, one after the other.

    Part k has the positions ``position[start[k]:start[k + 1]]``, ascending; tap ``tap[i]`` of position p reads pixel
    ``base[p] + shift[i]``, for i in ``range(tap_start[k], tap_start[k + 1])``, ascending in the taps.
    """

    start: Indices
    position: Indices
    base: Indices
    tap_start: Indices
    tap: Indices
    shift: Indices


class Span(NamedTuple):
    """The first and the last pixel that each position reads; where there is none, the largest integer and -1."""

    low: Indices
    high: Indices


def span(pixels: Table) -> Span:
    """Return what positions read, from the pixel of each position and tap, -1 where there is none."""
    last = np.iinfo(np.int64).max
    low = np.where(pixels < 0, last, pixels.astype(np.int64)).min(axis=1)
    return Span(low, pixels.max(axis=1).astype(np.int64))


def whole(pixels: Table) -> Parts:
    """Return the parts of an axis by all that their positions read; each position is in one part.

    >>> parts = whole(np.array([[-1, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, -1]]))
    >>> parts.start.tolist(), parts.position.tolist(), parts.base.tolist()
    ([0, 1, 2, 4], [0, 3, 1, 2], [0, 2, 0, 1])
    >>> parts.tap_start.tolist(), parts.tap.tolist(), parts.shift.tolist()
    ([0, 2, 4, 7], [1, 2, 0, 1, 0, 1, 2], [0, 1, 0, 1, 0, 1, 2])
    """
    pixels = pixels.astype(np.int64)
    used = pixels >= 0
    base = pixels[np.arange(len(pixels)), used.argmax(axis=1)]
    shift = np.where(used, pixels - base[:, None], np.iinfo(np.int64).min)
    _, kind = np.unique(shift, axis=0, return_inverse=True)
    kind = kind.reshape(-1)
    first = np.unique(kind, return_index=True)[1]
    positions = [np.flatnonzero(kind == k) for k in range(first.size)]
    taps = [np.flatnonzero(used[row]) for row in first]
    return _joined(
        positions, [base[p] for p in positions], taps, [shift[row, t] for row, t in zip(first, taps, strict=True)]
    )


def by_tap(pixels: Table) -> Parts:
    """Return a part for each tap that reads anything: the positions where it does."""
    positions = [np.flatnonzero(column >= 0) for column in pixels.T]
    taps = [t for t, p in enumerate(positions) if p.size]
    bases = [pixels[positions[t], t] for t in taps]
    return _joined([positions[t] for t in taps], bases, [np.array([t]) for t in taps], [np.zeros(1, int) for _ in taps])


def _joined(positions: list[Indices], bases: list[Indices], taps: list[Indices], shifts: list[Indices]) -> Parts:
    starts, tap_starts = (np.cumsum([0, *map(len, lists)]) for lists in (positions, taps))
    columns = (np.concatenate([NOTHING, *lists]) for lists in (positions, bases, taps, shifts))
    position, base, tap, shift = columns
    return Parts(starts, position, base, tap_starts, tap, shift)
