"""Slice: boxes inside and across the edges, the adjoint, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import ShapeError, Slice

F32 = np.float32
X = np.arange(1, 61, dtype=F32).reshape(1, 3, 4, 5)


def test_a_box_inside(backend: str) -> None:
    part = Slice((1, 2, 3), (2, 1, 2)).forward(X, backend=backend)
    np.testing.assert_array_equal(part, X[:, 1:3, 2:3, 3:5])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_to_the_end(backend: str, dtype: Any) -> None:
    part = Slice((1, 0, 2)).forward(X.astype(dtype), backend=backend)
    assert part.dtype == dtype
    np.testing.assert_array_equal(part, X[:, 1:, :, 2:])


@pytest.mark.parametrize(
    ("offset", "size"),
    [((-1, -2, 0), (5, 3, 5)), ((2, 3, 1), (4, 4, 1)), ((-5, 0, 0), (2, 2, 5)), ((7, 9, 0), (1, 1, 1))],
)
def test_outside_the_image_it_is_zero(backend: str, offset: Any, size: Any) -> None:
    padded = np.zeros((1, 23, 24, 5), F32)
    padded[:, 10:13, 10:14] = X
    (y, x, c), (height, width, channels) = offset, size
    expected = padded[:, 10 + y : 10 + y + height, 10 + x : 10 + x + width, c : c + channels]
    np.testing.assert_array_equal(Slice(offset, size).forward(X, backend=backend), expected)


@pytest.mark.parametrize("offset", [(0, 0, 0), (1, 2, 3), (-2, -1, 4), (2, 3, 0)])
def test_the_adjoint_puts_it_back(backend: str, offset: Any) -> None:
    spec = Slice(offset, (2, 3, 1))
    part = spec.forward(X)
    g = np.arange(1, part.size + 1, dtype=F32).reshape(part.shape)
    dx = spec.gradient(g, X, backend=backend)
    assert (dx * X).sum() == (g * part).sum()
    np.testing.assert_array_equal(spec.forward(dx), np.where(spec.forward(np.ones_like(X)) == 1, g, 0))
    np.testing.assert_array_equal(dx, spec.gradient(g, X.shape))


@pytest.mark.parametrize(
    ("offset", "size", "text"),
    [
        ((0, 0, 5), (None, None, None), "on axis C the offset is 5"),
        ((0, 0, 3), (None, None, 3), "its channels must exist"),
        ((3, 0, 0), (None, None, None), "on axis H the offset is 3, the size to the end.*name a size"),
    ],
)
def test_slices_that_do_not_fit(offset: Any, size: Any, text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        Slice(offset, size).forward(X)


def test_a_gradient_of_another_shape() -> None:
    with pytest.raises(ShapeError, match=r"g has shape \(1, 3, 4, 5\).*it must have shape \(1, 2, 4, 5\)"):
        Slice((1, 0, 0)).gradient(X, X)
