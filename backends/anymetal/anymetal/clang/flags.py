"""Commands that compile kernels and the launcher for this CPU."""

from __future__ import annotations

import platform
import sys
from functools import cache
from pathlib import Path

from ..frontend import toolchain
from ..frontend.options import Options
from ..frontend.toolchain import RUNNING_FLAGS, SHIM, Toolchain

MACHINES = ("x86_64", "amd64", "aarch64", "arm64")
IS_MAC = sys.platform == "darwin"
IS_ARM = platform.machine().lower() in ("aarch64", "arm64")
TRIPLE = f"{'arm64' if IS_MAC and IS_ARM else 'aarch64' if IS_ARM else 'x86_64'}-" + (
    "apple-macosx11.0.0" if IS_MAC else "unknown-linux-gnu"
)

V3 = {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
"""Features in ``/proc/cpuinfo`` that tell the CPUs of x86-64-v3 from older ones."""

# The components of fast math. A component that clang drops on its own, without -ffast-math, changes no other part.
# Without -menable-no-infs: a conversion to half may overflow, and with it clang removes conversions to half and bfloat.
FAST_MATH = (
    *("-menable-no-nans", "-ffinite-math-only", "-fapprox-func"),
    *("-fno-signed-zeros", "-mreassociate", "-freciprocal-math"),
)
# For the processor itself; the second triple is needed for __bf16.
LANGUAGE_FLAGS = (
    *("-cc1", "-triple", TRIPLE, "-aux-triple", TRIPLE, *RUNNING_FLAGS),
    *(("-DANYMETAL_APPLE",) if IS_MAC else ()),
)
# Most kernels run for less time than they compile. A large frame touches each page, so that it meets the guard page.
MODEL = ("-O1", "-fstack-clash-protection", "-mrelocation-model", "pic", "-pic-level", "2")
CODE_FLAGS = (
    *(*MODEL, "-ffp-contract=fast", "-mrecip=none"),
    *("-ffloat16-excess-precision=none", "-fbfloat16-excess-precision=none", "-fsanitize=array-bounds"),
    *("-debug-info-kind=line-tables-only", "-dwarf-version=4"),
    # As the driver of clang passes them, and without checks of the compiler itself: the same code in less time.
    *("-disable-free", "-clear-ast-before-backend", "-disable-llvm-verifier"),
)
# The thread sanitizer is the instrumentation of shadow.h, which defines the functions that it calls. It neither sees
# accesses of more than 16 bytes, nor minima and sums of atomic floats: the shim tells of atomic accesses itself.
RECOVERED = (
    *("alignment", "shift-base", "shift-exponent", "integer-divide-by-zero", "float-cast-overflow"),
    *("signed-integer-overflow", "implicit-signed-integer-truncation", "object-size"),
)
CHECK_FLAGS = (
    f"-fsanitize=thread,local-bounds,return,{','.join(RECOVERED)}",
    f"-fsanitize-recover={','.join(RECOVERED)}",
    *(
        part
        for name in ("func-entry-exit=0", "atomics=0", "read-before-write=1")
        for part in ("-mllvm", f"-tsan-instrument-{name}")
    ),
    *("-mllvm", "-tsan-compound-read-before-write=0", "-DANYMETAL_CHECKED"),
    *("-Wuninitialized", "-Wconditional-uninitialized"),
    # Bounds of a private array are those of a function and what is inlined in it.
    *("-finline-functions", "-mllvm", "-inline-threshold=1000"),
    *("-fsanitize-coverage-type=2", "-fsanitize-coverage-inline-bool-flag", "-fsanitize-coverage-pc-table"),
    *("-mllvm", "-sanitizer-coverage-prune-blocks=0"),
)
# clang 22 can leave out what makes one access of several, which has the columns of none.
APART_FLAGS = tuple(
    part
    for flag in ("opt-disable=instcombine", "sink-common-insts=0", "hoist-common-insts=0", "enable-tail-merge=0")
    for part in ("-mllvm", f"-{flag}")
)

# On Linux the symbols of the C library are resolved at load time by the one of the Python process. Linking one would
# make zig build its start-up files at the first use, which takes 5 seconds.
LIBRARIES = ("-lm",) if IS_MAC else ("-nostdlib",)
LAUNCHER = Path(__file__).parent / "native" / "runtime.c"
INLINED = LAUNCHER.with_name("inlined.c")
"""What reads need first, inside of a kernel."""
IS_INLINED = platform.libc_ver()[0] == "glibc"
"""Whether libraries may use a variable of the launcher that each thread has on its own by its address."""
# Only functions that are declared `inline` are inlined: with all others, the compilation takes half as long again.
LAUNCHER_FLAGS = (
    *("-x", "c", "-std=c11", "-O2", "-finline-hint-functions", "-g0", "-fPIC", "-shared", "-w"),
    *("-I", str(SHIM), *LIBRARIES),
)


@cache
def target() -> tuple[str, ...]:
    """Return the flags that name the CPU: the newest of a few kinds that this one is."""
    known = _features()
    if not IS_ARM:
        return "-target-cpu", "x86-64-v3" if known >= V3 else "x86-64"
    if IS_MAC:
        return "-target-cpu", "apple-m1"
    return "-target-cpu", "generic", *(("-target-feature", "+fullfp16") if {"fphp", "asimdhp"} <= known else ())


def _features() -> set[str]:
    try:
        with open("/proc/cpuinfo") as lines:
            found = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        return set()
    return set(found.partition(":")[2].split())


def of_options(options: Options) -> tuple[str, ...]:
    """Return the flags of a compilation that depend on its options."""
    return *options.definitions, *(FAST_MATH if options.fast_math else ()), *(CHECK_FLAGS if options.checks else ())


def base_command(compiler: Toolchain, options: Options) -> tuple[str, ...]:
    """Return the command that reads headers and kernels alike; what it writes, and the files, follow."""
    return *compiler.front, *LANGUAGE_FLAGS, *CODE_FLAGS, *target(), *of_options(options)


def compile_command(compiler: Toolchain, options: Options, headers: Path, kind: str = "-emit-obj") -> tuple[str, ...]:
    """Return the command that compiles a kernel; ``kind`` is ``-emit-obj`` or ``-emit-llvm-bc``."""
    names = ("-discard-value-names",) if kind == "-emit-obj" else ()
    return *base_command(compiler, options), kind, *names, "-include-pch", str(headers)


def _code(compiler: Toolchain) -> tuple[str, ...]:
    return *compiler.front, "-cc1", "-triple", TRIPLE, *MODEL, *target()


def inlined_command(compiler: Toolchain) -> tuple[str, ...]:
    """Return the command that compiles what kernels with checks have inlined, to bitcode; ``-o`` follows."""
    return *_code(compiler), "-x", "c", "-I", str(SHIM), "-emit-llvm-bc", str(INLINED)


def inline_command(compiler: Toolchain, inlined: Path | None) -> tuple[str, ...]:
    """Return the command that inlines it in the LLVM IR of a kernel, a file that follows, and writes the object."""
    more = ("-mlink-builtin-bitcode", str(inlined)) if inlined else ()
    return *_code(compiler), *more, "-w", "-emit-obj", "-x", "ir"


def link_command(compiler: Toolchain) -> tuple[str, ...]:
    """Return the command that makes a library of an object: functions that it lacks are found when it is loaded."""
    if IS_MAC:
        return *compiler.driver, "-shared", *LIBRARIES, "-undefined", "dynamic_lookup"
    if compiler.name == "ziglang":
        return compiler.driver[0], "ld.lld", "-shared", "--allow-shlib-undefined"
    return *compiler.driver, "-shared", *LIBRARIES


def fingerprint(compiler: Toolchain) -> str:
    """Return a hash of the compiler, the flags, this runtime and the CPU."""
    flags = (
        LANGUAGE_FLAGS,
        CODE_FLAGS,
        FAST_MATH,
        CHECK_FLAGS,
        APART_FLAGS,
        LAUNCHER_FLAGS,
        target(),
        link_command(compiler),
    )
    return compiler.fingerprint(*flags, runtime=Path(__file__).parent)


def unavailable() -> str | None:
    """Return None if kernels can be compiled on this machine, else the reason and a remedy."""
    if sys.platform == "win32":
        return "the clang runtime needs Linux or macOS (its barriers and guards use POSIX): use WSL on Windows"
    if platform.machine().lower() not in MACHINES:
        return f"the clang runtime supports x86-64 and arm64 processors, not {platform.machine()!r}"
    return toolchain.missing()
