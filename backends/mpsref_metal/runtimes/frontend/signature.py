"""What a launch must fit: the number of buffers, their sizes, the number of threads."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import LaunchError

MOST_LOCAL_BYTES = 32768


class Signature(NamedTuple):
    """The buffers of a kernel and the size of its threadgroups."""

    name: str
    threads: int
    """Of ``max_total_threads_per_threadgroup``; what the runtime says where a kernel has none."""
    parameters: Mapping[int, str]
    """The text of each buffer's declaration, by index."""
    needs: Mapping[int, tuple[int, int]]
    """By index: how many bytes it needs at least, and whether it is written."""

    @classmethod
    def of(cls, about: Mapping[str, Any], numbers: Sequence[int]) -> Signature:
        """From ``KernelSource.describe`` and what ``MPSREF_ABOUT`` keeps: threads, then two numbers a buffer."""
        parameters = {p["index"]: p["text"] for p in about["parameters"] if p["index"] is not None}
        needs = dict(zip(parameters, zip(numbers[1::2], numbers[2::2], strict=True), strict=True))
        return cls(about["name"], numbers[0], parameters, needs)

    @property
    def buffers(self) -> int:
        """How many buffers a launch has."""
        return max(self.parameters, default=-1) + 1

    def is_written(self, index: int) -> int:
        """Whether the kernel may write a buffer."""
        return self.needs.get(index, (0, 0))[1]

    def check_threads(self) -> None:
        """Refuse a size of threadgroups that metalcompute cannot launch: it divides by the number of simdgroups."""
        if self.threads not in range(32, 1025, 32):
            raise LaunchError(
                f"kernel `{self.name}` asks for max_total_threads_per_threadgroup({self.threads}); "
                "legal are the multiples of 32 from 32 to 1024"
            )

    def check_local(self, nbytes: int) -> None:
        """Refuse more threadgroup memory than Metal has."""
        if nbytes > MOST_LOCAL_BYTES:
            raise LaunchError(
                f"kernel `{self.name}` has {nbytes} bytes of threadgroup memory; a threadgroup has {MOST_LOCAL_BYTES}"
            )

    def check_arguments(self, given: int) -> None:
        """Refuse another number of buffers."""
        if given != self.buffers:
            raise LaunchError(
                f"kernel `{self.name}` takes {self.buffers} buffers, not {given}: "
                + ", ".join(f"buffer({i}) is `{text}`" for i, text in sorted(self.parameters.items()))
            )

    def check_size(self, index: int, nbytes: int) -> None:
        """Refuse a buffer that is smaller than the struct it holds."""
        needed = self.needs.get(index, (0, 0))[0]
        if nbytes < needed:
            raise LaunchError(
                f"buffer({index}) of kernel `{self.name}`, `{self.parameters[index]}`, needs {needed} bytes "
                f"and has {nbytes}"
            )

    def groups(self, count: Any, threads: int) -> int:
        """How many threadgroups of so many threads run ``count`` threads."""
        try:
            wanted = operator.index(count)
        except TypeError:
            raise TypeError(f"count={count!r}: the number of threads is an integer") from None
        groups = -(-wanted // threads)
        if not 0 < groups * threads <= 2**32:
            raise LaunchError(f"count={count}: the number of threads is 1 to 2**32 after rounding up to threadgroups")
        return groups


def bytes_of(argument: Any) -> NDArray[np.uint8] | None:
    """The bytes of an object with the buffer protocol; None for an integer."""
    try:
        view = memoryview(argument)
    except TypeError:
        if hasattr(argument, "__index__"):
            return None
        raise TypeError(
            f"an argument is an object with the buffer protocol or the length of a new buffer, not {argument!r}"
        ) from None
    if not view.c_contiguous:
        raise LaunchError("the array is not C-contiguous: pass numpy.ascontiguousarray(...)")
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
