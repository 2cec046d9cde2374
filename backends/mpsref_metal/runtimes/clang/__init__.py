"""Run MSL kernels on the processor, compiled with clang: no Mac, no GPU, and nothing is forgiven.

See :class:`Device` for an example. What a launch does, beside running the kernel:

- The grid is rounded up to whole threadgroups and the surplus threads run. The size of a threadgroup is the kernel's
  ``[[max_total_threads_per_threadgroup(N)]]``, else 1024.
- Threadgroups, and threads between two barriers, take their turns in a shuffled order, and then, from the same buffer
  contents, in the opposite one; results that differ in a bit are an error (``Device(check_order=False)`` runs once).
- A read or write outside a buffer is an error that names the buffer and the offset. An access that stays within the
  15 bytes (31 at most) that alignment leaves over at the end reads NaN, and a write there is found after the launch.
- An index outside an array of known size is an error with its line. Threadgroup memory starts as NaN.
- Barriers and simdgroup functions (32 lanes) are real: threads wait for each other. A barrier that some threads of a
  threadgroup do not reach is an error.
- Sources are checked as Apple's compiler would: address spaces, no ``double``, no atomic floats, no lambdas.

Not found: writes that cancel out, races between launches, an endless loop (it does not return). Not supported:
textures, matrices, kernel templates, threadgroup memory as a parameter, function constants.

Launches may run in several Python threads at once; those of kernels with threadgroup memory take turns when they are of
the same source. Buffers are shared as on a GPU: two launches that write the same one race. A forked child may launch.
Compiled kernels are kept on disk: ``MPSREF_CACHE_DIR`` says where, ``MPSREF_CLANG`` which clang.

Tried on Linux on x86-64; written for macOS and for arm64 too.
"""

from __future__ import annotations

from .. import CompileError, LaunchError
from .device import Buffer, Device, Function, Handle, Kernel
from .flags import unavailable

__all__ = ["Buffer", "CompileError", "Device", "Function", "Handle", "Kernel", "LaunchError", "unavailable"]
