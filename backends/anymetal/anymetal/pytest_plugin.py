"""For tests of MSL kernels: ``msl`` compiles a file in the folder of the test, ``--anymetal`` imitates an Apple GPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import pytest

from .api import Library, compile

IMITATIONS = {"torch": "mps", "mlx": "metal"}
"""The functions of ``anymetal.torch`` and ``anymetal.mlx`` that let a program find an Apple GPU."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--anymetal``."""
    what = "run tests of kernels for this framework's Apple GPU on the CPU, with all checks; may be given twice"
    parser.addoption("--anymetal", action="append", default=[], choices=IMITATIONS, help=what)


def pytest_configure(config: pytest.Config) -> None:
    """Imitate an Apple GPU before tests are imported, until all have run."""
    for name in config.getoption("--anymetal"):
        try:
            module = import_module(f"anymetal.{name}")
        except ImportError as error:
            raise pytest.UsageError(f"--anymetal {name}: {error}") from None
        stack = ExitStack()
        stack.enter_context(getattr(module, IMITATIONS[name])())
        config.add_cleanup(stack.close)


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
