"""Strict checks of the parameters that users pass: integers, pairs of integers, words.

A bool is no integer here and neither is a float: ``kernel_size=True`` or ``2.0`` is a slip that must not pass
silently. Integers of NumPy count. Each error names the parameter, its value and the legal range.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Clip", "Pair", "PairLike", "choice", "clip_rectangle", "flag", "integer", "optional_pair", "pair"]

Pair: TypeAlias = tuple[int, int]
"""Two integers in array order: (y, x)."""

PairLike: TypeAlias = int | tuple[int, int]
"""What a spec takes for a pair: one integer stands for both axes. It is stored as a :data:`Pair`."""

Clip: TypeAlias = tuple[Pair, Pair]
"""A rectangle: its origin (y, x) and its size (height, width)."""


LIMIT = 2**62
"""The largest magnitude of any integer parameter: beyond every use, and its neighbours still fit in 64 bits."""


def integer(name: str, value: Any, low: int | None = None) -> int:
    """Return ``value`` as an int that is at least ``low``.

    >>> integer("stride", 2, low=1)
    2
    >>> integer("stride", 0, low=1)
    Traceback (most recent call last):
    ValueError: stride is 0; it must be an integer >= 1
    """
    legal = "an integer" if low is None else f"an integer >= {low}"
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is the bool {value!r}; it must be {legal}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; it must be {legal}") from None
    if abs(number) > LIMIT:
        shown = number if number.bit_length() < 1000 else f"a number of {number.bit_length()} bits"
        raise ValueError(f"{name} is {shown}; it must be {legal} of magnitude <= 2**62")
    if low is not None and number < low:
        raise ValueError(f"{name} is {number}; it must be {legal}")
    return number


def pair(name: str, value: Any, low: int | None = None) -> Pair:
    """Return ``value`` as (y, x); a single integer stands for both axes.

    >>> pair("kernel_size", 3), pair("kernel_size", [2, 3])
    ((3, 3), (2, 3))
    """
    if type(value) is tuple and len(value) == 2 and type(value[0]) is type(value[1]) is int:
        least = -LIMIT if low is None else low
        if least <= value[0] <= LIMIT and least <= value[1] <= LIMIT:
            return value  # the usual case, without the time that good messages take
    if isinstance(value, (tuple, list)) or (isinstance(value, np.ndarray) and value.ndim > 0):
        if len(value) != 2:
            raise ValueError(f"{name} is {value!r}; it must be one integer or a pair (y, x)")
        return integer(f"{name}[0]", value[0], low), integer(f"{name}[1]", value[1], low)
    number = integer(name, value, low)
    return number, number


def flag(name: str, value: Any) -> bool:
    """Return ``value`` if it is a bool: ``ceil_mode="no"`` is a slip."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; it must be True or False")
    return bool(value)


def optional_pair(name: str, value: Any, low: int | None = None) -> Pair | None:
    """Like :func:`pair`, with ``None`` allowed."""
    return None if value is None else pair(name, value, low)


def clip_rectangle(name: str, value: Any) -> Clip | None:
    """Return ``value`` as ((y0, x0), (height, width)), all of them >= 0, or ``None``."""
    if value is None:
        return None
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(f"{name} is {value!r}; it must be ((y0, x0), (height, width)) or None")
    return pair(f"{name} origin", value[0], low=0), pair(f"{name} size", value[1], low=0)


def choice(name: str, value: Any, legal: Collection[str]) -> str:
    """Return ``value`` if it is one of the ``legal`` words.

    >>> choice("edge_mode", "mirror", ("zero", "clamp"))
    Traceback (most recent call last):
    ValueError: edge_mode is 'mirror'; it must be one of 'zero', 'clamp'
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; it must be a str")
    for word in legal:
        if word == value:
            return word  # a plain str, whatever subclass came in
    raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, legal))}")
