"""Run MSL kernels on an NVIDIA GPU: clang writes PTX, the driver runs it, and no CUDA toolkit takes part.

See :class:`Device` for an example. What a launch does, in addition to running the kernel:

- The grid is rounded up to whole threadgroups and the surplus threads run. The size of a threadgroup is the kernel's
  ``[[max_total_threads_per_threadgroup(N)]]``, else 256, or fewer where the kernel's registers do not allow so many.
- Buffers are :class:`Array`, C-contiguous memory of the device; anything else with the buffer protocol is copied there,
  a small one only once. Arrays of CuPy, PyTorch and JAX are used in place (:meth:`Device.adopt`).
- Sources are checked as Apple's compiler would, as the clang runtime does.
- Launches and copies of a thread follow each other in its stream and return at once. A fault of a kernel (an access
  outside all memory, say) is an error of the first call that waits: it names the kernel, or the kernels that ran since
  the wait before, and the CUDA context of the process is lost with it.
- A SIMD group is a warp. All its threads that have not returned must take part in a simdgroup function; the clang
  runtime allows a part of them.

Not found, where the clang runtime finds it: accesses outside a buffer that stay inside other memory, races, barriers
that only some threads reach (which do not return). Run kernels there first.

Threads may launch at once. A child of fork may use CUDA if its parent had not; the error says so where it had.
Compiled kernels are kept on disk, next to those of the clang runtime: ``MPSREF_CACHE_DIR`` says where, ``MPSREF_CLANG``
which clang, ``MPSREF_LIBDEVICE`` which library of device functions.
"""

from __future__ import annotations

from .. import CompileError, LaunchError
from .array import Array
from .device import Arrays, Device, Function, Handle, Kernel, current_device, open_device, scope
from .driver import unavailable

Buffer = Array
arrays = Arrays()

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
    "scope",
    "unavailable",
]
