"""Translation of an MSL source to C++ for a runtime, after the strict pass."""

from __future__ import annotations

import re
from collections.abc import Callable

from .. import CompileError
from .options import Options
from .source import NAME, KernelSource, Places, tokens, translate, unified
from .strict import check, diagnostics
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
    status, text, errors = toolchain.preprocess(f'#line 1 "{NAME}"\n{source}', options)
    if status:
        raise CompileError("\n".join(diagnostics(errors)) or errors)
    text = unified(text)
    words = tuple(tokens(text))
    check(toolchain, source, text, words, options)
    cpp, found = translate(text, words, entry)
    if not found:
        raise CompileError(f"{NAME}: error: the source has no kernel function (`kernel void name(...) {{...}}`)")
    return cpp, found


def undefined(symbol: str, cpp: str) -> CompileError:
    """Return the error for a function that is declared and not defined, with the symbol of the compiler for it."""
    name, rest = "", re.sub(r"^_Z(N[KVrRO]*)?", "", symbol)
    while length := re.match(r"L?(\d+)", rest):
        name, rest = rest[length.end() :][: int(length[1])], rest[length.end() + int(length[1]) :]
    name = name or symbol
    declared = re.search(rf"\b{re.escape(name)}\b", cpp)
    message = f"the function `{name}` is declared and used, and not defined"
    return CompileError(Places(cpp).error(declared.start(), message) if declared else f"{NAME}: error: {message}")
