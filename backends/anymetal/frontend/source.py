"""Parser for the kernels of an MSL source and the bindings of their parameters.

The input is the output of clang's preprocessor, which has no comments, macros or continued lines. What remains is split
into the same tokens as by clang; text that would need a second look, such as a raw string, is refused.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from .. import CompileError

NAME = "<msl>"
"""Name of the source in diagnostics."""

TOKEN = re.compile(
    r"""(?P<skip>[ \t\f\v\n]+)
      | (?P<directive>^\#(?:pragma[ ]|[ ]\d)[^\n]*)
      | (?P<text>(?:u8|[uUL])?(?:"(?:\\[^\n\r]|[^"\\\n\r])*"|'(?:\\[^\n\r]|[^'\\\n\r])*')(?![A-Za-z_]))
      | (?P<refused>(?:u8|[uUL])?R"|\#|%:|<:(?!:(?![:>]))|:>|<%|%>)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<dots>\.\.\.)
      | (?P<number>0[xX](?:[eEpP][+-]|'\w|[\w.])*|\.?\d(?:[eE][+-]|'\w|[\w.])*)
      | (?P<other>::|[{}\[\]()?~,;.+\-*%^&|<>=!:]|/(?![/*]))""",
    re.VERBOSE | re.MULTILINE | re.ASCII,
)
FLOATING = re.compile(
    r"(?:[\d']+\.[\d']*|\.[\d']+)(?:[eE][+-]?[\d']+)?|[\d']+[eE][+-]?[\d']+|0[xX][\da-fA-F'.]+[pP][+-]?[\d']+"
)
"""A floating literal without a suffix, of type ``float`` in MSL."""
DIAGNOSTIC = re.compile(r"#pragma (?:clang|GCC) diagnostic\b")
MARKER = re.compile(r'# (\d+) ("(?:\\.|[^"\\])*")')
REFUSED = {
    '"': "raw strings are not supported",
    "#": "a macro expands to a preprocessor directive",
    "": "digraphs such as `{}` are not supported",
}
SYNCHRONIZES = re.compile(r"simd_\w+|quad_\w+|threadgroup_barrier|simdgroup_barrier")

DEEPEST = 256
"""Levels of nested brackets, as in clang."""

MOST_THREADS = "MPSREF_MAX_THREADS"

UNUSED_LEFT_OUT = "#pragma clang attribute mpsref.push(__attribute__((internal_linkage)), apply_to = function)"
"""Makes the functions of a source local to it: no code is generated for those that no kernel needs."""

SCALARS = ("uint", "ushort")
VECTORS = ("uint", "uint2", "uint3", "ushort", "ushort2", "ushort3")

# attribute: (C++ expression of the group `g`, the thread `t` and the axis {0}, legal types)
ATTRIBUTES: dict[str, tuple[str, tuple[str, ...]]] = {
    "thread_position_in_grid": ("g->origin[{0}] + mpsref::place(g, t, {0})", VECTORS),
    "thread_position_in_threadgroup": ("mpsref::place(g, t, {0})", VECTORS),
    "threadgroup_position_in_grid": ("g->position[{0}]", VECTORS),
    "threads_per_threadgroup": ("g->extent[{0}]", VECTORS),
    "dispatch_threads_per_threadgroup": ("g->width[{0}]", VECTORS),
    "threads_per_grid": ("g->grid[{0}]", VECTORS),
    "threadgroups_per_grid": ("g->groups[{0}]", VECTORS),
    "grid_origin": ("0", VECTORS),
    "grid_size": ("g->grid[{0}]", VECTORS),
    "thread_index_in_threadgroup": ("t", SCALARS),
    "thread_index_in_simdgroup": ("t % 32", SCALARS),
    "simdgroup_index_in_threadgroup": ("t / 32", SCALARS),
    "threads_per_simdgroup": ("32", SCALARS),
    "thread_execution_width": ("32", SCALARS),
    "simdgroups_per_threadgroup": ("(g->size + 31) / 32", SCALARS),
    "dispatch_simdgroups_per_threadgroup": ("(g->width[0] * g->width[1] * g->width[2] + 31) / 32", SCALARS),
}


@dataclass(frozen=True)
class Token:
    """A token of the source and its position."""

    text: str
    at: int
    is_name: bool


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: the buffer ``index``, or an attribute of the thread with the C++ value ``value``."""

    text: str
    index: int | None = None
    is_reference: bool = False
    value: str = ""
    axes: int = 1
    """The number of components of an attribute."""


@dataclass(frozen=True)
class KernelSource:
    """One ``kernel`` function of a source."""

    name: str
    parameters: tuple[Parameter, ...]
    threads: str
    synchronizes: bool
    has_threadgroup_memory: bool

    @property
    def axes(self) -> int:
        """The number of components of the thread positions."""
        return max((known.axes for known in self.parameters), default=1)

    @property
    def names_threads(self) -> bool:
        """Whether the kernel has the attribute ``max_total_threads_per_threadgroup``."""
        return self.threads != MOST_THREADS

    def describe(self) -> dict[str, Any]:
        """Return this kernel as JSON data."""
        return asdict(self)


@dataclass(frozen=True)
class Chunk:
    """A declaration at file scope: its tokens, up to the ``;`` or the ``}`` that ends it."""

    tokens: tuple[Token, ...]

    @property
    def header(self) -> tuple[Token, ...]:
        """The tokens before the body."""
        texts = [token.text for token in self.tokens]
        return self.tokens[: texts.index("{")] if "{" in texts else self.tokens

    @property
    def body(self) -> tuple[Token, ...]:
        """The tokens of the body, including the braces."""
        return self.tokens[len(self.header) :]

    @property
    def names(self) -> set[str]:
        """The names by which other chunks refer to this one."""
        header, _ = attributes(self.header)
        for token, following in itertools.pairwise(header):
            if token.text in ("struct", "class", "enum", "union") and following.is_name:
                return {following.text}
            if token.is_name and following.text == "(":
                return {token.text}
        return {token.text for token in self.tokens if token.is_name}


class Places:
    """The lines of the files of a preprocessed text, for diagnostics."""

    def __init__(self, text: str) -> None:
        """Read the line markers of a text."""
        self._rows = text.split("\n")
        self._starts = [0, *itertools.accumulate(len(row) + 1 for row in self._rows)]
        self._lines = []
        file, line = NAME, 1
        for row in self._rows:
            self._lines.append((file, line))
            marker = MARKER.match(row)
            file, line = (marker[2][1:-1], int(marker[1])) if marker else (file, line + 1)

    def file(self, at: int) -> str:
        """Return the file of a position."""
        return self._lines[bisect.bisect_right(self._starts, at) - 1][0]

    def marker(self, at: int) -> str:
        """Return a line marker for a position."""
        file, line = self._lines[bisect.bisect_right(self._starts, at) - 1]
        return f'# {line} "{file}"'

    def error(self, at: int, message: str) -> str:
        """Return an error at a position in the format of clang."""
        row = bisect.bisect_right(self._starts, at) - 1
        file, line = self._lines[row]
        return f"{file}:{line}:{at - self._starts[row] + 1}: error: {message}\n{line:5} | {self._rows[row]}"


def scan(text: str) -> Iterator[re.Match[str]]:
    """Yield the tokens, spaces and directives of a text; raise CompileError for a token that is refused."""
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise CompileError(Places(text).error(at, f"the character {text[at]!r} starts no token of MSL"))
        if match.lastgroup == "refused":
            message = REFUSED.get(match.group()[-1], REFUSED[""]).format(match.group())
            raise CompileError(Places(text).error(at, message))
        yield match
        at = match.end()


def unified(text: str) -> str:
    """Return preprocessed text as all passes read it.

    Floating literals have a suffix, no file counts as a system header, and diagnostics are not switched off.
    """
    parts = []
    for match in scan(text):
        part = match.group()
        if match.lastgroup == "number" and FLOATING.fullmatch(part):
            part += "f"
        elif match.lastgroup == "directive":
            marker = MARKER.match(part)
            part = marker[0] if marker else "" if DIAGNOSTIC.match(part) else part
        parts.append(part)
    return "".join(parts)


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a preprocessed text, without spaces and directives."""
    for match in scan(text):
        if match.lastgroup not in ("skip", "directive"):
            yield Token(match.group(), match.start(), match.lastgroup == "name")


def chunks(words: Iterable[Token]) -> Iterator[Chunk]:
    """Yield the declarations of a source at file scope."""
    depth, found = 0, list[Token]()
    for token in words:
        found.append(token)
        depth += (token.text in "([{") - (token.text in ")]}")
        if depth > DEEPEST:
            raise CompileError(f"brackets are nested more than {DEEPEST} deep")
        if depth == 0 and token.text in (";", "}"):
            yield Chunk(tuple(found))
            found = []
    if found:
        yield Chunk(tuple(found))


def closing(words: tuple[Token, ...], opening: int) -> int:
    """Return the position of the bracket that closes the one at ``opening``."""
    depth = 0
    for position in range(opening, len(words)):
        depth += (words[position].text in "([{") - (words[position].text in ")]}")
        if depth == 0:
            return position
    raise CompileError(f"a bracket after `{spell(words[max(opening - 1, 0) : opening + 2])}` is never closed")


def split(words: tuple[Token, ...], opening: str = "([{<") -> Iterator[tuple[Token, ...]]:
    """Yield the parts between commas outside of brackets; in expressions `<` is none."""
    ending = opening.translate(str.maketrans("([{<", ")]}>"))
    depth, part = 0, list[Token]()
    for token in words:
        depth += (token.text in opening) - (token.text in ending)
        if token.text == "," and depth == 0:
            yield tuple(part)
            part = []
        else:
            part.append(token)
    if part:
        yield tuple(part)


def attributes(words: tuple[Token, ...]) -> tuple[tuple[Token, ...], dict[str, str]]:
    """Return the tokens outside of ``[[...]]``, and the attributes inside with the text of their arguments."""
    plain, found, position = list[Token](), dict[str, str](), 0
    while position < len(words):
        if [word.text for word in words[position : position + 2]] == ["[", "["]:
            end = closing(words, position)
            for part in filter(None, split(words[position + 2 : end - 1])):
                found[part[0].text] = " ".join(word.text for word in part[2:-1])
            position = end
        else:
            plain.append(words[position])
        position += 1
    return tuple(plain), found


def spell(words: Iterable[Token]) -> str:
    """Return tokens as text with usual spacing: ``device const float *in``."""
    text = " ".join(word.text for word in words)
    return re.sub(r" ?(::|<|>) ?", r"\1", re.sub(r"([*&]) (?=\w)", r"\1", text)).replace(">", "> ").strip()


def parameter(words: tuple[Token, ...], kernel: str, taken: set[int]) -> Parameter:
    """Parse one parameter; ``taken`` are the buffer indices in use, to which the index of this parameter is added."""
    declaration, marks = attributes(words)
    text = spell(declaration)
    where = f"parameter `{text}` of kernel `{kernel}`"
    texts = [word.text for word in declaration]
    for mark in marks:
        if mark != "buffer" and mark not in ATTRIBUTES:
            raise CompileError(f"{where}: [[{mark}]] is not supported; only buffers and thread positions are")
    if "*" in texts or "&" in texts or "[" in texts:
        if "threadgroup" in texts:
            raise CompileError(
                f"{where}: threadgroup memory as a kernel parameter is not supported (metalcompute sets no length): "
                "declare an array of fixed size inside the kernel"
            )
        if "buffer" in marks and not marks["buffer"].isdecimal():
            raise CompileError(f"{where}: the buffer index {marks['buffer']!r} is not a number")
        free = next(i for i in range(len(taken) + 1) if i not in taken)
        index = int(marks["buffer"]) if "buffer" in marks else free
        if index > 30:
            raise CompileError(f"{where}: the buffer index is above 30")
        taken.add(index)
        return Parameter(text, index, is_reference="&" in texts)
    for mark in marks:
        if mark in ATTRIBUTES:
            value, types = ATTRIBUTES[mark]
            named = set(texts) & set(types)
            if not named:
                raise CompileError(f"{where}: [[{mark}]] must have one of the types {', '.join(types)}")
            size = named.pop()[-1]
            return Parameter(text, value=value, axes=int(size) if size.isdigit() else 1)
    raise CompileError(f"{where}: needs an attribute such as [[buffer(0)]] or [[thread_position_in_grid]]")


def synchronizing(parts: list[Chunk]) -> set[str]:
    """Return the names whose use may execute a barrier or a simdgroup function, directly or indirectly."""
    users: dict[str, list[set[str]]] = {}
    for part in parts:
        names = part.names
        for used in {token.text for token in part.tokens if token.is_name}:
            users.setdefault(used, []).append(names)
    reached, waiting = set[str](), [name for name in users if SYNCHRONIZES.fullmatch(name)]
    while waiting:
        found = set[str]().union(*users.pop(waiting.pop(), ())) - reached
        reached |= found
        waiting += found
    return reached


def is_local_declaration(words: tuple[Token, ...], position: int) -> bool:
    """Return whether ``threadgroup`` at this position declares a variable rather than a pointer."""
    if words[position].text != "threadgroup":
        return False
    start = position
    while words[start - 1].is_name:
        start -= 1
    if words[start - 1].text not in ("{", "}", ";"):
        return False
    ends = (i for i in range(position, len(words)) if words[i].text in (";", "["))  # a length may be a product
    end = next(ends, position)
    return not {"*", "&"} & {word.text for word in words[position:end]}


def kernels(parts: list[Chunk]) -> list[KernelSource]:
    """Return the kernels of a source, in order."""
    reached = synchronizing(parts)
    found = []
    for part in parts:
        header = part.header
        texts = [word.text for word in header]
        if "kernel" not in texts or not part.body:
            continue
        plain, marks = attributes(header)
        texts = [word.text for word in plain]
        if "(" not in texts[1:]:
            raise CompileError(f"`{spell(plain)}` is not a kernel function: `kernel void name(...) {{...}}`")
        opening = texts.index("(")
        name = texts[opening - 1]
        if "template" in texts:
            raise CompileError(
                f"kernel `{name}` is a template: write a function template, and a kernel that calls it for each type"
            )
        if texts[texts.index("kernel") :][:2] != ["kernel", "void"]:
            raise CompileError(f"kernel `{name}` must return void")
        start = header.index(plain[opening])
        words = list(split(header[start + 1 : closing(header, start)]))
        named = [int(mark["buffer"]) for _, mark in map(attributes, words) if mark.get("buffer", "").isdecimal()]
        if len(named) > len(set(named)):
            raise CompileError(f"kernel `{name}` uses a buffer index twice: {named}")
        taken = set(named)
        parameters = [parameter(word, name, taken) for word in words]
        threads = marks.get("max_total_threads_per_threadgroup", MOST_THREADS)
        if not threads:
            raise CompileError(f"kernel `{name}`: [[max_total_threads_per_threadgroup(N)]] needs a number of threads")
        found.append(
            KernelSource(
                name,
                tuple(parameters),
                threads,
                name in reached,
                any(is_local_declaration(part.body, i) for i in range(len(part.body))),
            )
        )
    return found


def translate(
    text: str, words: Iterable[Token], entry: Callable[[int, KernelSource], str]
) -> tuple[str, list[KernelSource]]:
    """Translate a preprocessed source to C++ that follows the headers of the shim; return it and its kernels.

    Threadgroup variables become static variables with the macro ``MPSREF_LOCAL`` of their kernel. ``entry`` returns the
    entry point of a kernel for the target.
    """
    parts = list(chunks(words))
    found = kernels(parts)
    edits, places = [], Places(text)
    number = {kernel.name: i for i, kernel in enumerate(found)}
    lines = dict[int, str]()
    for part in parts:
        name = next(iter(part.names), "")
        if part.body and any(word.text == "kernel" for word in part.header) and name in number:
            lines[number[name]] = places.marker(part.tokens[0].at)
            edits += [
                (part.body[i].at, number[name]) for i in range(len(part.body)) if is_local_declaration(part.body, i)
            ]
    for at, kernel in reversed(edits):
        text = text[:at] + f"static MPSREF_LOCAL({kernel})" + text[at + len("threadgroup") :]
    entries = "".join(f"{lines[i]}\n{entry(i, kernel).replace(chr(10), ' ')}\n" for i, kernel in enumerate(found))
    return f"{UNUSED_LEFT_OUT}\n{text}\n#pragma clang attribute mpsref.pop\n{entries}", found


def call(kernel: KernelSource) -> str:
    """Return a C++ call of a kernel for the group ``g`` and the thread ``t`` (see abi.h)."""
    arguments = []
    for known in kernel.parameters:
        if known.index is None:
            # Without y and z the position in the group is t, which saves a division.
            value = known.value if kernel.axes > 1 else known.value.replace("mpsref::place(g, t, {0})", "t")
            components = (f"uint32_t({value.format(axis)})" for axis in range(known.axes))
            arguments.append(f"mpsref::index{{{', '.join(components)}}}")
        else:
            proxy = "reference" if known.is_reference else "pointer"
            arguments.append(f"mpsref::{proxy}{{g->buffers[{known.index}]}}")
    return f"::{kernel.name}({', '.join(arguments)})"


def about(number: int, kernel: KernelSource) -> str:
    """Return the C++ that stores the threads of a kernel, and for each buffer its minimum size and if it is written."""
    buffers = [position for position, known in enumerate(kernel.parameters) if known.index is not None]
    known = [kernel.threads, *(f"MPSREF_PARAMETER({position}, ::{kernel.name})" for position in buffers)]
    return f"MPSREF_ABOUT({number}, {', '.join(known)})"
