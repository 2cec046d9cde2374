"""Work handed from one thread to others without the interpreter, in about a microsecond.

A mailbox is a few words of memory. Its *owner* writes work into it: the addresses of compiled functions, their
arguments, how many chunks there are. Every thread that looks at the mailbox takes chunks, by counting one word up,
until none is left; the owner does the same and then waits for those who are still at work. Nobody needs the
interpreter's lock for that, and a thread that looks too late finds nothing to do.

All accesses are atomic and sequentially consistent. Two facts make it safe to write the next work while a late thread
looks: it says that it is there (ACTIVE) before it asks for a chunk, and asks before it reads anything else; and between
two works NEXT is beyond any number of chunks.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from mpsref_cpu.compiling import compiled, inlined, internal

__all__ = ["BUSY", "DONE", "FAILED", "Words", "hand_out", "new_spin_pool", "serve"]

Words = npt.NDArray[np.int64]

DONE, FAILED, BUSY = 0, 1, 2
"""What :func:`hand_out` returns."""

# The words, in cache lines of eight: those that many threads count are apart from each other and from the work.
POSTED, NEXT, ACTIVE, OWNED, BROKEN = 0, 8, 16, 24, 25
PART, ARGUMENTS, ROWS, STEP, CHUNKS, HELPERS, YIELD = 32, 33, 34, 35, 36, 37, 38
SIZE = 40

CLOSED = 1 << 40
"""The number of the next chunk where there is no work."""

LOOKS_A_YIELD = 4096
"""After so many looks, about 3 microseconds, a thread offers its core to others."""

intrinsic: Any = extending.intrinsic  # whose declared type loses the arguments of what it decorates

I64 = ir.IntType(64)
POINTER = ir.IntType(8).as_pointer()
PART_TYPE = ir.FunctionType(I64, [POINTER, I64, I64])
"""``part(arguments, begin, end)``: call the kernel; return whether it raised an exception."""


def new_spin_pool() -> Words:
    """Return an empty mailbox."""
    words = np.zeros(SIZE, np.int64)
    words[NEXT] = CLOSED
    libraries: Any = ctypes
    yields = libraries.windll.kernel32.SwitchToThread if sys.platform == "win32" else ctypes.CDLL(None).sched_yield
    words[YIELD] = ctypes.cast(yields, ctypes.c_void_p).value or 0
    return words


def _word(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.gep(context.make_array(signature.args[0])(context, builder, arguments[0]).data, [arguments[1]])


@intrinsic
def _seen(typing: Any, words: Any, index: Any) -> Any:
    """Return ``words[index]`` as it is in memory at this moment."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_word(context, builder, signature, arguments), "seq_cst", 8)

    return types.int64(words, types.intp), generate


@intrinsic
def _set(typing: Any, words: Any, index: Any, value: Any) -> Any:
    """Set ``words[index]``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[2], _word(context, builder, signature, arguments), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(words, types.intp, types.int64), generate


@intrinsic
def _counted(typing: Any, words: Any, index: Any, step: Any) -> Any:
    """Add ``step`` to ``words[index]``; return what it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _word(context, builder, signature, arguments), arguments[2], "seq_cst")

    return types.int64(words, types.intp, types.int64), generate


@intrinsic
def _exchanged(typing: Any, words: Any, index: Any, value: Any) -> Any:
    """Set ``words[index]``; return what it was."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("xchg", _word(context, builder, signature, arguments), arguments[2], "seq_cst")

    return types.int64(words, types.intp, types.int64), generate


@intrinsic
def _yield(typing: Any, address: Any) -> Any:
    """Call the system's function at ``address`` that lets another thread have the core."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = ir.FunctionType(ir.IntType(32), [])
        return builder.call(builder.inttoptr(arguments[0], function.as_pointer()), [])

    return types.int32(types.int64), generate


@intrinsic
def _call(typing: Any, part: Any, arguments: Any, begin: Any, end: Any) -> Any:
    """Call the part at an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        part, packed, begin, end = values
        function = builder.inttoptr(part, PART_TYPE.as_pointer())
        return builder.call(function, [builder.inttoptr(packed, POINTER), begin, end])

    return types.int64(types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def _packed(typing: Any, kernels: Any, arguments: Any) -> Any:
    """Return the addresses of a part that calls ``kernels``, addresses too, one by one, and of what it passes on.

    Both last as long as the compiled function that asks for them runs.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        packed = cgutils.pack_struct(builder, values)
        slot = cgutils.alloca_once_value(builder, packed)
        part = ir.Function(builder.module, PART_TYPE, builder.module.get_unique_name("part"))
        part.linkage = "internal"
        inside = ir.IRBuilder(part.append_basic_block())
        data, begin, end = part.args
        given = inside.load(inside.bitcast(data, packed.type.as_pointer()))
        convention, failed = context.call_conv, I64(0)
        for k, own in enumerate(arguments):
            inner = [types.int64, types.int64, *own]
            pointer = convention.get_function_type(types.none, inner).as_pointer()
            function = inside.inttoptr(inside.extract_value(given, (0, k)), pointer)
            passed = [inside.extract_value(given, (1, k, i)) for i in range(len(own))]
            status, _ = convention.call_function(inside, function, types.none, inner, [begin, end, *passed])
            failed = inside.or_(failed, inside.zext(status.is_error, I64))
        inside.ret(failed)
        places = [builder.ptrtoint(part, I64), builder.ptrtoint(slot, I64)]
        return context.make_tuple(builder, signature.return_type, places)

    return types.UniTuple(types.int64, 2)(kernels, arguments), generate


@inlined
def _take_part(words: Words) -> None:
    """Compute chunks until none is left."""
    _counted(words, ACTIVE, 1)
    while True:
        chunk = _counted(words, NEXT, 1)
        if chunk >= _seen(words, CHUNKS):
            break
        begin = chunk * words[STEP]
        if _call(words[PART], words[ARGUMENTS], begin, min(begin + words[STEP], words[ROWS])):
            _set(words, BROKEN, 1)
    _counted(words, ACTIVE, -1)


@internal
def _work(words: Words, part: int, packed: int, rows: int, step: int, helpers: int) -> int:
    """What :func:`hand_out` does, whatever the arguments: compiled once for all of them."""
    words[PART], words[ARGUMENTS], words[ROWS], words[STEP] = part, packed, rows, step
    words[HELPERS], words[BROKEN] = helpers, 0
    _set(words, CHUNKS, (rows + step - 1) // step)
    _set(words, NEXT, 0)
    _counted(words, POSTED, 1)
    _take_part(words)
    _set(words, NEXT, CLOSED)
    looks = 0
    while _seen(words, ACTIVE) != 0:
        looks += 1
        if looks % LOOKS_A_YIELD == 0:
            _yield(words[YIELD])
    broken = _seen(words, BROKEN)
    _set(words, OWNED, 0)
    return FAILED if broken else DONE


@compiled
def hand_out(words: Words, kernels: Any, rows: int, step: int, helpers: int, arguments: Any) -> int:
    """Let the thread and ``helpers`` others call ``kernels``, addresses, on ``step`` of the rows at a time.

    Returns DONE after the last has ended; FAILED where one raised an exception, or BUSY at once if another thread owns
    the mailbox.
    """
    if _exchanged(words, OWNED, 1) != 0:
        return BUSY
    part, packed = _packed(kernels, arguments)
    return _work(words, part, packed, rows, step, helpers)


@compiled
def serve(words: Words, helper: int, looks: int, known: int) -> int:
    """Take part in all work for ``helper``, a number; return after so many looks without any.

    ``known`` is how much had been posted when the thread last looked; returns the same for now.
    """
    left = looks
    while left > 0:
        left -= 1
        posted = _seen(words, POSTED)
        if posted != known:
            known, left = posted, looks
            if helper < _seen(words, HELPERS):
                _take_part(words)
        elif left % LOOKS_A_YIELD == 0:
            _yield(words[YIELD])
    return known
