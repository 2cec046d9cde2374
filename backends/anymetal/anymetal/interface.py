"""What all runtimes have in common: the interface of a device, and the errors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from numpy.typing import DTypeLike

__all__ = ["ArrayDevice", "Buffer", "CompileError", "Device", "Function", "Handle", "Kernel", "LaunchError"]

Buffer: TypeAlias = Any
"""Device memory with the buffer protocol, returned by ``Device.buffer``."""

Handle: TypeAlias = object
"""A launch that may still be running. Deleting the handle waits for its end."""


class CompileError(ValueError):
    """The MSL source is illegal. The message is that of the compiler, with line numbers of the source."""


class LaunchError(ValueError):
    """A kernel cannot be launched, or had undefined behaviour at run time.

    ``findings`` is what the checks of the launch found.
    """

    findings: Sequence[Any] = ()


class Function(Protocol):
    """A function of a compiled source."""

    def __call__(self, count: int, /, *arguments: Any) -> Handle:
        """Run ``count`` threads, rounded up to whole threadgroups, with ``arguments`` as buffers 0, 1, ..."""

    def dispatch(
        self, threads: int | Sequence[int], /, *arguments: Any, threadgroup: int | Sequence[int] | None = None
    ) -> Handle:
        """Run exactly these threads, or raise :class:`LaunchError` if the runtime has no exact grids."""


class Kernel(Protocol):
    """A compiled source."""

    def function(self, name: str, /) -> Function:
        """Return the function of this name."""


class Device(Protocol):
    """A device that compiles sources, allocates buffers and runs functions."""

    def kernel(
        self,
        source: str,
        /,
        *,
        version: str = "2.3",
        include: Sequence[str | os.PathLike[str]] = (),
        fast_math: bool = True,
    ) -> Kernel:
        """Compile MSL; raise :class:`CompileError` if the source is illegal, or the runtime lacks an option."""

    def buffer(self, length_or_data: Any, /) -> Buffer:
        """Allocate zeroed memory of a length in bytes, or memory with a copy of the bytes of an object."""


@runtime_checkable
class ArrayDevice(Device, Protocol):
    """A device with its own memory and arrays, which are copied to the host when NumPy reads them."""

    def result(self, shape: tuple[int, ...], dtype: DTypeLike, /) -> Any:
        """Allocate an array for the results of a kernel, filled with NaN (float dtypes) or 0; it is a ``Buffer``."""

    def is_result(self, array: Any, dtype: DTypeLike, /) -> bool:
        """Return whether a kernel can write results of a dtype into an array: a C-contiguous array of this device."""

    def cleared(self, array: Any, /) -> Any:
        """Fill an array as in :meth:`result`, and return it."""


for _error in (CompileError, LaunchError):
    _error.__module__ = "anymetal"  # where users import them from, in the first line of a traceback
