"""Mistakes in code that the reference and the backends share: worked examples show each of them.

``python -m tests.conformance.test_common_mode`` writes the tables of the documentation, and prints how many mistakes
random cases pass; with ``write`` it only writes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import registry
from mpsref.conformance import checker, common_mode, worked
from mpsref.conformance.case import Case, operation_named, operations
from mpsref.conformance.common_mode import MISTAKES, TABLE, WITHOUT, Mistake, planted
from mpsref.registry import Backend
from tests import few
from tests.subjects.operations import typical

REFERENCE = registry.get_backend("reference")
PAGE = Path(__file__).parents[2] / "docs" / "planted_defects.md"
FEW = 18

NAMED = {
    "Adam has no bias correction",
    "label smoothing of the sigmoid loss is as for one class",
    "the zero pad of y is taken for x",
    "the centre of an even window is one pixel to the left",
}
"""Mistakes that a check of the cpu backend did not find."""


def failures(mistake: Mistake, backend: Backend) -> list[str]:
    """Return the messages of the worked examples that fail."""
    with planted(mistake):
        outcomes = [checker.outcome_of(case, backend) for case in worked.cases(mistake.operation)]
    return [outcome.message for outcome in outcomes if outcome.status == "failed"]


@pytest.mark.parametrize(
    "mistake",
    few(sorted(MISTAKES, key=lambda one: one.name not in NAMED), 12),
    ids=lambda one: f"{one.shared}: {one.name}",
)
def test_a_mistake_in_shared_code_is_shown(mistake: Mistake) -> None:
    """Also by the reference, which always agrees with itself."""
    assert any("by hand" in message for message in failures(mistake, REFERENCE))


@pytest.mark.parametrize("operation", list(operations()), ids=str)
def test_without_a_mistake_the_numbers_are_right(operation: registry.Operation) -> None:
    cases = list(worked.cases(operation))
    assert cases, f"mpsref/conformance/worked.py has no example of {operation}"
    for case in cases:
        outcome = checker.outcome_of(case, REFERENCE)
        assert outcome.status == "passed", outcome.message


def test_every_example_belongs_to_an_operation() -> None:
    found = [case for operation in operations() for case in worked.cases(operation)]
    assert len(found) == len({*found}) == len(worked.EXAMPLES)


@pytest.mark.parametrize("mistake", [one for one in MISTAKES if one.name in NAMED], ids=lambda one: one.name)
def test_a_check_of_a_backend_fails(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the layers, the first three: they agree with the reference, and the failure is that of a worked example."""
    named = list(checker.layer_cases(mistake.operation))
    chosen = [*named[:3], *(one for one in named if one[0].startswith(checker.WORKED))]
    monkeypatch.setattr(checker, "layer_cases", lambda operation: chosen)
    with planted(mistake):
        (row,) = checker.check_operation(mistake.operation, [registry.get_backend("cpu")], 1)
    assert row.status == "failed"
    assert all(failure.layer.startswith("worked example") for failure in row.failures)
    assert all("the reference may have the same mistake" in failure.message for failure in row.failures)


def test_the_named_mistakes_are_planted() -> None:
    assert {one.name for one in MISTAKES} >= NAMED
    assert len(MISTAKES) == len({(one.shared, one.name) for one in MISTAKES})


def test_a_result_of_another_shape_is_no_agreement() -> None:
    case = next(worked.cases(operation_named("Reshape.forward")))
    turned = Backend("turned", {case.problem.operation: lambda problem, x, out: None})
    assert checker.outcome_of(case, turned).status == "failed"


@pytest.mark.usefixtures("few_layers")
def test_the_few_layers_of_tests_have_an_example() -> None:
    with_examples = [operation for operation in operations() if any(worked.cases(operation))]
    assert with_examples
    for operation in with_examples:
        assert any(name.startswith(checker.WORKED) for name, _ in checker.layer_cases(operation)), operation


def test_a_replayed_example_is_compared_with_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    text = next(text for text in worked.EXAMPLES if text.startswith("UpsamplingNearest.forward"))
    monkeypatch.setitem(worked.EXAMPLES, text, worked.Worked(([2.0] * 12,)))
    outcome = checker.outcome_of(Case.parse(f"{text},float32,exact,seed=0"), REFERENCE)
    assert "element [0, 0, 0, 0] is 1.0, by hand it is 2" in outcome.message
    assert checker.outcome_of(Case.parse(f"{text},float32,seed=1"), REFERENCE).status == "passed"


def test_a_backend_that_compiles_runs_as_many_cases_as_before() -> None:
    operation = operation_named("PoolingAverage.gradient")
    layers = list(checker.layer_cases(operation))
    for distinct in (1, 4, 8):
        backend = Backend("compiles", {}, distinct_problems=distinct)
        chosen = checker._chosen(layers, backend, 60)
        examples = [case for case in chosen if case in {*worked.cases(operation)}]
        assert len(chosen) == distinct
        assert len(examples) == min(distinct // 2, 4)


# --- the random words, by an implementation of its own ----------------------------------------------------------------


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> list[int]:
    """Philox4x32-10 of Salmon et al., 2011, with Python's integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b % 2**32, (a >> 32) ^ c3 ^ k1, a % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


def test_the_masks_are_those_of_the_published_generator() -> None:
    """By the known answers of Random123, for counters and keys of zeros, of ones, and of digits of pi."""
    digits = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    ones = 2**32 - 1
    assert philox((0,) * 4, (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox((ones,) * 4, (ones, ones)) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox(*digits) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    (text,) = (one for one in worked.EXAMPLES if "Dropout.mask" in one and "key" in one)
    words = [philox((*digits[0][2:], 0x85A308D3 + image, 0), digits[1]) for image in (0, 1)]
    assert worked.EXAMPLES[text].results[0] == [int(word < 2**31) for image in words for word in image]


# --- what is shared, by what runs -------------------------------------------------------------------------------------

ROOT = Path(mpsref.__file__).parent
PLACES = tuple(str(ROOT / place) for place in ("geometry.py", "tables.py", "kernels/"))


def called(run: Callable[[], object]) -> set[str]:
    """Return the functions of the geometry, the tables and the kernels that are called."""
    found: set[CodeType] = set()

    def note(frame: Any, event: str, argument: object) -> None:
        if event == "call":
            found.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return {named(code) for code in found if code.co_filename.startswith(PLACES)}


def named(code: CodeType) -> str:
    module = ".".join(Path(code.co_filename).relative_to(ROOT).with_suffix("").parts)
    return f"{module}.{code.co_qualname.partition('.<')[0]}"


def shared(case: Case, backend: Backend) -> set[str]:
    """Return what both the backend and the formula of the reference call; of new problems, without what they keep."""
    again, third = Case.parse(str(case)).problem, Case.parse(str(case)).problem
    inputs = case.inputs()
    numbers = [one.astype(np.float64) if one.dtype.kind == "f" else one for one in inputs]
    common_mode._forget()
    of_backend = called(lambda: registry.run(again, *inputs, backend=backend))
    common_mode._forget()
    return of_backend & called(lambda: third.operation.results(third, *numbers))


@pytest.mark.parametrize(("name", "number"), few([("cpu", 0), ("cpu", 8), ("metal:clang", 8)], 1))
@pytest.mark.parametrize("operation", list(operations()), ids=str)
def test_every_shared_function_has_a_mistake_or_a_reason(operation: registry.Operation, name: str, number: int) -> None:
    """What a backend and the reference call, in worked examples, in a typical case and in a number of random ones."""
    backend = registry.get_backend(name)
    if reason := backend.unavailable() or backend.lacks(operation):
        pytest.skip(reason)
    cases = [*worked.cases(operation), typical(operation), *checker.random_cases(operation, ("float32",), number, 0)]
    found: set[str] = set()
    for case in cases:
        registry.run(case.problem, *case.inputs(), backend=backend)  # compiles
        found |= shared(case, backend)
    assert found - {*TABLE, *WITHOUT} == set()


def test_what_has_a_mistake_or_a_reason_exists() -> None:
    for name in {*TABLE, *WITHOUT}:
        module, *path = name.rsplit(".", 1 if name.rsplit(".", 2)[1].islower() else 2)
        owner = __import__(f"mpsref.{module}", fromlist=["_"])
        for part in path:
            owner = vars(owner)[part]


# --- the page ---------------------------------------------------------------------------------------------------------


HEADS = ("| planted mistake | in | detected by the worked examples of |", "| shared function | reason |")


def written(text: str) -> str:
    """Return the page with the rows of both tables."""
    rows = (
        [f"| {one.name} | `{one.shared}` | `{one.operation}` |" for one in MISTAKES],
        [f"| `{name}` | {reason} |" for name, reason in WITHOUT.items()],
    )
    for head, those in zip(HEADS, rows, strict=True):
        before, table = text.split(head + "\n", 1)
        line, _, after = table.partition("\n")
        text = "\n".join([before + head, line, *those, ""]) + after[after.index("\n\n") + 1 :]
    return text


def test_the_page_has_the_mistakes_in_shared_code() -> None:
    assert PAGE.read_text() == written(PAGE.read_text()), "run `python -m tests.conformance.test_common_mode write`"


def is_blind(mistake: Mistake, backend: Backend, number: int = FEW) -> bool:
    """Return whether so many random cases of a backend, with their properties, agree with the reference."""
    texts = [str(case) for case in checker.checked_cases(mistake.operation, backend.dtypes, number, 0)]
    with planted(mistake):
        try:
            return all(checker.outcome_of(Case.parse(text), backend).status != "failed" for text in texts)
        except ValueError:  # a problem that is no longer legal
            return False


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()), "utf-8")
    if sys.argv[1:] != ["write"]:
        passed = [one for one in MISTAKES if is_blind(one, registry.get_backend("cpu"))]
        print(f"{len(passed)} of {len(MISTAKES)} pass {FEW} random cases on the cpu backend")
