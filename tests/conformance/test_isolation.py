"""Isolation: what ends a process, or never ends, costs one case."""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from mpsref import registry
from mpsref.conformance import check, checker, html_report, isolation, mutants
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.isolation import IsolatedRunner, Limits
from mpsref.conformance.runner import Outcome, run_case
from mpsref.registry import Backend
from tests import few

FORWARD = operation_named("PoolingL2Norm.forward")
SOFTMAX = operation_named("SoftMax.forward")
FRAMEWORKS = {"torch", "jax", "onnxruntime", "mlx", "tensorflow", "tinygrad", "pytorch", "llama.cpp"}
LAYERS = sum(1 for _ in checker.layer_cases(FORWARD))

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def segfault():
    ctypes.string_at(0)


def endless():
    while True:
        time.sleep(0.01)


def growing():
    held = []
    while True:
        held.append(np.ones(4 << 20, np.uint8))


def leaving():
    sys.exit("no")


def aborting():
    os.write(2, b"Check failed: \x1b[31mno\nand a stack trace")
    os.abort()


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def fails(how, when=lambda problem: problem.source_shape[3] > 5, otherwise=lambda out, problem: None):
    """Return a backend that fails for some problems, and computes the others right except for ``otherwise``."""

    def run(problem, *inputs, out):
        if when(problem):
            how()
        out[...] = mutants.correct(problem, *inputs)
        otherwise(out, problem)

    return Backend("odd", {FORWARD: run, SOFTMAX: run})


def random_failures(row):
    return [failure for failure in row.failures if not failure.layer]


@pytest.mark.parametrize("change", ["reads", "writes"])
def test_an_access_behind_an_array_is_a_crash(change):
    """Also one without an effect on the result and between other values: the next page is closed."""

    def beyond(problem, x, out):
        array = x if change == "reads" else out
        value = ctypes.c_uint32.from_address(array.ctypes.data + array.nbytes)
        if change == "writes":
            value.value = 0xFFFFFFFF  # as it was
        assert value.value == 0xFFFFFFFF
        out[...] = mutants.correct(problem, x)

    backend = Backend("beyond", {SOFTMAX: beyond})
    case = next(iter(checker.random_cases(SOFTMAX, ("float32",), 1, 0)))
    assert run_case(case, backend).status == "passed", "the sentinels hide it"
    runner = IsolatedRunner(lambda case, of_layer: run_case(case, backend), Limits())
    with contextlib.closing(runner):
        assert runner(case, False).kind in ("crashed SIGSEGV", "crashed SIGBUS")


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    few(
        [
            (segfault, "crashed SIGSEGV", "the process that ran it ended by SIGSEGV"),
            (
                aborting,
                "crashed SIGABRT",
                "the process that ran it ended by SIGABRT; it printed Check failed: \\x1b[31mno",
            ),
            (
                killed,
                "crashed SIGKILL",
                "the process that ran it ended by SIGKILL; a system that is out of memory ends processes by SIGKILL",
            ),
            (leaving, "raised SystemExit", "raised SystemExit: no"),
        ],
        1,
    ),
)
@pytest.mark.usefixtures("few_layers")
def test_a_crash_costs_one_case_and_shrinks(how, kind, message, capfd):
    report = check([fails(how)], [FORWARD, SOFTMAX], number=10, isolate=True)
    assert capfd.readouterr().err == "", "what the cases printed"
    row, other = report.rows
    (failure,) = random_failures(row)
    assert (failure.kind, failure.message) == (kind, message)
    assert Case.parse(failure.case).problem.source_shape == (1, 1, 1, 6)
    assert other.failures, "the run goes on"
    assert row.passed > 0
    written = json.loads(report.json())["rows"][0]["failures"][-1]
    assert (written["kind"], written["message"], written["case"]) == (kind, message, failure.case)
    element = ElementTree.fromstring(report.junit()).findall("testsuite/testcase[1]/failure")[-1]
    assert element.attrib == {"type": kind, "message": message}
    assert element.text.startswith(f"{failure.case}\nmpsref replay '{failure.case}' ")
    assert f"odd, {kind}: {message}" in html_report.page(report)
    assert f"<code>{failure.case}</code>" in html_report.page(report)


@pytest.mark.usefixtures("few_layers")
def test_a_crash_that_another_case_may_have_caused_is_called_so(monkeypatch):
    """Such as a write beyond memory, which ends the process later."""
    monkeypatch.setattr(checker, "_shrunk", lambda failure, *_: failure)
    count = [0]

    def damaged():
        count[0] += 1
        if count[0] == 3:
            os.abort()

    (row,) = check([fails(damaged, when=lambda problem: True)], [FORWARD], number=10, isolate=True).rows
    assert row.failures[0].kind == "crashed SIGABRT"
    alone = "in a new process it does not: another case may have damaged the one that ended"
    assert row.failures[0].message == f"the process that ran it ended by SIGABRT; {alone}"


def test_what_a_case_prints_is_passed_on(capsys):
    """With it, not with the crash of a later case."""

    def run(case, of_layer):
        os.write(2, b"a warning\n")
        return Outcome("passed") if of_layer else os.abort()

    case, runner = Case.parse("SoftMax.forward:n1h1w1c6"), IsolatedRunner(run, Limits())
    assert runner(case, True).status == "passed"
    assert capsys.readouterr().err == "a warning\n"
    assert runner(case, False).message == "the process that ran it ended by SIGABRT; it printed a warning"
    assert capsys.readouterr().err == ""
    assert runner(case, True).status == "passed"
    runner.close()


@pytest.mark.slow
def test_an_interpreter_serves_several_blocks(monkeypatch):
    """Until the outermost ``with`` block ends, it dies, has grown too much, or an exception has left it with a case."""
    backend, case = registry.get_backend("reference"), Case.parse("SoftMax.forward:n1h1w1c2")
    children = []

    def block(end=lambda child: None, **limits):
        progress = checker._Progress(SOFTMAX, backend, Limits(**limits))
        with progress.running():
            assert progress.outcome_of(case).status == "passed"
            children.append(progress.isolated._child)
            end(children[-1])

    def dies(child):
        os.kill(child, signal.SIGKILL)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)

    with isolation.kept():
        with isolation.kept():
            block()
        block()
        block(seconds=50)
        block(dies)
        block()
        with pytest.raises(ZeroDivisionError):
            block(lambda child: 1 / 0)
        block()
        monkeypatch.setattr(isolation, "GROWTH", -(1 << 40))
        block()
        block()
    block()
    first, again, other, killed, new, failed, after, grown, last, alone = children
    assert first == again == killed != other
    assert new == failed
    assert after == grown
    assert len({first, other, new, after, last, alone}) == 6
    assert not isolation._idle
    for child in {*children}:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def test_a_status_is_named():
    outcome = checker.outcome_of(Case.parse("SoftMax.forward:n1h1w1c6"), fails(lambda: os._exit(7)), isolate=True)
    assert (outcome.kind, outcome.message) == ("crashed status 7", "the process that ran it ended by status 7")


@pytest.mark.slow
@pytest.mark.usefixtures("unshrunk")
def test_cases_after_a_crash_run():
    """All of them, also those of which some are wrong."""

    def spoil(out, problem):
        if problem.source_shape[0] == 2:
            out[...] += 1

    rare = next(iter(checker.random_cases(FORWARD, ("float16", "float32"), 60, 0))).problem.source_shape
    only_crash, both = (
        check([fails(segfault, lambda p: p.source_shape == rare, change)], [FORWARD], isolate=True).rows[0]
        for change in (lambda out, problem: None, spoil)
    )
    assert [failure.kind for failure in random_failures(only_crash)] == ["crashed SIGSEGV"]
    assert only_crash.passed > LAYERS
    assert [failure.kind for failure in random_failures(both)] == ["crashed SIGSEGV", "wrong"]


@pytest.mark.slow
@pytest.mark.usefixtures("unshrunk")
def test_the_outcomes_are_those_without_isolation():
    backend = fails(lambda: None, otherwise=lambda out, problem: out.__imul__(1 + (problem.source_shape[3] == 4)))
    here, isolated = (check([backend], [FORWARD], number=30, isolate=isolate) for isolate in (False, True))
    assert here.rows == isolated.rows
    assert random_failures(here.rows[0])[0].kind == "wrong"


@pytest.mark.slow
def test_an_endless_loop_ends_at_the_time_limit_and_shrinks(monkeypatch):
    monkeypatch.setattr(checker, "SHRINK_SECONDS", 15.0)
    (row,) = check([fails(endless, when=lambda p: p.source_shape[3] == 7)], [FORWARD], isolate=Limits(seconds=0.6)).rows
    (failure,) = random_failures(row)
    assert (failure.kind, failure.message) == ("time", "no result after 0.6 s")
    assert Case.parse(failure.case).problem.source_shape[3] == 7
    assert Case.parse(failure.case) not in checker.random_cases(FORWARD, ("float16", "float32"), 60, 0), "not shrunk"
    assert row.passed > LAYERS


@pytest.mark.slow
def test_a_case_that_is_only_slow_is_not_reported_as_endless():
    """Shrinking has a lower time limit; what it finds is confirmed with the whole one."""
    drawn = next(iter(checker.random_cases(FORWARD, ("float16", "float32"), 1, 0)))

    def run(problem, *inputs, out):
        time.sleep(4 if problem == drawn.problem else 0.7)
        out[...] = mutants.correct(problem, *inputs)

    progress = checker._Progress(FORWARD, Backend("slow", {FORWARD: run}), Limits(seconds=3))
    with progress.running():
        progress.count(drawn, progress.outcome_of(drawn), turn=0)
        progress.shrink(0)
    (failure,) = progress.failures
    assert (failure.kind, failure.case) == ("time", str(drawn))


@pytest.mark.slow
def test_a_block_ends_after_a_few_endless_layers():
    (row,) = check([fails(endless, when=lambda problem: True)], [FORWARD], isolate=Limits(seconds=0.2)).rows
    assert [failure.kind for failure in row.failures] == ["time"] * checker.SLOW_FAILURES
    assert row.cases == checker.SLOW_FAILURES


@pytest.mark.slow
@pytest.mark.usefixtures("unshrunk", "few_layers")
def test_memory_that_grows_costs_one_case():
    (row,) = check([fails(growing)], [FORWARD], number=15, isolate=Limits(gib=0.3)).rows
    (failure,) = random_failures(row)
    assert failure.kind == "memory"
    assert "grew by more than 0.3 GiB" in failure.message
    assert row.passed > 0


@pytest.mark.slow
def test_a_leak_over_many_cases_is_found():
    """Also if no case takes long."""
    held = []

    def leak(case, of_layer):
        held.append(np.ones(64 << 20, np.uint8))
        return Outcome("passed")

    runner = IsolatedRunner(leak, Limits(gib=0.22))
    outcomes = [runner(Case.parse("SoftMax.forward:n1h1w1c2"), False) for _ in range(10)]
    runner.close()
    failed = [k for k, outcome in enumerate(outcomes) if outcome.kind == "memory"]
    assert failed == [3, 7], "each process holds three of them"
    assert outcomes[3].message == "the process grew by more than 0.22 GiB, in its case number 4"
    assert {outcome.kind for outcome in outcomes} == {"", "memory"}


@pytest.mark.slow
def test_a_wrong_value_does_not_shrink_into_an_exception():
    """Nor an exception into another one."""

    def run(problem, *inputs, out):
        _, height, width, channels = problem.source_shape
        if height * width == 1:
            raise ValueError("one pixel")
        if channels == 1:
            raise TypeError("one channel")
        out[...] = mutants.correct(problem, *inputs) + 1

    for seed in range(2):
        (failure,) = random_failures(check([Backend("odd", {FORWARD: run})], [FORWARD], 10, seed).rows[0])
        again = checker.outcome_of(Case.parse(failure.case), Backend("odd", {FORWARD: run}))
        assert again.kind == failure.kind
        drawn = checker.random_cases(FORWARD, ("float16", "float32"), 10, seed)
        first = next(o for o in (checker.outcome_of(case, Backend("odd", {FORWARD: run})) for case in drawn) if o.kind)
        assert failure.kind == first.kind


@pytest.mark.usefixtures("unshrunk", "few_layers")
def test_a_backend_declares_isolation():
    backend = replace(fails(segfault), isolated=True)
    case = Case.parse("PoolingL2Norm.forward:n1h1w1c6,k1x1")
    assert checker.outcome_of(case, backend).kind == "crashed SIGSEGV"
    (row,) = check([backend], [FORWARD], number=5).rows
    assert row.failures[-1].kind == "crashed SIGSEGV"
    with pytest.raises(TypeError, match="isolated is 1"):
        replace(backend, isolated=1)


def test_frameworks_declare_isolation(monkeypatch):
    """A copy of one, which would be a fork of this process, is isolated only if this is demanded."""
    frameworks = [name for name in registry.named_only() if name.partition(":")[0] in FRAMEWORKS]
    assert {name.partition(":")[0] for name in frameworks} == FRAMEWORKS
    assert checker._limits(registry.get_backend("mps:fake"), None) is None
    for backend in map(registry.get_backend, [*frameworks, "mps"]):  # Metal is not forked either
        with contextlib.closing(checker.isolated_runner(backend, Limits())) as runner:
            assert runner._new, backend.name
        assert checker._limits(backend, None) == Limits(), backend.name
        assert checker._limits(replace(backend), None) is None
        assert checker._limits(replace(backend), True) == Limits()
    monkeypatch.delattr(os, "fork")
    assert checker._limits(registry.get_backend("torch"), None) is None


@pytest.mark.slow
@pytest.mark.usefixtures("unshrunk")
def test_several_backends_in_isolation_next_to_others():
    good = Backend("good", {FORWARD: registry.get_backend("cpu").implementations[FORWARD]})
    rows = check([fails(segfault), good, fails(os.abort)], [FORWARD], number=10, isolate=True).rows
    assert [row.status for row in rows] == ["failed", "passed", "failed"]
    assert [row.failures[-1].kind for row in rows if row.failures] == ["crashed SIGSEGV", "crashed SIGABRT"]


@pytest.mark.slow
@pytest.mark.usefixtures("unshrunk")
def test_no_process_is_left(monkeypatch):
    children = []
    fork = os.fork

    def noted():
        children.append(fork())
        return children[-1]

    monkeypatch.setattr(os, "fork", noted)
    check([fails(segfault)], [FORWARD], number=20, isolate=True)

    runner = IsolatedRunner(lambda case, of_layer: Outcome("passed"), Limits())
    assert runner(Case.parse("SoftMax.forward:n1h1w1c2"), False).status == "passed"
    assert runner.close() == -signal.SIGKILL
    assert not isolation._pipes
    for child in children:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def test_a_child_ends_with_its_parent():
    """Also if another child was forked after it, which inherits open files, and while a case runs."""
    ours, theirs = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            os.close(ours)
            runners = [IsolatedRunner(lambda case, of_layer: Outcome("passed"), Limits()) for _ in range(2)]
            for runner in runners:
                runner(Case.parse("SoftMax.forward:n1h1w1c2"), False)
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.close(theirs)
    os.waitpid(parent, 0)
    assert os.read(ours, 1) == b"", "end of file: all children have closed it"
    os.close(ours)


def test_an_error_of_the_suite_is_raised_as_without_isolation():
    def run(case, of_layer):
        raise ZeroDivisionError("in the suite")

    runner = IsolatedRunner(run, Limits())
    with pytest.raises(ZeroDivisionError, match="in the suite"):
        runner(Case.parse("SoftMax.forward:n1h1w1c2"), False)
    runner.close()


def test_an_installed_backend_runs_in_a_new_interpreter(monkeypatch):
    """Not in a fork of this process, whose libraries may have started threads."""

    def broken(*arguments):
        raise ZeroDivisionError

    monkeypatch.setattr(checker, "run_case", broken)
    runner = checker.isolated_runner(registry.get_backend("reference"), Limits())
    case = Case.parse("SoftMax.forward:n1h1w1c2")
    assert runner(case, False).status == "passed"
    os.kill(runner._child, signal.SIGSEGV)
    assert runner(case, False).kind == "crashed SIGSEGV"
    assert runner(case, False).status == "passed"
    runner.close()
    for other in (replace(registry.get_backend("reference")), fails(segfault)):
        runner = checker.isolated_runner(other, Limits())
        with pytest.raises(ZeroDivisionError):
            runner(case, False)
        runner.close()


def test_an_interpreter_that_does_not_start(monkeypatch):
    monkeypatch.setattr(isolation, "PROGRAM", "raise SystemExit(3)  # {!r}")
    runner = checker.isolated_runner(registry.get_backend("reference"), Limits())
    with pytest.raises(RuntimeError, match="did not start: status 3"):
        runner(Case.parse("SoftMax.forward:n1h1w1c2"), False)
    assert not isolation._pipes


def test_a_system_without_fork(monkeypatch):
    monkeypatch.delattr(os, "fork")
    with pytest.raises(ValueError, match=r"isolation needs fork, which .* does not have; check with isolate=False"):
        check([fails(segfault)], [FORWARD], number=1, isolate=True)


@pytest.mark.parametrize(("limits", "error"), [({"seconds": 0}, ValueError), ({"gib": "4"}, TypeError)])
def test_limits_are_checked(limits, error):
    with pytest.raises(error, match=next(iter(limits))):
        Limits(**limits)


def test_memory_without_proc(monkeypatch, tmp_path):
    """Where the system has no /proc, ps counts."""
    monkeypatch.setattr(isolation, "Path", lambda path: tmp_path / "none")
    assert isolation.anonymous_memory(os.getpid()) > 1 << 20
    assert isolation.anonymous_memory(2**22 + 1) == 0
