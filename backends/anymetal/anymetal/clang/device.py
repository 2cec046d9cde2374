"""The classes of ``metalcompute`` on the launcher: Device, Kernel, Function, Handle and Buffer."""

from __future__ import annotations

import math
import mmap
import os
import platform
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from ctypes import byref, pointer
from reprlib import repr as shorten
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..environment import variable
from ..frontend.options import Options
from ..frontend.program import Constants, Program
from ..frontend.signature import (
    At,
    Extent,
    Record,
    Signature,
    bytes_of,
    device_index,
    find_kernel,
    indirect,
    is_value,
    lengths_of,
    whole,
)  # fmt: skip
from ..frontend.toolchain import find
from ..interface import LaunchError
from .findings import (
    MOST_BUFFERS,
    NO_RACE,
    ChecksRecord,
    Finding,
    in_schedule,
    levels_of,
    merged,
    summary,
    suppressions,
    uncovered_by,
    unread_by,
)
from .flags import unavailable
from .launcher import (
    BufferRecord,
    Checks,
    FaultReport,
    LaunchRecord,
    LinkRecord,
    LocalRecord,
    NativeLauncher,
    Source,
    compile_source,
    launcher,
)
from .lines import Place
from .report import ATOMIC_ORDER, FOUND, ORDER, UNCHECKED_ORDER, explain, finding_of, found_error

MAX_BYTES = 1 << 46  # larger than the address space of a process
MAX_SPARSE_BYTES = 1 << 35  # half a slot of shadow.h
LARGEST_LIMIT = 999_999_999
SECONDS = 60
"""Limit of the processor time of a launch; ``ANYMETAL_LAUNCH_SECONDS`` is another one."""
TRIALS, MOST_TRIALS = 4, 1 << 20
MOST_WORKERS = 250
"""``MOST_WORKERS`` of spread.h."""
DENORMALS = ("keep", "flush")


class HostMemory:
    """Guarded memory with the array interface of NumPy; released with the last array that uses it."""

    file = -1
    """No file has its contents."""

    def __init__(self, runtime: NativeLauncher, nbytes: int, *, is_zero: bool = True) -> None:
        """Allocate; with ``is_zero`` the bytes are zero."""
        self._runtime, self._nbytes = runtime, nbytes
        self._pages, self.address = runtime.allocate(nbytes, is_zero=is_zero)
        self.__array_interface__ = {"data": (self.address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        if hasattr(self, "_pages"):
            self._runtime.release(self._pages, self._nbytes)


class SparseMemory:
    """Zeroed memory of a file without contents: a page exists once it is written. It has the array interface."""

    def __init__(self, nbytes: int) -> None:
        """Reserve."""
        if not 0 < nbytes <= MAX_SPARSE_BYTES:
            raise LaunchError(f"sparse memory of {shorten(nbytes)} bytes: legal are 1 to {MAX_SPARSE_BYTES} bytes")
        with tempfile.TemporaryFile() as file:
            file.truncate(nbytes)
            self._map = mmap.mmap(file.fileno(), nbytes)
            self.file = os.dup(file.fileno())
        self.address = np.frombuffer(self._map, np.uint8).ctypes.data
        self.__array_interface__ = {"data": (self.address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        if hasattr(self, "file"):
            os.close(self.file)


def sparse(shape: int | Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of zeros that takes memory only where it is written, for kernels at sizes beyond the memory.

    A launch with ``sanitize=True`` and ``check_order=False`` uses it in place, without the copies that protect other
    arrays: what a kernel with a defect has written stays. What was changed and written is not counted for it.

    Parameters
    ----------
    shape : int or sequence of int
        The shape of the array, of at most 32 GiB.
    dtype : dtype
        The dtype of its elements.

    Raises
    ------
    LaunchError
        If it is empty or larger.

    Examples
    --------
    >>> import anymetal
    >>> x = anymetal.sparse(2**32, np.uint8)
    >>> library = anymetal.compile('''
    ... kernel void last(device uchar *x, constant int &n) { x[n * 2] = 1; }''', sanitize=True, check_order=False)
    >>> library["last"](1, 1, x, 2**30)
    Traceback (most recent call last):
        ...
    anymetal.LaunchError: kernel `last`: 2 errors...
    """
    kind = np.dtype(dtype)
    count = math.prod(shape if isinstance(shape, Sequence) else (shape,))
    return np.asarray(SparseMemory(count * kind.itemsize)).view(kind).reshape(shape)


def sparse_memory(array: Any) -> SparseMemory | None:
    """Return the memory of an array made by :func:`sparse`, or None."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, SparseMemory) else None


class Buffer(np.ndarray[Any, np.dtype[np.uint8]]):
    """Device memory as bytes, returned by :meth:`Device.buffer` and shared by kernels and Python.

    ``memoryview(buffer)`` and ``numpy.frombuffer(buffer, dtype)`` are views of the same memory.
    """

    memory: HostMemory | SparseMemory | None = None  # None for a slice, which is an ordinary array

    def __str__(self) -> str:
        return f"clang.Buffer(length={self.nbytes})"

    __repr__ = __str__


class Unbound:
    """What is bound to a buffer of which the checks report each use."""

    nbytes, memory = 0, SimpleNamespace(address=None, file=-1)


UNBOUND, UNLOCKED = Unbound(), nullcontext()


class Handle:
    """A completed launch: the results are in the buffers."""

    def __init__(
        self, buffers: list[Buffer], findings: Sequence[Finding] = (), written: Sequence[int] = (),
        unreached: Callable[[], tuple[Place, ...]] = tuple, workers: int = 0, tried: int = 0,
        unread: Mapping[int | str, int] | None = None,
    ) -> None:  # fmt: skip
        """Returned by a call of a :class:`Function`; ``workers`` processes ran threadgroups, or this one ran all."""
        self._buffers = buffers  # kept alive by the handle, as in metalcompute
        self.findings, self.written, self._unreached = tuple(findings), tuple(written), unreached
        self.workers, self.tried, self.unread = workers, tried, unread or {}

    @property
    def unreached(self) -> tuple[Place, ...]:
        """The lines that no thread reached, after a launch with checks."""
        return self._unreached()

    def __repr__(self) -> str:
        return "clang.Handle"


def launch_seconds(value: Any) -> float:
    """Return the limit of the processor time of a launch; ``None`` is that of the environment."""
    return positive("ANYMETAL_LAUNCH_SECONDS" if value is None else "seconds", value, SECONDS, "seconds")


def positive(name: str, value: Any, default: float, unit: str) -> float:
    """Return a limit: a value, or for ``None`` that of an environment variable, or the default."""
    given = variable(name) or default if value is None else value
    try:
        number = math.nan if isinstance(given, (bool, np.bool_)) else float(given)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number <= LARGEST_LIMIT:
        raise LaunchError(f"{name}={shorten(given)} is not a number of {unit} above 0 and up to {LARGEST_LIMIT}")
    return number


def launch_workers() -> tuple[int, bool]:
    """Return how many processes the threadgroups of a launch may be spread over, and whether from the first one on.

    ``ANYMETAL_LAUNCH_WORKERS`` is their number; without it, those of a long launch have one for each core.
    """
    given = variable("ANYMETAL_LAUNCH_WORKERS")
    if not given:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1, False
    if not given.isdecimal() or not 1 <= int(given) <= MOST_WORKERS:
        raise LaunchError(f"ANYMETAL_LAUNCH_WORKERS={shorten(given)} is not a number from 1 to {MOST_WORKERS}")
    return int(given), True


def trials_of(trials: Any, schedule: Any) -> tuple[int, int]:
    """Return how many interleavings to try, and the number of the only one or 0."""
    for name, value, least in (("trials", trials, 0), ("schedule", schedule, 1)):
        if name == "schedule" and value is None:
            return int(trials), 0
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"{name} is of type {type(value).__name__}; it is an integer")
        if not least <= value <= MOST_TRIALS:
            raise LaunchError(f"{name}={value}: legal are {least} to {MOST_TRIALS}")
    return 1, int(schedule)


class Function:
    """A kernel function of a compiled source, bound to its device."""

    def __init__(self, device: Device, source: Source, name: str, constants: Constants, *, is_apart: bool) -> None:
        """Returned by :meth:`Kernel.function`."""
        kernel = find_kernel(name, source.program.kernels)
        library = source.library(name, constants, is_apart=is_apart)
        self.device, self._library = device, library
        about = library.numbers("anymetal_about", 1 + 6 * len(kernel.bindings))
        bindings = library.numbers("anymetal_bindings", 2 * len(kernel.bindings))
        count = sum(len(known.members) for known in kernel.bindings)
        members = library.numbers("anymetal_members", 7 * count) if count else []
        count = len(kernel.images)
        images = library.numbers("anymetal_images", 4 * count) if count else []
        at = library.numbers("anymetal_image_bindings", 2 * count) if count else []
        self.signature = signature = Signature.of(kernel, library.threads, about, bindings, members, images, at)
        signature.check_limits(library.variable_bytes)
        self._record = LaunchRecord(
            run_thread=library.entry,
            synchronizes=library.synchronizes,
            local=library.local,
            local_bytes=library.local_bytes,
            local_count=max(signature.locals, default=-1) + 1,
            check_order=device.check_order,
            flush_denormals=device.flush_denormals,
            has_atomics=library.has_atomics,
        )
        self._record.workers, self._record.spreads_at_once = device.workers
        self._checks = Checks(library, source.program) if device.checks else None
        self._sizes: tuple[Any, ...] = ()
        """The sizes of the last launch as they were given, and along three axes."""
        self._seed = zlib.crc32(f"{device.seed} {name}".encode())

    @property
    def variable_bytes(self) -> int:
        """The bytes of threadgroup memory that the kernel declares in variables."""
        return self._library.variable_bytes

    @property
    def findings(self) -> list[Finding]:
        """What the compiler found, without a launch."""
        return self._accepted(merged(self._checks.unset(self.device.levels))) if self._checks else []

    def _accepted(self, found: Sequence[Finding]) -> list[Finding]:
        """Return the findings that are neither off nor suppressed."""
        files, known = self._checks.files if self._checks else {}, self.device.suppressions
        name = self.signature.name
        return [one for one in found if one.level != "off" and not any(k.covers(one, name, files) for k in known)]

    def __call__(self, count: int, /, *arguments: Any) -> Handle:
        """Run ``count`` threads, rounded up to whole threadgroups, with ``arguments`` as buffers 0, 1, ...

        Raises :class:`LaunchError` for illegal arguments and for undefined behaviour of the kernel.
        """
        signature = self.signature
        signature.check_threads()
        size = signature.threads
        groups = signature.groups(count, size)
        return self._launch((groups * size, 1, 1), (size, 1, 1), f"count={count}", count, arguments)

    def dispatch(
        self,
        threads: int | Sequence[int],
        /,
        *arguments: Any,
        threadgroup: int | Sequence[int] | None = None,
        local: Mapping[int, int] | None = None,
        seconds: float | None = None,
    ) -> Handle:
        """Run exactly ``threads`` threads, as Metal's ``dispatchThreads``, with ``arguments`` as buffers 0, 1, ...

        Parameters
        ----------
        threads : int or sequence of int
            The threads of the grid along one to three axes. Threadgroups at its end have fewer threads.
        *arguments : object
            The buffers, as for a call; ``anymetal.at(buffer, offset)`` binds the part of a buffer from an offset in
            bytes on. The size of ``bytes`` and scalars must be that of what a reference refers to.
        threadgroup : int or sequence of int, optional
            The threads of a threadgroup, at most the kernel's ``[[max_total_threads_per_threadgroup(N)]]``, else 1024.
            The default is as many along the first axis.
        local : mapping of int to int, optional
            The bytes of each parameter with the attribute ``[[threadgroup(index)]]``, multiples of 16.
        seconds : float, optional
            Limit of the processor time of the launch. The default is in ``ANYMETAL_LAUNCH_SECONDS``, else 60.

        Raises
        ------
        LaunchError
            For illegal arguments and for undefined behaviour of the kernel.
        """
        sizes = threads, threadgroup
        if type(threads) is type(threadgroup) is int and self._sizes[:2] == sizes:  # as those of the launch before
            grid, width = self._sizes[2:]
        else:
            grid, width = self.signature.grid(*sizes)
            self._sizes = *sizes, grid, width
        return self._launch(grid, width, f"threads={threads}", math.prod(grid), arguments, local, seconds)

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

        Parameters
        ----------
        groups : int, sequence of int, Buffer or At
            The threadgroups along one to three axes. A buffer, or ``anymetal.at(buffer, offset)``, holds three numbers
            of type ``uint32``, which are read now; if one is 0, nothing runs.
        *arguments : object
            The buffers, as for :meth:`dispatch`.
        threadgroup : int or sequence of int
            The threads of a threadgroup.
        local : mapping of int to int, optional
            The bytes of threadgroup memory, as for :meth:`dispatch`.
        seconds : float, optional
            Limit of the processor time, as for :meth:`dispatch`.

        Raises
        ------
        LaunchError
            For illegal arguments and for undefined behaviour of the kernel.
        """
        if isinstance(groups, (Buffer, At)):
            groups = indirect(groups)
            if 0 in groups:
                return Handle([])
        grid, width = self.signature.whole_grid(groups, threadgroup)
        return self._launch(grid, width, f"groups={groups}", math.prod(grid), arguments, local, seconds)

    def _launch(
        self,
        grid: Extent,
        width: Extent,
        wanted: str,
        count: int,
        arguments: tuple[Any, ...],
        local: Mapping[int, int] | None = None,
        seconds: float | None = None,
    ) -> Handle:
        signature, runtime, library = self.signature, self.device.runtime, self._library
        if signature.table >= 0 and not any(isinstance(one, Record) for one in arguments[signature.table :]):
            raise LaunchError(
                f"kernel `{signature.name}` has textures or samplers: call a kernel of anymetal.compile, which takes "
                "textures=[...]"
            )
        signature.check_arguments(len(arguments))
        lengths = lengths_of(local)
        signature.check_lengths(library.variable_bytes, lengths)
        limit = launch_seconds(seconds)
        groups = tuple([-(-threads // size) for threads, size in zip(grid, width, strict=True)])
        bound = [self._bind(index, argument) for index, argument in enumerate(arguments)]
        targets = [signature.parameters.get(index) for index in range(len(bound))]
        links = list[LinkRecord]()
        for index, argument in enumerate(arguments):
            for start, one in argument.pointers.items() if isinstance(argument, Record) else ():
                name = one.name if index == signature.table else f"buffer({index}).{one.name}"
                links.append(LinkRecord(start, one.target.offset, index, len(bound)))
                targets.append(one.about if one.about.texels else one.about._replace(text=name))
                bound.append(self._memory(one.target, name, one.about.alignment))
            for start, at in argument.textures.items() if isinstance(argument, Record) else ():
                links.append(LinkRecord(start, at, index, signature.table))
        if len(bound) > MOST_BUFFERS:
            raise LaunchError(
                f"kernel `{signature.name}` has {len(bound)} buffers with those that pointers in buffers point to; the "
                f"maximum is {MOST_BUFFERS}"
            )
        launch = LaunchRecord.from_buffer_copy(self._record)
        records = (BufferRecord * max(len(bound), 1))()
        for record, target, (buffer, offset, is_undefined) in zip(records, targets, bound, strict=False):
            memory = buffer.memory
            record.data, record.bytes, record.file = memory.address, buffer.nbytes, memory.file
            if offset:
                record.offset = offset
            if is_undefined:
                record.undefined = is_undefined
            if target:
                record.writable, record.unit = target.is_written, target.numbers & 255
                record.is_texture = target.texels is not None
        locals_ = (LocalRecord * max(launch.local_count, 1))()
        launch.buffers, launch.locals, launch.buffer_count = records, locals_, len(bound)
        if links:
            launch.links, launch.link_count = (LinkRecord * len(links))(*links), len(links)
        launch.grid, launch.width, launch.groups = grid, width, groups
        launch.seed = self._seed + count
        launch.nanoseconds = int(limit * 1e9)
        report = FaultReport()
        checks = self._checks.record(*self.device.tried, self.device.counts_unread) if self._checks else None
        if checks:
            launch.checks = pointer(checks)
        taken: list[tuple[int, int]] = []
        try:
            for record in records[: len(bound)] if launch.check_order else ():
                record.copy, _ = runtime.take(record.bytes)
                taken.append((record.copy, record.bytes))
            for index, nbytes in lengths.items():
                locals_[index].pages, _ = runtime.take(nbytes)
                locals_[index].bytes = nbytes
                taken.append((locals_[index].pages, nbytes))
            with library.lock if launch.local_bytes or self._checks else UNLOCKED:
                if self._checks:
                    self._checks.begin()
                runtime.run(byref(launch), byref(report))
                reached = self._checks.end() if self._checks else tuple
        except MemoryError as error:
            raise LaunchError(str(error)) from None
        finally:
            for place, nbytes in taken:
                runtime.release(place, nbytes)
        findings: Sequence[Finding] = ()
        threads = math.prod(grid)
        uncovered = [] if not checks else [
            uncovered_by(record.written, index, target, record.bytes - record.offset, self.device.levels)
            for index, (record, target) in enumerate(zip(records, targets, strict=False))
            if target and not target.texels and 0 < threads * target.nbytes < record.bytes - record.offset
            and 0 < record.written < record.bytes - record.offset and not record.written % target.nbytes
            and (not record.is_read or record.written == record.covered == threads * target.nbytes > target.nbytes)
        ]  # fmt: skip
        unused = [] if not (checks and threads and report.kind in (0, FOUND, ORDER)) else [
            unread_by(index, target, self.device.levels)
            for index, (record, target) in enumerate(zip(records, targets, strict=False))
            if target and not target.texels and not target.is_written and record.bytes and not record.is_read
        ]  # fmt: skip
        if report.kind or uncovered or unused or (checks and (checks.count or library.image["unset"])):
            size = math.prod(width)
            shape = f"{wanted} runs {threads} threads, {math.prod(groups)} threadgroups of {size}"
            bindings = [(buffer.nbytes, offset) for buffer, offset, _ in bound]
            named = signature._replace(parameters={i: target for i, target in enumerate(targets) if target})
            text = (
                explain(
                    report, named, size, shape, bindings, lengths, limit, self._checks.files if self._checks else None
                )
                if report.kind not in (0, FOUND)
                else ""
            )
            text += in_schedule(report.schedule, self.device.seed) * bool(text)
            findings = self._judge(report, checks, named, shape, bindings, lengths, text, uncovered + unused)
        return Handle(
            [buffer for buffer, _, _ in bound],
            findings,
            [record.written for record in records],
            reached,
            report.workers,
            checks.tried if checks else 0,
            self._unread(signature, records, locals_) if self.device.counts_unread else {},
        )

    def _unread(self, signature: Signature, records: Any, locals_: Any) -> dict[int | str, int]:
        assert self._checks is not None
        return self._checks.unread(signature, locals_) | {i: one.unread for i, one in enumerate(records)}

    def _judge(
        self,
        report: FaultReport,
        checks: ChecksRecord | None,
        signature: Signature,
        shape: str,
        bindings: Sequence[tuple[int, int]],
        lengths: Mapping[int, int],
        text: str,
        more: Sequence[Finding],
    ) -> list[Finding]:
        """Return the findings of a launch; raise LaunchError if one is an error. ``text`` explains the report."""
        findings = []
        if self._checks and checks:
            found = self._checks.read(checks, signature, bindings, lengths, self.device.levels, self.device.seed)
            found += [] if any(one.level == "error" for one in found) else more
            findings = self._accepted(found)
        if text:
            level = "error"
            if report.kind == ORDER:
                is_racy = any(one.level in ("error", "warning") and one.kind not in NO_RACE for one in findings)
                is_legal = checks is not None and bool(checks.has_atomics) and not is_racy
                level = "note" if is_legal else self.device.levels["order"]
                text = ATOMIC_ORDER + report.others * UNCHECKED_ORDER if is_legal else text
            places = map(self._checks.place, report.trace) if self._checks else ()
            last = next(filter(None, places), None)  # code of the checks has no lines
            findings = [*findings, finding_of(report, text, level, last)]
            if not self._checks:
                raise found_error(text, findings)
        if self._checks and any(one.level == "error" for one in findings):
            raise found_error(summary(findings, signature.name, self._checks.files, shape), findings)
        return findings

    def _bind(self, index: int, given: Any) -> At:
        """Return the memory of an argument, and the offset in it."""
        known = self.signature.parameters.get(index)
        if type(given) is Buffer and given.memory is not None and known and not known.members:
            if known.is_reference:
                self.signature.check_size(index, given.nbytes)
            return At(given)  # it has a byte or more, and is aligned
        if isinstance(given, Record):
            return At(self.device.buffer(given.data), 0)
        if known and known.members:
            raise LaunchError(
                f"buffer({index}) of kernel `{self.signature.name}`, `{known.text}`, holds pointers: call a kernel of "
                "anymetal.compile, with a mapping from the names of the members to arrays"
            )
        bound = self._memory(given, f"buffer({index})", known.alignment if known else 1)
        if known and known.is_reference:
            value = given.buffer if isinstance(given, At) else given
            self.signature.check_size(index, bound.buffer.nbytes - bound.offset, is_value=is_value(value))
        return bound

    def _memory(self, given: Any, name: str, alignment: int) -> At:
        """Return a buffer with the bytes of an argument, and the offset in it."""
        argument, offset, is_undefined = bound = At.of(given)
        if argument is None and self._checks:
            return At(UNBOUND, 0)
        if isinstance(argument, Buffer) and argument.memory is not None:
            buffer = argument
        else:
            try:
                buffer = self.device.buffer(argument)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name} of kernel `{self.signature.name}`: {error}") from None
        if offset:
            self.signature.check_offset(name, offset, alignment, buffer.nbytes)
        return bound if buffer is argument else At(buffer, offset, is_undefined)

    def __str__(self) -> str:
        return f"clang.Function({self.signature.name})"


class Kernel:
    """A compiled source."""

    def __init__(self, device: Device, source: Source) -> None:
        """Returned by :meth:`Device.kernel`."""
        self._device, self.source = device, source

    @property
    def program(self) -> Program:
        """The source with its kernels."""
        return self.source.program

    def function(self, name: str, /, *, constants: Constants | None = None, is_apart: bool = False) -> Function:
        """Return the kernel function of this name, compiled; raise :class:`LaunchError` if there is none.

        Parameters
        ----------
        name : str
            The name of the function, or that of ``[[host_name("name")]]``.
        constants : mapping, optional
            Values of the function constants, by index or by name.
        is_apart : bool, optional
            Whether accesses of several places of the source stay apart, so that each finding has a column: slower.
        """
        return Function(self._device, self.source, name, constants or {}, is_apart=is_apart)

    def __str__(self) -> str:
        return f"clang.Kernel({', '.join(self.source.program.kernels)})"


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
    denormals : {"keep", "flush"}, optional
        Whether subnormal numbers (of ``float``) are kept in arithmetic, or are zero as in MLX and PyTorch on a GPU.
    sanitize : bool, optional
        Whether kernels run with checks of each access: races, fences, bounds, uninitialized memory, arithmetic.
    levels : mapping of str to str, optional
        The levels of kinds of findings, ``"error"``, ``"warning"``, ``"note"`` or ``"off"``; see
        :data:`anymetal.clang.findings.KINDS`. A launch with an error raises :class:`LaunchError`.
    trials : int, optional
        How many interleavings of atomic operations a launch with ``sanitize`` tries, if one thread may change what
        another one uses; see :func:`anymetal.compile`.
    schedule : int, optional
        The number of the only interleaving to try.
    unread : bool, optional
        Whether launches with ``sanitize`` count what no thread reads: see :func:`anymetal.compile`.
    suppress : path, optional
        A TOML file of findings that are accepted: tables ``[[suppress]]`` with ``kind`` and ``reason``, and perhaps
        ``kernel`` (with ``*``) and ``line`` (a part of the line of the source).

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

    def __init__(
        self, index: int = -1, /, *, check_order: bool = True, seed: int = 0, denormals: str = "keep",
        sanitize: bool = False, levels: Mapping[str, str] | None = None,
        suppress: str | os.PathLike[str] | None = None, trials: int = TRIALS, schedule: int | None = None,
        unread: bool = False,
    ) -> None:  # fmt: skip
        """Open the device; raise :class:`LaunchError` if there is no clang."""
        if not isinstance(sanitize, (bool, np.bool_)):
            raise TypeError(f"sanitize is of type {type(sanitize).__name__}; it is True or False")
        self.checks, self.levels, self.suppressions = bool(sanitize), levels_of(levels), suppressions(suppress)
        if not isinstance(unread, (bool, np.bool_)):
            raise TypeError(f"unread is of type {type(unread).__name__}; it is True or False")
        device_index(index, 1)
        if not isinstance(check_order, (bool, np.bool_)):
            raise TypeError(f"check_order is of type {type(check_order).__name__}; it is True or False")
        whole("seed", seed, "a seed")
        self.tried = trials_of(trials, schedule)
        if denormals not in DENORMALS:
            raise LaunchError(f"denormals={shorten(denormals)}: legal values are {' and '.join(map(repr, DENORMALS))}")
        reason = unavailable()
        toolchain = find()
        if reason or toolchain is None:
            raise LaunchError(reason)
        self.check_order, self.seed, self.flush_denormals = bool(check_order), seed, denormals == "flush"
        self.counts_unread = bool(unread) and self.checks
        self.workers = (1, False) if self.counts_unread else launch_workers()
        self.name = f"{toolchain.name} on {platform.machine()}"
        self.runtime = launcher(toolchain)
        if self.checks and not self.runtime.arena_bytes:
            raise LaunchError(
                "sanitize=True needs 102 GB of address space (no memory), and this process has less: raise its limit "
                "(ulimit -v), or use sanitize=False"
            )
        self._toolchain = toolchain
        self._kernels: dict[tuple[Options, tuple[str, ...]], Kernel] = {}

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

        Parameters
        ----------
        source : str
            The MSL text.
        version : {"2.3", "2.4", "3.0", "3.1", "3.2", "4.0"}, optional
            The version of MSL.
        include : sequence of path, optional
            Folders of files that the source includes; other files are refused.
        fast_math : bool, optional
            Whether NaNs, infinities, signed zeros and the order of operations may be ignored.
        define : mapping of str to object, optional
            Macros and their values; ``None`` is an empty one, and a bool is 1 or 0.
        """
        if not isinstance(source, str):
            raise TypeError(f"the source is a string, not {type(source).__name__}")
        options = Options.of(version, include, fast_math, define, self.checks)
        key = options, options.texts(source)
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = Kernel(self, compile_source(self._toolchain, source, options))
            self._kernels[key] = kernel
        return kernel

    def buffer(self, length_or_data: Any, /) -> Buffer:
        """Allocate zeroed memory of a length in bytes, or memory with a copy of the bytes of an object.

        A NumPy scalar, which has the buffer protocol and an integer value, is copied.
        """
        memory: HostMemory | SparseMemory | None = sparse_memory(length_or_data)
        if isinstance(memory, SparseMemory):
            if self.check_order or not self.checks:
                raise LaunchError("sparse memory needs sanitize=True and check_order=False: other launches copy it")
            return self._of(memory)
        source = bytes_of(length_or_data)
        nbytes = source if isinstance(source, int) else source.nbytes
        if not 0 < nbytes < MAX_BYTES:
            raise LaunchError(f"a buffer of {shorten(nbytes)} bytes: legal sizes are 1 to {MAX_BYTES - 1} bytes")
        try:
            memory = HostMemory(self.runtime, nbytes, is_zero=isinstance(source, int))
        except MemoryError as error:
            raise LaunchError(str(error)) from None
        buffer = self._of(memory)
        if not isinstance(source, int):
            buffer[:] = source
        return buffer

    def _of(self, memory: HostMemory | SparseMemory) -> Buffer:
        buffer = np.asarray(memory).view(Buffer)
        buffer.memory = memory
        return buffer

    def memory(self, nbytes: int) -> int:
        """Return the address space that a launch with buffers of so many bytes needs beside that of the process."""
        return int((4 + 17 * self.checks) * nbytes + self.checks * self.runtime.arena_bytes)

    def __str__(self) -> str:
        return f"clang.Device({self.name})"
