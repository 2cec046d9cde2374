"""Python interface of the launcher library (``native/runtime.c``) and of the libraries of kernels."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import sys
import threading
from pathlib import Path
from typing import Any

from kernelcache.first_use import importing

from ..frontend import cache
from ..frontend.options import Options
from ..frontend.program import translated, undefined
from ..frontend.source import KernelSource, about, call
from ..frontend.toolchain import Toolchain
from .flags import HEADER_FLAGS, KERNEL_FLAGS, LAUNCHER_FLAGS, fingerprint, of_options
from .objects import check_loading

LAUNCHER = Path(__file__).parent / "native" / "runtime.c"

IDLE_BLOCKS, IDLE_BYTES = 32, 1 << 18  # maximum number of free blocks of a size, and maximum size of a free block


class BufferRecord(ctypes.Structure):
    """``mpsref_buffer`` of abi.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("copy", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("writable", ctypes.c_uint32),
    )


class LaunchRecord(ctypes.Structure):
    """``mpsref_launch`` of abi.h."""

    _fields_ = (
        ("buffers", ctypes.POINTER(BufferRecord)),
        ("run_group", ctypes.c_void_p),
        ("run_thread", ctypes.c_void_p),
        ("local", ctypes.c_void_p),
        ("local_bytes", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("grid", ctypes.c_uint64 * 3),
        ("width", ctypes.c_uint32 * 3),
        ("groups", ctypes.c_uint32 * 3),
        ("buffer_count", ctypes.c_uint32),
        ("check_order", ctypes.c_uint32),
    )


class FaultReport(ctypes.Structure):
    """``mpsref_report`` of abi.h."""

    _fields_ = (
        ("offset", ctypes.c_int64),
        ("kind", ctypes.c_uint32),
        ("buffer", ctypes.c_int32),
        ("group", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("line", ctypes.c_uint32),
        ("column", ctypes.c_uint32),
        ("others", ctypes.c_uint32),
        ("other_line", ctypes.c_uint32),
    )


class NativeLauncher:
    """The functions of the launcher library."""

    def __init__(self, path: Path) -> None:
        """Load the library."""
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # musl has no separate libm
                ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)  # functions that kernels call, see flags.LIBRARIES
        library = ctypes.CDLL(str(path))
        self.run = library.mpsref_run
        self.run.argtypes = (ctypes.POINTER(LaunchRecord), ctypes.POINTER(FaultReport))
        self.run.restype = None
        self._map = library.mpsref_map
        self._map.argtypes = (ctypes.c_uint64,)
        self._map.restype = ctypes.c_void_p
        self._unmap = library.mpsref_unmap
        self._unmap.argtypes = (ctypes.c_void_p, ctypes.c_uint64)
        self._unmap.restype = None
        self._place = library.mpsref_place
        self._place.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
        self._place.restype = ctypes.c_void_p
        self._idle: dict[int, list[int]] = {}
        self.sync_functions = ctypes.addressof(ctypes.c_char.in_dll(library, "mpsref_sync_functions"))

    def allocate(self, nbytes: int) -> tuple[int, int]:
        """Allocate zeroed guarded memory; return the address of its pages, for ``release``, and its own address.

        Raises MemoryError.
        """
        pages, is_zero = self.take(nbytes)
        address = self._place(pages, -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE, nbytes)
        if not is_zero:
            ctypes.memset(address, 0, nbytes)
        return pages, address

    def take(self, nbytes: int) -> tuple[int, bool]:
        """Return the address of guarded pages, for ``release``, and whether they are zero; raise MemoryError.

        Small blocks are reused, because mapping pages takes longer than a small launch.
        """
        accessible = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        with contextlib.suppress(KeyError, IndexError):
            return self._idle[accessible].pop(), False
        pages = self._map(accessible)
        if not pages:
            raise MemoryError(f"no memory for a buffer of {nbytes} bytes")
        return pages, True

    def release(self, pages: int, nbytes: int) -> None:
        """Free pages."""
        accessible = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        idle = self._idle.setdefault(accessible, [])
        if len(idle) < IDLE_BLOCKS and accessible <= IDLE_BYTES:
            idle.append(pages)
        else:
            self._unmap(pages, accessible)


_loading = threading.RLock()  # not held during a fork, which waits until no other thread is importing


def _renew_locks() -> None:
    """Replace the locks of launches in a child of fork: one held by another thread would stay locked."""
    for library in _libraries.values():
        library.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


@functools.cache
def launcher(toolchain: Toolchain) -> NativeLauncher:
    """Return the launcher library, compiled if it is not in the cache."""

    def build(output: Path) -> None:
        toolchain.make([*toolchain.driver, *LAUNCHER_FLAGS, str(LAUNCHER), "-o", str(output)])

    with importing, _loading:
        return NativeLauncher(cache.fetch(cache.key("launcher", fingerprint(toolchain)), build).file)


class Library:
    """A compiled source: one shared library with an entry point for each kernel.

    ``lock`` is held while a kernel with threadgroup memory runs, because that memory is static in the library.
    """

    def __init__(self, path: Path, about: list[dict[str, Any]], sync_functions: int) -> None:
        """Load the library; ``about`` are the results of ``KernelSource.describe`` of its kernels."""
        self.kernels = {kernel["name"]: (number, kernel) for number, kernel in enumerate(about)}
        self.lock = threading.Lock()
        self._library = ctypes.CDLL(str(path))
        ctypes.c_void_p.in_dll(self._library, "mpsref_sync").value = sync_functions

    def address(self, name: str) -> int:
        """Return the address of a function of the library."""
        return ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value or 0

    def numbers(self, name: str, count: int) -> list[int]:
        """Return the elements of an array of ``uint32_t``."""
        return list((ctypes.c_uint32 * count).in_dll(self._library, name))

    def addresses(self, name: str, count: int) -> list[int]:
        """Return the elements of an array of pointers."""
        return list((ctypes.c_uint64 * count).in_dll(self._library, name))


_libraries: dict[str, Library] = {}


def compile_source(toolchain: Toolchain, source: str, options: Options) -> Library:
    """Return the library of an MSL source: from memory, from the disk cache, or from the compiler."""
    flags = of_options(options)

    def build(output: Path) -> list[dict[str, Any]]:
        cpp, found = translated(toolchain, source, options, entry)
        file = output.with_suffix(".cpp")
        file.write_text(cpp)
        headers = toolchain.parsed_headers((*toolchain.driver, *HEADER_FLAGS, *flags), fingerprint(toolchain))
        command = (*toolchain.driver, *KERNEL_FLAGS, *flags, "-include-pch", str(headers))
        toolchain.make([*command, str(file), "-o", str(output)])
        for symbol in check_loading(output.read_bytes()):
            if not hasattr(ctypes.CDLL(None), symbol):
                raise undefined(symbol, cpp)
        return [kernel.describe() for kernel in found]

    key = cache.key(fingerprint(toolchain), *flags, *options.texts(source))
    with importing, _loading:
        if key not in _libraries:
            runtime = launcher(toolchain)
            compiled = cache.fetch(key, build)
            _libraries[key] = Library(compiled.file, compiled.about, runtime.sync_functions)
        return _libraries[key]


def entry(number: int, kernel: KernelSource) -> str:
    """Return the C++ of the entry point of a kernel, and of its description.

    ``mpsref_group_N`` runs all threads of a threadgroup, ``mpsref_thread_N`` one thread of a kernel with barriers.
    """
    form = "THREAD" if kernel.synchronizes else "GROUP"
    lines = [f"MPSREF_{form}_ENTRY({number}, {call(kernel)})", about(number, kernel)]
    if kernel.has_threadgroup_memory:
        lines.append(f"MPSREF_LOCAL_EXTENT({number})")
    return "\n".join(lines)
