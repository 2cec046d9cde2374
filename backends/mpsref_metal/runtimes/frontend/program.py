"""Translation of an MSL source to C++ for a runtime, after the strict pass."""

from __future__ import annotations

from collections.abc import Callable

from .. import CompileError
from .options import Options
from .source import KernelSource, translate
from .strict import NAME, check, check_expanded
from .toolchain import Toolchain


def translated(
    toolchain: Toolchain, source: str, options: Options, entry: Callable[[int, KernelSource], str]
) -> tuple[str, list[KernelSource]]:
    """Check and translate a source; raise :class:`CompileError` with line numbers of the source.

    Parameters
    ----------
    toolchain : Toolchain
        The clang for the check and for preprocessing.
    source : str
        The MSL text.
    options : Options
        How it is compiled.
    entry : callable
        ``entry(number, kernel)`` returns the entry point of a kernel in C++.

    Returns
    -------
    tuple
        C++ to compile after the headers of the shim, and its kernels in order.
    """
    check(toolchain, source, options)
    status, text = toolchain.preprocess(f'#line 1 "{NAME}"\n{source}', options)
    if status:
        raise CompileError(text)
    check_expanded(text)
    cpp, found = translate(text, entry)
    if not found:
        raise CompileError(f"{NAME}: error: the source has no kernel function (`kernel void name(...) {{...}}`)")
    return cpp, found
