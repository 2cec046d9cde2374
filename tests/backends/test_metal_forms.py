"""MSL kernels with a fast form for large images or pixels: it agrees with the simple form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import registry
from mpsref.arguments.arrays import Array
from mpsref.kernels.arithmetic import ArithmeticGradient
from mpsref.kernels.cross_channel_normalization import CrossChannelForward
from mpsref.kernels.group_normalization import NormalizationForward
from mpsref_metal import (
    convolution,
    cross_channel_normalization,
    group_normalization,
    launch,
    normalization_windows,
    pooling,
    softmax,
)
from tests import few
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
PACKS = [(kind, *one) for i, kind in enumerate(SPECS) for one in ([(64, 4), (21, 7)], [(21, 7), (64, 4)])[i % 2]]


@ON_METAL
@pytest.mark.parametrize(("kind", "channels", "together"), few(PACKS[::2] + PACKS[1::2], len(SPECS)))
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
    assert launch.H200.together_of(x.size, channels, width, 1) == 1
    one_thread = launch.H200._replace(threads=1)
    monkeypatch.setattr(launch.Launcher, "gpu", property(lambda _: one_thread), raising=False)
    assert one_thread.together_of(x.size, channels, width, launch.FEW_TERMS) == together
    for a, b in zip(one, run(), strict=True):
        np.testing.assert_array_equal(a, b)


@ON_METAL
def test_launches_are_tuned_for_the_gpu(metal_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weights, seen = integers(2, 12, 12, 16), integers(16, 3, 3, 16, seed=1), []
    spec, tiling = mpsref.Convolution(3), convolution._tiling

    def noted(*sizes: int) -> tuple[int, int, int]:
        seen.append(sizes[-1])
        return tiling(*sizes)

    monkeypatch.setattr(convolution, "_tiling", noted)
    for gpu in (launch.APPLE, launch.H200):
        monkeypatch.setattr(launch.Launcher, "gpu", property(lambda _, gpu=gpu: gpu), raising=False)
        y = spec.forward(x, weights, backend=metal_backend)
        np.testing.assert_array_equal(y, spec.forward(x, weights))
        for a, b in zip(spec.gradient_weights(y, x, backend=metal_backend), spec.gradient_weights(y, x), strict=True):
            np.testing.assert_array_equal(a, b)
    assert seen == [launch.APPLE.cores] * 2 + [launch.H200.cores] * 2


@ON_METAL
@pytest.mark.parametrize(("rows", "channels"), [(3, 4), (64, 40), (513, 3), (9000, 8)])
def test_sums_of_few_and_of_many_rows(metal_backend: str, rows: int, channels: int) -> None:
    # Threads share the rows of a sum if there are few; thousands of rows are summed in several launches.
    g = integers(1, 1, rows, channels)
    _, db = mpsref.Convolution(1).gradient_weights(g, integers(1, 1, rows, 1), backend=metal_backend)
    np.testing.assert_array_equal(db, g.sum((0, 1, 2)))


@ON_METAL
@pytest.mark.parametrize("channels", few([2, 21, 1100, 5, 10], 3))
@pytest.mark.parametrize("spec", few([mpsref.SoftMax(), mpsref.LogSoftMax()], 1), ids=["softmax", "log"])
def test_packs_in_registers_are_as_in_memory(
    metal_backend: str, spec: mpsref.SoftMax | mpsref.LogSoftMax, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, g = integers(1, 3, 2, channels) / 4, integers(1, 3, 2, channels, seed=1)
    y = spec.forward(x)

    def run() -> list[Array]:
        return [spec.forward(x, backend=metal_backend), spec.gradient(g, y, backend=metal_backend)]

    held = run()
    monkeypatch.setattr(softmax, "HELD", dict.fromkeys(softmax.HELD, (0,)))
    for a, b in zip(held, run(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6 * np.abs(b).max())


@ON_METAL
@pytest.mark.parametrize("channels", [3, 8])
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("edge_mode", ["zero", "clamp"])
def test_large_maxima_over_rows_and_columns(
    metal_backend: str, edge_mode: str, sign: int, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows have several maxima, and maxima outside the image; the first is selected."""
    x, spec = integers(1, 13, 12, channels) * np.float32(sign), mpsref.PoolingMax((9, 7), 1, edge_mode=edge_mode)
    g = integers(*x.shape, seed=1)

    def run() -> list[Array]:
        of_half = spec.gradient(g.astype(np.float16), x, backend=metal_backend)
        return [spec.forward(x, backend=metal_backend), spec.gradient(g, x, backend=metal_backend), of_half]

    runs, within_rows = [], pooling._within_rows

    def counted(*arguments: Any) -> Array:
        runs.append(arguments)
        return within_rows(*arguments)

    monkeypatch.setattr(pooling, "_within_rows", counted)
    for name in ("_max_tables", "_max_axes"):  # a problem does not keep its tables
        monkeypatch.setattr(pooling, name, getattr(pooling, name).__wrapped__)
    with monkeypatch.context() as patched:
        patched.setattr(pooling, "CHEAPER", 0)
        in_two = run()
    assert len(runs) == len(in_two)
    monkeypatch.setattr(pooling, "CHEAPER", np.inf)
    for a, b in zip(in_two, run(), strict=True):
        assert a.tobytes() == b.tobytes()
    assert len(runs) == len(in_two)
    np.testing.assert_array_equal(in_two[1], spec.gradient(g, x))


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


@ON_METAL
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("kernel_size", "channels"), [(1, 4), (2, 8), (5, 96), (8, 12), (9, 500)])
def test_channels_in_threadgroup_memory_are_as_in_two_steps(
    metal_backend: str, kernel_size: int, channels: int, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = mpsref.CrossChannelNormalization(kernel_size, alpha=0.5, beta=0.75)
    x, g = (integers(1, 3, 7, channels, seed=seed).astype(dtype) for seed in range(2))

    def run() -> list[Array]:
        return [spec.forward(x, backend=metal_backend), spec.gradient(g, x, backend=metal_backend)]

    problem = CrossChannelForward(spec, x.shape)
    assert cross_channel_normalization._together(problem, x)
    at_once = run()
    monkeypatch.setattr(cross_channel_normalization, "SLOTS", 1)
    assert not cross_channel_normalization._together(problem, x)
    for a, b in zip(at_once, run(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5 if dtype is np.float32 else 1e-3, atol=1e-5)


@ON_METAL
@pytest.mark.parametrize("offset", few([((-9, 2),), ((0, 0),), ((5, -1),), ((30, 0),)], 1))
@pytest.mark.parametrize(("kernel_size", "shape"), [((9, 2), (1, 17, 5, 8)), ((4, 7), (2, 6, 3, 1))])
def test_strips_of_windows_are_as_single_windows(
    metal_backend: str,
    kernel_size: tuple[int, int],
    shape: tuple[int, int, int, int],
    offset: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = mpsref.LocalContrastNormalization(kernel_size, alpha=0.5, beta=0.75, delta=1.0, offset=offset)
    x, g = integers(*shape) + np.float32(20), integers(shape[0], 15, 6, shape[3], seed=1)

    def run() -> list[Array]:
        y = spec.forward(x, output_size=(15, 6), backend=metal_backend)
        return [y, spec.gradient(g, x, backend=metal_backend)]

    strips = run()
    monkeypatch.setattr(normalization_windows, "STRIPS", (1,))
    for a, b in zip(strips, run(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5)


@ON_METAL
@pytest.mark.parametrize("kernel_size", [3, 9])
def test_contrasts_of_large_means(metal_backend: str, kernel_size: int) -> None:
    spec, x = mpsref.LocalContrastNormalization(kernel_size, alpha=1.0), integers(1, 20, 20, 4) / 32 + 1000
    inside = slice(kernel_size // 2, -(kernel_size // 2))  # windows at the border have zeros, and a large variance
    found, expected = (spec.forward(x, backend=name)[:, inside, inside] for name in (metal_backend, "reference"))
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max())


@ON_METAL
@pytest.mark.parametrize(
    ("shape", "groups", "slabs"),
    [
        ((2, 3, 5, 16), 16, (4, 64, 4)),
        ((2, 3, 5, 32), 2, (8, 64, 4)),
        ((1, 7, 6, 8), 4, (8, 64, 1)),
        ((2, 1, 1, 2), 2, (2, 64, 1)),
        ((1, 13, 17, 64), 2, (8, 256, 4)),
        ((1, 11, 41, 16), 16, (4, 256, 4)),
        ((1, 15, 61, 16), 16, (4, 512, 4)),
    ],
)
def test_groups_in_registers_are_as_in_memory(
    metal_backend: str,
    shape: tuple[int, int, int, int],
    groups: int,
    slabs: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec, channels = mpsref.GroupNormalization(groups, 1e-3), shape[3]
    x, g = integers(*shape) + np.float32(0.3), integers(*shape, seed=1)
    gamma, beta = integers(channels, seed=2), integers(channels, seed=3)

    def run() -> list[Array]:
        return [
            spec.forward(x, gamma, beta, backend=metal_backend),
            *spec.gradient(g, x, gamma, backend=metal_backend),
        ]

    assert group_normalization.slabs_of(NormalizationForward(spec, shape), launch.width_of(channels)) == slabs
    held = run()
    monkeypatch.setattr(group_normalization, "slabs_of", lambda problem, width: None)
    for a, b in zip(held, run(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=3e-6 * np.abs(b).max())


@ON_METAL
@pytest.mark.parametrize(("channels", "dtype"), few([(1003, np.float32), (1100, np.float16), (600, np.float32)], 2))
def test_losses_of_large_pixels(metal_backend: str, channels: int, dtype: type[np.floating[Any]]) -> None:
    shape = 2, 1, 3, channels  # packs of neighbours, or of elements that are apart
    y, t, weights = (integers(*shape, seed=seed).astype(dtype) / dtype(4) for seed in range(3))
    y[..., -1] += 100  # the largest
    loss = mpsref.Loss("softmaxcrossentropy", "mean", label_smoothing=0.1, number_of_classes=channels)
    g = np.ones((2, 1, 1, 1), np.float32)
    for method, inputs in ("forward", (y, t, weights)), ("gradient", (g, y, t)), ("gradient_labels", (g, y, t)):
        found = getattr(loss, method)(*inputs, backend=metal_backend)
        expected = getattr(loss, method)(*inputs)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())
