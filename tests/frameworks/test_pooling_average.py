"""Average pooling against PyTorch (values and autograd) and against TensorFlow's rule for SAME, on every backend."""

from __future__ import annotations

import itertools
import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mpsref import PoolingAverage, padding
from mpsref.arguments.arrays import Array
from tests.kernels import oracle_pooling as oracle


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    module: ModuleType = pytest.importorskip("torch", reason="the oracle of these tests is PyTorch")
    return module


def noise(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def by_torch(torch: ModuleType, x: Array, g: Array | None, *args: Any, **words: Any) -> tuple[Array, Array, Array]:
    """Values, gradient and g in float64, as (N, H, W, C); ``g=None`` stands for noise of the right shape."""
    image = torch.from_numpy(x.astype(np.float64).transpose(0, 3, 1, 2).copy()).requires_grad_()
    y = torch.nn.functional.avg_pool2d(image, *args, **words)
    values = y.detach().numpy().transpose(0, 2, 3, 1)
    g = noise(values.shape, seed=1) if g is None else g
    (dx,) = torch.autograd.grad(y, image, torch.from_numpy(g.astype(np.float64).transpose(0, 3, 1, 2).copy()))
    return values, dx.numpy().transpose(0, 2, 3, 1), g


def agree(pool: PoolingAverage, x: Array, g: Array, values: Array, dx: Array, backend: str) -> None:
    """Compare with another framework's float64 within the bound; the brute force gives the size of the terms."""
    y_answer = oracle.forward(pool, x, values.shape[1:3])
    oracle.assert_close(pool.forward(x, values.shape[1:3], backend=backend), y_answer._replace(value=values), backend)
    dx_answer = oracle.gradient(pool, g, x.shape)
    oracle.assert_close(pool.gradient(g, x, backend=backend), dx_answer._replace(value=dx), backend)


SHAPES = [((1, 1), (2, 2), (0, 0)), ((2, 3), (1, 2), (1, 0)), ((3, 3), (2, 2), (1, 1)), ((5, 4), (3, 3), (2, 2))]


@pytest.mark.parametrize(("kernel", "strides", "pad"), SHAPES, ids=str)
@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("ceil_mode", [True, False])
def test_avg_pool2d(
    torch: ModuleType,
    backend: str,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pad: tuple[int, int],
    count_include_pad: bool,
    ceil_mode: bool,
) -> None:
    """Placement by the rule o = c - p; padding counts in a ring of p zeros, or not at all."""
    ring = pad if count_include_pad else (0, 0)
    offset = (kernel[0] // 2 - pad[0], kernel[1] // 2 - pad[1])
    pool = PoolingAverage(kernel, strides, offset, "clamp", ring)
    for height, width in [(5, 6), (7, 8), (10, 9)]:
        x = noise((2, height, width, 3))
        values, dx, g = by_torch(torch, x, None, kernel, strides, pad, ceil_mode, count_include_pad)
        agree(pool, x, g, values, dx, backend)
        placed = padding.pytorch(
            (height, width), kernel, strides, padding=pad, ceil_mode=ceil_mode, count_include_pad=count_include_pad
        )
        assert (placed.offset, placed.output_size) == (offset, values.shape[1:3])


def test_without_ceil_mode_counted_padding_is_the_zero_edge(torch: ModuleType, backend: str) -> None:
    x = noise((2, 7, 9, 3))
    values, dx, g = by_torch(torch, x, None, (4, 3), (2, 3), (2, 1))
    agree(PoolingAverage((4, 3), (2, 3), (0, 0), "zero"), x, g, values, dx, backend)


def test_with_ceil_mode_it_is_not(torch: ModuleType) -> None:
    """The last window passes the ring, and only what is inside the ring counts."""
    x = noise((1, 6, 6, 1))
    values, _, _ = by_torch(torch, x, None, 3, 3, 1, True, True)
    zero = PoolingAverage(3, 3, 0, "zero").forward(x, (3, 3))
    assert np.allclose(zero[:, :2, :2], values[:, :2, :2])
    assert not np.isclose(zero[:, 2], values[:, 2]).any()


def test_divisor_override(torch: ModuleType, backend: str) -> None:
    x, divisor = noise((2, 6, 7, 3)), 5
    values, dx, g = by_torch(torch, x, None, (3, 2), 2, 1, divisor_override=divisor)
    factor = divisor / (3 * 2)
    pool = PoolingAverage((3, 2), 2, 0, "zero")
    agree(pool, x, g, values * factor, dx * factor, backend)


def test_adaptive_pooling_to_one_pixel(torch: ModuleType, backend: str) -> None:
    x = noise((2, 7, 6, 3))
    y = PoolingAverage((7, 6), 1, (7 // 2, 6 // 2), "clamp").forward(x, (1, 1), backend=backend)
    expected = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(x.transpose(0, 3, 1, 2).copy()), 1)
    np.testing.assert_allclose(y[:, 0, 0], expected.numpy()[:, :, 0, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("channels", [1, 3, 16])
@pytest.mark.parametrize("count_include_pad", [True, False])
def test_channels_last_memory_with_padding(
    torch: ModuleType, backend: str, channels: int, count_include_pad: bool
) -> None:
    """Published gradients of this kind were wrong for years: padding that the channels-last path did not pass on.

    The tensors come in as they are, as views of channels-last and of channels-first memory.
    """
    x, g = noise((2, 9, 8, channels)), noise((2, 5, 4, channels), seed=1)
    values, dx, _ = by_torch(torch, x, g, 3, 2, 1, False, count_include_pad)
    pool = PoolingAverage(3, 2, 0, "clamp", int(count_include_pad))
    agree(pool, x, g, values, dx, backend)
    tensors = [torch.from_numpy(array).permute(0, 3, 1, 2) for array in (x, g)]
    for memory_format in (torch.channels_last, torch.contiguous_format):
        image, upstream = (t.contiguous(memory_format=memory_format).permute(0, 2, 3, 1) for t in tensors)
        for first, second in [
            (pool.forward(image, (5, 4), backend=backend), pool.forward(x, (5, 4), backend=backend)),
            (pool.gradient(upstream, image, backend=backend), pool.gradient(g, x, backend=backend)),
        ]:
            assert np.array_equal(first, second)


def same_padding(x: Array, kernel: int, stride: int) -> Array:
    """TensorFlow's SAME along both axes, its documented formula: pixels of padding are not counted."""
    length = x.shape[1]
    outputs = math.ceil(length / stride)
    before = max(kernel - (length % stride or stride), 0) // 2
    y = np.zeros((x.shape[0], outputs, outputs, x.shape[3]))
    for a, b in np.ndindex(outputs, outputs):
        rows, columns = (slice(max(i * stride - before, 0), i * stride - before + kernel) for i in (a, b))
        y[:, a, b] = x[:, rows, columns].astype(np.float64).mean(axis=(1, 2))
    return y


def test_tensorflow_same(backend: str) -> None:
    for length, kernel, stride in itertools.product([4, 7, 8], [1, 2, 3, 5], [1, 2, 3]):
        x = noise((1, length, length, 2))
        expected = same_padding(x, kernel, stride)
        overlap = max((expected.shape[1] - 1) * stride + kernel - length, 0)
        pool = PoolingAverage(kernel, stride, kernel // 2 - overlap // 2, "clamp")
        y = pool.forward(x, expected.shape[1:3], backend=backend)
        oracle.assert_close(y, oracle.forward(pool, x, expected.shape[1:3])._replace(value=expected), backend)
        placed = padding.tensorflow((length, length), kernel, stride, padding="SAME")
        assert placed == (pool.offset, expected.shape[1:3], "clamp", (0, 0))
