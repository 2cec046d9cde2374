"""How every kernel of this backend is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba import types

from mpsref_cpu.cache_fingerprint import fingerprint

__all__ = ["compiled", "inlined", "internal", "uncounted"]

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile ``function`` at its first call for each combination of dtypes, without the GIL, and cache it on disk.

    Of fast math only the fused multiply-add is on: NaN and infinity stay what IEEE 754 makes of them, in a division
    by zero, whose check in Python's way would keep loops from being vectorized. Where there is no
    directory to write to, neither beside the source nor in the user's home, each process compiles anew. The cache
    is for the code that there is now, see :mod:`mpsref_cpu.cache_fingerprint`.
    """
    return _compiled(function)


def internal(function: Function) -> Function:
    """Compile ``function`` for the compiled functions that call it. Python cannot call it.

    The way in from Python takes as long to compile as a short function itself.
    """
    return _compiled(function, no_cpython_wrapper=True)


def inlined(function: Function) -> Function:
    """Compile ``function`` into the compiled functions that call it: a call with arrays costs as much as 100 pixels.

    Python cannot call it.
    """
    return _compiled(function, no_cpython_wrapper=True, forceinline=True)


def uncounted(function: Function) -> Function:
    """Compile a function that makes no array and returns none, without the reference counts of its arguments.

    Some of them are changed at nearly each call and slice, each time with a lock, for which threads wait in turn: a
    call costs a microsecond or less, and what is done for each row of an image must cost less than that. Python cannot
    call it.
    """
    return _compiled(function, no_cpython_wrapper=True, _nrt=False)


def _compiled(function: Function, **more: bool) -> Function:
    options: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
    options["no_cfunc_wrapper"] = True  # a way in for C, which nobody takes: threads.py calls the function itself
    options |= more
    try:
        result: Any = numba.njit(cache=True, **options)(function)
        if function.__module__.startswith("mpsref_cpu."):
            result._cache._cache_file._source_stamp = fingerprint(function.__module__)  # numba has no public way
    except (RuntimeError, OSError):  # "cannot cache function: no locator available"; or there is no source
        result = numba.njit(**options)(function)
    _without_literals(result)
    if "no_cpython_wrapper" in options:
        _without_entry(result)
    return cast(Function, result)


def _without_literals(dispatcher: Any) -> None:
    """Let compiled callers that pass the constants 0 and 1 share the code that was compiled for integers.

    Numba would compile the function once more for each constant. What is compiled into its caller loses nothing: LLVM
    sees the constants there.
    """
    template = dispatcher.get_call_template
    plain: Any = types.unliteral
    dispatcher.get_call_template = lambda args, kws: template(
        tuple(map(plain, args)), {name: plain(kind) for name, kind in kws.items()}
    )


def _without_entry(dispatcher: Any) -> None:
    """Turn a call from Python, which would go to address 0, into an error."""

    def refuse(*arguments: Any, **named: Any) -> None:
        raise TypeError(f"{dispatcher.__name__} is for compiled code only")

    dispatcher._insert = lambda *arguments, **named: None  # where a call looks first
    dispatcher._compile_for_args = refuse
