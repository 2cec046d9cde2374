"""Sums over all windows of a line or of a stack of rows, at a cost that hardly depends on the size of the window.

Nothing is ever subtracted, so that a small sum beside a large one keeps its digits. Rows are summed block by block: a
window of K rows is the end of one block of K rows and the start of the next, whose partial sums are shared; three
additions a row, whatever K is. On a line, sums of 2, 4, 8, ... elements are doubled up, and the powers of two in K are
put together; as many vector additions as K has binary digits.

Workspaces are C-contiguous. All functions are for use inside compiled functions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref.geometry import Window
from mpsref_cpu.compiling import inlined, internal


class Reach(NamedTuple):
    """The windows of one axis, without what no window finds in the image."""

    before: int
    """Pixels to the left of a centre, at most."""
    after: int
    """Pixels to the right."""
    offset: int
    """The centre of output 0."""
    length: int
    """Pixels of the source."""
    outputs: int

    @classmethod
    def of(cls, window: Window, length: int, outputs: int) -> Reach:
        """Cut the reach of windows that are larger than the image: all else that they read is 0."""
        before, after = window.center, window.kernel - 1 - window.center
        last = window.offset + outputs - 1
        return cls(
            min(before, max(0, last)), min(after, max(0, length - 1 - window.offset)), window.offset, length, outputs
        )


@internal
def sum_rows(rows: Any, first: int, count: int, kernel: int) -> None:
    """Replace row i of ``rows``, ``first <= i < first + count``, by the sum of rows i ... i + kernel - 1.

    The rows that are read, ``kernel - 1`` more, lose their values.
    """
    if kernel == 1:
        return
    width = np.uintp(rows.shape[1])
    head = np.empty(rows.shape[1], rows.dtype)
    for start in range(first, first + count, kernel):
        for i in range(start + kernel - 2, start - 1, -1):  # from here on, row i is the sum of the rest of its block
            _add(rows[i], rows[i + 1], width)
        head[:] = 0
        for i in range(start + 1, min(start + kernel, first + count)):
            _add(head, rows[i + kernel - 1], width)
            _add(rows[i], head, width)


@inlined
def _add(into: Any, term: Any, width: Any) -> None:
    for i in range(width):
        into[i] += term[i]


@internal
def sum_line(line: Any, count: int, kernel: int, step: int, sums: Any, room: Any) -> None:
    """Set ``sums[i]``, ``i < count``, to the sum of ``line[i + t * step]`` over ``t < kernel``.

    ``line`` has ``count + (kernel - 1) * step`` elements, which lose their values; ``room`` is as large.
    """
    n, taken, power = count + (kernel - 1) * step, 0, 1
    here, there = line, room
    while True:
        if kernel & power:
            q = np.uintp(taken * step)
            if taken == 0:
                for i in range(np.uintp(count)):
                    sums[i] = here[q + i]
            else:
                for i in range(np.uintp(count)):
                    sums[i] += here[q + i]
            taken += power
        if taken == kernel:
            return
        n -= power * step
        q = np.uintp(power * step)
        for i in range(np.uintp(n)):
            there[i] = here[i] + here[q + i]
        here, there = there, here
        power *= 2
