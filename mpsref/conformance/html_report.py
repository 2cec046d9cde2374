"""The report of a check as one HTML page: a table with filters, errors, what was tried, and wrong elements."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from xml.etree.ElementTree import Element

from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.report import Failure, Report, Row, contents
from mpsref.conformance.runner import SHOWN_ELEMENTS
from mpsref.conformance.tally import ERROR, Value, added, histogram
from mpsref.viz.explain import explain
from mpsref.viz.page import HOST, PORT, Page, add, explorer_address

PLANES = 4
"""The number of planes (one image, one channel) of an array that are shown, first those with wrong elements."""

COLUMNS = (
    "operation",
    "backend",
    "ran on",
    "status",
    "cases",
    "only zeros",
    "used part of the bound",
    "errors up to the bound",
)


def page(report: Report) -> str:
    """Return the page of a report.

    Parameters
    ----------
    report : Report
        The result of a check.

    Returns
    -------
    str
        HTML that needs no other file and no network. It works without scripts, but for the filters.
    """
    found = Page("mpsref check")
    counts = ", ".join(f"{number} {status}" for status, number in report.counts.items())
    add(found.body, "p", f"mpsref {report.version}, seed {report.seed}. Operations: {counts}.")
    _table(found, report)
    if report.failures:
        add(found.body, "h2", "Failures")
        failed = [(failure, row) for row in report.rows for failure in row.failures]
        for failure, row in sorted(failed, key=lambda one: (not one[0].is_random, not one[0].results)):
            _failure(found.body, failure, row)
    _tried(found.body, report)
    _left_out(found.body, report)
    return found.text()


def _table(found: Page, report: Report) -> None:
    lines = found.table(COLUMNS, report.counts)
    for row in report.rows:
        line = add(lines, "tr", class_=row.status)
        for text in (row.operation, row.backend, row.runtime, row.status):
            add(line, "td", text)
        add(line, "td", row.shown_cases, class_="number", data_value=str(row.cases))
        add(line, "td", str(row.zeros), class_="number")
        add(line, "td", row.shown_worst, class_="number", data_value="" if row.shown_worst == "-" else row.shown_worst)
        _bars(add(line, "td"), histogram(operation_named(row.operation), ERROR, row.tried.get(ERROR, {})))


def _bars(cell: Element, bins: Mapping[str, int]) -> None:
    """Draw a histogram as a small picture, with its numbers as the alternative text."""
    if not any(bins.values()):
        return
    height, most = 24, max(bins.values())
    label = ", ".join(f"{count} cases at {name}" for name, count in bins.items() if count)
    picture = add(cell, "svg", width=str(8 * len(bins)), height=str(height), role="img", aria_label=label)
    add(picture, "title", label)
    for k, count in enumerate(bins.values()):
        size = max(1, round(height * count / most)) if count else 0
        add(picture, "rect", x=str(8 * k), y=str(height - size), width="7", height=str(size))


def _failure(body: Element, failure: Failure, row: Row) -> None:
    article = add(body, "article")
    add(add(article, "h3"), "code", failure.case)
    add(article, "p", f"{failure.backend}{failure.origin}, {failure.kind}: {failure.message}")
    add(article, "pre", failure.replay)
    if failure.call:
        add(article, "pre", failure.call)
    if not failure.results:
        return
    case, found = Case.parse(failure.case), contents(failure, row.rules)
    inputs = add(article, "div", class_="side wide")
    for name, array in found.inputs.items():
        if array.size <= SHOWN_ELEMENTS:
            for where, values in itertools.islice(_planes(array), PLANES):
                _grid(inputs, name + where, values)
        else:
            add(inputs, "p", f"{name}: an array of shape {array.shape}")
    for name, actual, reference, wrong in found.results:
        planes = zip(_planes(reference), _planes(actual), _planes(wrong), strict=True)
        for (where, right), (_, got), (_, marks) in sorted(planes, key=lambda plane: not plane[2][1].any())[:PLANES]:
            side = add(article, "div", class_="side wide")
            _grid(side, f"{name}{where}, expected", right)
            _grid(side, f"{name}{where}, of the backend", got, marks)
    windows = explain(case.problem)
    if "\n" not in windows:  # a kernel without windows
        return
    details = add(article, "details")
    add(details, "summary", "Windows")
    add(details, "pre", windows)
    paragraph = add(article, "p")
    add(
        paragraph, "a", "Open it in the explorer", href=f"http://{HOST}:{PORT}{explorer_address(failure.case)}"
    ).tail = " while the command mpsref explore runs"


def _grid(parent: Element, caption: str, values: Array, wrong: Array | None = None) -> None:
    """Append a table of numbers, with the wrong ones marked."""
    grid = add(parent, "table")
    add(grid, "caption", caption)
    for y, row in enumerate(values):
        line = add(grid, "tr")
        for x, value in enumerate(row):
            is_wrong = wrong is not None and wrong[y, x]
            add(line, "td", f"{value:.6g}", **({"class_": "wrong", "title": "wrong"} if is_wrong else {}))


def _planes(array: Array) -> Iterator[tuple[str, Array]]:
    """Yield (indices, rows and columns) for each image and channel; other arrays are one plane."""
    if array.ndim != 4:
        yield "", array.reshape(-1, array.shape[-1] if array.ndim else 1)
        return
    for n in range(array.shape[0]):
        for c in range(array.shape[3]):
            yield f"[{n}, :, :, {c}]", array[n, :, :, c]


def _tried(body: Element, report: Report) -> None:
    """Draw histograms of what was tried for each operation, on all backends together."""
    ran = [row for row in report.rows if row.tried]
    if not ran:
        return
    add(body, "h2", "What was tried")
    add(body, "p", "How many cases had which sizes, parameters and data, layers of networks included. 0: not tried.")
    for name, rows in itertools.groupby(ran, key=lambda row: row.operation):
        details = add(body, "details")
        add(details, "summary", name)
        features = add(details, "div", class_="tried")
        for feature, counts in added(row.tried for row in rows).items():
            if feature != ERROR:
                _histogram(features, feature, histogram(operation_named(name), feature, counts))


def _histogram(parent: Element, feature: str, bins: Mapping[Value, int] | Mapping[str, int]) -> None:
    table = add(parent, "table")
    add(table, "caption", feature.replace("_", " "))
    most = max(bins.values())
    for value, count in bins.items():
        line = add(table, "tr", class_="" if count else "none")
        add(line, "td", str(value))
        add(add(line, "td"), "meter", max=str(most), value=str(count), aria_hidden="true")
        add(line, "td", str(count), class_="number")


def _left_out(body: Element, report: Report) -> None:
    reasons: Iterable[tuple[str, str]] = [
        *((row.backend, f"{row.operation}: {row.reason}") for row in report.rows if row.reason),
        *report.unavailable,
    ]
    if reasons:
        add(body, "h2", "Not run")
        items = add(body, "ul")
        for name, reason in reasons:
            add(items, "li", f"{name}: {reason}")
