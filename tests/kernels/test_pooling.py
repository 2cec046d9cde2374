"""Pooling against brute force: forward and gradient, windows in all the odd places, every parameter of a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import PoolingAverage, PoolingL2Norm, PoolingMax
from mpsref.arguments.arrays import Array
from tests import examples
from tests.kernels import oracle_pooling as oracle
from tests.kernels.oracle_pooling import calls, dtypes, images, pools, quarters, sizes

every_pool = pytest.mark.parametrize("kind", [PoolingAverage, PoolingMax, PoolingL2Norm])
thorough = examples(60)


def pixels(kind: Any, shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """Numbers that are often equal; of an average, whose sums would be exact, thirds of them."""
    return (quarters(shape, "float64", seed) / (3 if kind is PoolingAverage else 1)).astype(dtype)


@every_pool
@thorough
@given(data=st.data(), shape=images, size=sizes, dtype=dtypes)
def test_forward_is_the_brute_force(kind: Any, data: Any, shape: Any, size: Any, dtype: str) -> None:
    pool, x = data.draw(pools(kind)), pixels(kind, shape, dtype)
    y, answer = pool.forward(x, size), oracle.forward(pool, x, size)
    assert y.dtype == dtype
    oracle.assert_close(y, answer, "reference")
    if kind is PoolingMax:
        np.testing.assert_array_equal(y, answer.value)


@every_pool
@thorough
@given(data=st.data(), shape=images, size=sizes, dtype=dtypes, call=calls)
def test_gradient_is_the_brute_force(kind: Any, data: Any, shape: Any, size: Any, dtype: str, call: Any) -> None:
    pool, x = data.draw(pools(kind)), pixels(kind, shape, dtype)
    g = pixels(kind, (shape[0], *size, shape[3]), dtype, seed=1)
    dx = pool.gradient(g, x, **call)
    assert dx.dtype == dtype
    oracle.assert_close(dx, oracle.gradient(pool, g, x, **call), "reference")
