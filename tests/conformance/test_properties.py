"""Properties: each fails by little more than it allows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mpsref import registry
from mpsref.arguments.arrays import Array
from mpsref.conformance import mutants
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.comparator import Mismatch, bound
from mpsref.conformance.families import pooling, upsampling
from mpsref.conformance.families.convolution import properties as convolution
from mpsref.conformance.properties import adjoint, repeatable, same
from mpsref.conformance.runner import Property
from mpsref.kernels.reference import ErrorBound
from mpsref.registry import Backend


def scaled(name: str, factors: itertools.cycle[float]) -> Backend:
    """Return the reference with the results of one operation multiplied by the factors in turn."""
    run = mutants.of_result(lambda result, *_: result * next(factors))
    return Backend("scaled", {**registry.get_backend("reference").implementations, operation_named(name): run})


def test_a_repeated_run_has_the_same_bits() -> None:
    case = Case.parse("PoolingAverage.forward:n1h3w3c2,k2x2,float32,seed=7")
    repeatable(case, scaled("PoolingAverage.forward", itertools.cycle([1.0])))
    with pytest.raises(Mismatch, match="repeatable"):
        repeatable(case, scaled("PoolingAverage.forward", itertools.cycle([1.0, 1 + 2.0**-22])))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_two_results_differ_by_twice_the_bound_at_most(dtype: type[np.floating[Any]]) -> None:
    first: Array = np.full(3, 1.5, dtype)
    terms = ErrorBound.of_terms(np.full(3, 2.0), 8)
    (steps,) = set((2 * bound(first, first.astype(np.float64), terms) // np.spacing(first)).tolist())
    same("name", first, (first + steps * np.spacing(first)).astype(dtype), terms)
    with pytest.raises(Mismatch, match="by more than rounding"):
        same("name", first, (first + (steps + 1) * np.spacing(first)).astype(dtype), terms)


ADJOINTS = [
    ("UpsamplingNearest.forward:n1h1w1c1,s3x3,float32,seed=1", "gradient", adjoint(upsampling.both)),
    ("PoolingAverage.forward:n1h1w1c1,k1x1,float32,seed=1", "gradient", pooling.adjoint),
    ("Convolution.forward:n1h1w1c1,k1x1,co1,float32,seed=1", "gradient_data", convolution.adjoint),
]
"""Sums of one term, or of a few: the rounding that is allowed is a small part of them."""


@pytest.mark.parametrize(("text", "gradient", "property_"), ADJOINTS)
def test_an_adjoint_that_is_off_by_a_little_is_none(text: str, gradient: str, property_: Property) -> None:
    case = Case.parse(text)
    name = f"{case.problem.operation.spec_type.__name__}.{gradient}"
    property_(case, scaled(name, itertools.cycle([1.0])))
    for factor in (1 - 3e-6, 1 + 3e-6):
        with pytest.raises(Mismatch, match="adjoint"):
            property_(case, scaled(name, itertools.cycle([factor])))
