"""Run MSL kernels on the GPU of a Mac with Apple silicon, with the package `metalcompute`::

    dev = Device()
    f = dev.kernel(source).function("name")
    out = dev.buffer(nbytes)
    f(count, in_array, out)                 # blocks until the GPU has finished
    result = numpy.frombuffer(out, "float32")

Arguments are bound to `[[buffer(0)]]`, `[[buffer(1)]]`, ... in order. An input is any object with C-contiguous
memory (it is copied); an output must be a buffer returned by `dev.buffer`. Scalars are passed as NumPy scalars, or in
a structured array that the kernel reads as a `constant` struct.

The grid has one dimension and is rounded up to whole threadgroups. **Threads with an index >= `count` run as well**,
and `count` is not available in the kernel: pass it in the struct and compare. The size of a threadgroup is the maximum
of the compiled kernel, rounded down to a multiple of the SIMD width (32), or N with
`[[max_total_threads_per_threadgroup(N)]]`, where N must be a multiple of 32. The language version is 2.3, and fast
math is enabled; the package has no option for either.

This module adds to the package (version 0.2.9):

- A call returns when the GPU has finished, and launches are serialized. The package waits only in the destructor of
  its handle, and its list of running launches is not thread-safe.
- A process has one device object, because buffers cannot be used with another device object. Kernels and functions
  are cached by source and name. (The package builds the pipeline in each launch.)
- Python numbers are not accepted as arguments: the package reads one as a length and binds a buffer of zeros.
  NumPy integers are not accepted as lengths: the package reads one as memory and creates a buffer of 8 bytes.
- Empty buffers and a count of zero are errors. All errors are `CompileError`, `LaunchError` (both ValueError) or
  TypeError.
- A kernel with more than 32,768 bytes of threadgroup memory, threadgroup memory as a parameter, or an illegal
  `max_total_threads_per_threadgroup` is refused: where a pipeline fails, the package drops a command encoder that has
  not ended, and Metal ends the process. The clang runtime tells these numbers; without a clang (`pip install
  ziglang`), they are not checked.

Limitations: the package does not check the status of a launch, so that after a fault on the GPU an output buffer is
unchanged. Fill outputs with NaN before a launch to detect this; new buffers are zero. A waiting call holds Python's
global interpreter lock. A buffer of another device object of the package ends the process, as a pipeline that fails.

The package never removes a launch from its list of command buffers, which belongs to the process and not to a device
object, and searches all of it when a launch ends: the time of each launch grows with their number (`launches()`), and
their memory is not returned. Only a new process has an empty list: a program with many thousands of launches should go
on in a new one from time to time.

Importing this module does not import the package; `unavailable()` returns whether it can be used.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache, cached_property, lru_cache
from operator import index
from reprlib import repr as shorten
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from . import clang
from .frontend.program import Constants, Program
from .frontend.signature import At, Extent, Record, find_kernel, indirect
from .interface import CompileError, LaunchError

MAX_BUFFERS = 31
"""Entries of Metal's buffer argument table."""

MAX_COUNT = 2**32 - 1024
"""Largest count with 32-bit thread positions after rounding up to whole threadgroups."""

_INSTEAD = 'runtime="clang" runs the same kernels on this machine\'s CPU'
_one_launch_at_a_time = threading.Lock()
_process = {"launches": 0}
LIMITED = re.compile(
    r"\bthreadgroup\b|\bmax_total_threads_per_threadgroup\b|##|\b(texture|depth)(\d|cube|_)|\bsampler\b"
)
"""What a source with threadgroup memory, a number of threads or images has; macros may join the words."""


def unavailable() -> str | None:
    """Return None if an Apple GPU can be used, else a sentence with the missing component and a remedy."""
    if _machine() != "darwin arm64":
        return f"the metal runtime needs macOS on Apple silicon, and this is {_machine()}; {_INSTEAD}"
    try:
        package = _package()
    except ImportError as problem:
        return f"cannot import metalcompute ({problem}): `pip install metalcompute`; or else {_INSTEAD}"
    if not package.get_devices():
        return f"metalcompute finds no Metal device on this machine; {_INSTEAD}"
    return None


def launches() -> int:
    """Return the number of launches of this process, which the package keeps."""
    return _process["launches"]


class Device:
    """The default Metal device; all objects of this class refer to the same device.

    Raises LaunchError with the message of `unavailable` if there is none. `checks` is False: kernels run without the
    checks of the clang runtime.
    """

    checks = False

    def __init__(self) -> None:
        """Open the device, once per process."""
        reason = unavailable()
        if reason is not None:
            raise LaunchError(reason)
        self._package = _package()
        self._native = _open(self._package)

    def __str__(self) -> str:
        """Return the name of the GPU, such as `metalcompute.Device(Apple M1)`."""
        return str(self._native)

    def kernel(
        self,
        source: str,
        *,
        version: str = "2.3",
        include: Sequence[str | os.PathLike[str]] = (),
        fast_math: bool = True,
        define: Mapping[str, Any] | None = None,
    ) -> Kernel:
        """Compile MSL text; raise CompileError with the messages of the compiler.

        The parameters are those of the clang runtime; the package has only their defaults.
        """
        if not isinstance(source, str):
            raise TypeError(f"source is MSL text, a str; got {type(source).__name__}")
        if (version, tuple(include), fast_math, dict(define or {})) != ("2.3", (), True, {}):
            raise CompileError(
                f"version={version!r}, include={shorten(include)}, fast_math={fast_math}, define={shorten(define)}: "
                "metalcompute compiles MSL 2.3 with fast math, without included files and macros; use the clang runtime"
            )
        try:
            return Kernel(self, source, _compile(self._native, source))
        except self._package.error as problem:
            raise CompileError(str(problem)) from problem

    def buffer(self, length_or_data: Any, /) -> Any:
        """Allocate zeroed memory shared by CPU and GPU, or memory with a copy of the bytes of an object.

        The result supports only the buffer protocol (`memoryview`, `numpy.frombuffer`). Raises LaunchError if the data
        is empty or not C-contiguous, or if the allocation fails.
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

    def __init__(self, device: Device, source: str, native: Any) -> None:
        """Returned by `Device.kernel`."""
        self._device, self._source, self._native = device, source, native

    @cached_property
    def _parsed(self) -> clang.Kernel:
        """The source in the front end of the clang runtime, which tells the parameters of its kernels."""
        return clang.Device(check_order=False).kernel(self._source)

    @property
    def program(self) -> Program:
        """The source with its kernels."""
        return self._parsed.program

    def exact(self, name: str, constants: Constants) -> ExactFunction:
        """Return the `kernel` function of this name for exact grids; `clang` must be installed, too."""
        if constants:
            raise LaunchError(f"constants={shorten(constants)}: metalcompute has no function constants; {CLANG}")
        names_threads = find_kernel(name, self.program.kernels).names_threads
        return ExactFunction(self.function(name), self._parsed.function(name), names_threads)

    def function(self, name: str) -> Function:
        """Return the `kernel` function of this name; raise LaunchError if there is none."""
        if not isinstance(name, str):
            raise TypeError(f"name is the name of a kernel function, a str; got {type(name).__name__}")
        try:
            native = _link(self._native, name)
        except self._device._package.error as problem:
            raise LaunchError(f"name={shorten(name)}: no kernel function of that name in the source") from problem
        if LIMITED.search(self._source):
            _check_limits(self._source, name)
        return Function(self._device, name, native)


class Function:
    """A kernel function; a call launches it."""

    def __init__(self, device: Device, name: str, native: Any) -> None:
        """Returned by `Kernel.function`."""
        self._device = device
        self._name = name
        self._native = native

    def __call__(self, count: SupportsIndex, *buffers: Any) -> None:
        """Run `count` threads, rounded up to whole threadgroups, and wait."""
        threads = _whole("count", count, "number of threads", MAX_COUNT)
        if not 1 <= len(buffers) <= MAX_BUFFERS:
            raise LaunchError(f"{self._name} got {len(buffers)} buffers; Metal takes 1 to {MAX_BUFFERS}")
        arguments = [self._argument(position, value) for position, value in enumerate(buffers)]
        with _one_launch_at_a_time:
            try:
                _process["launches"] += 1
                self._native(threads, *arguments)  # the destructor of the handle waits
            except self._device._package.error as problem:
                raise LaunchError(f"{self._device} did not accept a launch of {self._name}: {problem}") from problem

    def dispatch(self, threads: Any, *buffers: Any, threadgroup: Any = None) -> None:
        """Raise LaunchError: the package rounds grids up to whole threadgroups."""
        raise LaunchError(f"{self._name}: metalcompute has no exact grids; pass a count, or use the clang runtime")

    def _argument(self, position: int, value: Any) -> Any:
        """Return the argument of the package for `[[buffer(position)]]`."""
        if type(value) is _buffer_type(self._device._native):
            return value
        return _exported(f"buffer({position}) of {self._name}", value)


class ExactFunction:
    """A kernel function with the calls of the clang runtime, as far as the package can run them exactly."""

    def __init__(self, function: Function, known: clang.Function, names_threads: bool) -> None:
        """Returned by `Kernel.exact`."""
        self.device, self.signature = function._device, known.signature
        self.variable_bytes, self._function, self._names_threads = known.variable_bytes, function, names_threads

    def dispatch(
        self, threads: Any, *arguments: Any, threadgroup: Any = None, local: Any = None, seconds: Any = None
    ) -> None:
        """Run exactly these threads, along one axis, in whole threadgroups of the size that the kernel names."""
        grid, width = self.signature.grid(threads, threadgroup)
        self._run(grid, width, arguments, local, seconds)

    def dispatch_threadgroups(
        self, groups: Any, *arguments: Any, threadgroup: Any, local: Any = None, seconds: Any = None
    ) -> None:
        """Run whole threadgroups, along one axis, of the size that the kernel names."""
        grid, width = self.signature.whole_grid(indirect(groups) if isinstance(groups, At) else groups, threadgroup)
        self._run(grid, width, arguments, local, seconds)

    def _run(self, grid: Extent, width: Extent, arguments: Sequence[Any], local: Any, seconds: Any) -> None:
        what = f"kernel `{self.signature.name}`"
        if seconds is not None:
            raise LaunchError(f"seconds={shorten(seconds)}: metalcompute has no limit of time; {CLANG}")
        if local:
            raise LaunchError(f"local={shorten(local)}: metalcompute binds no threadgroup memory; {CLANG}")
        if (grid[1], grid[2]) != (1, 1):
            raise LaunchError(f"threads={grid}: metalcompute dispatches grids of one axis; {CLANG}")
        if not self._names_threads or width != (self.signature.threads, 1, 1) or grid[0] % width[0]:
            raise LaunchError(
                f"threads={grid[0]} in threadgroups of {width[0]}: metalcompute runs whole threadgroups of the size "
                f"that [[max_total_threads_per_threadgroup(N)]] of {what} names, which must be {width[0]}; {CLANG}"
            )
        self.signature.check_arguments(len(arguments))
        given = []
        for position, argument in enumerate(arguments):
            buffer, offset, is_undefined = At.of(argument)
            if offset or is_undefined or isinstance(buffer, Record):
                raise LaunchError(
                    f"buffer({position}) of {what}: metalcompute binds whole buffers, without offsets and without "
                    f"pointers in structs; {CLANG}"
                )
            given.append(np.frombuffer(buffer, np.uint8) if isinstance(buffer, bytes) else buffer)
        self._function(grid[0], *given)


CLANG = "use the clang runtime"


def _exported(what: str, value: Any) -> NDArray[np.uint8]:
    """Return the bytes of an object with C-contiguous memory, as an array."""
    # The package first calls int(), which parses a bytes or memoryview object, but fails fast for an array.
    try:
        view = memoryview(value)
    except (TypeError, ValueError):  # ValueError: an array of a dtype that has no format code
        raise TypeError(
            f"{what} exports no memory: {shorten(value)}, of type {type(value).__name__}; "
            "pass scalars as NumPy scalars or in a structured array"
        ) from None
    if "O" in view.format:
        raise TypeError(f"{what} holds Python objects; pass an array of numbers")
    if not view.c_contiguous:
        raise LaunchError(f"{what} is not C-contiguous; use numpy.ascontiguousarray")
    if view.nbytes == 0:
        raise LaunchError(f"{what} is empty, and Metal has no empty buffers; handle the empty problem without a launch")
    return np.frombuffer(value, np.uint8)


def _whole(parameter: str, value: SupportsIndex, meaning: str, maximum: int) -> int:
    """Return a Python integer in [1, maximum]; the package reads NumPy integers as memory."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        whole = index(value)
    except TypeError:
        raise TypeError(f"{parameter} is a {meaning}, an integer; got {shorten(value)}") from None
    if not 1 <= whole <= maximum:
        raise LaunchError(
            f"{parameter}={shorten(whole)}: a {meaning} lies in [1, {maximum}]; handle empty problems without a launch"
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
    return type(native_device.buffer(1))  # not exported by the package


@lru_cache(maxsize=256)
def _compile(native_device: Any, source: str) -> Any:
    return native_device.kernel(source)


@lru_cache(maxsize=1024)
def _check_limits(source: str, name: str) -> None:
    """Raise for a kernel that no pipeline can have, if there is a clang that reads its source."""
    if clang.unavailable() is not None:
        return
    try:
        signature = clang.Device(check_order=False).kernel(source).function(name).signature
    except CompileError:  # the front end of anymetal has not all that Metal has
        return
    signature.check_threads()
    if signature.table >= 0:
        raise LaunchError(f"kernel `{name}` has textures or samplers, which metalcompute cannot bind; {CLANG}")
    if signature.locals:
        what = f"kernel `{name}` has threadgroup memory as a parameter"
        raise LaunchError(f"{what}, which metalcompute cannot bind; {CLANG}")


@lru_cache(maxsize=1024)
def _link(native_kernel: Any, name: str) -> Any:
    return native_kernel.function(name)
