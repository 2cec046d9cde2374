"""The check in several processes, which outlive a backend that takes its process down."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from mpsref.conformance import families
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.checker import check_operation
from mpsref.conformance.report import Failure, Row
from mpsref.registry import Operation, get_backend

__all__ = ["check_in_processes"]


def check_in_processes(
    operations: list[Operation],
    backends: list[str],
    number: int,
    seed: int,
    progress: Callable[[str, int], Callable[[], None]],
    jobs: int,
) -> Iterator[Row]:
    """Yield the rows in their order.

    As long as there is a choice, no two processes work on one family at the same time: its operations share kernels,
    which the first compiles and keeps on disk for the others. Large families come first. Where a process dies, what was
    running is run again, each operation alone, to find whose fault it was.
    """
    step = progress("operations", len(operations))
    waiting, found = list(operations), dict[Operation, list[Row]]()
    while waiting:
        running = dict[Future[list[Row]], Operation]()
        try:
            with _processes(min(jobs, len(waiting))) as pool:
                while waiting or running:
                    while waiting and len(running) < jobs:
                        operation = _next(waiting, [_family(other) for other in running.values()])
                        running[pool.submit(_rows, str(operation), backends, number, seed)] = operation
                        waiting.remove(operation)  # not before: a process that died meanwhile makes submit raise
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        found[running[future]] = future.result()
                        del running[future]
                        step()
        except BrokenProcessPool:
            for operation in running.values():
                found[operation] = [_alone(operation, backend, number, seed) for backend in backends]
                step()
    for operation in operations:
        yield from found[operation]


def _processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))


def _next(waiting: list[Operation], busy: list[str]) -> Operation:
    """Return the first operation of the family that has most of them waiting, if it can be one that nobody works on."""
    waits = Counter(map(_family, waiting))
    return max(waiting, key=lambda operation: (_family(operation) not in busy, waits[_family(operation)]))


def _family(operation: Operation) -> str:
    return families.family_of(operation.spec_type).name


def _rows(operation: str, backends: list[str], number: int, seed: int, note: Path | None = None) -> list[Row]:
    """Check one operation: what a process is asked for. The case that is about to run is written to ``note``."""

    def before(case: Case) -> None:
        if note is not None:
            note.write_text(str(case), "utf-8")

    chosen = [get_backend(name) for name in backends]
    return check_operation(operation_named(operation), chosen, number, seed, before=before)


def _alone(operation: Operation, backend: str, number: int, seed: int) -> Row:
    """Check one operation on one backend in a process of its own; if that dies, the row names the case."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "case"
        try:
            with _processes(1) as pool:
                (row,) = pool.submit(_rows, str(operation), [backend], number, seed, note).result()
        except BrokenProcessPool:
            case = note.read_text("utf-8") if note.exists() else ""
            return Row(str(operation), backend, "", failures=(Failure(case, backend, "the process that ran it died"),))
        return row
