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

from mpsref_cpu import _numba
from mpsref_cpu.compiling import compiled, inlined, intrinsic

Memory = npt.NDArray[np.int64]

DONE, FAILED, BUSY = 0, 1, 2
"""Results of :func:`run_job`."""

# Indices into the array, in cache lines of eight: counters of many threads are apart from each other and from the job.
POSTED, ACTIVE, OWNED, BROKEN = 0, 8, 16, 17
FUNCTION, ARGUMENTS, ROWS, STEP, CHUNKS, HELPERS, YIELD, POST = 24, 25, 26, 27, 28, 29, 30, 31
NEXT = 32
"""Index of the counter of the first share; those of the others follow, each in a cache line of its own."""

SHARES, LINE = 64, 8
"""Maximum number of shares, and number of integers in a cache line; further threads have no share."""

CLOSED = 1 << 40
"""The counter of a share while there is no job."""

LOOKS_PER_YIELD = 4096
"""Number of looks after which a spinning thread yields its core: about 3 microseconds."""

I64 = ir.IntType(64)
POINTER = ir.IntType(8).as_pointer()
CHUNK_TYPE = ir.FunctionType(I64, [POINTER, I64, I64])
"""``chunk(arguments, begin, end)``: call the kernels; return whether one raised an exception."""


def new_pool() -> Memory:
    """Return the memory of a pool without a job."""
    words = np.zeros(NEXT + SHARES * LINE, np.int64)
    words[NEXT::LINE] = CLOSED
    libraries: Any = ctypes
    yields = libraries.windll.kernel32.SwitchToThread if sys.platform == "win32" else ctypes.CDLL(None).sched_yield
    words[YIELD] = ctypes.cast(yields, ctypes.c_void_p).value or 0
    words[POST] = _numba.address(_post, (words, 0, 0, 0))
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
def _call(typing, chunk, arguments, begin, end):
    """Call the function for a chunk at an address."""

    def generate(context, builder, signature, values):
        chunk, packed, begin, end = values
        function = builder.inttoptr(chunk, CHUNK_TYPE.as_pointer())
        return builder.call(function, [builder.inttoptr(packed, POINTER), begin, end])

    return types.int64(types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def _job(typing, kernels, arguments):
    """Return the addresses of a function that calls ``kernels``, addresses, one after the other, and of its arguments.

    Both are valid until the calling function returns.
    """

    def generate(context, builder, signature, values):
        packed = ir.Constant(ir.LiteralStructType([value.type for value in values]), ir.Undefined)
        for index, value in enumerate(values):
            packed = builder.insert_value(packed, value, index)
        with builder.goto_entry_block():
            slot = builder.alloca(packed.type)
        builder.store(packed, slot)
        chunk = ir.Function(builder.module, CHUNK_TYPE, builder.module.get_unique_name("chunk"))
        chunk.linkage = "internal"
        inside = ir.IRBuilder(chunk.append_basic_block())
        data, begin, end = chunk.args
        given = inside.load(inside.bitcast(data, packed.type.as_pointer()))
        failed = I64(0)
        for k, own in enumerate(arguments):
            passed = [inside.extract_value(given, (1, k, i)) for i in range(len(own))]
            kinds = [types.int64, types.int64, *own]
            broken = _numba.call(context, inside, inside.extract_value(given, (0, k)), kinds, [begin, end, *passed])
            failed = inside.or_(failed, inside.zext(broken, I64))
        inside.ret(failed)
        addresses = [builder.ptrtoint(chunk, I64), builder.ptrtoint(slot, I64)]
        return context.make_tuple(builder, signature.return_type, addresses)

    return types.UniTuple(types.int64, 2)(kernels, arguments), generate


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
            if _call(words[FUNCTION], words[ARGUMENTS], begin, min(begin + words[STEP], words[ROWS])):
                _store(words, BROKEN, 1)
    _fetch_add(words, ACTIVE, -1)


@inlined
def _shares(words):
    """Return the number of shares. Before it claims a chunk, a late thread may read that of another job."""
    return min(_load(words, HELPERS) + 1, SHARES)


@compiled
def _post(function, packed, words, rows, step, helpers):
    """Run a job, whatever its arguments; raise an exception if a kernel did. It is compiled once for all of them."""
    words[FUNCTION], words[ARGUMENTS], words[ROWS], words[STEP] = function, packed, rows, step
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
    if broken:
        raise MemoryError


@intrinsic
def _posted(typing, post, function, packed, words, rows, step, helpers):
    """Call :func:`_post` at its address; return DONE or FAILED."""
    kinds = [types.int64, types.int64, words, types.int64, types.int64, types.int64]

    def generate(context, builder, signature, arguments):
        return builder.zext(_numba.call(context, builder, arguments[0], kinds, arguments[1:]), I64)

    return types.int64(types.int64, *kinds), generate


@compiled
def run_job(words, kernels, rows, step, helpers, arguments):
    """Call ``kernels``, addresses, on ``step`` rows at a time, in the calling thread and ``helpers`` others.

    Return DONE at the end, FAILED if a kernel raised an exception, BUSY at once if another thread owns the pool.
    """
    if _exchange(words, OWNED, 1) != 0:
        return BUSY
    function, packed = _job(kernels, arguments)
    return _posted(words[POST], function, packed, words, rows, step, helpers)


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
