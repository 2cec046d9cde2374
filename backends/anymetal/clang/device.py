"""The classes of ``metalcompute`` on the launcher: Device, Kernel, Function, Handle and Buffer."""

from __future__ import annotations

import math
import os
import platform
import zlib
from collections.abc import Sequence
from contextlib import nullcontext
from ctypes import POINTER, byref, cast
from reprlib import repr as shorten
from typing import Any

import numpy as np

from .. import LaunchError
from ..frontend.options import Options
from ..frontend.signature import Extent, Signature, bytes_of, device_index, find_kernel, whole
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
        self._record = LaunchRecord(buffer_count=signature.buffers)
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
        signature = self._signature
        signature.check_threads()
        size = signature.threads
        groups = signature.groups(count, size)
        return self._launch((groups * size, 1, 1), (size, 1, 1), f"count={count}", count, arguments)

    def dispatch(
        self, threads: int | Sequence[int], /, *arguments: Any, threadgroup: int | Sequence[int] | None = None
    ) -> Handle:
        """Run exactly ``threads`` threads, as Metal's ``dispatchThreads``, with ``arguments`` as buffers 0, 1, ...

        Parameters
        ----------
        threads : int or sequence of int
            The threads of the grid along one to three axes. Threadgroups at its end have fewer threads.
        *arguments : object
            The buffers, as for a call.
        threadgroup : int or sequence of int, optional
            The threads of a threadgroup, at most the kernel's ``[[max_total_threads_per_threadgroup(N)]]``, else 1024.
            The default is as many along the first axis.

        Raises
        ------
        LaunchError
            For illegal arguments and for undefined behaviour of the kernel.
        """
        grid, width = self._signature.grid(threads, threadgroup)
        return self._launch(grid, width, f"threads={threads}", math.prod(grid), arguments)

    def _launch(self, grid: Extent, width: Extent, wanted: str, count: int, arguments: tuple[Any, ...]) -> Handle:
        self._signature.check_arguments(len(arguments))
        groups = tuple(-(-threads // size) for threads, size in zip(grid, width, strict=True))
        buffers = [self._bind(index, argument) for index, argument in enumerate(arguments)]
        runtime = self._device.runtime
        records = (BufferRecord * max(len(buffers), 1))()
        for index, (record, buffer) in enumerate(zip(records, buffers, strict=False)):
            record.data, record.bytes = buffer.memory.address, buffer.nbytes  # type: ignore[union-attr]
            record.writable = self._signature.is_written(index)
        launch = LaunchRecord.from_buffer_copy(self._record)
        launch.buffers = cast(records, POINTER(BufferRecord))
        launch.grid[:], launch.width[:], launch.groups[:] = grid, width, groups
        launch.seed = self._seed + count
        launch.check_order = self._device.check_order
        report = FaultReport()
        try:
            if self._device.check_order:
                for record in records[: len(buffers)]:
                    record.copy, _ = runtime.take(record.bytes)
            with self._library.lock if self._is_exclusive else nullcontext():
                runtime.run(byref(launch), byref(report))
        except MemoryError as error:
            raise LaunchError(str(error)) from None
        finally:
            for record in records[: len(buffers)]:
                if record.copy:
                    runtime.release(record.copy, record.bytes)
        if report.kind:
            number, size = math.prod(groups), math.prod(width)
            shape = f"{wanted} runs {math.prod(grid)} threads, {number} threadgroups of {size}"
            raise LaunchError(explain(report, self._name, size, shape, self._signature.parameters, buffers))
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
        self._kernels: dict[tuple[str, Options], Kernel] = {}

    def kernel(
        self,
        source: str,
        /,
        *,
        version: str = "2.3",
        include: Sequence[str | os.PathLike[str]] = (),
        fast_math: bool = True,
    ) -> Kernel:
        """Compile MSL, or return the kernel cached for the source; raise :class:`CompileError` if it is illegal.

        Parameters
        ----------
        source : str
            The MSL text.
        version : {"2.3", "2.4", "3.0", "3.1", "3.2"}, optional
            The version of MSL.
        include : sequence of path, optional
            Folders of files that the source includes; other files are refused.
        fast_math : bool, optional
            Whether NaNs, infinities, signed zeros and the order of operations may be ignored.
        """
        if not isinstance(source, str):
            raise TypeError(f"the source is a string, not {type(source).__name__}")
        options = Options.of(version, include, fast_math)
        kernel = self._kernels.get((source, options))
        if kernel is None:
            kernel = Kernel(self, compile_source(self._toolchain, source, options))
            self._kernels[source, options] = kernel
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
