"""The tables of the page "Speed", from recorded reports of ``mpsref bench --json``.

``python scripts/speed.py docs/speed_cpu.json REPORT.json ...`` compares reports with a record: it prints the operations
that lost more than 15 % of their speed relative to PyTorch, or to a copy where PyTorch has no such operation, and ends
with status 1 if there are any. With ``--note``, which names the machine, the day and the commit, the reports are
written as the record.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean
from typing import Annotated, Any

import typer

from mpsref.bench import BenchReport, Mean, Measurement
from mpsref.bench.report import COUNTED_BYTES

DOCS = Path(__file__).parents[1] / "docs"
LOST = 0.85
"""An operation with a smaller part of its recorded speed has lost some."""

DIGITS = 4
"""Significant digits of a recorded time."""

LISTED = 0.9
"""Layers with a smaller part of PyTorch's speed are named; between runs a figure changes by a tenth."""


def read(text: str) -> tuple[BenchReport, str]:
    """Return a report from its JSON, and the note of a record."""
    fields = {name: value for name, value in json.loads(text).items() if name not in ("format", "means")}
    note = fields.pop("note", "")
    fields["measurements"] = tuple(Measurement(**row) for row in fields["measurements"])
    return BenchReport(**{**fields, "scaling": (), "left": tuple(fields["left"])}), note


def joined(reports: Iterable[BenchReport]) -> BenchReport:
    """Return reports of the same machine as one."""
    every = list(reports)
    lists = {name: sum((getattr(report, name) for report in every), ()) for name in ("measurements", "left")}
    return BenchReport(**{**vars(every[0]), **lists})


def written(report: BenchReport, note: str) -> str:
    """Return a record: a report with a measurement on each line."""
    fields = {"note": note, **asdict(report)}
    rows = [json.dumps(row) for row in map(_rounded, fields.pop("measurements"))]
    head = json.dumps(fields, indent=2)[:-2]
    return f'{head},\n  "measurements": [\n    ' + ",\n    ".join(rows) + "\n  ]\n}\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def losses(record: BenchReport, report: BenchReport) -> Iterator[str]:
    """Yield the operations that are slower than recorded, by the layers that both have."""
    (name,) = record.devices
    old, new = ({(m.operation, m.layer): _speed(m, name) for m in one.measurements} for one in (record, report))
    for operation in dict.fromkeys(operation for operation, _ in old):
        ratios = [new[key] / speed for key, speed in old.items() if key[0] == operation and key in new]
        if ratios and (left := geometric_mean(ratios)) < LOST:
            yield f"{operation} has {left:.2f} of its recorded speed ({len(ratios)} layers)"


def _speed(measurement: Measurement, backend: str) -> float:
    return measurement.speedup(backend) or measurement.bandwidth(backend)


def page(path: Path) -> str:
    """Return the section of a record."""
    report, note = read(path.read_text("utf-8"))
    (name,) = report.devices
    counted = [m for m in report.measurements if m.nbytes >= COUNTED_BYTES]
    compared = [speed for m in counted if (speed := m.speedup(name)) is not None]
    means = report.means()
    machine, times = report.heading
    parts = [
        f"{note}: {machine}. {times} There are {len(report.measurements)} measurements; the {len(counted)} of "
        f"layers that move 1 MB or more count. PyTorch computes {len(compared)} of them, too; their geometric mean is "
        f"{geometric_mean(compared):.2f} times its speed.",
        *_tables(means, counted, name),
        *_slower(means, counted, name),
    ]
    if report.left:
        parts.append(f"{len(report.left)} were not measured: {', '.join(report.left)}.")
    return "\n\n".join(parts)


def _tables(means: list[Mean], counted: list[Measurement], name: str) -> Iterator[str]:
    bound = {m.operation for m in counted if m.flops}
    for unit, chosen in (("of a copy", lambda x: x not in bound), ("GFLOP/s", bound.__contains__)):
        rows = [f"| operation | layers | {unit} | x PyTorch |", "| --- | --- | --- | --- |"]
        for mean in filter(lambda mean: chosen(mean.operation), sorted(means, key=lambda mean: mean.operation)):
            flops = [m.flops / m.backends[name] / 1e9 for m in counted if m.operation == mean.operation and m.flops]
            rate = f"{geometric_mean(flops):.0f}" if flops else f"{mean.bandwidth:.0%}"
            speedup = "-" if mean.speedup is None else f"{mean.speedup:.2f}"
            rows.append(f"| `{mean.operation}` | {mean.layers} | {rate} | {speedup} |")
        yield "\n".join(rows)


def _slower(means: list[Mean], counted: list[Measurement], name: str) -> Iterator[str]:
    """Yield the operations, and then the layers, that are slower than PyTorch."""
    slow = [f"`{mean.operation}` {mean.speedup:.2f}" for mean in means if mean.speedup is not None and mean.speedup < 1]
    yield f"Operations slower than PyTorch in the mean: {', '.join(slow) or 'none'}."
    lines = []
    for operation in sorted({m.operation for m in counted}):
        speeds = {
            m.layer: speed for m in counted if m.operation == operation and (speed := m.speedup(name)) is not None
        }
        named = [
            f"{layer} {speed:.2f}"
            for speed, layer in sorted(zip(speeds.values(), speeds, strict=True))
            if speed < LISTED
        ]
        if below := sum(speed < 1 for speed in speeds.values()):
            lines.append(f"- `{operation}`, {below} of {len(speeds)}" + (": " if named else "") + ", ".join(named))
    yield f"Numbers of layers slower than PyTorch, with the names of those below {LISTED:.0%} of its speed:"
    yield "\n".join(lines) or "- none"


def cpu() -> str:
    """Return the section on the cpu backend."""
    return page(DOCS / "speed_cpu.json")


def nvidia() -> str:
    """Return the section on NVIDIA GPUs."""
    return page(DOCS / "speed_nvidia.json")


def main(
    record: Annotated[Path, typer.Argument(help="docs/speed_cpu.json or docs/speed_nvidia.json")],
    reports: Annotated[list[Path], typer.Argument(help="Output of mpsref bench --json; several are joined.")],
    note: Annotated[str, typer.Option(help="Write the reports as the record, with this text.")] = "",
) -> None:
    """Compare reports with a record, or write them as the record."""
    report = joined(read(path.read_text("utf-8"))[0] for path in reports)
    if note:
        record.write_text(written(report, note), "utf-8")
        return
    found = list(losses(read(record.read_text("utf-8"))[0], report))
    print(*found or ["no operation has lost speed"], sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    typer.run(main)
