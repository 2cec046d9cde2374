"""Tokens of a preprocessed MSL source, and where they stand in its files.

The input is the output of clang's preprocessor, which has no comments, macros or continued lines. What remains is split
into the same tokens as by clang; text that would need a second look, such as a raw string, is refused.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..interface import CompileError
from .options import Clock

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
SUFFIXED = re.compile(rf"({FLOATING.pattern})(H|bf|BF)?")
"""Such a literal, or one with a suffix that C++ reserves: the shim has it behind a `_`."""
KNOWN = (
    "GCC clang STDC METAL OPENCL acc align alloc_text attribute bss_seg code_seg comment const_seg data_seg "
    "dependency detect_mismatch diagnostic export fenv_access fenv_round float_control fp_contract function "
    "include_alias init_seg intrinsic managed mark message module ms_struct nounroll nounroll_and_jam omp once "
    "optimize options pack poison pointers_to_members pop_macro push_macro redefine_extname section "
    "strict_gs_check system_header unroll unroll_and_jam unused visibility vtordisp warning weak"
)
"""First words of pragmas that clang knows."""
DROPPED = re.compile(rf"#pragma (?:(?:clang|GCC) diagnostic\b|(?!(?:{KNOWN.replace(' ', '|')})\b))")
"""Pragmas that no pass reads, such as unknown ones, which clang ignores."""
VALUED = re.compile(r"^#pragma (?:(?:GCC )?unroll|pack|clang (?:loop|fp))\b([^\n]*)", re.MULTILINE)
KEYWORDS = frozenset(
    "disable enable full interleave unroll unroll_count vectorize push pop contract fast off on".split()  # noqa: SIM905
)
"""Names in such pragmas that stand for themselves."""
MARKER = re.compile(r'# (\d+) ("(?:\\.|[^"\\])*")')
REFUSED = {
    '"': "raw strings are not supported",
    "#": "a macro expands to a preprocessor directive",
    "": "digraphs such as `{}` are not supported",
}


@dataclass(slots=True)  # frozen ones take three times as long to make
class Token:
    """A token of the source and its position."""

    text: str
    at: int
    is_name: bool

    @property
    def end(self) -> int:
        """The position behind it."""
        return self.at + len(self.text)


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

    def line(self, at: int) -> tuple[str, int]:
        """Return the file and the line of a position."""
        return self._lines[bisect.bisect_right(self._starts, at) - 1]

    def column(self, at: int) -> int:
        """Return the column of a position."""
        return at - self._starts[bisect.bisect_right(self._starts, at) - 1] + 1

    def rows(self, file: str, line: int) -> list[str]:
        """Return the rows of the text that belong to a line of a file."""
        return [row for row, place in zip(self._rows, self._lines, strict=True) if place == (file, line)]

    def again(self, at: int) -> str:
        """Return what gives the text from a position on its line and its column anew."""
        row = bisect.bisect_right(self._starts, at) - 1
        file, line = self._lines[row]
        return f'\n# {line} "{file}"\n{" " * (self.column(at) - 1)}'

    def error(self, at: int, message: str) -> str:
        """Return an error at a position in the format of clang."""
        row = bisect.bisect_right(self._starts, at) - 1
        file, line = self._lines[row]
        return f"{file}:{line}:{self.column(at)}: error: {message}\n{line:5} | {self._rows[row]}"


def scan(text: str) -> Iterator[re.Match[str]]:
    """Yield the tokens, spaces and directives of a text; raise CompileError for a token that is refused."""
    at = 0
    for match in TOKEN.finditer(text):
        if match.start() != at:
            break
        if match.lastgroup == "refused":
            message = REFUSED.get(match.group()[-1], REFUSED[""]).format(match.group())
            raise CompileError(Places(text).error(at, message))
        yield match
        at = match.end()
    if at < len(text):
        raise CompileError(Places(text).error(at, f"the character {text[at]!r} starts no token of MSL"))


def unified(text: str) -> str:
    """Return preprocessed text as all passes read it.

    Floating literals have a suffix, no file counts as a system header, and diagnostics are not switched off.
    """
    parts = []
    for match in scan(text):
        part = match.group()
        if match.lastgroup == "number" and (literal := SUFFIXED.fullmatch(part)):
            part = f"{literal[1]}_{literal[2]}" if literal[2] else f"{part}f"
        elif match.lastgroup == "directive":
            marker = MARKER.match(part)
            part = marker[0] if marker else "" if DROPPED.match(part) else part
        parts.append(part)
    return "".join(parts)


def has_named_values(text: str) -> bool:
    """Return whether a pragma in preprocessed text has a name for a value, which may be that of a macro."""
    return any(not KEYWORDS.issuperset(re.findall(r"\b[A-Za-z_]\w*", row[1])) for row in VALUED.finditer(text))


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a preprocessed text, without spaces and directives."""
    for match in Clock().counted(scan(text)):
        kind = match.lastgroup
        if kind not in ("skip", "directive"):
            yield Token(match.group(), match.start(), kind == "name")


def spell(words: Iterable[Token]) -> str:
    """Return tokens as text with usual spacing: ``device const float *in``."""
    text = " ".join(word.text for word in words)
    return re.sub(r" ?(::|<|>) ?", r"\1", re.sub(r"([*&]) (?=\w)", r"\1", text)).replace(">", "> ").strip()
