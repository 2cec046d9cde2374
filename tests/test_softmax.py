"""Softmax and log-softmax: the spec's examples, corner cases, derivatives, layouts, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import LogSoftMax, ShapeError, SoftMax
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


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("channels", [1, 2, 5, 17])
def test_gradient_is_the_derivative(kernel: Any, channels: int) -> None:
    """Central differences in float64."""
    rng = np.random.default_rng(1)
    x, g, direction = rng.standard_normal((3, 2, 3, 2, channels))
    y = kernel.forward(x)
    step = 1e-6
    difference = (g * (kernel.forward(x + step * direction) - kernel.forward(x - step * direction))).sum() / (2 * step)
    assert (kernel.gradient(g, y) * direction).sum() == pytest.approx(difference, rel=3e-8, abs=1e-9)


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


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_layouts_dtypes_and_batches(kernel: Any, backend: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 6, 5, 4)).astype("f4")
    expected = kernel.forward(x, backend=backend)
    for source in (np.ascontiguousarray(x[:, ::-1])[:, ::-1], x.astype(">f4"), x.swapaxes(1, 2).copy().swapaxes(1, 2)):
        np.testing.assert_array_equal(kernel.forward(source, backend=backend), expected)
    out = np.full((2, 6, 5, 8), 7, "f4")
    kernel.forward(x, out=out[..., ::2], backend=backend)
    np.testing.assert_array_equal(out[..., ::2], expected)
    half = kernel.forward(x.astype("f2"), backend=backend)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, expected, atol=2e-3, rtol=2e-3)
    for g_dtype, y_dtype in (("f2", "f4"), ("f4", "f2")):
        assert kernel.gradient(x.astype(g_dtype), expected.astype(y_dtype), backend=backend).dtype == g_dtype
    assert kernel.forward(x[:0], backend=backend).shape == (0, 6, 5, 4)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_bad_input(kernel: Any) -> None:
    x = np.ones((2, 3, 4, 5), np.float32)
    for other in (x[:1], x[:, 1:], x[:, :, 1:], x[..., 1:]):
        with pytest.raises(ShapeError, match=r"y has shape .*; with g of shape .* it must have shape"):
            kernel.gradient(other, x)
    with pytest.raises(ShapeError, match="rank 2"):
        kernel.forward(x[0, 0])
    with pytest.raises(TypeError, match="dtype int32"):
        kernel.forward(x.astype(np.int32))
    with pytest.raises(ValueError, match="shares memory"):
        kernel.gradient(x, x + 1, out=x)
    with pytest.raises(TypeError, match="positional"):
        type(kernel)(1)


def test_specs() -> None:
    assert SoftMax() == SoftMax()
    assert SoftMax() != LogSoftMax()
    assert repr(SoftMax()) == "SoftMax()"
    assert len({SoftMax(), LogSoftMax(), SoftMax()}) == 2
    assert mpsref.SoftMax is SoftMax


def test_against_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the oracle of this test, is not installed")
    rng = np.random.default_rng(4)
    x, g = rng.standard_normal((2, 3, 4, 5, 6))
    for kernel, function in ((SoftMax(), torch.softmax), (LogSoftMax(), torch.log_softmax)):
        tensor = torch.from_numpy(x).requires_grad_()
        y = function(tensor, 3)
        y.backward(torch.from_numpy(g))
        found = kernel.forward(x)
        np.testing.assert_allclose(found, y.detach().numpy(), rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(kernel.gradient(g, found), tensor.grad.numpy(), rtol=1e-12, atol=1e-15)
