"""What the normalization kernels share: checks of their parameters, and the pieces of their error bounds."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.errors import ShapeError
from mpsref.kernels.reference import gamma as growth  # gamma is a scale here

__all__ = ["FLT_MIN", "chain", "channel_vector", "growth", "over_power", "real"]

FLT_MIN = 2.0**-126
"""The smallest normal float32; the default epsilon."""


def real(name: str, value: Any, low: float = -math.inf) -> float:
    """Return ``value`` as a float that is at least ``low`` and not NaN; infinities pass.

    Raises ``TypeError`` for what is no real number (a bool is none), ``ValueError`` for one outside.

    >>> real("epsilon", 1, low=0)
    1.0
    >>> real("epsilon", float("nan"), low=0)
    Traceback (most recent call last):
    ValueError: epsilon is nan; it must be a number >= 0, not NaN
    """
    legal = "a number, not NaN" if low == -math.inf else f"a number >= {low:g}, not NaN"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; it must be {legal}")
    number = float(value)
    if not number >= low:  # NaN is not
        raise ValueError(f"{name} is {value!r}; it must be {legal}")
    return number


def channel_vector(name: str, value: Any, channels: int, *images: Array) -> Array:
    """Return ``value`` as a vector with a number for each channel: float32, or float64 where an image is float64.

    Raises ``TypeError`` for what is no array of real numbers, ``ShapeError`` for another shape than ``(channels,)``.

    >>> channel_vector("gamma", [1, 2], 2)
    array([1., 2.], dtype=float32)
    """
    try:
        array = np.asarray(value)
    except ValueError as error:  # a ragged list
        raise TypeError(f"{name} cannot be read as a NumPy array ({error}); pass {channels} numbers") from error
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} has dtype {array.dtype}; it must hold real numbers, one for each channel")
    if array.shape != (channels,):
        raise ShapeError(f"{name} has shape {array.shape}; it must be ({channels},): one number for each channel")
    with np.errstate(over="ignore"):  # storing in float32 may overflow to infinity
        return array.astype(np.result_type(np.float32, *(image.dtype.newbyteorder("=") for image in images)))


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
