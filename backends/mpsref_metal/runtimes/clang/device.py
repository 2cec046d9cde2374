"""The classes of ``metalcompute`` on the launcher: Device, Kernel, Function, Handle and Buffer."""

from __future__ import annotations

import platform
import zlib
from ctypes import POINTER, byref, cast
from reprlib import repr as shorten
from typing import Any

import numpy as np

from .. import LaunchError
from ..frontend.signature import Signature, bytes_of, device_index, find_kernel, whole
from ..frontend.toolchain import find
from .flags import unavailable
from .launcher import BufferRecord, FaultReport, LaunchRecord, Library, NativeLauncher, compile_source, launcher
from .report import explain

MAX_BYTES = 1 << 46  # larger than the address space of a process


class HostMemory:
    """Guarded memory with the array interface of NumPy; released with the last array that uses it."""

    def __init__(self, runtime: NativeLauncher, nbytes: int) -> None:
        """Allocate; the bytes are zero."""
        self._runtime, self._nbytes = runtime, nbytes
        self._pages, self.address = runtime.allocate(nbytes)
        self.__array_interface__ = {"data": (self.address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        if hasattr(self, "_pages"):
            self._runtime.release(self._pages, self._nbytes)


class Buffer(np.ndarray[Any, np.dtype[np.uint8]]):
    """Device memory as bytes, returned by :meth:`Device.buffer` and shared by kernels and Python.

    ``memoryview(buffer)`` and ``numpy.frombuffer(buffer, dtype)`` are views of the same memory.
    """

    memory: HostMemory | None = None  # None for a slice, which is an ordinary array

    def __str__(self) -> str:
        return f"clang.Buffer(length={self.nbytes})"

    __repr__ = __str__


class Handle:
    """A completed launch: the results are in the buffers."""

    def __init__(self, buffers: list[Buffer]) -> None:
        """Returned by a call of a :class:`Function`."""
        self._buffers = buffers  # kept alive by the handle, as in metalcompute

    def __repr__(self) -> str:
        return "clang.Handle"


class Function:
    """A kernel function of a compiled source, bound to its device."""

    def __init__(self, device: Device, library: Library, name: str) -> None:
        """Returned by :meth:`Kernel.function`."""
        number, about = library.kernels[name]
        buffers = sum(parameter["index"] is not None for parameter in about["parameters"])
        known = library.numbers(f"mpsref_about_{number}", 1 + 2 * buffers)
        self._device, self._library, self._name = device, library, name
        self._signature = signature = Signature.of(about, known)
        signature.check_threads()
        self._threads = signature.threads
        self._record = LaunchRecord(size=self._threads, buffer_count=signature.buffers)
        if about["synchronizes"]:
            self._record.run_thread = library.address(f"mpsref_thread_{number}")
        else:
            self._record.run_group = library.address(f"mpsref_group_{number}")
        self._is_exclusive = about["has_threadgroup_memory"]
        if self._is_exclusive:
            first, end = library.addresses(f"mpsref_local_{number}", 2)
            signature.check_local(end - first)
            self._record.local, self._record.local_bytes = first, end - first
        self._seed = zlib.crc32(f"{device.seed} {name}".encode())

    def __call__(self, count: int, /, *arguments: Any) -> Handle:
        """Run ``count`` threads, rounded up to whole threadgroups, with ``arguments`` as buffers 0, 1, ...

        Raises :class:`LaunchError` for illegal arguments and for undefined behaviour of the kernel.
        """
        groups = self._signature.groups(count, self._threads)
        self._signature.check_arguments(len(arguments))
        buffers = [self._bind(index, argument) for index, argument in enumerate(arguments)]
        records = (BufferRecord * max(len(buffers), 1))()
        for index, (record, buffer) in enumerate(zip(records, buffers, strict=False)):
            record.data, record.bytes = buffer.memory.address, buffer.nbytes  # type: ignore[union-attr]
            record.writable = self._signature.is_written(index)
        launch = LaunchRecord.from_buffer_copy(self._record)
        launch.buffers = cast(records, POINTER(BufferRecord))
        launch.groups, launch.seed = groups, self._seed + count
        launch.check_order = self._device.check_order
        report = FaultReport()
        if self._is_exclusive:
            with self._library.lock:
                self._device.runtime.run(byref(launch), byref(report))
        else:
            self._device.runtime.run(byref(launch), byref(report))
        if report.kind:
            raise LaunchError(explain(report, self._name, self._threads, count, self._signature.parameters, buffers))
        return Handle(buffers)

    def _bind(self, index: int, argument: Any) -> Buffer:
        if isinstance(argument, Buffer) and argument.memory is not None:
            buffer = argument
        else:
            try:
                buffer = self._device.buffer(argument)
            except (TypeError, ValueError) as error:
                raise type(error)(f"buffer({index}) of kernel `{self._name}`: {error}") from None
        self._signature.check_size(index, buffer.nbytes)
        return buffer

    def __str__(self) -> str:
        return f"clang.Function({self._name})"


class Kernel:
    """A compiled source."""

    def __init__(self, device: Device, library: Library) -> None:
        """Returned by :meth:`Device.kernel`."""
        self._device, self._library = device, library

    def function(self, name: str, /) -> Function:
        """Return the kernel function of this name; raise :class:`LaunchError` if there is none."""
        find_kernel(name, self._library.kernels)
        return Function(self._device, self._library, name)

    def __str__(self) -> str:
        return f"clang.Kernel({', '.join(self._library.kernels)})"


class Device:
    """The CPU as a device for MSL kernels.

    Parameters
    ----------
    index : int, optional
        Index of the device as in metalcompute: -1 (default) or 0, the only device.
    check_order : bool, optional
        Whether each launch runs twice, with threads and threadgroups in an order and in the reverse order, from the
        same buffer contents, with results that must be bitwise equal. Disable it for kernels with a result that
        depends on the order (for example, slots allocated with an atomic counter), or to halve the time.
    seed : int, optional
        Selects the order.

    Examples
    --------
    >>> device = Device()
    >>> square = device.kernel('''
    ... #include <metal_stdlib>
    ... kernel void square(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
    ...                    constant uint& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    ...     if (i < n) y[i] = x[i] * x[i];
    ... }''').function("square")
    >>> x = np.array([1, 2, 3], np.float32)
    >>> y = device.buffer(x.nbytes)
    >>> handle = square(3, x, y, np.uint32(3))
    >>> del handle
    >>> np.frombuffer(y, np.float32)
    array([1., 4., 9.], dtype=float32)
    """

    def __init__(self, index: int = -1, /, *, check_order: bool = True, seed: int = 0) -> None:
        """Open the device; raise :class:`LaunchError` if there is no clang."""
        device_index(index, 1)
        if not isinstance(check_order, (bool, np.bool_)):
            raise TypeError(f"check_order is of type {type(check_order).__name__}; it is True or False")
        whole("seed", seed, "a seed")
        reason = unavailable()
        toolchain = find()
        if reason or toolchain is None:
            raise LaunchError(reason)
        self.check_order, self.seed = bool(check_order), seed
        self.name = f"{toolchain.name} on {platform.machine()}"
        self.runtime = launcher(toolchain)
        self._toolchain = toolchain
        self._kernels: dict[str, Kernel] = {}

    def kernel(self, source: str, /) -> Kernel:
        """Compile MSL, or return the kernel cached for the source; raise :class:`CompileError` if it is illegal."""
        if not isinstance(source, str):
            raise TypeError(f"the source is a string, not {type(source).__name__}")
        kernel = self._kernels.get(source)
        if kernel is None:
            kernel = self._kernels[source] = Kernel(self, compile_source(self._toolchain, source))
        return kernel

    def buffer(self, length_or_data: Any, /) -> Buffer:
        """Allocate zeroed memory of a length in bytes, or memory with a copy of the bytes of an object.

        A NumPy scalar, which has the buffer protocol and an integer value, is copied.
        """
        source = bytes_of(length_or_data)
        nbytes = source if isinstance(source, int) else source.nbytes
        if not 0 < nbytes < MAX_BYTES:
            raise LaunchError(f"a buffer of {shorten(nbytes)} bytes: legal sizes are 1 to {MAX_BYTES - 1} bytes")
        try:
            memory = HostMemory(self.runtime, nbytes)
        except MemoryError as error:
            raise LaunchError(str(error)) from None
        buffer = np.asarray(memory).view(Buffer)
        buffer.memory = memory
        if not isinstance(source, int):
            buffer[:] = source
        return buffer

    def __str__(self) -> str:
        return f"clang.Device({self.name})"
