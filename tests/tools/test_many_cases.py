"""The script that runs ranges of seeds, and adds up the files of several runs."""

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mpsref
from mpsref import registry
from mpsref.conformance import checker, mutants
from mpsref.conformance.case import operation_named

SCRIPT = Path(__file__).parents[2] / "scripts" / "many_cases.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("many_cases", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_a_process(*arguments):
    """Run the command where its workers can import it."""
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture
def command(script):
    return lambda *arguments: CliRunner().invoke(script.app, [*map(str, arguments)])


def plain(text):
    """Return a message of the command line without the box around it and its line breaks."""
    return " ".join(text.replace("│", " ").split())


@pytest.mark.slow
def test_two_runs_add_up_to_one(command, tmp_path):
    first, second, third = (tmp_path / name for name in ("first.json", "second.json", "third.json"))
    options = ["-k", "Slice.forward", "-b", "cpu", "-j", "1"]
    assert in_a_process("run", first, "--seeds", "5:7", *options).returncode == 0
    assert in_a_process("run", second, "--seeds", "4:8", "--after", first, *options).returncode == 0
    found = [json.loads(file.read_text()) for file in (first, second)]
    assert [run["seeds"] for run in found] == [{"Slice.forward": [5, 6]}, {"Slice.forward": [4, 7]}]
    assert all(run["commit"] and run["machine"] and run["seconds"] > 0 for run in found)
    (row,) = found[0]["rows"].values()
    (alone,) = checker.check_operation(operation_named("Slice.forward"), [registry.get_backend("cpu")], 120, 5)
    layers = sum(1 for _ in checker.layer_cases(operation_named("Slice.forward")))
    assert row["passed"] + row["zeros"] == alone.cases - layers >= 120
    done = command("add", first, second)
    assert done.exit_code == 0
    assert f"{2 * (alone.cases - layers)} cases of 1 operations, seeds 4 to 7, 0 failures" in done.stdout
    third.write_text(json.dumps(found[1] | {"seeds": {"Slice.forward": [7, 8]}}))
    done = command("add", "--markdown", second, third)
    assert done.exit_code == 2
    assert "seed 7 of Slice.forward is in an earlier file" in plain(done.stderr)


def test_a_failure_is_reported_with_its_case_and_the_exit_status(script, command, tmp_path):
    operation = operation_named("PoolingAverage.forward")
    wrong = mpsref.Backend("wrong", {operation: mutants.of_result(lambda result, *_: result * 1.001)})
    mpsref.register(wrong)
    (done,) = script.check(script.Task(str(operation), ("wrong",), (3,), time.time() + 600))
    row = script._counted(done.rows[0])
    (failure,) = row["failures"]
    (expected,) = checker.check_block(operation, [wrong], checker.Block(60, 3))
    assert failure["case"] == expected.failures[0].case
    total = {"seconds": 1.0, "seeds": {str(operation): [3]}, "core_seconds": {str(operation): 1.0}, "rows": {"x": row}}
    (tmp_path / "a.json").write_text(json.dumps(total))
    added = command("add", tmp_path / "a.json")
    assert added.exit_code == 1
    assert f"FAILED {failure['case']} on wrong (1 seeds)" in added.stdout


def test_no_seed_begins_after_the_end(script):
    assert script.check(script.Task("Slice.forward", ("cpu",), (1, 2), time.time())) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "0:1", "-k", "Nope"], "no operation is called Nope"),
        (["--seeds", "0:1", "-b", "metal:nope"], "unknown backend 'metal:nope'"),
        (["--seeds", "5"], "--seeds is '5'; write FIRST:LAST"),
    ],
)
def test_what_cannot_run_is_refused(command, arguments, words, tmp_path):
    done = command("run", tmp_path / "x.json", *arguments)
    assert done.exit_code != 0
    assert words in plain(done.stderr + str(done.exception))
    assert not (tmp_path / "x.json").exists()
