"""Linear and nearest interpolation along one axis: the pixels and weights of each output, and the adjoint.

Output i is sampled at the position ``p = (start + i * numerator) / denominator`` of an axis of L pixels: it reads the
pixel ``j0 = floor(p)`` with weight ``1 - f`` and its right neighbour with weight ``f = p - j0``. The right neighbour of
the last pixel is 0 with edge mode "zero" and the last pixel with "clamp". A neighbour with weight 0 is not read: an
output at the position of a pixel is a copy of this pixel, even next to NaN or infinity [choice upsampling-weight-zero].
Before pixel 0, "clamp" reads pixel 0. Positions are fractions of integers, so that all backends read the same pixels;
each weight is computed by one division.

Nearest interpolation reads one pixel: the position rounded by a rule of :func:`rounded`, clamped to the axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from mpsref.arguments.arrays import Array
from mpsref.geometry import EdgeMode
from mpsref.tables import IntVector

Rounding: TypeAlias = Literal[
    "round_prefer_ceil", "round_prefer_floor", "ceil", "floor", "round_to_even", "round_to_odd"
]
"""Of a position to a pixel, in the order of Apple's enumeration: to the nearest one, halves up or down or to the pixel
with an even or an odd number, or to the next one on one side."""


ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)


def rounded(rule: Rounding, n: Any, d: Any) -> Any:
    """Return the pixel of the position ``n / d``, integers or vectors of them.

    >>> [rounded(rule, 5, 2) for rule in ROUNDINGS]
    [3, 2, 3, 2, 2, 3]
    """
    if rule in ("ceil", "floor"):
        return n // d if rule == "floor" else -(-n // d)
    low, high = -((d - 2 * n) // (2 * d)), (2 * n + d) // (2 * d)  # two pixels at a half, else the same
    if rule in ("round_prefer_ceil", "round_prefer_floor"):
        return low if rule == "round_prefer_floor" else high
    return low + (low % 2 != (rule == "round_to_odd")) * (high - low)


class WeightTable(NamedTuple):
    """For each output of a table the ``number`` consecutive elements that it sums, from ``first`` on, with weights.

    ``first`` never decreases, nor does ``first + number``. The weights of output k begin at ``weights[start[k]]``; they
    are float64, each computed by one division.
    """

    first: IntVector
    number: IntVector
    start: IntVector
    weights: npt.NDArray[np.float64]

    def entries(self) -> tuple[Array, Array, Array]:
        """Return the output, the element and the weight of each term of each sum."""
        output = np.repeat(np.arange(len(self.number)), self.number)
        place = np.arange(len(output)) - np.repeat(np.cumsum(self.number) - self.number, self.number)
        return output, self.first[output] + place, self.weights[self.start[output] + place]


@dataclass(frozen=True)
class Sampling:
    """Interpolation along an axis of ``length`` pixels: the number of outputs, and integers for their positions."""

    length: int
    outputs: int
    numerator: int
    denominator: int
    edge_mode: EdgeMode = "clamp"
    rounding: Rounding | None = None
    """How nearest interpolation rounds positions; ``None``: interpolation is linear."""
    start: int = 0
    bounded: bool = False
    """Whether outputs at positions before the first or after the last pixel read no pixels."""

    def reads(self, i: int) -> list[tuple[int, float]]:
        """Return the pixels that output i reads and their weights, by definition.

        >>> Sampling(length=3, outputs=6, numerator=1, denominator=2).reads(3)
        [(1, 0.5), (2, 0.5)]
        """
        numerator, last = self.start + i * self.numerator, self.length - 1
        if self.bounded and not 0 <= numerator <= last * self.denominator:
            return []
        if self.rounding:
            return [(min(max(rounded(self.rounding, numerator, self.denominator), 0), last), 1.0)]
        j, remainder = divmod(numerator, self.denominator)
        if self.edge_mode == "clamp" and not 0 <= j < last:
            return [(min(max(j, 0), last), 1.0)]
        if remainder == 0:
            return [(j, 1.0)]
        near = (j, (self.denominator - remainder) / self.denominator)
        return [near, (j + 1, remainder / self.denominator)] if j < last else [near]

    def forward(self) -> WeightTable:
        """Return the table of the pixels that each output reads."""
        return _forward(self)

    def gradient(self) -> WeightTable:
        """Return the table of the outputs, always consecutive, that read each pixel."""
        return _gradient(self)


def sampling_at(length: int, outputs: int, start: Fraction, step: Fraction, **options: Any) -> Sampling:
    """Return the sampling at the positions ``start + i * step``."""
    common = math.lcm(start.denominator, step.denominator)
    return Sampling(length, outputs, int(step * common), common, start=int(start * common), **options)


@lru_cache(maxsize=256)
def _forward(axis: Sampling) -> WeightTable:
    last, den = axis.length - 1, axis.denominator
    largest = abs(axis.start) + max(axis.outputs * axis.numerator, 2 * den)
    i = np.arange(axis.outputs, dtype=np.int64 if largest < 2**52 else object)  # integers of any size
    position = axis.start + i * axis.numerator
    if axis.rounding:
        j, remainder = rounded(axis.rounding, position, den), 0 * i
    else:
        j, remainder = position // den, position % den
    if axis.rounding or axis.edge_mode == "clamp":
        remainder = np.where((j < 0) | (j >= last), 0, remainder)
        j = np.minimum(np.maximum(j, 0), last)
    weights = np.stack([(den - remainder) / den, remainder / den], axis=1).astype(np.float64)
    count = np.where((remainder == 0) | (j == last), 1, 2)
    if axis.bounded:
        count[(position < 0) | (position > last * den)] = 0
    return _table(j, count, 2 * np.arange(axis.outputs), weights.ravel())


@lru_cache(maxsize=256)
def _gradient(axis: Sampling) -> WeightTable:
    output, pixel, weights = axis.forward().entries()
    order = np.argsort(pixel, kind="stable")
    count = np.bincount(pixel, minlength=axis.length)
    start = np.cumsum(count) - count
    return _table(np.append(output[order], 0)[start], count, start, np.append(weights[order], 0.0))


def _table(first: Array, count: Array, start: Array, weights: Array) -> WeightTable:
    ends = np.maximum.accumulate(np.where(count > 0, first + count, 0))
    first, count, start = (column.astype(np.int32) for column in (np.where(count > 0, first, ends), count, start))
    table = WeightTable(first, count, start, weights)
    for column in table:
        column.flags.writeable = False  # tables are shared
    return table


@lru_cache(maxsize=64)
def _reads(sampling: Sampling) -> tuple[Array, Array, Array]:
    """Return the output, the pixel and the weight of each term, by definition."""
    terms = [(i, j, weight) for i in range(sampling.outputs) for j, weight in sampling.reads(i)]
    i, j, weights = np.array(terms).reshape(-1, 3).T
    return i.astype(int), j.astype(int), weights[:, None, None, None]


def sampled(axis: int, sampling: Sampling, image: Array) -> Array:
    """y[i] = sum of weight * x[j] over the pixels j that output i reads, along one axis of an image."""
    y = np.zeros((*image.shape[:axis], sampling.outputs, *image.shape[axis + 1 :]), image.dtype)
    x, along = np.moveaxis(image, axis, 0), np.moveaxis(y, axis, 0)
    i, j, weights = _reads(sampling)
    np.add.at(along, i, weights.astype(x.dtype) * x[j])
    return y


def spread_back(axis: int, sampling: Sampling, gradient: Array) -> Array:
    """dx[j] += weight * g[i] over the pixels j that output i reads, along one axis: the adjoint of :func:`sampled`."""
    dx = np.zeros((*gradient.shape[:axis], sampling.length, *gradient.shape[axis + 1 :]), gradient.dtype)
    g, along = np.moveaxis(gradient, axis, 0), np.moveaxis(dx, axis, 0)
    i, j, weights = _reads(sampling)
    np.add.at(along, j, weights.astype(g.dtype) * g[i])
    return dx
