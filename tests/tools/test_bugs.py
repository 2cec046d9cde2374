"""The bug bench: the check detects every published defect, and the scripts of the live findings show theirs."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpsref import bugs
from mpsref.bugs import BUGS, FINDINGS, Bug, Finding
from mpsref.conformance import CASES, checker, families
from mpsref.conformance.case import Case
from mpsref.conformance.runner import Property, run_case
from tests import few

ROOT = Path(__file__).parents[2]
RECORDED = {row["issue"]: row for row in json.loads((ROOT / "docs/bugs.json").read_text("utf-8"))["bugs"]}


def fails(bug: Bug, case: Case, properties: tuple[Property, ...]) -> bool:
    return run_case(case, bug.backend, properties).status == "failed"


def drawn(bug: Bug, number: int) -> list[Case]:
    return list(checker.checked_cases(bug.operation, bug.backend.dtypes, number, 0, bug.layouts))


def cases(bug: Bug) -> Iterator[list[Case]]:
    """Yield the cases of a check with default settings: a few random ones; layers, small ones first, and all others."""
    yield drawn(bug, 18)
    layers = [case for _, case in checker.layer_cases(bug.operation)]
    layers.sort(key=lambda case: sum(map(math.prod, case.problem.input_shapes.values())))
    yield layers + drawn(bug, CASES)


LATE = (
    *("flagos-ai/FlagGems#5218", "pytorch/pytorch#135447", "pytorch/pytorch#153957", "pytorch/pytorch#189495"),
    *("tracel-ai/burn#5626", "pytorch/pytorch#124591", "ml-explore/mlx#2504", "jax-ml/jax#38885"),
    *("pytorch/pytorch#196949", "openxla/xla#5544", "ROCm/MIOpen#1109", "robertknight/rten#1447", "apache/mxnet#19362"),
    *(
        "ARM-software/ComputeLibrary#924",
        "ROCm/MIOpen#2344",
        "opencv/opencv#27191",
        "pytorch/pytorch#193061",
        "tracel-ai/burn#5382",
    ),
    *("pytorch/pytorch#38922", "modular/modular#6129", "nv-legate/cupynumeric#987", "tenstorrent/tt-metal#53846"),
)
"""Found by one of the last cases alone."""


@pytest.mark.parametrize(
    "bug",
    few(sorted(BUGS, key=lambda bug: bug.issue in LATE), len(BUGS) - len(LATE)),
    ids=lambda bug: bug.issue,
)
def test_the_default_check_detects_it(bug: Bug) -> None:
    """Without the search for the smallest case; the order is another: first without properties, which take longer."""
    ways = (), families.properties(bug.operation)
    assert any(fails(bug, case, way) for some in cases(bug) for way in ways for case in some)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.issue)
def test_the_smallest_case_of_the_documentation_shows_it(bug: Bug) -> None:
    case = Case.parse(RECORDED[bug.issue]["case"])
    assert case.problem.operation == bug.operation
    assert fails(bug, case, families.properties(bug.operation))


def test_run_reports_the_smallest_case() -> None:
    bug = next(bug for bug in BUGS if bug.issue == "tenstorrent/tt-metal#56202")
    found = bugs.run(bug)
    assert found.detected
    assert found.case == RECORDED[bug.issue]["case"]
    assert found.message


def test_the_catalogue() -> None:
    assert len(BUGS) >= 30
    assert len({bug.issue for bug in BUGS}) == len(BUGS)
    assert {*RECORDED} == {bug.issue for bug in BUGS}
    for bug in BUGS:
        assert re.fullmatch(r"https://github.com/[\w.-]+/[\w.-]+/issues/\d+", bug.link) or "#" not in bug.issue
        assert bug.mechanism.endswith(".")
        assert bug.versions


def test_the_documentation_has_every_live_finding() -> None:
    page = (ROOT / "docs/bugs.md").read_text("utf-8")
    assert {finding.path for finding in FINDINGS} == {*bugs.findings.LIVE.glob("*.py")}
    for finding in FINDINGS:
        assert f"live/{finding.script}.py\n" in page


IN_TURN = """
import importlib, os, runpy, sys
importlib.import_module(sys.argv[1])
for path in sys.argv[2:]:
    child = os.fork()
    if child == 0:
        runpy.run_path(path, run_name="__main__")
        sys.stdout.flush()
        os._exit(0)
    if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        print("crashed:" if status < 0 else "failed:", status, flush=True)
"""
"""Runs scripts in children of a process that has imported their framework, which takes longer than most scripts."""


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted({finding.package for finding in FINDINGS}))
def test_scripts_show_their_defects(package: str) -> None:
    scripts = [finding for finding in FINDINGS if finding.package == package]
    if scripts[0].version() is None:
        pytest.skip(f"{package} is not installed")
    module = {"mlx": "mlx.core"}.get(package, package)
    done = subprocess.run(
        [sys.executable, "-c", IN_TURN, module, *(str(finding.path) for finding in scripts)],
        capture_output=True, text=True, timeout=bugs.findings.SECONDS, check=True,
    )  # fmt: skip
    for finding, outcome in zip(scripts, done.stdout.splitlines(), strict=True):
        has_it = finding.version() in finding.versions
        assert outcome.startswith(("wrong: ", "crashed: ", "not ") if has_it else ("fixed: ", "not ")), finding.script


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("print('wrong: by 2')", "wrong: by 2"),
        ("import os; os.kill(os.getpid(), 11)", "crashed: SIGSEGV"),
        ("import time; time.sleep(60)", "crashed: no result after 1 s"),
        ("import numpy.no_such_part", "failed: ModuleNotFoundError: No module named 'numpy.no_such_part'"),
        ("raise SystemExit(3)", "failed: exit status 3"),
    ],
)
def test_how_a_script_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, outcome: str) -> None:
    monkeypatch.setattr(bugs.findings, "LIVE", tmp_path)
    monkeypatch.setattr(bugs.findings, "SECONDS", 1.0 if "sleep" in code else 60.0)
    finding = Finding("script", "numpy", (), "")
    finding.path.write_text(code, "utf-8")
    assert finding.show() == outcome


def test_a_missing_framework() -> None:
    assert Finding("script", "no-such-framework", (), "").show() == "not installed: no-such-framework"
