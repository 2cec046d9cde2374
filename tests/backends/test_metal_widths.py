"""MSL kernels compute four channels a thread, or one; and index images in 32 bits, or in 64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mpsref import registry
from mpsref.arguments.arrays import Array
from mpsref.bench import representative
from mpsref.conformance import data
from mpsref.registry import Operation, Problem
from mpsref_metal import launch
from tests.conftest import AVAILABLE

ON_METAL = pytest.mark.parametrize("metal_backend", [name for name in AVAILABLE if name.startswith("metal")])

ONE_OF_EACH_FILE = (
    "PoolingAverage.gradient",
    "PoolingMax.gradient",
    "PoolingL2Norm.gradient",
    "Neuron.gradient",
    "BatchNormalization.statistics",
    "InstanceNormalization.gradient",
    "SpatialNormalization.gradient",
    "Arithmetic.gradient",
    "Pad.gradient",
    "Reduce.forward",
    "SoftMax.gradient",
    "Adam.step",
)


def problem_of(operation: Operation) -> Problem:
    """Return the problem of a layer with eight channels."""
    layer = representative(operation, 1)[0]
    if "secondary_shape" in layer.call:
        _, height, width, _ = layer.call["secondary_shape"]
        layer = replace(layer, call={**layer.call, "secondary_shape": (2, min(height, 9), min(width, 9), 8)})
    _, height, width, _ = layer.source_shape
    return replace(layer, source_shape=(2, min(height, 9), min(width, 9), 8)).problem(operation.method)


def run(problem: Problem, backend: str) -> tuple[Array, ...]:
    result = registry.run(problem, *data.inputs(problem, "float32", "real", 1), backend=backend)
    return result if isinstance(result, tuple) else (result,)


@ON_METAL
@pytest.mark.parametrize("operation", [op for op in registry.operations() if str(op) in ONE_OF_EACH_FILE], ids=str)
def test_four_channels_a_thread_are_as_one(
    metal_backend: str, operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(operation)
    four = run(problem, metal_backend)
    assert launch.width_of(8) == 4
    monkeypatch.setattr(launch, "WIDE", 1)
    assert launch.width_of(8) == 1
    for wide, narrow in zip(four, run(problem, metal_backend), strict=True):
        np.testing.assert_allclose(wide, narrow, rtol=1e-5, atol=1e-6 * np.abs(narrow).max())


@ON_METAL
@pytest.mark.parametrize(
    "operation",
    [op for op in registry.operations() if str(op) in ("PoolingMax.gradient", "InstanceNormalization.gradient")],
    ids=str,
)
def test_images_that_need_64_bits(metal_backend: str, operation: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(operation)
    narrow = run(problem, metal_backend)
    assert launch._index([launch.MOST_INDICES - 1]) == "typedef uint Index;"
    assert launch._index([launch.MOST_INDICES]) == "typedef ulong Index;"
    monkeypatch.setattr(launch, "MOST_INDICES", 0)
    for wide, same in zip(run(problem, metal_backend), narrow, strict=True):
        np.testing.assert_array_equal(wide, same)


class _Unaligned:
    """As much of an array on a device as its alignment."""

    address = 4


def test_unaligned_memory_of_a_device_is_read_by_single_values() -> None:
    aligned = np.zeros(8, np.float32)
    assert launch.width_of(8, aligned) == 4
    assert launch.width_of(6, aligned) == 1
    assert launch.width_of(8, aligned, _Unaligned()) == 1  # type: ignore[arg-type]
