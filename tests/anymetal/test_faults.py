"""The pairs of kernels in faults/: the sanitizer names the lines of each fault, and finds nothing in what is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anymetal import clang
from mpsref_collections.bench import PAIRS, Pairs

FOLDER = Path(__file__).with_name("faults")
HERE = Pairs(FOLDER, "faults.toml")
PROGRAMS = HERE.programs

pytestmark = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))
FIRST = {program["finding"]["kind"]: name for name, program in reversed(PROGRAMS.items())}
"""The first program of each kind of fault; the others are slow tests."""


def programs() -> list[Any]:
    """Return the names of the programs as parameters of a test."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in FIRST.values())) for name in PROGRAMS]


@pytest.fixture(autouse=True)
def _no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the search for the smallest grid."""
    monkeypatch.setattr("anymetal.api.SHRINKING_SECONDS", 0)


def check_wrong(pairs: Pairs, name: str) -> None:
    """Require that the fault is named, and that no error names another line."""
    ran, marks = pairs.run(name, wrong=True), pairs.marked(name)
    every = set().union(*marks.values())
    assert pairs.message(name, ran), ran.findings
    for one in ran.findings:
        if one.level == "error" and one.place is not None:
            assert one.place.line in every, one
            assert one.other is None or one.other.line in every or marks["here"], one


def check_right(pairs: Pairs, name: str) -> None:
    """Require the results, and no finding."""
    ran = pairs.run(name, wrong=False)
    assert not ran.findings
    assert not pairs.differences(name, ran.arguments)


@pytest.mark.parametrize("name", programs())
def test_the_wrong_program_is_found(name: str) -> None:
    check_wrong(HERE, name)


@pytest.mark.parametrize("name", programs())
def test_the_right_program_is_not(name: str) -> None:
    check_right(HERE, name)


@pytest.mark.parametrize("name", programs())
def test_processes_find_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(workers: str) -> list[Any]:
        monkeypatch.setenv("MPSREF_LAUNCH_WORKERS", workers)
        ran = [HERE.run(name, wrong=wrong) for wrong in (True, False)]
        assert not HERE.differences(name, ran[1].arguments)
        found = (*ran[0].findings, *ran[1].findings)
        return [replace(one, place=None) if one.kind == "endless" else one for one in found]  # it may stop anywhere

    assert found("3") == found("1")


@pytest.mark.parametrize("name", PAIRS.programs)
def test_a_published_fault_is_found_and_its_repair_is_not(name: str) -> None:
    check_wrong(PAIRS, name)
    check_right(PAIRS, name)


@pytest.mark.parametrize("pairs", [HERE, PAIRS], ids=["own", "published"])
def test_the_data_is_complete(pairs: Pairs) -> None:
    assert set(pairs.programs) == {path.stem for path in pairs.folder.glob("*.metal")}
    for name, program in pairs.programs.items():
        marks, kind = pairs.marked(name), program["finding"]["kind"]
        assert bool(marks["first"]) == bool(marks["second"]), name
        assert (kind not in {"launch", "result"}) == bool(marks["here"] | marks["first"]), name
        assert "WRONG" in (pairs.folder / f"{name}.metal").read_text() or "wrong" in program, name
