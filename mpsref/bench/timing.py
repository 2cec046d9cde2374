"""Timing of calls in turns, and the plain copy."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.torch_equivalents import Call

THREADED_BYTES = 500_000
"""Copies of less run in one thread."""

ROUND_SECONDS = 0.004
"""Minimal time for which a runner repeats its call in a turn."""

PAUSE_SECONDS = 0.02
"""Before each turn: threads of the previous runner wait actively for a while, PyTorch's for 9 ms on two cores, and
would occupy a core."""


def take_turns(calls: Sequence[Call], rounds: int) -> list[float]:
    """Return the median time of each call in seconds, over rounds in which each has a turn."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(rounds):
        for call, mine in zip(calls, times, strict=True):
            time.sleep(PAUSE_SECONDS)
            call()  # wakes its threads
            mine.append(_seconds(call))
    return [statistics.median(mine) for mine in times]


def _seconds(call: Call) -> float:
    """Return the median time of a repeated call."""
    times: list[float] = []
    while len(times) < 3 or sum(times) < ROUND_SECONDS:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


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


def in_turn(calls: Sequence[Call]) -> Call:
    """Return a call that makes ``calls``, one after the other."""
    if len(calls) == 1:
        return calls[0]

    def run() -> None:
        for call in calls:
            call()

    return run
