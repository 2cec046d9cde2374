"""Softmax and log-softmax: examples, corner cases, bad input; the MPS classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import LogSoftMax, SoftMax, mps
from mpsref.arguments.arrays import Array

BACKENDS = ("reference", "cpu", "metal:clang")
KERNELS: list[Any] = [SoftMax(), LogSoftMax()]


def pixel(*values: float, dtype: Any = np.float32) -> Array:
    return np.array(values, dtype).reshape(1, 1, 1, -1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_worked_example(backend: str) -> None:
    x, g = pixel(1, 2, 3), pixel(1, 0, 0)
    y, logarithms = (kernel.forward(x, backend=backend) for kernel in KERNELS)
    np.testing.assert_allclose(y.ravel(), [0.090031, 0.244728, 0.665241], atol=6e-7)
    np.testing.assert_allclose(logarithms.ravel(), [-2.407606, -1.407606, -0.407606], atol=6e-7)
    dx = SoftMax().gradient(g, y, backend=backend)
    np.testing.assert_allclose(dx.ravel(), [0.081925, -0.022033, -0.059892], atol=6e-7)
    dx = LogSoftMax().gradient(g, logarithms, backend=backend)
    np.testing.assert_allclose(dx.ravel(), [0.909969, -0.244728, -0.665241], atol=6e-7)


@pytest.mark.parametrize("backend", BACKENDS)
def test_cross_entropy_gives_the_difference(backend: str) -> None:
    """With g = -t / y the gradient of softmax is y - t, as textbooks have it."""
    y = SoftMax().forward(pixel(1, 2, 3), backend=backend)
    target = pixel(0, 0, 1)
    dx = SoftMax().gradient(-target / y, y, backend=backend)
    np.testing.assert_allclose(dx.ravel(), [0.090031, 0.244728, -0.334759], atol=6e-7)


@pytest.mark.parametrize("backend", BACKENDS)
def test_large_logits(backend: str) -> None:
    x = pixel(1000, 1001)
    y, logarithms = (kernel.forward(x, backend=backend) for kernel in KERNELS)
    np.testing.assert_allclose(y.ravel(), [0.268941, 0.731059], atol=6e-7)
    np.testing.assert_allclose(logarithms.ravel(), [-1.313262, -0.313262], atol=6e-7)
    assert LogSoftMax().forward(pixel(0, -300), backend=backend).ravel().tolist() == [0, -300]
    assert SoftMax().forward(pixel(3e38, -3e38, 0), backend=backend).ravel().tolist() == [1, 0, 0]


def test_a_masked_logit_does_not_count_in_the_error_bound() -> None:
    """Far below the largest logit a power is 0, whatever the error of its argument is."""
    for kernel in KERNELS:
        limits = []
        for x in (pixel(0, 1, -120), pixel(0, 1, -1e9)):
            problem = kernel.problems["forward"](kernel, x.shape)
            (bound,) = problem.operation.bounds(problem, x.astype(np.float64))
            limits.append(bound.limit.ravel()[:2])
        assert (limits[0] > 0).all()
        np.testing.assert_allclose(limits[1], limits[0], rtol=0.1)


@pytest.mark.parametrize("channels", [2, 3, 9, 21, 33, 70])
def test_a_large_logit_in_every_channel(channels: int) -> None:
    """The largest channel is found in all vectors of a pixel; with any other one the exponentials overflow."""
    x = np.diag(np.full(channels, 300, np.float32)).reshape(1, 1, channels, channels)
    y, logarithms = (kernel.forward(x, backend="cpu") for kernel in KERNELS)
    np.testing.assert_array_equal(y, x / 300)
    np.testing.assert_array_equal(logarithms, x - 300)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_channel(backend: str) -> None:
    x = np.array([-5, 0, 1e4], np.float32).reshape(1, 1, 3, 1)
    y, logarithms = (kernel.forward(x, backend=backend) for kernel in KERNELS)
    assert (y == 1).all()
    assert (logarithms == 0).all()
    assert (SoftMax().gradient(x, y, backend=backend) == 0).all()
    assert (LogSoftMax().gradient(x, logarithms, backend=backend) == 0).all()


@pytest.mark.parametrize("channels", [3, 8, 9, 40])
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_infinite_and_missing_logits(backend: str, channels: int) -> None:
    """One -inf is a channel that cannot be; all of them, +inf or NaN spoil the pixel and no other."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 1, 5, channels)).astype(np.float32)
    x[0, 0, 0, 1] = -np.inf
    x[0, 0, 1] = -np.inf
    x[0, 0, 2, channels - 1] = np.inf
    x[0, 0, 3, channels // 2] = np.nan
    for kernel in KERNELS:
        y = kernel.forward(x, backend=backend)[0, 0]
        assert y[0, 1] == (0 if kernel == SoftMax() else -np.inf)
        assert np.isfinite(np.delete(y[0], 1)).all()
        assert np.isnan(y[1:4]).all()
        alone = kernel.forward(x[:, :, 4:], backend=backend)[0, 0, 0]
        np.testing.assert_array_equal(y[4], alone)
        g = rng.standard_normal((1, 1, 1, channels)).astype(np.float32)
        dx = kernel.gradient(g, y[None, None, :1], backend=backend)
        assert dx[0, 0, 0, 1] == (0 if kernel == SoftMax() else g[0, 0, 0, 1])
        assert np.isfinite(dx).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_many_channels(kernel: Any, backend: str) -> None:
    """More than are summed up in one sequence; a running sum in float32 would be off by far more."""
    rng = np.random.default_rng(2)
    x = rng.uniform(0, 0.01, (1, 1, 2, 70_001)).astype(np.float32)
    exact = kernel.forward(x.astype(np.float64))
    y = kernel.forward(x, backend=backend)
    np.testing.assert_allclose(y, exact, rtol=3e-6)
    g = np.ones_like(x)
    dx = kernel.gradient(g, exact.astype(np.float32), backend=backend)
    expected = kernel.gradient(g.astype(np.float64), exact.astype(np.float32).astype(np.float64))
    np.testing.assert_allclose(dx, expected, atol=3e-6)


# ---- the cpu backend: the same bits for any number of threads


@pytest.mark.parametrize("channels", [1, 7, 33, 2049])
def test_pixels_do_not_influence_each_other(channels: int) -> None:
    """A pixel of NaN beside one of numbers, in every place of a block."""
    x = np.random.default_rng(2).standard_normal((1, 1, 9, channels)).astype(np.float32)
    for kernel in (SoftMax(), LogSoftMax()):
        clean = kernel.forward(x, backend="cpu")
        for place in range(9):
            spoiled = x.copy()
            spoiled[0, 0, place] = np.nan
            y = kernel.forward(spoiled, backend="cpu")
            assert np.isnan(y[0, 0, place]).all()
            np.testing.assert_array_equal(np.delete(y, place, 2), np.delete(clean, place, 2))


@pytest.mark.parametrize("channels", [1, 7, 33, 2049])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gradients_of_pixels_do_not_influence_each_other(channels: int, dtype: str) -> None:
    """A pixel of NaN beside others, also the last one, beyond which there is no memory."""
    rng = np.random.default_rng(3)
    g, y = (rng.standard_normal((1, 1, 9, channels)).astype(dtype) for _ in range(2))
    for kernel in (SoftMax(), LogSoftMax()):
        clean = kernel.gradient(g, y, backend="cpu")
        np.testing.assert_allclose(clean, kernel.gradient(g, y, backend="reference"), rtol=1e-2, atol=1e-3 * channels)
        for place in range(9):
            spoiled = g.copy()
            spoiled[0, 0, place] = np.nan
            dx = kernel.gradient(spoiled, y, backend="cpu")
            assert np.isnan(dx[0, 0, place]).all()
            np.testing.assert_array_equal(np.delete(dx, place, 2), np.delete(clean, place, 2))


# ---- the MPS classes: the result as secondary source, offsets and edge modes, validation, states, saving

PAIRS: list[tuple[Any, Any, Any]] = [
    (mps.MPSCNNSoftMax, mps.MPSCNNSoftMaxGradient, SoftMax()),
    (mps.MPSCNNLogSoftMax, mps.MPSCNNLogSoftMaxGradient, LogSoftMax()),
]


@pytest.mark.parametrize(("forward", "gradient", "function"), PAIRS)
def test_the_source_in_place_of_the_result(forward: Any, gradient: Any, function: Any) -> None:
    """Apple's other gradient kernels read the source; the mistake is silent unless it is looked for."""
    x = np.random.default_rng(2).standard_normal((2, 3, 2, 3))
    y, state = forward().encode(x, return_state=True)
    assert not np.allclose(gradient().encode(x, x, state), gradient().encode(x, y, state))
    with pytest.raises(
        ValueError, match=rf"sum to .* at pixel \(0, 0, 0\).* the result of {forward.__name__}, not its"
    ):
        gradient(validate=True).encode(x, x, state)
    y[1, 2, 1] = np.nan
    with pytest.raises(ValueError, match=r"at pixel \(1, 2, 1\)"):
        gradient(validate=True).encode(x, y, state)
    with pytest.raises(TypeError, match="validate is 1"):
        gradient(validate=1)
