"""The benchmark with arrays on a device, over a fake cuda.core. Not how fast anything is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import mpsref
from anymetal import cuda
from anymetal.cuda import device as cuda_device
from mpsref import bench, registry
from mpsref.bench import Measurement, on_device, timing
from mpsref.conformance.layer import Layer
from tests.tools.test_bench import (
    FORWARD,
    FOUR,
    GRADIENT,
    LAYER,
    NORM,
    inputs_of,
    printed,
    report_of,
    with_pytorch,
    without_pytorch,
)


@pytest.fixture
def small_batches(fake_cuda: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake GPU, which a batch of six images fills."""
    without_pytorch(monkeypatch)
    monkeypatch.setattr(cuda_device, "LEAD_BYTES", 1 << 12)
    monkeypatch.setattr(cuda_device, "FASTEST_COPY", 1.0)
    for name, value in (("IMAGES", 6), ("FILLING_BYTES", 1), ("FILLING_FLOPS", 1)):
        monkeypatch.setattr(on_device, name, value)


def test_arrays_on_a_device_stay_there(small_batches: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda.Array, "__array__", None)
    report = bench.run("metal:cuda", [FORWARD, GRADIENT], [LAYER], rounds=1)
    for m, small in zip(report.measurements, (FORWARD, GRADIENT), strict=True):
        assert (m.operation, m.shape) == (str(small), (6, 6, 8, 3))
        assert m.nbytes == 3 * bench._nbytes(LAYER.problem(small.method))
        assert min(m.copy, m.backends["metal:cuda"]) > 0
        assert m.pytorch is None
    assert "Fake GPU" in report.devices["metal:cuda"]


def test_several_operations_and_no_inputs_on_a_device(small_batches: None) -> None:
    report = bench.run("metal:cuda", FOUR, [NORM], rounds=1)
    assert [m.operation for m in report.measurements] == [*map(str, FOUR), "BatchNormalization.together"]
    drop = Layer("tiny.drop", "Tiny", mpsref.Dropout(), (2, 3, 4, 5))
    (mask,) = bench.run("metal:cuda", [registry.Operation(mpsref.Dropout, "mask")], [drop], rounds=1).measurements
    assert mask.backends["metal:cuda"] > 0


def test_inputs_on_a_device_are_those_of_one_image(small_batches: None) -> None:
    problem = on_device.filling(LAYER, ("gradient",), bench._nbytes).problem("gradient")
    (g,) = on_device._inputs(LAYER, ("gradient",), [problem], cuda.arrays).values()
    (one,) = inputs_of(on_device._with_batch(LAYER, 1).problem("gradient"))
    np.testing.assert_array_equal(np.asarray(g), np.repeat(one, 6, axis=0))


def test_a_run_on_a_device_ends_when_its_time_is_spent(small_batches: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """First layers of all operations come first; what is not measured is named."""
    second = replace(LAYER, name="tiny.second")
    clock = iter(range(100))
    monkeypatch.setattr(bench, "time", SimpleNamespace(perf_counter=lambda: 10.0 * next(clock)))
    report = bench.run("metal:cuda", [FORWARD, GRADIENT], [LAYER, second], rounds=1, seconds=25)
    assert [(m.operation, m.layer) for m in report.measurements] == [
        (str(FORWARD), LAYER.name),
        (str(GRADIENT), LAYER.name),
    ]
    assert report.left == (f"{FORWARD} {second.name}", f"{GRADIENT} {second.name}")
    assert f"2 of 4 are not measured: {FORWARD} tiny.second" in printed(report)


@pytest.mark.parametrize(("seconds", "made"), [(0.0, 3), (1e9, 7)])
def test_rounds_on_a_device_end_when_their_time_is_spent(
    small_batches: None, monkeypatch: pytest.MonkeyPatch, seconds: float, made: int
) -> None:
    turns: list[float] = []

    def timer(call: object) -> Callable[[], float]:
        def turn() -> float:
            turns.append(1.0)
            return 1.0

        return turn

    monkeypatch.setattr(type(cuda.arrays), "timer", staticmethod(timer))
    session = on_device.session(None, cuda.arrays, 7)
    on_device.measure("", ("forward",), LAYER, [registry.get_backend("metal:cuda")], bench._nbytes, session, seconds)
    assert len(turns) == 2 * made, "of the backend and of the copy"


def test_results_are_compared_in_their_first_images() -> None:
    many = np.zeros((64, 512, 1024), np.float32)
    (first,) = on_device._first_images(many)
    assert first.shape == (16, 512, 1024)
    assert [one.shape for one in on_device._first_images((many[:1], many[0, 0]))] == [(1, 512, 1024), (1024,)]


def test_a_different_result_of_pytorch_on_a_device_is_not_timed() -> None:
    ours = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    assert timing.difference(ours, (ours,)) is None
    assert timing.difference((ours,), (ours + 0.5,)) == 0.5
    assert timing.difference(ours[:, :1], (ours,)) == float("inf")
    wrong = Measurement("op", "large", (1, 1, 1, 1), 10, 0, {"cpu": 1.0}, copy=0.5, pytorch=None, difference=0.5)
    assert "op large: PyTorch is not timed, its result differs by 0.5" in printed(report_of(wrong))


def test_a_device_and_the_host_are_timed_apart(fake_cuda: object) -> None:
    with pytest.raises(ValueError, match="cpu, metal:cuda have their arrays in different places"):
        bench.run(["cpu", "metal:cuda"], [FORWARD], [LAYER])
    with pytest.raises(ValueError, match="scaling is measured for backends on the host, not for metal:cuda"):
        bench.run("metal:cuda", [FORWARD], [LAYER], scaling=True)


@pytest.mark.parametrize("error", [0.0, 0.5])
def test_pytorch_gets_the_numbers_of_the_device(
    small_batches: None, monkeypatch: pytest.MonkeyPatch, error: float
) -> None:
    """It is timed if its result is the same, and its matrix product is the limit of arithmetic."""
    with_pytorch(monkeypatch, error)
    monkeypatch.setattr(on_device, "PRODUCT", 16)
    theirs = registry.get_backend("torch:cuda").timing
    assert 0 < on_device.session(theirs, cuda.arrays, 1).product < float("inf")
    report = bench.run("metal:cuda", [FORWARD, GRADIENT], [LAYER], rounds=1)
    assert report.pytorch == "stub"
    for m in report.measurements:
        assert (m.pytorch is None) == bool(error)
        assert m.difference == (pytest.approx(error, rel=0.01) if error else None)
