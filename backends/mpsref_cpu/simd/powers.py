"""Powers of many bases with one exponent: roots and products where the exponent is a multiple of 1/4, the usual case.

Unlike ``pow``, these operations are correctly rounded and vectorized.
"""

from __future__ import annotations

import numpy as np

from mpsref_cpu.compiling import uncounted

MOST_FACTORS = 8


@uncounted
def raise_to_minus(exponent, base, power, count):
    """Set ``power[i] = base[i]**-exponent`` for ``i < count``; bases that are 0 or negative give what IEEE 754 says."""
    n = np.uintp(count)
    quarters = abs(exponent) * 4
    if quarters != np.floor(quarters) or quarters >= 4 * MOST_FACTORS:
        minus = base.dtype.type(-exponent)
        for i in range(n):
            power[i] = base[i] ** minus
        return
    factors, roots = divmod(int(quarters), 4)
    if roots == 0:
        for i in range(n):
            power[i] = 1
    elif roots == 1:
        for i in range(n):
            power[i] = np.sqrt(np.sqrt(base[i]))
    elif roots == 2:
        for i in range(n):
            power[i] = np.sqrt(base[i])
    else:
        for i in range(n):
            root = np.sqrt(base[i])
            power[i] = root * np.sqrt(root)
    for _ in range(factors):
        for i in range(n):
            power[i] *= base[i]
    if exponent > 0:
        for i in range(n):
            power[i] = np.true_divide(base.dtype.type(1), power[i])
