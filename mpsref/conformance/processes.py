"""The check in several processes, which survives a backend that terminates its process."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeAlias

from mpsref.conformance import families
from mpsref.conformance.case import Case
from mpsref.conformance.report import Failure, Row
from mpsref.registry import Operation

Check: TypeAlias = Callable[[str, list[str], int, int, Callable[[Case], None]], list[Row]]
"""``check(operation, backends, number, seed, before)`` by names; it is sent to the processes."""


def check_in_processes(
    check: Check,
    operations: list[Operation],
    backends: list[str],
    number: int,
    seed: int,
    progress: Callable[[str, int], Callable[[], None]],
    jobs: int,
) -> Iterator[Row]:
    """Yield the rows of ``operations`` in their order.

    While there is a choice, no two processes check operations of one family at the same time: these share compiled
    functions, which the first caches on disk for the others. Large families come first. If a process dies, each
    operation that was running is run again, alone.
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
                        with uninterrupted():
                            future = pool.submit(check, str(operation), backends, number, seed, _ignore)
                        running[future] = operation
                        waiting.remove(operation)  # not before: if a process has died, submit raises
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        found[running[future]] = future.result()
                        del running[future]
                        step()
        except BrokenProcessPool:
            for operation in running.values():
                found[operation] = [_alone(check, operation, backend, number, seed) for backend in backends]
                step()
    for operation in operations:
        yield from found[operation]


@contextlib.contextmanager
def _processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Start processes on demand; an exception in the block, such as that of Ctrl-C, ends them at once."""
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), initializer=_ignore_interrupts)
    try:
        yield pool
    except BaseException:
        with uninterrupted():
            for process in set(multiprocessing.active_children()) - before:
                process.terminate()
            pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C to the end of a ``with`` block; processes that are started in the block do not receive it."""
    interrupts: list[int] = []
    in_main_thread = threading.current_thread() is threading.main_thread()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]) if hasattr(signal, "pthread_sigmask") else None
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number)) if in_main_thread else None
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if in_main_thread:
            signal.signal(signal.SIGINT, before)
        if interrupts:
            signal.raise_signal(signal.SIGINT)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # the mask was inherited, see :func:`uninterrupted`
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _next(waiting: list[Operation], busy: list[str]) -> Operation:
    """Return the first operation of the family with most of them waiting, if possible of one that is not busy."""
    waits = Counter(map(_family, waiting))
    return max(waiting, key=lambda operation: (_family(operation) not in busy, waits[_family(operation)]))


def _family(operation: Operation) -> str:
    return families.family_of(operation.spec_type).name


def _ignore(case: Case) -> None:
    pass


def _write(note: Path, case: Case) -> None:
    note.write_text(str(case), "utf-8")


def _alone(check: Check, operation: Operation, backend: str, number: int, seed: int) -> Row:
    """Check one operation on one backend in a process of its own; if that dies, the row names the case."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "case"
        try:
            with _processes(1) as pool:
                before = functools.partial(_write, note)
                with uninterrupted():
                    future = pool.submit(check, str(operation), [backend], number, seed, before)
                (row,) = future.result()
        except BrokenProcessPool:
            case = note.read_text("utf-8") if note.exists() else ""
            return Row(str(operation), backend, "", failures=(Failure(case, backend, "the process that ran it died"),))
        return row
