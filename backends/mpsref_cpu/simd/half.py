"""float16 as bits: numba has no such type on CPUs, so kernels see ``array.view(numpy.uint16)``.

:func:`load` and :func:`store` are for use inside compiled functions. They take float32 as well, where they do nothing,
so that one kernel serves both dtypes; the type decides while compiling. Format: IEEE 754 binary16. Integers of numba
grow to 64 bits at every operation; ``word`` cuts them back, which also keeps the loops narrow enough to vectorize.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

word = np.uint32
real = np.float32

GAP = 13
"""A float32 has this many more bits of mantissa."""
BIAS = (127 - 15) << 23
"""Added to the bits of a normal float16, moved up by GAP, it makes them those of the float32."""


class _Memory:
    """The memory of an array, as one that may be written."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        interface = array.__array_interface__
        self.array = array
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def as_storage(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return C-contiguous pixels as one vector that compiled code can read: uint16 bits in place of float16.

    A read-only array has another type for numba, and everything would be compiled again for it: it is given as one that
    may be written. No kernel writes its inputs.
    """
    flat = array.ravel()  # less work than a reshape
    if not flat.flags.writeable:
        try:
            flat.setflags(write=True)  # of this view alone; NumPy allows it where the memory's owner may be written
        except ValueError:
            flat = np.asarray(_Memory(flat))
    return flat.view(np.uint16) if flat.dtype.char == "e" else flat


def load(pixel: Any) -> Any:
    """Return a stored pixel as float32: exact, also for subnormal numbers, infinities and NaN."""
    raise NotImplementedError("for compiled code only")


def store(value: Any, like: Any) -> Any:
    """Return ``value`` as an element of an array of ``like``: to nearest, ties to even, from 65520 on infinity."""
    raise NotImplementedError("for compiled code only")


@overload(load)
def _load(pixel: Any) -> Any:
    def load_float(pixel: Any) -> Any:
        return pixel

    def load_half(pixel: Any) -> Any:
        magnitude = word(word(pixel & 0x7FFF) << GAP)
        result = word(magnitude + BIAS)
        if magnitude < 1 << 23:  # subnormal: give it the leading bit that it lacks, then subtract it as a number
            result = real(word(result + (1 << 23)).view(real) - real(2.0**-14)).view(word)
        if magnitude >= 0x7C00 << GAP:  # infinity or NaN
            result = word(result + BIAS)
        return word(result | word(word(pixel & 0x8000) << 16)).view(real)

    return load_half if isinstance(pixel, types.Integer) else load_float


@overload(store)
def _store(value: Any, like: Any) -> Any:
    def store_float(value: Any, like: Any) -> Any:
        return value

    def store_half(value: Any, like: Any) -> Any:
        bits = real(value).view(word)
        magnitude = word(bits & 0x7FFFFFFF)
        result = word(word(magnitude - BIAS + 0xFFF + ((magnitude >> GAP) & 1)) >> GAP)
        if magnitude < (127 - 14) << 23:  # subnormal: adding 0.5 rounds at the place of its last bit
            result = word(real(magnitude.view(real) + real(0.5)).view(word) - (126 << 23))
        if magnitude >= (127 + 16) << 23:  # 65536; below, from 65520 on, rounding has led to infinity
            result = word(0x7C00)
        if magnitude > 0x7F800000:  # NaN
            result = word(0x7E00)
        return np.uint16(result | ((bits >> 16) & 0x8000))

    return store_half if isinstance(like, types.Integer) else store_float
