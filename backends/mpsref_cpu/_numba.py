"""All that this backend uses of numba's private parts, and what takes their place in a release without them.

``_dispatcher.compute_fingerprint``
    Looks up compiled code by the types of arguments. Otherwise :func:`numba.typeof`, 50 times slower.
``JITCodeLibrary.get_pointer_to_function``, ``FunctionDescriptor.llvm_func_name``
    The address of a compiled kernel, for the threads of the spin pool. Otherwise kernels run in the calling thread.
``CPUCallConv.get_function_type``, ``CPUCallConv.call_function``
    Call a kernel by its address. Otherwise kernels run in the calling thread.
``_cache._cache_file._source_stamp``, ``_load_index``, ``flush``
    Discard cached code when any of the files that it is compiled from has changed. Otherwise numba's own check, which
    looks at the file of the kernel alone.

The parts are looked up at import; one warning names those that are missing, and the version of numba.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any

import numba
from numba import _dispatcher, types
from numba.core import callconv, codegen, funcdesc

Builder = Any
"""llvmlite's builder of instructions."""

_numba: Any = numba  # whose functions are declared only in part


def _missing(*parts: tuple[Any, str]) -> list[str]:
    return [name for owner, name in parts if not hasattr(owner, name)]


def _cache_parts_missing() -> list[str]:
    try:
        sample: Any = _numba.njit(cache=True)(_missing)  # compiled only when called
        cache = sample._cache._cache_file
        return _missing((cache, "_source_stamp"), (cache, "_load_index"), (cache, "flush"))
    except AttributeError as error:
        return [f"_cache._cache_file._source_stamp ({error.name})"]
    except (RuntimeError, OSError):  # there is no directory for a cache
        return []


_NO_FINGERPRINT = _missing((_dispatcher, "compute_fingerprint"))
_NO_STAMP = _cache_parts_missing()
_NO_ADDRESS = _missing(
    (codegen.JITCodeLibrary, "get_pointer_to_function"),
    (funcdesc.FunctionDescriptor, "llvm_func_name"),
    (callconv.CPUCallConv, "get_function_type"),
    (callconv.CPUCallConv, "call_function"),
)

can_share_work = not _NO_ADDRESS
"""Whether threads other than the calling one can run kernels."""


def _warn(missing: list[str]) -> None:
    warnings.warn(
        f"numba {numba.__version__} lacks {', '.join(missing)}, which mpsref's cpu backend uses: results are the same, "
        "computed more slowly; install a version of numba that mpsref has been tested with, or update mpsref",
        RuntimeWarning,
        stacklevel=2,
    )


if _NO_FINGERPRINT or _NO_STAMP or _NO_ADDRESS:
    _warn([*_NO_FINGERPRINT, *_NO_STAMP, *_NO_ADDRESS])


def types_key(arguments: tuple[Any, ...]) -> Hashable:
    """Return a key that is equal for arguments of equal types."""
    if _NO_FINGERPRINT:
        return tuple(map(_numba.typeof, arguments))
    key: Hashable = _dispatcher.compute_fingerprint(arguments)
    return key


def address(kernel: Any, arguments: tuple[Any, ...]) -> int:
    """Return the address of ``kernel(begin, end, *arguments)``, compiled for the types of the arguments."""
    result = kernel.get_compile_result(types.none(types.int64, types.int64, *map(_numba.typeof, arguments)))
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


def call(context: Any, builder: Builder, pointer: Any, argument_types: list[Any], arguments: list[Any]) -> Any:
    """Generate the call of a kernel at an address; return the bit that says whether it raised an exception."""
    convention = context.call_conv
    function = builder.inttoptr(pointer, convention.get_function_type(types.none, argument_types).as_pointer())
    status, _ = convention.call_function(builder, function, types.none, argument_types, arguments)
    return status.is_error


def set_cache_stamp(kernel: Any, stamp: str) -> None:
    """Make numba's disk cache discard code of ``kernel`` that was compiled under another stamp."""
    if _NO_STAMP:
        return
    cache = kernel._cache._cache_file
    cache._source_stamp = stamp
    try:
        cache._load_index()
    except (AttributeError, ImportError):  # it names classes that another version of the code had
        cache.flush()
