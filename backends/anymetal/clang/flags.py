"""Compiler flags of kernels and the launcher for this CPU."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from ..frontend import toolchain
from ..frontend.options import Options
from ..frontend.toolchain import EXPANDED_FLAGS, SHIM, Toolchain

MACHINES = ("x86_64", "amd64", "aarch64", "arm64")

# On Linux the symbols of the C library are resolved at load time by the one of the Python process. Linking one would
# make zig build its start-up files at the first use, which takes 5 seconds.
LIBRARIES = ("-nostdlib",) if sys.platform == "linux" else ("-lm",)
# The components of -ffast-math; the option itself links start-up code in some versions of clang that flushes subnormal
# numbers to zero in the whole process.
FAST_MATH = ("-fno-signed-zeros", "-fassociative-math", "-freciprocal-math", "-ffinite-math-only", "-fapprox-func")
# Most kernels run for less time than they compile. As an option of zig, -O1 means -O2.
RUNNING_FLAGS = (
    *("-std=c++17", "-O3", "-Xclang", "-O1", "-march=native", "-fPIC"),
    *("-Wno-everything", "-Werror=global-constructors"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-mrecip=none"),
    *("-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-nostdinc", "-nostdinc++", "-nostdlib++"),
    *("-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-fsanitize=array-bounds"),
    *(EXPANDED_FLAGS if sys.platform != "darwin" else (*EXPANDED_FLAGS, "-DMPSREF_APPLE")),
)
KERNEL_FLAGS = ("-x", "c++", *RUNNING_FLAGS, "-shared", *LIBRARIES)
HEADER_FLAGS = ("-x", "c++-header", *RUNNING_FLAGS, "-Xclang", "-fno-pch-timestamp")
LAUNCHER_FLAGS = ("-x", "c", "-std=c11", "-O2", "-fPIC", "-shared", "-w", "-I", str(SHIM), *LIBRARIES)


def fingerprint(compiler: Toolchain) -> str:
    """Return a hash of the compiler, the flags, this runtime and the CPU."""
    flags = KERNEL_FLAGS, HEADER_FLAGS, FAST_MATH, LAUNCHER_FLAGS, processor()
    return compiler.fingerprint(*flags, runtime=Path(__file__).parent)


def of_options(options: Options) -> tuple[str, ...]:
    """Return the flags of a compilation that depend on its options."""
    return *options.definitions, *(FAST_MATH if options.fast_math else ())


def unavailable() -> str | None:
    """Return None if kernels can be compiled on this machine, else the reason and a remedy."""
    if sys.platform == "win32":
        return "the clang runtime needs Linux or macOS (its barriers and guards use POSIX): use WSL on Windows"
    if platform.machine().lower() not in MACHINES:
        return f"the clang runtime supports x86-64 and arm64 processors, not {platform.machine()!r}"
    return toolchain.missing()


def processor() -> str:
    """Return the properties of the CPU that -march=native depends on."""
    try:
        with open("/proc/cpuinfo") as lines:
            first = "".join(iter(lines.readline, "\n"))
    except OSError:
        return platform.processor() or platform.machine()
    keys = ("vendor_id", "cpu family", "model\t", "model name", "flags", "Features", "CPU part")
    return "".join(line for line in first.splitlines(keepends=True) if line.startswith(keys))
