"""Speed of backends on layers of published networks, compared with PyTorch and with a plain copy of as many bytes.

All runners of a layer take turns in one process, for several rounds; the median counts. Before each turn there is a
pause, in which the threads of the previous runner go to sleep. Each computes on the same float32 pixels, in the same
memory layout (NHWC, which PyTorch calls channels_last), with as many threads as there are cores. Results are allocated
at each call, as by users; above 30 MB, where page faults of a fresh result cost more than the arithmetic, all write
into given memory. The copy moves as many bytes as the operation reads and writes at least, half of them read and half
written, into given memory, in as many threads. Arithmetic is compared with the rate of a matrix product in NumPy.
Operations that PyTorch computes in one, such as the four of batch normalization, are also measured together: one after
the other, on the same images.

By default, each operation is measured on at most twelve layers, evenly distributed over the sizes of its layers, and
the number of rounds is reduced, to three at least, so that the whole takes about four minutes, and a minute longer if
kernels must be compiled. A call that takes longer than its share of this time is timed once. On a device, where most of
the time is that of the host, there are at most five layers of each operation: the first ones of all operations are
measured before the second ones, and those for which no time is left are named in the report.

PyTorch is optional: without it, its column has the reason.

Backends whose arrays are on a device are measured there: see :mod:`mpsref.bench.on_device`.
"""

from __future__ import annotations

import itertools
import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import mpsref
from mpsref import registry
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.device import DeviceArrays
from mpsref.backend import Timed, Timing
from mpsref.bench import on_device
from mpsref.bench.report import BenchReport, Mean, Measurement, Scaling, render
from mpsref.bench.timing import Call, Rates, copying, difference, in_turn, rates, take_turns, turn_seconds
from mpsref.conformance import data, families
from mpsref.conformance import layers as model_layers
from mpsref.conformance.layer import Layer
from mpsref.machine import cores
from mpsref.registry import Backend, Operation, Problem

__all__ = ["BenchReport", "Interrupted", "Mean", "Measurement", "Scaling", "render", "representative", "run"]

FRESH_BYTES = 30_000_000
"""Larger results are written into given memory."""

LAYERS, LAYERS_ON_DEVICE = 12, 5
"""The number of representative layers of an operation, for backends on the host and on a device."""

SECONDS_ON_DEVICE = 1.0
"""Estimated time of a measurement on a device, most of which is spent by compilers and on the host."""

SECONDS = 220.0
"""The time for a run by default."""

MEASURED = 0.7
"""The part of this time for turns; the rest is for values of images and first calls of kernels that are compiled."""


def run(
    backends: str | Backend | Iterable[str | Backend] = "cpu",
    operations: Iterable[Operation] | None = None,
    layers: Iterable[str | Layer] | None = None,
    rounds: int = 7,
    scaling: bool = False,
    seconds: float = SECONDS,
    progress: Callable[[str, float, float], None] = lambda title, done, total: None,
) -> BenchReport:
    """Time backends.

    Parameters
    ----------
    backends : str, Backend or iterable of them
        Names or objects.
    operations : iterable of Operation, optional
        By default all.
    layers : iterable of str or Layer, optional
        Names or objects; default: :func:`representative` layers of each operation.
    rounds : int, optional
        Rounds in which all runners take turns; the median counts.
    scaling : bool, optional
        Whether to time three sizes of each axis as well.
    seconds : float, optional
        Approximate limit of the time of all measurements; may be infinite. Each measurement has a share in proportion
        to its estimated cost, and ends after three rounds or more once its share is spent. A call of more than 50 ms
        that takes longer than this share is measured once.
    progress : callable, optional
        Called before each step with its title, and with the estimated seconds of the completed steps and of all steps.

    Returns
    -------
    BenchReport
        All measurements.

    Raises
    ------
    ValueError
        For an unknown name, and where a backend and PyTorch do not agree: the time of a wrong result means nothing.
    UnsupportedError
        For a backend that cannot run on this machine.
    Interrupted
        For a ``KeyboardInterrupt`` after the first measurement.
    """
    chosen = registry.get_available(backends)
    known = None if layers is None else [model_layers.by_name(x) if isinstance(x, str) else x for x in layers]
    wanted = list(registry.operations() if operations is None else operations)
    arrays = _devices(chosen, scaling) if any(backend.arrays for backend in chosen) else None
    steps = [*_steps(wanted, known, chosen, LAYERS_ON_DEVICE if arrays else LAYERS)]
    steps = _in_turn(steps) if arrays else steps
    found = _Found(chosen, rounds)
    try:
        with _pytorch("torch:cuda" if arrays else "torch", cores()) as (theirs, found.pytorch):
            if arrays:
                _run_on_device(on_device.session(theirs, arrays, rounds), steps, seconds, progress, found)
            else:
                _run_on_host(theirs, steps, scaling, seconds, progress, found)
    except KeyboardInterrupt:
        if not found.measurements:
            raise
        found.left = [str(step) for step in steps[len(found.measurements) :]]
        raise Interrupted(found.report()) from None
    return found.report()


class Interrupted(KeyboardInterrupt):
    """The interrupt of a run.

    Attributes
    ----------
    report : BenchReport
        The measurements that had finished.
    """

    def __init__(self, report: BenchReport) -> None:
        """Keep a report."""
        super().__init__()
        self.report = report


@dataclass
class _Found:
    """What a run has found so far."""

    backends: list[Backend]
    rounds: int
    pytorch: str = ""
    measurements: list[Measurement] = field(default_factory=list)
    scalings: list[Scaling] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def report(self) -> BenchReport:
        devices = {backend.name: backend.device() for backend in self.backends}
        machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
        lists = tuple(self.measurements), tuple(self.scalings), tuple(self.left)
        return BenchReport(mpsref.__version__, machine, cores(), self.pytorch, devices, self.rounds, *lists)


def _run_on_host(
    theirs: Timing | None,
    steps: list[_Step],
    scaling: bool,
    seconds: float,
    progress: Callable[[str, float, float], None],
    found: _Found,
) -> None:
    count = cores()
    with ThreadPoolExecutor(count) as pool:
        session = _Session(theirs, pool, count, found.rounds, rates(pool, count))
        costs = [_seconds(step, session) for step in steps]
        done, total, end = 0.0, sum(costs), time.perf_counter() + seconds
        for step, cost in zip(steps, costs, strict=True):
            progress(str(step), done, total)
            share = MEASURED * (end - time.perf_counter()) * cost / (total - done)
            found.measurements.append(_measure(step, session, share))
            done += cost
        for step in _first_layers(steps) if scaling else []:
            progress(f"{step.name}: three sizes of each axis", done, total)
            for backend in step.backends:
                operation = Operation(type(step.layer.spec), step.methods[0])
                found.scalings += _scale(operation, step.layer, backend, found.rounds)


def _run_on_device(
    session: on_device.DeviceSession,
    steps: list[_Step],
    seconds: float,
    progress: Callable[[str, float, float], None],
    found: _Found,
) -> None:
    """Measure until the time is spent, but one step at least."""
    end = time.perf_counter() + seconds
    each = min(SECONDS_ON_DEVICE, seconds / max(1, len(steps)))
    for done, step in enumerate(steps):
        left = end - time.perf_counter()
        if done and left <= 0:
            found.left = [str(step) for step in steps[done:]]
            break
        progress(str(step), each * done, each * len(steps))
        share = left / (len(steps) - done)
        found.measurements.append(
            on_device.measure(step.name, step.methods, step.layer, step.backends, _nbytes, session, share)
        )


def _in_turn(steps: Iterable[_Step]) -> list[_Step]:
    """Return the first step of each operation, then the second ones."""
    groups = [[*group] for _, group in itertools.groupby(steps, lambda step: step.name)]
    return [step for row in itertools.zip_longest(*groups) for step in row if step is not None]


@contextmanager
def _pytorch(name: str, threads: int) -> Iterator[tuple[Timing | None, str]]:
    """Yield the calls of PyTorch, with this many threads, and its version; or ``None`` and the reason."""
    backend = registry.get_backend(name)
    if (reason := backend.unavailable()) is not None or backend.timing is None:
        yield None, str(reason).removeprefix("PyTorch ").removeprefix("is ")
        return
    with backend.timing.session(threads) as version:
        yield backend.timing, version


def _devices(chosen: list[Backend], scaling: bool) -> DeviceArrays:
    """Return the access to the device that all backends share."""
    devices = {backend.name: backend.arrays for backend in chosen}
    (arrays, *others) = dict.fromkeys(devices.values())
    if others or arrays is None:
        raise ValueError(f"the backends {', '.join(devices)} have their arrays in different places: time them apart")
    if scaling:
        raise ValueError(f"scaling is measured for backends on the host, not for {', '.join(devices)}")
    return arrays


def representative(operation: Operation, count: int = LAYERS) -> list[Layer]:
    """Return at most ``count`` layers of an operation, evenly distributed over their cost.

    >>> from mpsref import Operation, PoolingAverage
    >>> len(representative(Operation(PoolingAverage, "gradient")))
    12
    """
    found = [layer for layer in model_layers.load(operation.spec_type.__name__) if operation.method in layer.methods]
    if len(found) <= count:
        return found
    problems = {layer: layer.problem(operation.method) for layer in found}
    found.sort(key=lambda layer: (problems[layer].flops, _nbytes(problems[layer])))
    return [found[(2 * k + 1) * len(found) // (2 * count)] for k in range(count)]


class _Step(NamedTuple):
    """An operation of a layer; or several, which PyTorch computes in one."""

    name: str
    methods: tuple[str, ...]
    layer: Layer
    backends: list[Backend]

    def __str__(self) -> str:
        return f"{self.name} {self.layer.name}"

    def problems(self) -> list[Problem]:
        return [self.layer.problem(method) for method in self.methods]


def _steps(
    wanted: list[Operation], known: list[Layer] | None, chosen: Sequence[Backend], count: int = LAYERS
) -> Iterator[_Step]:
    for operation in wanted:
        able = [backend for backend in chosen if operation in backend.implementations]
        for layer in representative(operation, count) if known is None else known:
            if isinstance(layer.spec, operation.spec_type) and operation.method in layer.methods:
                yield _Step(str(operation), (operation.method,), layer, able)
    for spec_type, methods in families.together().items():
        whole = [Operation(spec_type, method) for method in methods]
        if {*whole} <= {*wanted}:
            able = [backend for backend in chosen if {*whole} <= backend.implementations.keys()]
            for layer in representative(whole[-1], count) if known is None else known:
                if isinstance(layer.spec, spec_type) and {*methods} <= {*layer.methods}:
                    yield _Step(f"{spec_type.__name__}.together", methods, layer, able)


def _first_layers(steps: list[_Step]) -> list[_Step]:
    """Return the first step of each operation."""
    return list({step.name: step for step in reversed(steps) if len(step.methods) == 1}.values())[::-1]


class _Session(NamedTuple):
    """The settings of all measurements of a run."""

    pytorch: Timing | None
    pool: ThreadPoolExecutor
    threads: int
    rounds: int
    rates: Rates


def _seconds(step: _Step, session: _Session) -> float:
    """Estimate the time of a measurement: each runner at half of the rates of a copy and of a matrix product."""
    problems = step.problems()
    call = 2 * (
        sum(map(_nbytes, problems)) / session.rates.copy
        + sum(problem.flops for problem in problems) / session.rates.product
    )
    return session.rounds * (len(step.backends) + 2) * turn_seconds(call)


def _outs(problem: Problem) -> tuple[Array, ...] | None:
    """Return memory for results that are too large to be allocated at each call."""
    _, results = _arrays(problem)
    return tuple(np.zeros(shape, dtype) for shape, dtype in results) if _size(results) > FRESH_BYTES else None


def _call(problem: Problem, inputs: tuple[Array, ...], backend: Backend) -> Call:
    outs = _outs(problem)
    out = outs[0] if outs and len(outs) == 1 else outs
    return lambda: registry.run(problem, *inputs, out=out, backend=backend)


def _measure(step: _Step, session: _Session, seconds: float) -> Measurement:
    """Time a step, for at least three rounds and about ``seconds``."""
    name, _, layer, backends = step
    problems = step.problems()
    named: dict[str, Array] = {}
    for problem in problems:
        named |= dict(zip(problem.input_shapes, data.inputs(problem, "float32", "real", 1), strict=True))
    inputs = [tuple(named[name] for name in problem.input_shapes) for problem in problems]
    calls = {
        backend.name: in_turn([_call(problem, own, backend) for problem, own in zip(problems, inputs, strict=True)])
        for backend in backends
    }
    copy = in_turn([copying(_nbytes(problem), session.pool, session.threads) for problem in problems])
    theirs: Timed | None = None
    if session.pytorch and len(problems) > 1:
        theirs = session.pytorch.together(layer.spec, named)
    elif session.pytorch:
        theirs = session.pytorch.timed(problems[0], inputs[0], fresh=_outs(problems[0]) is None)
    for backend, call in calls.items():
        result = call()  # the first one, which may compile
        if theirs and len(problems) == 1 and difference(result, theirs.results) is not None:
            raise ValueError(
                f"{name} of {layer.name}: backend {backend!r} and PyTorch do not agree, so their times cannot be "
                "compared"
            )
        del result
    pytorch = theirs.call if theirs else None
    del theirs  # its results: memory that calls allocate in may be used before
    runners = [*calls.values(), copy, *([pytorch] if pytorch else [])]
    for runner in runners[len(calls) :]:
        runner()
    times = take_turns(runners, session.rounds, seconds)
    return Measurement(
        name,
        layer.name,
        layer.source_shape,
        sum(map(_nbytes, problems)),
        sum(problem.flops for problem in problems),
        dict(zip(calls, times, strict=False)),
        times[len(calls)],
        times[-1] if pytorch else None,
        sum(problem.flops for problem in problems) / session.rates.product,
    )


def _nbytes(problem: Problem) -> int:
    """Return the bytes that a problem with float32 images reads and writes at least; masks of dropout are uint8."""
    return sum(map(_size, _arrays(problem)))


def _arrays(problem: Problem) -> tuple[list[tuple[Shape, np.dtype[Any]]], list[tuple[Shape, np.dtype[Any]]]]:
    """Return shape and dtype of the inputs and of the results of a problem with float32 images."""
    dtypes = problem.input_dtypes(np.dtype(np.float32))
    inputs = [(shape, dtypes[name]) for name, shape in problem.input_shapes.items()]
    return inputs, [*zip(problem.result_shapes, problem.result_dtypes(*dtypes.values()), strict=True)]


def _size(arrays: list[tuple[Shape, np.dtype[Any]]]) -> int:
    return sum(dtype.itemsize * math.prod(shape) for shape, dtype in arrays)


def _scale(operation: Operation, layer: Layer, backend: Backend, rounds: int) -> Iterator[Scaling]:
    """Time three sizes of each axis, from 4 images of 64 channels: neither too small nor too large."""
    base = layer.small(channels=64, batch=4)
    for axis, name in enumerate("NHWC"):
        layers = [base.grown(axis, factor) for factor in (1, 2, 4)]
        problems = [grown.problem(operation.method) for grown in layers]
        calls = [_call(problem, data.inputs(problem, "float32", "real", 1), backend) for problem in problems]
        for call in calls:
            call()  # may compile
        sizes = [_nbytes(problem) // 4 for problem in problems]
        each = tuple(1e9 * t / size for t, size in zip(take_turns(calls, rounds), sizes, strict=True))
        yield Scaling(str(operation), backend.name, name, tuple(grown.source_shape for grown in layers), each)
