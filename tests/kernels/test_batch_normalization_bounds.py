"""The error bounds of batch normalization: the table of its page, computed one channel at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mpsref import BatchNormalization, Neuron
from mpsref.arguments.arrays import Array
from mpsref.kernels.reference import ErrorBound

U = 2.0**-24
SHAPE = 2, 3, 4, 5
PIXELS = 24


def growth(m: float) -> float:
    """G(m) of the page."""
    return m * U / (1 - m * U)


def additions(n: int) -> int:
    """h of the page."""
    return min(n, 1024) + math.ceil(math.log2(n))


def limit(bound: ErrorBound) -> Array:
    """Return the bound without the half ulp of storage."""
    return bound.limit


def noise(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def expected_statistics(pixels: list[float], n: int, earlier: tuple[float, float] | None) -> tuple[float, float]:
    """Return the bounds of mean and m2 of one channel, after ``n`` pixels that had the ``earlier`` mean and m2."""
    count = len(pixels)
    total = n + count
    own = sum(pixels) / count
    mean = (sum(pixels) + (n * earlier[0] if earlier else 0)) / total
    m2 = sum((p - own) ** 2 for p in pixels) + count * (own - mean) ** 2
    distances = [abs(p - mean) for p in pixels]
    if earlier:
        m2 += earlier[1] + n * (earlier[0] - mean) ** 2
        distances += [abs(earlier[0] - mean)] * n
    largest, average, variance = max(distances), sum(distances) / total, m2 / total
    h, merges = additions(total), (2 if earlier else 1) + math.ceil(math.log2(total))
    d = growth(h + 8) * (largest + average) + merges * U * (abs(mean) + 10 * (largest + average))
    of_variance = (
        growth(h + 2 * merges + 8) * variance
        + 16 * U * largest * average
        + 4 * math.sqrt(max(1, merges / 4)) * (d + U * largest) * math.sqrt(variance)
    )
    return d, total * of_variance


@pytest.mark.parametrize("mean", [0.0, 1000.0])
@pytest.mark.parametrize(
    ("shape", "count"), [(SHAPE, 0), (SHAPE, 1), (SHAPE, 7), ((1, 2, 1, 3), 0), ((2, 40, 30, 2), 0)]
)
def test_statistics(shape: tuple[int, int, int, int], count: int, mean: float) -> None:
    problem = BatchNormalization.problems["statistics"](BatchNormalization(), shape, count)
    x, channels = mean + noise(1, *shape), shape[3]
    state = (mean + 4 * noise(2, channels), count * noise(3, channels) ** 2) if count else ()  # also outside the pixels
    bounds = np.array([limit(bound) for bound in problem.operation.error_bound(problem, x, *state)])
    for c in range(channels):
        earlier = (state[0][c], state[1][c]) if count else None
        wanted = expected_statistics(x[..., c].ravel().tolist(), count, earlier)
        np.testing.assert_allclose(bounds[:, c], wanted, rtol=1e-6)


def test_a_channel_of_equal_pixels_must_be_exact() -> None:
    problem = BatchNormalization.problems["statistics"](BatchNormalization(), SHAPE, 0)
    x = noise(1, *SHAPE)
    x[..., 2] = 5
    for bound in problem.operation.error_bound(problem, x):
        assert (limit(bound) > 0).tolist() == [True, True, False, True, True]
    counted = BatchNormalization.problems["statistics"](BatchNormalization(), SHAPE, 4)
    for bound in counted.operation.error_bound(counted, x, np.full(5, 5.0), np.zeros(5)):
        assert (limit(bound) > 0).tolist() == [True, True, False, True, True]


class Given:
    """Inputs of the operations with given statistics, and the terms of their formulas."""

    def __init__(self, gamma: bool, beta: bool) -> None:
        self.g, self.x = noise(1, *SHAPE), 3 + noise(2, *SHAPE)
        self.mean, self.variance = 3 + noise(3, 5), 0.5 + noise(4, 5) ** 2
        self.gamma, self.beta = noise(5, 5) if gamma else np.ones(5), noise(6, 5) if beta else np.zeros(5)
        self.dbeta, self.dgamma = 10 * noise(7, 5), 10 * noise(8, 5)
        self.r = 1 / np.sqrt(self.variance + 0.5)
        self.xhat = (self.x - self.mean) * self.r
        self.vectors = self.mean, self.variance, *([self.gamma] if gamma else []), *([self.beta] if beta else [])


@pytest.mark.parametrize("beta", [False, True])
@pytest.mark.parametrize("gamma", [False, True])
def test_forward(gamma: bool, beta: bool) -> None:
    given = Given(gamma, beta)
    problem = BatchNormalization.problems["forward"](BatchNormalization(0.5), SHAPE, gamma, beta)
    found = limit(problem.operation.error_bound(problem, given.x, *given.vectors))
    np.testing.assert_allclose(found, growth(18) * (abs(given.gamma * given.xhat) + abs(given.beta)), rtol=1e-6)


def test_forward_with_a_neuron() -> None:
    """The slope of ReLU is 0.25 or 1, and 1 within the bound of a kink; its own bound comes on top."""
    given, leaky = Given(gamma=True, beta=True), Neuron("relu", a=0.25)
    given.x[0, 0, 0] = given.mean - (given.beta + 1e-7) / (given.gamma * given.r)  # z is 1e-7 below the kink
    given.xhat = (given.x - given.mean) * given.r
    bare, bent = (
        BatchNormalization.problems["forward"](BatchNormalization(0.5, neuron), SHAPE, True, True)
        for neuron in (None, leaky)
    )
    of_z, found = (limit(p.operation.error_bound(p, given.x, *given.vectors)) for p in (bare, bent))
    z = given.gamma * given.xhat + given.beta
    value = Neuron.problems["forward"](leaky, SHAPE)
    own = limit(value.operation.error_bound(value, z))
    slope = np.where(z + of_z >= 0, 1.0, 0.25)
    assert (slope > 0.25)[0, 0, 0].any()
    assert (z < 0)[0, 0, 0].all()
    np.testing.assert_allclose(found, slope * of_z + own, rtol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 100])
def test_sums_of_the_gradient(count: int) -> None:
    given = Given(gamma=False, beta=False)
    problem = BatchNormalization.problems["statistics_gradient"](BatchNormalization(0.5), SHAPE, count)
    earlier = (given.dbeta, given.dgamma) if count else ()
    first, second = problem.operation.error_bound(problem, given.g, given.x, *given.vectors, *earlier)
    h = additions(PIXELS + bool(count))
    of_dbeta, of_dgamma = abs(given.g).sum((0, 1, 2)), abs(given.g * given.xhat).sum((0, 1, 2))
    if count:
        of_dbeta, of_dgamma = of_dbeta + abs(given.dbeta), of_dgamma + abs(given.dgamma)
    np.testing.assert_allclose(limit(first), growth(h + 4) * of_dbeta, rtol=1e-6)
    np.testing.assert_allclose(limit(second), growth(h + 20) * of_dgamma, rtol=1e-6)


@pytest.mark.parametrize("gamma", [False, True])
@pytest.mark.parametrize("count", [0, 24, 100])
def test_gradient(count: int, gamma: bool) -> None:
    given = Given(gamma, beta=False)
    problem: Any = BatchNormalization.problems["gradient"](BatchNormalization(0.5), SHAPE, count, gamma)
    sums = (given.dbeta, given.dgamma) if count else ()
    found = limit(problem.operation.error_bound(problem, given.g, given.x, *given.vectors, *sums))
    size = abs(given.g)
    if count:
        size = size + abs(given.dbeta) / count + abs(given.xhat * given.dgamma) / count
    np.testing.assert_allclose(found, growth(40) * abs(given.gamma) * given.r * size, rtol=1e-6)


@pytest.mark.parametrize(("x", "kept"), [(-1e-6, 0.0), (0.0, 0.0), (1e-6, 0.0), (-0.1, 1.0), (0.1, 1.0)])
def test_gradients_are_0_on_both_sides_of_a_kink(x: float, kept: float) -> None:
    """One side of the kink of ReLU within the rounding error is enough."""
    norm = BatchNormalization(0.0, Neuron("relu"))
    problem = norm.problems["gradient"](norm, (1, 1, 1, 1))
    one = np.ones(1, np.float32)
    drawn = {"g": one.reshape(1, 1, 1, 1), "x": np.full((1, 1, 1, 1), x, np.float32), "mean": 0 * one, "variance": one}
    drawn |= {name: one for name in problem.input_shapes if name in ("dbeta", "dgamma")}
    assert problem.legal(drawn)["g"].item() == kept
