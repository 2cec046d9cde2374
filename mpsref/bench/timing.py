"""Timing of calls in turns, and the plain copy."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array

Call: TypeAlias = Callable[[], object]

THREADED_BYTES = 500_000
"""Copies of less run in one thread."""

ROUND_SECONDS = 0.004
"""Minimal time for which a runner repeats its call in a turn."""

LONG_SECONDS = 0.05
"""Calls that take longer are made once in a turn; the time in which threads wake up is negligible for them."""

PAUSE_SECONDS = 0.012
"""Before each turn: threads of the previous runner wait actively for a while, PyTorch's for 9 ms on two cores, and
would occupy a core."""


WAKE_SECONDS = 0.012
"""Before the time of a short call is taken, it is repeated for so long: a thread that sleeps is sometimes woken on the
core of the caller, and an idle core takes it over only 7 to 11 ms later."""

MINIMAL_ROUNDS = 3
"""The number of rounds of a measurement whose time is spent."""


class Rates(NamedTuple):
    """The rates of this machine: bytes read and written by a copy, and operations of a matrix product, in a second."""

    copy: float
    product: float


def rates(pool: ThreadPoolExecutor, threads: int) -> Rates:
    """Measure the rates of a copy of 32 MB and of a float32 matrix product in NumPy."""
    nbytes, n = 64_000_000, 1024
    left, right, result = (np.full((n, n), 0.5, np.float32) for _ in range(3))
    calls = copying(nbytes, pool, threads), lambda: np.matmul(left, right, out=result)
    for call in calls:
        call()
    copy, product = take_turns(calls, 3)
    return Rates(nbytes / copy, 2 * n**3 / product)


def turn_seconds(call: float) -> float:
    """Return the time of a turn of a call that takes ``call`` seconds."""
    repeated = 0.0 if call > LONG_SECONDS else WAKE_SECONDS + max(3 * call, ROUND_SECONDS)
    return PAUSE_SECONDS + call + repeated


def take_turns(calls: Sequence[Call], rounds: int, seconds: float = math.inf) -> list[float]:
    """Return the median time of each call in seconds, over rounds in which each has a turn.

    Each must have been called before: the first call may compile. The rounds end after ``seconds``, but not before the
    third one; a call that takes more than ``seconds``, and more than 50 ms, has one turn.
    """
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    for k in range(rounds):
        if k >= MINIMAL_ROUNDS and time.perf_counter() > end:
            break
        for call, mine in zip(calls, times, strict=True):
            if mine and mine[0] > max(seconds, LONG_SECONDS):
                continue
            time.sleep(PAUSE_SECONDS)
            mine.append(_seconds(call))
    return [statistics.median(mine) for mine in times]


def _seconds(call: Call) -> float:
    """Return the median time of a repeated call, after those that wake its threads; or the time of one long call."""
    first = _seconds_of_one(call)
    if first > LONG_SECONDS:
        return first
    woken = time.perf_counter() + WAKE_SECONDS
    while time.perf_counter() < woken:
        call()
    times: list[float] = []
    while len(times) < 3 or sum(times) < ROUND_SECONDS:
        times.append(_seconds_of_one(call))
    return statistics.median(times)


def _seconds_of_one(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def copying(nbytes: int, pool: ThreadPoolExecutor, threads: int) -> Call:
    """Return a copy that reads half of ``nbytes`` and writes the other half into given memory."""
    return copy_of(np.ones(nbytes // 2, np.uint8), np.zeros(nbytes // 2, np.uint8), pool, threads)


def copy_of(source: Array, target: Array, pool: ThreadPoolExecutor, threads: int) -> Call:
    """Return a copy in equal chunks, one of them in the calling thread."""
    chunks = threads if source.nbytes + target.nbytes >= THREADED_BYTES else 1
    ends = [source.size * k // chunks for k in range(chunks + 1)]
    first, *others = [(target[a:b], source[a:b]) for a, b in itertools.pairwise(ends)]

    def copy() -> None:
        running = [pool.submit(np.copyto, *chunk) for chunk in others]
        np.copyto(*first)
        for future in running:
            future.result()

    return copy


def difference(ours: Any, theirs: Sequence[Array]) -> float | None:
    """Return the largest difference of results if it is more than rounding, else ``None``."""
    for own, other in zip(ours if isinstance(ours, tuple) else (ours,), theirs, strict=False):
        mine = np.asarray(own)
        if mine.shape != other.shape:
            return math.inf
        if not np.allclose(mine, other, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(other).max(initial=0.0)))):
            return float(np.abs(mine - other).max())
    return None


def in_turn(calls: Sequence[Call]) -> Call:
    """Return a call that makes ``calls``, one after the other."""
    if len(calls) == 1:
        return calls[0]

    def run() -> None:
        for call in calls:
            call()

    return run
