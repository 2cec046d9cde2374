"""The failures of earlier checks, which the next check tries first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

import platformdirs
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase

import mpsref
from mpsref import registry
from mpsref.conformance.blocks import KnownCases
from mpsref.conformance.case import Case
from mpsref.conformance.report import Failure
from mpsref.registry import Operation


class FailureDatabase:
    """Case strings that failed, by backend and version, in an example database of Hypothesis.

    A case stays in the database when it passes again. A version begins without cases.

    Parameters
    ----------
    where : path or hypothesis.database.ExampleDatabase
        A directory, made with the first failure, that several users and machines may share; or any other
        database of Hypothesis.

    Examples
    --------
    >>> from hypothesis.database import InMemoryExampleDatabase
    >>> from mpsref.conformance.report import Failure
    >>> database = FailureDatabase(InMemoryExampleDatabase())
    >>> database.add([Failure("SoftMax.forward:n1h1w1c2,float32", "cpu", "wrong")])
    >>> for operation, cases in database.cases(["cpu", "metal"]).items():
    ...     print(operation, cases)
    SoftMax.forward {'cpu': ['SoftMax.forward:n1h1w1c2,float32']}
    """

    def __init__(self, where: Path | str | ExampleDatabase) -> None:
        """Open the database; nothing is read or written."""
        self._database = where if isinstance(where, ExampleDatabase) else DirectoryBasedExampleDatabase(where)

    def cases(self, backends: Sequence[str]) -> dict[Operation, KnownCases]:
        """Return by operation and backend the cases that failed, sorted."""
        found: dict[Operation, dict[str, list[str]]] = defaultdict(dict)
        for backend in backends:
            for text in sorted(value.decode() for value in self._database.fetch(_key(backend))):
                operation = Case.parse(text).problem.operation
                found[operation].setdefault(backend, []).append(text)
        return dict(found)

    def add(self, failures: Iterable[Failure]) -> None:
        """Add failures; those of a process that died before its first case have none to add."""
        for failure in failures:
            if failure.case:
                self._database.save(_key(failure.backend), failure.case.encode())


def default_folder() -> Path:
    """Return the folder of this user."""
    return Path(platformdirs.user_data_dir("mpsref")) / "failures"


def _key(backend: str) -> bytes:
    """Return the key of a backend in the version of the package that defines it."""
    return f"mpsref {mpsref.__version__}, {backend} {_version(backend)}".encode()


def _version(backend: str) -> str:
    """Return the version of the package whose entry point names a backend; that of mpsref for a registered one."""
    points = metadata.entry_points(group=registry.ENTRY_POINT_GROUP, name=backend)
    return next((point.dist.version for point in points if point.dist), mpsref.__version__)
