"""The script that calls mpsref with random input."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace

import pytest

from tests.subjects.classes import MADE

SCRIPT = next(parent / "scripts" / "fuzz.py" for parent in Path(__file__).parents if (parent / "scripts").is_dir())


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = module.illegal()
    attempt = tests.attempt.__closure__[0].cell_contents
    yield module
    tests.attempt = attempt


@pytest.mark.parametrize(
    "part", ["calls", "texts", "json", "checkpoints", "arrays", pytest.param("forks", marks=pytest.mark.slow)]
)
def test_a_draw_of_each_part(script: ModuleType, part: str) -> None:
    if part == "checkpoints":
        pytest.importorskip("sklearn")
    if part == "forks" and not hasattr(os, "fork"):
        pytest.skip("this system has no os.fork")
    script.made.clear()
    script.PARTS[part](Random(f"1 {part}"))
    assert script.made["calls"] > 0


def test_classes_of_slow_tests_are_drawn(script: ModuleType) -> None:
    assert {*script.parameters(script.illegal().test_classes)} == {*MADE}


@pytest.mark.slow
def test_a_process_that_fails_is_a_finding(script: ModuleType) -> None:
    known, output = script._turn("nothing", 7, 0.0, 600.0)
    assert known == []
    assert output.endswith("KeyError: 'nothing'\nexit status 1")


def test_a_process_without_end_is_a_finding(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the time of the run is over."""
    monkeypatch.setattr(script, "LIMIT", 0.0)
    assert script._turn("texts", 7, 0.0, 600.0) == ([], "\nno end within 0 s")
    monkeypatch.setattr(script, "LIMIT", 60.0)
    assert script._turn("texts", 7, 0.0, 0.0) == ([], None)


def test_a_finding_is_printed_with_the_line_that_repeats_it(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = iter([([["done", "7", "5"]], "a signal"), ([["done", "9", "6"]], None)])

    def turn(*_: object) -> object:
        found = next(turns)
        if found[1] is None:
            monkeypatch.setattr(script, "time", SimpleNamespace(monotonic=lambda: float("inf")))
        return found

    monkeypatch.setattr(script, "_turn", turn)
    with pytest.raises(SystemExit) as ended:
        script.run(60.0, 7, ["texts"])
    assert ended.value.code == 1
    assert capsys.readouterr().out.splitlines() == [
        "seed 7",
        "a signal",
        f"finding in texts: {sys.executable} {script.__file__} draw texts 8",
        "",
        "texts: 11 calls in 3 draws",
    ]
