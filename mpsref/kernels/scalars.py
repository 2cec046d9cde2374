"""Strict checks of parameters that are real numbers, beside :mod:`mpsref.parameters`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

__all__ = ["named", "number", "word_of"]


def number(
    name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, below: bool = False, above: bool = False
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
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; it must be {legal}")
    real = float(value)
    inside = (low < real if above else low <= real) and (real < high if below else real <= high)
    if not (math.isfinite(real) and inside):
        raise ValueError(f"{name} is {value!r}; it must be {legal}")
    return real


def word_of(name: str, value: Any, bits: int) -> int:
    """Return ``value`` as an unsigned integer of so many bits; errors as in :func:`mpsref.parameters.integer`.

    >>> word_of("seed", 2**64, 64)
    Traceback (most recent call last):
    ValueError: seed is 18446744073709551616; it must be an integer >= 0 and < 2**64
    """
    legal = f"an integer >= 0 and < 2**{bits}"
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; it must be {legal}")
    whole = int(value)
    if not 0 <= whole < 2**bits:
        shown = whole if whole.bit_length() < 1000 else f"a number of {whole.bit_length()} bits"
        raise ValueError(f"{name} is {shown}; it must be {legal}")
    return whole


def named(name: str, value: Any, names: Sequence[str]) -> str:
    """Return the one of ``names`` that ``value`` is, or is the number of.

    >>> named("reduction", 2, ("none", "sum", "mean"))
    'mean'
    """
    legal = ", ".join(f"{word!r} ({k})" for k, word in enumerate(names))
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (str, int, np.integer)):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; it must be one of {legal}")
    if isinstance(value, str):
        if value in names:
            return names[names.index(value)]  # a plain str, whatever subclass came in
    elif 0 <= value < len(names):
        return names[int(value)]
    raise ValueError(f"{name} is {value!r}; it must be one of {legal}")
