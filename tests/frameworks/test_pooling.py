"""Pooling where PyTorch is another operation, and against TensorFlow's rule for SAME."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpsref import GraphPoolingMax, PoolingAverage, PoolingMax, UnsupportedError, frameworks, padding
from mpsref.arguments.arrays import Array
from tests.kernels import oracle_pooling
from tests.kernels.oracle_pooling import quarters

CUBES = [*itertools.product([4, 7, 8], [1, 2, 3, 5], [1, 2, 3])]
"""The length of an image, the kernel and the stride, along both axes."""


def noise(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng((0, *shape)).standard_normal(shape).astype(np.float32)


def by_torch(function: str, x: Array, *args: Any, **words: Any) -> Array:
    """Return what a function of PyTorch computes in float64, as (N, H, W, C)."""
    torch = pytest.importorskip("torch", reason="the oracle of these tests is PyTorch")
    image = torch.from_numpy(x.astype(np.float64).transpose(0, 3, 1, 2).copy())
    values: Array = getattr(torch.nn.functional, function)(image, *args, **words).numpy().transpose(0, 2, 3, 1)
    return values


def test_average_with_ceil_mode_is_another_operation() -> None:
    """The last window passes the ring, and only what is inside the ring counts."""
    x = noise((1, 6, 6, 1))
    values = by_torch("avg_pool2d", x, 3, 3, 1, True, True)
    zero = PoolingAverage(3, 3, 0, "zero").forward(x, (3, 3))
    assert np.allclose(zero[:, :2, :2], values[:, :2, :2])
    assert not np.isclose(zero[:, 2], values[:, 2]).any()


def test_maximum_with_dilation_and_padding_is_another_operation(backend: str) -> None:
    """PyTorch ignores a tap outside; "clamp" reads the edge pixel, which may be no tap of the window at all."""
    x = np.array([7, 1, 2, 3], np.float32).reshape(1, 1, 4, 1)
    y = PoolingMax((1, 2), 1, (0, 0), "clamp", (1, 2)).forward(x, (1, 4), backend=backend)
    assert by_torch("max_pool2d", x, (1, 2), 1, (0, 1), dilation=(1, 2)).ravel().tolist() == [1, 7, 3, 2]
    assert y.ravel().tolist() == [7, 7, 3, 3]


def test_maximum_with_dilation_and_padding_by_copies_of_the_edge(backend: str) -> None:
    x = quarters((2, 6, 7, 3))
    values = by_torch("max_pool2d", np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)), mode="edge"), 3, 2, dilation=2)
    pool = PoolingMax(3, 2, 0, "clamp", 2)  # extent 5, centre 2, padding 2
    np.testing.assert_array_equal(pool.forward(x, values.shape[1:3], backend=backend), values)


def same_padding(x: Array, kernel: int, stride: int, reduce: Callable[..., Array]) -> Array:
    """TensorFlow's SAME along both axes, its documented formula: pixels of padding neither count nor win."""
    length = x.shape[1]
    outputs = math.ceil(length / stride)
    before = max(kernel - (length % stride or stride), 0) // 2
    y = np.zeros((x.shape[0], outputs, outputs, x.shape[3]))
    for a, b in np.ndindex(outputs, outputs):
        rows, columns = (slice(max(i * stride - before, 0), i * stride - before + kernel) for i in (a, b))
        y[:, a, b] = reduce(x[:, rows, columns].astype(np.float64), axis=(1, 2))
    return y


def test_averages_of_tensorflow(backend: str) -> None:
    for length, kernel, stride in CUBES:
        x = noise((1, length, length, 2))
        expected, size = same_padding(x, kernel, stride, np.mean), (math.ceil(length / stride),) * 2
        overlap = max((size[0] - 1) * stride + kernel - length, 0)
        pool = PoolingAverage(kernel, stride, kernel // 2 - overlap // 2, "clamp")
        answer = oracle_pooling.forward(pool, x, size)._replace(value=expected)
        oracle_pooling.assert_close(pool.forward(x, size, backend=backend), answer, backend)
        assert padding.tensorflow((length, length), kernel, stride) == (pool.offset, size, "clamp", (0, 0))


def test_maxima_of_tensorflow(backend: str) -> None:
    for length, kernel, stride in CUBES:
        x = quarters((1, length, length, 2)) - 4  # negative: a zero of padding would win
        placed = padding.tensorflow((length, length), kernel, stride)
        y = PoolingMax(kernel, stride, placed.offset, "clamp").forward(x, placed.output_size, backend=backend)
        np.testing.assert_array_equal(y, same_padding(x, kernel, stride, np.max))


def test_no_image_holds_the_padding_of_mpsgraph() -> None:
    inside, outside = (GraphPoolingMax(2, 2, offset) for offset in (1, 0))
    problem = inside.problems["forward"](inside, (1, 4, 4, 1), (2, 2))
    assert frameworks.with_explicit_padding(problem).rows.tolist() == [0, 1, 2, 3]
    with pytest.raises(
        UnsupportedError, match="taps lie outside the image, where MPSGraph's max pooling reads nothing"
    ):
        frameworks.with_explicit_padding(outside.problems["forward"](outside, (1, 4, 4, 1), (2, 2)))
