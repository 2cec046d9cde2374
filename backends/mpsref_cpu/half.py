"""float16 images: numba has no such type on CPUs, so kernels compute on float32 copies.

The copies are exact, also of subnormal numbers, infinities and NaN; results are rounded to nearest, ties to even, from
65520 on to infinity. The format is IEEE 754 binary16. numba widens integers to 64 bits at every operation; ``word``
narrows them, which also keeps loops narrow enough to vectorize.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.registry import Implementation
from mpsref_cpu.compiling import compiled
from mpsref_cpu.threads import as_storage, for_rows

word = np.uint32
real = np.float32

GAP = 13
"""The number of additional mantissa bits of a float32."""
BIAS = (127 - 15) << 23
"""Added to the bits of a normal float16, shifted by ``GAP``, it gives the bits of the float32."""

BLOCK = 1 << 14
"""Number of elements of a chunk."""

_stored: set[Callable[..., Any]] = set()


def copies_bits(function: Implementation) -> Implementation:
    """Declare that an implementation moves elements as they are stored, of any dtype."""
    _stored.add(function)
    return function


def in_float32(function: Implementation) -> Implementation:
    """Return an implementation for float32 and float16 from one for float32."""
    if function in _stored:
        return function

    @functools.wraps(function)
    def convert(problem: Any, *inputs: Array, out: Any) -> None:
        results = out if isinstance(out, tuple) else (out,)
        for array in (*inputs, *results):  # each call counts: small kernels take microseconds
            if array.dtype.char == "e":
                break
        else:
            function(problem, *inputs, out=out)
            return
        wide = [np.empty(array.shape, real) if array.dtype.char == "e" else array for array in results]
        function(problem, *map(_widened, inputs), out=tuple(wide) if isinstance(out, tuple) else wide[0])
        for result, found in zip(results, wide, strict=True):
            if found is not result:
                _convert(_narrow, found.ravel(), as_storage(result))

    return convert


def _widened(array: Array) -> Array:
    """Return a float16 array as float32, and others unchanged."""
    if array.dtype.char != "e":
        return array
    wide = np.empty(array.shape, real)
    _convert(_widen, as_storage(array), wide.ravel())
    return wide


def _convert(kernel: Any, source: Array, target: Array) -> None:
    for_rows(kernel, -(-source.size // BLOCK), source, target, nbytes=source.nbytes + target.nbytes)


@compiled
def _widen(begin, end, halves, wide):
    for i in range(np.uintp(begin * BLOCK), np.uintp(min(end * BLOCK, wide.size))):
        half = halves[i]
        magnitude = word(word(half & 0x7FFF) << GAP)
        result = word(magnitude + BIAS)
        if magnitude < 1 << 23:  # subnormal: add the missing leading bit, then subtract its value
            result = real(word(result + (1 << 23)).view(real) - real(2.0**-14)).view(word)
        if magnitude >= 0x7C00 << GAP:  # infinity or NaN
            result = word(result + BIAS)
        wide[i] = word(result | word(word(half & 0x8000) << 16)).view(real)


@compiled
def _narrow(begin, end, wide, halves):
    for i in range(np.uintp(begin * BLOCK), np.uintp(min(end * BLOCK, wide.size))):
        bits = real(wide[i]).view(word)
        magnitude = word(bits & 0x7FFFFFFF)
        result = word(word(magnitude - BIAS + 0xFFF + ((magnitude >> GAP) & 1)) >> GAP)
        if magnitude < (127 - 14) << 23:  # subnormal: adding 0.5 rounds at its last bit
            result = word(real(magnitude.view(real) + real(0.5)).view(word) - (126 << 23))
        if magnitude >= (127 + 16) << 23:  # 65536; below, from 65520 on, rounding has led to infinity
            result = word(0x7C00)
        if magnitude > 0x7F800000:  # NaN
            result = word(0x7E00)
        halves[i] = np.uint16(result | ((bits >> 16) & 0x8000))
