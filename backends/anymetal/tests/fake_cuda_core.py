"""A stand-in for NVIDIA's package cuda.core 1.2, as far as the cuda runtime uses it: no GPU, no driver.

    sys.modules["cuda.core"] = fake_cuda_core

Device memory is host memory. A launch runs the MSL source of the kernel through the clang runtime, which `sources`
finds by its PTX; what is PTX and what the driver says to it stays for a real GPU to show. Everything happens at once,
but a fault shows only when a stream is synchronized, as on a GPU. `history` records what was asked of the driver, and
`faults` is what goes wrong next: the name of a call, and the driver's error.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import threading
import time
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from anymetal import clang
from anymetal.frontend.signature import At, Parameter, Pointer, Record

__version__ = "1.2.0"

history: list[str] = []
faults: dict[str, str] = {}
sources: dict[bytes, tuple[str, str, bool]] = {}
"""By PTX: the MSL source, the name of its kernel, and whether the entry takes a part of a grid."""
cards: list[tuple[str, tuple[int, int]]] = [("Fake GPU", (9, 0)), ("Other fake GPU", (8, 0))]
registers: dict[str, int] = {}
"""By kernel: the most threads of a threadgroup."""
spilled: dict[str, int] = {}
"""By kernel: the bytes of local memory of a thread."""
parts: list[tuple[Any, ...]] = []
"""The parts of a grid that were launched; the whole grid runs once they cover it."""
blocks: dict[int, int] = {}
"""Bytes at each address that was allocated."""

_threads = threading.local()
_handles = itertools.count(0x1000)


class CUDAError(Exception):
    """Raised by cuda.core; its message starts with the driver's name of the error."""


class ComputeCapability(NamedTuple):
    major: int
    minor: int


def reset() -> None:
    history.clear()
    parts.clear()
    faults.clear()
    registers.clear()
    spilled.clear()


def _fail(call: str) -> None:
    if call in faults:
        raise CUDAError(f"{faults.pop(call)}: what the driver says about it")


class Event:
    is_done = True

    def __init__(self) -> None:
        self._time = time.perf_counter()

    def __sub__(self, earlier: Event) -> float:
        return 1000 * (self._time - earlier._time)


class Stream:
    def __init__(self, handle: int) -> None:
        self.handle = handle

    @classmethod
    def from_handle(cls, handle: int) -> Stream:
        return cls(handle)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.handle == self.handle

    def __hash__(self) -> int:
        return self.handle

    def wait(self, other: Stream) -> None:
        history.append(f"{self.handle:#x} waits for {other.handle:#x}")

    def record(self, options: Any = None) -> Event:
        return Event()

    def sync(self) -> None:
        history.append(f"sync {self.handle:#x}")
        _fail("sync")


LEGACY_DEFAULT_STREAM = Stream(1)
PER_THREAD_DEFAULT_STREAM = Stream(2)


class Device:
    """A thread may allocate on a device once it was made current through this package."""

    def __init__(self, index: int | None = None) -> None:
        self.device_id = getattr(_threads, "current", 0) if index is None else index
        self.name, capability = cards[self.device_id]
        self.compute_capability = ComputeCapability(*capability)

    @staticmethod
    def get_all_devices() -> tuple[Device, ...]:
        _fail("init")
        return tuple(Device(index) for index in range(len(cards)))

    def set_current(self) -> None:
        _threads.__dict__.setdefault("initialized", set()).add(self.device_id)
        _threads.current = self.device_id

    def create_stream(self) -> Stream:
        self._check()
        return Stream(next(_handles))

    def allocate(self, size: int, *, stream: Stream) -> Buffer:
        self._check()
        _fail("allocate")
        return Buffer.allocated(size)

    def _check(self) -> None:
        assert getattr(_threads, "current", None) == self.device_id, "the device is not the current one of this thread"
        assert self.device_id in _threads.initialized, "cuda.core has not made the device current"


class Buffer:
    def __init__(self, handle: int, size: int, owner: Any) -> None:
        self.handle, self.size, self.owner = handle, size, owner

    @classmethod
    def allocated(cls, size: int) -> Buffer:
        memory = np.full(size, 0x55, np.uint8)
        blocks[memory.ctypes.data] = size
        return _Allocated(memory.ctypes.data, size, memory)

    @classmethod
    def from_handle(cls, handle: int, size: int, *, owner: Any = None) -> Buffer:
        assert handle
        return Buffer(handle, size, owner)

    def copy_to(self, target: Buffer, *, stream: Stream) -> None:
        assert self.size == target.size, "cuda.core copies between buffers of the same size"
        history.append(f"copy {self.size} on {stream.handle:#x}")
        _fail("copy")
        ctypes.memmove(target.handle, self.handle, self.size)

    def fill(self, value: int, *, stream: Stream) -> None:
        ctypes.memset(self.handle, value, self.size)

    def set_deallocation_stream(self, stream: Stream) -> None:
        assert isinstance(self, _Allocated)


class _Allocated(Buffer):
    def __del__(self) -> None:
        blocks.pop(self.handle, None)


class LegacyPinnedMemoryResource:
    def allocate(self, size: int) -> Buffer:
        history.append(f"pin {size}")
        _fail("pin")
        memory = np.empty(size, np.uint8)
        return Buffer(memory.ctypes.data, size, memory)


class LaunchConfig(NamedTuple):
    grid: Any
    block: Any
    shmem_size: int = 0
    programmatic_stream_serialization: bool = False


class Kernel:
    def __init__(self, source: str, name: str, is_exact: bool) -> None:
        self.source, self.name, self.is_exact = source, name, is_exact
        self.attributes = SimpleNamespace(
            shared_size_bytes=0,
            max_threads_per_block=registers.get(name, 1024),
            local_size_bytes=spilled.get(name, 0),
        )


class ObjectCode:
    def __init__(self, ptx: bytes) -> None:
        self.ptx = ptx

    @staticmethod
    def from_ptx(ptx: bytes) -> ObjectCode:
        assert b".version" in ptx
        return ObjectCode(ptx)

    def get_kernel(self, entry: str) -> Kernel:
        resident = re.search(rb"\.minnctapersm (\d+)", self.ptx)
        history.append(f"load {entry}" + (f", {int(resident[1])} resident" if resident else ""))
        _fail("load")
        assert f".visible .entry {entry}(".encode() in self.ptx
        return Kernel(*sources[self.ptx])


def launch(stream: Stream, config: LaunchConfig, kernel: Kernel, *addresses: int) -> None:
    """Run a kernel through the clang runtime on copies of its buffers, which end where their blocks end."""
    early = " early" if config.programmatic_stream_serialization else ""
    history.append(f"launch {kernel.name} {config.grid}x{config.block} on {stream.handle:#x}{early}")
    _fail("launch")
    device = _engine()
    memories = [_from(address) for address in addresses]
    part = memories[-1]
    copies, before = [device.buffer(memory) for memory in memories], [memory.copy() for memory in memories]
    function = device.kernel(kernel.source, version="3.1").function(kernel.name)
    if (place := function.signature.table) >= 0:
        texels = _texels(memories[place])
        memories += texels.values()
        copies += (device.buffer(one) for one in texels.values())
        before += (one.copy() for one in texels.values())
        copies[place] = _table(
            memories[place], dict(zip(texels, copies[-len(texels) :], strict=True)), function.signature
        )
    if kernel.is_exact:
        _launch_part(function, config, part.view(np.uint32), copies[: function.signature.buffers])
    else:
        function(config.grid * config.block, *copies)
    for memory, copied, old in zip(memories, copies, before, strict=True):
        if isinstance(copied, Record):
            continue
        written = np.flatnonzero(np.asarray(copied) != old)  # several buffers may lie in one block
        memory[written] = np.asarray(copied)[written]


def _launch_part(function: Any, config: LaunchConfig, part: Any, buffers: list[Any]) -> None:
    """Run the whole grid when its last part arrives: the parts must cover it once."""
    grid, width, groups, first = (tuple(map(int, part[k : k + 3])) for k in (0, 3, 6, 9))
    offsets, start = part[12:].tolist(), [a * b for a, b in zip(first, width, strict=True)]
    assert groups == tuple(-(-a // b) for a, b in zip(grid, width, strict=True))
    assert all(a <= b for a, b in zip(config.block, width, strict=True))
    assert all(a == b or c == 1 for a, b, c in zip(config.block, width, config.grid, strict=True)), (
        "all groups are full"
    )
    parts.append((grid, start, [n * m for n, m in zip(config.grid, config.block, strict=True)]))
    covered = np.zeros(grid[::-1], np.uint8)
    for of, (x, y, z), (width_x, height, depth) in parts:
        assert of == grid
        covered[z : z + depth, y : y + height, x : x + width_x] += 1
    assert covered.max() == 1, "no thread runs twice"
    if covered.all():
        parts.clear()
        rows = zip(offsets, [*offsets[1:], config.shmem_size], strict=False)
        local = {k: end - start for k, (start, end) in enumerate(rows) if end > start}
        function.dispatch(grid, *buffers, threadgroup=width, local=local)


def _texels(table: Any) -> dict[int, Any]:
    """Return the memory of each texture in a table, by the offset of its entry."""
    places = {64 * i: int(address) for i, address in enumerate(table.view(np.uint64)[::8])}
    return {at: _from(address) for at, address in places.items() if address}


def _table(table: Any, texels: dict[int, Any], signature: Any) -> Record:
    pointers = {}
    for at, memory in texels.items():
        image = signature.images["texture"][at // 64]
        about = Parameter(image.text, 1, 1, image.is_written, 0, 1)
        pointers[at] = Pointer(f"texture({at // 64})", about, At(memory))
    return Record(table.tobytes(), pointers)


def _engine() -> clang.Device:
    if not hasattr(_threads, "engine"):
        _threads.engine = clang.Device(check_order=False)
    return _threads.engine  # type: ignore[no-any-return]


def _from(address: int) -> Any:
    start = max((start for start in list(blocks) if start <= address), default=None)
    assert start is not None
    assert address < start + blocks[start], "the address lies in no memory"
    length = start + blocks[start] - address
    return np.frombuffer((ctypes.c_uint8 * length).from_address(address), np.uint8)


class StridedMemoryView:
    """Of an object with __cuda_array_interface__; what it exports is a NumPy array, without a copy."""

    def __init__(self, ptr: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: Any, obj: Any) -> None:
        self.ptr, self.shape, self.strides, self.dtype, self.exporting_obj = ptr, shape, strides, np.dtype(dtype), obj
        self.device_id = 0

    @classmethod
    def from_any_interface(cls, value: Any, stream_ptr: int) -> StridedMemoryView:
        assert stream_ptr
        found = value.__cuda_array_interface__
        dtype, strides = np.dtype(found["typestr"]), found.get("strides")
        counts = None if strides is None else tuple(stride // dtype.itemsize for stride in strides)
        return cls(found["data"][0], found["shape"], counts, dtype, value)

    from_cuda_array_interface = from_any_interface

    @classmethod
    def from_buffer(
        cls, buffer: Buffer, shape: tuple[int, ...], strides: tuple[int, ...], *, dtype: Any
    ) -> StridedMemoryView:
        return cls(buffer.handle, shape, strides, dtype, buffer)

    def __dlpack__(self, *, stream: int, max_version: Any = None) -> Any:
        assert stream == -1
        history.append("export")
        return self


def _current_context() -> tuple[int, int]:
    return 0, int(hasattr(_threads, "current"))


bindings = SimpleNamespace(
    cuCtxGetCurrent=_current_context,
    cuCtxGetDevice=lambda: (0, _threads.current),
    cuMemGetInfo=lambda: (0, 1000, 2000),
)
"""What the runtime uses of cuda.bindings.driver."""

utils = SimpleNamespace(StridedMemoryView=StridedMemoryView)
system = SimpleNamespace(
    get_kernel_mode_driver_version=lambda: (580, 159, 4), get_user_mode_driver_version=lambda: (13, 0)
)
