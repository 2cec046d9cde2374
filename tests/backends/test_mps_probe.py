"""The probe: each alternative of each choice is recognized, and the documentation and the declarations agree."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mpsref import PoolingAverage, PoolingMax, UpsamplingBilinear, cli
from mpsref.conformance import golden, golden_entries
from mpsref.errors import UnsupportedError
from mpsref.registry import get_backend
from mpsref_apple.probe import choice, choices, run
from mpsref_apple.probe.declare import Choice, Machine, ProbeProblem, agrees, operation, row
from tests.subjects import unlisted_rules

DOCS = Path(__file__).parents[2] / "docs"
UNLINKED = re.compile(
    r"\[[^\]\[]*\b(?:choice|obs|design)\b[^\]\[]*\](?!\()|"
    r"\|\s*(?:[a-z]+[,;] )*(?:choice|obs|design)(?:[,;] [a-z]+)*\s*\|$"
)


@pytest.mark.parametrize("one", run.probed(), ids=[one.id for one in run.probed()])
def test_planted_alternatives_are_recognized(one: Choice) -> None:
    assert {name: run.recognized(one, name).verdict for name in one.alternatives} == {
        name: name for name in one.alternatives
    }


DIFFERENT = {"l2-overflow": "wide"}
DIFFERENT |= dict.fromkeys(
    ("convolution-clamp-gradient", "upsampling-aligned-gradient", "windowed-edge-mode"), "failed"
)
"""What the fake does otherwise than backends of mpsref: it computes in float64, and raises where the classes do."""


def test_without_a_plant_the_fake_does_what_mpsref_does() -> None:
    with run.fake() as (machine, _):
        found = {one.id: run.find(one, machine).verdict.partition(":")[0] for one in run.probed()}
    assert found == {one.id: DIFFERENT.get(one.id, one.chosen) for one in run.probed()}


@pytest.mark.parametrize("one", run.probed(), ids=[one.id for one in run.probed()])
def test_a_rule_that_is_not_listed_is_none_of_the_alternatives(one: Choice) -> None:
    if one.id in unlisted_rules.NOT_EXAMINED:
        assert one.id not in unlisted_rules.RULES
        return
    seen = [set[str]() for _ in one.problems]
    for rule in unlisted_rules.RULES[one.id]:
        found = unlisted_rules.answered(one, rule)
        assert found.verdict == run.NONE, rule.text
        for rules, problem, result in zip(seen, one.problems, found.results, strict=True):
            rules |= set() if problem.matching(np.asarray(result)) else {rule.text}
    assert min(map(len, seen)) >= 2, "of several problems, each one sees two rules by itself"


def test_rules_belong_to_choices() -> None:
    examined = unlisted_rules.RULES.keys() | unlisted_rules.NOT_EXAMINED.keys()
    assert examined == {one.id for one in run.probed()}, "two rules, or a reason, in tests/subjects/unlisted_rules.py"


@pytest.mark.slow
def test_no_mutant_looks_like_an_alternative_that_it_is_not() -> None:
    assert unlisted_rules.taken_for_alternatives() == unlisted_rules.LISTED


@pytest.mark.parametrize(
    ("id", "spec", "x", "alternative"),
    [
        ("window-offset", PoolingAverage((1, 2), (1, 2), offset=(0, 1)), row(1, 3, 5, 7), [4, 3.5]),
        ("max-clamp-dilated", PoolingMax((1, 2), dilations=(1, 2), edge_mode="clamp"), row(7, 1, 2, 3), [1, 7, 3, 2]),
        ("upsampling-clamp", UpsamplingBilinear((1, 2), edge_mode="clamp"), row(0, 3, 9), [0, 1.5, 3, 6, 9, 4.5]),
    ],
)
def test_a_blind_problem_is_found(id: str, spec: Any, x: Any, alternative: list[float]) -> None:
    """Former problems: a rule that is not listed has the result of an alternative on their data."""
    problem = operation(choice(id).problems[0].kernel, spec, "forward", {"x": x}, {"listed": alternative})
    blind = Choice(id, "", "", {}, {"listed": ""}, problem)
    assert "listed" in [unlisted_rules.answered(blind, rule).verdict for rule in unlisted_rules.RULES[id]]


def test_alternatives_of_a_choice_differ() -> None:
    for one in run.probed():
        for name, other in itertools.permutations(one.alternatives, 2):
            pairs = [(problem, problem.expected[name], problem.expected[other]) for problem in one.problems]
            same = [agrees(np.asarray(a, np.float64), b, problem.tolerance) for problem, a, b in pairs]
            assert not all(same), f"{one.id}: {name} and {other}"


def test_another_result_is_none_of_the_alternatives() -> None:
    one = choice("max-tie")
    assert run.Results(one, [np.full(8, 9.0)]).verdict == "none of the alternatives"
    assert str(run.Results(one, [np.array([0, 0, 0, 0, 4.0, 0, 0, 8])])) == "max-tie: last (mpsref: first)"
    assert run.Results(one, ["ValueError: x"]).verdict == "failed: ValueError: x"


def test_a_choice_needs_a_problem_or_the_tag_design() -> None:
    with pytest.raises(ValueError, match="give problems, or the tag design"):
        Choice("x", "", "", {})
    problem = operation("MPSCNNPoolingMax", PoolingMax(1), "forward", {"x": row(1)}, {"a": [1]})
    with pytest.raises(ValueError, match="a problem expects"):
        Choice("x", "", "", {}, {"b": ""}, [problem])
    with pytest.raises(ValueError, match="give problems, or the tag design"):
        Choice("x", "", "", {}, {"a": ""}, [problem], tag="design")


# --- the documentation ------------------------------------------------------------------------------------------------


def prose(page: Path) -> list[str]:
    """Return the lines of a page that are not code."""
    lines, code = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            code = not code
        elif not code and not line.startswith("    "):
            lines.append(line)
    return lines


def test_every_tagged_statement_has_an_identifier() -> None:
    pages = sorted(set(DOCS.glob("*.md")) - {DOCS / "open_choices.md", DOCS / "adding_a_kernel.md"})
    explained = "Tags give the source of a statement", "derived, *[choice]* not documented by Apple"
    unlinked = [
        f"{page.name}: {line}"
        for page in pages
        for line in prose(page)
        if UNLINKED.search(line) and not line.startswith(explained) and "the tag *[" not in line
    ]
    assert unlinked == [], "declare the choice in backends/mpsref_apple/probe, then run scripts/link_choices.py"


def test_tags_in_the_code_name_choices() -> None:
    package = DOCS.parent / "mpsref"
    folders = (package / "kernels").rglob("*.py"), (package / "mps").rglob("*.py"), (package / "mpsgraph").rglob("*.py")
    files = [*sorted(itertools.chain(*folders)), package / "geometry.py", package / "padding.py"]
    known = {one.id: one.tag for one in choices()}
    tags = defaultdict[str, set[str]](set)
    for file in files:
        for tag in re.findall(r"\[([^\]\[]*\b(?:choice|obs|design)\b[^\]\[]*)\]", file.read_text("utf-8")):
            words = re.findall(r"[\w-]+", tag)
            assert known.keys() & set(words), f"{file.name}: [{tag}]"
            assert ("design" in words) == ({known[id] for id in known.keys() & set(words)} == {"design"}), tag
            for id in known.keys() & set(words):
                tags[id] |= set(words)
    for id, words in tags.items():
        assert known[id] in words, f"{id} is tagged {known[id]} in no docstring"


def test_links_and_declarations_agree() -> None:
    linked = {
        id for page in DOCS.glob("*.md") for id in re.findall(r"open_choices\.md#([\w-]+)", page.read_text("utf-8"))
    }
    assert linked <= {one.id for one in choices()}
    for one in choices():
        tags = list[str]()
        for name, part in one.lines():
            (line,) = [line for line in (DOCS / f"{name}.md").read_text("utf-8").splitlines() if part in line]
            assert "open_choices.md#" in line or line.startswith("        "), f"{one.id}: {line}"
            for tag in re.findall(rf"\[([^\]\[]*)\]\(open_choices\.md#{one.id}\)", line):
                assert ("design" in tag) == (one.tag == "design"), f"{one.id}: {line}"
                tags += re.findall(r"\w+", tag)
        assert one.tag in tags or not tags, f"{one.id} is tagged {one.tag} on no page"


# --- the file and the command -----------------------------------------------------------------------------------------


@pytest.fixture
def findings() -> list[run.Results]:
    with run.fake() as (machine, _):
        return [run.find(choice(id), machine) for id in ("max-tie", "max-nan", "pooling-strides", "l2-zero")]


def test_the_file_has_golden_entries(findings: list[run.Results], monkeypatch: pytest.MonkeyPatch) -> None:
    document = run.document([*findings, run.Results(choice("l2-clamp"), ["Crash: x"])], "Apple M9, macOS 99 (A1)")
    entries = golden_entries.parse(json.dumps(document))
    ids = [entry.id for entry in entries]
    assert ids == sorted(ids)
    assert "probe-apple-m9-macos-99-a1-max-tie-0" in ids
    assert "l2-clamp: failed: Crash: x" in entries[0].source.note
    assert entries[0].device == "Apple M9, macOS 99 (A1)"
    by_id = {entry.parameters["probe"]: entry for entry in entries}
    assert {name: golden.compare(entry, "reference").status for name, entry in by_id.items()} == {
        "max-tie": "agree",
        "max-nan": "agree",
        "l2-zero": "agree",
        "pooling-strides": "not implemented yet",
    }
    by_id["max-tie"].expected["result"].array[0, 0, 0, 0] += 1
    assert golden.compare(by_id["max-tie"], "cpu").unexpected


def test_files_in_the_folder_are_loaded(
    findings: list[run.Results], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    (package / golden_entries.PROBES).mkdir(parents=True)
    (package / "golden.json").write_text('{"sources": {}, "entries": []}')
    (package / golden_entries.PROBES / "m9.json").write_text(json.dumps(run.document(findings, "Apple M9")))
    monkeypatch.setattr(golden_entries.resources, "files", lambda _: package)
    assert len(golden_entries.load.__wrapped__()) == 5


def test_problems_with_objects_of_mps_run_on_that_backend_only() -> None:
    with pytest.raises(UnsupportedError, match="only the backend mps has them"):
        run.replay("pooling-kernel-offset", 0, get_backend("reference"))


OVER_THE_FAKE = """
import os, runpy, sys
from mpsref_apple import fake_kernels, runtime
from mpsref_apple.probe import run
with runtime.using(fake_kernels.device().runtime()):
    if ", 1, " in sys.argv[1]:
        os.abort()
    exec(sys.argv[1])
"""


def test_a_crash_costs_one_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "python"
    code = tmp_path / "over_the_fake.py"
    code.write_text(OVER_THE_FAKE)
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {code} "$2"\n')
    script.chmod(0o755)
    monkeypatch.setattr(run.sys, "executable", str(script))
    seen: list[Any] = []
    (found,) = run.in_processes([choice("max-clamp-outside")], seen.append)
    assert seen == [found]
    first, second = found.results
    assert choice("max-clamp-outside").problems[0].matching(np.asarray(first)) == ["nearest"]
    assert isinstance(second, str)
    assert second.startswith("the process ended with -6: ")
    assert found.verdict == f"failed: {second}"
    assert len(run.document([found], "Apple M9")["entries"]) == 1


def test_an_error_in_a_process_is_a_verdict() -> None:
    (found,) = run.in_processes([choice("max-tie")], lambda found: None)
    assert found.verdict.startswith("failed: the process ended with 1: ")


@pytest.mark.parametrize(
    ("origin", "where"),
    [
        ("git@github.com:someone/mpsref.git", "https://github.com/someone/mpsref/issues/new"),
        ("https://example.org/mpsref", "https://example.org/mpsref/issues/new"),
        ("/srv/mpsref", "a new issue of the repository that it came from"),
    ],
)
def test_the_probe_says_where_to_send_the_file(origin: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = run.subprocess.CompletedProcess([], 0, f"{origin}\n", "")
    monkeypatch.setattr(run.subprocess, "run", lambda *arguments, **options: ended)
    assert run.destination() == where


def test_the_command(tmp_path: Path) -> None:
    runner = CliRunner()
    listed = runner.invoke(cli.app, ["probe", "--list", "max-tie", "host-reads"])
    assert "* first: the first maximum in raster order" in listed.output
    assert "no question to Apple's kernels" in listed.output
    dry = runner.invoke(cli.app, ["probe", "--dry-run", "max-tie"])
    assert dry.exit_code == 0
    assert "4 of 4 planted alternatives of 1 choices recognized" in dry.output
    assert isinstance(runner.invoke(cli.app, ["probe", "max-ties"]).exception, ValueError)


def test_the_command_writes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_process(chosen: list[Choice], done: Any) -> list[run.Results]:
        with run.fake() as (machine, _):
            found = [run.find(one, machine) for one in chosen]
        list(map(done, found))
        return found

    monkeypatch.setattr(run, "in_processes", in_process)
    file = tmp_path / "found.json"
    with run.fake():
        written = CliRunner().invoke(cli.app, ["probe", "max-tie", "--output", str(file)])
    assert "max-tie: first" in written.output
    assert "1 of 1 as in mpsref" in written.output
    assert written.output.splitlines()[-1].startswith(f"Please attach the file {file} to ")
    (entry,) = golden_entries.parse(file.read_text())
    assert entry.note == "Apple's kernel: first. mpsref: first."


def test_a_result_of_another_size_agrees_with_nothing() -> None:
    problem = ProbeProblem("MPSCNNPoolingMax", "forward", {}, lambda machine: [1], {"a": [1]})
    assert problem.matching(np.ones(2)) == []
    assert problem.matching(np.ones(1)) == ["a"]
    assert Machine(get_backend("reference"), None).call(PoolingMax(1), "forward", row(2)).ravel().tolist() == [2]
