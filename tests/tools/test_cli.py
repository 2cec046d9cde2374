"""The command line as a user meets it: in a process of its own, its output in a pipe."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mpsref

CASE = "PoolingAverage.gradient:n1h5w5c1,k3x3,s2x2,clamp,float32,seed=0"


def run(*arguments):
    """Return (exit status, stdout, stderr) of ``mpsref arguments``."""
    command = [sys.executable, "-c", "from mpsref.cli import main; main()", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def test_version():
    assert run("--version")[:2] == (0, f"{mpsref.__version__}\n")


def test_backends():
    status, out, _ = run("backends", "--json")
    assert status == 0
    rows = {row["name"]: row for row in json.loads(out)}
    assert {"reference", "cpu", "metal", "metal:clang"} <= set(rows)
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


FAULTY = """
import mpsref
from mpsref.conformance.mutants import of_result
spoilt = of_result(lambda result, *_: result * 1.001)
mpsref.register(mpsref.Backend("spoilt", {(mpsref.PoolingAverage, "gradient"): spoilt}))
from mpsref.cli import main
main()
"""


def test_check_prints_failures_and_how_to_replay_them():
    command = [sys.executable, "-c", FAULTY]
    arguments = ["check", "-b", "spoilt", "-k", "PoolingAverage", "--cases", "20"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    line = next(line for line in done.stdout.splitlines() if line.startswith("  mpsref replay"))
    case = line.split("'")[1]
    assert "not run: PoolingAverage.forward on spoilt" in done.stdout
    again = subprocess.run([*command, "replay", case, "-b", "spoilt"], capture_output=True, text=True, timeout=300)
    assert again.returncode == 1
    assert "failed" in again.stdout
    assert "the reference says" in again.stdout


def test_check_with_an_unavailable_backend_says_why_and_fails():
    if {info.name: info.available for info in mpsref.backends()}["metal"]:
        pytest.skip("there is an Apple GPU here")
    status, out, _ = run("check", "-b", "metal", "--cases", "1")
    assert status == 1
    assert "metal:clang" in out
    assert "0 passed, 0 failed" in out


def test_check_golden():
    status, out, _ = run("check", "--golden", "-b", "reference", "--json")
    form = json.loads(out)
    assert status == 0
    assert form["ok"] is True
    assert len(form["results"]) == 170
    agreeing = [row for row in form["results"] if row["status"] == "agree"]
    assert any(row["kernels"] == ["MPSCNNPoolingAverage"] for row in agreeing)
    status, out, _ = run("check", "--golden", "-b", "reference")
    assert status == 0
    assert "0 unexpected" in out


def test_check_golden_of_a_kernel():
    status, out, _ = run("check", "--golden", "-b", "reference", "-k", "MPSCNNPoolingMax", "--json")
    rows = json.loads(out)["results"]
    assert status == 0
    assert rows
    assert all("MPSCNNPoolingMax" in row["kernels"] for row in rows)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-b", "cpu", "-k", "Nope"], "no published result is of kernel 'Nope'"),
        (["-b", "nothing"], "unknown backend 'nothing'"),
        (["--junit", "x.xml"], "--junit has no meaning with --golden"),
        (["--record", "x.md"], "--record has no meaning with --golden"),
        (["--seed", "1", "--cases", "3"], "--cases, --seed has no meaning with --golden"),
    ],
)
def test_check_golden_refuses_what_it_cannot_do(arguments, words):
    status, out, error = run("check", "--golden", *arguments)
    assert (status, out) == (2, "")
    assert words in error


def test_check_golden_on_an_unavailable_backend_says_why_and_fails():
    if {info.name: info.available for info in mpsref.backends()}["metal"]:
        pytest.skip("there is an Apple GPU here")
    status, out, error = run("check", "--golden", "-b", "metal")
    assert (status, out) == (2, "")
    assert "backend 'metal' is not available: the metal runtime needs macOS" in error


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_isolation():
    faulty = FAULTY.replace("result * 1.001", "__import__('os').abort()")
    command = [sys.executable, "-c", faulty]
    arguments = ["check", "-b", "spoilt", "-k", "PoolingAverage.gradient", "--cases", "1", "--time-limit", "50"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    case = next(line for line in done.stdout.splitlines() if line.startswith("  mpsref replay")).split("'")[1]
    assert f"FAILED {case}" in done.stdout
    assert " on spoilt: crashed SIGABRT" in done.stdout
    again = [*command, "replay", case, "-b", "spoilt", "--isolate"]
    assert "failed, crashed SIGABRT" in subprocess.run(again, capture_output=True, text=True, timeout=300).stdout


def test_explain():
    status, out, _ = run("explain", CASE)
    assert status == 0
    assert "window 0 |" in out
    assert "N = 2" in out
    assert "gathers gradient pixels [0, 1]" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", CASE, "-b", "nope"], "unknown backend 'nope'; installed: 'reference'"),
        (["replay", "nonsense", "-b", "cpu"], "has no ':'"),
        (["explain", "PoolingAverage.forward:n1h1w1c1,k0x1"], "kernel_size[0] is 0; it must be an integer >= 1"),
        (["check", "-k", "Nope"], "unknown kernel 'Nope'; known: Adam.step"),
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
