"""What ``mpsref check`` shows in a terminal while it runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.progress import TimeRemainingColumn
from rich.text import Text

from mpsref.conformance.report import Row


class Remaining(TimeRemainingColumn):
    """The time left, once a tenth is done: before that kernels are compiled, and an estimate is far off."""

    def render(self, task: Any) -> Text:
        """Return the estimate, or nothing."""
        is_early = task.percentage < 10 or task.time_remaining is None
        return Text() if is_early else Text.assemble("about ", super().render(task), " left")


SLOW = 20
"""Seconds after which the time of a block of cases is shown."""


class State:
    """What is running and for how long, the worst error up to now, and the number of failures."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._since: dict[str, float] = {}

    def watch(self, running: Sequence[str], rows: Sequence[Row]) -> None:
        """Take what runs now, and new rows."""
        now = time.monotonic()
        self._since = {name: self._since.get(name, now) for name in running}
        self.rows.extend(rows)

    def __rich__(self) -> Text:
        times = {name: int(time.monotonic() - since) for name, since in self._since.items()}
        names = ", ".join(name + f" ({seconds} s)" * (seconds >= SLOW) for name, seconds in times.items())
        rows, first = self.rows, "compiling kernels for their first use; the bar counts cases"
        parts = [names if rows else f"{first}: {names}".rstrip(": ")]
        if worst := max((row for row in rows if row.passed), key=used, default=None):
            parts.append(f"{worst.shown_worst} of the bound used: {worst.operation} on {worst.backend}")
        if failed := len({(row.operation, row.backend) for row in rows if row.failures}):
            parts.append(f"{failed} failed")
        return Text("; ".join(filter(None, parts)))


def used(row: Row) -> float:
    """Return the part of its bound that the worst case of a row uses, -1 if there is none."""
    return -1.0 if row.used is None else row.used
