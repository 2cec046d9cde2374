"""How the functions of this backend are compiled."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba import extending

from mpsref_cpu import _numba
from mpsref_cpu.cache_fingerprint import fingerprint

Function = TypeVar("Function", bound=Callable[..., Any])

intrinsic: Any = extending.intrinsic
"""Make a function for compiled code from one that returns its signature and the generation of its LLVM instructions.

numba declares types for it, and for ``overload``, that drop arguments.
"""

OPTIONS: dict[str, Any] = {"no_cfunc_wrapper": True, "fastmath": {"contract"}, "error_model": "numpy"}
"""Fast math is limited to fused multiply-adds. NaN and infinity follow IEEE 754, also in divisions by zero: the checks
of Python's error model would prevent vectorization. Wrappers for callers in C are never used."""


def compiled(function: Function) -> Function:
    """Compile a kernel at its first call for each combination of dtypes, without the GIL, and keep it on disk."""
    kernel = numba.njit(nogil=True, **OPTIONS, **_numba.KERNEL)(function)
    if function.__module__.startswith("mpsref_cpu."):
        with contextlib.suppress(OSError):  # the source is not available
            _numba.keep_on_disk(kernel, fingerprint(function.__module__))
    return cast(Function, kernel)


def internal(function: Function, **options: Any) -> Function:
    """Compile a function for the compiled functions that call it, as part of them. Python cannot call it."""

    def chosen(*arguments: Any, **named: Any) -> Function:
        return function

    return cast(Function, _only_compiled(function, chosen, options))


def inlined(function: Function) -> Function:
    """Like :func:`internal`, inlined: a call with array arguments costs as much as 100 pixels."""
    return internal(function, forceinline=True)


def uncounted(function: Function) -> Function:
    """Like :func:`internal`, without reference counting, for functions that neither create nor return arrays.

    Reference counts are changed by locked instructions at nearly every call and slice, up to a microsecond a call.
    """
    return internal(function, _nrt=False)


def generic(choose: Function) -> Function:
    """Make a function for compiled code from one that returns the implementation for the types of its arguments."""
    return cast(Function, _only_compiled(choose, choose, {"forceinline": True}))


def _only_compiled(function: Callable[..., Any], choose: Callable[..., Any], options: dict[str, Any]) -> Any:
    @functools.wraps(function)
    def refuse(*arguments: Any, **named: Any) -> None:
        raise TypeError(f"{function.__name__} is for compiled code only")

    overload: Any = extending.overload
    overload(refuse, jit_options=OPTIONS | _numba.PART | options, strict=False)(choose)
    return refuse
