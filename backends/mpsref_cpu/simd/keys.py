"""Keys of values and their places, for compiled code: the largest key is the first of the largest values.

A key is an int64: a float32 as an integer of the same order, then the distance of its place from the last one. Keys may
be compared in any order, and LLVM vectorizes their maxima. Zeros of both signs are equal; NaN has no key.
"""

from __future__ import annotations

import numpy as np

from mpsref_cpu.compiling import inlined

LAST_PLACE = 0xFFFFFFFF

NO_KEY = np.iinfo(np.int64).min
"""Smaller than every key, in place of that of a NaN; also with a place in its lower half."""


@inlined
def key(value, place):
    """Return the key of a float32 number; ``value + 0`` is 0 for a negative zero."""
    bits = np.int32(np.float32(value + np.float32(0)).view(np.int32))
    ordered = np.int32(bits ^ (np.int32(bits >> 31) & np.int32(0x7FFFFFFF)))
    return (np.int64(ordered) << 32) | (LAST_PLACE - place)


@inlined
def place_of(key):
    """Return the place in a key."""
    return np.uintp(LAST_PLACE - (key & LAST_PLACE))
