"""The default settings of a check detect every mutant, and for the right reason."""

import functools
import math
from pathlib import Path

import pytest

from mpsref import PoolingAverage
from mpsref.conformance import checker, families, mutants, wide
from mpsref.conformance.case import Case, operation_named, operations
from mpsref.conformance.runner import Outcome, run_case
from mpsref.registry import Backend, Operation
from tests import few

ALL = list(operations())
PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
MUTANTS = families.mutants()


def _outcome(case, backend):
    return run_case(case, backend, families.properties(case.problem.operation))


@functools.cache
def _cases(operation, number=checker.CASES):
    """Return the cases that a check draws with default settings, or the first ones of these."""
    return list(checker.checked_cases(operation, Backend.dtypes, number, 0))


FEW, SOME = 18, 60
"""Enough for most mutants; to draw all of the cases takes longer than to run them."""


def _failed(operation, outcome_of, number=checker.CASES):
    """Return the first case that fails, and its outcome."""
    outcomes = ((case, outcome_of(case)) for case in _cases(operation, number))
    return next((found for found in outcomes if found[1].status == "failed"), None)


@pytest.mark.parametrize("operation", few(ALL[::2] + ALL[1::2], len(ALL) // 2), ids=str)
def test_detected(operation):
    """Their mistakes are the only difference: the reference in the form of a mutant, without one, passes."""
    right = Backend("right", {operation: mutants.of_problem(lambda problem: problem)})
    outcomes = [_outcome(case, right) for case in _cases(operation, FEW)[::2]]
    assert not [outcome.message for outcome in outcomes if outcome.status == "failed"]
    for mutant in (one for one in MUTANTS if one.operation == operation):
        backend = mutant.backend  # most disagree at once with the reference, on a few cases
        failed = _failed(operation, lambda case, backend=backend: run_case(case, backend), FEW)
        for number in (FEW, SOME, checker.CASES):  # then with the properties, of which some need no other case
            failed = failed or _failed(operation, lambda case, backend=backend: _outcome(case, backend), number)
        assert failed is not None, f"{checker.CASES} random cases did not detect: {mutant.name}"
        case, outcome = failed
        assert "raised" not in outcome.message, f"{mutant.name}: the mistake must show in the result, not as an error"
        again = _outcome(Case.parse(str(case)), mutant.backend)
        # The stale result comes from an earlier call, so one call alone may be right.
        assert again.status == "failed" or "earlier call" in mutant.name, mutant.name


def test_the_cases_are_those_of_a_search():
    """A search, which shrinks a case that failed, tries the same cases in the same order."""
    operation = next(operations())
    tried = []

    def record(case):
        tried.append(case)
        return Outcome("passed")

    checker.search(operation, Backend("another", {}), checker.CASES, 0, record)
    assert tried == _cases(operation)
    assert tried[:FEW] == _cases(operation, FEW)[:FEW], "the few are the first of them"
    assert set(_cases(operation, SOME)) <= {*tried}
    assert len(tried) == checker.CASES
    assert len(set(tried)) == checker.CASES


def test_every_operation_has_mutants_of_its_own():
    """In addition to those that any operation can have."""
    common = {*mutants.common_mutants(), *mutants.memory_mutants()}
    for operation in operations():
        assert {mutant.name for mutant in MUTANTS if mutant.operation == operation} - common


@pytest.mark.parametrize(
    ("name", "small"),
    few(
        [
            ("the stride of the other axis is taken", "s"),
            ("the clip is ignored", "clip"),
            ("an even window has its extra tap on the other side", "k"),
            ("the kernel offset is ignored", "ko"),
        ],
        2,
    ),
)
def test_shrinks_to_a_small_case_that_shows_the_cause(name, small):
    """The shrunk case is tiny, and still has the parameter of the mistake."""
    (mutant,) = (m for m in MUTANTS if m.name == name and m.operation == (PoolingAverage, "gradient"))
    failure = checker.search(
        mutant.operation, mutant.backend, checker.CASES, 0, lambda case: run_case(case, mutant.backend)
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
    operation = Operation(PoolingAverage, "forward")
    zeros = Backend("zeros", {operation: lambda problem, *inputs, out: out.fill(0)})
    outside = Case.parse("PoolingAverage.forward:n1h2w2c1,k1x1,o5x5,out1x1,float32,seed=1")
    assert run_case(outside, zeros).status == "mistrusted"


@pytest.mark.parametrize("mutant", wide.size_mutants(), ids=lambda mutant: mutant.name)
def test_wide_cases_detect_what_is_right_on_small_ones(mutant):
    """Of the cases of a check, only the wide ones show that a size is not handled."""
    cases = wide.wide_cases(mutant.operation)
    assert any(run_case(case, mutant.backend).status == "failed" for case in cases)
    few = _cases(mutant.operation, FEW)
    assert not [case for case in few if run_case(case, mutant.backend).status == "failed"]


@pytest.mark.parametrize("operation", list(operations()), ids=str)
def test_every_operation_has_cases_of_all_sizes(operation):
    """Nine images, 31 channels, 70 columns, 300 rows or more, and an array of more than 65,536 elements."""
    cases = list(checker.cases_of_all_sizes(operation))
    images = [shape for case in cases for shape in (*case.problem.input_shapes.values(), *case.problem.result_shapes)]
    assert all(any(size in shape for shape in images) for size in (9, 31))
    assert any(length >= 300 for shape in images for length in shape[:3])
    assert any(max(shape) >= 70 for shape in images)
    assert max(math.prod(shape) for shape in images) > 2**16


FEW_SIZES = (
    "CropAndResizeBilinear",
    "Graph",
    "LocalContrast",
    "Spatial",
    "ResizeBilinear",
    "CrossChannel",
    "Neuron.par",
)
"""Operations, by the begin of their names, whose reference takes too long on long axes, or that have few channels."""


WITH_A_ROW = [
    one
    for one in operations()
    if not {str(one), one.spec_type.__name__}.isdisjoint(wide.SIZES) and not str(one).startswith(FEW_SIZES)
]
"""The cases of other kernels are drawn, of the sizes that the test before requires."""


@pytest.mark.parametrize("operation", WITH_A_ROW, ids=str)
def test_every_row_has_long_axes_and_many_channels(operation):
    """More than 65,536 images and channels, more than 32,768, and the numbers at which kernels change their way."""
    cases = list(wide.wide_cases(operation))
    shapes = [shape for case in cases for shape in (*case.problem.input_shapes.values(), *case.problem.result_shapes)]
    lengths = {length for shape in shapes for length in (shape[0], shape[-1])}
    assert max(lengths) > 2**16
    assert any(2**15 < length < 2**16 for length in lengths)
    assert {104, *({520} if operation.method == "step" else {208, 440, 512})} <= lengths


def _short_axes(operation):
    """Return the axes of four that no image of a wide case has above 65,536, and above 32,768."""
    problems = [case.problem for case in wide.wide_cases(operation)]
    images = [shape for one in problems for shape in (*one.input_shapes.values(), *one.result_shapes)]
    longest = map(max, zip(*(shape for shape in images if len(shape) == 4), strict=True))
    named = list(zip(("images", "rows", "columns", "channels"), longest, strict=False))  # optimizers have no images
    short = [name for name, length in named if length <= 2**15]
    others = [name for name, length in named if 2**15 < length <= 2**16]
    return "; ".join(
        f"{', '.join(axes)} above {limit}" for limit, axes in (("32,768", short), ("65,536", others)) if axes
    )


def test_the_page_lists_the_axes_that_no_wide_case_has():
    rows = {}
    for operation in operations():
        kernel = operation.spec_type.__name__
        if not {str(operation), kernel}.isdisjoint(wide.SIZES) and (axes := _short_axes(operation)):
            rows.setdefault(axes, set()).add(str(operation) if str(operation) in wide.SIZES else kernel)
    expected = [f"| {', '.join(f'`{name}`' for name in sorted(names))} | {axes} |" for axes, names in rows.items()]
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `") and " above " in line]
    assert sorted(lines) == sorted(expected)


def test_a_kernel_without_a_row_has_wide_cases_too(monkeypatch):
    monkeypatch.setattr(wide, "SIZES", {})
    for name in ("SoftMax.gradient", "PoolingMax.forward", "GraphResizeBilinear.gradient"):
        test_every_operation_has_cases_of_all_sizes(operation_named(name))
