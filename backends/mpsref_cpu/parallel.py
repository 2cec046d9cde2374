"""Rows of a result, shared out among threads.

Kernels are compiled without the GIL and called here from a few plain Python threads; numba's own parallel layers are
not used: one of them aborts the process when two threads enter it at once, another kills a forked child. The calling
thread works too, chunks go to whoever is free, and a helper that comes too late is not waited for. A row is computed by
one thread in the same way whoever it is, so results do not depend on the number of threads.

``numba.set_num_threads`` sets how many threads the calling thread may use, itself included.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numba

__all__ = ["GRAIN", "for_rows", "thread_count"]

GRAIN = 1 << 20
"""Bytes of work a thread; with less, waking it costs more than it saves."""

CHUNKS = 1
"""Chunks a thread. More even out a slow one, but each costs a turn of the interpreter: measured, they did not pay."""

jit: Any = numba  # whose names type checkers know only in part

_lock = threading.Lock()  # held while forking, so that a child never inherits a lock in the middle of its use
_helpers: ThreadPoolExecutor | None = None


def thread_count() -> int:
    """Return how many threads the calling thread may use; asking does not start numba's own threads."""
    try:
        jit.threading_layer()
    except ValueError:  # not started, so nobody has set anything
        return int(jit.config.NUMBA_NUM_THREADS)
    with _lock:
        return int(jit.get_num_threads())


def for_rows(body: Callable[[int, int], None], rows: int, nbytes: int) -> None:
    """Call ``body(begin, end)`` on parts of ``range(rows)``, each row once, in several threads if it pays.

    ``nbytes`` is how many bytes all rows read and write. An exception of any part is raised here, after all have ended.
    """
    threads = min(thread_count(), rows, nbytes // GRAIN)
    if threads <= 1:
        body(0, rows)
        return
    step = -(-rows // (threads * CHUNKS))
    chunks = deque(range(0, rows, step))

    def work() -> None:
        while True:
            try:
                begin = chunks.popleft()
            except IndexError:
                return
            try:
                body(begin, min(begin + step, rows))
            except BaseException:
                chunks.clear()
                raise

    helpers = _start(work, threads - 1)
    try:
        work()
    finally:
        errors = [helper.exception() for helper in helpers if not helper.cancel()]
    for error in errors:
        if error is not None:
            raise error


def _start(work: Callable[[], None], count: int) -> list[Future[None]]:
    """Hand ``work`` to idle helpers; to none where the interpreter is about to end and starts no more threads."""
    global _helpers
    futures: list[Future[None]] = []
    with _lock, contextlib.suppress(RuntimeError):
        if _helpers is None:
            _helpers = ThreadPoolExecutor(max(1, jit.config.NUMBA_NUM_THREADS - 1), "mpsref-cpu")
        while len(futures) < count:
            futures.append(_helpers.submit(work))
    return futures


def _after_fork_in_child() -> None:
    """Threads do not survive a fork: forget them; the child starts its own when it needs them."""
    global _helpers
    _helpers = None
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork_in_child)
