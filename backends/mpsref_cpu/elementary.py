"""exp, log and their kin on float32, for loops that LLVM turns into vector instructions.

The mathematical library has these one value at a time. Here each is plain float32 arithmetic without a branch: the
argument is brought into a short interval by powers of two, a polynomial does the rest. All are for use inside compiled
functions. Infinities, zeros and NaN give what IEEE 754 asks of the functions of these names, subnormal results are not
flushed. The largest errors, in units in the last place of the exact result, were found by trying every float32 between
the smallest that matters and the largest (of log every mantissa with 13 exponents, of power some million pairs):

    exp 1.01   expm1 0.96   log 0.84   log1p 1.24   tanh 2.5   sigmoid 2.5   power 0.55
    normal: share 6.6, density 2.2

Polynomials are nearly minimax (Lawson's algorithm on Chebyshev nodes), with coefficients rounded to float32.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numba import extending

from mpsref_cpu.compiling import inlined

__all__ = ["exp", "exp_below", "expm1", "log", "log1p", "normal", "power", "quotient", "sigmoid", "tanh"]

intrinsic: Any = extending.intrinsic  # whose declared type loses the arguments of what it decorates

Float: TypeAlias = Any
"""A float32, as compiled code has it."""

real: Any = np.float32
word: Any = np.int32

ROUNDER = real(1.5 * 2**23)
"""Added to a number of magnitude below 2**22 it leaves the nearest integer in the last bits."""
ROUNDER_BITS = word(0x4B400000)
LOG2_E = real(1.4426950408889634)
LN2_HIGH = real(0.693359375)
"""ln 2 to 9 bits, so that its product with an exponent is exact."""
LN2_LOW = real(-2.12194440e-4)
ZERO, HALF, ONE, TWO = real(0), real(0.5), real(1), real(2)
LEAST_EXPONENT, MOST_EXPONENT = real(-104), real(89)
"""Beyond, exp is 0 and infinity."""

# (e**r - 1 - r) / r**2 on |r| <= ln(2)/2, relative error of e**r 2**-28
E0, E1, E2, E3, E4 = map(
    real, (0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.008368715643882751, 0.0013814599951729178)
)
# (2*artanh(s) - 2*s) / s**3 as a polynomial in s**2, for 1 + f between sqrt(1/2) and sqrt(2), relative error 2**-30
L0, L1, L2 = map(real, (0.6666677594184875, 0.3997747302055359, 0.2987372577190399))
SQRT_HALF_BITS = word(0x3F3504F3)
MANTISSA, ONE_BITS = word(0x007FFFFF), word(0x3F800000)
LEAST_NORMAL = real(2.0**-126)
TWO_25 = real(2.0**25)
# erfc(A) * e**(A*A) / 2 / t, t = 1 / (1 + 0.376 * A), as a polynomial in t - 0.625, relative error 2**-26
N = real(0.376 * 2**-0.5)
CENTRE = real(0.625)
N0, N1, N2, N3, N4, N5, N6, N7, N8 = map(
    real,
    (
        *(0.2452717125415802, 0.42405036091804504, 0.5140952467918396, 0.40340667963027954, 0.14148755371570587),
        *(-0.06380727142095566, -0.07452623546123505, 0.01143136527389288, 0.030421242117881775),
    ),
)
INVERSE_ROOT_TWO_PI = real(0.3989422804014327)
FARTHEST = real(15)
"""From so many standard deviations on the normal distribution is 0 in float32."""
FIRST_HALF = word(-4096)
"""The bits that remain of a float32 whose square is to be exact."""
# The same in float64: log to 2**-37, exp to 2**-28
LN2, WIDE_LOG2_E, WIDE_ROUNDER = 0.6931471805599453, 1.4426950408889634, 1.5 * 2.0**52
P0, P1, P2, P3 = 0.6666666564510938, 0.40000335276522775, 0.28537302696466005, 0.23582269311073312
Q0, Q1, Q2, Q3, Q4 = (
    *(0.49999993448699287, 0.16666520645342162, 0.04166838788816945, 0.00836871521924785),
    0.0013814601852383706,
)
FLT_MAX, INFINITY, NAN = np.finfo(np.float32).max, real(np.inf), real(np.nan)


@intrinsic
def quotient(typing: Any, dividend: Any, divisor: Any) -> Any:
    """Return a / b of two floats as IEEE 754 says, in whatever error model of numba: that of Python raises at 0."""
    return dividend(dividend, divisor), lambda context, builder, signature, values: builder.fdiv(*values)


@inlined
def _split(x: Float) -> tuple[Float, Any]:
    """Return r and n with ``x = r + n * ln 2`` and ``|r| <= ln(2)/2``."""
    shifted = real(x * LOG2_E + ROUNDER)
    n = real(shifted - ROUNDER)
    return real(real(x - n * LN2_HIGH) - n * LN2_LOW), word(shifted.view(word) - ROUNDER_BITS)


@inlined
def _rest(r: Float) -> Float:
    """Return ``e**r - 1`` on the short interval."""
    return real(r + r * r * (E0 + r * (E1 + r * (E2 + r * (E3 + r * E4)))))


@inlined
def _two_to(n: Any) -> Float:
    """Return 2**n for -126 <= n <= 127."""
    return word(word(n + 127) << 23).view(real)


@inlined
def _scaled(r: Float, n: Any) -> Float:
    """Return ``2**n * e**r``, in two steps: 2**n itself may be no float."""
    half = word(n >> 1)
    return real(real(_rest(r) + ONE) * _two_to(half) * _two_to(word(n - half)))


@inlined
def exp(x: Float) -> Float:
    """Return e**x."""
    return exp_below(MOST_EXPONENT if x > MOST_EXPONENT else x)


@inlined
def exp_below(x: Float) -> Float:
    """Return e**x for x <= 89, as :func:`exp`."""
    r, n = _split(LEAST_EXPONENT if x < LEAST_EXPONENT else x)
    return _scaled(r, n)


@inlined
def expm1(x: Float) -> Float:
    """Return e**x - 1 for x <= 0, without its cancellation."""
    x = LEAST_EXPONENT if x < LEAST_EXPONENT else x
    r, n = _split(x)
    n = word(-126) if n < word(-126) else n
    scale = _two_to(n)
    return real(_rest(r) * scale + real(scale - ONE))


@inlined
def log(x: Float) -> Float:
    """Return the natural logarithm: -inf of 0, NaN of what is below."""
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
def log1p(x: Float) -> Float:
    """Return log(1 + x) for 0 <= x <= 1, without the rounding of the sum."""
    whole = real(ONE + x)
    return real(log(whole) + quotient(real(x - real(whole - ONE)), whole))


@inlined
def tanh(x: Float) -> Float:
    """Return the hyperbolic tangent."""
    t = expm1(real(-TWO * abs(x)))
    found = abs(quotient(t, real(t + TWO)))
    return -found if x < ZERO else found


@inlined
def sigmoid(x: Float) -> Float:
    """Return 1 / (1 + e**-x)."""
    z = exp_below(-abs(x))
    larger = ONE if x >= ZERO else z
    return quotient(larger, real(ONE + z))


@inlined
def normal(x: Float) -> tuple[Float, Float]:
    """Return of the normal distribution its share below x, ``erfc(-x/sqrt(2)) / 2``, and its density at x."""
    size = real(min(abs(x), FARTHEST))
    high = word(size.view(word) & FIRST_HALF).view(real)  # its square is exact
    r, n = _split(real(-HALF * high * high))
    bell = _scaled(real(r - HALF * real(size - high) * real(size + high)), n)
    t = quotient(ONE, real(ONE + size * N))
    w = real(t - CENTRE)
    tail = N0 + w * (N1 + w * (N2 + w * (N3 + w * (N4 + w * (N5 + w * (N6 + w * (N7 + w * N8)))))))
    tail = real(real(t * tail) * bell)
    share = tail if x < ZERO else real(ONE - tail)
    return share, real(bell * INVERSE_ROOT_TWO_PI)


@inlined
def power(u: Float, c: Float, below: Float) -> Float:
    """Return u**c, c not 0; ``below`` is the sign of the power of a negative u: 1, -1, or NaN where c is no integer.

    In float64: the error of the logarithm counts c times.
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
