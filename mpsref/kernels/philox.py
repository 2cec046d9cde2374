"""Philox4x32-10: four random words from a counter and a key, without a state.

Any word of the stream is computed alone, so a mask does not depend on how the work is cut. Ten rounds of 32-bit
multiplications and exclusive ors; the same in NumPy, in numba and in MSL.

>>> zero = np.zeros(1, np.uint64)
>>> [f"{int(word[0]):08x}" for word in philox4x32((zero, zero, zero, zero), (0, 0))]
['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint64]
"""32-bit words; 64 bits wide, so that products fit."""

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
"""What is added to the two words of the key after each round."""
ROUNDS = 10

LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


def halves(number: int) -> tuple[int, int]:
    """Return the low and the high 32 bits of a 64-bit number."""
    return number & 0xFFFFFFFF, number >> 32


def philox4x32(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, Words, Words, Words]:
    """Return words 0 to 3 of each counter; the arrays broadcast against each other."""
    c0, c1, c2, c3 = counter
    k0, k1 = (np.uint64(word) for word in key)
    for _ in range(ROUNDS):
        product0, product1 = np.uint64(MULTIPLIERS[0]) * c0, np.uint64(MULTIPLIERS[1]) * c2
        c0, c1 = (product1 >> SHIFT) ^ c1 ^ k0, product1 & LOW
        c2, c3 = (product0 >> SHIFT) ^ c3 ^ k1, product0 & LOW
        k0, k1 = (k0 + np.uint64(WEYL[0])) & LOW, (k1 + np.uint64(WEYL[1])) & LOW
    return c0, c1, c2, c3
