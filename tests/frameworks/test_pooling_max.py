"""Max pooling against PyTorch (values, autograd, ties) and against TensorFlow's rule for SAME, on every backend."""

from __future__ import annotations

import itertools
import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mpsref import PoolingMax, padding
from mpsref.arguments.arrays import Array
from tests.kernels import oracle_pooling
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


def agree(pool: PoolingMax, x: Array, values: Array, dx: Array, g: Array, backend: str) -> None:
    np.testing.assert_array_equal(pool.forward(x, values.shape[1:3], backend=backend), values)
    answer = oracle.gradient(pool, g, x)
    oracle_pooling.assert_close(pool.gradient(g, x, backend=backend), answer._replace(value=dx), backend)


def tied(shape: tuple[int, ...]) -> Array:
    """Zeros and ones: nearly every window has several maxima, and zero padding may be one of them."""
    return (quarters(shape) > 1).astype(np.float32)


SHAPES = [((1, 1), (2, 2), (0, 0)), ((2, 3), (1, 2), (1, 0)), ((3, 3), (2, 2), (1, 1)), ((5, 4), (3, 3), (2, 2))]
IMAGES = [(5, 6), (7, 8), (10, 9)]


@pytest.mark.parametrize(("kernel", "strides", "pad"), SHAPES, ids=str)
@pytest.mark.parametrize("ceil_mode", [True, False])
@pytest.mark.parametrize("data", [quarters, tied])
def test_max_pool2d(
    torch: ModuleType,
    backend: str,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pad: tuple[int, int],
    ceil_mode: bool,
    data: Any,
) -> None:
    """PyTorch pads with -inf: "clamp". Of equal values it takes the first, as here."""
    offset = (kernel[0] // 2 - pad[0], kernel[1] // 2 - pad[1])
    for height, width in IMAGES:
        x = data((2, height, width, 3))
        values, dx, g = by_torch(torch, x, (0, 0), kernel, strides, pad, ceil_mode=ceil_mode)
        agree(PoolingMax(kernel, strides, offset, "clamp"), x, values, dx, g, backend)
        placed = padding.pytorch((height, width), kernel, strides, padding=pad, ceil_mode=ceil_mode)
        assert (placed.offset, placed.output_size) == (offset, values.shape[1:3])


@pytest.mark.parametrize("dilation", [(2, 2), (1, 3), (4, 1)], ids=str)
@pytest.mark.parametrize(("kernel", "strides"), [((2, 2), (1, 1)), ((3, 2), (2, 3))], ids=str)
@pytest.mark.parametrize("edge", ["zero", "clamp"])
@pytest.mark.parametrize("data", [quarters, tied])
def test_dilation_without_padding(
    torch: ModuleType, backend: str, kernel: Any, strides: Any, dilation: tuple[int, int], edge: Any, data: Any
) -> None:
    """No tap leaves the image, so that either edge mode will do."""
    for height, width in IMAGES:
        x = data((2, height + 4, width + 2, 3))
        values, dx, g = by_torch(torch, x, (0, 0), kernel, strides, dilation=dilation)
        placed = padding.pytorch(x.shape[1:3], kernel, strides, dilations=dilation)
        assert placed.output_size == values.shape[1:3]
        agree(PoolingMax(kernel, strides, placed.offset, edge, dilation), x, values, dx, g, backend)


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


@pytest.mark.parametrize(("kernel", "strides", "pad"), [*SHAPES, ((2, 2), (1, 1), (3, 3))], ids=str)
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("data", [quarters, tied])
def test_explicit_zeros_are_the_zero_edge(
    torch: ModuleType, backend: str, kernel: Any, strides: Any, pad: tuple[int, int], dilation: int, data: Any
) -> None:
    """Zeros put around the image by hand, also more of them than the window is wide: values, gradients and ties."""
    for height, width in IMAGES:
        x = data((2, height, width, 3))
        values, dx, g = by_torch(torch, x, pad, kernel, strides, dilation=dilation)
        extents = [dilation * (k - 1) + 1 for k in kernel]
        offset = (extents[0] // 2 - pad[0], extents[1] // 2 - pad[1])
        agree(PoolingMax(kernel, strides, offset, "zero", dilation), x, values, dx, g, backend)


def test_channels_last_views(torch: ModuleType, backend: str) -> None:
    """Tensors come in as they are, as views of channels-last and of channels-first memory."""
    x, g = quarters((2, 9, 8, 3)), quarters((2, 5, 4, 3), seed=1)
    pool = PoolingMax(3, 2, 0, "clamp")
    tensors = [torch.from_numpy(array).permute(0, 3, 1, 2) for array in (x, g)]
    for memory_format in (torch.channels_last, torch.contiguous_format):
        image, upstream = (t.contiguous(memory_format=memory_format).permute(0, 2, 3, 1) for t in tensors)
        for first, second in [
            (pool.forward(image, (5, 4), backend=backend), pool.forward(x, (5, 4), backend=backend)),
            (pool.gradient(upstream, image, backend=backend), pool.gradient(g, x, backend=backend)),
        ]:
            np.testing.assert_array_equal(first, second)


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
