"""How every kernel of this backend is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

__all__ = ["compiled", "inlined"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function, inline: bool = False) -> Function:
    """Compile ``function`` at its first call for each combination of dtypes, without the GIL, and cache it on disk.

    Of fast math only the fused multiply-add is on: NaN and infinity stay what IEEE 754 makes of them, in a division
    by zero, whose check in Python's way would keep loops from being vectorized. Where there is no
    directory to write to, neither beside the source nor in the user's home, each process compiles anew. The cache
    notices a change of the file that ``function`` is in, but not of another file whose functions it calls.
    """
    options: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy", "forceinline": inline}
    try:
        result: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # "cannot cache function: no locator available"
        result = numba.njit(**options)(function)
    return result


def inlined(function: Function) -> Function:
    """Compile ``function`` into the compiled functions that call it: a call with arrays costs as much as 100 pixels."""
    return compiled(function, inline=True)
