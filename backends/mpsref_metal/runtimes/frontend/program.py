"""From an MSL source to C++ for a runtime, through the strict pass."""

from __future__ import annotations

from collections.abc import Callable

from .. import CompileError
from .source import KernelSource, translate
from .strict import NAME, check
from .toolchain import Toolchain


def translated(
    toolchain: Toolchain, source: str, entry: Callable[[int, KernelSource], str]
) -> tuple[str, list[KernelSource]]:
    """Check a source and translate it; :class:`CompileError` has the lines of the source.

    Parameters
    ----------
    toolchain
        The clang that checks and preprocesses.
    source
        The MSL text.
    entry
        Writes the entry point of the kernel of a number, in C++.

    Returns
    -------
    tuple
        C++ to compile after the shim's headers, and the kernels in it, in order.
    """
    check(toolchain, source)
    status, text = toolchain.preprocess(f'#line 1 "{NAME}"\n{source}')
    if status:
        raise CompileError(text)
    cpp, found = translate(text, entry)
    if not found:
        raise CompileError(f"{NAME}: error: the source has no kernel function (`kernel void name(...) {{...}}`)")
    return cpp, found
