"""Run MSL kernels on the CPU, compiled with clang, with checks for undefined behaviour.

See :class:`Device` for an example. A launch has these properties:

- The grid of a call is rounded up to whole threadgroups and the surplus threads run. The size of a threadgroup is the
  kernel's ``[[max_total_threads_per_threadgroup(N)]]``, else 1024. :meth:`Function.dispatch` runs an exact grid,
  :meth:`Function.dispatch_threadgroups` whole threadgroups of any size.
- Threadgroups run in a shuffled order. In each, one simdgroup after another, and in it one thread after another, runs
  to its next threadgroup barrier. All runs again in the reverse orders with the same buffer contents; results that are
  not bitwise equal are an error (``Device(check_order=False)`` runs once).
- An access outside a buffer is an error with the buffer and the offset. In the padding at the end of a buffer (usually
  up to 15 bytes, at most 31), reads return NaN, and writes are detected after the launch. Of the reads before a buffer,
  those in its first page are detected by the second run alone.
- An index outside an array of known size is an error with its line. Threadgroup memory is initialized with NaN, and
  that of a parameter is guarded like a buffer.
- Barriers and simdgroup functions (32 threads) synchronize threads. A barrier that some threads of a threadgroup do not
  reach is an error.
- A launch that takes more than 60 seconds of processor time (``ANYMETAL_LAUNCH_SECONDS``) is stopped, and so is one in
  the main thread at an interrupt from the keyboard.
- Sources are checked for rules of Apple's compiler: address spaces, no ``double``, and what the version of MSL lacks.

Not detected: races with the same result in both orders (writes that cancel out or repeat a value, lost updates that
commute), flags of a barrier that are too weak, races between launches. Textures, samplers, ray tracing and
tensors as parameters are not supported; messages of ``os_log`` are printed to stderr; vertex, fragment and other render
functions of a source are ignored.

Launches from several Python threads run concurrently, except those of a kernel with threadgroup variables. Concurrent
launches that write the same buffer race, as on a GPU. A child of fork can launch kernels. Compiled kernels are cached
in ``ANYMETAL_CACHE_DIR``; ``ANYMETAL_CLANG`` selects the clang.

Tested on Linux on x86-64; intended for macOS and arm64 as well.
"""

from __future__ import annotations

from ..frontend.signature import At
from ..interface import CompileError, LaunchError
from .device import Buffer, Device, Function, Handle, Kernel
from .flags import unavailable

__all__ = ["At", "Buffer", "CompileError", "Device", "Function", "Handle", "Kernel", "LaunchError", "unavailable"]
