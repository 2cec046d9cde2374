"""Strict checks of the parameters that users pass: integers, pairs of integers, words.

A bool is no integer here and neither is a float: ``kernel_size=True`` or ``2.0`` is a slip that must not pass
silently. Integers of NumPy count. Each error names the parameter, its value and the legal range.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Sequence
from numbers import Real
from typing import TypeAlias

import numpy as np

from mpsref.arguments.text import shown

Pair: TypeAlias = tuple[int, int]
"""Two integers in array order: (y, x)."""

PairLike: TypeAlias = int | tuple[int, int]
"""What a spec takes for a pair: one integer stands for both axes. It is stored as a :data:`Pair`."""

Triple: TypeAlias = tuple[int, int, int]
"""Three integers in array order: (y, x, channel)."""

Clip: TypeAlias = tuple[Pair, Pair]
"""A rectangle: its origin (y, x) and its size (height, width)."""


LIMIT = 2**62
"""The largest magnitude of any integer parameter: beyond every use, and its neighbours still fit in 64 bits."""


def integer(name: str, value: object, low: int | None = None) -> int:
    """Return ``value`` as an int that is at least ``low``.

    >>> integer("stride", 2, low=1)
    2
    >>> integer("stride", 0, low=1)
    Traceback (most recent call last):
    ValueError: stride is 0; it must be an integer >= 1
    """
    legal = "an integer" if low is None else f"an integer >= {low}"
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is the bool {shown(value)}; it must be {legal}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}; it must be {legal}") from None
    if abs(number) > LIMIT:
        raise ValueError(f"{name} is {shown(number)}; it must be {legal} of magnitude <= 2**62")
    if low is not None and number < low:
        raise ValueError(f"{name} is {number}; it must be {legal}")
    return number


def pair(name: str, value: object, low: int | None = None) -> Pair:
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
            raise ValueError(f"{name} is {shown(value)}; it must be one integer or a pair (y, x)")
        return integer(f"{name}[0]", value[0], low), integer(f"{name}[1]", value[1], low)
    number = integer(name, value, low)
    return number, number


def flag(name: str, value: object) -> bool:
    """Return ``value`` if it is a bool: ``ceil_mode="no"`` is a slip."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}; it must be True or False")
    return bool(value)


def clip_rectangle(name: str, value: object) -> Clip | None:
    """Return ``value`` as ((y0, x0), (height, width)), all of them >= 0, or ``None``."""
    if value is None:
        return None
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(f"{name} is {shown(value)}; it must be ((y0, x0), (height, width)) or None")
    return pair(f"{name} origin", value[0], low=0), pair(f"{name} size", value[1], low=0)


def choice(name: str, value: object, legal: Collection[str]) -> str:
    """Return ``value`` if it is one of the ``legal`` words.

    >>> choice("edge_mode", "mirror", ("zero", "clamp"))
    Traceback (most recent call last):
    ValueError: edge_mode is 'mirror'; it must be one of 'zero', 'clamp'
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}; it must be a str")
    for word in legal:
        if word == value:
            return word  # a plain str, whatever subclass came in
    raise ValueError(f"{name} is {shown(value)}; it must be one of {', '.join(map(repr, legal))}")


def as_float(name: str, value: object, legal: str) -> float:
    """Return a real number as a float, ``TypeError`` for anything else (a bool is none).

    >>> as_float("decay", 10**400, "a number")
    Traceback (most recent call last):
    ValueError: decay is a number of 1329 bits, too large for a float64; it must be a number
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}; it must be {legal}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is {shown(value)}, too large for a float64; it must be {legal}") from None


def number(
    name: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    below: bool = False,
    above: bool = False,
) -> float:
    """Return ``value`` as a finite float in [low, high]; ``above`` and ``below`` leave out the ends.

    Raises ``TypeError`` for what is no real number (a bool is none), ``ValueError`` for one outside, for infinities and
    for NaN.

    >>> number("decay", 1, low=0, high=1)
    1.0
    >>> number("delta", 0, low=0, above=True)
    Traceback (most recent call last):
    ValueError: delta is 0; it must be a finite number > 0
    """
    bounds = [f"{'>' if above else '>='} {low:g}"] if low > -math.inf else []
    bounds += [f"{'<' if below else '<='} {high:g}"] if high < math.inf else []
    legal = " ".join(["a finite number", " and ".join(bounds)]).rstrip()
    real = as_float(name, value, legal)
    inside = (low < real if above else low <= real) and (real < high if below else real <= high)
    if not (math.isfinite(real) and inside):
        raise ValueError(f"{name} is {shown(value)}; it must be {legal}")
    return real


def word_of(name: str, value: object, bits: int) -> int:
    """Return ``value`` as an unsigned integer of ``bits`` bits; errors as in :func:`integer`.

    >>> word_of("seed", 2**64, 64)
    Traceback (most recent call last):
    ValueError: seed is 18446744073709551616; it must be an integer >= 0 and < 2**64
    """
    legal = f"an integer >= 0 and < 2**{bits}"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}; it must be {legal}")
    whole = int(value)
    if not 0 <= whole < 2**bits:
        raise ValueError(f"{name} is {shown(whole)}; it must be {legal}")
    return whole


def named(name: str, value: object, names: Sequence[str]) -> str:
    """Return the one of ``names`` that ``value`` is, or is the number of.

    >>> named("reduction", 2, ("none", "sum", "mean"))
    'mean'
    """
    legal = ", ".join(f"{word!r} ({k})" for k, word in enumerate(names))
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (str, int, np.integer)):
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}; it must be one of {legal}")
    if isinstance(value, str):
        if value in names:
            return names[names.index(value)]  # a plain str, whatever subclass came in
    elif 0 <= value < len(names):
        return names[int(value)]
    raise ValueError(f"{name} is {shown(value)}; it must be one of {legal}")


def real(name: str, value: object, low: float = -math.inf) -> float:
    """Return ``value`` as a float that is at least ``low`` and not NaN; infinities pass.

    Raises ``TypeError`` for what is no real number (a bool is none), ``ValueError`` for one outside.

    >>> real("epsilon", 1, low=0)
    1.0
    >>> real("epsilon", float("nan"), low=0)
    Traceback (most recent call last):
    ValueError: epsilon is nan; it must be a number >= 0, not NaN
    """
    legal = "a number, not NaN" if low == -math.inf else f"a number >= {low:g}, not NaN"
    number = as_float(name, value, legal)
    if not number >= low:  # NaN is not
        raise ValueError(f"{name} is {shown(value)}; it must be {legal}")
    return number


def triple(name: str, value: object, low: int | None = None, high: int | None = None) -> Triple:
    """Return ``value`` as (y, x, c) with every number in [low, high].

    >>> triple("primary_strides", [0, 1, 2], 0, 1)
    Traceback (most recent call last):
    ValueError: primary_strides[2] is 2; it must be 0 or 1
    """
    if not isinstance(value, (tuple, list)) and not (isinstance(value, np.ndarray) and value.ndim):
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}; it must be a tuple (y, x, c)")
    if len(value) != 3:
        raise ValueError(f"{name} is {shown(value)} of length {len(value)}; it must be a tuple (y, x, c)")
    numbers = [integer(f"{name}[{axis}]", number, low) for axis, number in enumerate(value)]
    for axis, number in enumerate(numbers):
        if high is not None and number > high:
            raise ValueError(f"{name}[{axis}] is {number}; it must be {low} or {high}")
    y, x, c = numbers
    return y, x, c
