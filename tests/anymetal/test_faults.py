"""The pairs of kernels in faults/: the sanitizer names the lines of each fault, and finds nothing in what is right."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import anymetal
from anymetal import clang

FOLDER = Path(__file__).with_name("faults")
PROGRAMS = tomllib.loads((FOLDER / "faults.toml").read_text())
MARKS = re.compile(r"[;{)\]].*// ((?:here|first|second)(?:, second)?)$")

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


def marked(name: str) -> dict[str, set[int]]:
    """Return the lines of a program by their marks."""
    lines: dict[str, set[int]] = {"here": set(), "first": set(), "second": set()}
    for number, line in enumerate((FOLDER / f"{name}.metal").read_text().splitlines(), 1):
        for mark in found[1].split(", ") if (found := MARKS.search(line)) else ():
            lines[mark].add(number)
    return lines


def numbers(described: Any, buffer: dict[str, Any]) -> NDArray[Any]:
    """Return contents as faults.toml describes them."""
    each, values = (described["each"], described["values"]) if isinstance(described, dict) else (1, described)
    if values in ("index", "count"):
        values = np.arange(buffer["length"]) + (values == "count")
    return np.resize(np.repeat(values, each), buffer["length"]).astype(buffer["dtype"])


def argument(buffer: dict[str, Any]) -> Any:
    """Return what is bound to a buffer: an array for undefined contents, too."""
    if buffer.get("null"):
        return None
    if "value" in buffer:
        value = np.array(buffer["value"], buffer["dtype"])
        return value.tobytes() if value.ndim else value[()]
    if buffer.get("sparse"):
        return anymetal.sparse(buffer["length"], buffer["dtype"])
    if "contents" in buffer:
        return numbers(buffer["contents"], buffer)
    return np.full(buffer["length"], 0x55, buffer["dtype"])


def launch(name: str, *, wrong: bool) -> tuple[list[Any], list[Any]]:
    """Run a program; return its findings and arguments."""
    program = PROGRAMS[name] | (PROGRAMS[name].get("wrong", {}) if wrong else {})
    arguments = [argument(buffer) for buffer in program["buffers"]]
    bound = [
        anymetal.undefined(one) if isinstance(one, np.ndarray) and not {"contents", "sparse"} & set(buffer) else one
        for buffer, one in zip(program["buffers"], arguments, strict=True)
    ]
    local = {int(index): length for index, length in program.get("threadgroup", {}).items()}
    try:
        library = anymetal.compile(
            FOLDER / f"{name}.metal",
            version=program.get("version", "3.1"),
            define={"WRONG": None} if wrong else None,
            sanitize=True,
            check_order=False,
        )
        done = library[name](program["grid"], program["group"], *bound, local=local, seconds=2)
    except anymetal.LaunchError as error:
        return list(error.findings), arguments
    return list(done.findings), arguments


def lines_of(finding: Any) -> set[int]:
    return {place.line for place in (finding.place, finding.other) if place is not None}


@pytest.mark.parametrize("name", programs())
def test_the_wrong_program_is_found(name: str) -> None:
    findings, _ = launch(name, wrong=True)
    marks, expected = marked(name), PROGRAMS[name]["finding"]
    every = set().union(*marks.values())

    def is_named(finding: Any) -> bool:
        return all(not lines or lines & lines_of(finding) for lines in marks.values())

    same = [one for one in findings if (one.kind, one.level) == (expected["kind"], expected["level"])]
    assert any(is_named(one) for one in same), findings
    for one in findings:
        if one.level == "error" and one.place is not None:
            assert one.place.line in every, one
            assert one.other is None or one.other.line in every or marks["here"], one


@pytest.mark.parametrize("name", programs())
def test_the_right_program_is_not(name: str) -> None:
    findings, arguments = launch(name, wrong=False)
    assert findings == []
    for index, (buffer, found) in enumerate(zip(PROGRAMS[name]["buffers"], arguments, strict=True)):
        if "result" in buffer:
            expected = numbers(buffer["result"], buffer)
            np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=f"buffer {index}")


def test_the_data_is_complete() -> None:
    assert set(PROGRAMS) == {path.stem for path in FOLDER.glob("*.metal")}
    for name, program in PROGRAMS.items():
        marks = marked(name)
        has_lines = program["finding"]["kind"] != "launch"
        assert bool(marks["first"]) == bool(marks["second"]), name
        assert has_lines == bool(marks["here"] | marks["first"]), name
        assert "WRONG" in (FOLDER / f"{name}.metal").read_text() or "wrong" in program, name
