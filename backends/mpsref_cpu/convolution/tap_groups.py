"""Positions of an axis grouped by the taps that they use, and by what these read relative to the first of them.

Inside the image all positions are one group; each border adds a few. Within a group every position sums the same
products, shifted. So edge modes, offsets, dilations and the strides of gradients are resolved here, and compiled code
has no case distinctions.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Table: TypeAlias = npt.NDArray[np.integer[Any]]
"""The pixel of each position and tap of an axis, -1 where there is none."""

NOTHING = np.empty(0, np.int64)


class TapGroups(NamedTuple):
    """The groups of an axis, one after the other.

    Group k has the positions ``position[start[k]:start[k + 1]]``, ascending; tap ``tap[i]`` of position p reads pixel
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
    """Return the first and the last pixel that each position reads."""
    last = np.iinfo(np.int64).max
    low = np.where(pixels < 0, last, pixels.astype(np.int64)).min(axis=1)
    return Span(low, pixels.max(axis=1).astype(np.int64))


def by_used_taps(pixels: Table) -> TapGroups:
    """Group the positions by the set of their taps; each is in one group.

    >>> groups = by_used_taps(np.array([[-1, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, -1]]))
    >>> groups.start.tolist(), groups.position.tolist(), groups.base.tolist()
    ([0, 1, 2, 4], [0, 3, 1, 2], [0, 2, 0, 1])
    >>> groups.tap_start.tolist(), groups.tap.tolist(), groups.shift.tolist()
    ([0, 2, 4, 7], [1, 2, 0, 1, 0, 1, 2], [0, 1, 0, 1, 0, 1, 2])
    """
    pixels = pixels.astype(np.int64)
    used = pixels >= 0
    base = pixels[np.arange(len(pixels)), used.argmax(axis=1)]
    shift = np.where(used, pixels - base[:, None], np.iinfo(np.int64).min)
    begins = np.append(True, (shift[1:] != shift[:-1]).any(axis=1))  # of runs of equal rows: few rows are sorted
    _, kind = np.unique(shift[begins], axis=0, return_inverse=True)
    kind = kind.reshape(-1)[np.cumsum(begins) - 1]
    first = np.unique(kind, return_index=True)[1]
    positions = [np.flatnonzero(kind == k) for k in range(first.size)]
    taps = [np.flatnonzero(used[row]) for row in first]
    return _joined(
        positions, [base[p] for p in positions], taps, [shift[row, t] for row, t in zip(first, taps, strict=True)]
    )


def by_tap(pixels: Table) -> TapGroups:
    """Return a group for each tap that reads any pixel: the positions at which it reads one."""
    positions = [np.flatnonzero(column >= 0) for column in pixels.T]
    taps = [t for t, p in enumerate(positions) if p.size]
    bases = [pixels[positions[t], t] for t in taps]
    return _joined([positions[t] for t in taps], bases, [np.array([t]) for t in taps], [np.zeros(1, int) for _ in taps])


def _joined(positions: list[Indices], bases: list[Indices], taps: list[Indices], shifts: list[Indices]) -> TapGroups:
    starts, tap_starts = (np.cumsum([0, *map(len, lists)]) for lists in (positions, taps))
    columns = (np.concatenate([NOTHING, *lists]) for lists in (positions, bases, taps, shifts))
    position, base, tap, shift = columns
    return TapGroups(starts, position, base, tap_starts, tap, shift)
