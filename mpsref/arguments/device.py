"""Arrays in the memory of a device, as operations see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np


class DeviceArray:
    """Base class of arrays in the memory of a device, which only backends of that device read.

    A subclass has the attributes and methods of a NumPy array that a call uses: ``shape``, ``dtype``, ``ndim``,
    ``size``, ``reshape``, ``transpose``, ``copy``, ``astype``, ``fill``, slices, and assignment to them.
    """

    __slots__ = ()

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie in C order, without gaps."""
        raise NotImplementedError

    def copy(self) -> Any:
        """Return a copy on the device, in C order."""
        raise NotImplementedError

    def overlaps(self, other: Any) -> bool:
        """Return whether it shares memory with ``other``."""
        raise NotImplementedError


class DeviceArrays(Protocol):
    """What a backend has that takes arrays on its device, and leaves results there."""

    def finds(self, values: Iterable[Any]) -> bool:
        """Return whether any of the values is an array on a device."""

    def scope(self, values: Iterable[Any]) -> AbstractContextManager[Callable[[Any], Any]]:
        """Run a call on the device of these arrays, in their stream; gives what adopts one as a ``DeviceArray``.

        Anything but an array on a device is returned as it is.
        """

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
        """Allocate a result; inside :meth:`scope`."""
