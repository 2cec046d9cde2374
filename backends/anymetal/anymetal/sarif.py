"""Findings in SARIF 2.1.0, which hosts of source code show beside the lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .clang.findings import KINDS, Finding
from .clang.lines import Place
from .frontend.lexer import NAME

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(findings: Iterable[Finding], file: str) -> dict[str, Any]:
    """Return a log as JSON data; ``file`` is the path of the source.

    Examples
    --------
    >>> log = sarif([Finding("race", "error", "two threads", Place("<msl>", 3, 5))], "sum.metal")
    >>> log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]
    {'startLine': 3, 'startColumn': 5}
    """
    rules = [{"id": kind, "defaultConfiguration": {"level": level}} for kind, level in KINDS.items()]
    results = [
        {
            "ruleId": one.kind,
            "level": one.level,
            "message": {"text": f"{one.message}. {one.advice}".rstrip(". ") + "."},
            "locations": [_location(one.place, file)],
        }
        | ({"relatedLocations": [_location(one.other, file)]} if one.other else {})
        for one in findings
    ]
    driver = {"name": "anymetal", "rules": rules}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _location(place: Place | None, file: str) -> dict[str, Any]:
    path = file if place is None or place.file == NAME else place.file
    location: dict[str, Any] = {"artifactLocation": {"uri": path}}
    if place is not None:
        location["region"] = {"startLine": place.line} | ({"startColumn": place.column} if place.column else {})
    return {"physicalLocation": location}
