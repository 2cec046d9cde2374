"""Elementary functions of float32, for loops that LLVM turns into vector instructions.

Library functions compute one value at a time. These are arithmetic without branches: the argument is reduced to a short
interval by powers of two, and a polynomial is evaluated. All are for compiled code. NaN, infinities, zeros and
subnormal numbers give what NumPy gives. The largest errors, in units in the last place of the exact result, over all
float32 (``scripts/elementary.py`` measures them), and of powers over one of 211, with fourteen exponents:

    exp 1.02   expm1 1.51   log 0.81   log1p_below 1.28   tanh 1.46   sigmoid 1.97
    reciprocal_root 1.5
    power 0.55   raise_to_minus 1.91, of the exponents that take roots and products
    normal, of some million arguments: distribution 6.6, density 2.2

Polynomials are nearly minimax (Lawson's algorithm on Chebyshev nodes), with coefficients rounded to float32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpsref_cpu.compiling import generic, inlined, intrinsic, uncounted

real: Any = np.float32
word: Any = np.int32

ROUNDER, ROUNDER_OF_HALVES = real(1.5 * 2**23 + 127), real(1.5 * 2**23 + 254)
"""Added to a number of magnitude below 2**22, they give a float whose last bits are the nearest integer plus a bias.
Shifted up, these bits are the exponent of a float32, and with the second one that of its square root.
"""
LOG2_E = real(1.4426950408889634)
LN2_HIGH = real(0.693359375)
"""ln 2 to 9 bits, so that its product with an exponent is exact."""
LN2_LOW = real(-2.12194440e-4)
ZERO, QUARTER, HALF, ONE, TWO = map(real, (0, 0.25, 0.5, 1, 2))
LEAST_EXPONENT, MOST_EXPONENT = real(-104), real(89)
"""Below the first argument exp is 0, above the second one infinity."""
SQRT_HALF_BITS = word(0x3F3504F3)
LEAST_NORMAL, TWO_25 = real(2.0**-126), real(2.0**25)
FLT_MAX, INFINITY, NAN = np.finfo(np.float32).max, real(np.inf), real(np.nan)


def _floats(*numbers: float) -> Any:
    return tuple(map(real, numbers))


# Coefficients, that of the lowest power first. (e**r - 1 - r) / r**2 on |r| <= ln(2)/2, relative error of e**r 2**-28
E = _floats(0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.008368715643882751, 0.0013814599951729178)
# (log(1 + f) - f + f**2 / 2) / f**3 for 1 + f between sqrt(1/2) and sqrt(2), relative error of the logarithm 2**-30
L = _floats(
    *(0.3333331346511841, -0.25000008940696716, 0.2000207155942917, -0.16667988896369934, 0.14220358431339264),
    *(-0.12406233698129654, 0.11883548647165298, -0.11670099198818207, 0.06749271601438522),
)
# (tanh(x) - x) / x**3 as a polynomial in x**2, for |x| <= 5/8, relative error 2**-27
T = _floats(-0.3333328068256378, 0.13331405818462372, -0.05373651534318924, 0.02062816731631756, -0.0056922961957752705)
TANH_SERIES = real(0.625)
# (log(1 + x) - x) / x**2 on 0 <= x <= 1, relative error of log(1 + x) 2**-27
H = _floats(
    *(-0.4999993145465851, 0.33330464363098145, -0.24958018958568573, 0.19692102074623108, -0.15344880521297455),
    *(0.10661128163337708, -0.05745723098516464, 0.020086241886019707, -0.003290468594059348),
)
# 2 * artanh(s) / s - 2 over s**2 as a polynomial in s**2, float64, relative error of the logarithm 2**-37; E
LN2, WIDE_LOG2_E, WIDE_ROUNDER = 0.6931471805599453, 1.4426950408889634, 1.5 * 2.0**52
P = 0.6666666564510938, 0.40000335276522775, 0.28537302696466005, 0.23582269311073312
Q = 0.49999993448699287, 0.16666520645342162, 0.04166838788816945, 0.00836871521924785, 0.0013814601852383706
# erfc(A) * e**(A*A) / 2 as a quotient of polynomials in sqrt(2) * A between 0 and 15, relative error 2**-26
N = _floats(0.43858736753463745, 0.18342266976833344, 0.040688030421733856, 0.0041219815611839294)
M = _floats(1.6750595569610596, 1.2033454179763794, 0.46995827555656433, 0.10199599713087082, 0.01033216156065464)
INVERSE_ROOT_TWO_PI = real(0.3989422804014327)
FARTHEST = real(15)
"""Number of standard deviations below the mean at which the normal distribution is 0 in float32."""
FIRST_HALF = word(-4096)
"""A mask of the leading bits of a float32, which leaves a number whose square is exact."""


@intrinsic
def quotient(typing, dividend, divisor):
    """Return a / b as in IEEE 754, in any error model of numba: that of Python raises an error at 0."""
    return dividend(dividend, divisor), lambda context, builder, signature, values: builder.fdiv(*values)


@inlined
def reciprocal_root(x):
    """Return 1 / sqrt(x)."""
    return quotient(ONE, real(np.sqrt(x)))


@inlined
def _in_pairs(x, z, c, last):
    """Return ``c[0] + c[1] x + c[2] x**2 + c[3] x**3 + last x**4``, z being x**2, in a short chain of operations."""
    return real(real(c[0] + x * c[1]) + z * real(real(c[2] + x * c[3]) + z * last))


@inlined
def _rest(r):
    """Return ``e**r - 1`` for ``|r| <= ln(2)/2``."""
    z = real(r * r)
    return real(r + z * _in_pairs(r, z, E, E[4]))


@inlined
def _scaled(r, shifted):
    """Return ``2**n * e**r``, ``shifted = n + ROUNDER_OF_HALVES``, in two steps: 2**n itself may overflow."""
    bits = real(shifted).view(word)
    half = word(bits >> 1)
    return real(real(_rest(r) + ONE) * word(half << 23).view(real) * word(word(bits - half) << 23).view(real))


@inlined
def exp(x):
    """Return e**x."""
    return exp_below(MOST_EXPONENT if x > MOST_EXPONENT else x)


@inlined
def exp_below(x):
    """Return e**x for x <= 89, as :func:`exp`."""
    x = LEAST_EXPONENT if x < LEAST_EXPONENT else x
    shifted = real(x * LOG2_E + ROUNDER_OF_HALVES)
    n = real(shifted - ROUNDER_OF_HALVES)
    return _scaled(real(real(x - n * LN2_HIGH) - n * LN2_LOW), shifted)


@inlined
def expm1(x):
    """Return e**x - 1, without its cancellation."""
    clamped = MOST_EXPONENT if x > MOST_EXPONENT else x
    clamped = real(-30) if x < real(-30) else clamped
    shifted = real(clamped * LOG2_E + ROUNDER)
    n = real(shifted - ROUNDER)
    half = word(word(real(shifted).view(word) - word(1)) << 23).view(real)  # 2**(n - 1): 2**n may overflow
    r = real(real(clamped - n * LN2_HIGH) - n * LN2_LOW)
    found = real(TWO * real(_rest(r) * half + real(half - HALF)))
    return x if x == ZERO else found


@inlined
def _split(x):
    """Return e and f of ``x = 2**e * (1 + f)``, 1 + f between sqrt(1/2) and sqrt(2), for x > 0."""
    tiny = x < LEAST_NORMAL
    bits = real(x * (TWO_25 if tiny else ONE)).view(word)
    n = word(word(bits - SQRT_HALF_BITS) >> 23)
    e = real(n)
    return real(e - real(25)) if tiny else e, real(word(bits - word(n << 23)).view(real) - ONE)


@inlined
def log(x):
    """Return the natural logarithm: -inf of 0, NaN of negative numbers."""
    e, f = _split(x)
    z = real(f * f)
    tail = real(real(f * z) * _in_pairs(f, z, L, _in_pairs(f, z, L[4:], L[8])) + real(e * LN2_LOW))
    found = real(e * LN2_HIGH + real(f - real(HALF * z - tail)))
    found = x if x > FLT_MAX else found
    found = -INFINITY if x == ZERO else found
    return found if x >= ZERO else NAN


@inlined
def log1p_below(x):
    """Return log(1 + x) for 0 <= x <= 1, without the rounding of the sum."""
    z = real(x * x)
    return real(x + z * _in_pairs(x, z, H, _in_pairs(x, z, H[4:], H[8])))


@inlined
def tanh(x):
    """Return the hyperbolic tangent."""
    size = abs(x)
    z = real(x * x)
    small = real(size + real(size * z) * _in_pairs(z, real(z * z), T, T[4]))
    e = exp_below(real(-TWO * size))
    large = real(ONE - quotient(real(e + e), real(ONE + e)))
    return math.copysign(small if size < TANH_SERIES else large, x)


@inlined
def sigmoid(x):
    """Return 1 / (1 + e**-x)."""
    z = exp_below(-abs(x))
    below = real(ONE + z)
    found = quotient(ONE if x >= ZERO else z, below)
    return real(found - found * real(z - real(below - ONE)))  # what the sum has lost


@inlined
def _bell(size):
    """Return ``e**(-size**2 / 2)`` for ``0 <= size <= 15``."""
    high = word(real(size).view(word) & FIRST_HALF).view(real)  # its square is exact
    square = real(-HALF * high * high)
    shifted = real(square * LOG2_E + ROUNDER_OF_HALVES)
    n = real(shifted - ROUNDER_OF_HALVES)
    r = real(real(square - n * LN2_HIGH) - n * LN2_LOW)
    return _scaled(real(r - HALF * real(size - high) * real(size + high)), shifted)


@inlined
def normal(x):
    """Return the normal distribution at x, ``erfc(-x/sqrt(2)) / 2``, and its density."""
    size = real(min(abs(x), FARTHEST))
    above = HALF + size * (N[0] + size * (N[1] + size * (N[2] + size * N[3])))
    below = ONE + size * (M[0] + size * (M[1] + size * (M[2] + size * (M[3] + size * M[4]))))
    bell = _bell(size)
    tail = real(quotient(real(above), real(below)) * bell)
    distribution = tail if x < ZERO else real(ONE - tail)
    return distribution, real(bell * INVERSE_ROOT_TWO_PI)


@inlined
def power(u, c, below):
    """Return u**c, c not 0; ``below`` is the sign of the power of a negative u: 1, -1, or NaN where c is no integer.

    Computed in float64, because the error of the logarithm is multiplied by c.
    """
    size = abs(u)
    exponent, fraction = _split(size)
    e, f = np.float64(exponent), np.float64(fraction)
    s = quotient(f, f + 2.0)
    z = s * s
    y = e * LN2 + s * (2.0 + z * (P[0] + z * (P[1] + z * (P[2] + z * P[3]))))
    y = np.inf if size > FLT_MAX else y
    y = -np.inf if size == ZERO else y
    y = y * np.float64(c)
    y = 100.0 if y > 100.0 else y  # infinity in float32
    y = -110.0 if y < -110.0 else y  # 0
    shifted = y * WIDE_LOG2_E + WIDE_ROUNDER
    r = y - (shifted - WIDE_ROUNDER) * LN2
    rest = 1.0 + r + r * r * (Q[0] + r * (Q[1] + r * (Q[2] + r * (Q[3] + r * Q[4]))))
    pattern = np.int64(np.float64(rest).view(np.int64) + (np.float64(shifted).view(np.int64) << 52))
    found = real(pattern.view(np.float64))
    found = u if u != u else found
    found = math.copysign(found, u) if below < ZERO else found
    return NAN if (u < ZERO) & (size <= FLT_MAX) & (below != below) else found  # that of -infinity is never NaN


@inlined
def _three_quarters(u):
    """Return u**-0.75, with a step of Newton's method, which removes three roundings."""
    root = real(np.sqrt(u))
    found = quotient(ONE, real(root * real(np.sqrt(root))))
    fourth = real(found * u)  # u**0.25
    better = real(found + real(found * QUARTER) * real(ONE - real(fourth * fourth) * real(fourth * found)))
    return better if better == better else found  # 0 times infinity


@uncounted
def raise_to_minus(exponent, base, power_of, count):
    """Set ``power_of[i] = base[i]**-exponent`` for ``i < count``, within 2 units: usual exponents take roots.

    A run of float64 bases with one that is out of the range of float32 takes a library function.
    """
    n, kind = np.uintp(count), power_of.dtype.type
    if _is_out_of_range(base, n):
        for i in range(n):
            power_of[i] = base[i] ** -exponent
    elif exponent == 0.5:
        for i in range(n):
            power_of[i] = kind(reciprocal_root(real(base[i])))
    elif exponent == 0.75:
        for i in range(n):
            power_of[i] = kind(_three_quarters(real(base[i])))
    elif exponent == 1 or exponent == 2:
        for i in range(n):
            inverse = quotient(ONE, real(base[i]))
            power_of[i] = kind(inverse if exponent == 1 else inverse * inverse)
    elif exponent == np.floor(exponent) and 0 <= exponent <= 8:  # a product in float64; the default of MPS is 5
        factors = np.int64(exponent)
        for i in range(n):
            u = np.float64(base[i])
            square = u * u
            fourth = square * square
            product = (u if factors & 1 else 1.0) * (square if factors & 2 else 1.0) * (fourth if factors & 4 else 1.0)
            power_of[i] = kind(quotient(1.0, product * (fourth * fourth if factors & 8 else 1.0)))
    else:
        below = real((-1 if exponent % 2 == 1 else 1) if exponent == np.floor(exponent) else np.nan)
        for i in range(n):
            power_of[i] = kind(power(real(base[i]), -exponent, below))


@generic
def _is_out_of_range(base, count):
    """Return whether float32 has not the precision or the range of one of the bases."""

    def find(base, count):
        found = False
        for i in range(count):
            value = base[i]
            found |= abs(np.float64(real(value)) - value) > 1e-6 * abs(value)
        return found

    return (lambda base, count: False) if base.dtype.bitwidth == 32 else find
