"""MSL kernels with a fast form for large images or pixels: it agrees with the simple form."""

from __future__ import annotations

import numpy as np
import pytest

import mpsref
from mpsref import registry
from mpsref.arguments.arrays import Array
from mpsref.kernels.arithmetic import ArithmeticGradient
from mpsref_metal import launch, pooling, softmax
from tests.conftest import AVAILABLE

ON_METAL = pytest.mark.parametrize("metal_backend", [name for name in AVAILABLE if name.startswith("metal")])


def integers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def test_divisors() -> None:
    """Quotients are exact for the largest dividends, multiples of the divisor, and the numbers before them."""
    random = np.random.default_rng(0)
    values = [*range(1, 70), *(2**k + d for k in range(7, 32) for d in (-1, 0, 1)), *random.integers(1, 2**32, 200)]
    for value in map(int, values):
        divisor, multiplier, increment, shift = launch.divisor(value)
        assert max(divisor, multiplier) < 2**32
        whole = (2**32 - 2) // value * value
        for n in {0, value - 1, value, max(whole - 1, 0), whole, 2**32 - 2, int(random.integers(2**32 - 1))}:
            assert (n + increment) * multiplier >> 32 + shift == n // value, (n, value)


SPECS = {
    "PoolingAverage": mpsref.PoolingAverage(3, 2),
    "PoolingMax": mpsref.PoolingMax(3, 2),
    "UpsamplingBilinear": mpsref.UpsamplingBilinear(2),
    "Pad": mpsref.Pad((1, 2, 0), (2, 1, 0), edge_mode="mirror"),
}


@ON_METAL
@pytest.mark.parametrize(("channels", "together"), [(64, 4), (21, 7)])
@pytest.mark.parametrize("kind", SPECS)
def test_several_packs_a_thread_are_as_one(
    metal_backend: str, kind: str, channels: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, x = SPECS[kind], integers(2, 5, 4, channels)

    def run() -> tuple[Array, Array]:
        y = spec.forward(x, backend=metal_backend)
        source = x if kind == "PoolingMax" else x.shape
        return y, spec.gradient(integers(*y.shape, seed=1), source, backend=metal_backend)

    one = run()
    width = launch.width_of(channels)
    assert launch.together_of(x.size, channels, width, 1) == 1
    monkeypatch.setattr(launch, "THREADS", 1)
    assert launch.together_of(x.size, channels, width, launch.FEW_TERMS) == together
    for a, b in zip(one, run(), strict=True):
        np.testing.assert_array_equal(a, b)


@ON_METAL
@pytest.mark.parametrize("channels", [2, 5, 21, 1100])
@pytest.mark.parametrize("spec", [mpsref.SoftMax(), mpsref.LogSoftMax()], ids=["softmax", "log"])
def test_packs_in_registers_are_as_in_memory(
    metal_backend: str, spec: mpsref.SoftMax | mpsref.LogSoftMax, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, g = integers(1, 3, 2, channels) / 4, integers(1, 3, 2, channels, seed=1)
    y = spec.forward(x)

    def run() -> list[Array]:
        return [spec.forward(x, backend=metal_backend), spec.gradient(g, y, backend=metal_backend)]

    held = run()
    monkeypatch.setattr(softmax, "HELD", (0,))
    for a, b in zip(held, run(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6 * np.abs(b).max())


@ON_METAL
@pytest.mark.parametrize("edge_mode", ["zero", "clamp"])
def test_large_maxima_over_rows_and_columns(
    metal_backend: str, edge_mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, spec = integers(1, 13, 12, 3) * np.float32(-1), mpsref.PoolingMax((9, 7), 1, edge_mode=edge_mode)
    in_two = spec.forward(x, backend=metal_backend)
    monkeypatch.setattr(pooling, "CHEAPER", np.inf)
    at_once = spec.forward(x, backend=metal_backend)
    assert in_two.tobytes() == at_once.tobytes()


@ON_METAL
@pytest.mark.parametrize("strides", [(1, 1, 1), (0, 0, 1), (1, 0, 1), (1, 1, 0), (0, 0, 0)])
def test_both_gradients_of_arithmetic_are_as_each(metal_backend: str, strides: tuple[int, int, int]) -> None:
    shape = 2, 3, 4, 36
    other = 2, *(length if stride else 1 for length, stride in zip(shape[1:], strides, strict=True))
    x, y, g = integers(*shape), integers(*other, seed=1), integers(*shape, seed=2)
    spec = mpsref.Arithmetic("multiply", secondary_strides=strides, minimum_value=-6)
    both = spec.gradient(g, x, y, backend=metal_backend)
    for wanted, found in zip(("primary", "secondary"), both, strict=True):
        problem = ArithmeticGradient(spec, shape, other, wanted)
        np.testing.assert_array_equal(found, registry.run(problem, g, x, y, backend=metal_backend))


@ON_METAL
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("reduction", ["sum", "mean", "sumbynonzeroweights"])
def test_losses_of_many_runs(metal_backend: str, reduction: str, across: bool) -> None:
    shape = 2, 64, 64, 9  # 36 runs an image: their sums are added in two steps
    y, t, weights = (integers(*shape, seed=seed) / 8 for seed in range(3))
    loss = mpsref.Loss("meansquarederror", reduction, across, weight=0.5)
    for given in (None, weights):
        np.testing.assert_allclose(
            loss.forward(y, t, given, backend=metal_backend), loss.forward(y, t, given), rtol=1e-6
        )
