"""A strict stand-in for the Python interface of the package metalcompute 0.2.9.

    sys.modules["metalcompute"] = fake_metalcompute

The names, argument kinds, exceptions and messages are those of the published source. Each rule names the
function it mirrors: those with a capital (`Buffer_init`) and `mc_err` are in src/metalcompute.c, those that
start with `mc_sw_` in src/metalcompute.swift. Kernels are run by the clang runtime, which rounds the grid up
to whole threadgroups and runs the surplus threads, as `mc_sw_run_open` does, and which accepts only what
Metal 2.3 accepts (`mc_sw_kern_open` fixes the language version, and fast math).

Results become visible when the handle of a launch is dropped and not before, so code that forgets to wait
reads stale data here every time, and not only now and then.

What the package lets through although it ruins the result raises `Misuse` here, and what makes Metal or Swift end
the process raises `Abort`, which no handler of exceptions stops. `history` records what was asked of the device, for
tests of caching and waiting; `device_names` is the machine's GPUs; `command_buffers` are those of all launches, which
the package keeps, and `searched` is how many of them its completion handlers have looked at.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple, NoReturn

from anymetal import CompileError, LaunchError, clang

__all__ = ["Device", "compile", "error", "get_devices", "init", "release", "rerun", "run"]

history: list[str] = []
command_buffers: list[int] = []  # mc_cbs, from which nothing is removed: `released` is never set
searched = 0
device_names = ["Fake GPU"]

MAX_BUFFERS = 31  # entries of Metal's buffer argument table; a higher index aborts the process
MAX_COUNT = 2**32 - 1024  # rounded up, the grid must still fit thread_position_in_grid, a 32-bit uint
MAX_BUFFER_LENGTH = 2**33  # what this device can allocate; on a real one it depends on its memory


class Misuse(AssertionError):
    """Code under test did what the package accepts in silence and nobody may do."""


class Abort(BaseException):
    """The end of the process."""


class error(Exception):  # PyInit_metalcompute: this name, and no base but Exception
    __module__ = "metalcompute"


class metalcompute_device(NamedTuple):  # define_device_info_type
    deviceName: str
    recommendedWorkingSetSize: int
    maxTransferRate: int
    hasUnifiedMemory: bool


def get_devices(*_ignored: object) -> tuple[metalcompute_device, ...]:
    """mc_py_2_get_devices: arguments are not parsed; without a GPU the tuple is empty."""
    return tuple(metalcompute_device(name, MAX_BUFFER_LENGTH, 0, True) for name in device_names)


def _v0_1(*_: object) -> NoReturn:
    raise Misuse("the v0.1 interface keeps its state in globals and knows one input and one output")


init = release = compile = run = rerun = _v0_1  # MetalComputeMethods: there, and marked as deprecated


def _only(args: tuple[Any, ...]) -> Any:
    """The one argument of a METH_VARARGS method, by PyArg_ParseTuple with the format "O"."""
    if len(args) != 1:
        raise TypeError(f"function takes exactly 1 argument ({len(args)} given)")
    return args[0]


def _c_string(value: Any) -> str:
    """The second argument of Kernel_init and Function_init: the format "s" takes str, without NUL."""
    if not isinstance(value, str):
        raise TypeError(f"argument 2 must be str, not {type(value).__name__}")
    if "\0" in value:
        raise ValueError("embedded null character")
    value.encode()  # a lone surrogate raises UnicodeEncodeError
    return value


class _ExtensionType:
    """A static C type: no instance attributes, no weak references, no subclasses by users."""

    __slots__ = ()

    def __init_subclass__(cls, name: str | None = None) -> None:
        if name is None:
            raise TypeError("a type of metalcompute is not an acceptable base type")
        cls.__module__, cls.__name__, cls.__qualname__ = "metalcompute", name, name

    def __str__(self) -> str:
        return f"metalcompute.{type(self).__name__}"


class Device(_ExtensionType, name="Device"):
    """Device_init: keywords are ignored, and so is a failure to parse the index until the very end."""

    __slots__ = ("_engine", "_name", "_queue")

    def __init__(self, *args: Any, **_ignored: Any) -> None:
        index, parse_error = -1, None
        try:
            if len(args) > 1:
                raise TypeError(f"function takes at most 1 argument ({len(args)} given)")
            index = operator.index(args[0]) if args else -1
        except TypeError as problem:
            parse_error = problem
        if index >= len(device_names) or not device_names:  # mc_sw_dev_open; any negative index: the default
            raise error("Cannot create device")
        self._name = device_names[max(index, 0)]
        self._engine = clang.Device()
        self._queue: list[_Launch] = []
        history.append("device")
        if parse_error is not None:
            raise SystemError(f"{type(self)} returned a result with an exception set") from parse_error

    def __str__(self) -> str:
        return f"metalcompute.Device({self._name})"

    def kernel(self, *args: Any) -> _Kernel:
        return _Kernel(self, _only(args))

    def buffer(self, *args: Any) -> _Buffer:
        return _Buffer(self, _only(args))


class _Kernel(_ExtensionType, name="Kernel"):
    __slots__ = ("_device", "_program")

    def __init__(self, device: Device, program: Any) -> None:
        self._device = device
        history.append("compile")
        try:
            self._program = device._engine.kernel(_c_string(program))
        except CompileError as problem:  # mc_sw_kern_open, mc_err: the message is the compiler's text
            raise error(str(problem)) from None

    def function(self, *args: Any) -> _Function:
        return _Function(self, _only(args))


class _Function(_ExtensionType, name="Function"):
    __slots__ = ("_call", "_device")

    def __init__(self, kernel: _Kernel, name: Any) -> None:
        self._device = kernel._device
        history.append("function")
        try:
            self._call = kernel._program.function(_c_string(name))
        except LaunchError as problem:
            if str(problem).startswith("no kernel"):
                raise error("Function not found") from None  # mc_sw_fn_open
            self._call = None  # a library has the function, whatever it needs

    def __call__(self, *args: Any, **kwargs: Any) -> _Run:
        if kwargs:
            raise Misuse(f"Function_call drops keyword arguments: {sorted(kwargs)}")
        return _Run(self, args)


class _Buffer(bytearray, _ExtensionType, name="Buffer"):
    """Exports its memory and does nothing else: no length, no index, no copy (see _hide_bytearray)."""

    __slots__ = ("_device", "_length")

    def __init__(self, device: Device, source: Any) -> None:
        # Buffer_init: a C-contiguous buffer is copied; else whatever int() takes, "12" and 3.7 included, is
        # a length. NumPy scalars export a buffer, so np.int64(400) is eight bytes and not a length.
        try:
            length: int | None = int(source)
        except Exception:  # PyErr_Clear drops every exception
            length = None
        view = _contiguous(source)
        if view is not None:
            length = view.nbytes
        elif length is None:
            raise error("Unsupported input format")
        if not 0 < length <= MAX_BUFFER_LENGTH:  # mc_sw_buf_open: makeBuffer returns nil
            raise error("Could not make buffer")
        bytearray.__init__(self, length if view is None else view.tobytes())
        self._device = device
        self._length = length

    def __str__(self) -> str:
        return f"metalcompute.Buffer(length={self._length})"


def _contiguous(source: Any) -> memoryview | None:
    """The view that PyObject_GetBuffer with PyBUF_ND grants, or None where it fails."""
    try:
        view = memoryview(source)
    except TypeError:
        return None
    return view if view.c_contiguous else None


class _Hidden:
    """An attribute of bytearray that BufferType does not have."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        kind = TypeError if self.name.startswith("__") else AttributeError
        raise kind(f"a metalcompute.Buffer has no {self.name}; use memoryview(buffer)")


def _hide_bytearray() -> None:
    """Python before 3.12 can export memory only by deriving from a type that does; hide all the rest."""
    for name in set(dir(bytearray)) - set(dir(object)) - {"__buffer__", "__release_buffer__"}:
        setattr(_Buffer, name, _Hidden(name))
    for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__repr__"):
        setattr(_Buffer, name, getattr(object, name))


_hide_bytearray()


class _Run(_ExtensionType, name="Run"):
    """The handle of a launch. It has no methods: to drop it is to wait (Run_dealloc, mc_sw_run_close)."""

    __slots__ = ("_launch",)

    def __init__(self, function: _Function, args: tuple[Any, ...]) -> None:
        # Run_init: the number of arguments is looked at first, then the count, then each buffer in turn.
        if len(args) < 2:
            raise error("Buffer not found")
        count = _count(args[0])
        device = function._device
        # to_buffer: a Buffer is bound as it is, anything else becomes a temporary copy
        buffers = [arg if type(arg) is _Buffer else _Buffer(device, arg) for arg in args[1:]]
        if len(buffers) > MAX_BUFFERS:
            raise Abort(f"{len(buffers)} buffers; the argument table has {MAX_BUFFERS}")
        # mc_sw_run_open returns from here on without endEncoding, which Metal answers by aborting the process: where
        # the pipeline fails, and for buffers, which it finds by number in the Device object that made them.
        if function._call is None:
            raise Abort("failed assertion: Command encoder released without endEncoding (CannotCreatePipelineState)")
        if function._call.signature.threads < 32:
            raise Abort("Fatal error: Division by zero")  # h = maxTotalThreadsPerThreadgroup / threadExecutionWidth
        if any(buffer._device is not device for buffer in buffers):
            raise Abort("failed assertion: Command encoder released without endEncoding (BufferNotFound)")
        history.append("launch")
        self._launch = _Launch(function, count, buffers)
        for index, (buffer, argument) in enumerate(zip(buffers, args[1:], strict=True)):
            if buffer is not argument and self._launch.results[buffer] != bytes(buffer):
                raise Misuse(f"the kernel wrote buffer({index}), which is a copy of a Python object")
        device._queue.append(self._launch)

    def __del__(self) -> None:
        if hasattr(self, "_launch"):  # not so where __init__ raised
            self._launch.wait()


def _count(value: Any) -> int:
    """Run_init: anything that is a number will do, and nothing checks what it is converted to."""
    kinds = ("__index__", "__int__", "__float__", "__complex__")  # PyNumber_Check
    if not any(hasattr(type(value), kind) for kind in kinds):
        raise error("First argument should be an integer kernel count")
    try:
        count = int(value)
    except Exception as problem:  # PyLong_AsLongLong(NULL)
        raise SystemError("bad argument to internal function") from problem
    if count != value or not 0 < count <= MAX_COUNT:
        raise Misuse(f"count={value!r}: truncated to an integer, and used without a check")
    return count


class _Launch:
    """Runs at once, in device memory of its own; `results` reach the buffers that Python sees in `wait`."""

    def __init__(self, function: _Function, count: int, buffers: list[_Buffer]) -> None:
        self.queue = function._device._queue
        memory = {buffer: function._device._engine.buffer(self._contents(buffer)) for buffer in buffers}
        history.append("pipeline")  # mc_sw_run_open builds it anew for every launch
        function._call(count, *(memory[buffer] for buffer in buffers))
        self.results = {buffer: bytes(copy) for buffer, copy in memory.items()}
        self.number = len(command_buffers)
        command_buffers.append(self.number)

    def _contents(self, buffer: _Buffer) -> bytes:
        """What the GPU finds in a buffer: the queue runs in order, so the last launch that was queued."""
        launches = (launch for launch in reversed(self.queue) if buffer in launch.results)
        last = next(launches, None)
        return bytes(buffer) if last is None else last.results[buffer]

    def wait(self) -> None:
        """This launch and all that were queued before it have ended."""
        global searched
        history.append("wait")
        while self in self.queue:
            ended = self.queue.pop(0)
            for buffer, result in ended.results.items():
                memoryview(buffer)[:] = result
            searched += command_buffers.index(ended.number) + 1
