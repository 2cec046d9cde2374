"""Finding a clang, and running it.

The order is fixed: the executable that ``MPSREF_CLANG`` names, then the wheel ``ziglang`` (a clang in a wheel, with a
linker and the C library's headers), then ``clang`` on the ``PATH``.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from .. import CompileError

__all__ = ["SHIM", "Pass", "Toolchain", "find", "unavailable"]

Pass: TypeAlias = Literal["strict", "running"]
"""A source is read twice, to check it and to compile it."""

SHIM = Path(__file__).parent / "shim"
"""The C and C++ sources of this runtime."""

MACHINES = ("x86_64", "amd64", "aarch64", "arm64")

# On Linux the C library that Python itself uses is found at load time: nothing to link, which spares zig the 5 seconds
# in which it builds a C library's start-up files the first time ever.
LIBRARIES = ("-nostdlib",) if sys.platform == "linux" else ("-lm",)
# The parts of -ffast-math, one by one: the option itself makes some clangs link start-up code that turns subnormal
# numbers off for the whole process.
RUNNING_FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-fPIC", "-w", "-Wno-error=reserved-user-defined-literal"),
    *("-fno-math-errno", "-fno-signed-zeros", "-fno-trapping-math", "-fassociative-math", "-freciprocal-math"),
    *("-ffinite-math-only", "-fapprox-func", "-ffp-contract=fast", "-mrecip=none"),
    *("-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-nostdinc", "-nostdinc++", "-nostdlib++"),
    *("-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-cl-single-precision-constant"),
    *("-Xclang", "-fsanitize=array-bounds"),
)
KERNEL_FLAGS = ("-x", "c++", *RUNNING_FLAGS, "-shared", *LIBRARIES)
RUNTIME_FLAGS = ("-x", "c", "-std=c11", "-O2", "-fPIC", "-shared", "-w", "-I", str(SHIM), *LIBRARIES)
PREPROCESS_FLAGS = (
    *("-cc1", "-E", "-x", "c++", "-std=c++17", "-w", "-D__METAL__=1", "-D__METAL_VERSION__=230"),
    *("-DMPSREF_PREPROCESS", "-isystem", str(SHIM / "metal")),
)
# C++ for OpenCL has the address spaces and most of the restrictions of MSL 2.3.
STRICT_FLAGS = (
    *("-cc1", "-triple", "spir64-unknown-unknown", "-x", "clcpp", "-cl-std=clc++2021"),
    *(
        "-cl-ext=-all,+cl_khr_fp16,+__opencl_c_generic_address_space",
        "-cl-single-precision-constant",
        "-w",
        "-ferror-limit",
        "20",
    ),
    *("-D__METAL__=1", "-D__METAL_VERSION__=230", "-DMPSREF_STRICT", "-isystem", str(SHIM / "metal")),
)
# The headers, parsed for either pass: good as long as their text is (see Toolchain.fingerprint), whatever their time.
STRICT_HEADER_FLAGS = (*STRICT_FLAGS, "-emit-pch", "-fno-pch-timestamp")
HEADER_FLAGS = ("-x", "c++-header", *RUNNING_FLAGS, "-Xclang", "-fno-pch-timestamp")


@dataclass(frozen=True)
class Toolchain:
    """A clang: how to call its driver and its front end, and what tells it apart from another one."""

    name: str
    driver: tuple[str, ...]
    front: tuple[str, ...]
    version: str = ""
    """Where it is known it tells this clang apart, wherever it lies; else its path and its time do."""

    @functools.cached_property
    def fingerprint(self) -> str:
        """Changes with the compiler, the flags, this runtime and the processor."""
        digest = hashlib.sha256()
        status = os.stat(self.driver[0])
        flags = (KERNEL_FLAGS, HEADER_FLAGS, RUNTIME_FLAGS, PREPROCESS_FLAGS, STRICT_HEADER_FLAGS)
        which = self.version or (self.driver, status.st_mtime_ns)
        digest.update(repr((self.name, which, status.st_size, flags, processor())).encode())
        package = Path(__file__).parent  # the Python too: it writes C++, and what it rejects must not be kept
        for path in sorted([*package.glob("*.py"), *SHIM.rglob("*")]):
            if path.is_file():
                digest.update(path.read_bytes())
        return digest.hexdigest()

    def compile(self, flags: tuple[str, ...], source: Path, output: Path, scratch: Path) -> None:
        """Compile and link one file into a shared library; :class:`CompileError` with the compiler's text."""
        self._make([*self.driver, *flags, str(source), "-o", str(output)], scratch)

    def precompile(self, for_pass: Pass, header: Path, output: Path, scratch: Path) -> None:
        """Parse a header for a pass; its sources then have the option ``-include-pch output``."""
        strict = for_pass == "strict"
        command = (*self.front, *STRICT_HEADER_FLAGS) if strict else (*self.driver, *HEADER_FLAGS)
        self._make([*command, str(header), "-o", str(output)], scratch)

    def preprocess(self, source: str, scratch: Path) -> tuple[int, str]:
        """Expand the macros of a source; the includes of Metal stay out. Returns the status and the text."""
        return self._run([*self.front, *PREPROCESS_FLAGS, "-"], source, scratch)

    def check(self, source: str, scratch: Path, include: tuple[str, str]) -> tuple[int, str]:
        """The strict pass, after a header that an option ``include`` names. Returns the status and the diagnostics."""
        return self._run([*self.front, *STRICT_FLAGS, "-fsyntax-only", *include, "-"], source, scratch)

    def _make(self, command: list[str], scratch: Path) -> None:
        status, text = self._run(command, "", scratch)
        if status != 0:
            raise CompileError(f"{self.name} failed with status {status}:\n{text}")

    def _run(self, command: list[str], text: str, scratch: Path) -> tuple[int, str]:
        environment = {"ZIG_GLOBAL_CACHE_DIR": str(scratch), "ZIG_LOCAL_CACHE_DIR": str(scratch)} | os.environ
        done = subprocess.run(command, input=text.encode(), capture_output=True, env=environment, check=False)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def find() -> Toolchain | None:
    """The clang to use, or None."""
    named = os.environ.get("MPSREF_CLANG")
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
    """The clang of the wheel ``ziglang``, or None where it is not installed."""
    package = importlib.util.find_spec("ziglang")
    if not package or not package.origin:
        return None
    zig = str(Path(package.origin).with_name("zig"))
    return Toolchain("ziglang", (zig, "cc"), (zig, "clang"), importlib.metadata.version("ziglang"))


def unavailable() -> str | None:
    """None when kernels can be compiled here, else the reason and what to do."""
    if sys.platform == "win32":
        return "the clang runtime needs Linux or macOS (its barriers and guards use POSIX): use WSL on Windows"
    if platform.machine().lower() not in MACHINES:
        return f"the clang runtime knows the processors x86-64 and arm64, not {platform.machine()!r}"
    if find() is None:
        named = os.environ.get("MPSREF_CLANG")
        if named:
            return f"MPSREF_CLANG={named!r} is not an executable: name a clang or unset the variable"
        return "no clang found: `pip install ziglang`, or put a clang on the PATH"
    return None


def processor() -> str:
    """What -march=native depends on."""
    try:
        with open("/proc/cpuinfo") as lines:
            first = "".join(iter(lines.readline, "\n"))
    except OSError:
        return platform.processor() or platform.machine()
    keys = ("vendor_id", "cpu family", "model\t", "model name", "flags", "Features", "CPU part")
    return "".join(line for line in first.splitlines(keepends=True) if line.startswith(keys))
