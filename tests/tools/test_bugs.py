"""The bug bench: the check detects every published defect, and the scripts of the live findings show theirs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mpsref import bugs
from mpsref.bugs import BUGS, FINDINGS, Bug, Finding
from mpsref.conformance import CASES, checker, families
from mpsref.conformance.case import Case
from mpsref.conformance.runner import run_case

ROOT = Path(__file__).parents[2]
RECORDED = {row["issue"]: row for row in json.loads((ROOT / "docs/bugs.json").read_text("utf-8"))["bugs"]}


def fails(bug: Bug, case: Case) -> bool:
    return run_case(case, bug.backend, families.properties(bug.operation)).status == "failed"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.issue)
def test_the_default_check_detects_it(bug: Bug) -> None:
    """Without the search for the smallest case."""
    random = checker.checked_cases(bug.operation, bug.backend.dtypes, CASES, 0)
    layers = [case for _, case in checker.layer_cases(bug.operation)]
    assert any(fails(bug, case) for case in [*random, *layers])


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.issue)
def test_the_smallest_case_of_the_documentation_shows_it(bug: Bug) -> None:
    case = Case.parse(RECORDED[bug.issue]["case"])
    assert case.problem.operation == bug.operation
    assert fails(bug, case)


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


@pytest.mark.slow
@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.script)
def test_a_script_shows_its_defect(finding: Finding) -> None:
    outcome = finding.show()
    if outcome.startswith("not "):
        pytest.skip(outcome)
    if finding.version() in finding.versions:
        assert outcome.startswith(("wrong: ", "crashed: ")), f"{finding.package} no longer has the defect: {outcome}"
    else:
        assert outcome.startswith("fixed: ")


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
    monkeypatch.setattr(bugs.findings, "SECONDS", 1.0)
    finding = Finding("script", "numpy", (), "")
    finding.path.write_text(code, "utf-8")
    assert finding.show() == outcome


def test_a_missing_framework() -> None:
    assert Finding("script", "no-such-framework", (), "").show() == "not installed: no-such-framework"
