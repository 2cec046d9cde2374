"""What the random cases of kernels with windows cover: arguments of frameworks, and geometries at which they fail."""

import contextlib
import math
from collections import Counter

import pytest
from hypothesis import assume, given, settings

from mpsref import bugs, frameworks
from mpsref.conformance import checker, families, tally, wide
from mpsref.conformance.blocks import blocks
from mpsref.conformance.case import Case, operation_named, operations
from mpsref.conformance.families.pooling import framework_problems
from mpsref.conformance.strategies import WIDTHS
from mpsref.errors import UnsupportedError
from mpsref.kernels import PoolingAverage, PoolingMax
from mpsref.kernels.pooling import PoolingGradient
from mpsref.registry import Backend
from tests import examples, few


@pytest.mark.parametrize("name", few(list(map(str, operations())), 6))
def test_a_default_check_reaches_every_edge_of_every_parameter(name):
    operation = operation_named(name)
    cases = [*drawn(name, 60), *(case for _, case in checker.layer_cases(operation))]
    assert tally.unreached(cases[0].problem, tally.added(map(tally.tally, cases))) == []


def test_an_edge_that_is_not_reached_is_named(monkeypatch):
    problem = Case.parse("Adam.step:v3,float32").problem
    cases = [case for _, case in checker.layer_cases(problem.operation)]
    assert tally.unreached(problem, tally.added(map(tally.tally, cases[:1]))) != []
    monkeypatch.setitem(wide.EDGES, "Adam", ())
    cases = [*drawn("Adam.step", 60), *(case for _, case in checker.layer_cases(problem.operation))]
    assert "beta2 0" in tally.unreached(problem, tally.added(map(tally.tally, cases)))


WORDS = (frameworks.pytorch, frameworks.onnx, frameworks.tensorflow)


def drawn(name: str, number: int = 180) -> list[Case]:
    """The random cases of three default checks."""
    operation = operation_named(name)
    return [
        case
        for block in blocks(number, 0)
        for case in checker.random_cases(operation, Backend.dtypes, block.number, block.seed)
    ]


def words(problem):
    """The arguments of each framework that has some."""
    problem = frameworks.canonical(problem) if isinstance(problem, PoolingGradient) else problem
    for framework in WORDS if problem else ():
        with contextlib.suppress(UnsupportedError):
            yield framework(problem)


@pytest.mark.parametrize("kernel", [PoolingAverage, PoolingMax])
@pytest.mark.parametrize("method", ["forward", "gradient"])
def test_what_is_drawn_for_frameworks_has_arguments_of_frameworks(kernel, method):
    """By the inverse, which is written on its own."""

    @settings(examples(100), database=None, derandomize=True)
    @given(framework_problems(kernel, method))
    def check(problem):
        assume(kernel is not PoolingMax or problem.spec.dilations == (1, 1))  # "clamp" is not the padding of these
        assert any(found.size == found.output_size for found in words(problem)), problem

    check()


@pytest.mark.parametrize(
    ("name", "argument", "values"),
    [
        ("PoolingAverage.forward", "ceil_mode", {True, False}),
        ("PoolingAverage.gradient", "count_include_pad", {True, False}),
        ("PoolingMax.gradient", "ceil_mode", {True, False}),
        ("PoolingAverage.gradient", "padding", {"SAME", "VALID"}),
        ("Convolution.gradient_weights", "padding", {"SAME", "VALID"}),
    ],
)
def test_arguments_of_frameworks_are_drawn(name, argument, values):
    """Each value several times in three default checks."""
    seen = Counter(
        found.keywords[argument]
        for case in drawn(name)
        for found in words(case.problem)
        if argument in found.keywords and isinstance(found.keywords[argument], (bool, str))
    )
    assert all(seen[value] >= 5 for value in values), seen


@pytest.mark.slow
def test_other_arguments_of_frameworks_are_drawn():
    asked = [found.keywords for case in drawn("PoolingAverage.forward") for found in words(case.problem)]
    assert sum(bool(each.get("divisor_override")) for each in asked) >= 3
    asked = [found.keywords for case in drawn("Convolution.forward") for found in words(case.problem)]
    assert sum("pads" in each and each["pads"][:2] != each["pads"][2:] for each in asked) >= 10
    asked = [found.keywords for case in drawn("ConvolutionTranspose.forward") for found in words(case.problem)]
    assert sum(any(each.get("output_padding", ())) for each in asked) >= 10


@pytest.mark.parametrize(
    "name", few(["PoolingAverage.gradient", "Convolution.forward", "Convolution.gradient_data"], 1)
)
def test_geometries_at_which_frameworks_fail_are_drawn(name):
    problems = [case.problem for case in drawn(name)]
    axes = [list(zip(p.spec.windows, _results(p), p.source_shape[1:3], strict=True)) for p in problems]
    assert sum(1 in _results(problem) for problem in problems) >= 30, "one pixel wide or high"
    assert sum(any(window.stride > window.kernel for window, *_ in each) for each in axes) >= 15
    assert sum(any(window.kernel >= 10 for window, *_ in each) for each in axes) >= 5
    outside = [
        any(
            all(not 0 <= window.tap(i, t) < length for t in range(window.kernel))
            for window, outputs, length in each
            for i in range(outputs)
        )
        for each in axes
    ]
    assert sum(outside) >= 15, "all taps of a window outside"
    assert {problem.source_shape[3] for problem in problems} >= {*WIDTHS}


@pytest.mark.slow
def test_convolutions_of_one_column_are_drawn():
    """At these oneDNN computes wrong numbers, and ends the process: each several times in three default checks."""
    wrong, fatal = 0, 0
    for problem in (case.problem for case in drawn("Convolution.forward")):
        spec, (height, width), (_, columns, channels) = problem.spec, problem.output_size, problem.source_shape[1:]
        (above, beside), taps = spec.windows, math.prod(spec.kernel_size)
        one = width == 1 < height and channels == 1 and taps >= 9
        wrong += one and beside.stride > 1 == above.stride
        reads = any(0 <= beside.tap(i, t) < columns for i in range(width) for t in range(beside.kernel))
        fatal += not reads and problem.biased and channels > 1 and beside.dilation > 1 and beside.stride > 1
    assert wrong >= 3
    assert fatal >= 3


def _results(problem):
    return getattr(problem, problem.size_field())


@pytest.mark.slow
@pytest.mark.usefixtures("few_layers", "unshrunk")
@pytest.mark.parametrize("issue", ["oneDNN: conv2d, one channel, one column", "pytorch/pytorch#169688"])
@pytest.mark.parametrize("seed", [0, 1000])
def test_defects_of_onednn_are_found_in_few_cases(issue, seed):
    bug = next(bug for bug in bugs.BUGS if bug.issue == issue)
    (row,) = checker.check_operation(bug.operation, [bug.backend], 180, seed)
    assert any(failure.is_random for failure in row.failures)


def test_the_simplest_case_is_still_one_pixel():
    for name in ("PoolingAverage.gradient", "Convolution.forward", "ConvolutionTranspose.forward"):
        first = drawn(name, 1)[0].problem
        assert first.source_shape == (1, 1, 1, 1)
        assert families.kernel_tests(type(first.spec))
