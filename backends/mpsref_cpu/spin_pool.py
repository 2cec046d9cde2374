"""A pool of threads that spin on shared memory: a job reaches them in about a microsecond, without the interpreter.

A pool is an array of a few integers. The *owner* of a job writes its addresses, arguments and number of chunks there.
The chunks are dealt out in turn, a share for each thread. Every thread that sees the job claims chunks of its share by
incrementing an integer until none is left, then those of the others; the owner does the same, then waits for the
threads that are still at work. None of this needs the interpreter's lock, and a thread that arrives late finds no chunk
left. In each job a thread has the same parts of the images, which may still be in the cache of its core.

All accesses are atomic and sequentially consistent. Two facts make it safe to write the next job while a late thread
still looks at the last one: a thread increments ACTIVE before it claims a chunk, and claims one before it reads what
the chunk is; and between two jobs the integer of each share is larger than any number of chunks.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types

from mpsref_cpu._numba import CHUNK_TYPE, JOB
from mpsref_cpu.compiling import compiled, inlined, intrinsic

Memory = npt.NDArray[np.int64]

DONE, FAILED, BUSY = 0, 1, 2
"""Results of :func:`run_job`."""

# Indices into the array, in cache lines of eight: counters of many threads are apart from each other and from the job.
POSTED, ACTIVE, OWNED, BROKEN = 0, 8, 16, 17
JOBS, COUNT, ROWS, STEP, CHUNKS, HELPERS, YIELD = 24, 25, 26, 27, 28, 29, 30
NEXT = 32
"""Index of the counter of the first share; those of the others follow, each in a cache line of its own."""

SHARES, LINE = 64, 8
"""Maximum number of shares, and number of integers in a cache line; further threads have no share."""

CLOSED = 1 << 40
"""The counter of a share while there is no job."""

LOOKS_PER_YIELD = 4096
"""Number of looks after which a spinning thread yields its core: about 3 microseconds."""


def new_pool() -> Memory:
    """Return the memory of a pool without a job."""
    words = np.zeros(NEXT + SHARES * LINE, np.int64)
    words[NEXT::LINE] = CLOSED
    libraries: Any = ctypes
    yields = libraries.windll.kernel32.SwitchToThread if sys.platform == "win32" else ctypes.CDLL(None).sched_yield
    words[YIELD] = ctypes.cast(yields, ctypes.c_void_p).value or 0
    return words


def _word(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.gep(context.make_array(signature.args[0])(context, builder, arguments[0]).data, [arguments[1]])


@intrinsic
def _load(typing, words, index):
    """Return ``words[index]``."""

    def generate(context, builder, signature, arguments):
        return builder.load_atomic(_word(context, builder, signature, arguments), "seq_cst", 8)

    return types.int64(words, types.intp), generate


@intrinsic
def _store(typing, words, index, value):
    """Set ``words[index]``."""

    def generate(context, builder, signature, arguments):
        builder.store_atomic(arguments[2], _word(context, builder, signature, arguments), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(words, types.intp, types.int64), generate


@intrinsic
def _fetch_add(typing, words, index, step):
    """Add ``step`` to ``words[index]``; return the old value."""

    def generate(context, builder, signature, arguments):
        return builder.atomic_rmw("add", _word(context, builder, signature, arguments), arguments[2], "seq_cst")

    return types.int64(words, types.intp, types.int64), generate


@intrinsic
def _exchange(typing, words, index, value):
    """Set ``words[index]``; return the old value."""

    def generate(context, builder, signature, arguments):
        return builder.atomic_rmw("xchg", _word(context, builder, signature, arguments), arguments[2], "seq_cst")

    return types.int64(words, types.intp, types.int64), generate


@intrinsic
def _yield(typing, address):
    """Call the system function at ``address`` that yields the core to another thread."""

    def generate(context, builder, signature, arguments):
        function = ir.FunctionType(ir.IntType(32), [])
        return builder.call(builder.inttoptr(arguments[0], function.as_pointer()), [])

    return types.int32(types.int64), generate


@intrinsic
def _call(typing, job, begin, end):
    """Call the kernel of the job at an address."""

    def generate(context, builder, signature, arguments):
        chunk = builder.load(builder.inttoptr(arguments[0], CHUNK_TYPE.as_pointer().as_pointer()))
        return builder.call(chunk, arguments)

    return types.int64(types.int64, types.int64, types.int64), generate


@inlined
def _compute_chunks(words, thread):
    """Claim and compute the chunks of the share of a thread, then of the other shares, until none is left."""
    _fetch_add(words, ACTIVE, 1)
    shares = _shares(words)
    for k in range(shares):
        share = (thread + k) % shares
        while True:
            claimed = _fetch_add(words, NEXT + share * LINE, 1)
            chunk = share + claimed * _shares(words)  # of this job, since it is read after the claim
            if chunk >= _load(words, CHUNKS):
                break
            begin = chunk * words[STEP]
            end = min(begin + words[STEP], words[ROWS])
            for k in range(words[COUNT]):
                if _call(words[JOBS] + 8 * JOB * k, begin, end):
                    _store(words, BROKEN, 1)
    _fetch_add(words, ACTIVE, -1)


@inlined
def _shares(words):
    """Return the number of shares. Before it claims a chunk, a late thread may read that of another job."""
    return min(_load(words, HELPERS) + 1, SHARES)


@compiled
def run_job(words, jobs, count, rows, step, helpers):
    """Run the ``count`` jobs at an address on ``step`` rows at a time, in the calling thread and ``helpers`` others.

    Return DONE at the end, FAILED if a kernel raised an exception, BUSY at once if another thread owns the pool.
    """
    if _exchange(words, OWNED, 1) != 0:
        return BUSY
    words[JOBS], words[COUNT], words[ROWS], words[STEP] = jobs, count, rows, step
    words[BROKEN] = 0
    _store(words, HELPERS, helpers)
    _store(words, CHUNKS, (rows + step - 1) // step)
    shares = _shares(words)
    for share in range(shares):
        _store(words, NEXT + share * LINE, 0)
    _fetch_add(words, POSTED, 1)
    _compute_chunks(words, 0)
    for share in range(shares):
        _store(words, NEXT + share * LINE, CLOSED)
    looks = 0
    while _load(words, ACTIVE) != 0:
        looks += 1
        if looks % LOOKS_PER_YIELD == 0:
            _yield(words[YIELD])
    broken = _load(words, BROKEN)
    _store(words, OWNED, 0)
    return FAILED if broken else DONE


@compiled
def serve(words, helper, looks, known):
    """Take part in jobs as number ``helper``; return after ``looks`` looks without a new one.

    ``known`` is the number of jobs posted at the last look; the present one is returned.
    """
    left = looks
    while left > 0:
        left -= 1
        posted = _load(words, POSTED)
        if posted != known:
            known, left = posted, looks
            if helper < _load(words, HELPERS):
                _compute_chunks(words, helper + 1)
        elif left % LOOKS_PER_YIELD == 0:
            _yield(words[YIELD])
    return known
