"""The check as a whole: what it runs, what it reports, and in which form."""

import json
import signal
from collections import Counter
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

import mpsref
from mpsref import registry
from mpsref.conformance import check, checker, families, mutants, processes
from mpsref.conformance import layers as model_layers
from mpsref.conformance.blocks import Block, Schedule
from mpsref.conformance.case import Case, operation_named, operations
from mpsref.conformance.report import Failure, Report, Row
from mpsref.conformance.runner import Outcome
from mpsref.errors import UnsupportedError
from mpsref.kernels.pooling import Pooling
from mpsref.registry import Backend

pytestmark = pytest.mark.usefixtures("few_layers")

GRADIENT = operation_named("PoolingAverage.gradient")
AVERAGE = [operation_named("PoolingAverage.forward"), GRADIENT]
RIGHT = Backend("right", {op: mutants.of_problem(lambda problem: problem) for op in operations()})
WRONG = next(m.backend for m in families.mutants() if m.operation == GRADIENT and m.name == "the sum is not divided")


def test_a_right_backend_passes():
    steps = []
    report = check([RIGHT], AVERAGE, number=20, progress=lambda title, total: lambda: steps.append(title))
    assert report.ok
    assert report.counts == {"passed": len(report.rows), "failed": 0, "unsupported": 0, "mistrusted": 0}
    for row in report.rows:
        layers = sum(1 for _ in checker.layer_cases(operation_named(row.operation)))
        assert row.cases == layers + 20 + 7, "a third of the random cases again, on NaN"
        assert row.worst == 0, "the reference, rounded once, is right to the last bit"
    assert len(steps) == sum(row.cases for row in report.rows)


def test_a_wrong_backend_fails_on_layers_and_on_a_shrunk_random_case():
    (row,) = check([WRONG], [GRADIENT], number=30).rows
    assert row.status == "failed"
    layers = [failure for failure in row.failures if failure.layer]
    (random,) = [failure for failure in row.failures if not failure.layer]
    names = {failure.layer for failure in layers if not failure.layer.startswith(checker.WORKED)}
    assert names <= {layer.name for layer in model_layers.load()}
    problem = Case.parse(random.case).problem
    assert max(problem.source_shape) <= 2, "not shrunk"
    assert random.replay == f"mpsref replay '{random.case}' --backend '{WRONG.name}'"


def test_what_a_backend_lacks_is_unsupported_with_its_reason_and_nothing_runs_elsewhere():
    none = Backend("none", {})
    report = check([none], [GRADIENT], number=5)
    (row,) = report.rows
    assert row.status == "unsupported"
    assert "does not implement PoolingAverage.gradient" in row.reason
    assert row.passed == 0
    assert not report.ok, "nothing was checked"


class Choosy(Backend):
    """A backend that takes no windows of 2 x 2."""

    def why_not(self, operation, spec):
        reason = super().why_not(operation, spec)
        return "windows of 2 x 2 are too small" if getattr(spec, "kernel_size", None) == (2, 2) else reason


def test_a_backend_that_refuses_some_cases_is_tested_with_the_others():
    table = {GRADIENT: registry.get_backend("cpu").implementations[GRADIENT]}
    (row,) = check(Choosy("choosy", table), [GRADIENT], number=60).rows
    assert row.status == "passed"
    assert row.reason == "windows of 2 x 2 are too small"
    assert row.refused > 0
    assert row.passed > 40
    (row,) = check([Choosy("choosy", {GRADIENT: WRONG.implementations[GRADIENT]})], [GRADIENT], number=60).rows
    assert row.status == "failed"


def refusing(limit: int, before: bool) -> Backend:
    """A backend that refuses images with more than ``limit`` channels: by its declaration, or in the call."""
    run = registry.get_backend("cpu").implementations[GRADIENT]

    def reason(problem):
        return "too many channels" if problem.source_shape[3] > limit else None

    def implementation(problem, *inputs, out):
        if reason(problem):
            raise UnsupportedError(str(reason(problem)))
        run(problem, *inputs, out=out)

    if before:
        return Backend("refusing", {GRADIENT: run}, refuses=reason)
    return Backend("refusing", {GRADIENT: implementation})


@pytest.mark.parametrize("before", [True, False])
def test_a_backend_refuses_problems(before):
    (row,) = check(refusing(6, before), [GRADIENT], number=60).rows
    assert (row.status, row.reason) == ("passed", "too many channels")
    assert row.refused > 0
    assert row.passed + row.refused > 60
    assert row.shown_cases == f"{row.cases} of {row.cases + row.refused}"


@pytest.mark.parametrize("before", [True, False])
def test_a_row_of_which_too_little_ran_is_partial(before):
    report = check(refusing(1, before), [GRADIENT], number=60)
    (row,) = report.rows
    assert row.status == "partial"
    assert 0 < row.cases < row.refused / 3
    assert report.counts == {"passed": 0, "failed": 0, "unsupported": 0, "mistrusted": 0, "partial": 1}
    assert not report.ok
    assert f"only {row.shown_cases} cases ran: too many channels" in report.junit()


def test_a_quarter_is_enough():
    assert Row("op", "b", "CPU", passed=15, refused=45, reason="r").status == "passed"
    assert Row("op", "b", "CPU", passed=14, refused=46, reason="r").status == "partial"
    assert Row("op", "b", "CPU", zeros=2, refused=46, reason="r").status == "mistrusted"
    assert "partial" not in Report("1", 0, (Row("op", "b", "CPU", passed=1),)).counts


def test_a_refused_problem_raises_elsewhere_too():
    x = np.ones((1, 2, 2, 4), np.float32)
    with pytest.raises(UnsupportedError, match="too many channels"):
        mpsref.PoolingAverage(2).gradient(x, x.shape, backend=refusing(3, before=True))


def test_backends_and_operations_may_be_one_or_none():
    assert check("cpu", [], number=1).rows == ()
    (row,) = check("cpu", [GRADIENT], number=1).rows
    assert (row.backend, row.status) == ("cpu", "passed")


def test_an_operation_of_which_only_zeros_were_seen_is_mistrusted():
    assert Row("op", "b", "CPU", passed=0, zeros=9).status == "mistrusted"
    assert not Report("1", 0, (Row("op", "b", "CPU", passed=0, zeros=9),)).ok


def test_a_failure_that_comes_and_goes_is_a_failure():
    calls = iter(range(10**6))

    def sometimes(problem, *inputs, out):
        out[...] = mutants.correct(problem, *inputs)
        if next(calls) % 7 == 3:
            out += 1

    (row,) = checker.check_operation(GRADIENT, [Backend("sometimes", {GRADIENT: sometimes})], number=60)
    assert row.status == "failed"


def test_a_failure_that_never_comes_again_is_a_failure():
    """What is reported is the case that failed, as it was drawn."""
    calls = iter(range(10**6))

    def once(problem, *inputs, out):
        out[...] = mutants.correct(problem, *inputs)
        if next(calls) == 400:
            out += 1

    backend = Backend("once", {GRADIENT: once})
    (row,) = checker.check_operation(GRADIENT, [backend])
    (failure,) = row.failures
    assert Case.parse(failure.case) in checker.random_cases(GRADIENT, backend.dtypes, checker.CASES, 0)


@pytest.mark.slow
def test_a_failure_is_shrunk_from_the_round_that_it_came_in():
    """It is met again there, wherever among the random cases it was."""
    drawn = list(checker.random_cases(GRADIENT, RIGHT.dtypes, checker.CASES, 0))
    for rare in drawn[1::60]:
        tried = []

        def outcome_of(case, rare=rare, tried=tried):
            tried.append(case)
            return Outcome("failed" if case == rare else "passed", message="rare")

        failure = checker.search(GRADIENT, RIGHT, checker.CASES, 0, outcome_of)
        assert failure.case == str(rare)
        assert tried.count(rare) > 1


@pytest.mark.parametrize(("wrong", "hinted"), [({"float16"}, True), ({"float16", "float32"}, False)])
def test_a_backend_that_is_wrong_in_float16_alone_is_told_of_dtypes(wrong, hinted):
    def half(problem, *inputs, out):
        out[...] = mutants.correct(problem, *inputs)
        out += inputs[0].dtype.name in wrong

    (row,) = check([Backend("half", {GRADIENT: half})], [GRADIENT], number=20).rows
    (message,) = [failure.message for failure in row.failures if failure.is_random]
    assert message.endswith("a backend that takes float32 alone is Backend(..., dtypes=('float32',)).") == hinted


@pytest.mark.parametrize("dtypes", [("float64",), ("float32", "float64")])
def test_a_backend_is_tried_in_every_dtype_that_it_takes(dtypes):
    seen = set()

    def noted(problem, *inputs, out):
        seen.add(inputs[0].dtype.name)
        out[...] = mutants.correct(problem, *inputs)

    (row,) = checker.check_operation(GRADIENT, [Backend("wide", {GRADIENT: noted}, dtypes=dtypes)])
    assert (row.status, seen) == ("passed", set(dtypes))


@pytest.mark.parametrize(
    ("distinct", "number", "places"), [(3, 60, [1, 5, 8]), (3, 1, [5]), (10, 60, [*range(10)]), (None, 1, [*range(10)])]
)
def test_few_layers_are_spread_over_those_of_the_dtypes_of_a_backend(distinct, number, places):
    cases = [Case.parse(f"SoftMax.forward:n1h1w1c2,float32,seed={k}") for k in range(10)]
    layers = [(dtype, replace(case, dtype=dtype)) for case in cases for dtype in ("float16", "float32")]
    backend = Backend("few", {}, dtypes=("float32",), distinct_problems=distinct)
    assert checker._chosen(layers, backend, number) == [cases[k] for k in places]


def test_all_data_of_a_compiled_problem_follow_one_another():
    backend = Backend("compiling", {}, dtypes=("float32",), layouts=("nhwc", "nchw"), distinct_problems=3)
    drawn = [(case.problem, case.layouts) for case, _ in checker._drawn(GRADIENT, backend, Block(20, 0))]
    assert len(drawn) == 20
    assert 1 < len({*drawn}) <= 3
    assert sum(one != other for one, other in pairwise(drawn)) == len({*drawn}) - 1


def test_a_failure_of_one_backend_is_none_of_another():
    """Backends are checked side by side, each with all of its cases; the wrong one stops at its first random one."""
    wrong, right = checker.check_operation(GRADIENT, [WRONG, RIGHT], number=30)
    assert (wrong.status, right.status) == ("failed", "passed")
    assert right.cases == sum(1 for _ in checker.layer_cases(GRADIENT)) + 30 + 10
    assert wrong.cases < right.cases
    (alone,) = checker.check_operation(GRADIENT, [WRONG], number=30)
    assert wrong == alone


@pytest.mark.slow
def test_the_same_seed_finds_the_same_case():
    first, second = (check([WRONG], [GRADIENT], number=30, seed=5).failures[-1].case for _ in range(2))
    assert first == second


FAILURE = Failure("PoolingAverage.gradient:n1h1w1c1,k1x1,seed=0", "b <&>", "x < y & z", "net.layer")
REPORT = Report(
    "1.2.3",
    7,
    (
        Row("PoolingAverage.forward", "b <&>", "CPU", 5, 1, 0.25),
        Row("PoolingAverage.gradient", "b <&>", "CPU", 4, 0, 0.5, failures=(FAILURE,)),
        Row("PoolingAverage.gradient", "c", "GPU", reason="no such thing"),
    ),
    (("metal", "no Mac"),),
)


def test_json_form():
    form = json.loads(REPORT.json())
    assert form["format"] == 1
    assert form["mpsref"] == "1.2.3"
    assert form["seed"] == 7
    assert form["ok"] is False
    assert form["counts"] == {"passed": 1, "failed": 1, "unsupported": 1, "mistrusted": 0}
    assert form["unavailable"] == [{"backend": "metal", "reason": "no Mac"}]
    assert [row["status"] for row in form["rows"]] == ["passed", "failed", "unsupported"]
    assert form["rows"][0] == {
        "operation": "PoolingAverage.forward", "backend": "b <&>", "runtime": "CPU", "passed": 5, "zeros": 1,
        "worst": 0.25, "reason": "", "failures": [], "refused": 0, "rules": [], "tried": {}, "status": "passed",
        "cases": 6, "used": None,
    }  # fmt: skip
    (failure,) = form["rows"][1]["failures"]
    assert failure["replay"] == FAILURE.replay


def test_record():
    assert REPORT.record("2026-01-02", "abc", "Linux") == [
        "| 2026-01-02 | abc | Linux | b <&> | CPU | 2 operations, 11 cases | 1 passed, 1 failed |",
        "| 2026-01-02 | abc | Linux | c | GPU | 1 operations, 0 cases | 1 unsupported |",
    ]


def test_junit_form():
    root = ElementTree.fromstring(REPORT.junit())
    first, second = root.findall("testsuite")
    assert first.attrib == {"name": "b <&>", "tests": "2", "failures": "1", "skipped": "0"}
    assert second.attrib["skipped"] == "1"
    assert first.findall("testcase/failure")[0].attrib["message"] == "x < y & z"
    assert FAILURE.replay in first.findall("testcase/failure")[0].text
    assert second.find("testcase/skipped").attrib["message"] == "no such thing"


@pytest.mark.slow
@pytest.mark.parametrize("operation", list(operations()), ids=str)
def test_cases_draw_legal_problems_of_every_kind(operation):
    """The random cases cover what matters: both dtypes, all families, windows outside, and mostly real work."""
    seen = list(checker.random_cases(operation, RIGHT.dtypes, 30, 0))
    assert {case.dtype for case in seen} == {"float32", "float16"}
    assert {case.family for case in seen} == {"exact", "real", "hard"}
    if isinstance(seen[0].problem.spec, Pooling):
        assert {case.problem.spec.edge_mode for case in seen} == {"zero", "clamp"}
    assert len({case.problem for case in seen}) > len(seen) * 0.4
    assert sum(case.problem.result_shapes != seen[0].problem.result_shapes for case in seen) > len(seen) * 0.4


MAX = operation_named("PoolingMax.gradient")


def test_nan_and_infinities_are_tried_in_addition():
    """The finite cases are those of an operation that is not tested on NaN."""
    drawn = list(checker.checked_cases(MAX, RIGHT.dtypes, 30, 0))
    assert drawn[:30] == list(checker.random_cases(MAX, RIGHT.dtypes, 30, 0))
    assert drawn[30:] == [replace(case, family="nonfinite") for case in drawn[:10]]
    sources = [case.inputs() for case in drawn[30:]]
    for wanted in (np.isnan, np.isposinf, np.isneginf):
        assert all(any(wanted(arrays[k]).any() for arrays in sources) for k in range(2))
    assert len(checker.checked_cases(GRADIENT._replace(method="forward"), RIGHT.dtypes, 30, 0)) == 40
    assert len(checker.checked_cases(operation_named("Adam.step"), RIGHT.dtypes, 30, 0)) == 30


def test_a_failure_on_nan_is_shrunk_on_nan():
    (mutant,) = (
        m for m in families.mutants() if m.operation == MAX and m.name == "the last NaN of NaN alone is selected"
    )
    (row,) = checker.check_operation(MAX, [mutant.backend])
    (failure,) = row.failures
    case = Case.parse(failure.case)
    assert case.family == "nonfinite"
    assert np.prod(case.problem.source_shape) <= 16, "not shrunk"


def test_fast_math_is_not_tried_on_nan():
    quick = Backend("quick", {MAX: RIGHT.implementations[MAX]}, fast_math=True)
    (row,) = checker.check_operation(MAX, [quick], number=30)
    assert (row.status, row.refused) == ("passed", 10)
    assert row.cases == sum(1 for _ in checker.layer_cases(MAX)) + 30
    assert row.reason == "backend 'quick' has fast math, where NaN and infinities are unspecified"


def test_processes_work_on_different_families():
    """As long as there is a choice; what they share is compiled once then. Larger families come first."""
    waiting, order = list(operations()), []
    while waiting:
        order.append(processes._next(waiting, order[-1:] and [processes._family(order[-1])]))
        waiting.remove(order[-1])
    assert sorted(map(str, order)) == sorted(map(str, operations()))
    families = [processes._family(operation) for operation in order]
    assert all(first != second for first, second in pairwise(families))
    most, _ = Counter(map(processes._family, operations())).most_common(1)[0]
    assert families[0] == most
    last = operation_named("Loss.forward")
    assert processes._next([last], [processes._family(last)]) == last


@pytest.mark.slow
@pytest.mark.usefixtures("all_layers")
def test_processes_find_the_same():
    """However many processes share the work, the rows are the same and come in the same order."""
    movement, steps = [operation_named("Slice.forward"), operation_named("Reshape.gradient")], []
    alone = check("reference", movement, number=20)
    shared = check("reference", movement, number=20, jobs=2, progress=lambda title, total: lambda: steps.append(title))
    assert shared.rows == alone.rows
    assert [row.operation for row in shared.rows] == ["Slice.forward", "Reshape.gradient"]
    assert steps == ["random cases"] * 40


class Process:
    """A process, in place of that of ``processes._process``; the first one dies after ``lives`` blocks."""

    started = 0
    lives = 1 << 30

    def __enter__(self):
        Process.started += 1
        self.submitted, self.lives, Process.lives = 0, Process.lives, 1 << 30
        return self

    def __exit__(self, *_):
        return None

    def shutdown(self):
        self.submitted = self.lives

    def submit(self, function, *arguments):
        if self.submitted == self.lives:
            raise BrokenProcessPool
        self.submitted += 1
        future = Future()
        future.set_result(function(*arguments))
        return future


@pytest.mark.parametrize(
    ("lives", "growth", "is_worn", "started"),
    [
        (1 << 30, 1 << 40, False, 2),
        (1, 1 << 40, False, 3),
        (1 << 30, -(1 << 40), False, 4),
        (1 << 30, 1 << 40, True, 4),
    ],
    ids=str,
)
def test_processes_that_die_grow_and_wear_out_are_replaced(monkeypatch, lives, growth, is_worn, started):
    """A block that could not be handed out is not lost."""
    monkeypatch.setitem(registry._loaded, "cpu", replace(registry.get_backend("cpu"), is_worn=lambda: is_worn))
    monkeypatch.setattr(Process, "started", 0)
    monkeypatch.setattr(Process, "lives", lives)
    monkeypatch.setattr(processes, "_process", Process)
    monkeypatch.setattr(processes, "GROWTH", growth)
    wanted = [operation_named(name) for name in ("Slice.forward", "Reshape.forward", "SoftMax.forward", "Pad.forward")]
    schedule = Schedule(wanted, ["cpu"], 2, 0)
    processes.check_in_processes(checker.check_by_name, schedule, lambda: None, 2)
    assert [(row.operation, row.status) for row in schedule.rows()] == [(str(one), "passed") for one in wanted]
    assert Process.started == started


class Strict(Backend):
    """A backend that reads the parameters before anything else."""

    def why_not(self, operation, spec):
        return "too large" if spec.kernel_size > (9, 9) else super().why_not(operation, spec)


def test_what_a_backend_lacks_is_known_without_a_spec():
    (row,) = check(Strict("strict", {}), [GRADIENT], number=1).rows
    assert row.status == "unsupported"
    assert "does not implement PoolingAverage.gradient" in row.reason


@pytest.mark.slow
def test_blocks_add_up():
    """A check of more cases is the check of consecutive seeds; the layers are checked once."""
    (whole,) = checker.check_operation(GRADIENT, [RIGHT], number=150, seed=3)
    blocks = [checker.check_block(GRADIENT, [RIGHT], block)[0] for block in checker.blocks(150, 3)]
    assert [row.cases for row in blocks[1:]] == [60 + 20, 30 + 10], "with those on NaN"
    assert whole == Row.merged(blocks)
    first, second, third = (
        list(checker.checked_cases(GRADIENT, RIGHT.dtypes, number, seed))
        for number, seed in [(60, 3), (60, 4), (30, 5)]
    )
    tried = []
    checker.search(GRADIENT, RIGHT, 150, 3, lambda case: tried.append(case) or Outcome("passed"))
    assert tried == first + second + third
    assert len({*first} & {*second}) <= 2, "blocks repeat each other"


def test_a_row_ends_with_the_block_of_its_first_random_failure():
    row = Row("op", "b", "CPU", passed=5, worst=0.5)
    layer = Row("op", "b", "CPU", passed=7, failures=(Failure("a", "b", "wrong", "net.layer"),), refused=1, reason="r")
    random = Row("op", "b", "CPU", zeros=2, failures=(Failure("c", "b", "wrong"),))
    assert Row.merged([layer, row]) == Row(
        "op", "b", "CPU", 12, worst=0.5, reason="r", failures=layer.failures, refused=1
    )
    assert Row.merged([row, random, row, random]) == Row.merged([row, random])
    assert Row.merged([row, random]) == Row("op", "b", "CPU", 5, 2, 0.5, failures=random.failures)


@pytest.mark.slow
def test_the_other_backends_go_on_after_the_failure_of_one():
    wrong, right = checker.check_operation(GRADIENT, [WRONG, RIGHT], number=150)
    assert right.cases == sum(1 for _ in checker.layer_cases(GRADIENT)) + 150 + 50
    (alone,) = checker.check_operation(GRADIENT, [WRONG], number=150)
    assert wrong == alone


def test_ctrl_c_does_not_interrupt_the_construction_of_a_pool(monkeypatch):
    """Half of a pool leaves a semaphore behind, of which Python warns at the end."""
    constructed = []

    class Pool(processes.ProcessPoolExecutor):
        def __init__(self, *arguments, **named):
            signal.raise_signal(signal.SIGINT)
            super().__init__(*arguments, **named)
            constructed.append(self)

    monkeypatch.setattr(processes, "ProcessPoolExecutor", Pool)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), processes._process():
            pass
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(constructed) == 1
