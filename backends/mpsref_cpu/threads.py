"""Rows of a result, shared out among threads.

Kernels are compiled without the GIL and run in the calling thread and a few plain Python threads beside it; numba's own
parallel layers are not used: one of them aborts the process when two threads enter it at once, another kills a forked
child. The calling thread works too, chunks go to whoever is free, and a helper that comes too late is not waited for. A
row is computed by one thread in the same way whoever it is, so results do not depend on the number of threads.

``numba.set_num_threads`` sets how many threads the calling thread may use, itself included.
"""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from typing import Any, TypeAlias

import numba
from numba import _dispatcher, types

from mpsref_cpu.spin_pool import DONE, FAILED, hand_out, new_spin_pool, serve

__all__ = ["GRAIN", "Step", "for_rows", "in_steps", "thread_count", "threads_for"]

GRAIN = 1 << 18
"""Bytes of work a thread; with less, handing it over costs more than it saves: measured on two cores."""

CHUNKS = 4
"""A thread's share of much work is handed out in so many parts, so that one which is held up leaves some to others."""

LOOKS = 3_000_000
"""How often a helper looks for work before it sleeps: about two milliseconds.

Between the calls of a program that runs one kernel after the other lie some tens of microseconds; to wake a sleeping
thread takes up to a hundred of them.
"""

LAST_LOOKS = 75_000
"""And how often once more after it has said that it sleeps."""

jit: Any = numba  # whose names type checkers know only in part

_lock = threading.Lock()  # held while forking, so that a child never inherits a lock in the middle of its use


def thread_count() -> int:
    """Return how many threads the calling thread may use; asking does not start numba's own threads."""
    try:
        jit.threading_layer()
    except ValueError:  # not started, so nobody has set anything
        return int(jit.config.NUMBA_NUM_THREADS)
    with _lock:
        return int(jit.get_num_threads())


def threads_for(nbytes: int) -> int:
    """Return how many threads pay for so many bytes of work, at least 1."""
    if nbytes < 2 * GRAIN:  # most calls of a small network: not even worth to ask how many there may be
        return 1
    return min(thread_count(), nbytes // GRAIN)


class _Team:
    """Threads that take part in work; between two calls they stay awake for a moment."""

    def __init__(self) -> None:
        self.pool = new_spin_pool()
        serve(self.pool, 0, 0, 0)  # compiled, or loaded, before the first helper needs it
        self.wakers: list[SimpleQueue[None]] = []
        """One for each helper."""
        self.asleep: set[int] = set()

    def gather(self, count: int) -> None:
        """Wake ``count`` helpers; fewer where the interpreter is about to end and starts no threads."""
        if count <= len(self.wakers) and not self.asleep:
            return
        with _lock:
            try:
                while len(self.wakers) < min(count, jit.config.NUMBA_NUM_THREADS - 1):
                    self._start(len(self.wakers))
            except RuntimeError:  # those that there are will do
                pass
            woken = [helper for helper in self.asleep if helper < count]
            self.asleep.difference_update(woken)
        for helper in woken:
            self.wakers[helper].put(None)

    def _start(self, helper: int) -> None:
        waker: SimpleQueue[None] = SimpleQueue()
        name = f"mpsref-cpu-{helper}"
        threading.Thread(target=self._serve, args=(helper, waker), name=name, daemon=True).start()
        self.wakers.append(waker)

    def _serve(self, helper: int, waker: SimpleQueue[None]) -> None:
        known = -1
        while True:
            known = serve(self.pool, helper, LOOKS, known)
            with _lock:
                self.asleep.add(helper)
            known = serve(self.pool, helper, LAST_LOOKS, known)  # for who has not seen that it sleeps
            waker.get()


_team: _Team | None = None

Step: TypeAlias = tuple[Any, tuple[Any, ...]]
"""A compiled kernel, and its arguments after (begin, end)."""

_addresses: dict[tuple[Any, bytes], int] = {}


def _address(kernel: Any, arguments: tuple[Any, ...]) -> int:
    """Return where the machine code of ``kernel`` for such arguments is; compile it at first."""
    key = kernel, _dispatcher.compute_fingerprint(arguments)  # what numba itself tells their types by
    if key not in _addresses:
        signature = types.int64, types.int64, *map(jit.typeof, arguments)
        kernel.compile(signature)
        compiled = kernel.overloads[signature]
        _addresses[key] = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    return _addresses[key]


def for_rows(kernel: Any, rows: int, nbytes: int, *arguments: Any) -> None:
    """Call ``kernel(begin, end, *arguments)`` on parts of ``range(rows)``, in several threads if it pays.

    Each row is in one of the parts. ``kernel`` is compiled and returns nothing; ``nbytes`` is how many bytes all rows
    read and write.
    """
    threads = min(rows, threads_for(nbytes))
    if threads <= 1 or not _shared([(kernel, arguments)], rows, threads, min(CHUNKS, nbytes // (threads * GRAIN))):
        kernel(0, rows, *arguments)


def in_steps(steps: list[Step], rows: int, nbytes: int) -> None:
    """Call one kernel after the other on each row, which is still in the cache then; else like :func:`for_rows`."""
    threads = min(rows, threads_for(nbytes))
    if len(steps) == 1:
        for_rows(steps[0][0], rows, nbytes, *steps[0][1])
    elif threads <= 1 or not _shared(steps, rows, threads, rows):
        for row in range(rows):
            for kernel, arguments in steps:
                kernel(row, row + 1, *arguments)


def _shared(steps: list[Step], rows: int, threads: int, chunks: int) -> bool:
    """Do the work in so many threads, each of which takes about so many chunks.

    Returns ``False`` at once where the helpers work for another thread.
    """
    global _team
    with _lock:
        if _team is None:
            _team = _Team()
        team = _team
    addresses = tuple(_address(*step) for step in steps)
    arguments = tuple(arguments for _, arguments in steps)
    team.gather(threads - 1)
    step = -(-rows // min(rows, threads * chunks))
    outcome = hand_out(team.pool, addresses, rows, step, threads - 1, arguments)
    if outcome == FAILED:  # the one exception that kernels raise
        raise MemoryError(f"no memory for the workspace of {steps[0][0].__name__}; use smaller images")
    return bool(outcome == DONE)


def _after_fork_in_child() -> None:
    """Threads do not survive a fork: forget them; the child starts its own when it needs them."""
    global _team
    _team = None
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork_in_child)
