"""The reference backend: each kernel's formula, in float64, rounded once.

A kernel module gives two tables: ``REFERENCE``, functions ``formula(problem, *inputs) -> result`` that compute in the
dtype of their inputs, and ``TERMS``, functions of the same arguments that return what the error bound is made of.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import DTYPES, Array
from mpsref.registry import BUILT_IN, Backend, Implementation, OperationKey, Problem

__all__ = ["UNIT_ROUNDOFF", "ErrorBound", "Formula", "gamma", "input_dtype", "reference"]

Formula = Callable[..., Any]

UNIT_ROUNDOFF = 2.0**-24
"""Of float32, which backends compute in."""


def gamma(m: Any) -> Array:
    """Return m u / (1 - m u), the relative error of m float32 roundings in sequence.

    >>> bool(gamma(1) > 2**-24)
    True
    """
    return np.asarray(m * UNIT_ROUNDOFF / (1 - m * UNIT_ROUNDOFF))


class ErrorBound(NamedTuple):
    """What bounds the rounding error of each element: ``|a - ref| <= gamma(m) * magnitude + ulp(storage) / 2``."""

    magnitude: Array
    """The sum of the absolute values of the terms."""
    m: Array | np.float64
    """How many roundings in sequence are allowed for; broadcasts against ``magnitude``."""
    exact: Array | bool = False
    """Where inputs that are small integers leave nothing to round, so that results must be equal."""

    @classmethod
    def of_error(cls, error: Array, exact: Array | bool = False) -> ErrorBound:
        """Return terms whose bound is ``error + ulp(storage) / 2``: for kernels with a bound of their own."""
        return cls(np.asarray(error) * (1 / UNIT_ROUNDOFF - 1), np.float64(1), exact)


def _implementation(formula: Formula, exact: bool) -> Implementation:
    def run(problem: Problem, *inputs: Array, out: Array | tuple[Array, ...]) -> None:
        # Storing in a narrower dtype may overflow to infinity, as IEEE 754 says; that is no cause for a warning.
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            results = formula(problem, *(array.astype(np.float64) if exact else array for array in inputs))
            outs = out if isinstance(out, tuple) else (out,)
            for target, result in zip(outs, results if isinstance(results, tuple) else (results,), strict=True):
                target[...] = result

    return run


class _Formulas(Mapping[OperationKey, Implementation]):
    """The formulas of all kernels, each from the module of its spec."""

    def __init__(self, exact: bool) -> None:
        self._exact = exact
        self._found: dict[OperationKey, Implementation] = {}

    def __getitem__(self, key: OperationKey) -> Implementation:
        if key not in self._found:
            table: Mapping[OperationKey, Formula] = getattr(sys.modules.get(key[0].__module__), "REFERENCE", {})
            self._found[key] = _implementation(table[key], self._exact)
        return self._found[key]

    def __iter__(self) -> Iterator[OperationKey]:
        from mpsref.kernels import REFERENCE  # all of them

        return iter(REFERENCE)

    def __len__(self) -> int:
        return sum(1 for _ in self)


reference = Backend(BUILT_IN[0], _Formulas(exact=True), dtypes=DTYPES)
"""Computes in float64."""

input_dtype = Backend(BUILT_IN[1], _Formulas(exact=False), dtypes=DTYPES)
"""Computes in the dtype of its inputs."""
