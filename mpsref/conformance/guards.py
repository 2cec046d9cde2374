"""Guarded memory: outputs start as NaN, sentinels surround every array, inputs are compared afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.layouts import PLAIN, laid, room
from mpsref.conformance.comparator import Mismatch

BAND = 4096
"""Bytes of sentinels on each side."""

SENTINEL = 0xFF
"""Repeated, it is NaN in every float dtype, so that reads out of bounds are detected, too."""


class GuardedArray:
    """An array inside a larger buffer: an input with ``values``, or an output full of NaN.

    The elements between those of an array with gaps are sentinels, too.
    """

    def __init__(
        self, name: str, shape: Shape, dtype: np.dtype[Any], values: Array | None = None, layout: str = PLAIN
    ) -> None:
        """Allocate the array between two bands of sentinels."""
        self.name = name
        size = room(layout, shape) * dtype.itemsize
        self._memory = np.full(size + 2 * BAND, SENTINEL, np.uint8)
        self._inside = self._memory[BAND : BAND + size]
        self.array: Array = laid(layout, shape, self._inside.view(dtype))
        if values is not None:
            self.array[...] = values
        self._values = None if values is None else self._inside.tobytes()

    def check(self) -> None:
        """Raise :class:`Mismatch` if anything was written outside the array, or into an input."""
        before, after = (np.flatnonzero(band != SENTINEL) for band in (self._memory[:BAND], self._memory[-BAND:]))
        if before.size:
            raise Mismatch(f"{before.size} bytes were written before {self.name}, the last at {before[-1] - BAND}")
        if after.size:
            raise Mismatch(f"{after.size} bytes were written past the end of {self.name}, the first at +{after[0]}")
        if self._values is not None and self._inside.tobytes() != self._values:
            raise Mismatch(f"the input {self.name} was changed")
