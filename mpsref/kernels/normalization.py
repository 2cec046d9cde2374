"""Shared by the normalization kernels: powers, parts of error bounds, and the range of random test values."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.operations import ImageProblem

FLT_MIN = 2.0**-126
"""The smallest normal float32; the default epsilon."""

LARGEST = 8.0
"""Random values are scaled to at most this, so that no power of a sum of squares leaves the range of float32."""


class RangedProblem(ImageProblem):
    """A problem whose results have powers of sums of squares of x."""

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Scale channels of x with large values down, so that powers of sums of squares stay in range."""
        x = drawn["x"]
        largest = np.abs(x).max(axis=(0, 1, 2), initial=LARGEST)
        return {**drawn, "x": (x * (LARGEST / largest)).astype(x.dtype)}


def over_power(base: Array, exponent: float) -> Array:
    """Return ``base**-exponent``; a base that is 0 or negative gives infinity or NaN, as IEEE 754 says."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(base**-exponent)


def chain(n: int) -> int:
    """Return the longest sequence of additions in a sum of n terms, at most 1,024 one after the other.

    >>> chain(10), chain(2**20)
    (14, 1044)
    """
    return min(n, 1024) + math.ceil(math.log2(n))
