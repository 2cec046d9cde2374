"""Properties: each fails by little more than it allows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mpsref import registry
from mpsref.arguments.arrays import Array
from mpsref.conformance import check, mutants
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.comparator import Mismatch, bound
from mpsref.conformance.families import pooling, upsampling
from mpsref.conformance.families.convolution import properties as convolution
from mpsref.conformance.properties import adjoint, one_image_at_a_time, repeatable, same
from mpsref.conformance.runner import NotJudgedError, Property, run_case
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


@pytest.mark.parametrize(("images", "calls"), [(3, 4), (32770, 0)])
def test_a_large_batch_is_not_computed_one_image_at_a_time(images: int, calls: int) -> None:
    name, counted = "InstanceNormalization.gradient", itertools.count()
    run = mutants.of_result(lambda result, *_: (next(counted), result)[1])
    one_image_at_a_time(
        Case.parse(f"{name}:n{images}h1w1c1,eps1e-05,float32,seed=5"), Backend("counts", {operation_named(name): run})
    )
    assert next(counted) == calls


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
            property_(case, scaled(text.partition(":")[0], itertools.cycle([factor])))
        wrong = f"by {case.problem.operation}: {name} is wrong"
        with pytest.raises(NotJudgedError, match=wrong):
            property_(case, scaled(name, itertools.cycle([factor])))


@pytest.mark.usefixtures("unshrunk", "few_layers")
def test_a_wrong_forward_pass_fails_alone() -> None:
    """Its gradients are right, and the report says what was not judged."""
    for kernel, method in (("PoolingAverage", "gradient"), ("Convolution", "gradient_weights"), ("Slice", "gradient")):
        backend = scaled(f"{kernel}.forward", itertools.cycle([2.0]))
        names = [f"{kernel}.forward", f"{kernel}.{method}"]
        report = check(backend, [operation_named(name) for name in names], number=6)
        assert [row.status for row in report.rows] == ["failed", "passed"], kernel
        assert report.rows[1].unjudged.endswith(f"by {names[1]}: {names[0]} is wrong")
        assert not report.rows[0].unjudged


def test_the_case_of_a_failure_is_that_of_the_operation_that_failed() -> None:
    """A maximum that leaves NaN out fails in the cases of other reductions; the one that is named fails by itself."""
    wrong = registry.get_backend("reference").implementations[operation_named("Reduce.forward")]

    def run(problem: Any, x: Array, out: Array) -> None:
        wrong(problem, np.nan_to_num(x) if problem.spec.operation == "max" else x, out=out)

    operation = operation_named("Reduce.forward")
    backend = Backend("max without NaN", {operation: run}, dtypes=("float32",))
    failures = check(backend, [operation], number=60).failures
    assert failures
    for failure in failures:
        case = Case.parse(failure.case)
        assert case.problem.spec.operation == "max", failure  # type: ignore[attr-defined]
        assert run_case(case, backend).status == "failed"
