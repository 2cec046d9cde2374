"""Arithmetic in float64 that carries a bound of the error of the same steps in float32.

The bounds of mpsref's own kernels are derived by hand. :class:`Rounded` derives that of a formula which no kernel has:
each step adds its own rounding to the errors of its operands, to first order.

>>> x = Rounded(np.array([1.0, -3.0]))
>>> y = x / (1 + (-x).exp())  # SiLU
>>> y.value.round(3).tolist(), bool((y.error < 1e-6).all())
([0.731, -0.142], True)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.reference import UNIT_ROUNDOFF, ErrorBound, gamma

FUNCTION = 4
"""Units of roundoff of an elementary function, a division or a root."""

ORDERS = 4
"""How many times the error of one order of the steps others may have."""


class Rounded:
    """An array in float64, and a bound of the error that float32 arithmetic has made in it.

    Parameters
    ----------
    value : array_like
        The numbers.
    error : array_like, optional
        Absolute bounds, of the shape of ``value`` or one that broadcasts to it; default: no error.
    """

    __slots__ = ("given", "value")
    __array_ufunc__ = None  # an array on the left leaves the operation to this class

    def __init__(self, value: Any, error: Any = 0.0) -> None:
        self.value, self.given = np.asarray(value, np.float64), np.asarray(error, np.float64)

    @property
    def error(self) -> Array:
        """The bounds, of the shape of ``value``."""
        return np.broadcast_to(self.given, self.value.shape)

    @property
    def is_exact(self) -> bool:
        """Whether there is no error in any number; most inputs are exact, and steps on them take less time."""
        return self.given.ndim == 0 and not self.given

    def _rounded(self, value: Array, other: Rounded) -> Rounded:
        """Return a sum or a difference of two arrays."""
        error = UNIT_ROUNDOFF * abs(value)
        if not (self.is_exact and other.is_exact):
            error += self.given + other.given
        return Rounded(value, error)

    def __add__(self, other: Any) -> Rounded:
        other = _of(other)
        return self._rounded(self.value + other.value, other)

    def __neg__(self) -> Rounded:
        return Rounded(-self.value, self.given)

    def __sub__(self, other: Any) -> Rounded:
        other = _of(other)
        return self._rounded(self.value - other.value, other)

    def __rsub__(self, other: Any) -> Rounded:
        return _of(other) - self

    def __mul__(self, other: Any) -> Rounded:
        other = _of(other)
        value = self.value * other.value
        error = UNIT_ROUNDOFF * abs(value)
        if not other.is_exact:
            error += abs(self.value) * other.given
        if not self.is_exact:
            error += (abs(other.value) + other.given) * self.given
        return Rounded(value, error)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> Rounded:
        other = _of(other)
        value = self.value / other.value
        error = FUNCTION * UNIT_ROUNDOFF * abs(value)
        if not (self.is_exact and other.is_exact):
            error += (self.given + abs(value) * other.given) / np.maximum(abs(other.value) - other.given, 0)
        return Rounded(value, error)

    def __rtruediv__(self, other: Any) -> Rounded:
        return _of(other) / self

    def __matmul__(self, other: Any) -> Rounded:
        return self.dot(other)

    def dot(self, other: Any, terms: int | None = None) -> Rounded:
        """Return the product of matrices; ``terms`` is the most terms of a sum that are not 0."""
        other = _of(other)
        left, right = abs(self.value), abs(other.value)
        error = gamma(self.value.shape[-1] if terms is None else terms) * _product(left, right)
        for a, b in ((left, other.error), (self.error, right + other.error)):
            if a.any() and b.any():
                error = error + _product(a, b)
        return Rounded(_product(self.value, other.value), error)

    def sum(self, axis: Any, terms: float | None = None, keepdims: bool = True) -> Rounded:
        """Return sums; ``terms`` is how many roundings a term may go through, by default one for each term."""
        axes = axis if isinstance(axis, tuple) else (axis,)
        count = math.prod(self.value.shape[one] for one in axes) if terms is None else terms
        rounding = gamma(count) * abs(self.value).sum(axis=axis, keepdims=keepdims)
        inherited = 0.0 if self.is_exact else self.error.sum(axis, keepdims=keepdims)
        return Rounded(self.value.sum(axis=axis, keepdims=keepdims), inherited + rounding)

    def exp(self) -> Rounded:
        """Return exponentials."""
        value = np.exp(self.value)
        return Rounded(value, value * (np.expm1(np.minimum(self.error, 500)) + FUNCTION * UNIT_ROUNDOFF))

    def log(self) -> Rounded:
        """Return logarithms of positive numbers."""
        value = np.log(self.value)
        return Rounded(value, self.error / self.value + FUNCTION * UNIT_ROUNDOFF * abs(value))

    def sqrt(self) -> Rounded:
        """Return square roots."""
        value = np.sqrt(self.value)
        inherited = np.minimum(self.error / np.maximum(value, np.finfo(float).tiny), np.sqrt(self.error))
        return Rounded(value, inherited + FUNCTION * UNIT_ROUNDOFF * value)

    def stored(self, unit: float) -> Rounded:
        """Return the numbers after they were stored in a type of this unit roundoff."""
        return Rounded(self.value, self.error + unit * abs(self.value)) if unit > UNIT_ROUNDOFF else self

    def __getitem__(self, index: Any) -> Rounded:
        return Rounded(self.value[index], self.error[index])

    @classmethod
    def joined(cls, parts: Sequence[Rounded], axis: int = 0) -> Rounded:
        """Return arrays one behind the other on an axis."""
        return cls(*(np.concatenate([getattr(one, name) for one in parts], axis) for name in ("value", "error")))

    @property
    def mT(self) -> Rounded:
        """The matrices with their axes exchanged."""
        return Rounded(self.value.swapaxes(-1, -2), self.error.swapaxes(-1, -2))

    def result(self) -> tuple[Array, ErrorBound]:
        """Return the numbers, and the bound that every order of the steps keeps."""
        tiny = np.finfo(np.float32).tiny  # where float32 loses digits, or is flushed to 0
        error = np.where(np.isnan(self.error), np.inf, self.error)  # 0 times a number without a bound
        return self.value, ErrorBound(ORDERS * error + tiny * (error > 0), error == 0)


def _product(a: Array, b: Array) -> Array:
    """Return the product of matrices, by the library of linear algebra also for those that were broadcast."""
    found: Array = np.ascontiguousarray(a) @ np.ascontiguousarray(b)
    return found


def _of(other: Any) -> Rounded:
    return other if isinstance(other, Rounded) else Rounded(other)


def sigmoid(x: Rounded) -> Rounded:
    """Return 1 / (1 + exp(-x)) without an overflow."""
    small = Rounded(-abs(x.value), x.error).exp()
    one = 1 / (1 + small)
    other = small / (1 + small)
    positive = x.value >= 0
    return Rounded(np.where(positive, one.value, other.value), np.where(positive, one.error, other.error))


def softmax(x: Rounded, terms: float | None = None) -> Rounded:
    """Return the softmax along the last axis; where all of it is -inf, 0. ``terms`` as in :meth:`Rounded.sum`."""
    e = _from_top(x).exp()
    total = e.sum(-1, terms)
    return e / Rounded(np.where(total.value > 0, total.value, 1.0), total.error)


def log_softmax(x: Rounded, terms: float | None = None) -> Rounded:
    """Return the logarithm of the softmax along the last axis."""
    shifted = _from_top(x)
    return shifted - shifted.exp().sum(-1, terms).log()


def _from_top(x: Rounded) -> Rounded:
    """Return the differences from the largest number of each row."""
    top = x.value.max(axis=-1, keepdims=True)
    return x - np.where(np.isfinite(top), top, 0.0)
