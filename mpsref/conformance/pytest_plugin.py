"""The suite in pytest: :func:`conformance_test` and three options.

``--mpsref-cases N`` is the number of random cases for each operation, ``--mpsref-seed N`` their seed;
``--mpsref-isolate`` runs them in a process of their own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from mpsref.conformance import CASES

if TYPE_CHECKING:
    from mpsref.conformance.report import Row
    from mpsref.registry import Backend, Operation

_LIFE = pytest.StashKey[contextlib.ExitStack]()

NUMBER, SEED, ISOLATE = "--mpsref-cases", "--mpsref-seed", "--mpsref-isolate"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("mpsref", "conformance of backends")
    group.addoption(NUMBER, type=int, default=CASES, help="random cases for each operation of a conformance test")
    group.addoption(SEED, type=int, default=0, help="seed of the random cases of a conformance test")
    group.addoption(ISOLATE, action="store_true", help="run the cases of a conformance test in a process of their own")


def conformance_test(backend: str | Backend) -> Callable[..., None]:
    """Return a test function of a backend, with one test for each operation.

    Parameters
    ----------
    backend : str or mpsref.Backend
        The backend under test.

    Returns
    -------
    callable
        The test function. Operations of which the backend runs no case, or less than a quarter, are skipped with the
        reason. A failing test shows all failing cases, random ones shrunk.
    """
    from mpsref.conformance.case import operations
    from mpsref.registry import get_backend

    @pytest.mark.parametrize("operation", list(operations()), ids=str)
    def test_conformance(operation: Operation, pytestconfig: pytest.Config) -> None:
        """The backend agrees with the reference."""
        from mpsref.conformance.checker import check_operation
        from mpsref.conformance.isolation import kept

        if _LIFE not in pytestconfig.stash:  # one process for the isolated cases of all tests
            pytestconfig.stash[_LIFE] = contextlib.ExitStack()
            pytestconfig.stash[_LIFE].enter_context(kept())
            pytestconfig.add_cleanup(pytestconfig.stash[_LIFE].close)
        cases, seed = pytestconfig.getoption(NUMBER), pytestconfig.getoption(SEED)
        isolate = pytestconfig.getoption(ISOLATE) or None
        (row,) = check_operation(operation, [get_backend(backend)], cases, seed, isolate=isolate)
        if row.status in ("unsupported", "partial"):
            pytest.skip(row.why_not_passed)
        if row.status != "passed":
            pytest.fail(_describe(row), pytrace=False)

    return test_conformance


def _describe(row: Row) -> str:
    if row.status == "mistrusted":
        return f"{row.operation} on {row.backend}: none of {row.cases} cases expected anything but zeros"
    lines = [f"{row.operation} on {row.backend} ({row.runtime}): {len(row.failures)} of {row.cases} cases failed"]
    for failure in row.failures:
        lines += [f"{failure.case} {failure.layer}", f"  {failure.message}", f"  replay: {failure.replay}"]
    return "\n".join(lines)
