"""How kernels and the launcher are compiled for this processor."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from ..frontend import toolchain
from ..frontend.toolchain import SHIM, Toolchain

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
HEADER_FLAGS = ("-x", "c++-header", *RUNNING_FLAGS, "-Xclang", "-fno-pch-timestamp")
LAUNCHER_FLAGS = ("-x", "c", "-std=c11", "-O2", "-fPIC", "-shared", "-w", "-I", str(SHIM), *LIBRARIES)


def fingerprint(compiler: Toolchain) -> str:
    """Changes with the compiler, the flags, this runtime and the processor."""
    return compiler.fingerprint(KERNEL_FLAGS, HEADER_FLAGS, LAUNCHER_FLAGS, processor(), runtime=Path(__file__).parent)


def unavailable() -> str | None:
    """None when kernels can be compiled here, else the reason and what to do."""
    if sys.platform == "win32":
        return "the clang runtime needs Linux or macOS (its barriers and guards use POSIX): use WSL on Windows"
    if platform.machine().lower() not in MACHINES:
        return f"the clang runtime knows the processors x86-64 and arm64, not {platform.machine()!r}"
    return toolchain.missing()


def processor() -> str:
    """What -march=native depends on."""
    try:
        with open("/proc/cpuinfo") as lines:
            first = "".join(iter(lines.readline, "\n"))
    except OSError:
        return platform.processor() or platform.machine()
    keys = ("vendor_id", "cpu family", "model\t", "model name", "flags", "Features", "CPU part")
    return "".join(line for line in first.splitlines(keepends=True) if line.startswith(keys))
