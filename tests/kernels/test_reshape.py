"""Reshape: the order of the elements, both ways, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import Reshape, ShapeError

F32 = np.float32
X = np.arange(1, 13, dtype=F32).reshape(1, 2, 3, 2)


def test_channels_run_fastest(backend: str) -> None:
    y = Reshape((3, 1, 4)).forward(X, backend=backend)
    assert y[0, :, 0].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]


def test_pixels_run_fastest(backend: str) -> None:
    """The elements of an image of channels, each with its rows."""
    y = Reshape((1, 3, 4), "CHW").forward(X, backend=backend)
    assert y[0, 0].T.tolist() == [[1, 3, 5], [7, 9, 11], [2, 4, 6], [8, 10, 12]]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("order", ["HWC", "CHW"])
@pytest.mark.parametrize("size", [(2, 3, 2), (1, 1, 12), (12, 1, 1), (1, 6, 2), (4, 3, 1)])
def test_the_gradient_goes_back(backend: str, size: Any, order: Any, dtype: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 2, 3, 2)).astype(dtype)
    spec = Reshape(size, order)
    y = spec.forward(x, backend=backend)
    assert y.shape == (3, *size)
    np.testing.assert_array_equal(y, spec.forward(x))
    np.testing.assert_array_equal(spec.gradient(y, x.shape, backend=backend), x)


def test_to_one_pixel_is_a_fully_connected_layer_with_a_window() -> None:
    """Weights are stored as (out, y, x, in): in the order of the elements of a reshaped image."""
    weights = np.random.default_rng(1).standard_normal((5, 2, 3, 2)).astype(F32)
    flat = Reshape((1, 1, 12)).forward(X).ravel()
    np.testing.assert_allclose(weights.reshape(5, 12) @ flat, np.einsum("oyxc,yxc->o", weights, X[0]), rtol=1e-5)


def test_bad_calls() -> None:
    with pytest.raises(ValueError, match="element_order is 'WHC'"):
        Reshape((1, 1, 12), "WHC")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"\(2, 3, 2\) has 12 elements and size \(2, 2, 2\) has 8"):
        Reshape((2, 2, 2)).forward(X)
    with pytest.raises(ShapeError, match=r"g has shape \(1, 2, 3, 2\)"):
        Reshape((1, 1, 12)).gradient(X, X)
