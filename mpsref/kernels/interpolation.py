"""Linear and nearest interpolation along one axis: the pixels and weights of each output, and the adjoint.

Output i is sampled at the position ``p = (start + i * numerator) / denominator`` of an axis of L pixels: it reads the
pixel ``j0 = floor(p)`` with weight ``1 - f`` and its right neighbour with weight ``f = p - j0``. The right neighbour of
the last pixel is 0 with edge mode "zero" and the last pixel with "clamp". A neighbour with weight 0 is not read: an
output at the position of a pixel is a copy of this pixel, even next to NaN or infinity [choice upsampling-weight-zero].
Positions are fractions of integers, so that all backends read the same pixels; each weight is computed by one division.

Nearest interpolation is the case ``f = 0``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpsref.arguments.arrays import Array
from mpsref.geometry import EdgeMode, ceil_div
from mpsref.tables import IntVector


class WeightTable(NamedTuple):
    """For each output of a table the ``number`` consecutive elements that it sums, from ``first`` on, with weights.

    The weights of output k begin at ``weights[start[k]]``; they are float64, each computed by one division.
    """

    first: IntVector
    number: IntVector
    start: IntVector
    weights: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sampling:
    """Interpolation along an axis of ``length`` pixels: the number of outputs, and integers for their positions."""

    length: int
    outputs: int
    numerator: int
    denominator: int
    edge_mode: EdgeMode = "clamp"
    nearest: bool = False
    start: int = 0
    bounded: bool = False
    """Whether outputs at positions before the first or after the last pixel read no pixels."""

    def reads(self, i: int) -> list[tuple[int, float]]:
        """Return the pixels that output i reads and their weights, by definition.

        >>> Sampling(length=3, outputs=6, numerator=1, denominator=2).reads(3)
        [(1, 0.5), (2, 0.5)]
        """
        numerator = self.start + i * self.numerator
        if self.bounded and not 0 <= numerator <= (self.length - 1) * self.denominator:
            return []
        j, remainder = divmod(numerator, self.denominator)
        if self.nearest or remainder == 0:
            return [(j, 1.0)]
        f = remainder / self.denominator
        near = (j, (self.denominator - remainder) / self.denominator)
        if j + 1 < self.length:
            return [near, (j + 1, f)]
        return [(j, 1.0)] if self.edge_mode == "clamp" else [near]

    def forward(self) -> WeightTable:
        """Return the table of the pixels that each output reads."""
        return _forward(self)

    def inside(self) -> tuple[int, Sampling] | None:
        """Return the first output that reads pixels, and the axis with only these outputs; ``None`` if there are none.

        Requires positions in ascending order: the outputs that read pixels are then consecutive.
        """
        reading = [i for i in range(self.outputs) if self.reads(i)]
        if not reading:
            return None
        start = self.start + reading[0] * self.numerator
        return reading[0], replace(self, outputs=len(reading), start=start, bounded=False)

    def gradient(self) -> WeightTable:
        """Return the table of the outputs, always consecutive, that read each pixel; requires ``start == 0``."""
        return _gradient(self)


@lru_cache(maxsize=256)
def _forward(axis: Sampling) -> WeightTable:
    largest = max(axis.outputs * axis.numerator, axis.denominator)
    if axis.start or axis.bounded or largest >= 2**63:  # integers of any size
        reads = [axis.reads(i) for i in range(axis.outputs)]
        count = np.array([len(read) for read in reads])
        weights = np.array([weight for read in reads for _, weight in read] or [0.0])
        return _table(np.array([read[0][0] if read else 0 for read in reads]), count, np.cumsum(count) - count, weights)
    j, remainder = np.divmod(np.arange(axis.outputs) * axis.numerator, axis.denominator)
    last = j == axis.length - 1
    alone = (remainder == 0) | axis.nearest
    one = alone | (last & (axis.edge_mode == "clamp"))
    weights = np.stack([(axis.denominator - remainder) / axis.denominator, remainder / axis.denominator], axis=1)
    weights[one, 0] = 1.0
    count = np.where(alone | last, 1, 2)
    return _table(j, count, 2 * np.arange(axis.outputs), weights.ravel())


@lru_cache(maxsize=256)
def _gradient(axis: Sampling) -> WeightTable:
    """Output i reads pixel j if ``|t| < denominator`` with ``t = i * numerator - j * denominator``."""
    num, den, length, outputs = axis.numerator, axis.denominator, axis.length, axis.outputs
    first, count, weights = [], [], []
    for j in range(length):
        low = j * den if axis.nearest else (j - 1) * den + 1  # range of the numerators of positions that read j
        high = (j + 1) * den - 1
        if j == length - 1 and (axis.edge_mode == "clamp" or axis.nearest):
            high = max(high, (outputs - 1) * num)
        if num == 0:
            begin, end = 0, outputs if low <= 0 <= high else 0
        else:
            begin, end = max(0, ceil_div(low, num)), min(outputs, high // num + 1)
        t = np.arange(begin, end) * num - j * den
        beyond = (t > 0) & (j == length - 1) & (axis.edge_mode == "clamp")
        weights.append(np.ones(t.size) if axis.nearest else np.where(beyond, 1.0, (den - np.abs(t)) / den))
        first.append(begin)
        count.append(max(0, end - begin))
    start = np.concatenate([[0], np.cumsum(count)[:-1]])
    return _table(np.array(first), np.array(count), start, np.concatenate(weights))


def _table(first: Array, count: Array, start: Array, weights: Array) -> WeightTable:
    first, count, start = (column.astype(np.int32) for column in (np.where(count > 0, first, 0), count, start))
    table = WeightTable(first, count, start, weights)
    for column in table:
        column.flags.writeable = False  # tables are shared
    return table


def sampled(axis: int, sampling: Sampling, image: Array) -> Array:
    """y[i] = sum of weight * x[j] over the pixels j that output i reads, along one axis of an image."""
    y = np.zeros((*image.shape[:axis], sampling.outputs, *image.shape[axis + 1 :]), image.dtype)
    x, along = np.moveaxis(image, axis, 0), np.moveaxis(y, axis, 0)
    for i in range(sampling.outputs):
        for j, weight in sampling.reads(i):
            along[i] += x[j] if weight == 1 else weight * x[j]
    return y


def spread_back(axis: int, sampling: Sampling, gradient: Array) -> Array:
    """dx[j] += weight * g[i] over the pixels j that output i reads, along one axis: the adjoint of :func:`sampled`."""
    dx = np.zeros((*gradient.shape[:axis], sampling.length, *gradient.shape[axis + 1 :]), gradient.dtype)
    g, along = np.moveaxis(gradient, axis, 0), np.moveaxis(dx, axis, 0)
    for i in range(sampling.outputs):
        for j, weight in sampling.reads(i):
            along[j] += g[i] if weight == 1 else weight * g[i]
    return dx
