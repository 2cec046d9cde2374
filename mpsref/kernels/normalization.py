"""What the normalization kernels share: checks of their parameters, and the pieces of their error bounds."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.reference import gamma as growth  # gamma is a scale here

__all__ = ["FLT_MIN", "chain", "growth", "over_power"]

FLT_MIN = 2.0**-126
"""The smallest normal float32; the default epsilon."""


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
