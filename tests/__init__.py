"""What several folders of tests use."""

from collections.abc import Sequence
from typing import Any

import pytest


def few(values: Sequence[Any], number: int) -> list[Any]:
    """Return the values of a parametrized test, of which only the first ones run by default: the others are slow."""
    rows = (one if type(one) is tuple else (one,) for one in values)
    return [pytest.param(*row, marks=[pytest.mark.slow] * (i >= number)) for i, row in enumerate(rows)]
