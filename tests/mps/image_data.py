"""What the tests of images share: arrays to make them from, and a comparison of every bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mpsref.arguments.arrays import Array

DTYPES = [np.float16, np.float32]
SHAPES = st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 10))


def arrays(shapes: st.SearchStrategy[tuple[int, ...]] = SHAPES) -> st.SearchStrategy[Array]:
    """Arrays of any bits, NaN and infinities among them."""
    dtypes = st.sampled_from(DTYPES)
    return dtypes.flatmap(lambda dtype: hnp.arrays(dtype, shapes))


def counted(*shape: int, dtype: Any = np.float32) -> Array:
    """Every element another number, so that no transposition goes unseen."""
    return np.arange(1, 1 + np.prod(shape), dtype=dtype).reshape(shape)


def same(a: Array, b: Array) -> bool:
    """Whether both have the same shape, dtype and bits."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
