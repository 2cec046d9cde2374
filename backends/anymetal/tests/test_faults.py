"""The pairs of kernels in faults/: the sanitizer names the lines of each fault, and finds nothing in what is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anymetal import clang
from published.bench import PAIRS, Pairs, Ran

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
    """Leave out the search for a smaller grid."""
    monkeypatch.setattr("anymetal.api.SHRINKING_SECONDS", 0)


def both(pairs: Pairs, name: str) -> list[Ran]:
    """Run a program with its fault, which is named, as is no other line, and without, where nothing is found."""
    wrong, right = ran = [pairs.run(name, wrong=one) for one in (True, False)]
    marks = pairs.marked(name)
    every = set().union(*marks.values())
    assert pairs.message(name, wrong), wrong.findings
    for one in wrong.findings:
        if one.level == "error" and one.place is not None:
            assert one.place.line in every, one
            assert one.other is None or one.other.line in every or marks["here"], one
    assert not right.findings
    assert not pairs.differences(name, right.arguments)
    return ran


def compared(ran: list[Ran]) -> list[Any]:
    """Return the findings; a launch without end may stop anywhere."""
    return [replace(one, place=None) if one.kind == "endless" else one for each in ran for one in each.findings]


@pytest.mark.parametrize("name", programs())
def test_a_fault_is_found_and_its_repair_is_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one process, and in several, which find the same."""
    found = compared(both(HERE, name))
    monkeypatch.setenv("ANYMETAL_LAUNCH_WORKERS", "3")
    assert compared(both(HERE, name)) == found


@pytest.mark.parametrize("name", PAIRS.programs)
def test_a_published_fault_is_found_and_its_repair_is_not(name: str) -> None:
    both(PAIRS, name)


@pytest.mark.parametrize("pairs", [HERE, PAIRS], ids=["own", "published"])
def test_the_data_is_complete(pairs: Pairs) -> None:
    assert {pairs.path(name) for name in pairs.programs} == set(pairs.folder.glob("*.metal"))
    for name, program in pairs.programs.items():
        marks, kind = pairs.marked(name), program["finding"]["kind"]
        assert bool(marks["first"]) == bool(marks["second"]), name
        assert (kind not in {"launch", "result"}) == bool(marks["here"] | marks["first"]), name
        assert "WRONG" in pairs.path(name).read_text() or "wrong" in program, name
