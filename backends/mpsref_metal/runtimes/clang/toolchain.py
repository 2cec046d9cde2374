"""Finding a clang, and running it.

The order is fixed: the executable that ``MPSREF_CLANG`` names, then the wheel ``ziglang`` (a clang in a wheel, with a
linker and the C library's headers), then ``clang`` on the ``PATH``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .. import CompileError

__all__ = ["SHIM", "Toolchain", "find", "unavailable"]

SHIM = Path(__file__).parent / "shim"
"""The C and C++ sources of this runtime."""

MACHINES = ("x86_64", "amd64", "aarch64", "arm64")

# On Linux the C library that Python itself uses is found at load time: nothing to link, which spares zig the 5 seconds
# in which it builds a C library's start-up files the first time ever.
LIBRARIES = ("-nostdlib",) if sys.platform == "linux" else ("-lm",)
# The parts of -ffast-math, one by one: the option itself makes some clangs link start-up code that turns subnormal
# numbers off for the whole process.
KERNEL_FLAGS = (
    *(
        "-x",
        "c++",
        "-std=c++17",
        "-O3",
        "-march=native",
        "-fPIC",
        "-shared",
        "-w",
        "-Wno-error=reserved-user-defined-literal",
    ),
    *("-fno-math-errno", "-fno-signed-zeros", "-fno-trapping-math", "-fassociative-math", "-freciprocal-math"),
    *("-ffinite-math-only", "-fapprox-func", "-ffp-contract=fast", "-mrecip=none"),
    *("-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-nostdinc", "-nostdinc++", "-nostdlib++"),
    *("-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-cl-single-precision-constant"),
    *("-Xclang", "-fsanitize=array-bounds"),
    *LIBRARIES,
)
RUNTIME_FLAGS = ("-x", "c", "-std=c11", "-O2", "-fPIC", "-shared", "-w", "-I", str(SHIM), *LIBRARIES)
PREPROCESS_FLAGS = (
    *("-cc1", "-E", "-x", "c++", "-std=c++17", "-w", "-D__METAL__=1", "-D__METAL_VERSION__=230"),
    *("-DMPSREF_PREPROCESS", "-isystem", str(SHIM / "metal")),
)
# C++ for OpenCL has the address spaces and most of the restrictions of MSL 2.3.
STRICT_FLAGS = (
    *("-cc1", "-fsyntax-only", "-triple", "spir64-unknown-unknown", "-x", "clcpp", "-cl-std=clc++2021"),
    *(
        "-cl-ext=-all,+cl_khr_fp16,+__opencl_c_generic_address_space",
        "-cl-single-precision-constant",
        "-w",
        "-ferror-limit",
        "20",
    ),
    *("-D__METAL__=1", "-D__METAL_VERSION__=230", "-DMPSREF_STRICT"),
    *("-include", str(SHIM / "mpsref" / "prelude.h"), "-isystem", str(SHIM / "metal")),
)


@dataclass(frozen=True)
class Toolchain:
    """A clang: how to call its driver and its front end, and what tells it apart from another one."""

    name: str
    driver: tuple[str, ...]
    front: tuple[str, ...]

    @functools.cached_property
    def fingerprint(self) -> str:
        """Changes with the compiler, the flags, this runtime and the processor."""
        digest = hashlib.sha256()
        status = os.stat(self.driver[0])
        flags = (KERNEL_FLAGS, RUNTIME_FLAGS, PREPROCESS_FLAGS, STRICT_FLAGS)
        digest.update(repr((self.driver, status.st_size, status.st_mtime_ns, flags, processor())).encode())
        package = Path(__file__).parent  # the Python too: it writes C++, and what it rejects must not be kept
        for path in sorted([*package.glob("*.py"), *SHIM.rglob("*")]):
            if path.is_file():
                digest.update(path.read_bytes())
        return digest.hexdigest()

    def compile(self, flags: tuple[str, ...], source: Path, output: Path, scratch: Path) -> None:
        """Compile and link one file into a shared library; :class:`CompileError` with the compiler's text."""
        status, text = self._run([*self.driver, *flags, str(source), "-o", str(output)], "", scratch)
        if status != 0:
            raise CompileError(f"{self.name} failed with status {status}:\n{text}")

    def preprocess(self, source: str, scratch: Path) -> tuple[int, str]:
        """Expand the macros of a source; the includes of Metal stay out. Returns the status and the text."""
        return self._run([*self.front, *PREPROCESS_FLAGS, "-"], source, scratch)

    def check(self, source: str, scratch: Path) -> tuple[int, str]:
        """The strict pass. Returns the status and the diagnostics."""
        return self._run([*self.front, *STRICT_FLAGS, "-"], source, scratch)

    def _run(self, command: list[str], text: str, scratch: Path) -> tuple[int, str]:
        environment = {"ZIG_GLOBAL_CACHE_DIR": str(scratch), "ZIG_LOCAL_CACHE_DIR": str(scratch)} | os.environ
        done = subprocess.run(command, input=text.encode(), capture_output=True, env=environment, check=False)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


@functools.cache
def _wheel() -> str:
    """The executable in the wheel ``ziglang``, looked for until it is found; ImportError where there is none."""
    package = importlib.util.find_spec("ziglang")
    if package is None or package.origin is None:
        raise ImportError("no ziglang")
    return str(Path(package.origin).with_name("zig"))


def find() -> Toolchain | None:
    """The clang to use, or None."""
    named = os.environ.get("MPSREF_CLANG")
    if named:
        path = shutil.which(named)
        return Toolchain(path, (path,), (path,)) if path else None
    with contextlib.suppress(ImportError):
        zig = _wheel()
        return Toolchain("ziglang", (zig, "cc"), (zig, "clang"))
    path = shutil.which("clang")
    return Toolchain(path, (path,), (path,)) if path else None


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
