"""Run MSL kernels on an NVIDIA GPU, compiled to PTX with clang, without a CUDA toolkit.

See :class:`Device` for an example. A launch has these properties:

- The grid of a call is rounded up to whole threadgroups and the surplus threads run; ``dispatch`` runs exact grids. The
  size of a threadgroup of a call is the kernel's
  ``[[max_total_threads_per_threadgroup(N)]]``, else 256, or fewer if the registers of the kernel require it.
- Buffers are C-contiguous arrays of class :class:`Array`. Other objects with the buffer protocol are copied to the
  device; copies of small read-only ones are cached. Arrays of CuPy, PyTorch and JAX are used in place
  (:meth:`Device.adopt`).
- Sources are checked for rules of Apple's compiler, as in the clang runtime.
- Launches and copies of a thread are asynchronous and ordered in the stream of the thread. A fault of a kernel (such as
  an illegal address) raises in the first call that waits, with the kernel or the kernels that were launched since the
  previous wait; the CUDA context of the process is lost.
- A SIMD group is a warp. All of its active threads must execute a simdgroup function, which the clang runtime does not
  require.

Not detected, in contrast to the clang runtime: accesses outside a buffer but inside other allocated memory, races, and
divergent barriers (which do not return). Run kernels in the clang runtime first.

Threads can launch concurrently. A child of fork can use CUDA only if its parent has not used it; otherwise it raises.
Compiled kernels are cached in ``ANYMETAL_CACHE_DIR``; ``ANYMETAL_CLANG`` selects the clang, ``ANYMETAL_LIBDEVICE`` the
file of libdevice.
"""

from __future__ import annotations

from ..interface import CompileError, LaunchError
from .array import Array
from .device import Device, Function, Handle, Kernel, current_device, open_device, scope
from .driver import unavailable
from .recording import RepeatedArrays, recorded

Buffer = Array
arrays = RepeatedArrays()

__all__ = [
    "Array",
    "Buffer",
    "CompileError",
    "Device",
    "Function",
    "Handle",
    "Kernel",
    "LaunchError",
    "arrays",
    "current_device",
    "open_device",
    "recorded",
    "scope",
    "unavailable",
]
