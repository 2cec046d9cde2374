"""Signatures of kernels, and the check of the arguments of a launch: buffers, their sizes, number of threads."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from reprlib import repr as shorten
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .. import LaunchError

MOST_LOCAL_BYTES = 32768
MOST_THREADS = 1024

Extent: TypeAlias = tuple[int, int, int]
"""Numbers of threads or threadgroups along the axes of a grid."""


class Signature(NamedTuple):
    """The buffers of a kernel and the size of its threadgroups."""

    name: str
    threads: int
    """The attribute ``max_total_threads_per_threadgroup``, with a default defined by the runtime."""
    parameters: Mapping[int, str]
    """The declaration of each buffer as text, by index."""
    needs: Mapping[int, tuple[int, int]]
    """The minimum number of bytes of each buffer and whether it is written, by index."""
    axes: int = 1
    """The number of components of the thread positions."""

    @classmethod
    def of(cls, about: Mapping[str, Any], numbers: Sequence[int]) -> Signature:
        """Create it from ``KernelSource.describe`` and ``MPSREF_ABOUT``: threads, then two numbers per buffer."""
        parameters = {p["index"]: p["text"] for p in about["parameters"] if p["index"] is not None}
        needs = dict(zip(parameters, zip(numbers[1::2], numbers[2::2], strict=True), strict=True))
        axes = max((parameter["axes"] for parameter in about["parameters"]), default=1)
        return cls(about["name"], numbers[0], parameters, needs, axes)

    @property
    def buffers(self) -> int:
        """The number of buffers of a launch."""
        return max(self.parameters, default=-1) + 1

    def is_written(self, index: int) -> int:
        """Return whether the kernel may write a buffer."""
        return self.needs.get(index, (0, 0))[1]

    def check_threads(self) -> None:
        """Raise for a threadgroup size that metalcompute cannot launch; it divides by the number of simdgroups."""
        if self.threads not in range(32, 1025, 32):
            raise LaunchError(
                f"kernel `{self.name}` has max_total_threads_per_threadgroup({self.threads}); "
                "legal values are the multiples of 32 from 32 to 1024"
            )

    def check_local(self, nbytes: int) -> None:
        """Raise if a kernel has more threadgroup memory than Metal provides."""
        if nbytes > MOST_LOCAL_BYTES:
            raise LaunchError(
                f"kernel `{self.name}` has {nbytes} bytes of threadgroup memory; the maximum is {MOST_LOCAL_BYTES}"
            )

    def check_arguments(self, given: int) -> None:
        """Raise for a wrong number of buffers."""
        if given != self.buffers:
            raise LaunchError(
                f"kernel `{self.name}` takes {self.buffers} buffers, not {given}: "
                + ", ".join(f"buffer({i}) is `{text}`" for i, text in sorted(self.parameters.items()))
            )

    def check_size(self, index: int, nbytes: int) -> None:
        """Raise for a buffer that is smaller than its struct."""
        needed = self.needs.get(index, (0, 0))[0]
        if nbytes < needed:
            raise LaunchError(
                f"buffer({index}) of kernel `{self.name}`, `{self.parameters[index]}`, needs {needed} bytes "
                f"and has {nbytes}"
            )

    def groups(self, count: Any, threads: int) -> int:
        """Return the number of threadgroups of ``threads`` threads that run ``count`` threads."""
        wanted = whole("count", count, "the number of threads")
        groups = -(-wanted // threads)
        if not 0 < groups * threads <= 2**32:
            raise LaunchError(
                f"count={shorten(wanted)}: the number of threads is 1 to 2**32 after rounding up to threadgroups"
            )
        return groups

    def grid(self, threads: Any, threadgroup: Any) -> tuple[Extent, Extent]:
        """Return the threads of an exact grid and of its threadgroups, along three axes."""
        grid = _extent("threads", threads)
        chosen = (min(grid[0], self.threads), 1, 1) if threadgroup is None else _extent("threadgroup", threadgroup)
        most = min(self.threads, MOST_THREADS)
        if math.prod(chosen) > most:
            raise LaunchError(f"threadgroup={chosen}: a threadgroup of kernel `{self.name}` has at most {most} threads")
        if self.axes == 1 and math.prod(grid) != grid[0]:
            raise LaunchError(
                f"threads={grid}: kernel `{self.name}` has thread positions of one component, for grids of one axis"
            )
        if math.prod(grid) > 2**32:
            raise LaunchError(f"threads={grid}: the number of threads is 1 to 2**32")
        return grid, chosen


def _extent(name: str, value: Any) -> Extent:
    """Return one to three numbers of threads as three."""
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(parts) <= 3:
        raise LaunchError(f"{name}={shorten(value)} has one to three components")
    sizes = tuple(whole(name, part, "a number of threads") for part in parts)
    if min(sizes) < 1 or max(sizes) > 2**32 - 1:
        raise LaunchError(f"{name}={shorten(value)}: a number of threads is 1 to 2**32 - 1")
    x, y, z = *sizes, *(1 for _ in range(3 - len(sizes)))
    return x, y, z


def whole(name: str, value: Any, meaning: str) -> int:
    """Return an integer; raise ``TypeError`` for anything else, a bool too."""
    if not isinstance(value, (bool, np.bool_)):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name}={shorten(value)} of type {type(value).__name__}: {meaning} is an integer")


def device_index(index: Any, known: int) -> int:
    """Return the index of a device of this machine; -1 is the first."""
    number = whole("index", index, "the index of a device")
    if number not in range(-1, known):
        devices = "there is one device, 0" if known == 1 else f"this machine has the devices 0 to {known - 1}"
        raise LaunchError(f"index={shorten(number)}: {devices}")
    return max(number, 0)


def bytes_of(argument: Any) -> NDArray[np.uint8] | int:
    """Return the bytes of an object with the buffer protocol, or the length that an integer is."""
    try:
        view = memoryview(argument)
    except (TypeError, ValueError):  # ValueError: an array of a dtype that the protocol has no format of
        if hasattr(type(argument), "__index__") and not isinstance(argument, (bool, np.ndarray)):
            return whole("length", argument, "the length of a buffer")
        raise TypeError(
            "an argument is an object with the buffer protocol or the length of a new buffer, not "
            f"{shorten(argument)} of type {type(argument).__name__}"
        ) from None
    if "O" in view.format:
        raise TypeError("the array holds Python objects; pass an array of numbers")
    if not view.c_contiguous:
        raise LaunchError("the array is not C-contiguous: pass numpy.ascontiguousarray(...)")
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


def find_kernel(name: Any, known: Mapping[str, Any]) -> Any:
    """Return the entry of a kernel function in ``known``."""
    if not isinstance(name, str):
        raise TypeError(f"name is of type {type(name).__name__}; it is the name of a kernel function, a str")
    if name not in known:
        raise LaunchError(f"no kernel {shorten(name)} in this source; it has {', '.join(known)}")
    return known[name]
