"""How every kernel of this backend is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from mpsref_cpu.stamps import stamp_of

__all__ = ["compiled", "inlined"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function, inline: bool = False) -> Function:
    """Compile ``function`` at its first call for each combination of dtypes, without the GIL, and cache it on disk.

    Of fast math only the fused multiply-add is on: NaN and infinity stay what IEEE 754 makes of them, in a division
    by zero, whose check in Python's way would keep loops from being vectorized. Where there is no
    directory to write to, neither beside the source nor in the user's home, each process compiles anew. The cache
    is for the code that there is now, see :mod:`mpsref_cpu.stamps`.
    """
    options: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy", "forceinline": inline}
    try:
        result: Any = numba.njit(cache=True, **options)(function)
        result._cache._cache_file._source_stamp = stamp_of(function.__module__)  # numba has no public way
    except (RuntimeError, OSError):  # "cannot cache function: no locator available"; or there is no source
        result = numba.njit(**options)(function)
    return cast(Function, result)


def inlined(function: Function) -> Function:
    """Compile ``function`` into the compiled functions that call it: a call with arrays costs as much as 100 pixels."""
    return compiled(function, inline=True)
