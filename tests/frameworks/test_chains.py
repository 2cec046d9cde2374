"""Chains of operations: the reference against PyTorch, mistakes that only chains show, and how these are reduced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import Backend
from mpsref.conformance import check, checker
from mpsref.conformance.case import Case, operation_named, operations
from mpsref.conformance.runner import references, run_case
from mpsref.conformance.wide import wide_cases
from mpsref.frameworks import chains
from mpsref.frameworks.chains import OPERATION, WORDS, Chain

FIXED = tuple(wide_cases(OPERATION))


def gradient_of(problem: Any, *inputs: Any) -> Any:
    return references(problem, *inputs)


def test_it_is_no_operation_of_all_backends() -> None:
    assert OPERATION not in operations()
    assert operation_named("Chain.gradient") == OPERATION
    assert all(Case.parse(str(case)) == case for case in FIXED)


def test_every_step_is_in_a_fixed_case() -> None:
    assert {step for case in FIXED for step in case.problem.spec.steps} == {*WORDS}


def test_pytorch_without_a_compiler_agrees_with_the_reference() -> None:
    pytest.importorskip("torch")
    from mpsref_torch.programs import steps
    from mpsref_torch.run import Torch

    torch = Torch("cpu")
    backend = Backend("eager", chains.table(torch, lambda: steps(torch)))
    cases = [*checker.random_cases(OPERATION, ("float32",), 60, 1), *FIXED]
    outcomes = {case: run_case(case, backend) for case in cases}
    assert not [str(case) for case, outcome in outcomes.items() if outcome.status == "failed"]
    assert sum(outcome.status == "passed" for outcome in outcomes.values()) > 40
    run = {step for case, outcome in outcomes.items() if outcome.status == "passed" for step in case.problem.spec.steps}
    assert {*WORDS} - run == {"dilated", "cropped", "apart"}  # steps of JAX


@pytest.mark.parametrize("step", WORDS)
def test_the_pullback_is_the_adjoint(step: str) -> None:
    """Of steps that are linear where they are: by a small change of x."""
    names = ("sum3", step) if step in ("add", "where") else (step,)
    problem = Chain.problems["gradient"](Chain(names), (2, 4, 6, 2))
    case = Case(problem, "float64", seed=3)
    g, x, *others = (array.astype(np.float64) for array in case.inputs())
    x = x + np.random.default_rng(0).uniform(-0.1, 0.1, x.shape)  # no equal values
    change = np.random.default_rng(1).normal(size=x.shape) * 1e-6
    y, dx, *_ = gradient_of(problem, g, x, *others)
    moved, *_ = gradient_of(problem, g, x + change, *others)
    assert np.isclose(((moved - y) * g).sum(), (change * dx).sum(), rtol=1e-5, atol=1e-12)


def of_chain(is_wrong: Any) -> Backend:
    """Return a backend whose gradient is wrong by 1 in one element of some chains."""

    def run(problem: Any, *inputs: Any, out: Any) -> None:
        for target, result in zip(out, references(problem, *inputs), strict=True):
            target[...] = result
        if is_wrong(problem):
            out[1].ravel()[0] += 1

    return Backend("wrong", {OPERATION: run})


MISTAKES = {
    ("conv3", "max3", "where"): lambda p: p.spec.steps == ("conv3", "max3", "where") and p.source_shape[3] > 1,
    ("crop", "sum3"): lambda p: "crop+sum3" in "+".join(p.spec.steps),
    ("relu", "add"): lambda p: "relu+add" in "+".join(p.spec.steps),
}


@pytest.mark.parametrize("steps", MISTAKES)
def test_a_mistake_of_several_operations_is_found(steps: tuple[str, ...]) -> None:
    report = check([of_chain(MISTAKES[steps])], number=60)
    assert report.failures
    assert {row.operation for row in report.rows if row.status == "failed"} == {"Chain.gradient"}
    assert f"chain of {len(steps)}" in report.failures[0].message or len(steps) < 3


def test_a_failure_has_the_fewest_operations() -> None:
    report = check([of_chain(lambda p: "max3" in p.spec.steps)], [OPERATION], number=60)
    assert Case.parse(report.failures[-1].case).problem.spec.steps == ("max3",)


@pytest.mark.parametrize("text", ["conv3+conv", "add", "where", "conv3+conv3+conv3+conv3"])
def test_illegal_chains(text: str) -> None:
    with pytest.raises(ValueError, match=r"step|case"):
        Case.parse(f"Chain.gradient:n1h4w5c2,{text},float32,seed=1")


def test_sums_are_exact() -> None:
    """The largest sums of products of the cases fit in float32."""
    for case in [*checker.random_cases(OPERATION, ("float32",), 60, 2), *FIXED]:
        largest = max(np.abs(result).max(initial=0) for result in references(case.problem, *map(np.abs, case.inputs())))
        unit = 2.0**-chains.MOST if {"relu", "abs"} & {*case.problem.spec.steps} else 1.0
        assert largest / unit < 2**24, case
