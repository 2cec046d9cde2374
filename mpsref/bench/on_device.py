"""Timing of operations whose arrays are on a device, against PyTorch on the same device and a plain copy there.

All inputs are on the device before the measurement, and results stay there, in new memory at each call. Times are those
of the device. Layers have a batch that fills a large GPU: at least 64 images, and as many as the operation needs to
move 256 MB or to do 50 GFLOP. The values of a few images are repeated. PyTorch computes in float32 (no TF32) on
channels-last tensors in the same memory.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mpsref import registry
from mpsref.arguments.device import DeviceArrays
from mpsref.bench.report import Measurement
from mpsref.bench.timing import in_turn
from mpsref.conformance import data, families, torch_equivalents
from mpsref.conformance.layer import Layer
from mpsref.conformance.torch_equivalents import Call
from mpsref.registry import Backend, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

IMAGES, FILLING_BYTES, FILLING_FLOPS = 64, 256_000_000, 50_000_000_000
"""A batch has at least this many images, and moves as many bytes or has as much arithmetic."""

PRODUCT = 8192
"""Rows and columns of the matrices whose product is the limit of arithmetic."""


class DeviceSession(NamedTuple):
    """The settings of all measurements of a run on a device."""

    torch: ModuleType | None
    arrays: DeviceArrays
    rounds: int
    product: float
    """Operations of a matrix product in a second; infinite without PyTorch."""


@contextmanager
def session(torch: ModuleType | None, arrays: DeviceArrays, rounds: int) -> Iterator[DeviceSession]:
    """Yield a session in which PyTorch computes in float32."""
    if torch is None:
        yield DeviceSession(None, arrays, rounds, math.inf)
        return
    settings = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [setting.allow_tf32 for setting in settings]
    for setting in settings:
        setting.allow_tf32 = False
    try:
        square = arrays.put(data.values((1, PRODUCT), "float32", "real", 1), (PRODUCT, PRODUCT))
        matrix = torch_equivalents.tensor(torch, square)
        seconds = arrays.timer(lambda: torch.matmul(matrix, matrix))
        yield DeviceSession(torch, arrays, rounds, 2 * PRODUCT**3 / seconds())
    finally:
        for setting, value in zip(settings, before, strict=True):
            setting.allow_tf32 = value


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
) -> Measurement:
    """Time operations of a layer with each backend, a copy, and PyTorch, in turns; medians."""
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
    theirs = _torch_call(session.torch, layer, problems, inputs, named) if session.torch else None
    difference = None
    if theirs and len(problems) == 1:
        assert session.torch is not None
        found = [_difference(session.torch, call(), theirs()) for call in calls.values()]
        difference = max((one for one in found if one is not None), default=None)
    source = session.arrays.put(np.zeros(moved // 2, np.uint8), (moved // 2,))
    timers = [session.arrays.timer(call) for call in (*calls.values(), source.copy, *([theirs] if theirs else []))]
    times = [[timer() for timer in timers] for _ in range(session.rounds)]
    medians = [statistics.median(mine) for mine in zip(*times, strict=True)]
    return Measurement(
        name,
        layer.name,
        large.source_shape,
        moved,
        flops,
        dict(zip(calls, medians, strict=False)),
        medians[len(calls)],
        medians[-1] if theirs and not difference else None,
        flops / session.product,
        difference,
    )


def _call(problem: Problem, inputs: tuple[Any, ...], backend: Backend, arrays: DeviceArrays) -> Call:
    if inputs:
        return lambda: registry.run(problem, *inputs, backend=backend)
    ((shape, dtype),) = zip(problem.result_shapes, problem.result_dtypes(), strict=True)
    out = arrays.put(np.zeros((1, *shape[1:]), dtype), shape)  # without inputs, the result names the device
    return lambda: registry.run(problem, out=out, backend=backend)


def _torch_call(
    torch: ModuleType, layer: Layer, problems: list[Problem], inputs: list[tuple[Any, ...]], named: Mapping[str, Any]
) -> Call | None:
    if len(problems) > 1:
        return families.joint_equivalents()[type(layer.spec)].equivalent(torch, layer.spec, named)
    equivalent = families.torch_equivalents().get(type(layer.spec))
    return equivalent(torch, problems[0], inputs[0], None) if equivalent else None


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


def _difference(torch: ModuleType, ours: Any, theirs: object) -> float | None:
    """Return the largest difference of two results if it is more than rounding, else ``None``."""
    for own, other in zip(
        ours if isinstance(ours, tuple) else (ours,), torch_equivalents.channels_last(theirs), strict=False
    ):
        mine = torch_equivalents.tensor(torch, own)
        if mine.shape != other.shape:
            return math.inf
        tolerance = 1e-4 * max(1.0, float(other.abs().max()))
        if not torch.allclose(mine, other, rtol=1e-4, atol=tolerance):
            return float((mine - other).abs().max())
    return None
