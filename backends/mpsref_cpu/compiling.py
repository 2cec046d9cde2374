"""How every kernel of this backend is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

__all__ = ["compiled", "inlined", "uncounted"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function, inline: bool = False, counted: bool = True) -> Function:
    """Compile ``function`` at its first call for each combination of dtypes, without the GIL, and cache it on disk.

    Of fast math only the fused multiply-add is on: NaN and infinity stay what IEEE 754 makes of them, in a division
    by zero, whose check in Python's way would keep loops from being vectorized. Where there is no
    directory to write to, neither beside the source nor in the user's home, each process compiles anew. The cache
    notices a change of the file that ``function`` is in, but not of another file whose functions it calls.
    """
    options: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy", "forceinline": inline}
    if not counted:
        options["_nrt"] = False
    try:
        result: Function = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # "cannot cache function: no locator available"
        result = numba.njit(**options)(function)
    return result


def inlined(function: Function) -> Function:
    """Compile ``function`` into the compiled functions that call it: a call with arrays costs as much as 100 pixels."""
    return compiled(function, inline=True)


def uncounted(function: Function) -> Function:
    """Compile a function that makes no array and returns none, without the reference counts of its arguments.

    Some of them are changed at nearly each call and slice, each time with a lock, for which threads wait in turn: a
    call costs a microsecond or less, and what is done for each row of an image must cost less than that.
    """
    return compiled(function, counted=False)
