"""The command line as a user meets it: exit statuses, what goes to stdout and to stderr, processes, Ctrl-C."""

import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from unittest import mock

import pytest
from rich.console import Console
from rich.progress import Progress
from typer.testing import CliRunner

import mpsref
from anymetal import clang
from mpsref import bugs, cli
from mpsref.backend import BackendInfo
from mpsref.bugs import Finding, findings
from mpsref.conformance import checker
from mpsref.conformance.mutants import of_result
from mpsref.conformance.progress import Remaining, State
from mpsref.conformance.report import Failure, Report, Row
from mpsref.errors import install
from tests import python_path

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
CASE = "PoolingAverage.gradient:n1h5w5c1,k3x3,s2x2,clamp,float32,seed=0"


def run(*arguments):
    """Return (exit status, stdout, stderr) of ``mpsref arguments``."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["mpsref", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        cli.main()
    return end.value.code, out.getvalue(), err.getvalue()


def test_version():
    assert run("--version")[:2] == (0, f"{mpsref.__version__}\n")


def test_backends():
    status, out, _ = run("backends", "--json")
    assert status == 0
    rows = {row["name"]: row for row in json.loads(out)}
    assert {"reference", "cpu", "metal", "metal:checked", "metal:clang"} <= set(rows)
    for row in rows.values():
        assert set(row) == {"name", "available", "device", "reason"}
        assert bool(row["device"]) is row["available"] is not bool(row["reason"])
    status, out, _ = run("backends")
    assert status == 0
    assert all(name in out for name in rows)
    assert "\x1b" not in out, "no colours in a pipe"


def test_kernels():
    status, out, _ = run("kernels", "--json")
    assert status == 0
    assert {"reference", "cpu", "metal", "metal:clang"} <= set(json.loads(out)["PoolingAverage.gradient"])
    assert "PoolingAverage.forward" in run("kernels")[1]


def test_check(tmp_path):
    arguments = ["check", "-b", "cpu", "-k", "PoolingAverage.gradient", "--cases", "5", "--seed", "3"]
    files = ["--junit", str(tmp_path / "r.xml"), "--html", str(tmp_path / "r.html")]
    files += ["--record", str(tmp_path / "r.md")]
    status, out, err = run(*arguments, *files)
    assert status == 0, err
    assert "passed" in out
    assert "1 passed, 0 failed, 0 unsupported, 0 mistrusted" in out
    assert "PoolingAverage.gradient" in (tmp_path / "r.xml").read_text()
    assert "PoolingAverage.gradient" in (tmp_path / "r.html").read_text()
    assert run(*arguments, *files[-2:])[0] == 0
    head, _, *rows = (tmp_path / "r.md").read_text().splitlines()
    assert head.startswith("| date | commit | machine | backend | ran on |")
    assert len(rows) == 2  # one of each run
    assert all(" | cpu | CPU" in row and "1 operations, " in row and row.endswith("| 1 passed |") for row in rows)
    status, out, _ = run(*arguments, "--json")
    form = json.loads(out)
    assert status == 0
    assert form["ok"] is True
    assert [row["backend"] for row in form["rows"]] == ["cpu"]
    assert form["rows"][0]["runtime"].startswith("CPU")


@pytest.fixture
def spoilt(monkeypatch):
    """A function that registers a backend whose gradient of SoftMax is ``change`` of the right one."""
    for table in ("_registered", "_loaded"):
        monkeypatch.setattr(mpsref.registry, table, {**getattr(mpsref.registry, table)})
    gradient = mpsref.SoftMax, "gradient"
    return lambda change: mpsref.register(mpsref.Backend("spoilt", {gradient: of_result(lambda y, *_: change(y))}))


def test_check_prints_failures_and_how_to_replay_them(spoilt):
    spoilt(lambda y: y * 1.001)
    status, out, _ = run("check", "-b", "spoilt", "-k", "SoftMax", "--cases", "20", "-j", "1")
    assert status == 1
    line = next(line for line in out.splitlines() if line.startswith("  mpsref replay"))
    case = line.split("'")[1]
    assert "not run: SoftMax.forward on spoilt" in out
    status, out, _ = run("replay", case, "-b", "spoilt")
    assert status == 1
    assert "failed" in out
    assert "the reference says" in out


def test_check_with_an_unavailable_backend_says_why_and_fails():
    if {info.name: info.available for info in mpsref.backends()}["metal"]:
        pytest.skip("there is an Apple GPU here")
    status, out, _ = run("check", "-b", "metal", "-k", "SoftMax", "--cases", "1", "-j", "1")
    assert status == 1
    assert "metal:clang" in out
    assert "0 passed, 0 failed" in out


def test_golden():
    status, out, _ = run("golden", "-b", "reference", "--json")
    form = json.loads(out)
    assert status == 0
    assert form["ok"] is True
    assert len(form["results"]) == 170
    agreeing = [row for row in form["results"] if row["status"] == "agree"]
    assert any(row["kernels"] == ["MPSCNNPoolingAverage"] for row in agreeing)
    status, out, _ = run("golden", "-b", "reference", "-k", "MPSCNNPoolingMax", "--json")
    rows = json.loads(out)["results"]
    assert status == 0
    assert rows
    assert all("MPSCNNPoolingMax" in row["kernels"] for row in rows)


def test_the_old_spelling_of_golden_says_so():
    only = ["-k", "MPSCNNPoolingMax"]
    status, out, error = run("check", "-b", "reference", "--golden", *only)
    assert status == 0
    assert "0 unexpected" in out
    assert error == "mpsref: check --golden is a command of its own now: mpsref golden\n"
    assert run("golden", "-b", "reference", *only) == (0, out, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["golden", "-b", "cpu", "-k", "Nope"], "no published result is of kernel 'Nope'"),
        (["golden", "-b", "nothing"], "unknown backend 'nothing'"),
        (["golden", "--junit", "x.xml"], "No such option: --junit"),
        (["check", "--golden", "--seed", "1"], "No such option: --seed"),
    ],
)
def test_golden_refuses_what_it_cannot_do(arguments, words):
    status, out, error = run(*arguments)
    assert (status, out) == (2, "")
    assert words in error


def test_golden_on_an_unavailable_backend_says_why_and_fails():
    if {info.name: info.available for info in mpsref.backends()}["metal"]:
        pytest.skip("there is an Apple GPU here")
    status, out, error = run("golden", "-b", "metal")
    assert (status, out) == (2, "")
    assert "backend 'metal' is not available: the metal runtime needs macOS" in error


def row(operation, backend="gpu", **fields):
    return Row(operation, backend, "a device", **fields)


REPORT = Report(
    "1",
    0,
    (
        *(row(f"Kernel{k}.forward", passed=9, refused=1, reason="fast math", used=k / 100) for k in range(28)),
        *(row(f"Other{k}.forward", reason=f"backend 'gpu' does not implement Other{k}.forward") for k in range(4)),
        row("Alone.forward", passed=9, refused=2, reason="no [brackets] here", rules=("some rule",)),
        row("Alone.forward", "wrong", failures=(Failure("Alone.forward:[x]", "wrong", "it is [red], not [/]"),)),
    ),
    (("metal", "install it with .[metal]"),),
)


def test_the_report_of_a_check_has_rows_of_what_did_not_pass(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(checker, "check", lambda *arguments, **options: REPORT)
    done = CliRunner().invoke(cli.app, ["check"])
    lines = done.output.splitlines()
    rows = [re.split(r" {2,}", line.strip()) for line in lines if re.match(r"(gpu|wrong|[A-Z]\w+\.forward) ", line)]
    assert done.exit_code == 1
    assert rows[:2] == [
        ["gpu", "a device", "33", "261", "0.270 Kernel27.forward", "29 passed, 4 unsupported"],
        ["wrong", "a device", "1", "1", "-", "1 failed"],
    ]
    assert [cells[0] for cells in rows[2:]] == ["Alone.forward"]
    assert lines[lines.index("FAILED Alone.forward:[x] on wrong: wrong") :] == [
        "FAILED Alone.forward:[x] on wrong: wrong",
        "  it is [red], not [/]",
        "  mpsref replay 'Alone.forward:[x]' --backend 'wrong'",
        "allowed differences: Alone.forward on gpu: some rule",
        "not run: 28 case(s) of 28 operations on gpu: fast math",
        "not run: 4 operations on gpu: backend 'gpu' does not implement this operation",
        "not run: 2 case(s) of Alone.forward on gpu: no [brackets] here",
        "not available: metal: install it with .[metal]",
        "29 passed, 1 failed, 4 unsupported, 0 mistrusted",
    ]
    assert len(lines) < 30, "a screen"


def test_a_failure_is_the_smallest_case_and_the_others_are_named(monkeypatch):
    layers = tuple(Failure(f"A.forward:n{k}", "mine", "it is 0", f"net.pool{k}") for k in range(5))
    found = row("A.forward", "mine", failures=(*layers, Failure("A.forward:n1", "mine", "it is 0")))
    monkeypatch.setattr(checker, "check", lambda *arguments, **options: Report("1", 0, (found,)))
    output = CliRunner().invoke(cli.app, ["check"]).output
    assert re.findall("FAILED (.*)", output) == ["A.forward:n1 on mine: wrong"]
    assert "also net.pool0, net.pool1, net.pool2, and 2 more; --verbose prints each\n" in output
    assert CliRunner().invoke(cli.app, ["check", "--verbose"]).output.count("FAILED") == 6
    assert repr(Report("1", 0, (found,))) == "<Report: 1 failed, 6 cases>\nA.forward:n1 on mine: it is 0"


def test_the_summary_fits_80_columns(capsys):
    long = "BatchNormalization.statistics_gradient"
    rows = row(long, "my_own_backend", passed=1200, failures=(Failure("c", "my_own_backend", "m"),))
    cli._print_report(Report("1", 0, (rows,)), Console(width=80, markup=False), False)
    output = capsys.readouterr().out
    assert max(map(len, output.splitlines())) <= 80
    assert f"{long} my_own_backend failed" in re.sub(" +", " ", output)
    assert cli.BOUND_MEANS[:40] in output


def test_a_backend_that_is_not_available_is_one_line():
    if {info.name: info.available for info in mpsref.backends()}["metal"]:
        pytest.skip("there is an Apple GPU here")
    output = CliRunner().invoke(cli.app, ["check", "-b", "metal", "--jobs", "1"]).output
    assert output.count("the metal runtime needs macOS") == 1
    assert len(output.splitlines()) == 2


def test_an_interrupted_check_prints_what_has_finished(monkeypatch):
    def check(*arguments, watch, **options):
        watch([], [row("A.forward", passed=3), row("A.forward", passed=4), row("B.forward", passed=5)])
        raise KeyboardInterrupt

    monkeypatch.setattr(checker, "check", check)
    monkeypatch.delenv("COLUMNS", raising=False)
    done = CliRunner().invoke(cli.app, ["check", "--verbose"])
    assert done.exit_code == cli.INTERRUPTED
    assert re.search(r"A.forward +gpu +a device +passed +7 ", done.output)
    assert "interrupted; the report has what had finished" in done.output


def test_time_left_is_shown_once_it_is_known():
    progress = Progress()
    progress.add_task("", total=100)
    (task,) = progress.tasks
    column = Remaining()
    assert str(column.render(task)) == ""
    with mock.patch.object(type(task), "time_remaining", 65.0):
        task.completed = 9
        assert str(column.render(task)) == ""
        task.completed = 10
        assert str(column.render(task)) == "about 0:01:05 left"


def test_a_verbose_check_prints_every_row_and_reason(monkeypatch):
    monkeypatch.setattr(checker, "check", lambda *arguments, **options: REPORT)
    output = CliRunner().invoke(cli.app, ["check", "--verbose"]).output
    assert all(re.search(rf"^{one.operation} +{one.backend} ", output, re.MULTILINE) for one in REPORT.rows)
    assert all(f"not run: 1 case(s) of Kernel{k}.forward on gpu: fast math" in output for k in range(28))
    assert "not run: Other3.forward on gpu: backend 'gpu' does not implement Other3.forward" in output


@pytest.mark.parametrize("extra", EXTRAS)
def test_hints_name_the_extra_in_brackets(monkeypatch, extra):
    """In tables and lines; brackets are no markup."""
    info = BackendInfo("gpu", False, "", f"it is not there: {install(extra)}")
    monkeypatch.setattr(mpsref, "backends", lambda: [info])
    assert f'pip install -e ".[{extra}]"' in CliRunner().invoke(cli.app, ["backends"]).output
    monkeypatch.setattr(checker, "check", lambda *arguments, **options: Report("1", 0, (), ((info.name, info.reason),)))
    assert f"not available: gpu: {info.reason}\n" in CliRunner().invoke(cli.app, ["check"]).output


def test_hints_are_for_a_clone_and_name_known_extras():
    """From one helper, also on the pages; mpsref is on no package index."""
    sources = [path for folder in ("mpsref", "backends") for path in (ROOT / folder).rglob("*.py")]
    for path in (*sources, ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = path.read_text("utf-8")
        assert not re.search(r"pip install \S*mpsref", text), path
        of_helper = re.findall(r"""\b(?:install\(|needs\("[^"]+", "[^"]+", )["'](\w+)["']""", text)
        written = re.findall(r'pip install -e "\.\[([\w,]+)\]"', text)
        assert {*of_helper, *",".join(written).split(",")} <= {*EXTRAS, ""}, path
        assert not written or path.suffix == ".md" or path.name in ("errors.py", "plotting.py"), (
            f"{path}: use install()"
        )


def test_scripts_of_defects_that_end_with_an_error_leave_the_other_results(monkeypatch, tmp_path):
    monkeypatch.setattr(findings, "LIVE", tmp_path)
    shown = [Finding(name, "numpy", (), "") for name in ("first", "second", "third")]
    for finding, code in zip(
        shown, ("print('wrong: [1] is 2')", "import numpy.nothing", "print('fixed: 3')"), strict=True
    ):
        finding.path.write_text(code, "utf-8")
    monkeypatch.setattr(bugs, "FINDINGS", shown)
    done = CliRunner().invoke(cli.app, ["bugs", "--live"])
    assert done.exit_code == 1
    for text in ("wrong: [1] is 2", "failed: ModuleNotFoundError: No module named 'numpy.nothing'", "fixed: 3"):
        assert f" {text} " in done.output
    form = json.loads(CliRunner().invoke(cli.app, ["bugs", "--live", "--json"]).output)
    assert form["third"] == [findings.importlib.metadata.version("numpy"), "fixed: 3"]
    monkeypatch.setattr(bugs, "FINDINGS", shown[::2])
    assert CliRunner().invoke(cli.app, ["bugs", "--live"]).exit_code == 0


def test_a_page_without_a_folder_is_refused_before_anything_runs(tmp_path):
    for option in ("--junit", "--html", "--record"):
        status, out, error = run("check", "-b", "cpu", "-k", "Slice", option, str(tmp_path / "none" / "page"))
        assert (status, out) == (2, "")
        assert "none' for page; make it first" in error
    for option in ("--checkpoint", "--curve"):
        status, out, error = run("train", option, str(tmp_path / "none" / "page"))
        assert (status, out) == (2, "")
        assert "none' for page; make it first" in error


def test_a_folder_in_place_of_a_page_is_refused_before_anything_runs(tmp_path):
    status, out, error = run("check", "-b", "cpu", "-k", "Slice", "--html", str(tmp_path))
    assert (status, out) == (2, "")
    assert f"'{tmp_path}' is a folder; add the name of a file" in error


def test_replay():
    status, out, _ = run("replay", CASE, "-b", "cpu")
    assert status == 0
    assert "passed" in out
    assert CASE in out


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_isolation(spoilt):
    spoilt(lambda y: os.abort())
    status, out, _ = run(
        *("check", "-b", "spoilt", "-k", "SoftMax.gradient", "--cases", "1", "-j", "1", "--time-limit", "50")
    )
    assert status == 1
    case = next(line for line in out.splitlines() if line.startswith("  mpsref replay")).split("'")[1]
    assert f"FAILED {case}" in out
    assert " on spoilt: crashed SIGABRT" in out
    assert "failed, crashed SIGABRT" in run("replay", case, "-b", "spoilt", "--isolate")[1]


def test_explain():
    status, out, _ = run("explain", CASE)
    assert status == 0
    assert "window 0 |" in out
    assert "N = 2" in out
    assert "gathers gradient pixels [0, 1]" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", CASE, "-b", "nope"], "unknown backend 'nope'; `mpsref backends` lists all"),
        (["replay", "nonsense", "-b", "cpu"], "has no ':'"),
        (["explain", "PoolingAverage.forward:n1h1w1c1,k0x1"], "kernel_size[0] is 0; it must be an integer >= 1"),
        (["check", "-k", "Nope"], "unknown kernel 'Nope'; `mpsref kernels` lists all"),
        (["check", "-b", "nope"], "unknown backend 'nope'"),
        (["check", "--no-isolate", "--time-limit", "9"], "leave --no-isolate out"),
        (["replay", CASE, "-b", "cpu", "--time-limit", "0"], "seconds is 0.0; it must be a number >= 0.001"),
    ],
)
def test_errors_are_one_line_and_status_2(arguments, words):
    status, out, err = run(*arguments)
    assert status == 2
    assert words in err
    assert "Traceback" not in err
    assert out == ""


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "mpsref", "--version"], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"{mpsref.__version__}\n"
    assert done.returncode == 0


def children(process):
    """Return the ids of the processes that a process has started."""
    try:
        return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except FileNotFoundError:
        return []


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="children are found in /proc")
@pytest.mark.parametrize(("started", "delay"), [(1, 0), (2, 0), (2, 0.2), (3, 0), (3, 1)])
def test_ctrl_c_while_workers_start(started, delay):
    """One of the children is the resource tracker of multiprocessing, the others are workers."""
    code = "from mpsref.cli import main; main()"
    command = [sys.executable, "-c", code, "check", "-b", "reference:input-dtype", "-j", "3", "--cases", "200"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        end = time.monotonic() + 120
        while len(found := children(running.pid)) < started and running.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(delay)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, out, err) == (130, "", "mpsref: interrupted\n")
    assert len(found) >= started
    for child in found:
        end = time.monotonic() + 30
        while Path(f"/proc/{child}").exists() and time.monotonic() < end:
            time.sleep(0.01)
        assert not Path(f"/proc/{child}").exists(), "no worker is left"


def test_bugs_of_kernels(monkeypatch):
    if (why := clang.unavailable()) is not None:
        pytest.skip(why)
    chosen = "bugs", "--kernels", "--issue", "ml-explore/mlx#2340", "--issue", "candle#3238"
    status, out, _ = run(*chosen, "--json")
    rows = json.loads(out)["kernels"]
    assert status == 0
    assert [(row["name"], row["check"], row["detected"], row["alarm"]) for row in rows] == [
        ("mlx_layer_norm", "race", True, ""), ("candle_argmax", "result", True, ""),
    ]  # fmt: skip
    assert re.fullmatch(r"thread \d+ reads partial\[0\].*, lines 12, 10", rows[0]["message"])
    assert rows[1]["message"] == "element 0 of buffer 1 is 29, expected 1"
    status, out, _ = run(*chosen)
    assert "2 of 2 faults were found" in out
    monkeypatch.setattr("published.bench.Pairs.message", lambda *_: "")
    status, out, _ = run(*chosen)
    assert (status, "0 of 2 faults were found" in out) == (1, True)
    for arguments in (("--kernels", "--issue", "nothing"), ("--packages", "x")):
        status, _, error = run("bugs", *arguments)
        assert status == 2
        assert "lists all" in error or "--packages needs --kernels" in error


def test_what_runs_for_long_has_a_time(monkeypatch):
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    state = State()
    state.watch(["SoftMax.forward"], [])
    assert str(state.__rich__()) == "compiling kernels for their first use; the bar counts cases: SoftMax.forward"
    now = 140.0
    state.watch(["SoftMax.forward", "Pad.forward"], [])
    assert str(state.__rich__()).endswith(": SoftMax.forward (40 s), Pad.forward")
    state.watch(["Pad.forward"], [])
    state.watch(["SoftMax.forward"], [])
    assert "(" not in str(state.__rich__())


def test_checkouts_are_found_by_backends(monkeypatch, tmp_path):
    monkeypatch.setenv("ANYMETAL_COLLECTIONS", "before")
    words = ["check", "-b", "pytorch:mps", "-k", "SoftMax.forward", "--cases", "1"]
    output = CliRunner().invoke(cli.app, [*words, "--checkout", str(tmp_path)]).output
    assert os.environ["ANYMETAL_COLLECTIONS"] == f"{tmp_path}{os.pathsep}before"
    assert ("checkout" if importlib.util.find_spec("torch") else "PyTorch is not installed") in output
    assert CliRunner().invoke(cli.app, [*words, "--checkout", str(tmp_path / "absent")]).exit_code == 2


MODULE = """
import mpsref

def doubled(problem, x, out):
    mpsref.registry.run(problem, x, out=out, backend="reference")
    out *= 2

own = mpsref.Backend("another name", {(mpsref.SoftMax, "forward"): doubled})
"""


@pytest.mark.parametrize("isolated", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_backend_of_a_module(tmp_path, monkeypatch, isolated):
    """The replay line of a backend in a file of the current folder can be pasted."""
    (tmp_path / "of_a_user.py").write_text(MODULE)
    monkeypatch.setenv("MPSREF_KNOWN", str(tmp_path / "known"))
    monkeypatch.chdir(tmp_path)

    def in_a_process(*arguments):
        command = [sys.executable, "-m", "mpsref", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout

    check = ["check", "-b", "of_a_user:own", "-k", "SoftMax.forward", "--cases", "1", "-j", "1"]
    run_there, options = (in_a_process, ["--isolate"]) if isolated else (run, [])
    status, out, *_ = run_there(*check, *options)
    assert status == 1
    line = next(line for line in out.splitlines() if line.startswith("  mpsref replay"))
    status, out, *_ = run_there(*shlex.split(line)[1:], *options)
    assert status == 1
    assert "on of_a_user:own (CPU): failed, wrong" in out


def test_no_backend_of_a_module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "of_another.py").write_text(MODULE)
    for name, message in {
        "of_another:on": "the module 'of_another' has no 'on'",
        "of_another:doubled": "of_another:doubled is a function; it must be an mpsref.Backend",
        "of_nobody:own": "unknown backend 'of_nobody:own': there is no module 'of_nobody'",
        "cuda": "unknown backend 'cuda': did you mean metal:cuda or torch:cuda?; `mpsref backends` lists all",
        "metal:cude": "did you mean metal:cuda",
    }.items():
        status, _, err = run("replay", CASE, "-b", name)
        assert status == 2
        assert message in err


def test_a_check_leaves_nothing_behind_and_says_how_far_it_is(tmp_path, monkeypatch):
    """A process writes its files of hypothesis in the cache; piped, it prints a line now and then."""
    monkeypatch.setenv("MPSREF_KNOWN", str(tmp_path / "known"))
    (tmp_path / "here").mkdir()
    code = "from mpsref import cli; cli.EACH = 0.0; cli.main()"
    words = ["check", "-k", "SoftMax.forward", "-b", "reference", "--cases", "2", "-j", "1"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=tmp_path / "here", timeout=120,
        env={**os.environ, "COLUMNS": "100", "PYTHONPATH": python_path()},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"^mpsref: SoftMax.forward.*: \d+ of \d+$", done.stderr, re.MULTILINE)
    assert max(map(len, done.stdout.splitlines()[:3])) <= 100, "its table"
    assert [*(tmp_path / "here").iterdir()] == []


@pytest.mark.parametrize("name", ["check", "replay", "bench", "audit", "explore", "lessons", "train", "msl", "probe"])
def test_a_help_text_names_values_of_options_not_types_of_python(name):
    done = CliRunner().invoke(cli.app, [name, "--help"])
    assert done.exit_code == 0
    options = done.stdout.partition("\nOptions:\n")[2]
    assert re.findall(r"^ +-.*?<.*?>", options, re.MULTILINE) == []
    assert re.search(r"^  -", options, re.MULTILINE)
