"""The elementary functions of the cpu backend: their errors over all float32, and their polynomials.

``python scripts/elementary.py`` tries every float32 with every function, 20 minutes on one core; names such as ``exp``
or ``"power 0.6"`` select some, and ``--every 211`` tries one argument of 211. An error is measured in units in the last
place of the exact result, which NumPy computes in float64; it is infinite where a NaN, an infinity or the sign of a 0
is not that of NumPy. The exit status is 1 where an error is above 2.

``--polynomials`` derives the coefficients (needs mpmath), and prints the errors of these and of those that are used.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np

from mpsref_cpu.compiling import OPTIONS
from mpsref_cpu.simd import elementary

LIMIT = 2.0
CHUNK = 1 << 22

real = np.float32
jit: Any = numba.njit(nogil=True, **OPTIONS)


class Function(NamedTuple):
    """A function of elementary.py as a compiled loop ``f(x, y)``, and the same in float64."""

    loop: Any
    exact: Callable[[Any], Any]
    domain: tuple[float, float] = (-math.inf, math.inf)


def looped(function: Any, *fixed: Any) -> Any:
    """Return a compiled loop ``y[i] = function(x[i], *fixed)``."""

    def loop(x: Any, y: Any) -> None:
        for i in range(np.uintp(x.size)):
            y[i] = function(x[i])

    def loop_of_powers(x: Any, y: Any) -> None:
        for i in range(np.uintp(x.size)):
            y[i] = function(x[i], c, below)

    c, below = fixed or (0, 0)
    return jit(loop_of_powers if fixed else loop)


def raised(c: float) -> Any:
    """Return a compiled function that sets y to the power -c of x."""

    def run(x: Any, y: Any) -> None:
        elementary.raise_to_minus(c, x, y, x.size)

    return jit(run)


def functions() -> dict[str, Function]:
    """Return the functions by name."""
    exact: dict[str, Callable[[Any], Any]] = {
        "exp": np.exp,
        "expm1": np.expm1,
        "log": np.log,
        "tanh": np.tanh,
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "reciprocal_root": lambda x: 1 / np.sqrt(x),
    }
    found = {name: Function(looped(getattr(elementary, name)), exact[name]) for name in exact}
    found["log1p_below"] = Function(looped(elementary.log1p_below), np.log1p, (0, 1))
    for c in (0.6, -0.3, 1.5, 3.0, -3.0, 7.0, 30.0):
        below = -1.0 if c % 2 == 1 else 1.0 if c % 2 == 0 else math.nan
        found[f"power {c:g}"] = Function(looped(elementary.power, real(c), real(below)), _power(float(real(c))))
    for c in (0.5, 0.75, 1.0, 2.0, 3.0, 5.0, 8.0):
        found[f"-{c:g}"] = Function(raised(c), _power(-c), (1e-45, math.inf))
    return found


def _power(c: float) -> Callable[[Any], Any]:
    return lambda x: np.float_power(x, c)


@jit  # type: ignore[untyped-decorator]
def _worst(found: Any, exact: Any, x: Any, low: float, high: float) -> Any:
    """Return the largest error and its place; an error is infinite where NaN, infinities or signs differ."""
    worst: Any = -1.0
    place = 0
    for i in range(found.size):
        y, e = np.float64(found[i]), np.float64(exact[i])
        size = abs(e)
        power = min(max(np.float64(size).view(np.int64) >> 52, np.int64(1023 - 126)), np.int64(1023 + 127)) - 23
        limit = np.float64(np.int64(power << 52).view(np.float64))  # a unit in the last place
        end = 2.0**128  # where infinity is as an approximation
        error = (
            abs((math.copysign(end, y) if abs(y) > end else y) - (math.copysign(end, e) if size > end else e)) / limit
        )
        special = (y != y) | (e != e) | (size == np.inf) | ((y == 0) & (e == 0))
        same = ((y != y) & (e != e)) | ((y == e) & (math.copysign(1.0, y) == math.copysign(1.0, e)))
        error = (0.0 if same else np.inf) if special else error
        error = error if ((low <= x[i]) & (x[i] <= high)) | ((x[i] != x[i]) & (low < 0)) else -1.0
        if error > worst:
            worst, place = error, i
    return worst, place


def largest_error(function: Function, every: int = 1) -> tuple[float, float]:
    """Return the largest error in units in the last place, and its argument, over one of ``every`` float32."""
    worst = 0.0, 0.0
    for start in range(0, 2**32, CHUNK * every):
        x = np.arange(start, min(start + CHUNK * every, 2**32), every).astype(np.uint32).view(real)
        y = np.empty_like(x)
        function.loop(x, y)
        with np.errstate(all="ignore"):
            error, place = _worst(y, function.exact(x.astype(np.float64)), x, *function.domain)
        worst = max(worst, (error, float(x[place])))
    return worst


class Polynomial(NamedTuple):
    """A polynomial of elementary.py in place of ``exact`` between two numbers; errors times ``weight`` are relative."""

    name: str
    low: float
    high: float
    exact: Callable[[Any], Any]
    weight: Callable[[Any], Any]


def polynomials() -> list[Polynomial]:
    """Return the polynomials with float32 coefficients."""
    from mpmath import exp, log, log1p, sqrt, tanh  # type: ignore[import-untyped]

    third = sqrt(2) - 1
    return [
        Polynomial("E", -log(2) / 2, log(2) / 2, lambda r: (exp(r) - 1 - r) / r**2, lambda r: r**2 / exp(r)),
        Polynomial(
            "L", -third / sqrt(2), third, lambda f: (log1p(f) - f + f * f / 2) / f**3, lambda f: f**3 / log1p(f)
        ),
        Polynomial("H", 1e-9, 1, lambda x: (log1p(x) - x) / x**2, lambda x: x**2 / log1p(x)),
        Polynomial(
            "T",
            1e-9,
            0.625**2,
            lambda z: (tanh(sqrt(z)) - sqrt(z)) / sqrt(z) ** 3,
            lambda z: sqrt(z) ** 3 / tanh(sqrt(z)),
        ),
    ]


def fit(polynomial: Polynomial, degree: int) -> list[float]:
    """Return nearly minimax coefficients: Lawson's algorithm, again after each coefficient has been rounded."""
    x, y, weight = _nodes(polynomial, 40 * (degree + 1))
    found: list[float] = []
    while len(found) <= degree:
        rest = y - np.polynomial.polynomial.polyval(x, found or [0.0])
        powers, share = x[:, None] ** np.arange(len(found), degree + 1), np.ones(x.size)
        for _ in range(400):
            scale = np.sqrt(share) * weight
            solved = np.linalg.lstsq(powers * scale[:, None], rest * scale, rcond=None)[0]
            share *= np.abs(powers @ solved - rest) * weight
            share /= share.sum()
        found.append(float(real(solved[0])))
    return found


def _nodes(polynomial: Polynomial, count: int) -> Any:
    """Return Chebyshev nodes, what the polynomial stands for there, and the weights."""
    from mpmath import mp

    _, low, high, exact, weight = polynomial
    with mp.workprec(120):
        x = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (k + 0.5) / count) for k in range(count)]
        return np.array([[float(v) for v in x], [float(exact(v)) for v in x], [abs(float(weight(v))) for v in x]])


def relative_error(polynomial: Polynomial, coefficients: Sequence[float]) -> float:
    """Return the largest relative error of the function that is computed with a polynomial."""
    x, y, weight = _nodes(polynomial, 500)
    return float((np.abs(np.polynomial.polynomial.polyval(x, coefficients) - y) * weight).max())


def main() -> int:
    """Print what the options ask for."""
    parser = argparse.ArgumentParser(description="The errors of the elementary functions of the cpu backend.")
    parser.add_argument("names", nargs="*", help="functions; default: all")
    parser.add_argument("--every", type=int, default=1, help="try one argument of so many")
    parser.add_argument("--polynomials", action="store_true", help="derive the coefficients")
    options = parser.parse_args()
    if options.polynomials:
        for one in polynomials():
            used = list(map(float, getattr(elementary, one.name)))
            derived = fit(one, len(used) - 1)
            errors = (math.log2(relative_error(one, c)) for c in (derived, used))
            print(one.name, derived, "relative error 2**{:.1f}, of those in use 2**{:.1f}".format(*errors))
        return 0
    wrong = 0
    for name, function in functions().items():
        if not options.names or name in options.names:
            error, x = largest_error(function, options.every)
            wrong += not error <= LIMIT
            print(f"{name:16s} {error:.3f} at {x!r}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
