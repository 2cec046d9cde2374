"""Device memory, and pinned host memory for copies from and to the device."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..interface import LaunchError
from . import driver

Bytes = NDArray[np.uint8]

SMALL = 1 << 16
"""Maximum number of bytes of host arrays that are cached on the device, and copied without pinned memory."""

TABLES = 1024
"""Maximum number of cached arrays."""

IDLE_BYTES = 1 << 30
"""Maximum number of bytes of free pinned memory that is kept for reuse."""


class MemoryDevice(Protocol):
    """The interface of a device for its memory."""

    @property
    def index(self) -> int:
        """The number of the device."""
        ...

    def upload(self, contents: NDArray[np.uint8]) -> Memory:
        """Return device memory with these bytes."""
        ...


class Memory:
    """A block of device memory, of this runtime or of another library, and the stream of its last use."""

    def __init__(self, device: MemoryDevice, address: int, nbytes: int, owner: Any, stream: Any, is_ours: bool) -> None:
        """Store ``owner``, the owner of the memory; see ``Device.allocate``."""
        self.device, self.address, self.nbytes, self.owner = device, address, nbytes, owner
        self.stream, self._is_ours = stream, is_ours
        self._lock = threading.Lock()

    def use_on(self, stream: Any) -> None:
        """Order ``stream`` after the last use; it becomes the stream of the last use, which also orders the release."""
        if stream is self.stream:
            return
        with self._lock:
            if int(stream.handle) == int(self.stream.handle):
                return
            stream.wait(self.stream)
            self.stream = stream
            if self._is_ours:
                self.owner.set_deallocation_stream(stream)


class Pinned:
    """A pool of page-locked host memory, for asynchronous copies at full bandwidth; blocks are reused by size."""

    def __init__(self) -> None:
        """Create an empty pool."""
        self._idle: dict[int, list[Any]] = {}
        self._idle_bytes = 0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Block:
        """Return a block of at least ``nbytes`` bytes, in pageable memory if page-locked memory is exhausted."""
        size = 1 << max(nbytes - 1, 4095).bit_length()
        with self._lock:
            blocks = self._idle.get(size)
            if blocks:
                self._idle_bytes -= size
                return Block(self, blocks.pop(), size, nbytes)
        core = driver.core()
        try:
            return Block(self, core.LegacyPinnedMemoryResource().allocate(size), size, nbytes)
        except Exception as problem:
            if driver.code_of(problem) is None:
                raise
            plain = np.empty(nbytes, np.uint8)
            return Block(None, core.Buffer.from_handle(plain.ctypes.data, nbytes, owner=plain), nbytes, nbytes)

    def give(self, buffer: Any, size: int) -> None:
        """Return a block to the pool."""
        with self._lock:
            if self._idle_bytes + size <= IDLE_BYTES:
                self._idle.setdefault(size, []).append(buffer)
                self._idle_bytes += size


class Block:
    """Pinned memory that returns to its pool with the last array that uses it."""

    def __init__(self, home: Pinned | None, buffer: Any, size: int, nbytes: int) -> None:
        """Returned by :meth:`Pinned.take`."""
        self._home, self.buffer, self._size = home, buffer, size
        self.address = int(buffer.handle)
        self.__array_interface__ = {
            "data": (self.address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def array(self) -> Bytes:
        """Return the bytes as an array."""
        return np.asarray(self)

    def __del__(self) -> None:
        if self._home is not None:
            self._home.give(self.buffer, self._size)


class DeviceTables:
    """LRU cache of small host arrays on the device, by contents."""

    def __init__(self) -> None:
        """Create an empty cache."""
        self._kept: OrderedDict[bytes, Memory] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, device: MemoryDevice, contents: Bytes) -> Memory:
        """Return read-only device memory with these bytes; a stream waits for their copy when it first uses them."""
        key = contents.tobytes()
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        memory = device.upload(contents)
        with self._lock:
            self._kept[key] = memory
            if len(self._kept) > TABLES:
                self._kept.popitem(last=False)
        return memory


def copy(source: int, target: int, nbytes: int, stream: Any, keep: Any = None) -> None:
    """Copy bytes between addresses of host or device memory in ``stream``; ``keep`` is the owner of host memory."""
    buffer = driver.core().Buffer.from_handle
    buffer(source, nbytes, owner=keep).copy_to(buffer(target, nbytes, owner=keep), stream=stream)


def out_of_memory(nbytes: int, device: MemoryDevice) -> LaunchError:
    """Return the error for a failed allocation, with the free memory."""
    try:
        _, free, total = driver.bindings().cuMemGetInfo()
        left = f"{free} of its {total} bytes are free"
    except Exception:  # the size of free memory is optional
        left = "less is free"
    return LaunchError(f"{device} cannot allocate {nbytes} bytes: {left}; split the batch, or free arrays")
