"""Runs Metal Shading Language on the GPU of a Mac with Apple silicon, through the package `metalcompute`::

    dev = Device()
    f = dev.kernel(source).function("name")
    out = dev.buffer(nbytes)
    f(count, in_array, out)                 # blocks until the GPU has finished
    result = numpy.frombuffer(out, "float32")

Arguments are bound to `[[buffer(0)]]`, `[[buffer(1)]]`, ... in order. An input may be anything that exports
C-contiguous memory (it is copied); whatever the kernel writes must come from `dev.buffer`. Scalars travel in
such memory too: as a NumPy scalar, or in a structured array that the kernel reads as a `constant` struct.

The grid has one dimension. It is rounded up to whole threadgroups, so **threads with an index of `count` and
above do run**, and the kernel is not told `count`: pass it in the struct and compare. A threadgroup is as
large as the compiled kernel allows, rounded down to a multiple of the SIMD width (32);
`[[max_total_threads_per_threadgroup(N)]]` on the kernel fixes it, where N must be a multiple of 32.
The language version is 2.3, and fast math is on; the package has no switch for either.

What this module adds to the package (0.2.9), and why:

- A call returns when the GPU has finished, and no second one starts before. The package waits only when its
  handle is dropped, and its list of running launches is not protected against two of them.
- One device object serves the process, since buffers of one are not known to another. Kernels and functions
  are cached by source and name. (The pipeline is built at every launch in any case.)
- Python numbers are refused as arguments: the package takes one for a length and binds that many zero bytes.
  NumPy integers are refused as lengths: the package takes one for memory and makes a buffer of 8 bytes.
- Empty buffers and a count of zero are refused. All errors are `CompileError`, `LaunchError` (both ValueError)
  or TypeError.

What it does not add: the package never looks at the status of a launch, so after a fault on the GPU an output
buffer holds what it held before. Fill outputs with NaN before the launch where that must not pass for a result;
new buffers are zero. While a call waits it holds Python's global lock, so other threads wait too; and each call
leaves a small record of its launch behind for the life of the process.

Importing this module imports nothing of the package; `unavailable()` says whether it can be used.
"""

from __future__ import annotations

import platform
import sys
import threading
from functools import cache, lru_cache
from operator import index
from reprlib import repr as shorten
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from mpsref_metal.runtimes import CompileError, LaunchError

MAX_BUFFERS = 31
"""Entries of Metal's buffer argument table."""

MAX_COUNT = 2**32 - 1024
"""Largest count whose grid, rounded up to whole threadgroups, still has 32-bit thread positions."""

_INSTEAD = 'backend="metal:clang" runs the same kernels on this machine\'s CPU'
_one_launch_at_a_time = threading.Lock()


def unavailable() -> str | None:
    """None if there is an Apple GPU to use, else one sentence: what is missing, and what to do instead."""
    if _machine() != "darwin arm64":
        return f"the metal runtime needs macOS on Apple silicon, and this is {_machine()}; {_INSTEAD}"
    try:
        package = _package()
    except ImportError as problem:
        return f'cannot import metalcompute ({problem}): pip install "mpsref[metal]"; or else {_INSTEAD}'
    if not package.get_devices():
        return f"metalcompute finds no Metal device on this machine; {_INSTEAD}"
    return None


class Device:
    """The default Metal device; all objects of this class stand for the same one.

    Raises LaunchError with the sentence of `unavailable` where there is none.
    """

    def __init__(self) -> None:
        """Open the device, or return to it."""
        reason = unavailable()
        if reason is not None:
            raise LaunchError(reason)
        self._package = _package()
        self._native = _open(self._package)

    def __str__(self) -> str:
        """Name of the GPU, as in `metalcompute.Device(Apple M1)`."""
        return str(self._native)

    def kernel(self, source: str) -> Kernel:
        """Compile MSL text. Raises CompileError with the compiler's messages."""
        if not isinstance(source, str):
            raise TypeError(f"source is MSL text, a str; got {type(source).__name__}")
        try:
            return Kernel(self, _compile(self._native, source))
        except self._package.error as problem:
            raise CompileError(str(problem)) from problem

    def buffer(self, length_or_data: Any, /) -> Any:
        """Memory that CPU and GPU share: so many bytes, or a copy of the bytes of an array or the like.

        New bytes are zero. The object that comes back exports its memory (`memoryview`, `numpy.frombuffer`) and
        does nothing else. Raises LaunchError for what is empty, not C-contiguous, or more than the device has.
        """
        if isinstance(length_or_data, np.integer):
            raise TypeError(
                f"{length_or_data!r} is both a number and {length_or_data.nbytes} bytes of memory; "
                "pass int(n) for a length, or an array for its contents"
            )
        if isinstance(length_or_data, int):
            length = _whole("length", length_or_data, "size in bytes", 2**63 - 1)
            return self._allocate(length, length)
        data = _exported("data", length_or_data)
        return self._allocate(data, data.nbytes)

    def _allocate(self, length_or_data: Any, length: int) -> Any:
        try:
            return self._native.buffer(length_or_data)
        except self._package.error as problem:
            raise LaunchError(f"{self} cannot allocate {length} bytes: {problem}") from problem


class Kernel:
    """Compiled MSL text: a library of functions."""

    def __init__(self, device: Device, native: Any) -> None:
        """What `Device.kernel` returns; not made otherwise."""
        self._device = device
        self._native = native

    def function(self, name: str) -> Function:
        """The `kernel` function of that name. Raises LaunchError where there is none."""
        if not isinstance(name, str):
            raise TypeError(f"name is the name of a kernel function, a str; got {type(name).__name__}")
        try:
            return Function(self._device, name, _link(self._native, name))
        except self._device._package.error as problem:
            raise LaunchError(f"name={name!r}: no kernel function of that name in the source") from problem


class Function:
    """A kernel function; calling it runs it."""

    def __init__(self, device: Device, name: str, native: Any) -> None:
        """What `Kernel.function` returns; not made otherwise."""
        self._device = device
        self._name = name
        self._native = native

    def __call__(self, count: SupportsIndex, *buffers: Any) -> None:
        """Run at least `count` threads and wait; the grid is rounded up to whole threadgroups."""
        threads = _whole("count", count, "number of threads", MAX_COUNT)
        if not 1 <= len(buffers) <= MAX_BUFFERS:
            raise LaunchError(f"{self._name} got {len(buffers)} buffers; Metal takes 1 to {MAX_BUFFERS}")
        arguments = [self._argument(position, value) for position, value in enumerate(buffers)]
        with _one_launch_at_a_time:
            try:
                self._native(threads, *arguments)  # the handle is dropped, which waits
            except self._device._package.error as problem:
                # The package's texts for launch errors are one off: a pipeline that cannot be built, say
                # for want of threadgroup memory, is reported as "Cannot create command encoder".
                raise LaunchError(f"{self._device} did not accept a launch of {self._name}: {problem}") from problem

    def _argument(self, position: int, value: Any) -> Any:
        """What to hand to the package for `[[buffer(position)]]`."""
        if type(value) is _buffer_type(self._device._native):
            return value
        return _exported(f"buffer({position}) of {self._name}", value)


def _exported(what: str, value: Any) -> NDArray[np.uint8]:
    """The bytes of an object that exports C-contiguous memory.

    As an array, since the package first tries `int()` on whatever it gets: that copies and parses all of a
    `bytes` or `memoryview` object, but fails at once for an array.
    """
    try:
        view = memoryview(value)
    except (TypeError, ValueError):  # ValueError: an array of a dtype that has no format code
        raise TypeError(
            f"{what} exports no memory: {shorten(value)}, of type {type(value).__name__}; "
            "pass scalars as NumPy scalars or in a structured array"
        ) from None
    if not view.c_contiguous:
        raise LaunchError(f"{what} is not C-contiguous; use numpy.ascontiguousarray")
    if view.nbytes == 0:
        raise LaunchError(f"{what} is empty, and Metal has no empty buffers; answer without a launch")
    return np.frombuffer(value, np.uint8)


def _whole(parameter: str, value: SupportsIndex, meaning: str, maximum: int) -> int:
    """An integer from 1 to maximum; NumPy integers become Python's, since the package reads them as memory."""
    try:
        if isinstance(value, bool):
            raise TypeError
        whole = index(value)
    except TypeError:
        raise TypeError(f"{parameter} is a {meaning}, an integer; got {value!r}") from None
    if not 1 <= whole <= maximum:
        raise LaunchError(
            f"{parameter}={whole}: a {meaning} lies in [1, {maximum}]; answer empty problems without a launch"
        )
    return whole


def _machine() -> str:
    return f"{sys.platform} {platform.machine()}"


def _package() -> Any:
    import metalcompute  # the package: imports are absolute

    return metalcompute


@cache
def _open(package: Any) -> Any:
    return package.Device()


@cache
def _buffer_type(native_device: Any) -> type:
    return type(native_device.buffer(1))  # the package does not export it by name


@lru_cache(maxsize=256)
def _compile(native_device: Any, source: str) -> Any:
    return native_device.kernel(source)


@lru_cache(maxsize=1024)
def _link(native_kernel: Any, name: str) -> Any:
    return native_kernel.function(name)
