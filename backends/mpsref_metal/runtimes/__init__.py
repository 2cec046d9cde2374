"""Ways to run a Metal Shading Language source string, behind one interface: that of ``metalcompute.Device``.

- ``metalcompute`` runs it on an Apple GPU.
- ``clang`` compiles it for the processor at hand, and finds faults that stay hidden elsewhere.
- ``cuda`` compiles it for an NVIDIA GPU.
- ``frontend`` is what the last two share.

The interface, in the terms of the protocols below::

    device = Device()
    function = device.kernel(source).function("name")  # CompileError when the source is wrong
    out = device.buffer(nbytes)                        # zeroed; supports the buffer protocol
    handle = function(count, array, out)               # buffers 0, 1, ...; anything but a Buffer is copied
    del handle                                         # the results are there from here on
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

__all__ = ["ArrayDevice", "Buffer", "CompileError", "Device", "Function", "Handle", "Kernel", "LaunchError"]

Buffer: TypeAlias = Any
"""Device memory: any object with the buffer protocol that ``Device.buffer`` returned."""

Handle: TypeAlias = object
"""A launch that may still be running. It is over when the handle is gone."""


class CompileError(ValueError):
    """The MSL source is wrong. The message is the compiler's, with the line numbers of the source."""


class LaunchError(ValueError):
    """A kernel cannot be launched, or did something while it ran that Metal leaves undefined."""


class Function(Protocol):
    """A kernel function that can be launched."""

    def __call__(self, count: int, /, *arguments: Any) -> Handle:
        """Run ``count`` threads, rounded up to whole threadgroups, with ``arguments`` as buffers 0, 1, ..."""


class Kernel(Protocol):
    """A compiled source."""

    def function(self, name: str, /) -> Function:
        """The kernel of this name."""


class Device(Protocol):
    """What can compile a source, hold buffers and run functions."""

    def kernel(self, source: str, /) -> Kernel:
        """Compile MSL; :class:`CompileError` when the source is wrong."""

    def buffer(self, length_or_data: Any, /) -> Buffer:
        """Zeroed device memory of so many bytes, or device memory with a copy of this object's bytes."""


@runtime_checkable
class ArrayDevice(Device, Protocol):
    """A device with memory of its own, whose arrays stay there until NumPy reads them."""

    def result(self, shape: tuple[int, ...], dtype: Any, /) -> Any:
        """An array for the results of a kernel: NaN where they are floats, else zeros; a ``Buffer``, too."""

    def is_result(self, array: Any, /) -> bool:
        """Whether a kernel may write its float32 results into an array: it is one of this device, in C order."""

    def cleared(self, array: Any, /) -> Any:
        """The array, filled as :meth:`result` fills a new one."""
