"""Rows of a result, shared out among threads.

Kernels are compiled without the GIL and called here from a few plain Python threads; numba's own parallel layers are
not used: one of them aborts the process when two threads enter it at once, another kills a forked child. The calling
thread works too, chunks go to whoever is free, and a helper that comes too late is not waited for. A row is computed by
one thread in the same way whoever it is, so results do not depend on the number of threads.

``numba.set_num_threads`` sets how many threads the calling thread may use, itself included.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numba
import numpy as np

from mpsref_cpu.spinning import LOOKS, until_all_set, until_changed

__all__ = ["GRAIN", "for_rows", "thread_count"]

GRAIN = 1 << 21
"""Bytes of work a thread; with less, handing it over costs more than it saves: measured on two cores."""

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


class _Work:
    """The chunks of one call."""

    def __init__(self, body: Callable[[int, int], None], rows: int, step: int) -> None:
        self.body, self.rows, self.step = body, rows, step
        self.waiting = deque(range(0, rows, step))
        self.done = np.zeros(len(self.waiting), np.int64)  # a word for each chunk
        self.signals: SimpleQueue[None] = SimpleQueue()  # the same for a thread that sleeps
        self.errors: list[BaseException] = []

    def take_part(self) -> int:
        """Work on chunks until none is left; return how many were done."""
        count = 0
        while True:
            try:
                begin = self.waiting.popleft()
            except IndexError:
                return count
            try:
                self.body(begin, min(begin + self.step, self.rows))
            except BaseException as error:
                self.errors.append(error)
                while self.waiting:  # nobody begins another one
                    self._finished(self.waiting.popleft())
                    count += 1
            self._finished(begin)
            count += 1

    def _finished(self, begin: int) -> None:
        self.done[begin // self.step] = 1
        self.signals.put(None)

    def wait_for_others(self) -> None:
        """Return when every chunk is done."""
        if until_all_set(self.done, LOOKS):
            return
        for _ in range(len(self.done)):
            self.signals.get()


class _Helpers:
    """Threads that take part in work; between two calls they stay awake for a moment."""

    def __init__(self) -> None:
        self.jobs: deque[_Work] = deque()
        self.posted = np.zeros(1, np.int64)
        self.wake: SimpleQueue[None] = SimpleQueue()
        self.asleep = self.started = 0

    def post(self, work: _Work, count: int) -> None:
        """Offer ``work`` to ``count`` helpers; to fewer where the interpreter is about to end and starts no threads."""
        with _lock:
            try:
                while self.started < min(count, jit.config.NUMBA_NUM_THREADS - 1):
                    threading.Thread(target=self._serve, name=f"mpsref-cpu-{self.started}", daemon=True).start()
                    self.started += 1
            except RuntimeError:
                return
            self.jobs.extend([work] * count)
            self.posted[0] += 1
            woken = min(self.asleep, count)
            self.asleep -= woken
        for _ in range(woken):
            self.wake.put(None)

    def _serve(self) -> None:
        while True:
            known = int(self.posted[0])
            try:
                work = self.jobs.popleft()
            except IndexError:
                if not until_changed(self.posted, known, LOOKS):
                    self._sleep(known)
                continue
            work.take_part()
            del work  # and with it the arrays of the caller

    def _sleep(self, known: int) -> None:
        with _lock:
            if self.posted[0] != known:
                return
            self.asleep += 1
        self.wake.get()


_helpers: _Helpers | None = None


def for_rows(body: Callable[[int, int], None], rows: int, nbytes: int) -> None:
    """Call ``body(begin, end)`` on parts of ``range(rows)``, each row once, in several threads if it pays.

    ``nbytes`` is how many bytes all rows read and write. An exception of any part is raised here, after all have ended.
    """
    global _helpers
    threads = min(thread_count(), rows, nbytes // GRAIN)
    if threads <= 1:
        body(0, rows)
        return
    work = _Work(body, rows, -(-rows // threads))
    with _lock:
        if _helpers is None:
            _helpers = _Helpers()
        helpers = _helpers
    helpers.post(work, len(work.done) - 1)
    if work.take_part() < len(work.done):
        work.wait_for_others()
    if work.errors:
        raise work.errors[0]


def _after_fork_in_child() -> None:
    """Threads do not survive a fork: forget them; the child starts its own when it needs them."""
    global _helpers
    _helpers = None
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork_in_child)
