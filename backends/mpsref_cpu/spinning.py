"""Waiting without sleeping, for a moment: a thread that sleeps takes longer to wake than many kernels run.

Between the calls of a program that runs one kernel after the other lie microseconds; to wake a sleeping thread takes up
to a hundred of them. So a thread with nothing to do watches a word in memory for about that long before it sleeps, with
the interpreter free for others.
"""

from __future__ import annotations

from typing import Any

from numba import extending, types

from mpsref_cpu.compiling import compiled, inlined

__all__ = ["LOOKS", "until_all_set", "until_changed"]

LOOKS = 150_000
"""How often a thread looks before it sleeps: about 100 microseconds."""

GRACE = 15_000
"""How many looks last about 10 microseconds."""

intrinsic: Any = extending.intrinsic  # whose declared type loses the arguments of what it decorates


@intrinsic
def _seen(typing: Any, words: Any, index: Any) -> Any:
    """Return ``words[index]`` as it is in memory at this moment, which other threads may change."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type, _ = signature.args
        array, at = arguments
        data = context.make_array(array_type)(context, builder, array).data
        return builder.load_atomic(builder.gep(data, [at]), "acquire", 8)

    return types.int64(words, types.intp), generate


@inlined
def _linger(words: Any) -> None:
    """Give the thread that has just changed a word the time to let go of the interpreter.

    A thread that asks for it too early goes to sleep after all.
    """
    for _ in range(GRACE):
        _seen(words, 0)


@compiled
def until_changed(words: Any, known: int, looks: int) -> bool:
    """Look until ``words[0]`` is not ``known``; return whether it happened within so many looks."""
    for _ in range(looks):
        if _seen(words, 0) != known:
            _linger(words)
            return True
    return False


@compiled
def until_all_set(words: Any, looks: int) -> bool:
    """Look until no word is 0; return whether it happened within so many looks."""
    waiting = len(words)
    for _ in range(looks):
        while waiting > 0 and _seen(words, waiting - 1) != 0:
            waiting -= 1
        if waiting == 0:
            _linger(words)
            return True
    return False
