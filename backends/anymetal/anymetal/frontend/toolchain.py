"""Search and execution of clang.

The search order is: the executable in ``ANYMETAL_CLANG``, the wheel ``ziglang`` (clang with a linker and the headers of
the C library), ``clang`` on the ``PATH``.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..environment import variable
from ..fork_safe import importing
from . import cache
from .lexer import has_named_values
from .options import LIMITS, Options, limit

FRONTEND = Path(__file__).parent
SHIM = FRONTEND / "shim"
"""The headers of the Metal standard library in C++."""
LIBRARY_HEADER = SHIM / "anymetal" / "library.h"

# The only pass that sees the macros of a source, with the same result on all machines.
PREPROCESS_FLAGS = (
    *("-cc1", "-E", "-triple", "spir64-unknown-unknown", "-x", "c++", "-std=c++17", "-w"),
    *("-isystem", str(SHIM / "metal")),
)
PRAGMA_MACROS = "-fms-extensions"
"""Expands macros in pragmas, as clang does where it compiles; it allows more, and a source passes without it first."""
EXPANDED_FLAGS = (
    *("-undef", "-UNDEBUG", "-U__GLIBC_MINOR__", "-U__CUDA__", "-U__ENDIAN_LITTLE__"),
    *("-UCL_VERSION_1_0", "-UCL_VERSION_1_1", "-UCL_VERSION_1_2", "-UCL_VERSION_2_0", "-UCL_VERSION_3_0"),
    *("-U__OPENCL_CPP_VERSION__", "-U__CL_CPP_VERSION_1_0__", "-U__CL_CPP_VERSION_2021__"),
    "-U__STDCPP_DEFAULT_NEW_ALIGNMENT__",
)
"""Flags of the passes that read preprocessed text, in which the macros of no target are left."""


# SYCL's device mode keeps address spaces as types and emits what an entry point reaches.
RUNNING_FLAGS = (
    *("-x", "c++", "-std=c++17", "-fsycl-is-device", "-fdeclspec", "-ferror-limit", "20"),
    *("-Wno-everything", "-Wno-c++11-narrowing", "-Wno-reserved-user-defined-literal", "-Werror=global-constructors"),
    *("-nostdsysteminc", "-nobuiltininc", "-fno-rtti", "-fno-threadsafe-statics", "-fno-finite-loops"),
    *(*EXPANDED_FLAGS, "-USYCL_LANGUAGE_VERSION"),
)
"""Flags of the passes that compile what :mod:`.rewrites` makes of MSL."""
PARSING_FLAGS = (
    *("-cc1", "-triple", "x86_64-unknown-linux-gnu", "-aux-triple", "x86_64-unknown-linux-gnu", *RUNNING_FLAGS),
)

# C++ for OpenCL has the address spaces and most of the restrictions of MSL.
STRICT_FLAGS = (
    *("-cc1", "-triple", "spir64-unknown-unknown", "-x", "clcpp", "-cl-std=clc++2021"),
    *("-fno-gnu-inline-asm", "-w", "-Wno-c++11-narrowing", "-Wno-elaborated-enum-base"),
    *("-DANYMETAL_STRICT", *EXPANDED_FLAGS, "-isystem", str(SHIM / "metal")),
)
# Instances of templates that the headers use are made once, not at the end of each source.
PRECOMPILE_FLAGS = ("-emit-pch", "-fno-pch-timestamp", "-fpch-instantiate-templates")
STRICT_EXTENSIONS = "-cl-ext=-all,+cl_khr_fp16,+__opencl_c_generic_address_space"
FUNCTION_POINTERS = ",+__cl_clang_function_pointers"


def strict_flags(options: Options) -> tuple[str, ...]:
    """Return the flags of the strict pass."""
    extensions = STRICT_EXTENSIONS + (FUNCTION_POINTERS if options.number >= 310 else "")
    return *STRICT_FLAGS, extensions, *options.definitions


PREPROCESSING = {"ANYMETAL_COMPILE_SECONDS": 5, "ANYMETAL_COMPILE_MEMORY": 256}
"""What the limits are at most for the preprocessor, which macros can keep busy without end."""

LARGEST_TEXT, LARGEST_FILE = 4, 64
"""MiB of a source after the preprocessor, and of other files."""

# Limits of the child alone. One that cannot be set is lower already, or unknown to macOS.
LIMITED = """{ ulimit -c 0; ulimit -t "$1"; ulimit -v "$2"; ulimit -f "$3"; } 2>/dev/null; shift 3; exec "$@\""""
EXHAUSTED = re.compile(r"^(?:[\w.]+: )?error: .*(?:out ?of ?memory|file too large)", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True)
class Toolchain:
    """A clang: the commands of its driver and its front end, and its identification."""

    name: str
    driver: tuple[str, ...]
    front: tuple[str, ...]
    version: str = ""
    """Identifies the clang if it is not empty; otherwise its path and its modification time do."""

    def fingerprint(self, *flags: object, runtime: Path | None = None) -> str:
        """Return a hash of the compiler, the front end, ``flags`` and the files in the folder ``runtime``."""
        return _fingerprint(self, flags, runtime)

    def make(self, command: Sequence[str]) -> str:
        """Run a command that writes a file, and return its output; raise BuildError with it if the command fails."""

        def run(variables: Mapping[str, str]) -> tuple[int, str]:
            status, output, errors = self._run(command, variables=variables)
            return status, output + errors

        status, text = cache.with_scratch(run)
        if status != 0:
            raise cache.BuildError(f"{self.name} failed with status {status}:\n{text}")
        return text

    def parsed_headers(self, command: tuple[str, ...], *key: str) -> Path:
        """Return the headers of the shim precompiled for sources that ``command`` reads, from the cache or from clang.

        Compiling a source takes a tenth of the time of parsing the headers. A precompiled header contains the paths of
        the headers, so each installation has its own. It is valid while the text of the headers is unchanged (see
        ``fingerprint``), independent of their modification times.
        """
        command = *command, *PRECOMPILE_FLAGS, str(LIBRARY_HEADER)

        def build(output: Path) -> None:
            self.make([*command, "-o", str(output)])

        return cache.fetch(cache.key("headers", *command, *key), build, ".pch").file

    def preprocess(self, source: str, options: Options) -> tuple[int, str, str]:
        """Expand the macros of a source, without the headers of Metal; return the status, the text and the errors."""
        alone = headers_alone(files=options.files(source), include=options.include)
        include = *alone, *options.definitions, *options.macros, *options.folders
        command = [*self.front, *PREPROCESS_FLAGS, *include, "-"]
        try:
            found = self._run(command, source, LARGEST_TEXT, most=PREPROCESSING)
            if found[0] == 0 and has_named_values(found[1]):
                return self._run([*command, PRAGMA_MACROS], source, LARGEST_TEXT, most=PREPROCESSING)
            return found
        except cache.BuildError as error:
            raise cache.BuildError(f"a macro expands to too much text, or the source has too much: {error}") from None

    def check(self, text: str, options: Options) -> str:
        """Parse a preprocessed source after the headers in the strict pass; return all diagnostics if it fails."""
        return self._parse(self._strict(options), text, "-ferror-limit", "0")

    def strict_headers(self, options: Options) -> Path:
        """Return the precompiled headers of the strict pass."""
        return self._headers(self._strict(options))

    def _strict(self, options: Options) -> tuple[str, ...]:
        return *self.front, *strict_flags(options)

    def parse(self, text: str, options: Options) -> str:
        """Parse C++ of the running pass, for any processor; return the diagnostics if it fails."""
        return self._parse((*self.front, *PARSING_FLAGS, *options.definitions), text)

    def _headers(self, command: tuple[str, ...]) -> Path:
        return self.parsed_headers(command, self.fingerprint())

    def _parse(self, command: tuple[str, ...], text: str, *more: str) -> str:
        parsed = self._headers(command)
        alone = headers_alone(parsed)
        status, output, errors = self._run(
            [*command, *more, "-fsyntax-only", *alone, "-include-pch", str(parsed), "-"], text
        )
        return (output + errors or f"error: {self.name} failed with status {status} and no message") if status else ""

    def _run(
        self,
        command: Sequence[str],
        text: str = "",
        largest: int = LARGEST_FILE,
        variables: Mapping[str, str] | None = None,
        most: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[int, str, str]:
        """Run a command on a text within limits; return its status and what it wrote to stdout and stderr."""
        environment = {**os.environ, **(variables or {})}
        seconds, memory = (min(limit(name), most.get(name, limit(name))) for name in LIMITS)
        stacks = 32 * (os.cpu_count() or 1)  # MiB of address space for the threads of zig and of the linker
        limits = map(str, (seconds, (memory + stacks) << 10, largest << 11))
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:  # the limit of files holds
            command = ["/bin/sh", "-c", LIMITED, "sh", *limits, *command]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=errors, env=environment) as one:
                ender = threading.Timer(10 * seconds, one.kill)  # waiting with a timeout polls, up to 50 ms late
                ender.start()
                try:
                    one.communicate(text.encode(errors="replace"))
                finally:
                    ender.cancel()
                    one.kill()  # after an interrupt
            status = one.returncode
            output.seek(0)
            errors.seek(0)
            written, message = (file.read().decode(errors="replace") for file in (output, errors))
        if status < 0 or status >= 128 or (status and EXHAUSTED.search(message)):
            raise cache.BuildError(
                f"{self.name} stopped with status {status}. A compilation may take {seconds} seconds of processor time "
                f"(ANYMETAL_COMPILE_SECONDS), {memory} MiB of memory (ANYMETAL_COMPILE_MEMORY) and write {largest} "
                f"MiB: simplify the source{'' if most else ', or set these variables to larger numbers'}\n"
                f"{message[-500:]}"
            )
        return status, written, message


def headers_alone(
    *paths: Path, files: Mapping[Path, str] | None = None, include: Iterable[Path] = ()
) -> tuple[str, str]:
    """Return the option that limits the files that clang finds: the headers of the shim, ``paths``, and ``files``.

    The folders ``include`` exist, too, so that a name may lead out of one into another.
    """
    folders: dict[Path, list[dict[str, Any]]] = {folder: [] for folder in include}
    for path in [*sorted(path for path in SHIM.rglob("*") if path.is_file()), *paths]:
        entry = {"type": "file", "name": path.name, "external-contents": str(path)}
        folders.setdefault(path.parent, []).append(entry)
    for path, contents in (files or {}).items():
        entry = {"type": "file", "name": path.name, "external-contents": str(_stored(contents))}
        folders.setdefault(path.parent, []).append(entry | {"use-external-name": False})
    roots = [{"type": "directory", "name": str(folder), "contents": contents} for folder, contents in folders.items()]
    text = json.dumps({"version": 0, "fallthrough": False, "roots": roots})  # YAML, too
    return "-ivfsoverlay", str(_stored(text))


def _stored(text: str) -> Path:
    """Return a file with a text, in the cache."""

    def build(output: Path) -> None:
        output.write_text(text)

    return cache.fetch(cache.key("text", text), build, ".txt").file


def find() -> Toolchain | None:
    """Return the first clang in search order, or None."""
    named = variable("ANYMETAL_CLANG")
    if named:
        path = shutil.which(named)
        return Toolchain(path, (path,), (path,)) if path else None
    found = wheel()
    if found:
        return found
    path = shutil.which("clang")
    return Toolchain(path, (path,), (path,)) if path else None


@functools.cache
def wheel() -> Toolchain | None:
    """Return the clang of the wheel ``ziglang``, or None if it is not installed."""
    with importing:
        package = importlib.util.find_spec("ziglang")
        if not package or not package.origin:
            return None
        folder = Path(package.origin).parent
        zig = str(folder / "zig")
        return Toolchain("ziglang", (zig, "cc"), (zig, "clang"), _version(folder))


def _version(package: Path) -> str:
    """Return the version of the wheel of a package, from the folder beside it: the other way reads all wheels."""
    found = [one.name for one in os.scandir(package.parent) if one.name.startswith(f"{package.name}-")]
    named = [name for name in found if name.endswith(".dist-info")]
    if len(named) == 1:
        return named[0].removeprefix(f"{package.name}-").removesuffix(".dist-info")
    from importlib import metadata  # its import takes longer than a compilation that is cached

    return metadata.version(package.name)


def missing() -> str | None:
    """Return None if there is a clang, else the reason and a remedy."""
    if find() is not None:
        return None
    named = variable("ANYMETAL_CLANG")
    if named:
        return f"ANYMETAL_CLANG={named!r} is not an executable: name a clang or unset the variable"
    return "no clang found: `pip install ziglang`, or put a clang on the PATH"


@functools.cache
def _fingerprint(toolchain: Toolchain, flags: tuple[object, ...], runtime: Path | None) -> str:
    digest = hashlib.sha256()
    status = os.stat(toolchain.driver[0])
    which = toolchain.version or (toolchain.driver, status.st_mtime_ns)
    flags = (
        PREPROCESS_FLAGS,
        PRAGMA_MACROS,
        RUNNING_FLAGS,
        STRICT_FLAGS,
        STRICT_EXTENSIONS,
        FUNCTION_POINTERS,
        EXPANDED_FLAGS,
        *flags,
    )
    digest.update(repr((toolchain.name, which, status.st_size, flags)).encode())
    # Includes the Python files: they generate C++, and define which sources are rejected.
    for folder in (FRONTEND, *([runtime] if runtime else [])):
        digest.update(_contents(folder))
    return digest.hexdigest()


@functools.cache
def _contents(folder: str | Path) -> bytes:
    """Return a hash of the files in a folder, in the order of their names."""
    digest = hashlib.sha256()
    for one in sorted(os.scandir(folder), key=lambda one: one.name):
        if one.is_dir():
            digest.update(_contents(one.path))
        elif not one.name.endswith(".pyc"):
            with open(one.path, "rb", buffering=0) as file:
                digest.update(file.read())
    return digest.digest()
