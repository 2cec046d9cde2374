"""Timing of operations whose arrays are on a device, against PyTorch on the same device and a plain copy there.

All inputs are on the device before the measurement, and results stay there, in new memory at each call. Times are those
of the device. Layers have a batch that fills a large GPU: at least 64 images, and as many as the operation needs to
move 256 MB or to do 50 GFLOP. The values of a few images are repeated. PyTorch computes in float32 (no TF32) on
channels-last tensors in the same memory. Results are compared in their first images: all of them are one image.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mpsref import registry
from mpsref.arguments.device import DeviceArrays
from mpsref.backend import Timed, Timing
from mpsref.bench.report import Measurement
from mpsref.bench.timing import MINIMAL_ROUNDS, Call, difference, in_turn
from mpsref.conformance import data
from mpsref.conformance.layer import Layer
from mpsref.kernels import FullyConnected
from mpsref.registry import Backend, Problem

IMAGES, FILLING_BYTES, FILLING_FLOPS = 64, 256_000_000, 50_000_000_000
"""A batch has at least this many images, and moves as many bytes or has as much arithmetic."""

COPIED = 2**16
"""The copy moves a multiple of this many bytes."""

COMPARED = 2**23
"""About as many elements of a result are compared with those of PyTorch: its first images."""

PRODUCT = 8192
"""Rows and columns of the matrices whose product is the limit of arithmetic."""


class DeviceSession(NamedTuple):
    """The settings of all measurements of a run on a device."""

    pytorch: Timing | None
    arrays: DeviceArrays
    rounds: int
    product: float
    """Operations of a matrix product in a second; infinite without PyTorch."""


def session(pytorch: Timing | None, arrays: DeviceArrays, rounds: int) -> DeviceSession:
    """Return a session, with the rate of a matrix product of PyTorch: a fully connected layer."""
    product = math.inf
    if pytorch is not None:
        spec = FullyConnected(1)
        problem = spec.problems["forward"](spec, (PRODUCT, 1, 1, PRODUCT), PRODUCT, (1, 1), False)
        square = np.repeat(data.values((1, 1, 1, PRODUCT), "float32", "real", 1), PRODUCT, axis=0)
        timed = pytorch.timed(problem, (square, square))
        assert timed is not None
        product = 2 * PRODUCT**3 / arrays.timer(timed.call)()
    return DeviceSession(pytorch, arrays, rounds, product)


def filling(layer: Layer, methods: tuple[str, ...], nbytes: Callable[[Problem], int]) -> Layer:
    """Return a layer with a batch that fills a large GPU."""
    one = _with_batch(layer, 1)
    problems = [one.problem(method) for method in methods]
    of_bytes = FILLING_BYTES / max(nbytes(problem) for problem in problems)
    flops = max(problem.flops for problem in problems)
    images = max(IMAGES, math.ceil(min(of_bytes, FILLING_FLOPS / flops) if flops else of_bytes))
    return _with_batch(layer, images)


def _with_batch(layer: Layer, images: int) -> Layer:
    """Return a layer with another number of images, also of the images in its call."""
    call = {key: (images, *value[1:]) if key.endswith("shape") else value for key, value in layer.call.items()}
    return replace(layer, source_shape=(images, *layer.source_shape[1:]), call=call)


def measure(
    name: str,
    methods: tuple[str, ...],
    layer: Layer,
    backends: list[Backend],
    nbytes: Callable[[Problem], int],
    session: DeviceSession,
    seconds: float,
) -> Measurement:
    """Time operations of a layer with each backend, a copy, and PyTorch, in turns; medians.

    The rounds end after ``seconds``, but not before the third one.
    """
    end = time.perf_counter() + seconds
    large = filling(layer, methods, nbytes)
    problems = [large.problem(method) for method in methods]
    named = _inputs(layer, methods, problems, session.arrays)
    inputs = [tuple(named[key] for key in problem.input_shapes) for problem in problems]
    moved, flops = sum(map(nbytes, problems)), sum(problem.flops for problem in problems)
    calls = {
        backend.name: in_turn(
            [_call(problem, own, backend, session.arrays) for problem, own in zip(problems, inputs, strict=True)]
        )
        for backend in backends
    }
    theirs: Timed | None = None
    differs: float | None = None
    if session.pytorch is not None:
        given = {key: np.asarray(array) for key, array in named.items()}
        if len(problems) > 1:
            theirs = session.pytorch.together(layer.spec, given)
        else:
            theirs = session.pytorch.timed(problems[0], [given[key] for key in problems[0].input_shapes])
    if theirs is not None and len(problems) == 1:
        found = [difference(_first_images(call()), _first_images(theirs.results)) for call in calls.values()]
        differs = max((one for one in found if one is not None), default=None)
    block = max(1, min(COPIED, moved // 2) // 4)
    source = session.arrays.put(np.zeros((1, block), np.uint32), (max(1, moved // 8 // block), block))
    timers = [session.arrays.timer(call) for call in (*calls.values(), source.copy, *([theirs.call] if theirs else []))]
    times: list[list[float]] = []
    while len(times) < session.rounds and (len(times) < MINIMAL_ROUNDS or time.perf_counter() < end):
        times.append([timer() for timer in timers])
    medians = [statistics.median(mine) for mine in zip(*times, strict=True)]
    return Measurement(
        name,
        layer.name,
        large.source_shape,
        moved,
        flops,
        dict(zip(calls, medians, strict=False)),
        medians[len(calls)],
        medians[-1] if theirs and not differs else None,
        flops / session.product,
        differs,
    )


def _first_images(results: Any) -> tuple[Any, ...]:
    """Return the first part of each result."""
    several = results if isinstance(results, tuple) else (results,)
    return tuple(one[: max(1, COMPARED * one.shape[0] // max(1, one.size))] for one in several)


def _call(problem: Problem, inputs: tuple[Any, ...], backend: Backend, arrays: DeviceArrays) -> Call:
    if inputs:
        return lambda: registry.run(problem, *inputs, backend=backend)
    ((shape, dtype),) = zip(problem.result_shapes, problem.result_dtypes(), strict=True)
    out = arrays.put(np.zeros((1, *shape[1:]), dtype), shape)  # without inputs, the result names the device
    return lambda: registry.run(problem, out=out, backend=backend)


def _inputs(layer: Layer, methods: tuple[str, ...], problems: list[Problem], arrays: DeviceArrays) -> dict[str, Any]:
    """Return all inputs by name: those of one image, repeated for the batch."""
    one = _with_batch(layer, 1)
    named: dict[str, Any] = {}
    for method, problem in zip(methods, problems, strict=True):
        small = one.problem(method)
        values = data.inputs(small, "float32", "real", 1)
        for (key, shape), value in zip(problem.input_shapes.items(), values, strict=True):
            if key not in named:
                named[key] = arrays.put(value, shape)
    return named
