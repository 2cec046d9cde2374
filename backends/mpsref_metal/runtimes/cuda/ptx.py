"""MSL to PTX, through clang and NVIDIA's library of device functions.

Clang parses what the clang runtime would compile for the processor as CUDA C++ and writes PTX, NVIDIA's portable
assembly, which the driver compiles for the card. No part of the CUDA toolkit takes part, except libdevice: LLVM bitcode
of the functions of the C library.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import CompileError
from ..frontend import cache
from ..frontend.program import translated
from ..frontend.source import KernelSource, about, call
from ..frontend.toolchain import SHIM, Toolchain

ARCHITECTURES = {  # compute capability: the option of clang, the version of PTX that has all of its instructions
    (7, 0): ("sm_70", "+ptx63"),
    (7, 5): ("sm_75", "+ptx63"),
    (8, 0): ("sm_80", "+ptx70"),
    (8, 6): ("sm_86", "+ptx71"),
    (8, 9): ("sm_89", "+ptx78"),
    (9, 0): ("sm_90", "+ptx78"),
}
"""PTX for one of them runs on every later card, too."""

OLDEST = min(ARCHITECTURES)
"""Older cards do not run the threads of a warp independently, as barriers of warps need."""

FLAGS = (
    *("-cc1", "-triple", "nvptx64-nvidia-cuda", "-aux-triple", "x86_64-unknown-linux-gnu", "-S", "-x", "cuda"),
    *("-fcuda-is-device", "-DMPSREF_CUDA", "-std=c++17", "-O3", "-w", "-ffp-contract=fast"),
    "-Wno-error=reserved-user-defined-literal",
    *("-cl-single-precision-constant", "-include", str(SHIM / "mpsref" / "library.h")),
)


class Compiled(NamedTuple):
    """A source as PTX."""

    text: bytes
    kernels: dict[str, dict[str, Any]]
    """By name: ``KernelSource.describe``, with ``entry`` and ``numbers``, what ``Signature.of`` reads."""


def libdevice() -> Path | None:
    """NVIDIA's device functions: from the wheel ``nvidia-nvvm``, or of an installed toolkit; None where there are none.

    The order is fixed: the file that ``MPSREF_LIBDEVICE`` names, then what ``cuda-pathfinder`` finds in the wheels, in
    Conda's folders and under ``CUDA_HOME``, then ``/usr/local/cuda``.
    """
    named = os.environ.get("MPSREF_LIBDEVICE")
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
    """The newest of ``ARCHITECTURES`` whose PTX a card of this compute capability runs."""
    return max(known for known in ARCHITECTURES if known <= capability)


def compile_source(toolchain: Toolchain, library: Path, source: str, capability: tuple[int, int]) -> Compiled:
    """The PTX of an MSL source, from the disk or from clang; :class:`CompileError` has the lines of the source."""
    processor, version = ARCHITECTURES[architecture(capability)]
    flags = (*FLAGS, "-target-cpu", processor, "-target-feature", version, "-mlink-builtin-bitcode")

    def build(output: Path) -> dict[str, dict[str, Any]]:
        cpp, found = translated(toolchain, source, entry)
        file = output.with_suffix(".cpp")
        file.write_text(cpp)
        toolchain.make([*toolchain.front, *flags, str(library), str(file), "-o", str(output)])
        text = output.read_text()
        return {
            kernel.name: kernel.describe() | {"entry": f"mpsref_entry_{i}", "numbers": numbers(text, i, kernel)}
            for i, kernel in enumerate(found)
        }

    fingerprint = toolchain.fingerprint(*flags, library.stat().st_size, runtime=Path(__file__).parent)
    path, kernels = cache.fetch(cache.key("ptx", source, fingerprint), build, ".ptx")
    return Compiled(path.read_bytes(), kernels)


def entry(number: int, kernel: KernelSource) -> str:
    """The C++ of the kernel that the driver launches, and what the compiler knows of it."""
    count = max((known.index for known in kernel.parameters if known.index is not None), default=-1) + 1
    names = [f"b{i}" for i in range(count)]
    bounds = f"__attribute__((launch_bounds({kernel.threads})))" if kernel.names_threads else ""
    parameters = ", ".join(f"void *{name}" for name in names)
    line = f"MPSREF_ENTRY({number}, {bounds}, ({parameters}), {call(kernel)}, {', '.join([*names, 'nullptr'])})"
    return f"{line}\n{about(number, kernel)}"


def numbers(ptx: str, number: int, kernel: KernelSource) -> list[int]:
    """What ``MPSREF_ABOUT`` keeps of a kernel, from the bytes in the PTX, which omits zeros at the end."""
    count = 1 + 2 * sum(known.index is not None for known in kernel.parameters)
    found = re.search(rf"\.b8 mpsref_about_{number}\[\d+\] = \{{([\d, ]+)\}};", ptx)
    if found is None:
        raise CompileError(f"the PTX has no mpsref_about_{number}: this clang writes constants in another form")
    written = bytes(map(int, found[1].split(",")))
    return list(map(int, np.frombuffer(written.ljust(4 * count, b"\0"), "<u4")))
