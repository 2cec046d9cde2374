"""Arrays in the memory of a device, as operations see them."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Value = TypeVar("Value")


class DeviceArray(ABC):  # noqa: B024 - classes of runtimes, which do not import this package, are registered
    """An array in the memory of a device, which only backends of such devices read.

    Classes are registered (``DeviceArray.register(Array)``). They have the attributes and methods of a NumPy array
    that a call uses (``shape``, ``dtype``, ``ndim``, ``size``, ``reshape``, ``transpose``, ``view``, ``copy``,
    ``astype``, ``fill``, ``setflags``, slices, and assignment to them), the sum of two arrays, the product with
    a number and the quotient by one, and in addition:

    - ``is_contiguous``, ``is_writable``, and ``overlaps(other)``;
    - ``memory``, an object that all arrays in the same allocation share;
    - ``empty(shape, dtype)`` and ``upload(numpy_array)``, new arrays on the same device;
    - ``joined(others)``, the concatenation along the first axis;
    - ``mixed(other, own, its)``, which is ``own * self + its * other``.
    """


_found: set[type] = set()
"""The classes of arrays on a device so far: the check of a registered class takes a microsecond."""


def is_on_device(value: object) -> bool:
    """Return whether ``value`` is a :class:`DeviceArray`.

    >>> is_on_device(np.zeros(1))
    False
    """
    kind = type(value)
    if kind is np.ndarray or kind in _found:
        return kind is not np.ndarray
    if not isinstance(value, DeviceArray):
        return False
    _found.add(kind)
    return True


def on_host(value: Value) -> Value:
    """Return an array on a device as a NumPy array, and anything else as it is."""
    return cast(Value, np.asarray(value)) if is_on_device(value) else value


class DeviceArrays(Protocol):
    """What a backend has that takes arrays on its device, and leaves results there."""

    def finds(self, values: Iterable[Any]) -> bool:
        """Return whether any of the values is an array on a device."""

    def scope(self, values: Iterable[Any]) -> AbstractContextManager[Callable[[Any], Any]]:
        """Run a call on the device of these arrays, in their stream.

        Gives a function that returns an array on a device as a :class:`DeviceArray`, and anything else as it is.
        Without any array on a device, the call runs on the default device.
        """

    def upload(self, values: NDArray[Any]) -> Any:
        """Copy a NumPy array to the device; inside :meth:`scope`."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Allocate a result; inside :meth:`scope`."""

    def put(self, values: NDArray[Any], shape: tuple[int, ...]) -> Any:
        """Copy a NumPy array to the device, repeated along its first axis up to ``shape``, in the default stream."""

    def repeated(
        self, known: dict[Any, Any], given: Iterable[Any], call: Callable[[], tuple[Sequence[Any], Value]]
    ) -> tuple[Sequence[Any], Value]:
        """Return what ``call`` returns, arrays on the device and something else; inside :meth:`scope`.

        The arrays depend on the values of the ``given`` arrays, with ``None`` for absent ones, and on nothing else but
        their shapes and dtypes. Launches of an earlier call with the same ``known``, an empty dict before the first
        call, may be repeated: the arrays are then new, and the rest is that of the earlier call.
        """

    def timer(self, call: Callable[[], object]) -> Callable[[], float]:
        """Return a function that measures the seconds that a call takes on the device, in the default stream.

        The time on the host is excluded, except where the call waits for the device.
        """
