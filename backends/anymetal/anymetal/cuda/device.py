"""The classes of the runtime: Device, Kernel, Function and Handle."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from reprlib import repr as shorten
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..frontend.kernels import Kernel as KernelSource
from ..frontend.options import Options
from ..frontend.program import Constants, Program, checked
from ..frontend.signature import (
    At,
    Extent,
    Record,
    Signature,
    bytes_of,
    device_index,
    find_kernel,
    indirect,
    lengths_of,
)
from ..frontend.toolchain import find
from ..interface import LaunchError
from . import driver
from .array import CUDA, Array
from .driver import Context, Explained
from .memory import SMALL, Block, DeviceTables, Memory, Pinned, copy, out_of_memory
from .ptx import OVERLAPPING, Compiled, compile_kernel, libdevice

MAX_BYTES = 1 << 46
USUAL_THREADS = 256
"""Default number of threads of a threadgroup; fewer if the registers of the kernel require it."""

MOST_GROUPS = (2**31 - 1, 65535, 65535)
"""Maximum numbers of threadgroups of a launch, along each axis."""

MOST_DEEP = 64
"""Maximum number of threads of a threadgroup along its third axis."""

LEGACY = 1
"""The address of the default stream, which other libraries use unless told otherwise."""

CALLS = 5
"""Number of calls that are measured together."""

LEAD_BYTES, FASTEST_COPY = 1 << 30, 5e12
"""Bytes that a copy before the measured calls reads and writes, and the fastest rate of copies, in bytes a second."""

_NOTHING: AbstractContextManager[None] = contextlib.nullcontext()
_contexts: dict[int, Context] = {}
_compiling = threading.RLock()


class Recorder(Protocol):
    """The interface of a recorder of launches and copies."""

    def launched(self, name: str, kernel: Any, config: Any, arrays: Sequence[Array]) -> None:
        """Record a launch."""

    def allocated(self, memory: Memory) -> None:
        """Record an allocation."""

    def uploaded(self, memory: Memory) -> None:
        """Record an allocation with constant contents."""

    def copied(self, source: Array, target: Array) -> None:
        """Record a copy on the device."""

    def set(self, array: Array, value: int) -> None:
        """Record that all bytes of an array are set."""

    def invalidate(self) -> None:
        """Record that values were read."""


AnyRecorder = TypeVar("AnyRecorder", bound=Recorder)


class Handle:
    """A launch that may still be running. Reads of its results are ordered after it."""

    def __init__(self, device: Device, arrays: list[Array]) -> None:
        """Returned by a call of a :class:`Function`."""
        self._device, self._arrays = device, arrays

    def wait(self) -> None:
        """Wait for the launch; raise :class:`LaunchError` for a fault."""
        self._device.finish()

    def __repr__(self) -> str:
        return "cuda.Handle"


def parts(grid: Extent, width: Extent) -> Iterator[tuple[Extent, Extent, Extent]]:
    """Yield the launches of an exact grid: the first threadgroup, their numbers, and the threads of each of them.

    Examples
    --------
    >>> list(parts((10, 2, 1), (4, 2, 1)))
    [((0, 0, 0), (2, 1, 1), (4, 2, 1)), ((2, 0, 0), (1, 1, 1), (2, 2, 1))]
    """
    axes = list[list[tuple[int, int, int]]]()
    for threads, size, most in zip(grid, width, MOST_GROUPS, strict=True):
        full, rest = divmod(threads, size)
        starts = range(0, full, most)
        axes.append([(i, min(most, full - i), size) for i in starts] + ([(full, 1, rest)] if rest else []))
    for x, y, z in itertools.product(*axes):
        yield (x[0], y[0], z[0]), (x[1], y[1], z[1]), (x[2], y[2], z[2])


class Form(NamedTuple):
    """A kernel in the driver, for whole threadgroups or for exact grids."""

    kernel: Any
    most: int
    """The threads of a threadgroup that its registers allow."""
    shared: int
    """The bytes of its threadgroup variables."""


class Function:
    """A kernel function of a compiled source, bound to its device."""

    def __init__(
        self, device: Device, kernel: KernelSource, compiled: Callable[[bool], Compiled], is_exact: bool
    ) -> None:
        """Returned by :meth:`Kernel.function`; ``compiled`` returns the PTX for whole threadgroups or exact grids."""
        self.device, self.name, self._compiled = device, (name := kernel.name), compiled
        about = compiled(is_exact).about
        images = about.get("images", ()), about.get("image_bindings", ())
        self.signature = Signature.of(kernel, about["threads"], about["about"], about["bindings"], (), *images)
        if any(known.is_array or known.members for known in kernel.bindings):
            raise LaunchError(
                f"kernel `{name}` has an array of buffers, a struct with pointers or a tensor as a parameter, which "
                "the cuda runtime does not support: the clang runtime does"
            )
        self._is_fixed, self._forms, self._slots = kernel.names_threads, dict[bool, Form](), kernel.slots
        form = self._form(is_exact)
        self.variable_bytes = form.shared
        self.threads = self.signature.threads if self._is_fixed else min(USUAL_THREADS, form.most // 32 * 32)

    def _form(self, is_exact: bool) -> Form:
        """Return the kernel for whole threadgroups or for exact grids, loaded at its first use."""
        if is_exact not in self._forms:
            device, name, threads = self.device, self.name, self.signature.threads
            self.signature.check_limits(self._compiled(is_exact).about["shared"])  # the driver's words name no limit
            with device.active(), Explained(device.context, "kernel `{}` cannot be loaded", name):
                compiled = self._compiled(is_exact)
                for text in dict.fromkeys((compiled.text, compiled.relaxed)):
                    kernel = driver.core().ObjectCode.from_ptx(text).get_kernel("anymetal_thread")
                    if not kernel.attributes.local_size_bytes:
                        break
                form = Form(kernel, kernel.attributes.max_threads_per_block, kernel.attributes.shared_size_bytes)
            self.signature.check_local(form.shared)
            if self._is_fixed and threads > form.most:
                raise LaunchError(
                    f"kernel `{name}` has max_total_threads_per_threadgroup({threads}); its registers allow "
                    f"{form.most}: name at most as many"
                )
            self._forms[is_exact] = form
        return self._forms[is_exact]

    def __call__(self, count: int, /, *arguments: Any) -> Handle:
        """Run ``count`` threads, rounded up to whole threadgroups, with ``arguments`` as buffers 0, 1, ...

        An argument is an :class:`Array` in C order, or an object with the buffer protocol, which is copied to the
        device. The launch is ordered in the stream of the thread. Raises :class:`LaunchError` for illegal arguments.
        """
        device, signature = self.device, self.signature
        signature.check_threads()
        signature.groups(count, self.threads)
        signature.check_arguments(len(arguments))
        if signature.locals:
            signature.check_lengths(0, {})
        kernel = self._form(False).kernel
        with device.active(), Explained(device.context, "kernel `{}` cannot be launched", self.name):
            stream = device.stream
            arrays = [self._bind(index, argument) for index, argument in enumerate(arguments)]
            arrays += arrays[:1] * (self._slots - len(arrays))  # indices that no parameter has
            for array in arrays:
                array.memory.use_on(stream)
            config = self._launch(stream, kernel, count, [array.address for array in arrays])
        if (recorder := current_recorder()) is not None:
            recorder.launched(self.name, kernel, config, arrays)
        return Handle(device, arrays)

    def dispatch(
        self,
        threads: int | Sequence[int],
        /,
        *arguments: Any,
        threadgroup: int | Sequence[int] | None = None,
        local: Mapping[int, int] | None = None,
        seconds: float | None = None,
    ) -> Handle:
        """Run exactly these threads, as Metal's ``dispatchThreads``; the arguments are those of the clang runtime.

        Threadgroups at the end of the grid that have fewer threads are a launch of their own. There is no limit of
        time: ``seconds`` must be None.
        """
        signature = self._exact()
        grid, width = signature.grid(threads, threadgroup)
        return self._dispatch(signature, grid, width, arguments, local, seconds)

    def dispatch_threadgroups(
        self,
        groups: Any,
        /,
        *arguments: Any,
        threadgroup: int | Sequence[int],
        local: Mapping[int, int] | None = None,
        seconds: float | None = None,
    ) -> Handle:
        """Run whole threadgroups, as Metal's ``dispatchThreadgroups``.

        ``groups`` may be an :class:`Array`, or ``anymetal.at(array, offset)``, with three numbers of dtype uint32: they
        are copied to the host.
        """
        if isinstance(groups, (Array, At)):
            buffer, offset, _ = At.of(groups)
            groups = indirect(At(np.asarray(buffer), offset))
            if 0 in groups:
                return Handle(self.device, [])
        signature = self._exact()
        grid, width = signature.whole_grid(groups, threadgroup)
        return self._dispatch(signature, grid, width, arguments, local, seconds)

    def _exact(self) -> Signature:
        """Return the signature with as many threads as the registers allow."""
        return self.signature._replace(threads=min(self.signature.threads, self._form(True).most))

    def _dispatch(
        self, signature: Signature, grid: Extent, width: Extent, arguments: Sequence[Any],
        local: Mapping[int, int] | None, seconds: float | None,
    ) -> Handle:  # fmt: skip
        device, lengths = self.device, lengths_of(local)
        if seconds is not None:
            raise LaunchError(
                f"seconds={shorten(seconds)}: the cuda runtime has no limit of time; the clang runtime has"
            )
        if width[2] > MOST_DEEP:
            raise LaunchError(
                f"threadgroup={width}: an NVIDIA GPU runs at most {MOST_DEEP} threads along the third axis; use the "
                "clang runtime, or fewer"
            )
        signature.check_arguments(len(arguments))
        signature.check_lengths(self._form(True).shared, lengths)
        offsets = [sum(lengths[k] for k in lengths if k < index) for index in range(max(lengths, default=-1) + 1)]
        kernel, groups = self._form(True).kernel, [-(-n // size) for n, size in zip(grid, width, strict=True)]
        with device.active(), Explained(device.context, "kernel `{}` cannot be launched", self.name):
            stream = device.stream
            texels = list[Array]()
            given = [
                self._table(one, texels) if isinstance(one, Record) else self._bind(index, one)
                for index, one in enumerate(arguments)
            ]
            for array in texels:
                array.memory.use_on(stream)
            for first, counts, extent in parts(grid, width):
                part = device.array(np.array([*grid, *width, *groups, *first, *offsets], np.uint32), read_only=True)
                arrays = [*given, *[part] * (self._slots - len(given)), part]  # some indices may have no parameter
                for array in arrays:
                    array.memory.use_on(stream)
                config = device.configuration(counts, extent, sum(lengths.values()))
                self.launch(stream, kernel, config, [array.address for array in arrays])
                if (recorder := current_recorder()) is not None:
                    recorder.launched(self.name, kernel, config, arrays)
        return Handle(device, [*given, *texels])

    def _table(self, record: Record, texels: list[Array]) -> Array:
        """Return the table of the textures, which are appended to ``texels``, with their addresses."""
        data = np.frombuffer(record.data, np.uint8).copy()
        for at, pointer in record.pointers.items():
            if pointer.target.is_undefined:
                what = f"{pointer.name} of kernel `{self.name}`"
                raise LaunchError(f"{what}: undefined() is for the checks of the clang runtime; pass the array alone")
            texels.append(pointer.target.buffer)
            data[at : at + 8] = np.array([texels[-1].address], np.uint64).view(np.uint8)
        return self.device.array(data, read_only=True)

    def _bind(self, index: int, given: Any) -> Array:
        what = f"buffer({index}) of kernel `{self.name}`"
        argument, offset, is_undefined = At.of(given)
        if is_undefined:
            raise LaunchError(f"{what}: undefined() is for the checks of the clang runtime; pass the array alone")
        try:
            if isinstance(argument, Array):
                array = argument
                if array.device.index != self.device.index:
                    raise LaunchError(f"the array is on device {array.device.index}, the kernel on {self.device.index}")
                if not array.is_contiguous:
                    raise LaunchError("the array is not C-contiguous: pass array.copy()")
            else:
                array = self.device.buffer(argument, read_only=not self.signature.is_written(index))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{what}: {error}") from None
        if offset:
            known = self.signature.parameters.get(index)
            self.signature.check_offset(f"buffer({index})", offset, known.alignment if known else 1, array.nbytes)
            array = array.reshape(-1).view(np.uint8)[offset:]
        self.signature.check_size(index, array.nbytes)
        return array

    def launch(self, stream: Any, kernel: Any, config: Any, addresses: Sequence[int]) -> None:
        """Run a grid, in a stream, with buffers at these addresses."""
        self.device.context.launched(self.name)
        driver.core().launch(stream, config, kernel, *addresses)

    def _launch(self, stream: Any, kernel: Any, count: int, addresses: Sequence[int]) -> Any:
        """Run ``count`` threads; return the grid."""
        while True:
            config = self.device.configuration(self.signature.groups(count, self.threads), self.threads)
            try:
                self.launch(stream, kernel, config, addresses)
                return config
            except Exception as problem:
                if driver.code_of(problem) != driver.NO_RESOURCES or self._is_fixed or self.threads <= 32:
                    raise
                self.threads = self.threads // 2 // 32 * 32

    def __str__(self) -> str:
        return f"cuda.Function({self.name})"


class Kernel:
    """A checked source; each of its functions is compiled at its first use."""

    def __init__(self, device: Device, program: Program, options: Options) -> None:
        """Returned by :meth:`Device.kernel`."""
        self._device, self.program, self._options = device, program, options
        self._functions: dict[tuple[str, ...], Function] = {}

    def function(self, name: str, /, *, constants: Constants | None = None, is_exact: bool = False) -> Function:
        """Return the kernel function of this name, as in the clang runtime; with ``is_exact`` it is for `dispatch`.

        The kernel for whole threadgroups and that for exact grids are compiled at their first use.
        """
        kernel, values = find_kernel(name, self.program.kernels), self.program.values(constants or {})
        is_exact |= any(known.kind == "threadgroup" for known in kernel.bindings)
        key = name, *(f"{one}={value}" for one, value in sorted(values.items()))

        @functools.cache
        def compiled(is_exact: bool) -> Compiled:
            with _compiling:
                return self._device.compiled(self.program, kernel, self._options, values, is_exact)

        if key not in self._functions:
            self._functions[key] = Function(self._device, kernel, compiled, is_exact)
        return self._functions[key]

    def __str__(self) -> str:
        return f"cuda.Kernel({', '.join(self.program.kernels)})"


class Device:
    """An NVIDIA GPU as a device for MSL kernels; ``index`` counts the devices in ``CUDA_VISIBLE_DEVICES``.

    Copies and launches of a thread are ordered in a stream of the thread, or in the stream of the innermost :meth:`on`.
    If an array was last used in another stream, its next use waits for that stream.

    ``checks`` is False: kernels run without the checks of the clang runtime.

    Examples
    --------
    Requires a GPU::

        device = Device()
        square = device.kernel('''
        #include <metal_stdlib>
        kernel void square(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                           constant uint& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
            if (i < n) y[i] = x[i] * x[i];
        }''').function("square")
        x = np.array([1, 2, 3], np.float32)
        y = device.buffer(x.nbytes)
        square(3, x, y, np.uint32(3))
        np.asarray(y.view("f4"))  # array([1., 4., 9.], dtype=float32)
    """

    checks = False

    def __init__(self, index: int = -1, /) -> None:
        """Open the device; raise :class:`LaunchError` if there is no device or no compiler."""
        reason = driver.unavailable()
        toolchain, library = find(), libdevice()
        if reason or toolchain is None or library is None:
            raise LaunchError(reason)
        known = len(driver.core().Device.get_all_devices())
        self.index = device_index(index, known)
        native = driver.core().Device(self.index)
        self.capability, self.name = tuple(native.compute_capability), native.name
        self.context = _contexts.setdefault(self.index, Context())
        self._toolchain, self._library = toolchain, library
        self._kernels: dict[tuple[Options, tuple[str, ...]], Kernel] = {}
        self._streams: dict[int, Any] = {}
        self._pinned, self._tables, self._own = Pinned(), DeviceTables(), threading.local()

    # ------------------------------------------------------------------------------------------ order

    def active(self) -> AbstractContextManager[None]:
        """Make this the current device of the thread inside a ``with`` block."""
        self.context.check()
        return _NOTHING if getattr(self._own, "depth", 0) else self._activated()

    @contextlib.contextmanager
    def _activated(self) -> Iterator[None]:
        core = driver.core()
        before = driver.current_index()
        if before != self.index or not hasattr(self._own, "depth"):  # cuda.core requires one call per thread
            core.Device(self.index).set_current()
        self._own.depth = 1
        try:
            yield
        finally:
            self._own.depth = 0
            if before not in (None, self.index):
                core.Device(before).set_current()

    @property
    def stream(self) -> Any:
        """The stream of the innermost :meth:`on`, else that of the thread."""
        chosen = getattr(self._own, "chosen", None)
        if chosen is not None:
            return chosen
        if not hasattr(self._own, "stream"):
            with self.active():
                self._own.stream = driver.core().Device(self.index).create_stream()
                self._own.handle = int(self._own.stream.handle)
        return self._own.stream

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        """Use another stream in this thread inside a ``with`` block; ``None`` keeps the current stream."""
        before = getattr(self._own, "chosen", None)
        self._own.chosen = before if stream is None else stream
        try:
            yield
        finally:
            self._own.chosen = before

    def configuration(self, grid: Any, block: Any, shared: int = 0) -> Any:
        """Return the sizes of a launch, which begins when the one before it ends, see ``OVERLAPPING``."""
        overlaps = self.capability >= OVERLAPPING
        return driver.core().LaunchConfig(
            grid=grid, block=block, shmem_size=shared, programmatic_stream_serialization=overlaps
        )

    def foreign_stream(self, handle: int) -> Any:
        """Return the stream at an address; 0 and 1 are the legacy default stream, 2 the per-thread one."""
        if handle == getattr(self._own, "handle", None):
            return self._own.stream
        found = self._streams.get(handle)
        if found is None:
            core = driver.core()
            if handle in (0, 1):
                return core.LEGACY_DEFAULT_STREAM
            found = core.PER_THREAD_DEFAULT_STREAM if handle == 2 else core.Stream.from_handle(handle)
            self._streams[handle] = found
        return found

    def finish(self) -> None:
        """Wait for the stream; raise :class:`LaunchError` with the name of a kernel that failed."""
        with self.active(), Explained(self.context, "waiting for the device failed"):
            self.stream.sync()
        self.context.synchronized()

    # ------------------------------------------------------------------------------------------ memory

    def allocate(self, nbytes: int) -> Memory:
        """Allocate uninitialized device memory; raise :class:`LaunchError` with the free memory if it fails."""
        with self.active(), Explained(self.context, "{} cannot allocate {} bytes", self, nbytes):
            stream = self.stream
            try:
                buffer = driver.core().Device(self.index).allocate(max(nbytes, 1), stream=stream)
            except Exception as problem:
                if driver.code_of(problem) != driver.NO_MEMORY:
                    raise
                raise out_of_memory(nbytes, self) from problem
            memory = Memory(self, int(buffer.handle), nbytes, buffer, stream, True)
        if (recorder := current_recorder()) is not None:
            recorder.allocated(memory)
        return memory

    def upload(self, contents: NDArray[np.uint8]) -> Memory:
        """Allocate device memory with these bytes; large arrays are copied through pinned memory."""
        memory = self.allocate(contents.nbytes)
        with self.active(), Explained(self.context, "{} bytes cannot be copied to {}", contents.nbytes, self):
            if contents.nbytes > SMALL:
                block = self._pinned.take(contents.nbytes)
                block.array()[:] = contents
                copy(block.address, memory.address, contents.nbytes, memory.stream, block)
                self._hold(block)
            else:
                copy(contents.ctypes.data, memory.address, contents.nbytes, memory.stream, contents)
        if (recorder := current_recorder()) is not None:
            recorder.uploaded(memory)
        return memory

    def _hold(self, block: Block) -> None:
        """Keep a block alive until the copy from it has completed, which later calls check."""
        held = self._own.__dict__.setdefault("held", [])
        held.append((block, self.stream.record()))
        while held and held[0][1].is_done:
            held.pop(0)

    def download(self, array: Array) -> NDArray[np.uint8]:
        """Copy the bytes of a contiguous array to the host, and wait."""
        if (recorder := current_recorder()) is not None:
            recorder.invalidate()
        block = self._pinned.take(array.nbytes)
        with self.active(), Explained(self.context, "{} bytes cannot be copied from {}", array.nbytes, self):
            stream = self.stream
            array.memory.use_on(stream)
            copy(array.address, block.address, array.nbytes, stream, block)
        self.finish()
        return block.array()

    def copy(self, source: Array, target: Array) -> None:
        """Copy the bytes of a contiguous array to another one."""
        with self.active(), Explained(self.context, "{} bytes cannot be copied on {}", source.nbytes, self):
            stream = self.stream
            source.memory.use_on(stream)
            target.memory.use_on(stream)
            copy(source.address, target.address, source.nbytes, stream, (source.memory, target.memory))
        if (recorder := current_recorder()) is not None:
            recorder.copied(source, target)

    def set_bytes(self, array: Array, value: int) -> None:
        """Set all bytes of a contiguous array."""
        with self.active(), Explained(self.context, "{} bytes cannot be set on {}", array.nbytes, self):
            stream = self.stream
            array.memory.use_on(stream)
            target = driver.core().Buffer.from_handle(array.address, array.nbytes, owner=array.memory)
            target.fill(value, stream=stream)
        if (recorder := current_recorder()) is not None:
            recorder.set(array, value)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an uninitialized array."""
        dtype = np.dtype(dtype)
        return Array(self.allocate(math.prod(shape) * dtype.itemsize), tuple(shape), dtype)

    def result(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return an array for results, filled with NaN (float dtypes) or 0."""
        return self.cleared(self.empty(shape, dtype))

    def is_result(self, array: Any, dtype: DTypeLike = np.float32) -> bool:
        """Return whether a kernel can write results of a dtype into an array: a C-contiguous array of this device."""
        is_ours = isinstance(array, Array) and array.device.index == self.index
        return is_ours and array.dtype == dtype and array.is_contiguous

    def cleared(self, array: Array) -> Array:
        """Fill a contiguous array with NaN (float dtypes) or 0, and return it; inside :func:`scope` it stays as it is.

        Calls with arrays on the device do not pay for a second write of their results.
        """
        if array.nbytes and getattr(_chosen, "device", None) is None:
            self.set_bytes(array, 0xFF if array.dtype.kind == "f" else 0)
        return array

    def array(self, values: NDArray[Any], read_only: bool = False) -> Array:
        """Return a copy of a NumPy array; copies of small arrays that are only read are cached."""
        values = np.ascontiguousarray(values)
        contents = values.reshape(-1).view(np.uint8)
        if not values.nbytes:
            return self.empty(values.shape, values.dtype)
        is_kept = read_only and values.nbytes <= SMALL
        memory = self._tables.find(self, contents) if is_kept else self.upload(contents)
        if is_kept and (recorder := current_recorder()) is not None:
            recorder.uploaded(memory)
        return Array(memory, values.shape, values.dtype)

    def buffer(self, length_or_data: Any, /, *, read_only: bool = False) -> Array:
        """Allocate zeroed memory of a length in bytes, or memory with a copy of the bytes of an object.

        A NumPy scalar, which has the buffer protocol and an integer value, is copied.
        """
        source = bytes_of(length_or_data)
        nbytes = source if isinstance(source, int) else source.nbytes
        if not 0 < nbytes < MAX_BYTES:
            raise LaunchError(f"a buffer of {shorten(nbytes)} bytes: legal sizes are 1 to {MAX_BYTES - 1} bytes")
        if not isinstance(source, int):
            return self.array(source, read_only)
        made = self.empty((nbytes,), np.uint8)
        self.set_bytes(made, 0)
        return made

    # ------------------------------------------------------------------------------------------ other libraries

    def adopt(self, value: Any) -> Array:
        """View an array of another library on this device, ordered in the current stream.

        Raises ``TypeError`` for other objects, and for dtypes that NumPy does not have.
        """
        if isinstance(value, Array):
            return value
        stream = self.stream
        with self.active():
            handle = int(stream.handle)
            try:
                view = driver.core().utils.StridedMemoryView.from_any_interface(value, stream_ptr=handle)
                dtype, shape, strides = view.dtype, tuple(view.shape), view.strides
            except Exception as problem:  # other libraries may raise anything
                raise TypeError(
                    f"an array of type {type(value).__name__} cannot be read on {self}: {problem}"
                ) from None
        strides = None if strides is None else tuple(stride * dtype.itemsize for stride in strides)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return Array(Memory(self, int(view.ptr), nbytes, view, stream, False), shape, dtype, strides)

    # ------------------------------------------------------------------------------------------ kernels

    def kernel(
        self,
        source: str,
        /,
        *,
        version: str = "2.3",
        include: Sequence[str | os.PathLike[str]] = (),
        fast_math: bool = True,
        define: Mapping[str, Any] | None = None,
    ) -> Kernel:
        """Compile MSL, or return the kernel cached for the source; raise :class:`CompileError` if it is illegal.

        The parameters are those of the clang runtime.
        """
        if not isinstance(source, str):
            raise TypeError(f"the source is a string, not {type(source).__name__}")
        options = Options.of(version, include, fast_math, define)
        key = options, options.texts(source)
        kernel = self._kernels.get(key)
        if kernel is None:
            program = checked(self._toolchain, source, options)
            kernel = self._kernels.setdefault(key, Kernel(self, program, options))
        return kernel

    def compiled(
        self, program: Program, kernel: KernelSource, options: Options, values: Mapping[str, str], is_exact: bool
    ) -> Compiled:
        """Return a kernel of a source as PTX for this device."""
        tools = self._toolchain, self._library
        return compile_kernel(*tools, program, kernel, self.capability, options, values, is_exact)

    def __str__(self) -> str:
        capability = ".".join(map(str, self.capability))
        return f"cuda.Device({self.name}, driver {driver.driver_version()}, compute capability {capability})"


def device_of(value: Any) -> int | None:
    """Return the index of the NVIDIA GPU of an array, or None for other objects."""
    if isinstance(value, Array):
        return value.device.index
    if type(value) is np.ndarray:
        return None
    if hasattr(type(value), "__dlpack_device__"):
        kind, index = value.__dlpack_device__()
        return int(index) if int(kind) == CUDA else None
    if hasattr(value, "__cuda_array_interface__"):
        view = driver.core().utils.StridedMemoryView.from_cuda_array_interface(value, stream_ptr=-1)
        return int(view.device_id)
    return None


def stream_of(value: Any) -> int | None:
    """Return the address of the stream in which an array on a device is used, or None if it is unknown."""
    if isinstance(value, Array):
        return int(value.memory.stream.handle)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return int(torch.cuda.current_stream(value.device).cuda_stream)
    stream = getattr(value, "__cuda_array_interface__", {}).get("stream")
    return None if stream is None else int(stream)


_opened = functools.cache(Device)


def open_device(index: int = 0) -> Device:
    """Return the device of an index, opened once per process."""
    return _opened(index)


_chosen = threading.local()


def current_device() -> Device:
    """Return the device of the innermost :func:`scope` of this thread, else device 0."""
    return getattr(_chosen, "device", None) or open_device(0)


def recording_device() -> Device | None:
    """Return the device of the innermost :func:`scope` of this thread unless it records, else None."""
    device: Device | None = getattr(_chosen, "device", None)
    return device if device is not None and current_recorder() is None else None


def current_recorder() -> Recorder | None:
    """Return the object that records what this thread does."""
    return getattr(_chosen, "recorder", None)


@contextlib.contextmanager
def recording(recorder: AnyRecorder) -> Iterator[AnyRecorder]:
    """Call the methods of ``recorder`` for what this thread does on devices inside a ``with`` block."""
    _chosen.recorder = recorder
    try:
        yield recorder
    finally:
        _chosen.recorder = None


@contextlib.contextmanager
def scope(device: Device, stream: int | None) -> Iterator[None]:
    """Run calls inside a ``with`` block on a device, in the stream at the address ``stream`` unless it is None."""
    before = getattr(_chosen, "device", None)
    _chosen.device = device
    try:
        with device.active(), device.on(None if stream is None else device.foreign_stream(stream)):
            yield
    finally:
        _chosen.device = before


_ELSEWHERE = frozenset((np.ndarray, tuple, type(None)))
_WITHIN: AbstractContextManager[Callable[[Any], Any]] = contextlib.nullcontext(lambda value: value)
"""The scope of a call in the scope of another one, in the stream of its arrays."""


class Arrays:
    """Arrays on NVIDIA GPUs as arguments and results of operations (``Backend.arrays``)."""

    def finds(self, values: Iterable[Any]) -> bool:
        """Return whether any of the values is an array on an NVIDIA GPU."""
        return any(device_of(value) is not None for value in values)

    def scope(self, values: Iterable[Any]) -> AbstractContextManager[Callable[[Any], Any]]:
        """Run a call on the device of these arrays; yields a function that converts an array to :class:`Array`.

        Raises ``ValueError`` for arrays on several devices. The stream is that of an enclosing scope, else of the first
        array with a known stream (an :class:`Array`, a tensor of PyTorch, an array of CuPy), else of the thread. The
        call is ordered after the streams of the other arrays, which are then ordered after the call. If the stream of
        an array is unknown, the call waits for its end.
        """
        device = getattr(_chosen, "device", None)
        if device is not None:
            stream = device.stream
            if all(type(v) in _ELSEWHERE or (type(v) is Array and v.memory.stream is stream) for v in values):
                return _WITHIN
        return self._scope(values)

    @contextlib.contextmanager
    def _scope(self, values: Iterable[Any]) -> Iterator[Callable[[Any], Any]]:
        found = [(value, index) for value in values if (index := device_of(value)) is not None]
        indices = sorted({index for _, index in found})
        if len(indices) > 1:
            raise ValueError(f"the arrays are on the devices {', '.join(map(str, indices))}; one call has one device")
        device = open_device(indices[0] if indices else 0)
        streams = dict.fromkeys(stream_of(value) for value, _ in found)
        known = next((stream for stream in streams if stream is not None), None)
        if getattr(_chosen, "device", None) is device:
            known = int(device.stream.handle)
        with scope(device, known):
            yield lambda value: value if device_of(value) is None else device.adopt(value)
            for stream in streams:
                if stream is None:
                    device.finish()
                elif stream != known:  # later work in that stream may write the inputs
                    device.foreign_stream(stream).wait(device.stream)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Allocate a result; inside :meth:`scope`."""
        return current_device().empty(shape, dtype)

    def upload(self, values: NDArray[Any]) -> Array:
        """Copy a NumPy array to the device; inside :meth:`scope`."""
        return current_device().array(values)

    def put(self, values: NDArray[Any], shape: tuple[int, ...]) -> Array:
        """Copy a NumPy array to the device, repeated along its first axis up to ``shape``, in the default stream."""
        device = open_device(0)
        with scope(device, LEGACY):
            first = device.array(values)
            if values.shape == shape:
                return first
            made = device.empty((shape[0] // values.shape[0], *values.shape), values.dtype)
            made[...] = first
            return made.reshape(shape)

    def timer(self, call: Callable[[], object]) -> Callable[[], float]:
        """Return a function that measures the seconds that a call takes on the device, in the default stream.

        CUDA events measure a few calls together. Before them the device gets copies to do, for as long as the host
        needs to queue the calls, so that the time on the host is excluded unless a call waits for the device.
        """
        device = open_device(0)
        with scope(device, LEGACY):
            call()
            device.finish()
            began = time.perf_counter()
            for _ in range(CALLS):
                call()
            queued = time.perf_counter() - began
            device.finish()
        leads = 2 + math.ceil(1.5 * queued * FASTEST_COPY / LEAD_BYTES)

        def seconds() -> float:
            with scope(device, LEGACY):
                source, target = (device.empty((LEAD_BYTES // 2,), np.uint8) for _ in range(2))
                for _ in range(leads):
                    device.copy(source, target)
                start = device.stream.record(options={"timing_enabled": True})
                for _ in range(CALLS):
                    call()
                end = device.stream.record(options={"timing_enabled": True})
                device.finish()
                return float(end - start) / 1000 / CALLS

        return seconds
