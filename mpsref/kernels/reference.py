"""The reference backend: the formula of each operation, computed in float64 and rounded once; error bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from mpsref import registry
from mpsref.arguments.arrays import DTYPES, Array
from mpsref.backend import Backend, Implementation
from mpsref.operations import Formula, OperationKey, Problem, operations
from mpsref.registry import BUILT_IN

UNIT_ROUNDOFF = 2.0**-24
"""Of float32, which backends compute in."""


def gamma(m: Any) -> Array:
    """Return m u / (1 - m u), the relative error of m float32 roundings in sequence.

    >>> bool(gamma(1) > 2**-24)
    True
    """
    return np.asarray(m * UNIT_ROUNDOFF / (1 - m * UNIT_ROUNDOFF))


class Functions(NamedTuple):
    """The largest errors of functions and quotients in units of 2**-24, each half a unit in the last place or less.

    By default 4, 4, 5, 16 and 3 ulp, as in the table of Metal [doc]. A rule of a backend that states smaller ones lets
    :func:`functions` return them, see :mod:`mpsref.conformance.rules`.
    """

    exp: int = 8
    log: int = 8
    tanh: int = 10
    power: int = 32
    quotient: int = 6
    logarithm_of_base: int = 12
    """Relative, of what a power multiplies by its exponent."""


OF_METAL = Functions()

stated: ContextVar[Functions] = ContextVar("functions", default=OF_METAL)
functions = stated.get
"""Return the errors with which bounds are evaluated now."""


FAR = 256
"""The exponential of FAR overflows float32, that of -FAR is 0 there, not a subnormal; float16 has both numbers."""


class ErrorBound(NamedTuple):
    """What bounds the error of each element: ``|a - ref| <= limit + ulp(storage) / 2``; where ``limit`` is 0, equality.

    >>> bound = ErrorBound.of_terms(np.array([1.0, 0.0]), 2)
    >>> bound.limit.tolist() == [float(gamma(2)), 0.0]
    True
    """

    limit: Array
    """The largest error of the arithmetic, before the result is rounded to its storage; 0 where nothing is rounded."""
    exact: Array | bool = False
    """Where inputs that are small integers leave nothing to round, so that results must be equal."""
    roundings: Array | float = 1.0
    """How many roundings in sequence ``limit`` stands for, for bounds of arithmetic that is less precise."""

    @classmethod
    def of_terms(cls, magnitude: Array, m: Any, exact: Array | bool = False) -> ErrorBound:
        """Return the bound ``gamma(m) * magnitude``: ``m`` roundings of terms whose absolute values have this sum."""
        return cls(np.asarray(gamma(m) * magnitude), exact, m)

    @property
    def magnitude(self) -> Array:
        """The sum of the absolute values of the terms that the roundings are relative to."""
        return np.asarray(self.limit / gamma(self.roundings))

    def times(self, factor: float) -> ErrorBound:
        """Return the bound of ``factor`` times the result."""
        return self._replace(limit=factor * self.limit)


def selected(problem: Problem, *inputs: Array) -> tuple[ErrorBound, ...]:
    """Nothing is rounded: the elements of all results are selected, none is computed."""
    return tuple(ErrorBound(np.zeros(shape), True) for shape in problem.result_shapes)


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
    """The formulas of all kernels as implementations."""

    def __init__(self, exact: bool) -> None:
        self._exact = exact

    def __getitem__(self, key: OperationKey) -> Implementation:
        spec_type, method = key
        if method not in spec_type.declared:
            raise KeyError(key)
        return _implementation(spec_type.declared[method].formula, self._exact)

    def __iter__(self) -> Iterator[OperationKey]:
        return iter(operations())

    def __len__(self) -> int:
        return len(operations())


reference = Backend(BUILT_IN[0], _Formulas(exact=True), dtypes=DTYPES)
"""Computes in float64."""

input_dtype = Backend(BUILT_IN[1], _Formulas(exact=False), dtypes=DTYPES)
"""Computes in the dtype of its inputs."""

for _backend in (reference, input_dtype):
    registry._registered[_backend.name] = _backend  # register() looks up entry points, which takes 30 ms
