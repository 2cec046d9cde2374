"""The tests of the tests: the default settings of a check catch every planted fault, and for the right reason."""

import pytest

from mpsref.conformance import checker, faults
from mpsref.conformance.case import Case, operations
from mpsref.conformance.faults import planted
from mpsref.conformance.runner import Outcome, run_case
from mpsref.conformance.subjects import SUBJECTS
from mpsref.registry import Backend

FAULTS = faults.faults()


def _outcome(case, backend):
    operation = case.problem.operation
    return run_case(case, backend, SUBJECTS[operation.spec_type].properties[operation.method])


def _cases(operation):
    """Return the random cases of a check with default settings."""
    return list(checker.random_cases(operation, Backend.dtypes, checker.CASES, 0))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.operation}: {fault.name}")
def test_caught(fault):
    backend = fault.backend
    failed = next(
        ((case, o) for case in _cases(fault.operation) if (o := _outcome(case, backend)).status == "failed"), None
    )
    assert failed is not None, f"{checker.CASES} random cases did not find it"
    case, outcome = failed
    assert "raised" not in outcome.message, "the fault must be seen in the result, not as an exception"
    again = _outcome(Case.parse(str(case)), fault.backend)
    # The stale result comes from an earlier call, so one call alone may be right.
    assert again.status == "failed" or "earlier call" in fault.name


def test_the_cases_are_those_of_a_search():
    """A search, which shrinks a case that failed, tries the same cases in the same order."""
    operation = next(operations())
    tried = []

    def notes(case):
        tried.append(case)
        return Outcome("passed")

    checker.search(operation, Backend("another", {}), checker.CASES, 0, notes)
    assert tried == _cases(operation)
    assert len(tried) == checker.CASES
    assert len(set(tried)) == checker.CASES


def test_every_operation_has_at_least_twenty_faults():
    for operation in operations():
        assert len({fault.name for fault in FAULTS if fault.operation == operation}) >= 20


@pytest.mark.parametrize("operation", list(operations()), ids=str)
def test_faults_are_the_only_difference(operation):
    """What a fault is built around is right: the reference in the same clothes passes."""
    right = Backend("right", {operation: planted.of_problem(lambda problem: problem)})
    outcomes = [_outcome(case, right) for case in _cases(operation)[:30]]
    assert not [outcome.message for outcome in outcomes if outcome.status == "failed"]


@pytest.mark.parametrize(
    ("name", "small"),
    [
        ("the stride of the other axis is taken", "s"),
        ("an even window leans the other way", "k"),
        ("the clip is ignored", "clip"),
        ("the kernel offset is ignored", "ko"),
    ],
)
def test_shrinks_to_a_small_case_that_shows_the_cause(name, small):
    """The shrunk case is tiny, and what the fault is about is still in it."""
    fault = next(f for f in FAULTS if f.name == name and f.operation.method == "gradient")
    failure = checker.search(
        fault.operation, fault.backend, checker.CASES, 0, lambda case: _outcome(case, fault.backend)
    )
    assert failure is not None
    case = Case.parse(failure.case)
    n, height, width, channels = case.problem.source_shape
    assert n == channels == 1
    assert height * width <= 12
    tokens = failure.case.split(":")[1].split(",")
    assert any(token.startswith(small) and token[len(small) :][:1] in "-0123456789" for token in tokens)
    assert len(tokens) <= 10


def test_plausible_garbage_is_not_trusted():
    """A backend whose every result is right because every expected result is zero has shown nothing."""
    operation = next(operations())
    zeros = Backend("zeros", {operation: lambda problem, *inputs, out: out.fill(0)})
    outside = Case.parse("PoolingAverage.forward:n1h2w2c1,k1x1,o5x5,out1x1,float32,seed=1")
    assert run_case(outside, zeros).status == "mistrusted"
