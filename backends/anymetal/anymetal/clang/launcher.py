"""Python interface of the launcher library (``native/runtime.c``) and of the libraries of kernels."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..fork_safe import importing
from ..frontend import cache
from ..frontend.kernels import Kernel
from ..frontend.options import Options
from ..frontend.program import Constants, Program, checked
from ..frontend.rewrites import LARGE_MARK
from ..frontend.signature import Signature, find_kernel
from ..frontend.toolchain import Toolchain, find
from ..interface import LaunchError
from . import findings
from .findings import MOST_FINDINGS, ChecksRecord, Finding, FindingRecord, Reader, Site, VariableRecord, merged
from .flags import (
    APART_FLAGS,
    IS_INLINED,
    LAUNCHER,
    LAUNCHER_FLAGS,
    base_command,
    compile_command,
    fingerprint,
    inline_command,
    inlined_command,
    link_command,
    of_options,
    unavailable,
)
from .lines import Place, image, lines_of, unreached, unset
from .objects import check_loading, undefined


class BufferRecord(ctypes.Structure):
    """``anymetal_buffer`` of abi.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("copy", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("written", ctypes.c_uint64),
        ("covered", ctypes.c_uint64),
        ("writable", ctypes.c_uint32),
        ("undefined", ctypes.c_uint32),
        ("unit", ctypes.c_uint32),
        ("file", ctypes.c_int32),
        ("is_read", ctypes.c_uint32),
        ("is_texture", ctypes.c_uint32),
        ("unread", ctypes.c_uint64),
    )


class LinkRecord(ctypes.Structure):
    """``anymetal_link`` of abi.h."""

    _fields_ = (
        ("offset", ctypes.c_uint64),
        ("at", ctypes.c_uint64),
        ("buffer", ctypes.c_uint32),
        ("target", ctypes.c_uint32),
    )


class LocalRecord(ctypes.Structure):
    """``anymetal_local_memory`` of abi.h."""

    _fields_ = (("pages", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("unread", ctypes.c_uint64))


class LaunchRecord(ctypes.Structure):
    """``anymetal_launch`` of abi.h."""

    _fields_ = (
        ("buffers", ctypes.POINTER(BufferRecord)),
        ("locals", ctypes.POINTER(LocalRecord)),
        ("links", ctypes.POINTER(LinkRecord)),
        ("checks", ctypes.POINTER(ChecksRecord)),
        ("run_thread", ctypes.c_void_p),
        ("local", ctypes.c_void_p),
        ("local_bytes", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("nanoseconds", ctypes.c_uint64),
        ("grid", ctypes.c_uint64 * 3),
        ("width", ctypes.c_uint32 * 3),
        ("groups", ctypes.c_uint32 * 3),
        ("buffer_count", ctypes.c_uint32),
        ("local_count", ctypes.c_uint32),
        ("link_count", ctypes.c_uint32),
        ("check_order", ctypes.c_uint32),
        ("synchronizes", ctypes.c_uint32),
        ("flush_denormals", ctypes.c_uint32),
        ("has_atomics", ctypes.c_uint32),
        ("workers", ctypes.c_uint32),
        ("spreads_at_once", ctypes.c_uint32),
    )


class FaultReport(ctypes.Structure):
    """``anymetal_report`` of abi.h."""

    _fields_ = (
        ("offset", ctypes.c_int64),
        ("kind", ctypes.c_uint32),
        ("buffer", ctypes.c_int32),
        ("group", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("others", ctypes.c_uint32),
        ("at", Site),
        ("other", Site),
        ("trace", ctypes.c_uint64 * 8),
        ("workers", ctypes.c_uint32),
        ("schedule", ctypes.c_uint32),
    )


class NativeLauncher:
    """The functions of the launcher library."""

    # Memory is released at the end of the process, too, when the names of modules are gone.
    _page, _idle_blocks, _idle_bytes = mmap.PAGESIZE, 32, 1 << 18  # free blocks of a size, and size of a free block

    def __init__(self, path: Path) -> None:
        """Load the library so that kernels find its functions; raise LaunchError if they find those of another."""
        if sys.platform == "linux":
            with contextlib.suppress(OSError):  # musl has no separate libm
                ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)  # functions that kernels call, see flags.LIBRARIES
        self.path = path
        library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        found, own = (ctypes.cast(one.anymetal_barrier, ctypes.c_void_p).value for one in (ctypes.CDLL(None), library))
        if found != own:
            raise LaunchError(
                "another installation of anymetal runs kernels in this process: use one installation, or two processes"
            )
        self.run = library.anymetal_run
        self.run.argtypes = (ctypes.POINTER(LaunchRecord), ctypes.POINTER(FaultReport))
        self.run.restype = None
        library.anymetal_arena_choose.argtypes = ()
        library.anymetal_arena_choose.restype = ctypes.c_uint64
        self.arena_bytes = library.anymetal_arena_choose()
        """Address space that a launch with checks reserves; 0 if the process has too little."""
        self._map = library.anymetal_map
        self._map.argtypes = (ctypes.c_uint64,)
        self._map.restype = ctypes.c_void_p
        self._unmap = library.anymetal_unmap
        self._unmap.argtypes = (ctypes.c_void_p, ctypes.c_uint64)
        self._unmap.restype = None
        self._place = library.anymetal_place
        self._place.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
        self._place.restype = ctypes.c_void_p
        self._idle: dict[int, list[int]] = {}

    def allocate(self, nbytes: int, *, is_zero: bool) -> tuple[int, int]:
        """Allocate guarded memory; return the address of its pages, for ``release``, and its own address.

        With ``is_zero`` its bytes are zero. Raises MemoryError.
        """
        pages, was_zero = self.take(nbytes)
        address = self._place(pages, -(-nbytes // self._page) * self._page, nbytes)
        if is_zero and not was_zero:
            ctypes.memset(address, 0, nbytes)
        return pages, address

    def take(self, nbytes: int) -> tuple[int, bool]:
        """Return the address of guarded pages, for ``release``, and whether they are zero; raise MemoryError.

        Small blocks are reused, because mapping pages takes longer than a small launch.
        """
        accessible = -(-nbytes // self._page) * self._page
        try:
            return self._idle[accessible].pop(), False
        except (KeyError, IndexError):
            pages = self._map(accessible)
        if not pages:
            raise MemoryError(f"no memory for a buffer of {nbytes} bytes")
        return pages, True

    def release(self, pages: int, nbytes: int) -> None:
        """Free pages."""
        accessible = -(-nbytes // self._page) * self._page
        idle = self._idle.setdefault(accessible, [])
        if len(idle) < self._idle_blocks and accessible <= self._idle_bytes:
            idle.append(pages)
        else:
            self._unmap(pages, accessible)


_loading = threading.RLock()  # not held during a fork, which waits until no other thread is importing


def _renew_locks() -> None:
    """Replace the locks of launches in a child of fork: one held by another thread would stay locked."""
    for source in _sources.values():
        for library in source.libraries.values():
            library.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def launcher(toolchain: Toolchain, options: Options | None = None) -> NativeLauncher:
    """Return the launcher library of this process, compiled at first use if it is not in the cache.

    What kernels with ``options`` need first is compiled at the same time.
    """

    def build(output: Path) -> None:
        from concurrent.futures import ThreadPoolExecutor  # its import takes longer than a launcher from the cache

        with ThreadPoolExecutor(1) as beside:
            prepared = beside.submit(_prepare, toolchain, options) if options else None
            toolchain.make([*toolchain.driver, *LAUNCHER_FLAGS, str(LAUNCHER), "-o", str(output)])
        if prepared:
            prepared.result()

    with importing, _loading:
        if not _launchers:
            _launchers.append(NativeLauncher(cache.fetch(cache.key("launcher", fingerprint(toolchain)), build).file))
        return _launchers[0]


_launchers: list[NativeLauncher] = []
"""None or one: all kernels of a process call the same functions."""


class Library:
    """A compiled kernel: a shared library with one entry point.

    ``lock`` is held while a kernel with static threadgroup memory runs, because that is memory of the library.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        """Load the library; ``about`` is the result of ``build_kernel``."""
        self.path, self.image = path, about["image"]
        self.lock = threading.Lock()
        self._library = ctypes.CDLL(str(path))
        self.entry = ctypes.cast(self._library.anymetal_thread, ctypes.c_void_p).value
        self.synchronizes, self.has_atomics = about["synchronizes"], about["atomics"]
        self.local, end = (ctypes.c_uint64 * 2).in_dll(self._library, "anymetal_local")
        self.local_bytes = end - self.local
        self.variable_bytes = sum(row[1] for row in self.image["variables"]) if self.image else self.local_bytes
        """Those of ``local_bytes`` that variables take."""
        first, end = (ctypes.c_uint64 * 2).in_dll(self._library, "anymetal_named")
        self.threads = ctypes.c_uint32.from_address(first).value if end > first else None
        """The attribute ``max_total_threads_per_threadgroup``."""

    def numbers(self, name: str, count: int) -> list[int]:
        """Return the first elements of an array of ``uint32_t``."""
        return list((ctypes.c_uint32 * count).in_dll(self._library, name))


class Checks:
    """What the checks of launches need of a kernel."""

    def __init__(self, library: Library, program: Program) -> None:
        """Take what :func:`.findings.image` found."""
        self.files, self._program, self._library = program.files, program, library
        rows = library.image["variables"]
        base = (library.entry or 0) - library.image["entry"]
        flags, count, blocks = library.image["blocks"]
        self._flags = (ctypes.c_uint8 * count).from_address(base + flags)
        places = (ctypes.c_uint64 * (2 * count)).from_address(base + blocks)[::2]
        self._blocks = tuple(place - base for place in places)
        self._variables = (VariableRecord * max(len(rows), 1))(*(VariableRecord(at, size) for at, size, _ in rows))

    def record(self, trials: int, schedule: int, counts_unread: bool) -> ChecksRecord:
        """Return the record of a launch that tries so many interleavings, or the only one with a number."""
        image = self._library.image
        for variable in self._variables:
            variable.unread = 0
        return ChecksRecord(
            findings=(FindingRecord * MOST_FINDINGS)(),
            variables=self._variables,
            code=(self._library.entry or 0) - image["entry"],
            reached=ctypes.addressof(self._flags),
            block_count=len(self._flags),
            code_bytes=image["bytes"],
            variable_count=len(image["variables"]),
            trials=trials,
            counts_unread=counts_unread,
            schedule=schedule,
        )

    def unread(self, signature: Signature, locals_: Sequence[LocalRecord]) -> dict[int | str, int]:
        """Return the bytes of threadgroup memory that were written last and not read, by name."""
        names = [name for *_, name in self._library.image["variables"]]
        return {name: one.unread for name, one in zip(names, self._variables, strict=False)} | {
            re.findall(r"\w+", re.sub(r"\[.*", "", known.text))[-1]: locals_[i].unread
            for i, known in signature.locals.items()
        }

    def place(self, code: int) -> Place | None:
        """Return the place of a return address, an offset in the code; None for 0."""
        return lines_of(self._library.path).place(code) if code else None

    def unset(self, levels: Mapping[str, str]) -> list[Finding]:
        """Return what the compiler found without a launch."""
        return [findings.unset(row, levels) for row in self._library.image["unset"]]

    def begin(self) -> None:
        """Forget which blocks ran."""
        ctypes.memset(self._flags, 0, len(self._flags))

    def end(self) -> Callable[[], tuple[Place, ...]]:
        """Return a function of the lines that no thread has reached since :meth:`begin`."""
        return functools.partial(unreached, self._library.path, self._blocks, bytes(self._flags))

    def read(
        self, record: ChecksRecord, signature: Signature, bindings: Sequence[tuple[int, int]],
        local: Mapping[int, int], levels: Mapping[str, str], seed: int,
    ) -> list[Finding]:  # fmt: skip
        """Return the findings of a launch; ``bindings`` are the bytes of the buffers and the offsets in them."""
        reader = Reader(
            signature, self._library.image["variables"], self._library.path, [size for size, _ in bindings],
            [offset for _, offset in bindings], local, levels, lambda *line: self._program.places.rows(*line),
            seed,
        )  # fmt: skip
        found = [reader.read(one) for one in record.findings[: record.count]]
        return merged([*found, *self.unset(levels)])


WATCHED = "#undef ANYMETAL_UNSET_ONE\n#define ANYMETAL_UNSET_ONE ANYMETAL_UNSET\n"
"""What precedes the C++ of a kernel with numbers of which the compiler does not know whether they are set."""
HIDDEN = '_Pragma("GCC visibility push(hidden)")\n'
"""What precedes that C++: names of a source are its own, whatever the process has under the same name."""
SYNCHRONIZING = frozenset(("anymetal_barrier", "anymetal_exchange_values"))
"""Functions of the launcher for which a thread has to wait."""


def _inlined(toolchain: Toolchain) -> Path:
    """Return the bitcode of what kernels with checks have inlined."""

    def build(output: Path) -> None:
        toolchain.make([*inlined_command(toolchain), "-o", str(output)])

    return cache.fetch(cache.key("inlined", fingerprint(toolchain)), build, ".bc").file


def prepare(options: Options) -> None:
    """Compile the launcher, and at the same time what the first kernel with these options needs beside it."""
    toolchain = find()
    if toolchain and not unavailable():
        launcher(toolchain, options)


def _headers(toolchain: Toolchain, options: Options) -> Path:
    """Return the precompiled headers of kernels."""
    return toolchain.parsed_headers(base_command(toolchain, options), fingerprint(toolchain))


def _prepare(toolchain: Toolchain, options: Options) -> None:
    """Compile what kernels include or have inlined."""
    with importing:
        toolchain.strict_headers(options)
        _headers(toolchain, options)
        if options.checks and IS_INLINED:
            _inlined(toolchain)


FUNCTION = re.compile(r"^define [^\n]* (#\d+) [^\n]*\n(?:(?!\}).*\n)*", re.M)
ODD_ACCESS = re.compile(
    r"^  (?:%\S+ = (?P<read>load)|store) (?:volatile )?<(?P<count>\d+) x (?:i(?P<bits>\d+)|(?P<type>\w+))>"
    r"(?: [^,\n]+)?, ptr (?P<address>getelementptr [^()]*\([^()]*\)|[^, \n]+),[^\n]*?(?P<line>, !dbg !\d+)",
    re.M,
)
FLOATS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}


def with_odd_accesses(text: str) -> str:
    """Return LLVM IR with calls before the accesses that the thread sanitizer leaves out: vectors of 3 or 32 bytes."""

    def told(access: re.Match[str]) -> str:
        size = int(access["count"]) * int(access["bits"] or FLOATS[access["type"]])
        if size % 8 or size in (8, 16, 32, 64, 128):
            return access[0]
        does = "read" if access["read"] else "write"
        call = f"  call void @anymetal_{does}_range(ptr {access['address']}, i64 {size // 8}){access['line']}"
        return f"{call}\n{access[0]}"

    checked = set(re.findall(r"^attributes (#\d+) = .*\bsanitize_thread\b", text, re.M))
    found = FUNCTION.sub(lambda one: ODD_ACCESS.sub(told, one[0]) if one[1] in checked else one[0], text)
    calls = [name for name in ("read", "write") if f"@anymetal_{name}_range" in found]
    return "".join((found, *(f"\ndeclare void @anymetal_{name}_range(ptr, i64)\n" for name in calls)))


KEPT = re.compile(r"call void @anymetal_life\(ptr [^%,]*(%[\w.]+|%\"[^\"]+\"),")
LIFETIME = re.compile(
    r"call void @llvm\.lifetime\.(start|end)\.p0\((?:i64 [^,]*, )?ptr [^%]*(%[\w.]+|%\"[^\"]+\")\)(?: #\d+)?"
)


def with_lifetimes(text: str) -> str:
    """Return LLVM IR that tells when the block of a variable begins and ends, if the kernel keeps its address.

    Without the markers of the compiler no other variable has its memory.
    """
    start = text.find(" @anymetal_thread(")
    entry = text[start : text.find("\n}\n", start)]
    if not (kept := set(KEPT.findall(entry))):
        return text
    told = LIFETIME.sub(
        lambda one: (
            f"call void @anymetal_lives(ptr {one[2]}, i32 {int(one[1] == 'start')})" if one[2] in kept else one[0]
        ),
        entry,
    )
    return f"{text.replace(entry, told, 1)}\ndeclare void @anymetal_lives(ptr, i32)\n"


def build_kernel(
    toolchain: Toolchain, options: Options, program: Program, kernel: Kernel, values: Mapping[str, str], output: Path,
    *, is_apart: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Write the library of a kernel; return whether it synchronizes threads, and what checks need of it.

    With ``is_apart`` accesses of several places stay apart.
    """
    cpp = program.cpp(toolchain, options, kernel, values)
    options = program.options(options)
    headers = _headers(toolchain, options)
    file, compiled = output.with_suffix(".cpp"), output.with_suffix(".o")
    file.write_text(f"{HIDDEN}{cpp}")
    is_large = LARGE_MARK in cpp  # to inline what reads call would take most of the time
    inlined = _inlined(toolchain) if options.checks and IS_INLINED and not is_large else None
    first = output.with_suffix(".ll") if options.checks else compiled
    apart = APART_FLAGS if is_apart else ()
    command = [*compile_command(toolchain, options, headers, "-emit-llvm" if options.checks else "-emit-obj"), *apart]

    def compiled_unset() -> list[list[Any]]:
        return unset(program.compile(toolchain, [*command, str(file), "-o", str(first)], values))

    found = compiled_unset()
    if options.checks and not all(is_sure for *_, is_sure in found):  # a launch tells
        file.write_text(f"{WATCHED}{HIDDEN}{cpp}")
        found = [one for one in found if one[-1]] + [one for one in compiled_unset() if not one[-1]]
    if options.checks:
        first.write_text(with_lifetimes(with_odd_accesses(first.read_text())))
        toolchain.make(
            [*inline_command(toolchain, inlined), *apart, *["-O0"] * is_large, str(first), "-o", str(compiled)]
        )
    for symbol in undefined(compiled.read_bytes()):
        raise program.undefined(symbol, values)
    toolchain.make([*link_command(toolchain), str(compiled), "-o", str(output)])
    needed = check_loading(output.read_bytes(), is_checked=options.checks)
    for symbol in needed:
        if not hasattr(ctypes.CDLL(None), symbol):
            raise program.undefined(symbol, values)
    about = image(output) | {"unset": found} if options.checks else None
    synchronizes = not SYNCHRONIZING.isdisjoint(needed)
    return {"synchronizes": synchronizes, "atomics": "atomic" in program.text, "image": about}


class Source:
    """A checked source. Each of its kernels is a library, compiled when it is first used; the only one at once."""

    def __init__(self, toolchain: Toolchain, options: Options, program: Program) -> None:
        """Hold a source."""
        self.program, self.libraries = program, dict[tuple[Any, ...], Library]()
        self._toolchain, self._options = toolchain, options
        if len(program.kernels) == 1 and not program.constants:
            self.library(next(iter(program.kernels)), {})

    def library(self, name: str, constants: Constants, *, is_apart: bool = False) -> Library:
        """Return the library of a kernel: from memory, from the disk cache, or from the compiler."""
        program, values = self.program, self.program.values(constants)
        kernel = find_kernel(name, program.kernels)

        def build(output: Path) -> dict[str, Any]:
            return build_kernel(self._toolchain, self._options, program, kernel, values, output, is_apart=is_apart)

        key = name, is_apart, *sorted(values.items())
        with importing, _loading:
            if key not in self.libraries:
                launcher(self._toolchain)
                of_toolchain = fingerprint(self._toolchain), *of_options(self._options)
                compiled = cache.fetch(cache.key("kernel", *of_toolchain, program.text, *key), build)
                self.libraries[key] = Library(compiled.file, compiled.about)
            return self.libraries[key]


_sources: dict[tuple[Options, tuple[str, ...]], Source] = {}


def compile_source(toolchain: Toolchain, source: str, options: Options) -> Source:
    """Return an MSL source: from memory, from the disk cache, or from the front end; raise CompileError."""
    key = options, options.texts(source)
    with importing, _loading:
        if key not in _sources:
            _sources[key] = Source(toolchain, options, checked(toolchain, source, options, is_compiled=True))
        return _sources[key]
