"""Average pooling where PyTorch is another operation, and against TensorFlow's rule for SAME."""

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


def test_with_ceil_mode_it_is_not(torch: ModuleType) -> None:
    """The last window passes the ring, and only what is inside the ring counts."""
    x = noise((1, 6, 6, 1))
    values, _, _ = by_torch(torch, x, None, 3, 3, 1, True, True)
    zero = PoolingAverage(3, 3, 0, "zero").forward(x, (3, 3))
    assert np.allclose(zero[:, :2, :2], values[:, :2, :2])
    assert not np.isclose(zero[:, 2], values[:, 2]).any()


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
