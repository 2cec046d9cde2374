"""One case on one backend: its four outcomes, and what each says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mpsref import Neuron, PoolingAverage, registry
from mpsref.arguments.arrays import Array
from mpsref.conformance import families, mutants
from mpsref.conformance.case import Case, operations
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import with_limits
from mpsref.conformance.runner import InapplicableError, Outcome, compute, expected, run_case
from mpsref.registry import Backend, Operation

FORWARD = Operation(PoolingAverage, "forward")
CASE = Case.parse("PoolingAverage.forward:n2h7w6c3,k3x2,s2x1,o1x0,clamp,zp1x0,float32,seed=7")
EXACT = Case.parse("PoolingAverage.forward:n1h4w4c3,k2x2,s2x2,o1x1,float32,exact,seed=7")
HALF = Case.parse("PoolingAverage.forward:n1h4w4c3,k3x3,float16,seed=7")
OUTSIDE = Case.parse("PoolingAverage.forward:n1h4w4c3,k2x2,o90x90,out2x2,float32,seed=7")
DOUBLE = Case.parse("PoolingAverage.forward:n1h4w4c3,k2x2,float64,seed=7")


def backend(change: Callable[..., Array | None] = lambda result, *_: None, **words: Any) -> Backend:
    """The reference, its result changed by ``change(result, problem, x)``."""
    return Backend("changed", {FORWARD: mutants.of_result(change)}, **words)


def scaled(factor: float) -> Backend:
    return backend(lambda result, *_: result * factor)


@pytest.mark.parametrize("case", [CASE, EXACT, HALF], ids=str)
def test_passed(case: Case) -> None:
    assert run_case(case, backend()) == Outcome("passed", 0.0, "")


def test_the_fraction_of_the_bound() -> None:
    """All values off by 1 u, of the 4 to 10 u and one rounding that are allowed."""
    outcome = run_case(CASE, scaled(1 + 2.0**-24))
    assert outcome.status == "passed"
    assert 0.1 < outcome.fraction < 0.6


def test_properties_are_not_checked_on_nan() -> None:
    def never(case: Case, backend: Backend) -> None:
        raise Mismatch("never holds")

    assert run_case(CASE, backend(), (never,)).status == "failed"
    assert run_case(replace(CASE, family="nonfinite"), backend(), (never,)).status == "passed"


def test_failed_says_where() -> None:
    def spoil(result: Array, *_: Any) -> None:
        result[1, 2, 3, 1] += 1

    outcome = run_case(CASE, backend(spoil))
    assert outcome.status == "failed"
    assert outcome.message.startswith(
        "1 of 108 elements are wrong; the first is [1, 2, 3, 1]: window (2, 3), rows 4..6, columns 2..3. It is "
    )


@pytest.mark.parametrize("case", [CASE, HALF], ids=str)
def test_a_small_error_fails_too(case: Case) -> None:
    """1e-5 of a float32 result, 2e-3 of a float16 one."""
    assert run_case(case, scaled(1 + (1e-5 if case.dtype == "float32" else 2e-3))).status == "failed"


def test_the_exact_family_has_no_tolerance() -> None:
    last_bit = scaled(1 + 2.0**-23)
    assert run_case(EXACT, last_bit).status == "failed"
    assert run_case(Case(EXACT.problem, "float32", "real", 7), last_bit).status == "passed"


def writes(write: Callable[[Array, Array], None]) -> Backend:
    """Correct, but for ``write(x, out)`` afterwards."""
    right = backend().implementations[FORWARD]

    def run(problem: Any, x: Array, out: Array) -> None:
        right(problem, x, out=out)
        write(x, out)

    return Backend("writing", {FORWARD: run})


def _past_the_end(x: Array, out: Array) -> None:
    np.lib.stride_tricks.as_strided(out, (out.size + 1,), (out.itemsize,))[-1] = 0


def _into_the_input(x: Array, out: Array) -> None:
    x[0, 0, 0, 0] += 1


def _nothing(x: Array, out: Array) -> None:
    out.reshape(-1)[-1] = np.nan


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_past_the_end, r"4 bytes were written past the end of the result, the first at \+0"),
        (_into_the_input, "the input x was changed"),
        (_nothing, "never written"),
    ],
)
def test_memory_is_guarded(write: Callable[[Array, Array], None], message: str) -> None:
    outcome = run_case(CASE, writes(write))
    assert outcome.status == "failed"
    assert message.replace("\\", "") in outcome.message


def test_an_exception_is_a_failure() -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("by N")

    expected = Outcome("failed", message="raised ZeroDivisionError: by N", kind="raised ZeroDivisionError")
    assert run_case(CASE, backend(fail)) == expected


def test_an_interrupt_is_not() -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_case(CASE, backend(interrupt))


@pytest.mark.parametrize(
    ("other", "case", "reason"),
    [
        (Backend("empty", {}), CASE, "backend 'empty' does not implement PoolingAverage.forward"),
        (backend(unavailable=lambda: "no such device"), CASE, "no such device"),
        (backend(), DOUBLE, "backend 'changed' does not take float64"),
        (backend(dtypes=("float32",)), HALF, "backend 'changed' does not take float16"),
    ],
    ids=["operation", "unavailable", "float64", "float16"],
)
def test_unsupported(other: Backend, case: Case, reason: str) -> None:
    assert run_case(case, other) == Outcome("unsupported", message=reason)


def test_nothing_but_zeros_is_mistrusted() -> None:
    assert run_case(OUTSIDE, backend()) == Outcome("mistrusted")
    assert run_case(OUTSIDE, backend(lambda result, *_: result + 1)).status == "failed", (
        "zeros are compared all the same"
    )


def test_properties_are_asked_after_agreement() -> None:
    asked = []

    def holds(case: Case, other: Backend) -> None:
        asked.append((case, other.name))

    def fails(case: Case, other: Backend) -> None:
        raise Mismatch("symmetry: it is not there")

    assert run_case(CASE, backend(), (holds, holds)).status == "passed"
    assert asked == [(CASE, "changed")] * 2
    expected = Outcome("failed", message="symmetry: it is not there", kind="wrong")
    assert run_case(CASE, backend(), (fails, holds)) == expected
    assert run_case(CASE, scaled(2), (holds,)).status == "failed"
    assert len(asked) == 2


def test_what_is_expected_is_the_reference_before_rounding() -> None:
    ((reference, terms),) = expected(HALF)
    assert reference.dtype == np.float64
    (x,) = HALF.inputs()
    right = FORWARD.formula(HALF.problem, x.astype(np.float64))
    assert np.array_equal(reference, right)
    assert not np.array_equal(reference, reference.astype(np.float16))
    assert terms.limit.shape == reference.shape


def test_compute_runs_without_guards() -> None:
    (y,) = compute(CASE.problem, backend(), *CASE.inputs())
    assert np.array_equal(y, expected(CASE)[0][0].astype(np.float32))


@pytest.mark.parametrize(("slope", "applies"), [(2.0, True), (3.0, False)])
def test_properties_do_not_apply_to_results_beyond_the_range_of_their_dtype(slope: float, applies: bool) -> None:
    problem = Neuron("linear", a=slope).problems["forward"](Neuron("linear", a=slope), (1, 1, 1, 1))
    x = np.full((1, 1, 1, 1), 30000, np.float16)
    if applies:
        ((result, limit),) = with_limits(problem, registry.get_backend("reference"), [x])
        assert result == 60000
        assert limit >= 16, "half of the spacing of float16"
    else:
        with pytest.raises(InapplicableError):
            with_limits(problem, registry.get_backend("reference"), [x])


def test_a_property_that_does_not_apply_is_no_failure() -> None:
    def inapplicable(case: Case, backend: Backend) -> None:
        raise InapplicableError

    def violated(case: Case, backend: Backend) -> None:
        raise Mismatch("violated")

    assert run_case(CASE, backend(), (inapplicable,)).status == "passed"
    assert run_case(CASE, backend(), (inapplicable, violated)).message == "violated"


def test_the_message_of_a_property_says_what_must_hold() -> None:
    def violated(case: Case, backend: Backend) -> None:
        """The total stays.

        More about it.
        """
        raise Mismatch("total: the result is nan")

    message = run_case(CASE, backend(), (violated,)).message
    assert message == "total: the result is nan\n  what must hold: The total stays."
    lacking = [(one, p) for one in operations() for p in families.properties(one) if not p.__doc__]
    assert not lacking


def without_a_product(backend: Backend, operation: Operation) -> Backend:
    """Return the backend, whose sum of the products of two inputs lacks one of the most average size."""

    def run(problem: Any, x: Array, weights: Array, *, out: Array) -> None:
        registry.run(problem, x, weights, out=out, backend=backend)
        terms = x.astype(float).ravel() * weights.astype(float).ravel()
        size = abs(terms)
        out -= out.dtype.type(terms[abs(size - size.mean()).argmin()])

    return replace(backend, implementations={operation: run}, arrays=None)


SUMS = [
    (name, kernel, terms)
    for name in ("cpu", "metal:clang", *registry.named_only())
    for kernel in ("FullyConnected", "Convolution")
    for terms in (4096, 100_000)
    if (name, terms) != ("metal:checked", 100_000)  # takes long; these are the kernels of metal:clang
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile
@pytest.mark.parametrize(("name", "kernel", "terms"), SUMS)
def test_a_dropped_average_product_is_found(name: str, kernel: str, terms: int) -> None:
    """On small integers, since the bound allows it; nothing is found where none is dropped."""
    case = Case.parse(f"{kernel}.forward:n1h1w1c{terms},k1x1,co1,float32,seed=3")
    backend = registry.get_backend(name)
    if backend.why_not_problem(case.problem) or case.dtype not in backend.dtypes:
        pytest.skip("not installed, or it does not have this operation in float32")
    right = run_case(case, backend)
    if right.status == "unsupported":
        pytest.skip(right.message)
    assert right.status == "passed", right.message
    found = run_case(case, without_a_product(backend, case.problem.operation))
    assert found.status == "failed"
    assert found.message.startswith("on small integers")
