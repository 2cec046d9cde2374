"""The strict pass: rejection of sources that Apple's compiler rejects.

The source is compiled as C++ for OpenCL, which has Metal's address spaces under other names, no ``double``, no
exceptions, no ``new``, no virtual functions, no mutable globals, and threadgroup variables only in kernels. This module
implements the differences: constructs that C++ for OpenCL allows and MSL does not, and one that only MSL allows.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence

from .. import CompileError
from .options import Options
from .source import Token, chunks, closing, split, tokens
from .toolchain import Toolchain

NAME = "<msl>"
"""Name of the source in diagnostics."""

# MSL can copy a struct from constant memory; C++ for OpenCL reports this error.
COPY = re.compile(r"the implicit copy constructor\) not viable: cannot bind reference in address space 'constant'")
STANDARD = re.compile(r"\s*#include <metal_stdlib>")
SPACES = frozenset(("device", "constant", "threadgroup", "thread"))
FORBIDDEN = {
    "goto": "MSL has no goto",
    **dict.fromkeys(("asm", "__asm", "__asm__"), "MSL has no inline assembly"),
    **dict.fromkeys(("__declspec", "_declspec"), "MSL has no declspec"),
}
ATTRIBUTES = frozenset(
    """aligned always_inline cold const deprecated ext_vector_type fallthrough flatten hot likely maybe_unused may_alias
    no_unique_address nodiscard noinline nonnull noreturn opencl_unroll_hint overloadable packed pure returns_nonnull
    unlikely unused vector_size warn_unused_result""".split()  # noqa: SIM905
)
"""Attributes of clang that a source may have; others place code and data, run functions, or name symbols."""
PRAGMAS = re.compile(r"(unroll|nounroll|once|mark|METAL|STDC|pack|(clang|GCC) (loop|fp|diagnostic))\b")
DIGRAPHS = ("<:", ":>", "<%", "%>", "%:")
HAS_FILE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\b__has_(?:include|include_next|embed)\s*\(\s*["<](?P<name>[^">\n]*)""", re.DOTALL
)
OUTSIDE = re.compile(r"[/\\~]|[A-Za-z]:|(.*[/\\])?\.\.([/\\]|$)")
"""Names of files that are not those of headers of Metal: absolute ones, and those that leave a folder."""
MARKER = re.compile(r'# (\d+) "([^"]*)"')
DIRECTIVE = re.compile(r"[ \t]*(?:#|%:|\?\?=)[ \t]*")
SPLICE = re.compile(r"\\[ \t]*\n")
LAMBDA_AFTER = frozenset("=(,{;?:&|") | {"return"}


def check(toolchain: Toolchain, source: str, options: Options) -> None:
    """Raise :class:`CompileError` with the diagnostics of clang if the source is not legal MSL."""
    # Code before the inclusion of the library must not use it.
    status, text = toolchain.check(f'#line 1 "{NAME}"\n{source}', STANDARD.match(source) is not None, options)
    found = diagnostics(text) if status else []
    found += [*outside(source), *forbidden(source, has_lambdas=options.number >= 320)]
    if found:
        raise CompileError("\n".join(found))
    if status and not text:
        raise CompileError(f"{toolchain.name} failed with status {status} and no message")


def diagnostics(text: str) -> list[str]:
    """Return the errors in the output of clang with their notes, without errors about copies that MSL allows."""
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if re.match(r"[^\s].*: (fatal )?error: |error: ", line):
            blocks.append([])
        elif re.fullmatch(r"\d+ errors? generated\.", line):
            continue
        if blocks:
            blocks[-1].append(msl_words(line))
        elif line:  # "In file included from ..." belongs to the error that follows
            continue
    return ["\n".join(block) for block in blocks if not any(map(COPY.search, block))]


def msl_words(line: str) -> str:
    """Return a line of the output of clang with Metal's names of the address spaces."""
    for opencl, metal in (("__global", "device"), ("__local", "threadgroup"), ("__constant", "constant")):
        line = re.sub(rf"\b{opencl}\b", metal, line)
    line = re.sub(r"use of type '([^']*)' requires cl_khr_fp64 .*", r"MSL has no type '\1'", line)
    line = re.sub(r"'__(private|generic)'", "'thread'", line)
    line = re.sub(
        r"'([^']*)' file not found",
        r"'\1' file not found: a source includes the headers of Metal alone, and files of the folders in `include`",
        line,
    )
    return re.sub(r"\b__(private|generic) ?", "", line).replace("C++ for OpenCL", "MSL")


def forbidden(source: str, has_lambdas: bool = False) -> list[str]:
    """Return diagnostics for constructs that C++ for OpenCL allows and MSL does not."""
    words = list(tokens(source))
    found = []
    for before, word in zip([Token("", 0, False), *words], words, strict=False):
        if word.text in FORBIDDEN and before.text != ".":
            found.append(diagnostic(source, word, FORBIDDEN[word.text]))
        elif has_lambdas:
            continue
        elif word.text == "[" and before.text in LAMBDA_AFTER and not source.startswith("[[", word.at):
            found.append(diagnostic(source, word, "MSL has no lambda expressions before 3.2"))
    for declared in [*parameters(source), *locals_of(words)]:
        mark = next(word for word in declared if word.text in ("*", "&"))
        kind = "pointer" if mark.text == "*" else "reference"
        text = f"a {kind} type must have an explicit address space qualifier: device, constant, threadgroup or thread"
        found.append(diagnostic(source, mark, text))
    return found


def outside(source: str) -> Iterator[str]:
    """Yield diagnostics for the files outside of the headers of Metal whose existence a source tests."""
    parts = SPLICE.split(source)
    ends = list(itertools.accumulate(map(len, parts)))
    joined = "".join(parts)
    for match in HAS_FILE.finditer(joined):
        if match["name"] is not None and OUTSIDE.match(match["name"]):
            line = 1 + joined.count("\n", 0, match.start()) + bisect.bisect_right(ends, match.start())
            yield f"{NAME}:{line}: error: {match['name']!r} is not a header of Metal; a source tests for those alone"


def check_expanded(text: str) -> None:
    """Raise :class:`CompileError` for constructs of a preprocessed source that macros may hide, or that run early.

    Attributes such as ``constructor`` and ``section``, linkage specifications, pragmas that apply attributes or name
    files, directives that a macro expands to, digraphs, and inline assembly.
    """
    found = []
    file, line = NAME, 0
    for row in text.split("\n"):
        start = DIRECTIVE.match(row)
        if marker := MARKER.match(row):
            file, line = marker[2], int(marker[1]) - 1
        elif start and not row.startswith("#pragma "):
            found.append(f"{file}:{line}: error: a macro expands to a preprocessor directive")
        elif start and not PRAGMAS.match(row, len("#pragma ")):
            found.append(f"{file}:{line}: error: `{row.strip()}` is not supported")
        line += 1
    for word, message in _early(tuple(tokens(text))):
        found.append(f"{_place(text, word.at)}: error: {message}")
    if found:
        raise CompileError("\n".join(found))


def _place(text: str, at: int) -> str:
    """Return the file and the line of the source at a position of the preprocessed text."""
    file, line = NAME, 0
    for row in text[:at].split("\n"):
        if marker := MARKER.match(row):
            file, line = marker[2], int(marker[1]) - 1
        line += 1
    return f"{file}:{line - 1}"


def _early(words: tuple[Token, ...]) -> Iterator[tuple[Token, str]]:
    """Yield tokens with a message for attributes, linkage, digraphs and assembly."""
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else Token("", 0, False)
        if word.text in FORBIDDEN:
            yield word, FORBIDDEN[word.text]
        elif word.text in ("__attribute__", "__attribute"):
            for part in split(words[i + 3 : closing(words, i + 1) - 1]):
                if part[0].text.strip("_") not in ATTRIBUTES:
                    yield word, f"the attribute `{part[0].text}` is not supported"
        elif word.text == following.text == "[":
            for part in split(words[i + 2 : closing(words, i) - 1]):
                texts = [one.text for one in part]
                if texts[0] == "using" or (texts[1:2] == ["::"] and texts[2].strip("_") not in ATTRIBUTES):
                    yield word, f"the attribute `{' '.join(texts[:3])}` is not supported"
        elif word.text == "extern" and following.text.startswith('"'):
            yield word, "MSL has no linkage specifications"
        elif word.text + following.text in DIGRAPHS and following.at == word.at + 1:
            yield word, f"digraphs such as `{word.text}{following.text}` are not supported"


def diagnostic(source: str, word: Token, message: str) -> str:
    """Return an error at a token in the format of clang."""
    line = source.count("\n", 0, word.at) + 1
    start = source.rfind("\n", 0, word.at) + 1
    text = source[start:].split("\n", 1)[0]
    return f"{NAME}:{line}:{word.at - start + 1}: error: {message}\n{line:5} | {text}"


def is_bare(words: Sequence[Token]) -> bool:
    """Return whether a declaration has a pointer or reference type without an address space."""
    texts = {word.text for word in words}
    return bool(texts & {"*", "&"}) and not texts & SPACES and "auto" not in texts


def parameters(source: str) -> Iterator[Sequence[Token]]:
    """Yield parameters without an address space of functions at file scope."""
    for part in chunks(source):
        header = part.header
        opening = next((i for i, word in enumerate(header) if word.text == "(" and i and header[i - 1].is_name), None)
        if opening is not None and part.body:
            yield from filter(is_bare, split(header[opening + 1 : closing(header, opening)]))


def locals_of(words: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield declarations such as ``float *p = ...``; a statement with the value of a product has no effect."""
    for i, word in enumerate(words):
        if word.text not in ("*", "&") or i + 2 >= len(words) or not words[i + 1].is_name:
            continue
        start = i
        while start and (words[start - 1].is_name or words[start - 1].text == "::"):
            start -= 1
        declared = words[start : i + 2]
        starts = start < i and words[start - 1].text in ("{", "}", ";") and words[start].text not in ("return", "case")
        if starts and words[i + 2].text in ("=", ";") and is_bare(declared):
            yield declared
