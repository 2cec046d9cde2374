"""Blocks of cases: the unit of work that processes and machines share, and the schedule of a check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from mpsref.conformance import CASES
from mpsref.conformance.case import Case
from mpsref.conformance.report import Row
from mpsref.registry import Operation

KnownCases: TypeAlias = Mapping[str, Sequence[str]]
"""By backend, case strings that failed before."""


@dataclass(frozen=True)
class Block:
    """Some of the cases of a check of one operation, independent of the cases of other blocks."""

    number: int
    """Number of random cases, at most :data:`~mpsref.conformance.CASES`."""
    seed: int
    """Of the random cases."""
    layers: bool = False
    """Whether the layers of published networks are checked, too: in the first block."""
    known: KnownCases = field(default_factory=dict)
    """In the first block, the cases that are tried before all others."""


def blocks(number: int, seed: int, known: KnownCases | None = None) -> Iterator[Block]:
    """Yield the blocks of ``number`` random cases: each full block is followed by one of the next seed.

    Without random cases the only block has the known cases, and no layers.

    >>> [(block.number, block.seed) for block in blocks(150, seed=7)]
    [(60, 7), (60, 8), (30, 9)]
    """
    for k, start in enumerate(range(0, max(number, 1), CASES)):
        yield Block(min(CASES, number - start), seed + k, number > 0 and k == 0, (known or {}) if k == 0 else {})


class Task(NamedTuple):
    """A block of one operation, and the backends that run it; sent to other processes."""

    operation: str
    backends: tuple[str, ...]
    position: int
    block: Block

    @property
    def size(self) -> int:
        """Number of random cases on all backends together."""
        return self.block.number * len(self.backends)


CheckTask: TypeAlias = Callable[[Task, Callable[[Case], None]], list[Row]]
"""``check(task, before)`` returns a row for each backend of the task; ``before`` is called with each case."""


Watch: TypeAlias = Callable[[Sequence[str], Sequence[Row]], None]
"""``watch(running, rows)`` is called with the operations that are running when they change, and with new rows."""


def unwatched(running: Sequence[str], rows: Sequence[Row]) -> None:
    """Do nothing."""


class Schedule:
    """The blocks of a check that have not begun, and the rows of those that are done.

    Blocks may be done in any order: the result is that of all blocks in their order.

    Parameters
    ----------
    operations, backends, number, seed
        As in :func:`~mpsref.conformance.checker.check`; backends by name.
    known
        By operation, the cases that are tried first.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        backends: Sequence[str],
        number: int,
        seed: int,
        known: Mapping[Operation, KnownCases] | None = None,
    ) -> None:
        """Begin with the first block of each operation."""
        self.size = number * len(operations) * len(backends)
        """Number of random cases of all blocks on all backends together."""
        self._rows = {(str(op), name): _Rows() for op in operations for name in backends}
        self._left = {op: enumerate(blocks(number, seed, (known or {}).get(op))) for op in operations}
        self._next: dict[Operation, Task] = {}
        self._backends = tuple(backends)
        for operation in operations:
            self._advance(operation)

    @property
    def waiting(self) -> list[Operation]:
        """The operations whose next block is one of the first that have not begun."""
        first = min((task.position for task in self._next.values()), default=0)
        return [operation for operation, task in self._next.items() if task.position == first]

    def take(self, operation: Operation) -> Task:
        """Return the next block of an operation that is waiting."""
        task = self._next[operation]
        self._advance(operation)
        return task

    def take_several(self, number: int) -> list[Task]:
        """Return up to ``number`` next blocks; at least one operation must be waiting."""
        return [self.take(operation) for _ in range(number) for operation in self.waiting[:1]]

    def add(self, task: Task, rows: Iterable[Row]) -> None:
        """Add the rows of a block."""
        for row in rows:
            self._rows[row.operation, row.backend].add(task.position, row)
        for operation in [op for op in self._next if str(op) == task.operation]:
            self._restrict(operation)

    def rows(self) -> list[Row]:
        """Return a row for each operation on each backend, when all blocks are done."""
        return [one.merged for one in self._rows.values() if one.merged is not None]

    def _advance(self, operation: Operation) -> None:
        index, block = next(self._left[operation], (0, None))
        if block is None:
            del self._next[operation]
        else:
            self._next[operation] = Task(str(operation), self._backends, index, block)
            self._restrict(operation)

    def _restrict(self, operation: Operation) -> None:
        """Leave out the backends on which a random case has failed; without any, the operation is done."""
        task = self._next[operation]
        left = tuple(name for name in task.backends if not self._rows[task.operation, name].is_over)
        if left:
            self._next[operation] = task._replace(backends=left)
        else:
            del self._next[operation]


class _Rows:
    """The rows of an operation on a backend, merged as far as all earlier blocks are done."""

    def __init__(self) -> None:
        self.merged: Row | None = None
        self.is_over = False
        """Whether a random case of some block has failed: later blocks are not needed."""
        self._early: dict[int, Row] = {}
        self._count = 0

    def add(self, index: int, row: Row) -> None:
        self._early[index] = row
        self.is_over |= row.is_last
        while (following := self._early.pop(self._count, None)) is not None:
            self.merged = Row.merged([self.merged, following] if self.merged else [following])
            self._count += 1
