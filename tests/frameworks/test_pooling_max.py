"""Max pooling where PyTorch is another operation, and against TensorFlow's rule for SAME."""

from __future__ import annotations

import itertools
import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mpsref import PoolingMax, padding
from mpsref.arguments.arrays import Array
from tests.kernels import oracle_pooling_values as oracle
from tests.kernels.oracle_pooling_values import quarters


@pytest.fixture(scope="module")
def backend(backend: str) -> str:
    return oracle.require(backend, PoolingMax)


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    module: ModuleType = pytest.importorskip("torch", reason="the oracle of these tests is PyTorch")
    return module


def by_torch(torch: ModuleType, x: Array, zeros: tuple[int, int], *args: Any, **words: Any) -> tuple[Array, ...]:
    """Values, gradient and g as (N, H, W, C); ``zeros`` rows and columns are put around the image before."""
    image = torch.tensor(x.transpose(0, 3, 1, 2), dtype=torch.float64, requires_grad=True)
    (top, left) = zeros
    padded = torch.nn.functional.pad(image, (left, left, top, top))
    y = torch.nn.functional.max_pool2d(padded, *args, **words)
    g = quarters((x.shape[0], *y.shape[2:], x.shape[3]), seed=1)
    y.backward(torch.tensor(g.transpose(0, 3, 1, 2), dtype=torch.float64))
    return y.detach().numpy().transpose(0, 2, 3, 1), image.grad.numpy().transpose(0, 2, 3, 1), g


def test_dilation_with_padding_is_another_operation(torch: ModuleType, backend: str) -> None:
    """PyTorch ignores a tap outside; "clamp" reads the edge pixel, which may be no tap of the window at all."""
    x = np.array([7, 1, 2, 3], np.float32).reshape(1, 1, 4, 1)
    values, _, _ = by_torch(torch, x, (0, 0), (1, 2), 1, (0, 1), dilation=(1, 2))
    y = PoolingMax((1, 2), 1, (0, 0), "clamp", (1, 2)).forward(x, (1, 4), backend=backend)
    assert values.ravel().tolist() == [1, 7, 3, 2]
    assert y.ravel().tolist() == [7, 7, 3, 3]


def test_dilation_with_padding_by_copies_of_the_edge(torch: ModuleType, backend: str) -> None:
    x = quarters((2, 6, 7, 3))
    copied = np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)), mode="edge")
    values, _, _ = by_torch(torch, copied, (0, 0), 3, 2, dilation=2)
    pool = PoolingMax(3, 2, 0, "clamp", 2)  # extent 5, centre 2, padding 2
    np.testing.assert_array_equal(pool.forward(x, values.shape[1:3], backend=backend), values)


def same_padding(x: Array, kernel: int, stride: int) -> Array:
    """TensorFlow's SAME along both axes, its documented formula: padding never wins."""
    length = x.shape[1]
    outputs = math.ceil(length / stride)
    before = max(kernel - (length % stride or stride), 0) // 2
    y = np.zeros((x.shape[0], outputs, outputs, x.shape[3]), x.dtype)
    for a, b in np.ndindex(outputs, outputs):
        rows, columns = (slice(max(i * stride - before, 0), i * stride - before + kernel) for i in (a, b))
        y[:, a, b] = x[:, rows, columns].max(axis=(1, 2))
    return y


def test_tensorflow_same(backend: str) -> None:
    for length, kernel, stride in itertools.product([4, 7, 8], [1, 2, 3, 5], [1, 2, 3]):
        x = quarters((1, length, length, 2)) - 4  # negative: a zero of padding would win
        expected = same_padding(x, kernel, stride)
        placed = padding.tensorflow((length, length), kernel, stride, padding="SAME")
        assert placed.output_size == expected.shape[1:3]
        pool = PoolingMax(kernel, stride, placed.offset, "clamp")
        np.testing.assert_array_equal(pool.forward(x, placed.output_size, backend=backend), expected)
