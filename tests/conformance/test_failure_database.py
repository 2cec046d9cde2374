"""Failures are kept, tried first in the next check, and by version."""

import sys

import pytest
from hypothesis.database import InMemoryExampleDatabase
from typer.testing import CliRunner

import mpsref
from mpsref.cli import app
from mpsref.conformance import check, checker, families, mutants
from mpsref.conformance.case import Case, operation_named, operations
from mpsref.conformance.failure_database import FailureDatabase, default_folder
from mpsref.conformance.report import Failure
from mpsref.registry import Backend, get_backend

pytestmark = pytest.mark.usefixtures("few_layers")

GRADIENT = operation_named("PoolingAverage.gradient")
RIGHT = {operation: mutants.of_problem(lambda problem: problem) for operation in operations()}
WRONG = next(
    one.run
    for one in families.mutants()
    if one.operation == GRADIENT and one.name == "the clip's origin moves the values too"
)
"""Wrong in few cases."""


def backend(name, implementation):
    return Backend(name, {**RIGHT, GRADIENT: implementation})


def test_a_failure_is_tried_first_in_the_next_check(tmp_path, monkeypatch):
    """With another seed, of which only the first case is drawn, it would not be found again."""
    monkeypatch.setattr(checker, "SHRINK_SECONDS", 0.2)
    first = check(backend("b", WRONG), [GRADIENT], 12, 0, failures=FailureDatabase(tmp_path / "failures"))
    kept = {failure.case for failure in first.failures}
    assert kept
    database = FailureDatabase(tmp_path / "failures")
    assert database.cases(["b"]) == {GRADIENT: {"b": sorted(kept)}}
    again = check(backend("b", WRONG), [GRADIENT], 1, 9, failures=database)
    known = [failure for failure in again.failures if failure.known]
    assert {failure.case for failure in known} == kept
    assert again.failures[: len(known)] == tuple(known), "they come first"
    assert known[0].origin == " (known)"
    layers = sum(1 for _ in checker.layer_cases(GRADIENT))
    drawn = len(checker.checked_cases(GRADIENT, Backend.dtypes, 1, 9))
    assert again.rows[0].cases == len(kept) + layers + drawn, "a known failure does not end the row"
    assert len({failure.case for failure in again.failures}) == len(again.failures)

    database = FailureDatabase(tmp_path / "failures")  # with number=0 only the known failures run
    kept = database.cases(["b"])[GRADIENT]["b"]
    report = check(backend("b", WRONG), number=0, failures=database)
    assert [(row.operation, row.cases) for row in report.rows] == [(str(GRADIENT), len(kept))]
    assert not report.ok
    mended = check(backend("b", RIGHT[GRADIENT]), number=0, failures=database)
    assert not mended.failures
    assert mended.rows[0].passed + mended.rows[0].zeros == len(kept), "the smallest failure may expect only zeros"
    assert database.cases(["b"])[GRADIENT]["b"] == kept, "they stay"
    assert check(backend("other", WRONG), number=0, failures=database).rows == ()


@pytest.mark.slow
@pytest.mark.usefixtures("all_layers")
def test_processes_try_them_too(tmp_path):
    database = FailureDatabase(tmp_path)
    case = "SoftMax.forward:n1h2w3c4,float32,seed=3"
    assert Case.parse(case)
    database.add([Failure(case, "reference", "once wrong")])
    alone, several = (
        check(
            "reference",
            [operation_named("SoftMax.forward"), operation_named("Slice.forward")],
            3,
            failures=database,
            jobs=jobs,
        )
        for jobs in (1, 2)
    )
    assert several == alone
    softmax = operation_named("SoftMax.forward")
    drawn = checker.checked_cases(softmax, get_backend("reference").dtypes, 3, 0)
    assert alone.rows[0].cases == 1 + sum(1 for _ in checker.layer_cases(softmax)) + len(drawn)


def test_versions_have_failures_of_their_own(monkeypatch):
    database = FailureDatabase(InMemoryExampleDatabase())
    database.add([Failure("SoftMax.forward:n1h1w1c2,float32", "b", "wrong"), Failure("", "b", "died at once")])
    assert database.cases(["b"])
    monkeypatch.setattr(mpsref, "__version__", "0.0")
    assert not database.cases(["b"])


def test_the_command(tmp_path, monkeypatch):
    def command(*more):
        return CliRunner().invoke(app, ["check", "-b", "cpu", "--only-known", *more])

    monkeypatch.setenv("MPSREF_KNOWN", str(tmp_path / "env"))
    done = command()
    assert (done.exit_code, done.stdout) == (0, f"no failures of these backends are known in {tmp_path / 'env'}\n")
    FailureDatabase(tmp_path / "env").add([Failure("SoftMax.forward:n1h1w1c2,float32", "cpu", "wrong")])
    done = command()
    assert done.exit_code == 0
    assert "1 passed, 0 failed" in done.stdout
    done = command("--known", str(tmp_path / "option"), "--json")
    assert '"rows": []' in done.stdout
    assert done.exit_code == 0


def test_the_folder_of_the_user(monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    if sys.platform == "linux":
        assert str(default_folder()) == "/somewhere/mpsref/failures"


def test_a_case_that_cannot_be_read_is_named():
    database = FailureDatabase(InMemoryExampleDatabase())
    database.add([Failure("nonsense", "b", "wrong")])
    with pytest.raises(ValueError, match="'nonsense'"):
        database.cases(["b"])
