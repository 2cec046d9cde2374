"""What spatial and local contrast normalization share: bands of rows, and how rows of an image get into them.

A band is a few rows of the result, computed from a stack of source rows that reaches out by the window on both sides.
Bands depend on the problem alone, and so do the results, whatever the number of threads. Rows in which two bands
overlap are computed twice; a band has about twice as many rows as the window, so that the cost hardly depends on its
size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpsref.kernels.normalization_windows import WindowedGradient, WindowedProblem
from mpsref_cpu.compiling import inlined
from mpsref_cpu.normalization.window_sums import Reach
from mpsref_cpu.simd.half import load

BAND = 1 << 14
"""A band of narrow rows has about so many elements."""


class Bands(NamedTuple):
    """The windows of both axes, and how the rows of the result are shared out."""

    y: Reach
    x: Reach
    channels: int
    rows: int
    """Rows of a band, but for the last of an image."""
    bands: int
    """Bands of an image."""

    @classmethod
    def of(cls, problem: WindowedProblem) -> Bands:
        """Cut the result of a problem into bands."""
        (_, *lengths, channels), outputs = problem.source_shape, problem.output_size
        y, x = (Reach.of(*axis) for axis in zip(problem.spec.windows, lengths, outputs, strict=True))
        height, width = lengths if isinstance(problem, WindowedGradient) else outputs
        rows = min(height, max(8, 2 * (y.before + y.after), BAND // (width * channels)))
        return cls(y, x, channels, rows, -(-height // rows))

    @property
    def most_terms(self) -> int:
        """The longest sum of terms one after the other."""
        return self.y.before + self.y.after + 1 + self.x.before + self.x.after + 1


@inlined
def room_for_stack(bands: Bands, outputs: int, dtype: Any) -> Any:
    """Return room for the source rows of so many rows of outputs."""
    y, x, channels, _, _ = bands
    return np.empty((outputs + y.before + y.after, (x.outputs + x.before + x.after) * channels), dtype)


@inlined
def room_for_lines(bands: Bands, count: int, dtype: Any) -> Any:
    """Return room for so many lines, each as long as any that is used."""
    _, x, channels, _, _ = bands
    return np.empty((count, (max(x.outputs, x.length) + x.before + x.after) * channels), dtype)


@inlined
def put_row(source: Any, start: int, length: int, first: int, channels: int, into: Any) -> None:
    """Copy pixels ``first ...`` of a row of ``length`` pixels at ``source[start]``; zeros where there are none."""
    width = into.size // channels
    low = min(width, max(0, -first))
    high = max(low, min(width, length - first))
    into[: low * channels] = 0
    into[high * channels :] = 0
    p, q = np.uintp(start + (first + low) * channels), np.uintp(low * channels)
    for i in range(np.uintp((high - low) * channels)):
        into[q + i] = load(source[p + i])
