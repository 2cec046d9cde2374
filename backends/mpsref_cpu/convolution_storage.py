"""Between images as they are stored and the float32 rows that convolution computes with.

float32 images are computed in place. Of others, and where the channels of a depthwise kernel meet several of the
result, a block of rows at a time is copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.images import Array
from mpsref_cpu.compiling import compiled
from mpsref_cpu.convolution_lists import Sizes
from mpsref_cpu.convolution_parts import Span
from mpsref_cpu.half import as_storage, load, store
from mpsref_cpu.neuron_curves import value

__all__ = ["finish", "operand", "source_rows", "widened"]


class _Memory:
    """The memory of an array, as one that may be written."""

    def __init__(self, array: Array) -> None:
        interface = array.__array_interface__
        self.array = array
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def operand(array: Array) -> Array:
    """Return an input as :func:`mpsref_cpu.half.as_storage` does.

    A read-only array has another type for numba, and everything would be compiled again for it. No kernel writes.
    """
    return as_storage(array if array.flags.writeable else np.asarray(_Memory(array)))


def source_rows(stored: Array, span: Span, sizes: Sizes, repeats: int, begin: int, end: int) -> tuple[Array, int]:
    """Return the source rows that result rows ``begin`` to ``end`` read, and the number of the first.

    Rows are counted through all images; each channel comes ``repeats`` times, as ``sizes`` say.
    """
    images, rows = np.divmod(np.arange(begin, end), sizes.height)
    used = span.high[rows] >= 0
    if not used.any():
        return np.empty(0, np.float32), 0
    above = images[used] * sizes.source_height
    first = int((above + span.low[rows[used]]).min())
    count = int((above + span.high[rows[used]]).max()) + 1 - first
    pitch = sizes.source_width * sizes.source_pitch
    return widened(stored, first * pitch // repeats, count * pitch, repeats), first


def widened(stored: Array, first: int, size: int, repeats: int) -> Array:
    """Return ``size`` numbers from ``stored[first:]`` in float32, each ``repeats`` times in a row."""
    wide = np.empty(size, np.float32)
    _widen(stored, first, wide, repeats)
    return wide


@compiled
def _widen(stored: Any, first: int, wide: Any, times: int) -> None:
    """Fill ``wide`` with the numbers ``stored[first:]``, each so many times."""
    if times == 1:
        start = np.uintp(first)
        for i in range(np.uintp(wide.size)):
            wide[i] = load(stored[start + i])
    else:
        for i in range(wide.size // times):
            number = load(stored[first + i])
            for k in range(times):
                wide[i * times + k] = number


@compiled
def finish(pixels: int, sums: Any, of: Any, many: int, neuron: Any, result: Any, into: Any, channels: int) -> None:
    """Store ``neuron`` of the sum of each ``many`` neighbours of ``sums`` as channels of a pixel.

    ``of`` and ``into`` are (where the first pixel's begin, from one pixel to the next, the first channel).
    """
    first: Any = np.uintp(into[2])
    for pixel in range(pixels):
        p, q = np.uintp(of[0] + pixel * of[1]), np.uintp(into[0] + pixel * into[1])
        if many == 1:
            for c in range(np.uintp(channels)):
                result[q + c] = store(value(neuron, sums[p + c], c + first), result[q + c])
        else:
            for c in range(np.uintp(channels)):
                total = np.float32(0)
                for k in range(np.uintp(many)):
                    total += sums[p + c * np.uintp(many) + k]
                result[q + c] = store(value(neuron, total, c + first), result[q + c])
