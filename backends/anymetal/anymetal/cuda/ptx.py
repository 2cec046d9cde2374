"""Compilation of MSL to PTX with clang and libdevice.

Clang compiles the C++ of the front end to PTX, NVIDIA's portable assembly, which the driver compiles for the GPU. The
only required component of the CUDA toolkit is libdevice, LLVM bitcode of the functions of the C library.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..environment import variable
from ..frontend import cache
from ..frontend.kernels import Kernel
from ..frontend.options import Options
from ..frontend.program import Program
from ..frontend.toolchain import RUNNING_FLAGS, Toolchain
from ..interface import CompileError

ARCHITECTURES = {  # compute capability: the -target-cpu of clang, the PTX version with all of its instructions
    (7, 0): ("sm_70", "+ptx63"),
    (7, 5): ("sm_75", "+ptx63"),
    (8, 0): ("sm_80", "+ptx70"),
    (8, 6): ("sm_86", "+ptx71"),
    (8, 9): ("sm_89", "+ptx78"),
    (9, 0): ("sm_90", "+ptx78"),
}
"""PTX for a compute capability runs on all later GPUs."""

RESIDENT = 384, 256
"""Number of threads of a kernel with a fixed threadgroup size that a multiprocessor must be able to hold at once, to
hide latencies. The driver's compiler then uses at most 168 registers a thread; a kernel that needs more gets 255."""

OVERLAPPING = (9, 0)
"""From this compute capability on, a launch begins as soon as all threadgroups of the one before it have ended, and
each kernel first waits until the writes of all launches before it are visible (programmatic dependent launch)."""

OLDEST = min(ARCHITECTURES)
"""Older GPUs lack independent thread scheduling, which warp barriers require."""

FLAGS = (
    *("-cc1", "-triple", "nvptx64-nvidia-cuda", "-aux-triple", "x86_64-unknown-linux-gnu"),
    *(*RUNNING_FLAGS, "-DANYMETAL_CUDA", "-O3", "-ffp-contract=fast"),
    "-faddress-space-map-mangling=no",  # `device` and `constant` are one address space in PTX, and two types
    *("-mllvm", "-inline-threshold=100000"),  # all functions are inline, as in the compilers for GPUs
)


EXTERNAL = re.compile(
    r"\.extern \.func\s+(?:\([^)]*\)\s*)?([\w$]+)|\.extern \.(?:global|const)[^;]*?([\w$]+)(?:\[\d*\])?;"
)
"""Functions and variables that are not defined."""


class Compiled(NamedTuple):
    """A kernel as PTX."""

    text: bytes
    about: dict[str, Any]
    """The last arguments of ``Signature.of``, by name."""

    @property
    def relaxed(self) -> bytes:
        """The PTX of a kernel that stores registers in memory, if it may have more of them; else the same."""
        if not (threads := self.about["threads"]):
            return self.text
        bounds, relaxed = (_bounds(threads, resident).encode() for resident in RESIDENT)
        return self.text.replace(bounds, relaxed)


def libdevice() -> Path | None:
    """Return the path of libdevice, from the wheel ``nvidia-nvvm`` or an installed toolkit, or None.

    The search order is: the file in ``ANYMETAL_LIBDEVICE``, then what ``cuda-pathfinder`` finds in the wheels, in
    Conda's folders and under ``CUDA_HOME``, then ``/usr/local/cuda``.
    """
    named = variable("ANYMETAL_LIBDEVICE")
    if named:
        return Path(named) if Path(named).is_file() else None
    return _installed_libdevice()


@functools.cache
def _installed_libdevice() -> Path | None:
    inside = Path("nvvm", "libdevice", "libdevice.10.bc")
    wheels = (Path(folder, "nvidia") for folder in sys.path if folder)
    roots = [*(root for wheel in wheels for root in sorted(wheel.glob("cu*"), reverse=True))]
    roots += [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    roots += [Path("/usr/local/cuda")]
    return next((root / inside for root in roots if (root / inside).is_file()), None)


def architecture(capability: tuple[int, int]) -> tuple[int, int]:
    """Return the newest of ``ARCHITECTURES`` that is not newer than a compute capability."""
    return max(known for known in ARCHITECTURES if known <= capability)


def compile_kernel(
    toolchain: Toolchain,
    library: Path,
    program: Program,
    kernel: Kernel,
    capability: tuple[int, int],
    options: Options,
    values: Mapping[str, str],
    is_exact: bool = False,
) -> Compiled:
    """Return the PTX of a kernel, from the disk cache or from clang; raise :class:`CompileError`.

    With ``is_exact`` the entry point takes a part of a grid as its last argument, see entry.h. Fast math is never on.
    """
    processor, version = ARCHITECTURES[architecture(capability)]
    options = program.options(options)
    target = "-target-cpu", processor, "-target-feature", version
    flags = *FLAGS, *options.definitions, *target, *(("-DANYMETAL_EXACT",) * is_exact)
    command = *toolchain.front, *flags
    fingerprint = toolchain.fingerprint(*flags, library.stat().st_size, runtime=Path(__file__).parent)

    def build(output: Path) -> dict[str, Any]:
        cpp = program.cpp(toolchain, options, kernel, values)
        file = output.with_suffix(".cpp")
        file.write_text(cpp)
        headers = str(toolchain.parsed_headers(command, fingerprint))
        linked = "-mlink-builtin-bitcode", str(library)
        program.compile(
            toolchain, [*command, "-S", *linked, "-include-pch", headers, str(file), "-o", str(output)], values
        )
        text = output.read_text()
        if declared := EXTERNAL.search(text):
            raise program.undefined(declared[1] or declared[2], values)
        named = re.search(r"\.\w+ \w*anymetal_threads\w* = (\d+);", text)
        threads = int(named[1]) if named else None
        output.write_text(_entered(text, threads, capability >= OVERLAPPING))
        names = ["about", "bindings", *(["images", "image_bindings"] if kernel.images else [])]
        arrays = {name: numbers(text, f"anymetal_{name}") for name in names}
        return {"threads": threads, "shared": shared_bytes(text), **arrays}

    known = cache.key("ptx", fingerprint, program.text, kernel.name, *sorted(values.items()))
    compiled = cache.fetch(known, build, ".ptx")
    return Compiled(compiled.data, compiled.about)


def numbers(ptx: str, name: str) -> list[int]:
    """Return an array of ``uint`` in PTX, which leaves out trailing zeros, or all of them."""
    found = re.search(rf"\.b8 {name}\[(\d+)\](?: = \{{([\d, ]+)\}})?;", ptx)
    if found is None:
        raise CompileError(f"the PTX has no {name}: the format of constants of this clang is unknown")
    written = bytes(map(int, found[2].split(","))) if found[2] else b""
    return list(map(int, np.frombuffer(written.ljust(int(found[1]), b"\0"), "<u4")))


def shared_bytes(ptx: str) -> int:
    """Return the bytes of the threadgroup variables of a kernel, without those that align them."""
    found = re.findall(r"\.shared \.align \d+ \.[a-z](\d+) [^\s\[;]+(?:\[(\d+)\])?;", ptx)
    return sum(int(bits) // 8 * int(length or 1) for bits, length in found)


def _bounds(threads: int, resident: int) -> str:
    return f".maxntid {threads}, 1, 1\n.minnctapersm {max(1, resident // threads)}"


def _entered(ptx: str, threads: int | None, overlaps: bool) -> str:
    """Return PTX in which the entry says how many threads it is launched with, and waits for the launch before it."""
    bounds = f"\n{_bounds(threads, RESIDENT[0])}" if threads else ""
    waits = "\n\tgriddepcontrol.wait;" if overlaps else ""
    entry, count = re.subn(r"(\.visible \.entry anymetal_thread\([^)]*\))(\s*\{)", rf"\1{bounds}\2{waits}", ptx)
    if count != 1:
        raise CompileError("the PTX has no entry anymetal_thread: the format of this clang is unknown")
    return entry
