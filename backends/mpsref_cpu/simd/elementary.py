"""exp, log and related functions of float32, for loops that LLVM turns into vector instructions.

Library functions compute one value at a time. These are float32 arithmetic without branches: the argument is reduced to
a short interval by powers of two, and a polynomial is evaluated. All are for compiled code. Infinities, zeros and NaN
give the results of IEEE 754, subnormal results are not flushed. The largest errors, in units in the last place of the
exact result, were found by trying every float32 between the smallest and the largest that matter (for log every
mantissa with 13 exponents, for power some million pairs):

    exp 1.02   expm1 0.99   log 0.84   log1p 1.28   tanh 2.5   sigmoid 2.5   power 0.55
    normal: distribution 6.6, density 2.2

Polynomials are nearly minimax (Lawson's algorithm on Chebyshev nodes), with coefficients rounded to float32. Terms of
long ones are added up in pairs, to shorten chains of dependent operations.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import extending

from mpsref_cpu.compiling import inlined

intrinsic: Any = extending.intrinsic  # its type drops the arguments of a decorated function

Float: TypeAlias = Any
"""A float32, as compiled code has it."""

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
ZERO, HALF, ONE, TWO = real(0), real(0.5), real(1), real(2)
LEAST_EXPONENT, MOST_EXPONENT = real(-104), real(89)
"""Below the first argument exp is 0, above the second one infinity."""
LEAST_NORMAL_EXPONENT = real(-87)
"""An argument whose exponential is a normal float, and negligible next to 1."""

# (e**r - 1 - r) / r**2 on |r| <= ln(2)/2, relative error of e**r 2**-28
E0, E1, E2, E3, E4 = map(
    real, (0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.008368715643882751, 0.0013814599951729178)
)
# (2*artanh(s) - 2*s) / s**3 as a polynomial in s**2, for 1 + f between sqrt(1/2) and sqrt(2), relative error 2**-30
L0, L1, L2 = map(real, (0.6666677594184875, 0.3997747302055359, 0.2987372577190399))
SQRT_HALF_BITS = word(0x3F3504F3)
LEAST_NORMAL = real(2.0**-126)
TWO_25 = real(2.0**25)
# (log(1 + x) - x) / x**2 on 0 <= x <= 1, relative error of log(1 + x) 2**-27
H0, H1, H2, H3, H4, H5, H6, H7, H8 = map(
    real,
    (
        *(-0.4999993145465851, 0.33330464363098145, -0.24958018958568573, 0.19692102074623108, -0.15344880521297455),
        *(0.10661128163337708, -0.05745723098516464, 0.020086241886019707, -0.003290468594059348),
    ),
)
# erfc(A) * e**(A*A) / 2 as a quotient of polynomials in sqrt(2) * A between 0 and 15, relative error 2**-26
N1, N2, N3, N4 = map(real, (0.43858736753463745, 0.18342266976833344, 0.040688030421733856, 0.0041219815611839294))
M1, M2, M3, M4, M5 = map(
    real, (1.6750595569610596, 1.2033454179763794, 0.46995827555656433, 0.10199599713087082, 0.01033216156065464)
)
INVERSE_ROOT_TWO_PI = real(0.3989422804014327)
FARTHEST = real(15)
"""Number of standard deviations below the mean at which the normal distribution is 0 in float32."""
FIRST_HALF = word(-4096)
"""A mask of the leading bits of a float32, which leaves a number whose square is exact."""
# The same in float64: log to 2**-37, exp to 2**-28
LN2, WIDE_LOG2_E, WIDE_ROUNDER = 0.6931471805599453, 1.4426950408889634, 1.5 * 2.0**52
P0, P1, P2, P3 = 0.6666666564510938, 0.40000335276522775, 0.28537302696466005, 0.23582269311073312
Q0, Q1, Q2, Q3, Q4 = (
    *(0.49999993448699287, 0.16666520645342162, 0.04166838788816945, 0.00836871521924785),
    0.0013814601852383706,
)
FLT_MAX, INFINITY, NAN = np.finfo(np.float32).max, real(np.inf), real(np.nan)


@intrinsic
def quotient(typing, dividend, divisor):
    """Return a / b as in IEEE 754, in any error model of numba: that of Python raises an error at 0."""
    return dividend(dividend, divisor), lambda context, builder, signature, values: builder.fdiv(*values)


@inlined
def _rest(r):
    """Return ``e**r - 1`` for ``|r| <= ln(2)/2``."""
    z = real(r * r)
    return real(r + z * real(real(E0 + r * E1) + z * real(real(E2 + r * E3) + z * E4)))


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
    """Return e**x - 1 for x <= 0, without its cancellation."""
    x = LEAST_NORMAL_EXPONENT if x < LEAST_NORMAL_EXPONENT else x
    shifted = real(x * LOG2_E + ROUNDER)
    n = real(shifted - ROUNDER)
    scale = word(real(shifted).view(word) << 23).view(real)
    return real(_rest(real(real(x - n * LN2_HIGH) - n * LN2_LOW)) * scale + real(scale - ONE))


@inlined
def log(x):
    """Return the natural logarithm: -inf of 0, NaN of negative numbers."""
    tiny = x < LEAST_NORMAL
    factor = TWO_25 if tiny else ONE
    bits = real(x * factor).view(word)
    n = word(word(bits - SQRT_HALF_BITS) >> 23)
    f = real(word(bits - word(n << 23)).view(real) - ONE)
    e = real(n)
    e = real(e - real(25)) if tiny else e
    s = quotient(f, real(f + TWO))
    z = real(s * s)
    half = real(HALF * f * f)
    low = real(s * real(half + z * (L0 + z * (L1 + z * L2))) + e * LN2_LOW)
    found = real(e * LN2_HIGH + real(f - real(half - low)))
    found = x if x > FLT_MAX else found
    found = -INFINITY if x == ZERO else found
    return found if x >= ZERO else NAN


@inlined
def log1p(x):
    """Return log(1 + x) for 0 <= x <= 1, without the rounding of the sum."""
    z = real(x * x)
    high = real(real(H4 + x * H5) + z * real(real(H6 + x * H7) + z * H8))
    return real(x + z * real(real(H0 + x * H1) + z * real(real(H2 + x * H3) + z * high)))


@inlined
def tanh(x):
    """Return the hyperbolic tangent."""
    t = expm1(real(-TWO * abs(x)))
    found = abs(quotient(t, real(t + TWO)))
    return -found if x < ZERO else found


@inlined
def sigmoid(x):
    """Return 1 / (1 + e**-x)."""
    z = exp_below(-abs(x))
    larger = ONE if x >= ZERO else z
    return quotient(larger, real(ONE + z))


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
    above = HALF + size * (N1 + size * (N2 + size * (N3 + size * N4)))
    below = ONE + size * (M1 + size * (M2 + size * (M3 + size * (M4 + size * M5))))
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
    tiny = size < LEAST_NORMAL
    factor = TWO_25 if tiny else ONE
    bits = real(size * factor).view(word)
    n = word(word(bits - SQRT_HALF_BITS) >> 23)
    f = np.float64(word(bits - word(n << 23)).view(real)) - 1.0
    e = np.float64(n)
    e = e - 25.0 if tiny else e
    s = quotient(f, f + 2.0)
    z = s * s
    y = e * LN2 + s * (2.0 + z * (P0 + z * (P1 + z * (P2 + z * P3))))
    y = np.inf if size > FLT_MAX else y
    y = -np.inf if size == ZERO else y
    y = y * np.float64(c)
    y = 100.0 if y > 100.0 else y  # infinity in float32
    y = -110.0 if y < -110.0 else y  # 0
    shifted = y * WIDE_LOG2_E + WIDE_ROUNDER
    r = y - (shifted - WIDE_ROUNDER) * LN2
    rest = 1.0 + r + r * r * (Q0 + r * (Q1 + r * (Q2 + r * (Q3 + r * Q4))))
    pattern = np.int64(np.float64(rest).view(np.int64) + (np.float64(shifted).view(np.int64) << 52))
    found = real(pattern.view(np.float64))
    found = u if u != u else found
    sign = below if size <= FLT_MAX or below == below else ONE  # the power of -infinity is never NaN
    return found * sign if u < ZERO else found
