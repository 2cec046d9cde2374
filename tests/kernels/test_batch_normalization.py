"""Batch normalization: worked numbers, parts of a batch, large means, constant channels, differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref.arguments.arrays import Array
from mpsref.kernels.batch_normalization import BatchGradientSums, BatchNormalization, BatchStatistics
from mpsref.kernels.neuron import Neuron
from tests.conftest import AVAILABLE

F32 = np.float32


@pytest.fixture(params=[name for name in AVAILABLE if name != "reference:input-dtype"])
def accurate(request: pytest.FixtureRequest) -> str:
    """Each backend that adds up in float32 with care; one of plain float32 sums has no bound worth testing."""
    name: str = request.param
    return name


X = np.array([1, 2, 4, 5], F32).reshape(2, 1, 2, 1)
G = np.array([1, 2, 3, 4], F32).reshape(2, 1, 2, 1)
GAMMA, BETA = np.array([2], F32), np.array([0.5], F32)


def flat(array: Any) -> list[float]:
    return [float(value) for value in np.asarray(array).ravel()]


def step(norm: BatchNormalization, g: Array, x: Array, gamma: Any = None, beta: Any = None, **how: Any) -> Array:
    """All four operations, in one part."""
    seen = norm.statistics(x, **how)
    given = seen.mean, seen.variance, gamma, beta
    return norm.gradient(g, x, *given, norm.statistics_gradient(g, x, *given, **how), **how)


# --- the worked example -----------------------------------------------------------------------------------------------


def test_statistics_of_the_worked_example(backend: str) -> None:
    norm = BatchNormalization(epsilon=1.5)
    first = norm.statistics(X[:1], backend=backend)
    assert (first.n, flat(first.mean), flat(first.m2)) == (2, [1.5], [0.5])
    both = norm.statistics(X[1:], first, backend=backend)
    assert (both.n, flat(both.mean), flat(both.m2), flat(both.variance)) == (4, [3], [10], [2.5])
    assert (first.n, flat(first.mean), flat(first.m2)) == (2, [1.5], [0.5])  # an earlier result is not changed


@pytest.mark.parametrize(
    ("neuron", "y", "s1", "s2", "dx"),
    [
        (None, [-1.5, -0.5, 1.5, 2.5], 10, 3.5, [-0.625, -0.0625, 0.0625, 0.625]),
        (Neuron("none"), [-1.5, -0.5, 1.5, 2.5], 10, 3.5, [-0.625, -0.0625, 0.0625, 0.625]),
        (Neuron("relu"), [0, 0, 1.5, 2.5], 7, 5.5, [-0.375, -1.0625, 0.5625, 0.875]),
    ],
)
def test_the_worked_example(backend: str, neuron: Any, y: list[float], s1: float, s2: float, dx: list[float]) -> None:
    norm = BatchNormalization(1.5, neuron)
    given = np.array([3], F32), np.array([2.5], F32), GAMMA, BETA
    assert flat(norm.forward(X, *given, backend=backend)) == y
    first = norm.statistics_gradient(G[:1], X[:1], *given, backend=backend)
    if neuron is None:
        assert (first.n, flat(first.dbeta), flat(first.dgamma)) == (2, [3], [-2])
    sums = norm.statistics_gradient(G[1:], X[1:], *given, first, backend=backend)
    assert (sums.n, flat(sums.dbeta), flat(sums.dgamma)) == (4, [s1], [s2])
    assert flat(norm.gradient(G, X, *given, sums, backend=backend)) == dx
    images = [norm.gradient(G[k : k + 1], X[k : k + 1], *given, sums, backend=backend) for k in (1, 0)]
    assert flat(np.concatenate(images[::-1])) == dx


def test_frozen_statistics(backend: str) -> None:
    norm = BatchNormalization(1.5)
    given = np.array([1], F32), np.array([2.5], F32), GAMMA, BETA
    assert flat(norm.forward(X, *given, backend=backend)) == [0.5, 1.5, 3.5, 4.5]
    sums = norm.statistics_gradient(G, X, *given, backend=backend)
    assert (flat(sums.dbeta), flat(sums.dgamma)) == ([10], [13.5])
    assert flat(norm.gradient(G, X, *given, backend=backend)) == [1, 2, 3, 4]


def test_inference_as_the_hardware_gave_it(backend: str) -> None:
    y = BatchNormalization(0.25).forward(X[:1, :, :1], [4.0], [1.5], [2.0], [0.5], backend=backend)
    np.testing.assert_allclose(y, -4.0355735, rtol=2e-7)


# --- statistics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("mean", "worst"), [(0.0, 1e-6), (100.0, 1e-5), (1e4, 1e-3)])
def test_any_partition_in_any_order_is_the_same_batch(backend: str, mean: float, worst: float, seed: int) -> None:
    """Between calls the mean is rounded to float32, which a large one feels."""
    generator = np.random.default_rng(seed)
    x = (mean + generator.standard_normal((9, 7, 5, 3))).astype(F32)
    norm, state = BatchNormalization(), None
    cuts = sorted(generator.choice(np.arange(1, 9), size=3, replace=False))
    for part in generator.permutation(np.array(np.split(np.arange(9), cuts), dtype=object)):
        state = norm.statistics(x[part.astype(int)], state, backend=backend)
    assert state is not None
    exact = x.astype(np.float64)
    np.testing.assert_allclose(state.mean, exact.mean((0, 1, 2)), rtol=3e-7, atol=1e-6)
    np.testing.assert_allclose(state.variance, exact.var((0, 1, 2)), rtol=worst)
    assert state.n == 9 * 7 * 5


@pytest.mark.parametrize(("mean", "worst"), [(0, 2e-6), (100, 2e-6), (1000, 5e-6), (10000, 1e-4)])
def test_variance_of_many_pixels_far_from_zero(accurate: str, mean: float, worst: float) -> None:
    """A sum of squares has lost every digit at a mean of 10,000 deviations."""
    x = (mean + np.random.default_rng(3).standard_normal((4, 128, 128, 2))).astype(F32)
    seen = BatchNormalization().statistics(x, backend=accurate)
    np.testing.assert_allclose(seen.variance, x.astype(np.float64).var((0, 1, 2)), rtol=worst)


@pytest.mark.parametrize("epsilon", [2.0**-126, 1e-5])
def test_constant_channels_are_normalized_to_beta(backend: str, epsilon: float) -> None:
    """The default epsilon makes 1/sqrt 9.2e18: an error of one ulp in the mean would be larger than anything."""
    x = np.broadcast_to(np.array([0.1, -1e4, 3.0], F32), (5, 20, 10, 3))
    norm = BatchNormalization(epsilon)
    seen = norm.statistics(x[2:], norm.statistics(x[:2], backend=backend), backend=backend)
    assert flat(seen.mean) == flat(x[0, 0, 0])
    assert flat(seen.m2) == [0, 0, 0]
    y = norm.forward(x, seen.mean, seen.variance, beta=[1.0, 2.0, 3.0], backend=backend)
    assert (y == np.array([1, 2, 3], F32)).all()


def test_one_outlier_in_front_of_equal_pixels(accurate: str) -> None:
    """The first pixel is every scheme's shift; here it is the worst that there is."""
    x = np.ones((1, 64, 64, 2), F32)
    x[0, 0, 0] = 1e4, -3e5
    x[0, 1:, :, 0] += (np.arange(64) % 2).astype(F32) / 64
    seen = BatchNormalization().statistics(x, backend=accurate)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(seen.mean, exact.mean((0, 1, 2)), atol=1e-8 * 3e5)
    np.testing.assert_allclose(seen.variance, exact.var((0, 1, 2)), rtol=1e-5)


def test_an_outlier_far_from_pixels_of_its_own_block(accurate: str) -> None:
    """The deviation of the other pixels must not drown in the square of the distance to the first one."""
    x = np.random.default_rng(0).standard_normal((1, 100, 100, 1)).astype(F32)
    x[0, 0, 0] = 1e3
    seen = BatchNormalization().statistics(x, backend=accurate)
    np.testing.assert_allclose(seen.variance, x.astype(np.float64).var(), rtol=2e-6)


def test_a_nan_stays_in_its_channel() -> None:
    norm = BatchNormalization(1e-5)
    x = np.random.default_rng(0).standard_normal((2, 5, 5, 3)).astype(F32)
    clean = step(norm, x, x, backend="cpu")
    x[1, 2, 3, 1], x[0, 0, 0, 2] = np.nan, np.inf
    for backend in ("reference", "cpu"):
        seen = norm.statistics(x, backend=backend)
        assert np.isnan(seen.m2).tolist() == [False, True, True]
        dx = step(norm, np.nan_to_num(x, posinf=1), x, backend=backend)
        assert np.isnan(dx).all((0, 1, 2)).tolist() == [False, True, True]
        np.testing.assert_allclose(dx[..., 0], clean[..., 0], rtol=1e-5, atol=1e-6)


# --- corner cases -----------------------------------------------------------------------------------------------------


def test_one_pixel(backend: str) -> None:
    norm = BatchNormalization(neuron=Neuron("relu", a=0.5))
    x, g = np.array([3.0, -7.0], F32).reshape(1, 1, 1, 2), np.array([2.0, 5.0], F32).reshape(1, 1, 1, 2)
    seen = norm.statistics(x, backend=backend)
    assert (seen.n, flat(seen.mean), flat(seen.variance)) == (1, [3, -7], [0, 0])
    assert flat(norm.forward(x, seen.mean, seen.variance, [3.0, 3.0], [1.0, -1.0], backend=backend)) == [1, -0.5]
    assert flat(step(norm, g, x, [3.0, 3.0], [1.0, -1.0], backend=backend)) == [0, 0]


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_no_variance_and_no_epsilon_is_ieee(name: str) -> None:
    norm = BatchNormalization(0.0)
    x = np.array([1, 2], F32).reshape(1, 1, 2, 1)
    y = norm.forward(x, [1.0], [0.0], backend=name)
    assert np.isnan(y[0, 0, 0, 0])
    assert y[0, 0, 1, 0] == np.inf


def test_a_batch_without_images(backend: str) -> None:
    norm, none = BatchNormalization(), np.zeros((0, 3, 3, 2), F32)
    empty = norm.statistics(none, backend=backend)
    assert (empty.n, flat(empty.mean), flat(empty.m2), empty.variance) == (0, [0, 0], [0, 0], None)
    seen = BatchStatistics(4, np.array([1, 2], F32), np.array([3, 4], F32))
    again = norm.statistics(none, seen, backend=backend)
    assert (again.n, flat(again.mean), flat(again.m2)) == (4, [1, 2], [3, 4])
    assert not np.shares_memory(again.mean, seen.mean)
    assert flat(norm.statistics(np.ones((1, 1, 1, 2), F32), empty, backend=backend).mean) == [1, 1]
    given = [1.0, 2.0], [1.0, 1.0]
    assert norm.forward(none, *given, backend=backend).shape == none.shape
    sums = norm.statistics_gradient(none, none, *given, backend=backend)
    assert (sums.n, flat(sums.dbeta)) == (0, [0, 0])
    with pytest.raises(mpsref.OrderError, match=r"sums.n is 0"):
        norm.gradient(none, none, *given, sums=sums, backend=backend)
    before = BatchGradientSums(2, np.array([1, 2], F32), np.array([3, 4], F32))
    assert norm.gradient(none, none, *given, sums=before, backend=backend).shape == none.shape
    kept = norm.statistics_gradient(none, none, *given, state=before, backend=backend)
    assert (kept.n, flat(kept.dbeta), flat(kept.dgamma)) == (2, [1, 2], [3, 4])
