"""The report of a check, as data and as files: a row for each operation on each backend, and all failures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, NamedTuple, TypeAlias
from xml.etree import ElementTree

import numpy as np

import mpsref
from mpsref.arguments.arrays import Array
from mpsref.conformance import rules
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import compare
from mpsref.conformance.data import INTEGERS
from mpsref.conformance.runner import WRONG, expected
from mpsref.conformance.tally import Tally, added
from mpsref.viz.page import add

FORMAT = 1
"""Version of the JSON form; it increases when programs for the old form would misread the new one."""


RowStatus: TypeAlias = Literal["passed", "failed", "unsupported", "mistrusted", "partial"]

ENOUGH = 1 / 4
"""The part of its cases that a backend must run for a row to pass."""


@dataclass(frozen=True)
class Failure:
    """A case that failed: shrunk to a small one if it was random."""

    case: str
    backend: str
    message: str
    layer: str = ""
    """The layer of a published network that the case is, or empty."""
    known: bool = False
    """Whether the case is one that failed in an earlier check."""
    kind: str = WRONG
    """"wrong" or "raised TypeError"; of a backend in isolation also "crashed SIGSEGV", "time" or "memory"."""
    results: tuple[tuple[float, ...], ...] = field(default=(), compare=False)
    """Of a wrong value: the elements of all results of the backend, if they are few enough to be shown."""
    call: str = field(default="", compare=False)
    """Of a wrong value of a framework: the calls of its functions, as text that runs."""

    @property
    def is_random(self) -> bool:
        """Whether the case was drawn in this check."""
        return not self.layer and not self.known

    @property
    def origin(self) -> str:
        """The layer, or that the case is known, in brackets; nothing for a random case."""
        return f" ({self.layer})" if self.layer else " (known)" if self.known else ""

    @property
    def replay(self) -> str:
        """The command that runs this case again."""
        return f"mpsref replay '{self.case}' --backend '{self.backend}'"


@dataclass(frozen=True)
class Row:
    """One operation on one backend."""

    operation: str
    backend: str
    runtime: str
    """The device that the backend ran on."""
    passed: int = 0
    zeros: int = 0
    """Number of cases in which only zeros were expected; they are neither passed nor failed."""
    worst: float = 0.0
    """The worst error of the passed cases, as a fraction of its bound."""
    reason: str = ""
    """Why the backend does not run this operation, or most of the cases that it refuses; else empty."""
    failures: tuple[Failure, ...] = ()
    refused: int = 0
    """Number of cases that the backend does not run; they are not in :attr:`cases`."""
    rules: tuple[str, ...] = ()
    """The rules of the backend that concern the operation, see :mod:`mpsref.conformance.rules`."""
    tried: Tally = field(default_factory=dict, compare=False)
    """How many of the cases had which geometry, parameters, data and errors."""
    used: float | None = None
    """The worst part of the bound of the arithmetic that passed results in float32 used: without the last rounding,
    ``(error - ulp / 2) / (bound - ulp / 2)``, at least 0; ``None`` where there were no such results."""
    unjudged: str = field(default="", compare=False)
    """The first property that was not judged, because another operation is wrong."""

    @classmethod
    def merged(cls, rows: Sequence[Row]) -> Row:
        """Return the row of consecutive blocks of cases, which ends with the first random case that failed."""
        last = next((k for k, row in enumerate(rows) if row.is_last), len(rows))
        counted = rows[: last + 1]
        return cls(
            rows[0].operation,
            rows[0].backend,
            next((row.runtime for row in counted if row.runtime), ""),
            sum(row.passed for row in counted),
            sum(row.zeros for row in counted),
            max(row.worst for row in counted),
            next((row.reason for row in counted if row.reason), ""),
            tuple({failure.case: failure for row in counted[::-1] for failure in row.failures[::-1]}.values())[::-1],
            sum(row.refused for row in counted),
            rows[0].rules,
            added(row.tried for row in counted),
            max((row.used for row in counted if row.used is not None), default=None),
            next((row.unjudged for row in counted if row.unjudged), ""),
        )

    @property
    def is_last(self) -> bool:
        """Whether a random case failed: those of later blocks do not count then."""
        return any(failure.is_random for failure in self.failures)

    @property
    def status(self) -> RowStatus:
        """failed, unsupported (nothing ran), mistrusted (only zeros compared), partial (too little ran), or passed."""
        if self.failures:
            return "failed"
        if self.reason and not self.cases:
            return "unsupported"
        if not self.passed:
            return "mistrusted"
        return "passed" if self.cases >= ENOUGH * (self.cases + self.refused) else "partial"

    @property
    def shown_cases(self) -> str:
        """The number of cases that ran, for a table: "12 of 60" where others were refused."""
        return f"{self.cases} of {self.cases + self.refused}" if self.refused and self.cases else str(self.cases)

    @property
    def why_not_passed(self) -> str:
        """The reason of a row that is unsupported or partial."""
        return self.reason if self.status == "unsupported" else f"only {self.shown_cases} cases ran: {self.reason}"

    @property
    def shown_worst(self) -> str:
        """The used part of the bound for a table: "-" where no result in float32 passed."""
        return "-" if self.used is None or not self.passed else f"{self.used:.3f}"

    @property
    def cases(self) -> int:
        """Number of cases that ran."""
        return self.passed + self.zeros + len(self.failures)


def result_of(rows: Sequence[Row]) -> str:
    """Return how many rows have each status.

    >>> result_of([Row("SoftMax.forward", "cpu", "CPU", passed=1)])
    '1 passed'
    """
    return ", ".join(f"{number} {status}" for status, number in Counter(row.status for row in rows).items())


class Result(NamedTuple):
    """A result of a failure beside the one that is expected, and which elements are wrong."""

    name: str
    actual: Array
    expected: Array
    wrong: Array


class Contents(NamedTuple):
    """The arrays of a failure."""

    inputs: dict[str, Array]
    results: list[Result]
    """Empty if they are too large to be kept."""


def contents(failure: Failure, applied: tuple[str, ...] = ()) -> Contents:
    """Return the arrays of a failure, on a backend with these rules."""
    case = Case.parse(failure.case)
    inputs = dict(zip(case.problem.input_shapes, case.inputs(), strict=True))
    if not failure.results:
        return Contents(inputs, [])
    with rules.applied(applied):
        references = expected(case)
    dtypes = case.problem.result_dtypes(*(array.dtype for array in inputs.values()))
    results = []
    for k, (elements, (reference, terms), dtype) in enumerate(zip(failure.results, references, dtypes, strict=True)):
        actual = np.array(elements).reshape(reference.shape).astype(dtype)
        wrong = compare(actual, reference, terms, case.family in INTEGERS).wrong
        results.append(Result(f"result {k}" if len(references) > 1 else "result", actual, reference, wrong))
    return Contents(inputs, results)


FEW_ELEMENTS = 32
"""Larger arrays of a failure are not printed."""


def details(failure: Failure, applied: tuple[str, ...] = ()) -> list[str]:
    """Return lines that say more of a failure: its inputs and results if they are small, and its calls as text.

    Parameters
    ----------
    failure : Failure
        The failure.
    applied : tuple of str
        The rules of the backend.

    Returns
    -------
    list of str
        Lines to print under the message.
    """
    lines = []
    if failure.results:
        found = contents(failure, applied)
        arrays = list(found.inputs.items())
        for name, actual, right, _ in found.results:
            arrays += [(f"{name}, expected", right), (f"{name} of the backend", actual)]
        if max(array.size for _, array in arrays) <= FEW_ELEMENTS:
            lines = [f"{name}: {_written(array)}" for name, array in arrays]
    calls = failure.call.splitlines()
    return lines + (["the same call in the framework:", *(f"    {line}" for line in calls)] if calls else [])


def _written(array: Array) -> str:
    """Return an array on one line."""
    exact = array.dtype == np.float64  # of the reference, whose last digits say nothing about float32
    text = np.array2string(
        array, precision=9 if exact else None, floatmode="maxprec" if exact else None, separator=", "
    )
    return " ".join(text.split())


RECORD = """| date | commit | machine | backend | ran on | checked | result |
| --- | --- | --- | --- | --- | --- | --- |
"""
"""The head of the table of what ran where."""


@dataclass(frozen=True, repr=False)
class Report:
    """The outcome of one check."""

    version: str
    seed: int
    rows: tuple[Row, ...]
    unavailable: tuple[tuple[str, str], ...] = ()
    """Backends that cannot run on this machine, with the reason."""

    @classmethod
    def of_blocks(cls, seed: int, rows: Sequence[Row]) -> Report:
        """Return the report of the blocks of cases that are done, for a check that was interrupted."""
        blocks: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            blocks.setdefault((row.operation, row.backend), []).append(row)
        return cls(mpsref.__version__, seed, tuple(Row.merged(found) for found in blocks.values()))

    @property
    def failures(self) -> tuple[Failure, ...]:
        """All failures, row after row."""
        return tuple(failure for row in self.rows for failure in row.failures)

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows of each status; "partial" only if there is such a row."""
        found = Counter(row.status for row in self.rows)
        shown = {status: found[status] for status in ("passed", "failed", "unsupported", "mistrusted")}
        return shown | ({"partial": found["partial"]} if found["partial"] else {})

    @property
    def ok(self) -> bool:
        """Whether something passed, and nothing failed or is mistrusted."""
        return self.counts["passed"] > 0 and not self.counts["failed"] and not self.counts["mistrusted"]

    def __repr__(self) -> str:
        """Return the counts, and the last failure, which is a small case if it was random.

        >>> Report("1.0", 0, (Row("SoftMax.forward", "cpu", "CPU", passed=1),))
        <Report: 1 passed, 1 case>
        """
        cases = sum(row.cases for row in self.rows)
        text = f"<Report: {result_of(self.rows) or 'no rows'}, {cases:,} case{'s' * (cases != 1)}>"
        if not self.failures:
            return text
        last = self.failures[-1]
        return f"{text}\n{last.case} on {last.backend}: {last.message}"

    def json(self) -> str:
        """Return the report as JSON; its names and their meaning are stable within one ``format``."""
        rows = [{**asdict(row), "status": row.status, "cases": row.cases} for row in self.rows]
        for row in rows:
            del row["unjudged"]
            for failure in row["failures"]:
                failure["replay"] = Failure(**failure).replay
                del failure["results"], failure["call"]
        return json.dumps(
            {
                "format": FORMAT,
                "mpsref": self.version,
                "seed": self.seed,
                "ok": self.ok,
                "counts": self.counts,
                "rows": rows,
                "unavailable": [{"backend": name, "reason": reason} for name, reason in self.unavailable],
            },
            indent=2,
        )

    def record(self, date: str, commit: str, machine: str) -> list[str]:
        """Return a row of a Markdown table for each backend and what it ran on; see ``RECORD``."""
        lines = []
        for backend, runtime, rows in self.of_backends():
            number = f"{len(rows)} operations, {sum(row.cases for row in rows):,} cases"
            lines.append(f"| {' | '.join([date, commit, machine, backend, runtime, number, result_of(rows)])} |")
        return lines

    def of_backends(self) -> Iterator[tuple[str, str, list[Row]]]:
        """Yield each backend, what it ran on, and the rows of both."""
        for backend, runtime in dict.fromkeys((row.backend, row.runtime) for row in self.rows if row.runtime):
            yield backend, runtime, [row for row in self.rows if (row.backend, row.runtime) == (backend, runtime)]

    def junit(self) -> str:
        """Return the report as JUnit XML: a test suite for each backend, a test case for each operation."""
        suites = ElementTree.Element("testsuites", name="mpsref check")
        for backend in dict.fromkeys(row.backend for row in self.rows):
            rows = [row for row in self.rows if row.backend == backend]
            bad = sum(row.status in ("failed", "mistrusted") for row in rows)
            skipped = sum(row.status in ("unsupported", "partial") for row in rows)
            number = {"tests": str(len(rows)), "failures": str(bad), "skipped": str(skipped)}
            suite = add(suites, "testsuite", name=backend, **number)
            for row in rows:
                case = add(suite, "testcase", classname=backend, name=row.operation)
                if row.status in ("unsupported", "partial"):
                    add(case, "skipped", message=row.why_not_passed)
                if row.status == "mistrusted":
                    add(case, "failure", message="nothing but zeros was compared")
                for failure in row.failures:
                    text = f"{failure.case}{failure.origin}\n{failure.replay}"
                    add(case, "failure", text, message=failure.message, type=failure.kind)
        ElementTree.indent(suites)
        return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True)
