"""The gradient for biases: the sum of the source gradient over all pixels."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref_cpu.compiling import compiled
from mpsref_cpu.threads import for_rows

CHUNKS = 16
"""Maximum number of chunks, each with sums of its own."""

SUMMED = 256
"""Number of pixels added up in sequence."""


def bias_gradient(g: Array, db: Array) -> None:
    """Fill ``db`` with the sums of each channel of ``g``."""
    channels = g.shape[3]
    pixels = g.size // channels
    chunks = max(1, min(CHUNKS, pixels // SUMMED))
    sums = np.zeros((chunks, channels), np.float64)
    for_rows(_add_pixels, chunks, g, pixels, sums)
    db[...] = np.add.reduce(sums)


@compiled
def _add_pixels(begin, end, image, pixels, sums):
    """Add the pixels of the chunks ``begin`` to ``end`` to ``sums`` (chunks, channels)."""
    chunks, channels = sums.shape
    pixel_lists = np.empty(channels, np.float32)
    for chunk in range(begin, end):
        last = pixels * (chunk + 1) // chunks
        for first in range(pixels * chunk // chunks, last, SUMMED):
            pixel_lists[:] = 0
            for pixel in range(first, min(first + SUMMED, last)):
                at = np.uintp(pixel * channels)
                for c in range(np.uintp(channels)):
                    pixel_lists[c] += image[at + c]
            for c in range(channels):
                sums[chunk, c] += pixel_lists[c]
