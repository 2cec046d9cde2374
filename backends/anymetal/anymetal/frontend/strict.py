"""The strict pass: rejection of sources that Apple's compiler rejects.

The source is compiled as C++ for OpenCL, which has Metal's address spaces under other names, no ``double``, no
exceptions, no ``new``, no virtual functions, no mutable globals, and threadgroup variables only in kernels. This module
implements the differences: constructs that C++ for OpenCL allows and MSL does not, and its errors that are rules of
MSL, too: :data:`DECIDES`. Its other errors are of what C++ for OpenCL lacks, or of C++, which the language that kernels
run in judges.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ..interface import CompileError
from .kernels import LACKING, TYPES, constants, lacking, render_stage
from .lexer import NAME, Token
from .options import Options
from .rewrites import Source, rewritten, strictly_rewritten
from .syntax import SPACES, Kind, Syntax
from .toolchain import SHIM, Toolchain

# MSL can copy a struct from constant memory; C++ for OpenCL reports this error.
COPY = re.compile(
    r"the implicit copy (?:constructor|assignment operator)\) not viable: cannot bind .* to an object in 'constant'"
)
OF_THREAD = r"(?!(?:const )?(?:device|threadgroup|constant) )[^']*"
"""A type without an address space, as that of ``this``, which may be a `thread` pointer in MSL."""
LIMITS = re.compile(
    r"\A\S+ error: (?:variable in constant address space must be initialized"
    r"|C-style cast from vector|static_cast from '[^']*' \(vector of|scalar operand type has greater rank"
    r"|too few elements in vector initialization"
    r"|reference to overloaded function could not be|static assertion|no viable conversion|no matching literal operator"
    r"|no matching (?:function|constructor|conversion)|no member named '(?:cast|castto|braces|loaded)'"
    r"|use of overloaded operator '\[\]' is ambiguous|invalid vector element type 'bool'"
    r"|cannot initialize [\w ]+ of type '(?:const )?bool[234]'|assigning to 'bool[234]'"
    rf"|reference of type '{OF_THREAD}' cannot bind to a temporary"
    rf"|static_cast from '{OF_THREAD}' to '{OF_THREAD}' casts away"
    rf"|(?:binding reference|cannot initialize \w[\w ]*) of type '{OF_THREAD}' (?:to|with) .* type '{OF_THREAD}')"
)
"""Errors that are mostly about what C++ for OpenCL lacks: if the kernel is compiled next, that tells."""
MEMORY = "device|threadgroup|constant"
DECIDES = re.compile(
    r"\A\S+ error: (?!variable in constant address space must be initialized|[^\n]* as the type of a kernel parameter)"
    r"[^\n]*"
    r"(?:address space|\bMSL\b|OpenCL|variable length array|pointers? to (?:member )?function|references? to function"
    r"|address of function|variadic function|read-only variable|exceptions disabled"
    rf"|'(?:const )?(?:{MEMORY}) [^']*\*"
    rf"|cannot initialize object parameter [^\n]*an expression of type '(?:const )?(?:{MEMORY}) )"
)
"""Errors about rules that MSL has, and the language that kernels run in lacks: above all about address spaces."""
WRONG_SPACE = re.compile(
    rf": note: candidate .*(?:cannot pass pointer to address space '(?:{MEMORY})' as a pointer"
    rf"|no known conversion from '(?:const )?({MEMORY}) [^']*\]' to '(?!(?:const )?\1 )[^']*\*"
    rf"|deduced type '(?:const )?(?:({MEMORY}) )?[^']*\*' of \w+ parameter does not match "
    rf"adjusted type '(?:const )?(?!\2 )(?:{MEMORY}) [^']*\*'"
    rf"|cannot bind a reference in address space '\w+' to an object in '(?:{MEMORY})'"
    rf"|would make '(?:const )?(?:({MEMORY}) )?[^']*' equal '(?:const )?(?!\3 )(?:{MEMORY}) "
    rf"|no type named 'type' in 'anymetal::(?:atomic_of|memory)<(?!(?:{MEMORY}) ))"
)
"""A candidate of a call that takes a pointer or a reference into another address space."""
OTHER_THIS = re.compile(r"'this' object is in address space '(device|threadgroup|constant)'")
OTHER_SPACE = ": an argument is in another address space"
SPACE_ERROR = re.compile(
    rf"\S+ error: (?:[^\n]*{OTHER_SPACE}(?=$|:)|(?=[^\n]*'(?:const )?(?:{MEMORY}) )(?:[^\n]* changes address space"
    r"|cannot initialize \w[\w ]* of type '[^']*\*'[^\n]* of type '[^']*\*'))",
    re.MULTILINE,
)
"""An error about address spaces."""
CANDIDATE = re.compile(
    r": note: candidate (?:function|template|constructor)(?! \(the implicit)(?!.*requires \w+ (?:template )?argument"
    r"|.*could not match 'vec<T, N>' .* against '\w+'(?: \(aka '\w+'\))?$)"
)
FORBIDDEN = {
    "goto": "MSL has no goto",
    "virtual": "MSL has no virtual functions",
    "thread_local": "MSL has no thread_local",
    **dict.fromkeys(("asm", "__asm", "__asm__"), "MSL has no inline assembly"),
    **dict.fromkeys(("__declspec", "_declspec"), "MSL has no declspec"),
}
ATTRIBUTES = frozenset(
    """aligned always_inline cold const deprecated ext_vector_type fallthrough flatten hot likely maybe_unused may_alias
    no_unique_address nodiscard noinline nonnull noreturn opencl_unroll_hint optnone overloadable packed pure
    returns_nonnull unlikely unused vector_size warn_unused_result""".split()  # noqa: SIM905
)
"""Attributes of clang that a source may have; others place code and data, run functions, or name symbols."""
RESERVED = re.compile(
    r"ANYMETAL_\w*|_Pragma|__(?:BASE_)?FILE(?:_NAME)?__|__(?:LINE|DATE|TIME|TIMESTAMP|COUNTER|INCLUDE_LEVEL|MODULE|VA_OPT)__"
    r"|__has_(?:include|include_next|embed|feature|extension|(?:constexpr_)?builtin|(?:cpp_|c_|declspec_)?attribute|warning)"
    r"|__is_(?:identifier|target_\w+)|__building_module|__identifier|__FLT_EVAL_METHOD__"
)
"""Names that a later pass would expand: macros of the shim, and those of clang that cannot be switched off."""
PRAGMA = re.compile(r"^#pragma ([^\n]*)", re.MULTILINE)
PRAGMAS = re.compile(r"(unroll|nounroll|unused|once|mark|METAL|STDC|pack|(clang|GCC) (loop|fp)|GCC (no)?unroll)\b")
MOST_ERRORS = 20
UNKNOWN = re.compile(
    r"(?:no template|unknown type|use of undeclared|no type|no member) (?:named? |identifier )?'(?:metal::)?(\w+)'.*"
)
LAMBDA_AFTER = frozenset("=(,{;?:&|") | {"return"}


def check(
    toolchain: Toolchain, syntax: Syntax, options: Options, files: Mapping[str, str], only: int, *, is_last: bool
) -> Source:
    """Return a source as it was read; raise :class:`CompileError` with the diagnostics of clang if it is not legal MSL.

    ``syntax`` is what the preprocessor made of it, ``files`` are the texts of the source and of what it includes. If
    there is one kernel, its definition ends at ``only``, else that is -1; an explicit instantiation that ends there is
    checked, too. With ``is_last`` the caller compiles the kernel next, and errors that may be legal are left to that.
    """
    known = Source(syntax, {one.name: "" for one in constants(syntax)}, only)
    errors, spaces = _errors(toolchain, known, options), list[str]()
    if known.instantiation and not all(map(_is_limit, errors)):  # of the instantiation, or of what is before it
        spaces = _of_spaces(errors)
        known = known.varied(known.constants)
        errors = _errors(toolchain, known, options)
    found = [one for one in errors if _decides(one)]
    others = [one for one in errors if not _decides(one)]
    if others and not (is_last and all(map(_is_limit, others))):
        plain = known.varied(known.constants)
        in_cpp = diagnostics(toolchain.parse(rewritten(plain), replace(options, keeps_spaces=plain.keeps_spaces)))
        lines = {_line(one) for one in in_cpp}
        found += [one for one in others if _line(one) in lines and not _is_limit(one)] or in_cpp
    found = with_sources((found or spaces)[:MOST_ERRORS], files)
    included = files.keys() - {NAME} | {str(path) for path in (SHIM / "anymetal").iterdir()}
    found += itertools.islice(forbidden(syntax, included, options.number >= 320), MOST_ERRORS)
    if found:
        raise CompileError("\n".join(found))
    return known


def check_instantiation(
    toolchain: Toolchain, source: Source, options: Options, files: Mapping[str, str], end: int
) -> None:
    """Raise :class:`CompileError` for wrong address spaces in a kernel whose explicit instantiation has this end.

    Of other errors C++ for OpenCL has some in templates that are legal.
    """
    known = source.varied({one.name: "" for one in constants(source.syntax)}, end)
    if known.instantiation and (found := _of_spaces(_errors(toolchain, known, options))):
        raise CompileError("\n".join(with_sources(found[:MOST_ERRORS], files)))


def _errors(toolchain: Toolchain, source: Source, options: Options) -> list[str]:
    return diagnostics(toolchain.check(strictly_rewritten(source), options))


def _of_spaces(errors: Sequence[str]) -> list[str]:
    return [one for one in errors if SPACE_ERROR.match(one) and not _is_limit(one)]


def _is_limit(error: str) -> bool:
    """Return whether an error may be about what C++ for OpenCL lacks: no call of which the address space is wrong."""
    return bool(LIMITS.search(error)) and OTHER_SPACE not in error.partition("\n")[0]


def _decides(error: str) -> bool:
    return bool(DECIDES.match(error)) and not _is_limit(error)


def _line(error: str) -> tuple[str, ...]:
    """Return the file and the line of an error."""
    place = PLACE.match(error)
    return (place[1], place[2]) if place else ()


def _with_space(block: list[str]) -> list[str]:
    """Return an error about a call with the reason, if it is the address space of an argument for all candidates."""
    candidates = [line for line in block if CANDIDATE.search(line)]
    if wrong := [found[1] for line in candidates if (found := OTHER_THIS.search(line))]:
        candidates = [line for line in candidates if "template ignored" not in line and not line.startswith(str(SHIM))]
        if len(wrong) == len(candidates):
            return [
                f"{block[0]}{OTHER_SPACE}: the object is in `{wrong[0]}` memory, and the member function is not "
                f"qualified with `{wrong[0]}`",
                *block[1:],
            ]
    elif candidates and all(map(WRONG_SPACE.search, candidates)):
        return [f"{block[0]}{OTHER_SPACE}", *block[1:]]
    return block


def diagnostics(text: str) -> list[str]:
    """Return the errors in the output of clang with their notes, without errors about copies that MSL allows."""
    blocks: list[list[str]] = []
    is_error, included = False, ""
    for line in text.splitlines():
        if re.match(r"[^\s].*: (fatal )?error: |error: ", line):
            if line.startswith(str(SHIM)) and included:  # `#error` in a header of Metal
                line = f"{included}:1: error: {line.partition('error: ')[2]}\n      | "
            blocks.append([])
            is_error, included = True, ""
        elif from_file := re.match(r"In file included from (?!<stdin>)(.*:\d+):$", line):
            included, is_error = from_file[1], False
        elif re.match(r"[^\s].*: warning: |In file included from |\d+ (?:warnings?|errors?) ", line):
            is_error = False
        if is_error:
            blocks[-1].append(msl_words(line))
    blocks = [_without_shim(_with_space(block)) for block in blocks]
    known = [block for block in blocks if not block[0].startswith(str(SHIM))]
    blocks = known or blocks  # an error in a header follows from one before it
    whole = [block[:3] if LACKING in block[0] else block for block in blocks]  # without "did you mean ...?"
    return ["\n".join(block) for block in whole if not any(map(COPY.search, block))]


SINCE = {
    "atomic": "2.4", "atomic_ulong": "2.4", "atomic_float": "3.0", "bfloat": "3.1",
    **dict.fromkeys(("os_log", "os_log_default", "atomic_thread_fence", "thread_scope", "coherent"), "3.2"),
    **{f"memory_order_{order}": "3.2" for order in ("acquire", "release", "acq_rel", "seq_cst")},
    **dict.fromkeys(("tensor", "tensor_inline", "tensor_handle", "dextents", "extents", "cooperative_tensor"), "4.0"),
    **{f"{lanes}_shuffle_and_fill_{way}": "2.4" for lanes in ("simd", "quad") for way in ("up", "down")},
}  # fmt: skip
"""Versions of MSL from which on names exist."""
MISSING = re.compile(r"(?:unknown type name|no template named|use of undeclared identifier) '(\w+)'(?!; it needs).*")


def _without_shim(block: list[str]) -> list[str]:
    """Return an error without the notes about macros of the shim, and with the version that has a missing type."""
    kept, is_shim = list[str](), False
    for line in block:
        if PLACE.match(line):
            is_shim = ": note: " in line and line.startswith((str(SHIM), "<scratch space>"))
        if not is_shim:
            kept.append(re.sub(r"\banymetal_(atomic_\w+)", r"\1", line))
    if (missing := MISSING.search(kept[0])) and missing[1] in SINCE:
        kept[0] = f"{kept[0][: missing.end(1) + 1]}; it needs version={SINCE[missing[1]]!r} or later"
        kept = kept[:3]  # without "did you mean ...?"
    if "no matching function" in kept[0] and any(OF_BOOLS.search(line) for line in kept):
        kept[0] += (
            ": a vector of bool as `vec<T, N>` of a template is not supported; add an overload for `vec<bool, N>`"
        )
    if "unknown type name 'concept'" in kept[0]:
        kept[0] = kept[0].replace(
            "unknown type name 'concept'", "MSL has no concepts, which are C++20: use enable_if_t"
        )
    if "atomic<float>" in kept[0] and "cannot be used as the type of a kernel parameter" in kept[0]:
        kept[0] += f"; it needs version={SINCE['atomic_float']!r} or later"
    if "expected namespace name" in kept[0] and "raytracing" in "".join(kept[1:2]):
        kept[0] = kept[0].replace("expected namespace name", f"raytracing: function tables and ray tracing {LACKING}")
    return _of_the_user(kept)


OF_BOOLS = re.compile(r"could not match .*__attribute__.* against .*anymetal_bools")


def _of_the_user(block: list[str]) -> list[str]:
    """Return an error in a header of the shim as one of the line of the source that needs it, if a note names it."""
    message = block[0].partition("error: ")[2]
    for i, line in enumerate(block if block[0].startswith(str(SHIM)) else []):
        place = PLACE.match(line)
        if place and ": note: " in line and not line.startswith(str(SHIM)):
            message = re.sub(r"static assertion failed due to requirement '.*?': ", "", message)
            return [f"{place[1]}:{place[2]}:{place[3]}: error: {message}", *block[i + 1 :]]
    return block


PLACE = re.compile(r"(\S.*?):(\d+):(\d+)(: (?:fatal )?(?:error|note|warning): .*)")
EXCERPT = re.compile(r" *(\d*) \| ?(.*)")


def with_sources(found: Sequence[str], files: Mapping[str, str]) -> list[str]:
    """Return diagnostics with the lines of the files in place of what the compiler read.

    Where both differ, by macros or rewrites, the column is that of the same word, or is left out.
    """
    rows = {name: text.splitlines() for name, text in files.items()}
    return ["\n".join(_with_sources(message.splitlines(), rows)) for message in found]


def _with_sources(lines: Sequence[str], rows: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for i, line in enumerate(lines):
        place, excerpt = PLACE.fullmatch(line), EXCERPT.fullmatch(lines[i + 1]) if i + 1 < len(lines) else None
        if EXCERPT.fullmatch(line):
            continue  # follows its place
        number = int(place[2]) if place else 0
        if not place or not excerpt or place[1] not in rows or not 0 < number <= len(rows[place[1]]):
            yield line
            yield from itertools.takewhile(EXCERPT.fullmatch, lines[i + 1 :])
            continue
        own = rows[place[1]][number - 1]
        if own == excerpt[2]:
            yield line
            yield from itertools.takewhile(EXCERPT.fullmatch, lines[i + 1 :])
            continue
        column = _column(excerpt[2], int(place[3]), own)
        yield f"{place[1]}:{number}{f':{column}' if column else ''}{place[4]}"
        yield f"{number:5} | {own}"
        if column:
            yield f"{'':5} | {' ' * (column - 1)}^"


def _column(read: str, column: int, own: str) -> int:
    """Return the column of the word in the line ``own`` that has this column in what the compiler read, or 0."""
    word = re.match(r"\w+|.", read[column - 1 :])
    if not word:
        return 0
    pattern = re.compile(rf"(?<!\w){word[0]}(?!\w)" if word[0].isidentifier() else re.escape(word[0]))
    before = len(pattern.findall(read[: column - 1]))
    return next((match.start() + 1 for match in itertools.islice(pattern.finditer(own), before, None)), 0)


def msl_words(line: str) -> str:
    """Return a line of the output of clang with Metal's names of the address spaces."""
    for opencl, metal in (("__global", "device"), ("__local", "threadgroup"), ("__constant", "constant")):
        line = re.sub(rf"\b{opencl}\b", metal, line)
    line = re.sub(r"use of type '([^']*)' requires cl_khr_fp64 .*", r"MSL has no type '\1'", line)
    line = line.replace("bit-fields are not supported in OpenCL", "bit-fields are not supported")
    line = re.sub(r"'__(private|generic)'", "'thread'", line)
    line = re.sub(r"\banymetal_bools<bool __attribute__\(\(ext_vector_type\((\d)\)\)\)>", r"bool\1", line)
    line = re.sub(  # clang names them in the other order
        r"reference in address space ('\w+') to object in address space ('\w+')",
        r"a reference in address space \2 to an object in \1",
        line,
    )
    line = line.replace(
        "declaration requires a global constructor [-Werror,-Wglobal-constructors]",
        "the value is not known to the compiler: it is no constant expression, or one that does not end",
    )
    if unknown := UNKNOWN.search(line):
        kinds = (kind for kind, names in TYPES.items() if re.fullmatch(names, unknown[1]))
        line = line[: unknown.start()] + next((f"{unknown[1]}: {kind} {LACKING}" for kind in kinds), unknown[0])
    line = re.sub(
        r"'([^']*)' file not found",
        r"'\1' file not found: a source includes the headers of Metal alone, and files of the folders in `include`",
        line,
    )
    return re.sub(r"\b__(private|generic) ?", "", line).replace("C++ for OpenCL", "MSL")


def forbidden(syntax: Syntax, included: Collection[str], has_lambdas: bool) -> Iterator[str]:
    """Yield diagnostics for constructs of a preprocessed text that clang allows and MSL does not, or that run early.

    Those of the second kind are attributes such as ``constructor`` and ``section``, linkage specifications, assembly,
    names of the preprocessor and of the shim, and pragmas that apply attributes or name files.
    """
    places, words = syntax.places, syntax.words
    for row in PRAGMA.finditer(syntax.text):
        if not PRAGMAS.match(row[1]):
            yield places.error(row.start(), f"`{row[0]}` is not supported")
    for i, message in early(syntax):
        yield places.error(words[i].at, message)
    for i in range(syntax.size):
        is_lambda = syntax[i] == "[" and syntax[i - 1] in LAMBDA_AFTER and syntax[i + 1] != "["
        is_lambda = is_lambda and syntax[syntax.partner[i] + 1] != "="  # a designator, `{ [0 ... 3] = 1 }`
        if is_lambda and not has_lambdas and places.line(words[i].at)[0] not in included:
            yield places.error(words[i].at, "MSL has no lambda expressions before 3.2")
    for first, end in [*parameters(syntax), *locals_of(syntax)]:
        mark = next(word for word in words[first:end] if word.text in ("*", "&"))
        kind = "pointer" if mark.text == "*" else "reference"
        spaces = "device, constant, threadgroup or thread"
        if places.line(mark.at)[0] not in included:
            yield places.error(mark.at, f"a {kind} type must have an explicit address space qualifier: {spaces}")


def early(syntax: Syntax) -> Iterator[tuple[int, str]]:
    """Yield positions with a message for attributes, linkage, assembly and reserved names."""
    reserved = set(filter(RESERVED.fullmatch, set(syntax)))
    for i in range(syntax.size):
        text, following = syntax[i], syntax[i + 1]
        if text in FORBIDDEN:
            yield i, FORBIDDEN[text]
        elif text in reserved:
            yield i, f"the name `{text}` is reserved"
        elif text in ("__attribute__", "__attribute") and following == "(":
            for first, _ in syntax.split(i + 2) if syntax[i + 2] == "(" else ():
                if syntax[first].strip("_") not in ATTRIBUTES:
                    yield i, f"the attribute `{syntax[first]}` is not supported"
        elif syntax.is_attribute(i):
            for first, end in syntax.split(i + 1):
                texts = syntax.texts(first, min(end, first + 3))
                if texts[0] == "using" or (texts[1:2] == ["::"] and "".join(texts[2:3]).strip("_") not in ATTRIBUTES):
                    yield i, f"the attribute `{' '.join(texts)}` is not supported"
        elif text == "extern" and following.endswith('"') and following != '"C"':
            yield i, "MSL has no linkage specifications"


def is_bare(words: Sequence[Token]) -> bool:
    """Return whether a declaration has a pointer or reference type without an address space."""
    texts = {word.text for word in words}
    return bool(texts & {"*", "&"}) and not texts & SPACES and "auto" not in texts


def parameters(syntax: Syntax) -> Iterator[tuple[int, int]]:
    """Yield parameters without an address space of functions that are no members."""
    for one in syntax.declarations:
        is_free = one.owner is None or one.owner.kind is Kind.NAMESPACE
        if one.kind is Kind.FUNCTION and is_free and not render_stage(syntax, one) and one.first not in lacking(syntax):
            for first, end in syntax.split(one.parameters):
                if is_bare(syntax.words[first:end]):
                    yield first, end


def locals_of(syntax: Syntax) -> Iterator[tuple[int, int]]:
    """Yield declarations such as ``float *p = ...``; a statement with the value of a product has no effect."""
    words = syntax.words
    removed = [range(one.first, one.last) for one in syntax.declarations if one.first in lacking(syntax)]
    for i in range(syntax.size):
        if syntax[i] not in ("*", "&") or not words[i + 1].is_name:
            continue
        start = i
        while start and (words[start - 1].is_name or syntax[start - 1] == "::"):
            start -= 1
        is_expression = not {"return", "case", "else", "do", "goto"}.isdisjoint(syntax.texts(start, i))
        starts = start < i and syntax[start - 1] in ("{", "}", ";") and not is_expression
        if (
            starts
            and syntax[i + 2] in ("=", ";")
            and is_bare(words[start : i + 2])
            and not any(i in one for one in removed)
        ):
            yield start, i + 2
