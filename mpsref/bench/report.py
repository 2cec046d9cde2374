"""The report of a benchmark: measurements, their means, and tables."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from mpsref.bench.timing import MINIMAL_ROUNDS

FORMAT = 1
"""Version of the names in the JSON form."""

COUNTED_BYTES = 1_000_000
"""Layers that move less are shown, but excluded from the means: the call costs more than the pixels."""


FURTHEST = 10
"""The number of operations in the table of those furthest from their limit."""


@dataclass(frozen=True)
class Measurement:
    """One operation of one layer; times in seconds."""

    operation: str
    layer: str
    shape: tuple[int, ...]
    """The source image, (N, H, W, C)."""
    nbytes: int
    """Bytes of all inputs and results."""
    flops: int
    """Multiplications and additions of operations that are bound by arithmetic; else 0."""
    backends: Mapping[str, float]
    """By name, without those that lack the operation."""
    copy: float
    pytorch: float | None
    """``None`` where PyTorch is not installed or has no such operation."""
    product: float = 0.0
    """Time of as many multiplications and additions in a matrix product."""
    difference: float | None = None
    """The largest difference of the result of PyTorch on a device, if it has another result and is not timed."""

    @property
    def limit(self) -> float:
        """The least time that the machine allows: that of the copy or of the matrix product."""
        return max(self.copy, self.product)

    def speedup(self, backend: str) -> float | None:
        """Return how many times as fast as PyTorch a backend is."""
        return None if self.pytorch is None else self.pytorch / self.backends[backend]

    def bandwidth(self, backend: str) -> float:
        """Return what fraction of a plain copy's bandwidth a backend reaches."""
        return self.copy / self.backends[backend]


@dataclass(frozen=True)
class Mean:
    """Geometric means over the layers that move at least 1 MB."""

    operation: str
    backend: str
    layers: int
    speedup: float | None
    """Over the layers that PyTorch can compute; ``compared`` is their number."""
    compared: int
    bandwidth: float
    limit: float
    """Fraction of the limit, which is that of the copy or of the matrix product."""


@dataclass(frozen=True)
class Scaling:
    """The cost of one operation as one axis grows; linear cost is a constant time per element."""

    operation: str
    backend: str
    axis: str
    """N, H, W or C."""
    shapes: tuple[tuple[int, ...], ...]
    nanoseconds: tuple[float, ...]
    """Per element read or written, for each of ``shapes``."""


@dataclass(frozen=True)
class BenchReport:
    """All measurements, and the machine."""

    version: str
    machine: str
    cores: int
    pytorch: str
    """Its version, or why it was not measured."""
    devices: Mapping[str, str]
    """The device of each backend."""
    rounds: int
    measurements: tuple[Measurement, ...]
    scaling: tuple[Scaling, ...]
    left: tuple[str, ...] = ()
    """Operations and layers that were not measured: the time was spent, or the run was interrupted."""

    @property
    def heading(self) -> tuple[str, str]:
        """What was measured where, and what a time is."""
        versions = f"mpsref {self.version}; {self.machine}; {self.cores} cores; PyTorch {self.pytorch}"
        fewer = f"of {min(MINIMAL_ROUNDS, self.rounds)} at least where its share of the seconds is spent"
        times = f"A time is the median of {self.rounds} rounds of one run; {fewer}, and of one for a longer call."
        return versions, times

    def means(self) -> list[Mean]:
        """Return the geometric means of each operation and backend."""
        means = []
        for operation, backend in itertools.product(
            dict.fromkeys(m.operation for m in self.measurements), self.devices
        ):
            counted = [
                m
                for m in self.measurements
                if m.operation == operation and m.nbytes >= COUNTED_BYTES and backend in m.backends
            ]
            if counted:
                speedups = [s for s in (m.speedup(backend) for m in counted) if s is not None]
                bandwidth = statistics.geometric_mean(m.bandwidth(backend) for m in counted)
                speedup = statistics.geometric_mean(speedups) if speedups else None
                limit = statistics.geometric_mean(m.limit / m.backends[backend] for m in counted)
                means.append(Mean(operation, backend, len(counted), speedup, len(speedups), bandwidth, limit))
        return means

    def json(self) -> str:
        """Return the report as JSON; its names and their meaning are stable within one ``format``."""
        return json.dumps(
            {"format": FORMAT, **asdict(self), "means": [asdict(mean) for mean in self.means()]}, indent=2
        )


def render(report: BenchReport, console: Any) -> None:
    """Print the report as tables on a ``rich`` console."""
    from rich import box
    from rich.table import Table

    table_of = partial(Table, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)

    console.print(*report.heading, sep="\n")
    for name, device in report.devices.items():
        console.print(f"{name}: {device}", highlight=False)
    for m in report.measurements:
        if m.difference is not None:
            console.print(f"{m.operation} {m.layer}: PyTorch is not timed, its result differs by {m.difference:.2g}")
    for operation in dict.fromkeys(m.operation for m in report.measurements):
        rate = "GFLOP/s" if any(m.flops for m in report.measurements if m.operation == operation) else "of copy"
        columns = ["layer", "MB", "copy ms", "PyTorch ms"]
        for name in report.devices:
            columns += [f"{name} ms", "x PyTorch", rate]
        table = table_of(*columns, title=operation)
        for m in report.measurements:
            if m.operation == operation:
                table.add_row(m.layer, f"{m.nbytes / 1e6:.2f}", _ms(m.copy), _ms(m.pytorch), *_cells(m, report.devices))
        console.print(table)
    if report.left:
        count, names = len(report.left), ", ".join(report.left)
        console.print(f"{count} of {count + len(report.measurements)} are not measured: {names}", highlight=False)
    means = table_of("operation", "backend", "x PyTorch", "of copy", title="Geometric means, layers of at least 1 MB")
    for mean in report.means():
        compared = "-" if mean.speedup is None else f"{mean.speedup:.2f} ({mean.compared} layers)"
        means.add_row(mean.operation, mean.backend, compared, f"{mean.bandwidth:.0%} ({mean.layers} layers)")
    console.print(means)
    furthest = table_of(
        "operation", "backend", "of its limit", "x PyTorch", title="Furthest from the limit of the machine"
    )
    for mean in sorted(report.means(), key=lambda mean: mean.limit)[:FURTHEST]:
        speedup = "-" if mean.speedup is None else f"{mean.speedup:.2f}"
        furthest.add_row(mean.operation, mean.backend, f"{mean.limit:.0%}", speedup)
    if furthest.row_count:
        console.print(furthest, "The limit is a copy of as many bytes, or as much arithmetic in a matrix product.")
    if report.scaling:
        sizes = table_of("operation", "backend", "axis", "size", "ns per element", title="Growth along one axis")
        for row in report.scaling:
            lengths = ", ".join(str(shape["NHWC".index(row.axis)]) for shape in row.shapes)
            each = ", ".join(f"{ns:.3f}" for ns in row.nanoseconds)
            sizes.add_row(row.operation, row.backend, row.axis, lengths, each)
        console.print(sizes)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.3f}"


def _cells(m: Measurement, backends: Iterable[str]) -> Iterator[str]:
    for name in backends:
        if name in m.backends:
            speedup = m.speedup(name)
            rate = f"{m.flops / m.backends[name] / 1e9:.0f}" if m.flops else f"{m.bandwidth(name):.0%}"
            yield from (_ms(m.backends[name]), "-" if speedup is None else f"{speedup:.2f}", rate)
        else:
            yield from ("-", "-", "-")
