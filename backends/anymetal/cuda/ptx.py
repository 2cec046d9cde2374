"""Compilation of MSL to PTX with clang and libdevice.

Clang compiles the C++ of the front end as CUDA C++ to PTX, NVIDIA's portable assembly, which the driver compiles for
the GPU. The only required component of the CUDA toolkit is libdevice, LLVM bitcode of the functions of the C library.
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
from ..frontend.options import DEFAULTS, Options
from ..frontend.program import translated, undefined
from ..frontend.source import KernelSource, about, call
from ..frontend.toolchain import EXPANDED_FLAGS, LIBRARY_HEADER, Toolchain

ARCHITECTURES = {  # compute capability: the -target-cpu of clang, the PTX version with all of its instructions
    (7, 0): ("sm_70", "+ptx63"),
    (7, 5): ("sm_75", "+ptx63"),
    (8, 0): ("sm_80", "+ptx70"),
    (8, 6): ("sm_86", "+ptx71"),
    (8, 9): ("sm_89", "+ptx78"),
    (9, 0): ("sm_90", "+ptx78"),
}
"""PTX for a compute capability runs on all later GPUs."""

RESIDENT = 256
"""Number of threads of a kernel with a fixed threadgroup size that a multiprocessor must be able to hold at once: the
driver's compiler then uses at most 255 registers a thread, and the latency of memory is hidden."""

OLDEST = min(ARCHITECTURES)
"""Older GPUs lack independent thread scheduling, which warp barriers require."""

FLAGS = (
    *("-cc1", "-triple", "nvptx64-nvidia-cuda", "-aux-triple", "x86_64-unknown-linux-gnu", "-S", "-x", "cuda"),
    *("-fcuda-is-device", "-DMPSREF_CUDA", "-std=c++17", "-O3", "-w", "-ffp-contract=fast"),
    *("-mllvm", "-inline-threshold=100000"),  # all functions are inline, as in the compilers for GPUs
    "-Wno-error=reserved-user-defined-literal",
    *(*EXPANDED_FLAGS, "-include", str(LIBRARY_HEADER)),
)


class Compiled(NamedTuple):
    """A source as PTX."""

    text: bytes
    kernels: dict[str, dict[str, Any]]
    """By name: ``KernelSource.describe``, with ``entry`` and the ``numbers`` of ``Signature.of``."""


def libdevice() -> Path | None:
    """Return the path of libdevice, from the wheel ``nvidia-nvvm`` or an installed toolkit, or None.

    The search order is: the file in ``MPSREF_LIBDEVICE``, then what ``cuda-pathfinder`` finds in the wheels, in
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
    """Return the newest of ``ARCHITECTURES`` that is not newer than a compute capability."""
    return max(known for known in ARCHITECTURES if known <= capability)


def compile_source(
    toolchain: Toolchain, library: Path, source: str, capability: tuple[int, int], options: Options = DEFAULTS
) -> Compiled:
    """Return the PTX of an MSL source, from the disk cache or from clang; raise :class:`CompileError`.

    Fast math is never on.
    """
    processor, version = ARCHITECTURES[architecture(capability)]
    target = "-target-cpu", processor, "-target-feature", version
    flags = (*FLAGS, *options.definitions, *target, "-mlink-builtin-bitcode")

    def build(output: Path) -> dict[str, dict[str, Any]]:
        cpp, found = translated(toolchain, source, options, entry)
        file = output.with_suffix(".cpp")
        file.write_text(cpp)
        toolchain.make([*toolchain.front, *flags, str(library), str(file), "-o", str(output)])
        text = output.read_text()
        if declared := re.search(r"\.extern \.func\s+(?:\([^)]*\)\s*)?([\w$]+)", text):
            raise undefined(declared[1], cpp)
        return {
            kernel.name: kernel.describe() | {"entry": f"mpsref_entry_{i}", "numbers": numbers(text, i, kernel)}
            for i, kernel in enumerate(found)
        }

    fingerprint = toolchain.fingerprint(*flags, library.stat().st_size, runtime=Path(__file__).parent)
    compiled = cache.fetch(cache.key("ptx", fingerprint, *options.texts(source)), build, ".ptx")
    return Compiled(compiled.data, compiled.about)


def entry(number: int, kernel: KernelSource) -> str:
    """Return the C++ of the CUDA kernel of an MSL kernel, and of its description."""
    count = max((known.index for known in kernel.parameters if known.index is not None), default=-1) + 1
    names = [f"b{i}" for i in range(count)]
    resident = f"({RESIDENT} + ({kernel.threads}) - 1) / ({kernel.threads})"
    bounds = f"__attribute__((launch_bounds({kernel.threads}, {resident})))" if kernel.names_threads else ""
    parameters = ", ".join(f"void *{name}" for name in names)
    line = f"MPSREF_ENTRY({number}, {bounds}, ({parameters}), {call(kernel)}, {', '.join([*names, 'nullptr'])})"
    return f"{line}\n{about(number, kernel)}"


def numbers(ptx: str, number: int, kernel: KernelSource) -> list[int]:
    """Return the data of ``MPSREF_ABOUT`` from the bytes in the PTX, which omits trailing zeros."""
    count = 1 + 2 * sum(known.index is not None for known in kernel.parameters)
    found = re.search(rf"\.b8 mpsref_about_{number}\[\d+\] = \{{([\d, ]+)\}};", ptx)
    if found is None:
        raise CompileError(f"the PTX has no mpsref_about_{number}: the format of constants of this clang is unknown")
    written = bytes(map(int, found[1].split(",")))
    return list(map(int, np.frombuffer(written.ljust(4 * count, b"\0"), "<u4")))
