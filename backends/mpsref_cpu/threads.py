"""Run kernels on rows of a result, in several threads where it pays.

Kernels are compiled without the GIL and run in the calling thread and in plain Python threads, the helpers. numba's own
parallel layers are not used: one of them aborts the process when two threads enter it at once, another kills a forked
child. The calling thread takes part, chunks are claimed by free threads, and a late helper is not waited for. Each row
is computed by one thread, in the same way whatever the thread, so results do not depend on the number of threads.

``numba.set_num_threads`` sets how many threads the calling thread may use, itself included.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, TypeAlias

import numba
import numpy as np

from anymetal.fork_safe import hold_while_forking
from mpsref_cpu import _numba, spin_pool

GRAIN = 1 << 18
"""Minimum number of bytes of work of a thread; with less, to hand it over costs more than it saves (on two cores)."""

CHUNKS_PER_THREAD = 4
"""Number of chunks of a thread if there is much work, so that a delayed thread leaves some of its share to others."""

SPINS = 3_000_000
"""Number of looks of a helper before it sleeps, about 2 milliseconds: programs call kernels tens of microseconds apart,
and to wake a sleeping thread takes up to a hundred.
"""

LAST_SPINS = 75_000
"""Number of further looks after a helper has announced that it sleeps."""

jit: Any = numba  # only some of its names have type declarations

_lock = threading.Lock()

Step: TypeAlias = tuple[Any, Sequence[Any]]
"""A kernel, and its arguments after (begin, end)."""


def thread_count() -> int:
    """Return how many threads the calling thread may use, without starting numba's own threads."""
    try:
        jit.threading_layer()
    except ValueError:  # not started, so no number has been set
        return int(jit.config.NUMBA_NUM_THREADS)
    with _lock:
        return int(jit.get_num_threads())


def threads_for(nbytes: int) -> int:
    """Return the number of threads that pay for ``nbytes`` bytes of work, at least 1."""
    return 1 if nbytes < 2 * GRAIN else min(thread_count(), nbytes // GRAIN)


def for_rows(kernel: Any, rows: int, *arguments: Any, nbytes: int = 0, then: Sequence[Step] = ()) -> None:
    """Call ``kernel(begin, end, *arguments)`` on chunks of ``range(rows)``, in several threads if it pays.

    Parameters
    ----------
    kernel
        A compiled function that returns nothing.
    rows
        Each row is in one chunk.
    *arguments
        A kernel takes images, arrays of four axes, as vectors: see :func:`as_storage`.
    nbytes
        Bytes that the kernel reads and writes in addition to images.
    then
        Further kernels, called on each row directly after the first, while it is in the cache.
    """
    stored = []
    for argument in arguments:  # each line counts: small kernels take microseconds
        if type(argument) is np.ndarray and argument.ndim == 4:
            nbytes += argument.nbytes
            plain = argument.dtype.char == "f" and argument.flags.writeable
            argument = argument.ravel() if plain else as_storage(argument)
        stored.append(argument)
    steps = [(kernel, stored)]
    for step, values in then:
        steps.append((step, [as_storage(v) if isinstance(v, np.ndarray) and v.ndim == 4 else v for v in values]))
    if nbytes >= 2 * GRAIN and _shared(steps, rows, nbytes):
        return
    if not then:
        kernel(0, rows, *stored)
        return
    for row in range(rows):
        for step, values in steps:
            step(row, row + 1, *values)


class _Memory:
    """The memory of an array as writeable."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        interface = array.__array_interface__
        self.array = array
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def as_storage(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a C-contiguous array as a writeable vector, float16 as its bits in uint16.

    numba would compile everything again for read-only arrays, which have a type of their own; kernels do not write
    their inputs.
    """
    flat = array.ravel()  # faster than a reshape
    if not flat.flags.writeable:
        try:
            flat.setflags(write=True)  # of this view alone; NumPy allows it if the owner of the memory is writeable
        except ValueError:
            flat = np.asarray(_Memory(flat))
    return flat.view(np.uint16) if flat.dtype.char == "e" else flat


class _Team:
    """The helpers, and the pool through which they receive work; between two calls they spin for a moment."""

    def __init__(self) -> None:
        self.pool = spin_pool.new_pool()
        spin_pool.serve(self.pool, 0, 0, 0)  # compiled, or loaded, before the first helper needs it
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
            except RuntimeError:  # continue with those that exist
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
            known = spin_pool.serve(self.pool, helper, SPINS, known)
            with _lock:
                self.asleep.add(helper)
            known = spin_pool.serve(self.pool, helper, LAST_SPINS, known)  # for a caller that saw it awake
            waker.get()


_Job = ctypes.c_int64 * _numba.JOB

_team: _Team | None = None


def _shared(steps: Sequence[Step], rows: int, nbytes: int) -> bool:
    """Run the steps in several threads; return ``False`` at once if one is enough or helpers work for another."""
    global _team
    threads = min(rows, nbytes // GRAIN, thread_count())
    if threads <= 1 or not _numba.can_share_work:
        return False
    with _lock:
        team = _team = _team or _Team()
    jobs = (_Job * len(steps))()  # the address of an array of NumPy takes ten times as long
    at = start = ctypes.addressof(jobs)
    for kernel, values in steps:
        kernel(at, _numba.PACK, *values)
        at += 8 * _numba.JOB
    team.gather(threads - 1)
    chunks = rows if len(steps) > 1 else min(CHUNKS_PER_THREAD, nbytes // (threads * GRAIN))
    step = -(-rows // min(rows, threads * chunks))
    outcome = spin_pool.run_job(team.pool, start, len(steps), rows, step, threads - 1)
    if outcome == spin_pool.FAILED:  # the one exception that kernels raise
        raise MemoryError(f"no memory for the workspace of {steps[0][0].__name__}; use smaller images")
    return bool(outcome == spin_pool.DONE)


hold_while_forking(_lock, _numba.compiler_lock)  # a fork waits for the end of a compilation


def _after_fork_in_child() -> None:
    """Forget the helpers, which do not survive a fork; the child starts its own when it needs them."""
    global _team
    _team = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
