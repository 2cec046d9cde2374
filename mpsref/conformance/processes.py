"""The check in several processes, which survives a backend that terminates its process."""

from __future__ import annotations

import contextlib
import functools
import gc
import multiprocessing
import os
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from anymetal.environment import variable
from mpsref import registry
from mpsref.conformance import families
from mpsref.conformance.blocks import CheckTask, Schedule, Task, Watch, unwatched
from mpsref.conformance.case import Case
from mpsref.conformance.isolation import anonymous_memory, kept
from mpsref.conformance.report import Failure, Row
from mpsref.conformance.runner import CRASHED
from mpsref.registry import Operation

GROWTH = 1 << 30
"""Bytes by which a process may grow after its first block: two that compile all kernels grow by 700 MiB each."""


def check_in_processes(
    check: CheckTask, schedule: Schedule, step: Callable[[], None], jobs: int, watch: Watch = unwatched
) -> None:
    """Check all blocks of a schedule; call ``step`` for each random case.

    While there is a choice, no two processes check operations of one family at the same time: these share compiled
    functions, which the first caches on disk for the others. Large families come first. If a process dies, its block
    is run again, alone. A process that has grown by :data:`GROWTH` is replaced.
    """
    running = dict[Future[tuple[list[Row], bool]], tuple[Operation, Task, ProcessPoolExecutor]]()
    idle: list[ProcessPoolExecutor] = []
    with contextlib.ExitStack() as processes:
        while schedule.waiting or running:
            while len(running) < jobs and (waiting := schedule.waiting):
                operation = _next(waiting, [_family(other) for other, _, _ in running.values()])
                task = schedule.take(operation)
                process = idle.pop() if idle else processes.enter_context(_process())
                try:
                    future = _submit(process, check, task)
                except BrokenProcessPool:  # it has died since its last block
                    process = processes.enter_context(_process())
                    future = _submit(process, check, task)
                running[future] = operation, task, process
                watch([task.operation for _, task, _ in running.values()], [])
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                _, task, process = running.pop(future)
                try:
                    rows, is_worn = future.result()
                except BrokenProcessPool:
                    rows, is_worn = [_alone(check, task._replace(backends=(name,))) for name in task.backends], True
                if is_worn:
                    process.shutdown()
                else:
                    idle.append(process)
                schedule.add(task, rows)
                advance(step, task)
                watch([task.operation for _, task, _ in running.values()], rows)


def _submit(process: ProcessPoolExecutor, check: CheckTask, task: Task) -> Future[tuple[list[Row], bool]]:
    with uninterrupted():
        return process.submit(_checked, check, task)


_first: int | None = None  # bytes of this process after its first block


def _checked(check: CheckTask, task: Task) -> tuple[list[Row], bool]:
    """Check a block in this process; return its rows, and whether the process is too large or worn for another."""
    global _first
    rows = check(task, _ignore)
    size = anonymous_memory(os.getpid()) if os.name == "posix" else 0  # not measured on Windows
    _first = size if _first is None else _first
    return rows, size > _first + GROWTH or any(registry.get_backend(name).is_worn() for name in task.backends)


def advance(step: Callable[[], None], task: Task) -> None:
    """Call ``step`` for each random case of a block."""
    for _ in range(task.size):
        step()


@contextlib.contextmanager
def _process() -> Iterator[ProcessPoolExecutor]:
    """Start a process on demand; an exception in the block, such as that of Ctrl-C, ends it at once."""
    before = set(multiprocessing.active_children())
    with uninterrupted():  # an interrupted constructor leaves a semaphore behind
        pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_begin)
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


_life = contextlib.ExitStack()


def _begin() -> None:
    """Leave Ctrl-C to the process that started this one, collect garbage rarely, and keep isolated interpreters."""
    _life.enter_context(kept())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):  # the mask was inherited, see :func:`uninterrupted`
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    os.environ["ANYMETAL_LAUNCH_WORKERS"] = variable("ANYMETAL_LAUNCH_WORKERS") or "1"  # the cores are busy
    gc.set_threshold(50_000, 20, 50)  # by default it takes a tenth of the time of compilation, whose objects last


def _next(waiting: list[Operation], busy: list[str]) -> Operation:
    """Return the first operation of the family with most of them waiting, if possible of one that is not busy."""
    waits = Counter(map(_family, waiting))
    return max(waiting, key=lambda operation: (_family(operation) not in busy, waits[_family(operation)]))


def _family(operation: Operation) -> str:
    return families.family_of(operation.spec_type).name


def _ignore(case: Case) -> None:
    pass


def note_case(note: Path, case: Case) -> None:
    """Write the case that is about to run to a file, which survives the process."""
    note.write_text(str(case), "utf-8")


def _alone(check: CheckTask, task: Task) -> Row:
    """Check a block on one backend in a process of its own; if that dies, the row names the case."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "case"
        try:
            with _process() as pool:
                with uninterrupted():
                    future = pool.submit(check, task, functools.partial(note_case, note))
                (row,) = future.result()
        except BrokenProcessPool:
            (row,) = rows_of_dead(task, note.read_text("utf-8") if note.exists() else "")
        return row


def rows_of_dead(task: Task, case: str) -> list[Row]:
    """Return the rows of a block whose process died while it ran ``case``."""
    message = "the process that ran it died"
    return [
        Row(task.operation, name, "", failures=(Failure(case, name, message, kind=CRASHED),)) for name in task.backends
    ]
