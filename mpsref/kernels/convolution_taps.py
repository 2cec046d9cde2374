"""Tables of one axis by window and tap: what a tap reads, and the other way round which window reads a pixel.

The runs of :mod:`mpsref.tables` are for sums over windows whose taps are all alike; with weights each tap is its own.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from mpsref.geometry import EdgeMode, Window, ceil_div

__all__ = ["IntTable", "pixels_of", "windows_at"]

IntTable = npt.NDArray[np.int32]


@lru_cache(maxsize=256)
def pixels_of(window: Window, windows: int, length: int, edge_mode: EdgeMode) -> IntTable:
    """Return the pixel that each tap of the windows ``0 ... windows - 1`` reads, (windows, K); -1 where it is skipped.

    >>> pixels_of(Window(kernel=3, stride=2), windows=3, length=5, edge_mode="zero").tolist()
    [[-1, 0, 1], [1, 2, 3], [3, 4, -1]]
    """
    low, high = (0, length - 1) if edge_mode == "clamp" else (-1, -1)
    table = np.full((windows, window.kernel), low, np.int32)
    for t in range(window.kernel):
        begin, end = (
            min(max(ceil_div(bound - window.tap(0, t), window.stride), 0), windows)  # windows that read before it
            for bound in (0, length)
        )
        table[begin:end, t] = [window.tap(i, t) for i in range(begin, end)]
        table[end:, t] = high
    return _frozen(table)


@lru_cache(maxsize=256)
def windows_at(window: Window, windows: int, length: int) -> IntTable:
    """Return the window whose tap t reads pixel j, (length, K); -1 where there is none (edge mode "zero").

    >>> windows_at(Window(kernel=3, stride=2), windows=3, length=5).tolist()
    [[-1, 0, -1], [1, -1, 0], [-1, 1, -1], [2, -1, 1], [-1, 2, -1]]
    """
    pixels = pixels_of(window, windows, length, "zero")
    table = np.full((length, window.kernel), -1, np.int32)
    i, t = np.nonzero(pixels >= 0)
    table[pixels[i, t], t] = i
    return _frozen(table)


def _frozen(table: IntTable) -> IntTable:
    """Make a table read-only: tables are shared."""
    table.flags.writeable = False
    return table
