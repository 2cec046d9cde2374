"""How the Metal kernels tile: sums in chunks, tiles that end inside a group or a row, the same bits at each run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpsref import Convolution, ConvolutionTranspose, Neuron, registry
from mpsref.arguments.arrays import Array
from mpsref.conformance import checker
from mpsref_metal import backend_on
from mpsref_metal import convolution as metal
from mpsref_metal.launch import Launcher
from tests import few
from tests.conftest import AVAILABLE

F32 = np.float32
ON_METAL = pytest.mark.parametrize("metal_backend", [name for name in AVAILABLE if name.startswith("metal")])


def integers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(F32)


def assert_exact(spec: Any, shape: tuple[int, ...], outputs: int, backend: str) -> None:
    """Sums of integers are exact in any order, so every element must be the reference's: the products are the sums."""
    x, weights = integers(*shape), integers(outputs, *spec.size, shape[3] // spec.groups, seed=1)
    y = spec.forward(x, weights)
    g = integers(*y.shape, seed=2)
    np.testing.assert_array_equal(spec.forward(x, weights, backend=backend), y)
    dx = spec.gradient_data(g, weights, x.shape, backend=backend)
    np.testing.assert_array_equal(dx, spec.gradient_data(g, weights, x.shape))
    for ours, theirs in zip(spec.gradient_weights(g, x, backend=backend), spec.gradient_weights(g, x), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@ON_METAL
@pytest.mark.parametrize("least_channels", few([1, 10**9], 1), ids=["products", "simple"])
@pytest.mark.parametrize(
    ("shape", "outputs", "spec"),
    [
        ((2, 9, 10, 8), 12, Convolution(3)),
        ((1, 7, 8, 20), 70, Convolution(3, 2, groups=2)),
        ((2, 9, 10, 21), 21, Convolution(3, 2)),  # channels are padded
        ((2, 9, 10, 8), 8, Convolution(5, groups=8)),
        ((1, 13, 14, 40), 40, Convolution((3, 5), 2, groups=40)),  # pixels in a row share some columns
        ((2, 5, 6, 60), 60, Convolution(3, groups=60)),  # 15 packs of channels for 16 threads
        ((2, 40, 41, 5), 7, Convolution(3)),
        ((1, 30, 31, 9), 9, Convolution(3, 2, groups=9)),
        ((2, 9, 10, 6), 12, Convolution((1, 3), (1, 3), groups=6)),
        ((1, 3, 1100, 3), 4, Convolution((1, 2), 1, (1, 5))),
        ((3, 50, 1, 2), 2, Convolution((5, 1), (3, 1), groups=2)),
        ((3, 401, 2, 3), 5, Convolution(1)),  # more lines than chunks, and the last chunk is not full
        ((2, 5, 6, 8), 12, ConvolutionTranspose(3, 2)),
        ((1, 4, 5, 6), 4, ConvolutionTranspose((4, 3), 3, groups=2)),
    ],
)
def test_many_tiles_and_chunks(
    metal_backend: str,
    least_channels: int,
    shape: tuple[int, ...],
    outputs: int,
    spec: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metal, "LEAST_CHANNELS", least_channels)
    monkeypatch.setattr(metal, "LEAST_PRODUCTS", 1)
    assert_exact(spec, shape, outputs, metal_backend)


@ON_METAL
@pytest.mark.parametrize("size", [(1, 1_000_000), (1000, 1000)])
def test_long_sums_are_added_up_in_blocks(metal_backend: str, size: tuple[int, int]) -> None:
    """A tenth a million times: one running sum in float32 would be off by a hundred times the tolerance."""
    g, x = np.full((1, *size, 1), 0.1, F32), np.ones((1, *size, 1), F32)
    for result in Convolution(1).gradient_weights(g, x, backend=metal_backend):
        np.testing.assert_allclose(result, np.full(result.shape, 1e6 * np.float64(F32(0.1))), rtol=1e-4)


@ON_METAL
def test_sums_have_the_same_bits_at_each_run(metal_backend: str) -> None:
    rng = np.random.default_rng(0)
    g, x = (rng.standard_normal((2, 20, 20, c)).astype(F32) for c in (6, 5))
    runs = [Convolution(3).gradient_weights(g, x, backend=metal_backend) for _ in range(3)]
    assert len({dw.tobytes() + db.tobytes() for dw, db in runs}) == 1


@ON_METAL
@pytest.mark.parametrize(("channels", "outputs", "spec"), [(300, 20, Convolution(3, neuron=Neuron("relu")))])
def test_products_of_many_terms(metal_backend: str, channels: int, outputs: int, spec: Convolution) -> None:
    """A neuron, and sums in chunks that are longer than the longest sequence of additions."""
    x, weights = integers(1, 5, 5, channels), integers(outputs, 3, 3, channels, seed=1)
    biases = integers(outputs, seed=2)
    np.testing.assert_array_equal(
        spec.forward(x, weights, biases, backend=metal_backend), spec.forward(x, weights, biases)
    )


@ON_METAL
@pytest.mark.parametrize("tiling", few([((32, 128, 3),), ((128, 128, 1),), ((128, 32, 40),)], 1), ids=str)
def test_tiles_and_chunks_of_products(
    metal_backend: str, tiling: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large tiles, which small layers do not have; more chunks than are added up at once; a neuron behind chunks."""
    monkeypatch.setattr(metal, "LEAST_PRODUCTS", 1)
    monkeypatch.setattr(metal, "_tiling", lambda *_: tiling)
    assert_exact(Convolution(3, 2, groups=2), (3, 12, 13, 80), 88, metal_backend)
    assert_exact(Convolution(1, groups=2), (3, 12, 13, 88), 90, metal_backend)  # without tables of pixels
    x, weights = integers(3, 12, 13, 80), integers(88, 3, 3, 40, seed=1)
    relu = Convolution(3, 2, groups=2, neuron=Neuron("relu"))
    y = Convolution(3, 2, groups=2).forward(x, weights)
    np.testing.assert_array_equal(relu.forward(x, weights, backend=metal_backend), np.maximum(y, 0))


@pytest.mark.parametrize(("lines", "tiles", "most"), [(1, 1, 9), (100, 10, 50), (5000, 1, 10**6), (7, 10**9, 0)])
def test_chunks_cover_all_lines(lines: int, tiles: int, most: int) -> None:
    """There are never more than are added up in sequence, nor than the workspace allows, and always one."""
    chunk = metal._chunk(np.empty((1, lines, 3, 1)), tiles, most, 2**17)
    chunks = -(-lines // chunk)
    assert 1 <= chunks <= max(1, min(most, metal.CHUNKS))
    assert chunk * chunks >= lines
    assert chunk * (chunks - 1) < lines


@pytest.mark.parametrize(
    ("method", "sources"),
    [
        ("forward", {"convolution", "convolution_tiles", "depthwise"}),
        ("gradient_data", {"convolution", "convolution_tiles", "depthwise"}),
        ("gradient_weights", {"convolution_sums", "weight_tiles"}),
    ],
)
def test_a_check_reads_every_source(method: str, sources: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[str] = set()

    def compiled(device: object, files: tuple[str, ...], *_: object) -> object:
        read.update(files)
        return lambda *_: None

    class Device:
        buffer = bytearray

    monkeypatch.setattr(Launcher, "_compile", staticmethod(compiled))
    runtime = SimpleNamespace(Device=Device, unavailable=lambda: None)
    backend = backend_on("reading", runtime)  # type: ignore[arg-type]
    for _, case in checker.layer_cases(registry.Operation(Convolution, method)):
        registry.run(case.problem, *case.inputs(), backend=backend)
    assert sources <= read
