"""float16 as bits: numba has no such type on CPUs, so kernels see ``array.view(numpy.uint16)``.

:func:`load` and :func:`store` are for compiled code. They take float32 as well, unchanged, so that one kernel serves
both dtypes. The format is IEEE 754 binary16. numba widens integers to 64 bits at every operation; ``word`` narrows
them, which also keeps loops narrow enough to vectorize.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from mpsref_cpu.compiling import generic

word = np.uint32
real = np.float32

GAP = 13
"""The number of additional mantissa bits of a float32."""
BIAS = (127 - 15) << 23
"""Added to the bits of a normal float16, shifted by ``GAP``, it gives the bits of the float32."""


class _Memory:
    """The memory of an array as writeable."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        interface = array.__array_interface__
        self.array = array
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def as_storage(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a C-contiguous array as a writeable vector, float16 as its bits in uint16.

    numba would compile everything again for read-only arrays, which have a type of their own; kernels do not write
    their inputs.
    """
    flat = array.ravel()  # faster than a reshape
    if not flat.flags.writeable:
        try:
            flat.setflags(write=True)  # of this view alone; NumPy allows it if the owner of the memory is writeable
        except ValueError:
            flat = np.asarray(_Memory(flat))
    return flat.view(np.uint16) if flat.dtype.char == "e" else flat


@generic
def load(pixel):
    """Return a stored value as float32: exact, also for subnormal numbers, infinities and NaN."""

    def load_float(pixel):
        return pixel

    def load_half(pixel):
        magnitude = word(word(pixel & 0x7FFF) << GAP)
        result = word(magnitude + BIAS)
        if magnitude < 1 << 23:  # subnormal: add the missing leading bit, then subtract its value
            result = real(word(result + (1 << 23)).view(real) - real(2.0**-14)).view(word)
        if magnitude >= 0x7C00 << GAP:  # infinity or NaN
            result = word(result + BIAS)
        return word(result | word(word(pixel & 0x8000) << 16)).view(real)

    return load_half if isinstance(pixel, types.Integer) else load_float


@generic
def store(value, like):
    """Return ``value`` as an element of an array of ``like``: to nearest, ties to even, from 65520 on infinity."""

    def store_float(value, like):
        return value

    def store_half(value, like):
        bits = real(value).view(word)
        magnitude = word(bits & 0x7FFFFFFF)
        result = word(word(magnitude - BIAS + 0xFFF + ((magnitude >> GAP) & 1)) >> GAP)
        if magnitude < (127 - 14) << 23:  # subnormal: adding 0.5 rounds at its last bit
            result = word(real(magnitude.view(real) + real(0.5)).view(word) - (126 << 23))
        if magnitude >= (127 + 16) << 23:  # 65536; below, from 65520 on, rounding has led to infinity
            result = word(0x7C00)
        if magnitude > 0x7F800000:  # NaN
            result = word(0x7E00)
        return np.uint16(result | ((bits >> 16) & 0x8000))

    return store_half if isinstance(like, types.Integer) else store_float
