"""Guarded memory: outputs start as NaN, sentinels surround every array, inputs are compared afterwards.

In the process of isolated cases each array ends at a page that cannot be read or written: an access behind it ends the
process, also one whose value the result does not depend on.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.layouts import PLAIN, laid, repeated, room
from mpsref.conformance.comparator import Mismatch

BAND = 4096
"""Bytes of sentinels on each side."""

SENTINEL = 0xFF
"""Repeated, it is NaN in every float dtype, so that reads out of bounds are detected, too."""


_are_closed = False


def close_pages() -> None:
    """Put the arrays of this process before pages without access from now on, where the system has such pages."""
    global _are_closed
    _are_closed = os.name == "posix"


@functools.cache
def _mprotect() -> Any:
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return function


def _before_a_closed_page(size: int) -> Array:
    """Return at least ``size`` bytes of sentinels after a page without access, which end at another one."""
    page = mmap.PAGESIZE
    used = -(-max(size, 1) // page) * page
    held = mmap.mmap(-1, used + 2 * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory = np.frombuffer(held, np.uint8)
    memory[page:-page] = SENTINEL
    for first in (0, page + used):
        if _mprotect()(memory.ctypes.data + first, page, 0):
            raise OSError(ctypes.get_errno(), "a page cannot be closed")
    return memory[page:-page]


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
        if _are_closed:
            memory = _before_a_closed_page(size)
            first = len(memory) - size
        else:
            memory, first = np.full(size + 2 * BAND, SENTINEL, np.uint8), BAND
        self._before, self._inside, self._after = np.split(memory, (first, first + size))
        self.array: Array = laid(layout, shape, self._inside.view(dtype))
        if values is not None:
            self.array[...] = repeated(values, layout)
        self._values = None if values is None else self._inside.tobytes()

    def check(self) -> None:
        """Raise :class:`Mismatch` if anything was written outside the array, or into an input."""
        before, after = (np.flatnonzero(band != SENTINEL) for band in (self._before, self._after))
        if before.size:
            last = before[-1] - len(self._before)
            raise Mismatch(f"{before.size} bytes were written before {self.name}, the last at {last}")
        if after.size:
            raise Mismatch(f"{after.size} bytes were written past the end of {self.name}, the first at +{after[0]}")
        if self._values is not None and self._inside.tobytes() != self._values:
            raise Mismatch(f"the input {self.name} was changed")
