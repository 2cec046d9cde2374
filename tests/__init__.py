"""What several folders of tests use."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings


def few(values: Sequence[Any], number: int) -> list[Any]:
    """Return the values of a parametrized test, of which only the first ones run by default: the others are slow."""
    rows = (one if type(one) is tuple else (one,) for one in values)
    return [pytest.param(*row, marks=[pytest.mark.slow] * (i >= number)) for i, row in enumerate(rows)]


def examples(number: int) -> settings:
    """Return the settings of a test with that many random examples; with a fourth of them unless slow tests run."""
    return settings(max_examples=number if SLOW[0] else max(5, number // 4), deadline=None)


SLOW = [True]
"""Whether tests marked slow run, which the options of pytest say."""


def need(package: str, reason: str) -> None:
    """Skip the tests of a module without a package, which is not imported: each process would, for its collection."""
    if find_spec(package) is None:
        pytest.skip(reason, allow_module_level=True)


def python_path(*first: Path) -> str:
    """Return the variable ``PYTHONPATH`` of a process that imports the packages of this one, after some folders."""
    found = [find_spec(name) for name in ("mpsref", "mpsref_cpu", "anymetal")]
    roots = [Path(str(one.origin)).parents[1] for one in found if one is not None]
    return os.pathsep.join(dict.fromkeys(map(str, (*first, *roots))))
