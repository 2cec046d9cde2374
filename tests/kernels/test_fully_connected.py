"""Fully connected layers: worked numbers, a plain matrix product, and the convolution that they are."""

from __future__ import annotations

import numpy as np
import pytest

from mpsref import Convolution, FullyConnected, Neuron, ShapeError

F32 = np.float32
X = np.arange(1, 9, dtype=F32).reshape(1, 2, 2, 2)
WEIGHTS = (0.1 * np.arange(16)).astype(F32).reshape(2, 2, 2, 2)
BIASES = np.array([0.5, -0.5], F32)


def test_worked_example(backend: str) -> None:
    layer, g = FullyConnected(2), np.array([1, -1], F32).reshape(1, 1, 1, 2)
    y = layer.forward(X, WEIGHTS, BIASES, backend=backend)
    np.testing.assert_allclose(y.ravel(), [17.3, 45.1], rtol=1e-6)
    dx = layer.gradient_data(g, WEIGHTS, X.shape, backend=backend)
    np.testing.assert_allclose(dx, np.full(X.shape, -0.8), rtol=1e-6)
    dw, db = layer.gradient_weights(g, X, backend=backend)
    assert dw.reshape(2, 8).tolist() == [list(range(1, 9)), [-k for k in range(1, 9)]]
    assert db.tolist() == [1, -1]


def test_rows_come_before_columns_in_the_weights(backend: str) -> None:
    """OHWI on an image that is not square: the weights of pixel (1, 0) are at [:, 1, 0]."""
    x, weights = np.zeros((1, 2, 3, 1), F32), np.zeros((1, 2, 3, 1), F32)
    x[0, 1, 0], weights[0, 1, 0] = 2, 5
    assert FullyConnected((2, 3)).forward(x, weights, backend=backend).ravel().tolist() == [10]


def test_it_is_a_matrix_product(backend: str) -> None:
    rng = np.random.default_rng(0)
    x, weights = rng.integers(-9, 9, (5, 3, 4, 7)).astype(F32), rng.integers(-9, 9, (6, 3, 4, 7)).astype(F32)
    g = rng.integers(-9, 9, (5, 1, 1, 6)).astype(F32)
    layer, rows, matrix = FullyConnected((3, 4)), x.reshape(5, -1), weights.reshape(6, -1)
    np.testing.assert_array_equal(layer.forward(x, weights, backend=backend)[:, 0, 0], rows @ matrix.T)
    dx = layer.gradient_data(g, weights, x.shape, backend=backend)
    np.testing.assert_array_equal(dx.reshape(5, -1), g[:, 0, 0] @ matrix)
    dw, db = layer.gradient_weights(g, x, backend=backend)
    np.testing.assert_array_equal(dw.reshape(6, -1), g[:, 0, 0].T @ rows)
    np.testing.assert_array_equal(db, g[:, 0, 0].sum(axis=0))


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (4, 5)])
def test_it_is_a_convolution_with_one_window(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    x, weights = rng.standard_normal((2, *size, 3)), rng.standard_normal((4, *size, 3))
    g = rng.standard_normal((2, 1, 1, 4))
    layer, conv = FullyConnected(size), Convolution(size, offset=(size[0] // 2, size[1] // 2))
    np.testing.assert_array_equal(layer.forward(x, weights), conv.forward(x, weights, output_size=1))
    np.testing.assert_array_equal(layer.gradient_data(g, weights, x.shape), conv.gradient_data(g, weights, x.shape))
    for ours, theirs in zip(layer.gradient_weights(g, x), conv.gradient_weights(g, x), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_neuron_comes_last(backend: str) -> None:
    layer = FullyConnected(2, neuron=Neuron("linear", a=2, b=1))
    y = layer.forward(X, np.ones((1, 2, 2, 2), F32), np.array([-6], F32), backend=backend)
    assert y.ravel().tolist() == [61]


def test_a_long_row_is_added_up_accurately(backend: str) -> None:
    """A tenth a million times: one running sum in float32 would be off by a hundred times this."""
    x, weights = np.full((1, 100, 100, 100), 0.1, F32), np.ones((1, 100, 100, 100), F32)
    y = FullyConnected(100).forward(x, weights, backend=backend)
    np.testing.assert_allclose(y.ravel(), 1e6 * np.float64(F32(0.1)), rtol=1e-4)


def test_the_image_has_the_kernel_s_size() -> None:
    with pytest.raises(ShapeError, match=r"source image is 2 x 3; it must have the kernel_size \(2, 2\)"):
        FullyConnected(2).forward(np.ones((1, 2, 3, 2), F32), WEIGHTS)
    with pytest.raises(ShapeError, match=r"source image is 3 x 2"):
        FullyConnected(2).gradient_data(np.ones((1, 1, 1, 2), F32), WEIGHTS, (1, 3, 2, 2))


def test_the_result_has_one_pixel() -> None:
    with pytest.raises(ShapeError, match=r"the result is 2 x 1; a fully connected layer's is \(1, 1\)"):
        FullyConnected(2).forward(X, WEIGHTS, output_size=(2, 1))
    with pytest.raises(ShapeError, match=r"the result is 1 x 2"):
        FullyConnected(2).gradient_weights(np.ones((1, 1, 2, 2), F32), X)
