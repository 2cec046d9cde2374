"""The declarations of an MSL source: namespaces, classes, functions and the rest, found from its tokens.

This is no parser of C++. It knows brackets, template argument lists behind a name that can only begin one, attributes,
and which ``{`` opens what; types and expressions are clang's.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..interface import CompileError
from .lexer import Places, Token, tokens

DEEPEST = 256
"""Levels of nested brackets, as in clang."""
MARGIN = 16
"""Positions before and behind the tokens that may be asked for."""

SPACES = frozenset(("device", "constant", "threadgroup", "thread"))
CLASSES = frozenset(("struct", "class", "union", "enum"))
GNU, THREADS = ("__attribute__", "__attribute"), "max_total_threads_per_threadgroup"
NO_NAME = frozenset((*GNU, "alignas", "decltype", "requires", "explicit", "noexcept", "typeof"))
"""Words before a parenthesis that do not name a function."""

OPENING, CLOSING = "([{", ")]}"


class Kind(enum.Enum):
    """What a declaration declares."""

    NAMESPACE = "namespace"
    CLASS = "class"
    FUNCTION = "function"
    OTHER = "other"


@dataclass(frozen=True)
class Declaration:
    """A declaration outside of functions, as positions of tokens."""

    kind: Kind
    first: int
    last: int
    """The ``;`` or ``}`` that ends it."""
    opening: int
    """The ``{`` of its body, or ``last``."""
    owner: Declaration | None
    """The innermost class or namespace around it."""
    parameters: int = -1
    """The ``(`` of the parameters of a function."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """The attributes ``[[name(text)]]`` outside of its parameters and its body."""


def _with_brackets(words: list[Token]) -> list[Token]:
    """Read ``__attribute__((max_total_threads_per_threadgroup(N)))`` as ``[[...]]``, with the places that it has."""
    for i in reversed([i for i, word in enumerate(words) if word.text == THREADS and i > 2]):
        texts = [word.text for word in words[i - 3 : i + 2]]
        if texts[0] not in GNU or [*texts[1:3], *texts[4:]] != ["("] * 3:
            continue
        depth, end = 1, i + 2
        while depth and end < len(words):
            depth += {"(": 1, ")": -1}.get(words[end].text, 0)
            end += 1
        if [word.text for word in words[end : end + 2]] == [")", ")"]:
            words[end : end + 2] = [replace(word, text="]") for word in words[end : end + 2]]
            words[i - 3 : i] = [Token("[", words[i - 3].at, False), replace(words[i - 1], text="[")]
    return words


class Syntax(list[str]):
    """The texts of the tokens of a source, empty ones outside of it, and its declarations.

    It is a list because the rewrites ask for texts tens of millions of times.

    Attributes
    ----------
    text : str
        The preprocessed source.
    words : tuple of Token
        Its tokens, with two empty ones at the end.
    partner : list of int
        For each bracket the position of the other one, else -1.
    declarations : list of Declaration
        In the order of their ends; members of a class or a namespace come before it.
    lacking : mapping of int to str, or None
        What :func:`.kernels.lacking` returned for it.
    """

    def __init__(self, text: str) -> None:
        """Read a preprocessed text; raise CompileError for brackets that do not match."""
        self.text = text
        end = Token("", len(text), False)
        self.words = (*_with_brackets(list(tokens(text))), end, end)
        self.size = len(self.words) - 2
        self._angles = dict[int, int | None]()
        self.lacking: Mapping[int, str] | None = None
        super().__init__([*(word.text for word in self.words), *[""] * MARGIN])
        self.partner = self._partners()
        self.declarations = list(self._declarations(0, self.size, None))

    @functools.cached_property
    def places(self) -> Places:
        """The lines of the files of the text."""
        return Places(self.text)

    @functools.cached_property
    def classes(self) -> dict[str, Declaration]:
        """The classes that have a name, by it."""
        return {self.class_name(one): one for one in reversed(self.declarations) if one.kind is Kind.CLASS}

    @functools.cached_property
    def members(self) -> dict[int, list[Declaration]]:
        """The members of classes and namespaces, by the first token of these."""
        found = dict[int, list[Declaration]]()
        for one in self.declarations:
            if one.owner is not None:
                found.setdefault(one.owner.first, []).append(one)
        return found

    def class_name(self, one: Declaration) -> str:
        """Return the name of a class, or an empty text if it has none."""
        found, start = "", next(i for i in range(one.first, one.opening) if self[i] in CLASSES) + 1
        for i in self.top(start, one.opening):
            if self[i] in (":", "final"):
                break
            found = self[i] if self.words[i].is_name and self[i] not in ("alignas", "__attribute__") else found
        return found

    @functools.cached_property
    def aliases(self) -> dict[str, list[str]]:
        """What ``using name = ...`` and ``typedef ... name`` outside of functions stand for, without brackets."""
        found = dict[str, list[str]]()
        for one in self.declarations:
            first = one.first if self[one.first] != "template" else self.behind(one.first + 1)
            if one.kind is Kind.OTHER and self[first] == "using" and self[first + 2] == "=":
                name, start, end = self[first + 1], first + 3, one.last
            elif one.kind is Kind.OTHER and self[first] == "typedef":
                name, start, end = self[one.last - 1], first + 1, one.last - 1
            else:
                continue
            words = (self[i] for i in self.top(start, end))
            found[name] = [other for word in words for other in found.get(word, (word,))]
        return found

    def error(self, position: int, message: str) -> CompileError:
        """Return an error at a token."""
        return CompileError(self.places.error(self.words[position].at, message))

    def texts(self, first: int, end: int) -> list[str]:
        """Return the texts of the tokens from ``first`` to before ``end``."""
        return self[first:end]

    def _partners(self) -> list[int]:
        partner, waiting = [-1] * len(self.words), list[int]()
        for i, word in enumerate(self.words):
            text = word.text
            if not text:
                continue
            if text in OPENING:
                waiting.append(i)
                if len(waiting) > DEEPEST:
                    raise self.error(i, f"brackets are nested more than {DEEPEST} deep")
            elif text in CLOSING:
                if not waiting or OPENING[CLOSING.index(text)] != self.words[waiting[-1]].text:
                    raise self.error(i, f"`{text}` closes no bracket")
                partner[i] = waiting.pop()
                partner[partner[i]] = i
        if waiting:
            raise self.error(waiting[-1], f"`{self.words[waiting[-1]].text}` is never closed")
        return partner

    def angle(self, opening: int) -> int | None:
        """Return the ``>`` of the template arguments or parameters that ``<`` opens, or None if it is no bracket."""
        if opening not in self._angles:  # one pass tells of all that are opened in it
            opened, i = [opening], opening + 1
            while i < self.size and opened:
                text = self[i]
                if text == "<":
                    opened.append(i)
                elif text == ">" and not self._is_arrow(i):
                    self._angles[opened.pop()] = i
                elif text in OPENING:
                    i = self.partner[i]
                elif text in CLOSING or text == ";":
                    break
                i += 1
            self._angles.update(dict.fromkeys(opened))
        return self._angles[opening]

    def _is_arrow(self, i: int) -> bool:
        return self[i - 1] == "-" and self.words[i - 1].end == self.words[i].at

    def behind(self, i: int) -> int:
        """Return the position behind a token, a bracket with its contents, or template parameters."""
        if self[i] in OPENING and self[i]:
            return self.partner[i] + 1
        if self[i] == "<" and self[i - 1] != "operator" and self.words[i - 1].is_name:
            end = self.angle(i)
            return i + 1 if end is None else end + 1
        return i + 1

    def top(self, first: int, end: int) -> Iterator[int]:
        """Yield the positions of the tokens from ``first`` to before ``end`` that lie in no bracket there."""
        while first < end:
            yield first
            first = self.behind(first)

    def split(self, opening: int) -> Iterator[tuple[int, int]]:
        """Yield the parts between the commas in a bracket, as the first position and the one behind the last."""
        end = self.partner[opening] if self[opening] in OPENING else self.angle(opening) or opening
        first = opening + 1
        for i in self.top(first, end):
            if self[i] == ",":
                if first < i:
                    yield first, i
                first = i + 1
        if first < end:
            yield first, end

    def is_attribute(self, i: int) -> bool:
        """Return whether ``[[`` begins at a token."""
        return self[i] == "[" == self[i + 1] and self.partner[i + 1] + 1 == self.partner[i]

    def has_brackets(self, i: int) -> bool:
        """Return whether an attribute is written ``[[...]]``, not ``__attribute__((...))``."""
        return self.text[self.words[i].at] == "["

    def attributes(self, first: int, end: int) -> tuple[list[int], dict[str, str]]:
        """Return the tokens outside of ``[[...]]`` from ``first`` to before ``end``, and the attributes inside."""
        plain, found, i = list[int](), dict[str, str](), first
        while i < end:
            if self.is_attribute(i):
                for a, b in self.split(i + 1):
                    found[self[a]] = " ".join(self.texts(a + 2, b - 1))
                i = self.partner[i] + 1
            else:
                plain.append(i)
                i += 1
        return plain, found

    def _declarations(self, first: int, end: int, owner: Declaration | None) -> Iterator[Declaration]:
        start = i = first
        while i < end:
            text = self[i]
            if text == ":" and self[i - 1] in ("public", "private", "protected"):
                start = i = i + 1
            elif text == ";":
                yield self._declared(Kind.OTHER, start, i, i, owner)
                start = i = i + 1
            elif text == "{":
                kind = self._opened(start, i)
                close = self.partner[i]
                if kind is Kind.FUNCTION and self._is_initializer(start, i):
                    i = close + 1
                elif kind is Kind.FUNCTION:
                    yield self._declared(kind, start, close, i, owner)
                    start = i = close + 1
                elif kind is Kind.OTHER:
                    i = close + 1
                else:
                    last = close
                    if kind is Kind.CLASS:
                        last = next((k for k in self.top(close + 1, end) if self[k] == ";"), close)
                    one = self._declared(kind, start, last, i, owner)
                    if self[self.keyword(start)] != "enum":
                        yield from self._declarations(i + 1, close, one)
                    yield one
                    start = i = last + 1
            elif text in ("(", "["):
                i = self.partner[i] + 1
            elif text == "<" and self[i - 1] == "template":
                i = self.behind(i)
            else:
                i += 1
        if start < end:
            yield self._declared(Kind.OTHER, start, end - 1, end - 1, owner)

    def keyword(self, start: int) -> int:
        """Return the first token of a declaration behind template parameters and attributes."""
        while self[start] == "template" or self.is_attribute(start):
            start = self.behind(start + 1) if self[start] == "template" else self.partner[start] + 1
        return start

    def _opened(self, start: int, opening: int) -> Kind:
        """Return what the declaration is that begins at ``start`` and has a ``{`` at ``opening``."""
        at = self.keyword(start)
        words = self.texts(at, min(opening, at + 3))
        if "namespace" in words or (words[:1] == ["extern"] and self[at + 1].endswith('"') and opening == at + 2):
            return Kind.NAMESPACE
        opens = self._parameters(start, opening)
        if opens < 0 and CLASSES & set(words):
            return Kind.CLASS
        return Kind.OTHER if opens < 0 or self._is_assigned(start, opens) else Kind.FUNCTION

    def _is_assigned(self, start: int, end: int) -> bool:
        places = list(self.top(self.keyword(start), end))
        return any(self[i] == "=" for i in places) and not any(self[i] == "operator" for i in places)

    def _parameters(self, start: int, end: int) -> int:
        """Return the ``(`` of the parameters of a function, or -1."""
        for i in self.top(self.keyword(start), end):
            if self[i] == "(" and i > start:
                before = self.words[i - 1]
                is_operator = any(self[k] == "operator" for k in range(max(start, i - 4), i))
                if is_operator and self[i - 1] == "operator":
                    continue  # operator()(...)
                if (before.is_name and before.text not in NO_NAME) or before.text == ">" or is_operator:
                    return i
        return -1

    def _is_initializer(self, start: int, opening: int) -> bool:
        """Return whether a ``{`` belongs to an initializer of a member, `: x{1}`, in the head of a constructor."""
        close = self.partner[self._parameters(start, opening)]
        has_colon = any(self[i] == ":" for i in self.top(close, opening))
        return has_colon and (self.words[opening - 1].is_name or self[opening - 1] == ">")

    def _declared(self, kind: Kind, first: int, last: int, opening: int, owner: Declaration | None) -> Declaration:
        head = opening if kind is not Kind.OTHER else last
        parameters = self._parameters(first, head) if kind in (Kind.FUNCTION, Kind.OTHER) else -1
        _, marks = self.attributes(first, head if parameters < 0 else parameters)
        if parameters >= 0:
            marks |= self.attributes(self.partner[parameters], head)[1]
        return Declaration(kind, first, last, opening, owner, parameters, marks)
