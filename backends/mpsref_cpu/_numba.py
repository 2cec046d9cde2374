"""All that this backend uses of numba's private parts, and what takes their place in a release without them.

``CPUCodeLibrary.add_ir_module``, ``JITCodeLibrary``, ``Compiler.define_pipelines``, ``RETCODE_OK``, ``RETCODE_NONE``
    Add to the code of a kernel what packs its arguments for the threads of the spin pool, and calls it with them.
    Otherwise kernels run in the calling thread.
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
``CPUCodeLibrary._optimize_functions``
    Optimize a kernel once, with the functions that it calls. Otherwise numba optimizes it without them before.
``compiler.Flags``
    Compare the options of compilations by identity. Otherwise numba compares all of them at each call in a function.
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy.ma  # noqa: F401 - otherwise numba.typeof imports it without its lock, and a fork could interrupt that
from llvmlite import ir
from numba import types

from anymetal import disk_cache

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


_NullCache: Any = _find(
    "numba.core.caching:NullCache",
    "numba.core.compiler:CompileResult._reduce",
    "numba.core.codegen:CodeLibrary.has_dynamic_globals",
)
_rebuild = _find("numba.core.compiler:CompileResult._rebuild")
_dumps = _find("numba.core.serialize:dumps")
_runtime = _find("numba.core.runtime.nrt:rtsys")
_Library: Any = _find(
    "numba.core.codegen:JITCodeLibrary",
    "numba.core.codegen:CPUCodeLibrary._finalize_final_module",
    "numba.core.codegen:CPUCodeLibrary._optimize_functions",
)
_Compiler: Any = _find("numba.core.compiler:Compiler.define_pipelines") and sys.modules["numba.core.compiler"].Compiler
_OK = _find("numba.core.callconv:RETCODE_OK", "numba.core.codegen:CPUCodeLibrary.add_ir_module")
_Flags: Any = _find("numba.core.compiler:Flags")
_NONE = _find("numba.core.callconv:RETCODE_NONE", "numba.core.codegen:CodeLibrary.enable_object_caching")
compiler_lock: Any = _find("numba.core.compiler_lock:global_compiler_lock") or threading.RLock()
"""Held by the thread that compiles or loads a function."""


can_share_work = None not in (_Library, _Compiler, _OK, _NONE)
"""Whether threads other than the calling one can run kernels."""

PACK = -1 << 63
"""In place of the end of the rows: a kernel packs its arguments, and does nothing else."""

JOB = 1024
"""Number of 64-bit words of a job: the address of a function that unpacks the arguments, and these."""

I32, I64 = ir.IntType(32), ir.IntType(64)
CHUNK_TYPE = ir.FunctionType(I64, [I64, I64, I64])
"""``chunk(job, begin, end)``: call a kernel with the arguments of a job; return whether it raised an exception."""


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


_FlagsBase: Any = _Flags or object
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


class _Kernel(_LibraryBase):
    """The code of a function that Python calls; one of rows, ``kernel(begin, end, *arguments)``, also packs these."""

    types: tuple[Any, ...] = ()

    def __init__(self, *names: Any) -> None:
        """Keep the machine code for the cache."""
        super().__init__(*names)
        self.enable_object_caching()

    def _optimize_functions(self, module: Any) -> None:
        """Do nothing: the kernel is optimized with the functions that it calls."""

    def add_ir_module(self, module: Any) -> None:
        """Add the code of the function, before it is optimized, and that of its wrapper for Python."""
        if self.types[:2] == (types.int64, types.int64):
            for function in module.functions:
                if function.blocks and function.args and function.args[0].name == "retptr":
                    _pack(module, function, [is_owner for one in self.types[2:] for is_owner in _owners(one)])
        super().add_ir_module(module)


def _owners(kind: Any) -> Iterator[bool]:
    """Yield for each part of an argument whether it is one of the two that own the memory of an array."""
    parts: Any = kind if isinstance(kind, types.BaseTuple) else ()
    for one in parts:
        yield from _owners(one)
    if isinstance(kind, types.Array):
        yield from (True, True, *[False] * (3 + 2 * kind.ndim))
    elif parts is not kind:
        yield False


def _pack(module: Any, function: Any, owners: list[bool]) -> None:
    """Let a kernel that is called with the address of a job and :data:`PACK` fill the job.

    The caller keeps the arrays alive: a job has their memory without its owners, and a kernel counts no references.
    """
    _, _, begin, end, *passed = function.args
    if len(passed) != len(owners) or len(passed) >= JOB:
        raise TypeError(f"a kernel has {len(passed)} parts of arguments, not {len(owners)}, or {JOB} or more")
    layout = ir.LiteralStructType([I64, *[one.type for one in passed]]).as_pointer()
    chunk = ir.Function(module, CHUNK_TYPE, module.get_unique_name("chunk"))
    chunk.linkage = "internal"
    inside = ir.IRBuilder(chunk.append_basic_block())
    results = [inside.alloca(one.type.pointee) for one in function.args[:2]]
    job = inside.inttoptr(chunk.args[0], layout)
    unpacked = [inside.load(inside.gep(job, [I32(0), I32(1 + k)])) for k in range(len(passed))]
    status = inside.call(function, [*results, *chunk.args[1:], *unpacked], attrs=("noinline",))
    known = [inside.icmp_signed("!=", status, good) for good in (_OK, _NONE)]
    inside.ret(inside.zext(inside.and_(*known), I64))

    body, start, packing = function.blocks[0], function.append_basic_block("start"), function.append_basic_block("pack")
    function.blocks.insert(0, function.blocks.pop(-2))
    builder = ir.IRBuilder(start)
    for one in [one for one in body.instructions if one.opname == "alloca" and not one.operands]:
        body.instructions.remove(one)  # elsewhere it would stay in memory
        start.instructions.append(one)
    builder.position_at_end(start)
    builder.cbranch(builder.icmp_signed("==", end, I64(PACK)), packing, body)
    builder.position_at_end(packing)
    job = builder.inttoptr(begin, layout)
    values = [ir.Constant(one.type, None) if is_owner else one for one, is_owner in zip(passed, owners, strict=True)]
    for k, value in enumerate([builder.ptrtoint(chunk, I64), *values]):
        builder.store(value, builder.gep(job, [I32(0), I32(k)]))
    builder.ret(_OK)


class _Options(_FlagsBase):
    """The options of a compilation; each call in the function looks up its callee by them, and hashes them."""

    def copy(self) -> Any:
        """Return options that are the same object for all compilations with equal ones.

        Only these look up functions that are called. So these are the same whether a kernel calls or a part of it.
        """
        options = super().copy()
        options.release_gil, options.no_cpython_wrapper = False, True
        return _options.setdefault(options, _SameOptions(options))


class _SameOptions(_FlagsBase):
    """Options with a hash that is computed once."""

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        self._hash: int = super().__hash__()

    def __hash__(self) -> int:
        return self._hash

    def copy(self) -> Any:
        """Return options that may be changed."""
        return _Flags(self)


_options: dict[Any, Any] = {}


class _PartCompiler(_CompilerBase):
    """Compile a function for its callers."""

    library: Any = _Part

    def __init__(self, *arguments: Any) -> None:
        """``arguments`` are those of numba."""
        super().__init__(*arguments)
        if _Flags is not None:
            self.state.flags = _Options(self.state.flags)

    def define_pipelines(self) -> Any:
        """Choose the library of the code."""
        state = self.state
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.types = tuple(state.args)
        return super().define_pipelines()


class _KernelCompiler(_PartCompiler):
    """Compile a function for Python."""

    library = _Kernel


PART: dict[str, Any] = {"pipeline_class": _PartCompiler} if None not in (_Library, _Compiler) else {}
"""Options of ``numba.njit`` for the functions that kernels call."""

KERNEL: dict[str, Any] = {"pipeline_class": _KernelCompiler} if can_share_work else {}
"""Options of ``numba.njit`` for kernels."""


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
