"""The strict pass: rejection of sources that Apple's compiler rejects.

The source is compiled as C++ for OpenCL, which has Metal's address spaces under other names, no ``double``, no
exceptions, no ``new``, no virtual functions, no mutable globals, and threadgroup variables only in kernels. This module
implements the differences: constructs that C++ for OpenCL allows and MSL does not, and one that only MSL allows.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence

from .. import CompileError
from .options import Options
from .source import NAME, Places, Token, attributes, chunks, closing, split
from .toolchain import LIBRARY_HEADER, SHIM, Toolchain

# MSL can copy a struct from constant memory; C++ for OpenCL reports this error.
COPY = re.compile(r"the implicit copy constructor\) not viable: cannot bind reference in address space 'constant'")
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
RESERVED = re.compile(
    r"MPSREF_\w*|_Pragma|__(?:BASE_)?FILE(?:_NAME)?__|__(?:LINE|DATE|TIME|TIMESTAMP|COUNTER|INCLUDE_LEVEL|MODULE|VA_OPT)__"
    r"|__has_(?:include|include_next|embed|feature|extension|(?:constexpr_)?builtin|(?:cpp_|c_|declspec_)?attribute|warning)"
    r"|__is_(?:identifier|target_\w+)|__building_module|__identifier|__FLT_EVAL_METHOD__"
)
"""Names that a later pass would expand: macros of the shim, and those of clang that cannot be switched off."""
PRAGMA = re.compile(r"^#pragma ([^\n]*)", re.MULTILINE)
PRAGMAS = re.compile(r"(unroll|nounroll|once|mark|METAL|STDC|pack|(clang|GCC) (loop|fp))\b")
LIBRARY = re.compile(rf'^# 1 "{re.escape(str(SHIM / "metal"))}/', re.MULTILINE)
MOST_ERRORS = 20
UNKNOWN = re.compile(
    r"(?:no template|unknown type|use of undeclared|no type|no member) (?:named? |identifier )?'(?:metal::)?(\w+)'.*"
)
UNSUPPORTED = {
    "textures": r"(texture|depth)(1d|2d|3d|cube|_buffer)\w*",
    "samplers": r"sampler",
    "matrices": r"(half|float|bfloat)[234]x[234]|matrix",
    "simdgroup matrices": r"simdgroup_(half|float|bfloat)8x8|simdgroup_matrix",
    "arrays of references": r"array_ref",
    "tensors": r"tensor\w*|cooperative_tensor",
    "image blocks": r"imageblock\w*",
    "function tables and ray tracing": r"(visible|intersection)_function_table|raytracing|\w*acceleration_structure",
}
"""What MSL has and this runtime lacks, with the names of its types."""
LACKING = "are not supported"
LAMBDA_AFTER = frozenset("=(,{;?:&|") | {"return"}


def check(toolchain: Toolchain, source: str, text: str, words: tuple[Token, ...], options: Options) -> None:
    """Raise :class:`CompileError` with the diagnostics of clang if a source is not legal MSL.

    ``text`` and ``words`` are what the preprocessor made of it.
    """
    library = LIBRARY.search(text)
    is_first = library is not None and not (words and words[0].at < library.start())
    expanded = text
    if library is not None and not is_first:  # code before the inclusion of the library must not use it
        expanded = f'{text[: library.start()]}#include "{LIBRARY_HEADER}"\n{text[library.start() :]}'
    found = diagnostics(toolchain.check(expanded, is_first, options))
    if found:  # the source has the columns, and the macros by name
        found = diagnostics(toolchain.check(f'#line 1 "{NAME}"\n{source}', True, options)) or found
    included = frozenset(map(str, options.files(source)))
    found += itertools.islice(forbidden(text, words, included, options.number >= 320), MOST_ERRORS)
    if found:
        raise CompileError("\n".join(found))


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
    whole = [block[:3] if LACKING in block[0] else block for block in blocks]  # without "did you mean ...?"
    return ["\n".join(block) for block in whole if not any(map(COPY.search, block))]


def msl_words(line: str) -> str:
    """Return a line of the output of clang with Metal's names of the address spaces."""
    for opencl, metal in (("__global", "device"), ("__local", "threadgroup"), ("__constant", "constant")):
        line = re.sub(rf"\b{opencl}\b", metal, line)
    line = re.sub(r"use of type '([^']*)' requires cl_khr_fp64 .*", r"MSL has no type '\1'", line)
    line = re.sub(r"'__(private|generic)'", "'thread'", line)
    if unknown := UNKNOWN.search(line):
        kinds = (kind for kind, names in UNSUPPORTED.items() if re.fullmatch(names, unknown[1]))
        line = line[: unknown.start()] + next((f"{unknown[1]}: {kind} {LACKING}" for kind in kinds), unknown[0])
    line = re.sub(
        r"'([^']*)' file not found",
        r"'\1' file not found: a source includes the headers of Metal alone, and files of the folders in `include`",
        line,
    )
    return re.sub(r"\b__(private|generic) ?", "", line).replace("C++ for OpenCL", "MSL")


def forbidden(text: str, words: tuple[Token, ...], included: Collection[str], has_lambdas: bool) -> Iterator[str]:
    """Yield diagnostics for constructs of a preprocessed text that clang allows and MSL does not, or that run early.

    Those of the second kind are attributes such as ``constructor`` and ``section``, linkage specifications, assembly,
    names of the preprocessor and of the shim, and pragmas that apply attributes or name files.
    """
    places = Places(text)
    for row in PRAGMA.finditer(text):
        if not PRAGMAS.match(row[1]):
            yield places.error(row.start(), f"`{row[0]}` is not supported")
    for word, message in early(words):
        yield places.error(word.at, message)
    for before, word, after in zip((Token("", 0, False), *words), words, words[1:], strict=False):
        is_lambda = word.text == "[" and before.text in LAMBDA_AFTER and after.text != "["
        if is_lambda and not has_lambdas and places.file(word.at) not in included:
            yield places.error(word.at, "MSL has no lambda expressions before 3.2")
    for declared in [*parameters(words), *locals_of(words)]:
        mark = next(word for word in declared if word.text in ("*", "&"))
        kind = "pointer" if mark.text == "*" else "reference"
        spaces = "device, constant, threadgroup or thread"
        if places.file(mark.at) not in included:
            yield places.error(mark.at, f"a {kind} type must have an explicit address space qualifier: {spaces}")


def early(words: tuple[Token, ...]) -> Iterator[tuple[Token, str]]:
    """Yield tokens with a message for attributes, linkage, assembly and reserved names."""
    for i, word in enumerate(words):
        following = words[i + 1].text if i + 1 < len(words) else ""
        if word.text in FORBIDDEN:
            yield word, FORBIDDEN[word.text]
        elif RESERVED.fullmatch(word.text):
            yield word, f"the name `{word.text}` is reserved"
        elif word.text in ("__attribute__", "__attribute"):
            for part in filter(None, split(words[i + 3 : closing(words, i + 1) - 1], "([{")):
                if part[0].text.strip("_") not in ATTRIBUTES:
                    yield word, f"the attribute `{part[0].text}` is not supported"
        elif word.text == following == "[":
            for part in filter(None, split(words[i + 2 : closing(words, i) - 1], "([{")):
                texts = [one.text for one in part]
                if texts[0] == "using" or (texts[1:2] == ["::"] and "".join(texts[2:3]).strip("_") not in ATTRIBUTES):
                    yield word, f"the attribute `{' '.join(texts[:3])}` is not supported"
        elif word.text == "extern" and following.endswith('"'):
            yield word, "MSL has no linkage specifications"


def is_bare(words: Sequence[Token]) -> bool:
    """Return whether a declaration has a pointer or reference type without an address space."""
    texts = {word.text for word in words}
    return bool(texts & {"*", "&"}) and not texts & SPACES and "auto" not in texts


def parameters(words: tuple[Token, ...]) -> Iterator[Sequence[Token]]:
    """Yield parameters without an address space of functions at file scope."""
    for part in chunks(words):
        header, _ = attributes(part.header)
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
