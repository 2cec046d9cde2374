"""A fixture for tests of MSL kernels: ``msl`` compiles a file in the folder of the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .api import Library, compile


@pytest.fixture
def msl(request: pytest.FixtureRequest) -> Callable[..., Library]:
    """Return :func:`anymetal.compile`, for which relative paths start at the folder of the test.

    Examples
    --------
    ::

        def test_relu(msl):
            x = np.linspace(-1, 1, 1000, dtype=np.float32)
            y = np.full_like(x, np.nan)
            msl("relu.metal")["relu"](1000, 256, x, y)
            np.testing.assert_array_equal(y, np.maximum(x, 0))
    """

    def compile_here(source: Any, /, **options: Any) -> Library:
        is_name = isinstance(source, str) and source.endswith(".metal") and "\n" not in source
        return compile(request.path.parent / source if is_name else source, **options)

    return compile_here
