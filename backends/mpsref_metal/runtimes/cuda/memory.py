"""Device memory, and pinned host memory for the way there and back."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .. import LaunchError
from . import driver

Bytes = NDArray[np.uint8]

SMALL = 1 << 16
"""Host arrays up to so many bytes are kept on the device by their contents, and travel without pinned memory."""

TABLES = 1024
"""How many small arrays are kept."""

IDLE_BYTES = 1 << 30
"""How much pinned memory waits for reuse; the system has less for others meanwhile."""


class MemoryDevice(Protocol):
    """What device memory needs of its device."""

    @property
    def index(self) -> int:
        """The number of the device."""
        ...

    def upload(self, contents: NDArray[np.uint8]) -> Memory:
        """Return device memory with these bytes."""
        ...

    def finish(self) -> None:
        """Wait for the stream."""
        ...


class Memory:
    """A block of device memory, ours or another library's, and the stream of its last use."""

    def __init__(self, device: MemoryDevice, address: int, nbytes: int, owner: Any, stream: Any, is_ours: bool) -> None:
        """Keep ``owner``, which holds the memory; see ``Device.allocate``."""
        self.device, self.address, self.nbytes, self.owner = device, address, nbytes, owner
        self.stream, self._is_ours = stream, is_ours
        self._lock = threading.Lock()

    def use_on(self, stream: Any) -> None:
        """Let ``stream`` wait for the last use; this one is the last from here on, and orders the release."""
        with self._lock:
            if int(stream.handle) == int(self.stream.handle):
                return
            stream.wait(self.stream)
            self.stream = stream
            if self._is_ours:
                self.owner.set_deallocation_stream(stream)


class Pinned:
    """Blocks of page-locked host memory, reused by size: copies from and to the card run at full speed and in order."""

    def __init__(self) -> None:
        """Start with no block."""
        self._idle: dict[int, list[Any]] = {}
        self._idle_bytes = 0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Block:
        """A block of at least so many bytes; ordinary memory where the system locks no more pages."""
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
        """Take a block back."""
        with self._lock:
            if self._idle_bytes + size <= IDLE_BYTES:
                self._idle.setdefault(size, []).append(buffer)
                self._idle_bytes += size


class Block:
    """Pinned memory that goes back to where it came from when the last array over it is gone."""

    def __init__(self, home: Pinned | None, buffer: Any, size: int, nbytes: int) -> None:
        """Made by :meth:`Pinned.take`."""
        self._home, self.buffer, self._size = home, buffer, size
        self.address = int(buffer.handle)
        self.__array_interface__ = {
            "data": (self.address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def array(self) -> Bytes:
        """The bytes."""
        return np.asarray(self)

    def __del__(self) -> None:
        if self._home is not None:
            self._home.give(self.buffer, self._size)


class Tables:
    """Small host arrays that are on the device already, by their contents; the one used longest ago goes first."""

    def __init__(self) -> None:
        """Start with none."""
        self._kept: OrderedDict[bytes, Memory] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, device: MemoryDevice, contents: Bytes) -> Memory:
        """The memory that holds these bytes; no kernel may write it."""
        key = contents.tobytes()
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        memory = device.upload(contents)
        memory.device.finish()  # from here on any stream may read it
        with self._lock:
            self._kept[key] = memory
            if len(self._kept) > TABLES:
                self._kept.popitem(last=False)
        return memory


def copy(source: int, target: int, nbytes: int, stream: Any, keep: Any = None) -> None:
    """Copy bytes between two addresses of either memory, in the order of ``stream``; ``keep`` holds host memory."""
    buffer = driver.core().Buffer.from_handle
    buffer(source, nbytes, owner=keep).copy_to(buffer(target, nbytes, owner=keep), stream=stream)


def out_of_memory(nbytes: int, device: MemoryDevice) -> LaunchError:
    """The error for an allocation that failed, with what is free."""
    try:
        _, free, total = driver.bindings().cuMemGetInfo()
        left = f"{free} of its {total} bytes are free"
    except Exception:  # no figure is better than another error
        left = "less is free"
    return LaunchError(f"{device} cannot allocate {nbytes} bytes: {left}; split the batch, or free arrays")
