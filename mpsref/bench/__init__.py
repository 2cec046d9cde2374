"""How fast: backends on layers of published networks, beside PyTorch and a plain copy of as many bytes.

All runners of a layer take turns in one process, for several rounds; the median counts. Before each turn there is a
pause, until the threads of the last one sleep. Each computes on the same float32 pixels, in the same memory layout
(NHWC, which PyTorch calls channels_last), with as many threads as there are cores. Results are allocated anew at each
call, as users do it; beyond 30 MB, where a fresh result costs more in page faults than in arithmetic, everyone writes
into memory that is there. The copy moves as many bytes as the operation reads and writes at least, half of them read
and half written, into memory that is there, in as many threads. Operations that PyTorch does in one, as it does batch
normalization, are measured together as well: one after the other, on the same images.

PyTorch is optional: without it its column says so.
"""

from __future__ import annotations

import itertools
import json
import math
import platform
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

import mpsref
from mpsref import registry
from mpsref.arguments.arrays import Array
from mpsref.bench.timing import copying, in_turn, take_turns
from mpsref.conformance import data, families, torch_equivalents
from mpsref.conformance import layers as model_layers
from mpsref.conformance.case import operations as all_operations
from mpsref.conformance.layer import Layer
from mpsref.conformance.torch_equivalents import Call
from mpsref.machine import cores
from mpsref.registry import Backend, Operation, Problem, Spec

__all__ = ["BenchReport", "Mean", "Measurement", "Scaling", "render", "run"]

FORMAT = 1
"""Version of the names in the JSON form."""

FRESH_BYTES = 30_000_000
"""Larger results are written into memory that is there."""

COUNTED_BYTES = 1_000_000
"""Layers that move less are shown, but do not count in the means: there the call costs more than the pixels."""


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
    """Multiplications and additions, where they are what the operation costs; else 0."""
    backends: Mapping[str, float]
    """By name; without those that do not implement the operation."""
    copy: float
    pytorch: float | None
    """``None`` where PyTorch is not installed or has no such operation."""

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
    """Over the layers that PyTorch can compute; how many they are is ``compared``."""
    compared: int
    bandwidth: float


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
    """Everything that was measured, and on what."""

    version: str
    machine: str
    cores: int
    pytorch: str
    """Its version, or why it was not measured."""
    devices: Mapping[str, str]
    """What each backend ran on."""
    rounds: int
    measurements: tuple[Measurement, ...]
    scaling: tuple[Scaling, ...]

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
                means.append(Mean(operation, backend, len(counted), speedup, len(speedups), bandwidth))
        return means

    def json(self) -> str:
        """Return the report as JSON; its names and their meaning are stable within one ``format``."""
        return json.dumps(
            {"format": FORMAT, **asdict(self), "means": [asdict(mean) for mean in self.means()]}, indent=2
        )


def run(
    backends: str | Backend | Iterable[str | Backend] = "cpu",
    operations: Iterable[Operation] | None = None,
    layers: Iterable[str | Layer] | None = None,
    rounds: int = 7,
    scaling: bool = True,
    progress: Callable[[str], None] = lambda title: None,
) -> BenchReport:
    """Time ``backends`` on ``operations`` (default: all) of ``layers`` (default: all there are).

    ``progress(title)`` is called before each step. Raises ``ValueError`` for unknown names, for a backend that cannot
    run here, and where a backend and PyTorch do not agree: the time of a wrong answer says nothing.
    """
    chosen = registry.get_available(backends)
    names = model_layers.load() if layers is None else layers
    known = [model_layers.by_name(layer) if isinstance(layer, str) else layer for layer in names]
    wanted = list(all_operations() if operations is None else operations)
    count = cores()
    measurements: list[Measurement] = []
    scalings: list[Scaling] = []
    with ThreadPoolExecutor(count) as pool, torch_equivalents.session(count) as (torch, version):
        session = _Session(torch, pool, count, rounds)
        for operation in wanted:
            mine = [x for x in known if isinstance(x.spec, operation.spec_type) and operation.method in x.methods]
            able = [backend for backend in chosen if operation in backend.implementations]
            for layer in mine:
                progress(f"{operation} {layer.name}")
                measurements.append(_measure(operation, layer, able, session))
            for layer, backend in itertools.product(mine[:1] if scaling else [], able):
                progress(f"{operation} {backend.name} three sizes of each axis")
                scalings += _scale(operation, layer, backend, rounds)
        for spec_type, (methods, _) in families.joint_equivalents().items():
            whole = {Operation(spec_type, method) for method in methods}
            able = [backend for backend in chosen if all(operation in backend.implementations for operation in whole)]
            for layer in known if whole <= {*wanted} else []:
                if isinstance(layer.spec, spec_type) and {*methods} <= {*layer.methods}:
                    progress(f"{spec_type.__name__} together {layer.name}")
                    measurements.append(_measure_together(spec_type, layer, able, session))
    devices = {backend.name: backend.device() for backend in chosen}
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    return BenchReport(
        mpsref.__version__, machine, count, version, devices, rounds, tuple(measurements), tuple(scalings)
    )


class _Session(NamedTuple):
    """What all measurements of a run have in common."""

    torch: Any
    """PyTorch, or ``None``."""
    pool: ThreadPoolExecutor
    threads: int
    rounds: int


def _outs(problem: Problem) -> tuple[Array, ...] | None:
    """Return memory for the results if they are so large that they are not allocated at each call."""
    sizes = [4 * math.prod(shape) for shape in problem.result_shapes]
    return tuple(np.zeros(shape, np.float32) for shape in problem.result_shapes) if sum(sizes) > FRESH_BYTES else None


def _call(problem: Problem, inputs: tuple[Array, ...], backend: Backend) -> Call:
    outs = _outs(problem)
    out = outs[0] if outs and len(outs) == 1 else outs
    return lambda: registry.run(problem, *inputs, out=out, backend=backend)


def _torch_call(torch: Any, problem: Problem, inputs: tuple[Array, ...]) -> Call | None:
    equivalent = families.torch_equivalents().get(type(problem.spec))
    return equivalent(torch, problem, inputs, _outs(problem)) if equivalent else None


def _measure(operation: Operation, layer: Layer, backends: Sequence[Backend], session: _Session) -> Measurement:
    problem = layer.problem(operation.method)
    inputs = data.inputs(problem, "float32", "real", 1)
    calls = {backend.name: _call(problem, inputs, backend) for backend in backends}
    copy = copying(_nbytes(problem), session.pool, session.threads)
    theirs = _torch_call(session.torch, problem, inputs) if session.torch else None
    if theirs is not None:
        for name, call in calls.items():
            _same(f"{operation} of {layer.name}", name, call(), torch_equivalents.arrays(theirs()))
    return _measured(str(operation), layer, [problem], calls, copy, theirs, session.rounds)


def _measure_together(
    spec_type: type[Spec], layer: Layer, backends: Sequence[Backend], session: _Session
) -> Measurement:
    """Time operations that PyTorch does in one, one after the other on the same images."""
    methods, equivalent = families.joint_equivalents()[spec_type]
    problems = [layer.problem(method) for method in methods]
    named: dict[str, Array] = {}
    for problem in problems:
        named |= dict(zip(problem.input_shapes, data.inputs(problem, "float32", "real", 1), strict=True))
    inputs = [tuple(named[name] for name in problem.input_shapes) for problem in problems]
    calls = {
        backend.name: in_turn([_call(problem, own, backend) for problem, own in zip(problems, inputs, strict=True)])
        for backend in backends
    }
    copy = in_turn([copying(_nbytes(problem), session.pool, session.threads) for problem in problems])
    theirs = equivalent(session.torch, layer.spec, named) if session.torch else None
    return _measured(f"{spec_type.__name__}.together", layer, problems, calls, copy, theirs, session.rounds)


def _measured(
    operation: str,
    layer: Layer,
    problems: Sequence[Problem],
    backends: Mapping[str, Call],
    copy: Call,
    theirs: Call | None,
    rounds: int,
) -> Measurement:
    calls = [*backends.values(), copy, *([] if theirs is None else [theirs])]
    times = take_turns(calls, rounds)
    return Measurement(
        operation,
        layer.name,
        layer.source_shape,
        sum(map(_nbytes, problems)),
        sum(problem.flops for problem in problems),
        dict(zip(backends, times, strict=False)),
        times[len(backends)],
        None if theirs is None else times[-1],
    )


def _nbytes(problem: Problem) -> int:
    """Return how many bytes a problem reads and writes at least, in float32."""
    return 4 * sum(math.prod(shape) for shape in (*problem.input_shapes.values(), *problem.result_shapes))


def _scale(operation: Operation, layer: Layer, backend: Backend, rounds: int) -> Iterator[Scaling]:
    """Time three sizes of each axis, from 4 images of 64 channels on, which are neither too small nor too large."""
    base = layer.small(channels=64, batch=4)
    for axis, name in enumerate("NHWC"):
        layers = [base.grown(axis, factor) for factor in (1, 2, 4)]
        problems = [grown.problem(operation.method) for grown in layers]
        calls = [_call(problem, data.inputs(problem, "float32", "real", 1), backend) for problem in problems]
        sizes = [_nbytes(problem) // 4 for problem in problems]
        each = tuple(1e9 * t / size for t, size in zip(take_turns(calls, rounds), sizes, strict=True))
        yield Scaling(str(operation), backend.name, name, tuple(grown.source_shape for grown in layers), each)


def _same(what: str, backend: str, ours: Any, theirs: Sequence[Array]) -> None:
    """Raise ``ValueError`` if PyTorch computes something else; it may give fewer results."""
    for own, other in zip(ours if isinstance(ours, tuple) else (ours,), theirs, strict=False):
        if own.shape == other.shape:
            tolerance = 1e-4 * max(1.0, float(np.abs(other).max(initial=0.0)))
            if np.allclose(own, other, rtol=1e-4, atol=tolerance):
                continue
        raise ValueError(f"{what}: backend {backend!r} and PyTorch do not agree, so their times cannot be compared")


def render(report: BenchReport, console: Any) -> None:
    """Print the report as tables on a ``rich`` console."""
    from rich.table import Table

    console.print(f"mpsref {report.version}; {report.machine}; {report.cores} cores; PyTorch {report.pytorch}")
    for name, device in report.devices.items():
        console.print(f"{name}: {device}", highlight=False)
    for operation in dict.fromkeys(m.operation for m in report.measurements):
        rate = "GFLOP/s" if any(m.flops for m in report.measurements if m.operation == operation) else "of copy"
        columns = ["layer", "MB", "copy ms", "PyTorch ms"]
        for name in report.devices:
            columns += [f"{name} ms", "x PyTorch", rate]
        table = Table(*columns, title=operation)
        for m in report.measurements:
            if m.operation == operation:
                table.add_row(m.layer, f"{m.nbytes / 1e6:.2f}", _ms(m.copy), _ms(m.pytorch), *_cells(m, report.devices))
        console.print(table)
    means = Table("operation", "backend", "x PyTorch", "of copy", title="Geometric means, layers of at least 1 MB")
    for mean in report.means():
        compared = "-" if mean.speedup is None else f"{mean.speedup:.2f} ({mean.compared} layers)"
        means.add_row(mean.operation, mean.backend, compared, f"{mean.bandwidth:.0%} ({mean.layers} layers)")
    console.print(means)
    if report.scaling:
        sizes = Table("operation", "backend", "axis", "size", "ns per element", title="Growth along one axis")
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
