"""The gradient for biases: the sum of the source gradient over all pixels."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref_cpu.compiling import compiled
from mpsref_cpu.simd.half import as_storage, load
from mpsref_cpu.threads import for_rows

PARTS = 16
"""Parts that are summed on their own, at most."""

SUMMED = 256
"""Pixels that are added up in sequence."""


def bias_gradient(g: Array, db: Array) -> None:
    """Fill ``db`` with the sums of each channel of ``g``."""
    channels = g.shape[3]
    pixels = g.size // channels
    parts = max(1, min(PARTS, pixels // SUMMED))
    sums = np.zeros((parts, channels), np.float64)
    for_rows(_add_pixels, parts, as_storage(g), pixels, sums, nbytes=g.nbytes)
    db[...] = np.add.reduce(sums)


@compiled
def _add_pixels(begin: int, end: int, image: Any, pixels: int, sums: Any) -> None:
    """Add the pixels of the parts ``begin`` to ``end`` to ``sums`` (parts, channels)."""
    parts, channels = sums.shape
    room = np.empty(channels, np.float32)
    for part in range(begin, end):
        last = pixels * (part + 1) // parts
        for first in range(pixels * part // parts, last, SUMMED):
            room[:] = 0
            for pixel in range(first, min(first + SUMMED, last)):
                at = np.uintp(pixel * channels)
                for c in range(np.uintp(channels)):
                    room[c] += load(image[at + c])
            for c in range(channels):
                sums[part, c] += room[c]
