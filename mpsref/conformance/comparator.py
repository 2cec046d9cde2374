"""Comparison of a result with the reference, within the derived error bound of float32 arithmetic.

``|a - ref| <= limit + ulp(storage) / 2``: the error of the arithmetic, then one rounding to the dtype of the result.
Of ``m`` roundings in sequence on terms whose absolute values sum to ``magnitude`` it is ``gamma(m) * magnitude``, with
``gamma(m) = m u / (1 - m u)``, ``u = 2**-24``. ``ref`` is the reference before its own rounding. Nothing here is tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.reference import ErrorBound


class Mismatch(AssertionError):
    """A result that differs from the reference.

    ``index`` is that of the first wrong element, or ``None``; ``case`` the case that failed, if a property ran another
    one than it was given.
    """

    def __init__(self, message: str, index: tuple[int, ...] | None = None, case: str = "") -> None:
        """Set the message, the index and the case."""
        super().__init__(message)
        self.index, self.case = index, case


def ulp(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return the spacing of ``dtype`` at ``values`` (float64); beyond the largest finite number that there.

    Integers, such as those of a mask, are not rounded: 0.
    """
    if dtype.kind != "f":
        return np.zeros(values.shape)
    largest = np.nextafter(np.finfo(dtype).max, dtype.type(0))  # beyond it the spacing would overflow
    stored = np.minimum(np.abs(values), largest).astype(dtype, copy=False)
    following = (stored.view(f"i{dtype.itemsize}") + 1).view(dtype)  # np.spacing takes eight times as long
    spacing: Array = (following - stored).astype(np.float64)
    return spacing


def bound(actual: Array, expected: Array, terms: ErrorBound) -> Array:
    """Return the largest legal distance of each element of ``actual`` from ``expected`` (float64, not rounded).

    Where the limit of the arithmetic is 0 nothing is rounded, and nothing may differ.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        larger = np.maximum(np.abs(actual), np.abs(expected.astype(actual.dtype, copy=False)))
    limit = ulp(larger, actual.dtype)
    limit /= 2
    limit += terms.limit
    return limit if np.all(terms.limit > 0) else np.where(terms.limit > 0, limit, 0.0)


class Comparison(NamedTuple):
    """A result compared with the reference, element by element."""

    error: Array
    limit: Array
    """The largest legal error; 0 where the element must be equal to the reference, rounded to its dtype, and if all
    are equal.
    """
    wrong: Array
    arithmetic: Array
    """The part of the limit before the result is rounded to its storage."""

    @property
    def fractions(self) -> Array:
        """The errors as fractions of their limits; 0 where nothing but equality is right."""
        return _fractions(self.error, self.limit)

    @property
    def fraction(self) -> float:
        """The worst of them."""
        return worst(self.fractions)

    @property
    def used(self) -> float:
        """The worst error without half a unit of the storage, as a fraction of the limit of the arithmetic."""
        with np.errstate(invalid="ignore"):  # of an element without a bound
            arithmetic = np.where(self.limit > 0, self.arithmetic, 0.0)
            return worst(_fractions(self.error - (self.limit - arithmetic), arithmetic))


def _fractions(error: Array, limit: Array) -> Array:
    with np.errstate(invalid="ignore"):  # of errors without a bound
        if (bounded := limit > 0).all():
            return np.asarray(error / limit)
        return np.divide(error, limit, out=np.zeros(error.shape), where=bounded) if bounded.any() else limit


def worst(fractions: Array) -> float:
    """Return the largest fraction; NaN is that of an element without a bound."""
    return float(np.fmax.reduce(fractions, axis=None, initial=0.0))


def compare(actual: Array, expected: Array, terms: ErrorBound, exact: bool = False) -> Comparison:
    """Compare a result with the reference (float64, not rounded) of the same shape; ``exact`` as in :func:`check`."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = expected.astype(actual.dtype)
        equal = actual == rounded
        error, is_finite = np.broadcast_to(0.0, expected.shape), True
        if not equal.all():
            error = np.asarray(np.abs(actual.astype(np.float64) - expected))
            is_finite = bool(np.isfinite(error).all())
            equal |= False if is_finite else np.isnan(actual) & np.isnan(rounded)
        if equal.all():  # as is every result that is not rounded: no bound is needed
            nothing = np.broadcast_to(0.0, expected.shape)
            return Comparison(nothing, nothing, ~equal, nothing)
        limit = bound(actual, rounded, terms)
        if exact:
            limit = np.where(terms.exact, 0.0, limit)
        if is_finite:
            error *= ~equal  # in vectors, as an assignment to a mask is not
        else:
            error[equal] = 0.0
            limit[~np.isfinite(expected)] = 0.0  # infinities and NaN must be equal: no bound holds for them
    # Written so that any other NaN is wrong.
    return Comparison(error, limit, ~(error <= limit), np.broadcast_to(terms.limit, error.shape))


def check(*args: Any, **options: Any) -> float:
    """Return the worst error as a fraction of its bound; arguments as of :func:`checked`."""
    return checked(*args, **options).fraction


def checked(
    actual: Array,
    expected: Array,
    terms: ErrorBound,
    dtype: str,
    exact: bool = False,
    where: Callable[[tuple[int, ...]], str] = lambda index: "",
) -> Comparison:
    """Return the comparison; raise :class:`Mismatch` if any element breaks its bound.

    ``exact`` demands equality (after rounding to ``dtype``) where ``terms`` says that nothing need be rounded.
    ``where(index)`` describes an element for the message.
    """
    if actual.shape != expected.shape:
        raise Mismatch(f"shape {actual.shape}, expected {expected.shape}")
    if actual.dtype != np.dtype(dtype):
        raise Mismatch(f"dtype {actual.dtype}, expected {dtype}")
    found = compare(actual, expected, terms, exact)
    _, limit, wrong, _ = found
    if wrong.any():
        index = tuple(int(k) for k in np.argwhere(wrong)[0])
        raise Mismatch(_message(actual, expected, limit, wrong, index, where(index)), index)
    return found


def _message(actual: Array, expected: Array, limit: Array, wrong: Array, index: tuple[int, ...], where: str) -> str:
    value, reference, allowed = actual[index], expected[index], limit[index]
    hint = " (never written, or computed from NaN)" if np.isnan(value) else ""
    rule = f"may differ by {allowed:.3g}" if allowed > 0 else "must be equal"
    pattern = difference(actual, expected, limit)
    number = int(np.ravel_multi_index(index, wrong.shape)) if wrong.ndim else 0
    is_power = number >= 256 and number & (number - 1) == 0  # often the length of an index, or what a launch covers
    first = f"[{', '.join(map(str, index))}]{f', after 2**{number.bit_length() - 1} right ones' if is_power else ''}"
    return (
        f"{int(wrong.sum())} of {wrong.size} elements are wrong; the first is {first}"
        f"{': ' + where if where else ''}. It is {value!s}{hint}, the reference says {reference:.9g}; "
        f"they {rule}.{f' The result is {pattern}.' if pattern else ''}"
    )


AXES = {4: ("image", "row", "column", "channel"), 1: ("element",), 2: ("row", "column")}
"""Names of the axes of a result, by their number."""


def difference(actual: Array, expected: Array, limit: Array) -> str:
    """Return in words what a wrong result has in common with the right one, or nothing.

    It may be a multiple, shifted along an axis, or zero in places of an axis.

    Parameters
    ----------
    actual, expected : ndarray
        The result, and the reference in float64.
    limit : ndarray
        The largest legal error of each element.

    Examples
    --------
    >>> right = np.arange(12.0).reshape(1, 3, 2, 2)
    >>> difference(2 * right, right, np.full(right.shape, 1e-6))
    'exactly 2 times what is expected'
    >>> difference(np.roll(right, 1, axis=1), right, np.full(right.shape, 1e-6))
    'shifted by one row'
    >>> difference(right * [1, 0], right, np.full(right.shape, 1e-6))
    'zero in the last channel'
    """
    found, limit = actual.astype(np.float64), np.broadcast_to(limit, expected.shape)
    if not (np.isfinite(found).all() and np.isfinite(expected).all() and expected.any()):
        return ""
    allowed = np.where(np.isfinite(limit), limit, 0.0) + np.spacing(abs(expected).astype(np.float32))
    if not found.any():
        return "zero everywhere"
    factor = float((found * expected).sum() / (expected**2).sum())
    simple = Fraction(factor).limit_denominator(64)
    close = simple != 1 and expected.size > 1 and abs(factor - simple) < 1e-3 * abs(factor)
    if close and (abs(found - float(simple) * expected) <= allowed * max(1.0, abs(factor))).all():
        return f"exactly {simple} times what is expected"
    names = AXES.get(found.ndim, tuple(f"index of axis {axis}" for axis in range(found.ndim)))
    return _zeros(found, expected, allowed, names) or _shift(found, expected, allowed, names)


def _zeros(found: Array, expected: Array, allowed: Array, names: Sequence[str]) -> str:
    """Return along which axis some places are all zero while the rest is right."""
    for axis, name in enumerate(names):
        others = tuple(one for one in range(found.ndim) if one != axis)
        wrong = np.asarray((abs(found - expected) > allowed).any(axis=others))
        zero = np.asarray(~found.any(axis=others) & wrong)
        if wrong.any() and (zero == wrong).all() and not wrong.all():
            places = np.flatnonzero(zero).tolist()
            if places == [len(zero) - 1]:
                return f"zero in the last {name}"
            few = ", ".join(map(str, places[:8])) + (f" and {len(places) - 8} more" if len(places) > 8 else "")
            return f"zero in {name}{'s' if len(places) > 1 else ''} {few}"
    return ""


def _shift(found: Array, expected: Array, allowed: Array, names: Sequence[str]) -> str:
    """Return by how many places along an axis the result is that of its neighbour."""
    for axis, name in enumerate(names):
        length = found.shape[axis]
        for by in (1, -1, 2, -2):
            if abs(by) >= length - 1:
                continue
            late, early = (slice(abs(by), None), slice(None, -abs(by)))[:: 1 if by > 0 else -1]
            index: list[tuple[slice, ...]] = [(*(slice(None),) * axis, one) for one in (late, early)]
            a, e = found[index[0]], expected[index[1]]
            if np.ptp(e) > 0 and (abs(a - e) <= allowed[index[1]] + np.spacing(abs(e).astype(np.float32))).all():
                number = "one" if abs(by) == 1 else "two"
                return f"shifted by {number} {name}{'s' if abs(by) > 1 else ''}{' backwards' if by < 0 else ''}"
    return ""
