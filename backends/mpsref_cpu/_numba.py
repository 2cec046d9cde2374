"""All that this backend uses of numba's private parts, and what takes their place in a release without them.

``_dispatcher.compute_fingerprint``
    Looks up compiled code by the types of arguments. Otherwise :func:`numba.typeof`, 50 times slower.
``JITCodeLibrary.get_pointer_to_function``, ``FunctionDescriptor.llvm_func_name``
    The address of a compiled kernel, for the threads of the spin pool. Otherwise kernels run in the calling thread.
``CPUCallConv.get_function_type``, ``CPUCallConv.call_function``
    Call a kernel by its address. Otherwise kernels run in the calling thread.
``Dispatcher._cache``, ``NullCache``, ``CompileResult._reduce``, ``CompileResult._rebuild``, ``serialize.dumps``,
``CodeLibrary.has_dynamic_globals``
    Keep compiled code on disk in :mod:`anymetal.disk_cache`. Otherwise each process compiles its kernels: numba's
    own cache keeps code when a function that it calls has changed in another file, and fails on damaged files.
``rtsys``, and ``_rebuild_env`` where this code names it
    Load this code without the modules that numba compiles with, and SciPy's linear algebra, which these import.
    Otherwise the first call in a process takes twice as long.
``CPUCodeLibrary._finalize_final_module``, ``JITCodeLibrary``, ``Compiler.define_pipelines``
    Translate a function that kernels call to machine code as part of them alone. Otherwise numba does it for the
    function, too, which takes a tenth of the time of compilation; it also changes the function, so that products and
    sums may be fused elsewhere, and results rounded differently.
``global_compiler_lock``
    Held while a process forks. Otherwise a child that is forked while another thread compiles may wait forever.

The parts are looked up at import; one warning names those that are missing, and the version of numba.
"""

from __future__ import annotations

import functools
import io
import pickle
import pkgutil
import sys
import threading
import warnings
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy.ma  # noqa: F401 - otherwise numba.typeof imports it without its lock, and a fork could interrupt that
from numba import types

from anymetal import disk_cache

Builder = Any
"""llvmlite's builder of instructions."""

_numba: Any = numba  # only some of its functions have type declarations

_missing: list[str] = []


def _find(*names: str) -> Any:
    """Return the first of the parts ``module:name``, or ``None`` if one is missing."""
    found = []
    for name in names:
        try:
            found.append(pkgutil.resolve_name(name))
        except (ImportError, AttributeError):
            _missing.append(name.replace(":", "."))
    return found[0] if len(found) == len(names) else None


_compute_fingerprint = _find("numba._dispatcher:compute_fingerprint")
_get_pointer = _find(
    "numba.core.codegen:JITCodeLibrary.get_pointer_to_function",
    "numba.core.funcdesc:FunctionDescriptor.llvm_func_name",
    "numba.core.callconv:CPUCallConv.get_function_type",
    "numba.core.callconv:CPUCallConv.call_function",
)
_NullCache: Any = _find(
    "numba.core.caching:NullCache",
    "numba.core.compiler:CompileResult._reduce",
    "numba.core.codegen:CodeLibrary.has_dynamic_globals",
)
_rebuild = _find("numba.core.compiler:CompileResult._rebuild")
_dumps = _find("numba.core.serialize:dumps")
_runtime = _find("numba.core.runtime.nrt:rtsys")
_parts = _find(
    "numba.core.codegen:CPUCodeLibrary._finalize_final_module",
    "numba.core.compiler:Compiler.define_pipelines",
)
_Library: Any = getattr(sys.modules.get("numba.core.codegen"), "JITCodeLibrary", None) if _parts else None
_Compiler: Any = getattr(sys.modules.get("numba.core.compiler"), "Compiler", None) if _parts else None
compiler_lock: Any = _find("numba.core.compiler_lock:global_compiler_lock") or threading.RLock()
"""Held by the thread that compiles or loads a function."""


can_share_work = _get_pointer is not None
"""Whether threads other than the calling one can run kernels."""


if _NullCache is not None and not isinstance(getattr(_numba.njit(_find), "_cache", None), _NullCache):
    _missing.append("numba.core.dispatcher.Dispatcher._cache")
    _NullCache = None

if _missing:
    warnings.warn(
        f"numba {numba.__version__} lacks {', '.join(_missing)}, which mpsref's cpu backend uses: results are as "
        "exact, computed more slowly; install a version of numba that mpsref has been tested with, or update mpsref",
        RuntimeWarning,
        stacklevel=2,
    )


def types_key(arguments: tuple[Any, ...]) -> Hashable:
    """Return a key that is equal for arguments of equal types."""
    if _compute_fingerprint is None:
        return tuple(map(_numba.typeof, arguments))
    key: Hashable = _compute_fingerprint(arguments)
    return key


def address(kernel: Any, arguments: tuple[Any, ...]) -> int:
    """Return the address of ``kernel(begin, end, *arguments)``, compiled for the types of the arguments."""
    with compiler_lock:
        result = kernel.get_compile_result(types.none(types.int64, types.int64, *map(_numba.typeof, arguments)))
        return int(_get_pointer(result.library, result.fndesc.llvm_func_name))


def call(context: Any, builder: Builder, pointer: Any, argument_types: list[Any], arguments: list[Any]) -> Any:
    """Generate the call of a kernel at an address; return the bit that says whether it raised an exception."""
    convention = context.call_conv
    function = builder.inttoptr(pointer, convention.get_function_type(types.none, argument_types).as_pointer())
    status, _ = convention.call_function(builder, function, types.none, argument_types, arguments)
    return status.is_error


_LibraryBase: Any = _Library or object
_CompilerBase: Any = _Compiler or object


class _Part(_LibraryBase):
    """The code of a function that Python does not call: optimized, to be linked into its callers."""

    def _finalize_final_module(self) -> None:
        """Make no machine code."""
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: there is no machine code."""
        return 0

    @property
    def codegen(self) -> Any:
        """What numba tells the addresses of environments."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: without machine code there is no environment."""


class _PartCompiler(_CompilerBase):
    """Compile a function for its callers."""

    def define_pipelines(self) -> Any:
        """Choose the library of the code."""
        state = self.state
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().define_pipelines()


PART: dict[str, Any] = {"pipeline_class": _PartCompiler} if None not in (_Library, _Compiler) else {}
"""Options of ``numba.njit`` for the functions that kernels call."""


class _Unpickler(pickle.Unpickler):
    """Load compiled code; import no module of numba for the functions in it."""

    def find_class(self, module: str, name: str) -> Any:
        """Return an object by its name."""
        found = super().find_class(module, name)
        return functools.partial(_environment, found) if name == "_rebuild_env" and _runtime is not None else found


def _environment(rebuild: Any, module: str, constants: list[Any], name: str) -> Any:
    """Return what a function looks up: its constants. Compiled code does not read the globals of its module."""
    return rebuild(module if module in sys.modules else __name__, constants, name)


_Base: Any = _NullCache or object


class _KernelCache(_Base):
    """The cache of a dispatcher: compiled code of one kernel in :mod:`anymetal.disk_cache`."""

    def __init__(self, function: Callable[..., Any], stamp: str) -> None:
        """``stamp`` changes with the source of the kernel."""
        code = function.__code__
        versions = numba.__version__, llvmlite.__version__, sys.implementation.cache_tag
        self._parts = *versions, function.__module__, code.co_qualname, code.co_firstlineno, stamp

    def _place(self, signature: Any, codegen: Any) -> tuple[Path | None, str, tuple[Any, ...]]:
        """Return the folder and the key of the code for the types of a signature, and these types."""
        arguments = tuple(getattr(signature, "args", signature))
        key = disk_cache.key(*self._parts, codegen.magic_tuple(), arguments)
        return disk_cache.private_folder("cpu", "mpsref"), key, arguments

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the result of a former compilation, or ``None``."""
        if _runtime is None:
            context.refresh()
        else:  # numba refreshes the context itself when it compiles
            _runtime.initialize(context)
        folder, key, arguments = self._place(signature, context.codegen())
        known = None if folder is None else disk_cache.load(folder, key, ".code")
        if folder is None or known is None:
            return None
        try:
            stored, result = _Unpickler(io.BytesIO(known.data)).load()
            return _rebuild(context, *result) if stored == arguments else None
        except Exception as error:  # whatever a pickle of the wrong objects raises
            disk_cache.drop(folder, key, error)
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep the result of a compilation."""
        folder, key, arguments = self._place(signature, result.library.codegen)
        if folder is None or folder in _unwritable or result.lifted or result.library.has_dynamic_globals:
            return
        data = _dumps((arguments, result._reduce()))
        try:
            disk_cache.store(folder, key, ".code", lambda path: path.write_bytes(data))
        except OSError as error:
            _unwritable.add(folder)
            disk_cache.warn_unwritable(folder, error)


_unwritable: set[Path] = set()


def keep_on_disk(kernel: Any, stamp: str) -> None:
    """Keep the code of a kernel for other processes; ``stamp`` changes with its source."""
    if None not in (_NullCache, _rebuild, _dumps) and kernel.py_func.__closure__ is None:
        kernel._cache = _KernelCache(kernel.py_func, stamp)
