"""What an MSL source needs to be C++ of clang's SYCL device mode: a list of rewrites of its tokens.

In this mode the address spaces of MSL are types (the words `device`, `threadgroup`, ... are macros of the shim), and
deduction, overloads and templates are clang's. The rewrites are what remains: constructs of MSL that C++ lacks, and
clang's vectors, which have no constructors. All of them read the same tokens and yield edits; an edit keeps the lines
of the text. ``REWRITES`` lists them in order.
"""

from __future__ import annotations

import bisect
import copy
import functools
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from . import members
from .kernels import (
    MOST_IMAGES,
    NO_DATA,
    Constant,
    class_name,
    constants,
    images_of,
    is_instantiation,
    is_kernel,
    lacking,
    render_stage,
    template_of,
)
from .lexer import Places
from .options import Clock
from .syntax import CLASSES, CLOSING, OPENING, SPACES, Declaration, Kind, Syntax

VECTOR = re.compile(r"(packed_)?(char|uchar|short|ushort|int|uint|long|ulong|half|float|bfloat|bool)[234]")
LONE = re.compile(r"(?<!\w)(char|uchar|short|ushort|int|uint|long|ulong|half|float|bfloat)[234]$")
MATRIX = re.compile(r"(half|float|bfloat)[234]x[234]")
WITH_PARTS = re.compile(rf"array|{MATRIX.pattern}|packed_[a-z]+3")
ENDS = frozenset(("=", ";", ",", "[", "(", "{", *CLOSING))
"""What ends the declaration of a name."""
BEFORE_EXPRESSION = frozenset(("return", "else", "case", "and", "or", "not", "do", "co_return"))
"""Names that an expression may follow; behind another name a type declares something."""
FUNCTION_NAMES = frozenset(("__func__", "__FUNCTION__", "__PRETTY_FUNCTION__"))
NO_CAST = frozenset(("const", "volatile", "noexcept", "override", "final", *SPACES))


class Edit(NamedTuple):
    """Replace the text from ``start`` to before ``end``."""

    start: int
    end: int
    text: str
    removes: bool = False
    """Whether the edits inside are dropped."""
    is_behind: bool = False
    """Whether it belongs to the token before it, also if what follows is removed."""


@dataclass
class Source:
    """A source with what the rewrites ask about it."""

    syntax: Syntax
    constants: Mapping[str, Any] = field(default_factory=dict)
    """Values of the function constants, by name."""
    kept: int = -1
    """Where the explicit instantiation that is not removed ends."""
    _made: dict[Callable[[Source], Iterator[Edit]], list[Edit]] = field(default_factory=dict)

    @property
    def instantiation(self) -> Declaration | None:
        """The explicit instantiation that is not removed."""
        s = self.syntax
        kept = (one for one in s.declarations if is_instantiation(s, one) and s.words[one.last].end == self.kept)
        return next(kept, None)

    def varied(self, constants: Mapping[str, Any], kept: int = -1) -> Source:
        """Return the source with other constants and another instantiation; it keeps what does not depend on them."""
        other = copy.copy(self)
        other.constants, other.kept = constants, kept
        varying = function_constants, instantiations
        other._made = {rewrite: edits for rewrite, edits in self._made.items() if rewrite not in varying}
        return other

    def edits(self, rewrites: Iterable[Callable[[Source], Iterator[Edit]]]) -> list[Edit]:
        """Return the edits of some rewrites."""
        found = list[Edit]()
        clock = Clock()
        for rewrite in rewrites:
            if rewrite not in self._made:
                self._made[rewrite] = list(clock.counted(rewrite(self)))
            found += self._made[rewrite]
        return found

    def edit(self, first: int, last: int, text: str = "") -> Edit:
        """Return the edit that replaces tokens."""
        words = self.syntax.words
        return Edit(words[first].at, words[last].end, text)

    def insert(self, position: int, text: str) -> Edit:
        """Return the edit that puts text before a token."""
        at = self.syntax.words[position].at
        return Edit(at, at, text)

    def append(self, position: int, text: str) -> Edit:
        """Return the edit that puts text behind a token."""
        at = self.syntax.words[position].end
        return Edit(at, at, text, is_behind=True)

    def remove(self, first: int, last: int, text: str = "") -> Edit:
        """Return the edit that removes tokens and all edits among them, and keeps the lines and their markers."""
        words = self.syntax.words
        start, end = words[first].at, words[last].end
        kept = "".join(re.findall(r"\n(?:# \d+ [^\n]*(?=\n))?", self.syntax.text[start:end]))
        return Edit(start, end, text + kept, removes=True)

    def blank(self, first: int, last: int) -> Edit:
        """Return the edit that removes tokens and keeps the columns behind them, if they are in one line."""
        one = self.remove(first, last)
        return one if one.text else one._replace(text=" " * (one.end - one.start))

    @functools.cached_property
    def has_objects(self) -> bool:
        """Whether it has a member for objects in an address space."""
        return any(members.has_object(self.syntax, one) for one in self.syntax.declarations)

    @functools.cached_property
    def keeps_spaces(self) -> bool:
        """Whether a member may depend on the address space of its object, or refer to a part of it, as `&m[1]`."""
        s = self.syntax
        if self.has_objects or not any(map(WITH_PARTS.fullmatch, self.places)):
            return self.has_objects
        kernels = {one.parameters for one in s.declarations if one.parameters >= 0 and is_kernel(s, one)}
        for i in (i for space in ("device", "constant", "threadgroup") for i in self.places.get(space, ())):
            end = next((k for k in s.top(i, s.size) if s[k] in ENDS), i)
            if self.around[i] not in kernels and not {"*", "&"}.isdisjoint(s.texts(i, end)):
                return True
        return False

    @functools.cached_property
    def bodies(self) -> list[Declaration]:
        """The functions with a body."""
        return [one for one in self.syntax.declarations if one.kind is Kind.FUNCTION]

    @functools.cached_property
    def in_body(self) -> bytearray:
        """For each token whether it is in the body of a function."""
        inside = bytearray(len(self.syntax.words))
        for one in self.bodies:
            inside[one.opening : one.last] = b"\1" * (one.last - one.opening)
        return inside

    @functools.cached_property
    def names(self) -> list[int]:
        """The tokens that are names, but for the first token."""
        return [i for i, word in enumerate(self.syntax.words) if word.is_name and i]

    @functools.cached_property
    def scopes(self) -> list[int]:
        """For each token the parameters of the function that it is in, or -1."""
        scopes = [-1] * self.syntax.size
        for one in reversed(self.bodies):
            inside = range(one.parameters, one.last + 1)
            scopes[inside.start : inside.stop] = [one.parameters] * len(inside)
        return scopes

    @functools.cached_property
    def around(self) -> list[int]:
        """For each token the innermost bracket that is open before it, or -1."""
        around, opened = list[int](), [-1]
        for i, text in enumerate(self.syntax):
            if text and text in CLOSING:
                opened.pop()
            around.append(opened[-1])
            if text and text in OPENING:
                opened.append(i)
        return around

    @functools.cached_property
    def places(self) -> dict[str, list[int]]:
        """The tokens of each text."""
        found = dict[str, list[int]]()
        for i, text in enumerate(self.syntax):
            found.setdefault(text, []).append(i)
        return found

    @functools.cached_property
    def setting(self) -> frozenset[str]:
        """Functions that may set an argument: those of the source, and of the library."""
        s = self.syntax
        own = {s[one.parameters - 1] for one in s.declarations if one.parameters > 0} | {"frexp", "modf", "sincos"}
        own |= {s[i] for i in range(2, s.size) if s[i - 1] == "auto" or s.texts(i - 2, i) == ["(", "*"]}
        return frozenset(own)

    @functools.cached_property
    def returning(self) -> frozenset[str]:
        """The functions of the source that return pointers, references or objects of its classes."""
        s, kinds = self.syntax, {"*", "&", *self.syntax.classes}
        heads = ((s[one.parameters - 1], s.texts(one.first, one.parameters - 1)) for one in self.bodies)
        return frozenset(name for name, head in heads if not kinds.isdisjoint(head))

    @functools.cached_property
    def aliases(self) -> frozenset[str]:
        """The names of ``using name = ...`` and ``typedef ... name``, which may be vectors."""
        s, found = self.syntax, set[str]()
        for i, word in enumerate(s.words):
            if word.text == "using" and s[i + 2] == "=":
                found.add(s[i + 1])
            elif word.text == "typedef":
                end = next((k for k in s.top(i, s.size) if s[k] in (";", "__attribute__")), i)
                found.add(s[end - 1])
        return frozenset(found - {")", "]", ">", "typedef"})

    @functools.cached_property
    def bools(self) -> Mapping[str, str]:
        """The names of vectors of bool, with the number of their components."""
        s, found = self.syntax, {f"bool{size}": size for size in "234"}
        for i in (i for text in ("bool2", "bool3", "bool4", "bool") for i in self.places.get(text, ())):
            first, last, size = i, i, s[i][-1]
            if s.texts(i - 2, i) == ["vec", "<"] and s[i + 1] == "," and s[i + 3] == ">":
                first, last, size = i - 2, i + 3, s[i + 2]
            first -= 2 * (s.texts(first - 2, first) == ["metal", "::"])
            if s[first - 1] == "=" and s[first - 3] == "using" and size in "234":
                found[s[first - 2]] = size
            elif s[first - 1] == "typedef" and s[last + 2] == ";" and size in "234":
                found[s[last + 1]] = size
        return found

    @functools.cached_property
    def in_memory(self) -> frozenset[str]:
        """The names of variables, references and pointers that are declared with an address space."""
        s, found = self.syntax, set[str]()
        for i in (k for k, text in enumerate(s) if text in ("device", "constant", "threadgroup")):
            end = next((k for k in s.top(i, s.size) if s[k] in ENDS), i)
            found.add(s[end - 1])
        return frozenset(found)

    @functools.cached_property
    def narrow(self) -> frozenset[str]:
        """``half`` and ``bfloat`` if a source has both, else nothing."""
        both, words = frozenset(("half", "bfloat")), {word.text for word in self.syntax.words}
        return (
            both if any("bfloat" in word for word in words) and any("half" in word for word in words) else frozenset()
        )

    @functools.cached_property
    def parameters(self) -> dict[str, list[tuple[int, int]]]:
        """Where each name is a type parameter of a template, as ranges in order, without overlaps."""
        s, found = self.syntax, dict[str, list[tuple[int, int]]]()
        kinds = {"typename", "class", *(s[i + 1] for i in range(s.size) if s[i] == "concept")}
        for i, word in enumerate(s.words):
            if word.text != "template" or s[i + 1] != "<" or (end := s.angle(i + 1)) is None:
                continue
            last = next((k for k in s.top(end + 1, s.size) if s[k] in ("{", ";")), end)
            last = s.partner[last] if s[last] == "{" else last
            for first, stop in s.split(i + 1):
                if s[first] in kinds and stop > first + 1:
                    rows = found.setdefault(s[first + 1], [])
                    if not rows or rows[-1][1] < i:
                        rows.append((i, last))
                    elif rows[-1][1] < last:
                        rows[-1] = (rows[-1][0], last)
        return found

    def is_type(self, i: int) -> bool:
        """Return whether a token names a type that may be a vector, or half or bfloat if both are there.

        C++ does not convert between these two.
        """
        name = self.syntax[i]
        rows = self.parameters.get(name, [])
        at = bisect.bisect_right(rows, i, key=operator.itemgetter(0)) - 1
        return name in self._types or (at >= 0 and i <= rows[at][1])

    @functools.cached_property
    def _types(self) -> frozenset[str]:
        return frozenset(filter(VECTOR.fullmatch, self.syntax)) | self.aliases | self.narrow

    @functools.cached_property
    def initializers(self) -> frozenset[int]:
        """The names in the heads of constructors, ``: name(value)``, which construct members and bases."""
        s, found = self.syntax, set[int]()
        for one in self.bodies:
            colon = next((i for i in s.top(s.partner[one.parameters], one.opening) if s[i] == ":"), None)
            if colon is not None:
                found |= {i for i in s.top(colon, one.opening) if s[i - 1] in (":", ",")}
        return frozenset(found)


def attributes(source: Source) -> Iterator[Edit]:
    """``[[...]]`` is read by :mod:`.kernels`; C++ has other attributes."""
    s = source.syntax
    i = 0
    while i < s.size:
        if s.is_attribute(i):
            yield source.blank(i, s.partner[i])
            i = s.partner[i]
        i += 1


def kernel_words(source: Source) -> Iterator[Edit]:
    """A kernel is a function that only its entry calls. If it is ``static``, no second copy of it is compiled."""
    s, alone = source.syntax, set[int]()
    for one in s.declarations:
        head = s.texts(one.first, one.parameters) if one.parameters >= 0 and is_kernel(s, one) else []
        in_class = one.owner is not None and one.owner.kind is Kind.CLASS
        if head and not in_class and {"template", "static", "extern"}.isdisjoint(head):
            words = [i for i, word in enumerate(head, one.first) if word == "kernel" and s[i - 1] not in ("[", ",")]
            alone.update(words[:1])
            if not words:
                yield source.insert(one.first, "static ")
    for i in range(s.size):
        if s[i] == "kernel":
            yield source.edit(i, i, "static") if i in alone else source.blank(i, i)


def template_kernels(source: Source) -> Iterator[Edit]:
    """In C++ for OpenCL a template, or a function of arrays of pointers, of tensors or of textures, is no kernel."""
    s = source.syntax
    images = images_of(s)
    for one in s.declarations:
        if not is_kernel(s, one) or one.parameters < 0 or is_instantiation(s, one):
            continue
        words = [i for i in range(one.first, one.parameters) if s[i] == "kernel" and s[i - 1] not in ("[", ",")]
        pairs = set(itertools.pairwise(s.texts(one.parameters, s.partner[one.parameters])))
        parameters = [s.attributes(*part) for part in s.split(one.parameters)]
        is_value = any("buffer" in marks and not {"*", "&", "["} & {s[i] for i in plain} for plain, marks in parameters)
        is_value = is_value or any(not marks.keys().isdisjoint(MOST_IMAGES) for _, marks in parameters)
        is_value = is_value or any(images & {word, other} for word, other in pairs)
        if ("array", "<") in pairs or ("tensor", "<") in pairs or is_value or template_of(s, one):
            yield from (source.edit(i, i) for i in words)
        elif not words:
            yield source.insert(one.first, "kernel ")


def program_samplers(source: Source) -> Iterator[Edit]:
    """``constexpr sampler s(...);`` outside of functions has no address space; C++ for OpenCL wants one."""
    s = source.syntax
    for one in s.declarations:
        in_class = one.owner is not None and one.owner.kind is Kind.CLASS
        words = set(s.texts(one.first, one.last)) if one.kind is Kind.OTHER and not in_class else set()
        if "sampler" in words and {"constexpr", "const"} & words and not {"using", "typedef", "constant"} & words:
            yield source.insert(one.first, "constant ")


def threads(source: Source) -> Iterator[Edit]:
    """``max_total_threads_per_threadgroup(N)`` moves into the body: ``N`` may name parameters of the template."""
    for one in source.bodies:
        number = one.attributes.get("max_total_threads_per_threadgroup")
        if number and is_kernel(source.syntax, one):
            yield source.append(one.opening, f" ANYMETAL_THREADS({number})")


def render_functions(source: Source) -> Iterator[Edit]:
    """Functions of other stages are removed."""
    for one in source.bodies:
        if render_stage(source.syntax, one):
            yield source.remove(one.first, one.last)


LARGE, LARGE_MARK = 20_000, "ANYMETAL_LARGE"


def large_functions(source: Source) -> Iterator[Edit]:
    """A function of more than ``LARGE`` tokens is not optimized: some optimizations take more than linear time."""
    s = source.syntax
    for one in source.bodies:
        if one.last - one.opening > LARGE:
            yield source.insert(s.keyword(one.first), f"{LARGE_MARK} ")


def unsupported(source: Source) -> Iterator[Edit]:
    """What needs image blocks and the like is removed: other kernels do without."""
    s = source.syntax
    problems = lacking(s)
    for one in s.declarations:
        if one.first in problems and one.kind is not Kind.NAMESPACE:
            yield source.remove(one.first, one.last)


def instantiations(source: Source) -> Iterator[Edit]:
    """Explicit instantiations are removed: all of them would be compiled, and those of MSL have names for the host."""
    s = source.syntax
    kept = source.instantiation
    for one in s.declarations:
        if one is kept:
            yield from (source.edit(i, i) for i in range(one.first, one.last) if s[i] == "kernel")
        elif is_instantiation(s, one):
            yield source.remove(one.first, one.last)


def function_constants(source: Source) -> Iterator[Edit]:
    """A function constant with a value is ``constexpr``; one without is a symbol that must not be needed."""
    s = source.syntax
    names = set()
    for one in constants(s):
        names.add(one.name)
        yield source.remove(one.first, one.last, _constant(one, source.constants.get(one.name)))
    for i in range(s.size):
        if s[i] == "is_function_constant_defined" and s[i + 1] == "(":
            name = s[s.partner[i + 1] - 1]
            if name not in names:
                raise s.error(i, f"`{name}` is no function constant")
            is_defined = source.constants.get(name) is not None
            yield source.edit(i, s.partner[i + 1], "true" if is_defined else "false")


def _constant(one: Constant, value: str | None) -> str:
    if value is None:
        return f"extern constant {one.type} {one.name};"
    return f"constexpr constant {one.type} {one.name} = anymetal::construct<{one.type}>({value});"


def constant_members(source: Source) -> Iterator[Edit]:
    """``static constant float x = 1;`` in a class is ``constexpr``, which C++ wants there."""
    s = source.syntax
    for one in s.declarations:
        if one.kind is Kind.OTHER and one.owner is not None and one.owner.kind is Kind.CLASS:
            head = list(s.top(one.first, one.last))
            texts = [s[i] for i in itertools.takewhile(lambda i: s[i] not in ("=", "{"), head)]
            if {"static", "constant"} <= set(texts) and len(texts) < len(head) and "constexpr" not in texts:
                yield source.insert(one.first, "constexpr ")


def constant_objects(source: Source) -> Iterator[Edit]:
    """``constant float2x2 m = {{1, 2}, {3, 4}};``: a constructor makes no object in an address space, but a copy."""
    s = source.syntax
    functions = [(one, one.owner) for one in s.declarations if one.parameters > 0 and one.owner is not None]
    owners = [(one, owner) for one, owner in functions if owner.kind is Kind.CLASS]
    classes = {class_name(s, owner) for one, owner in owners if s[one.parameters - 1] == class_name(s, owner)} - {""}
    for i in range(s.size):
        if s[i] != "constant":
            continue
        at = next(k for k in range(i + 1, s.size + 1) if s[k] not in ("const", "constexpr", "static", "metal", "::"))
        if s[at] not in classes and s[at] != "sampler" and not MATRIX.fullmatch(s[at]):
            continue
        behind = at + 2
        while s[behind] == "[":
            behind = s.partner[behind] + 1
        first = behind + (s[behind] == "=")
        if s[first] == "(" == s[at + 2] and _are_values(source, first):
            yield source.insert(first, f" = {s[at]}")
        elif s[first] == "{" and s[at + 2] != "[":
            yield source.insert(first, f"{s[at]}" if behind < first else f" = {s[at]}")
        elif s[first] == "{":
            starts = [part for part, _ in s.split(first) if s[part] == "{"]
            yield from (source.insert(part, s[at]) for part in starts)


def thread_pointees(source: Source) -> Iterator[Edit]:
    """``thread const device float *p``: of two address spaces that of the variable itself is left out."""
    s = source.syntax
    for i in range(s.size):
        if s[i] == "thread":
            following = next(k for k in range(i + 1, s.size + 1) if s[k] not in ("const", "volatile"))
            if s[following] in SPACES:
                yield source.blank(i, i)


def linkage(source: Source) -> Iterator[Edit]:
    """``extern "C"`` is removed: no name of the source is that of a function outside of it."""
    s = source.syntax
    for i in range(s.size):
        if s[i] == "extern" and s[i + 1] == '"C"':
            is_block = s[i + 2] == "{"
            yield source.blank(i, i + 1 + is_block)
            if is_block:
                yield source.edit(s.partner[i + 2], s.partner[i + 2])


def locals_of_threadgroups(source: Source) -> Iterator[Edit]:
    """``threadgroup float x[8];`` in a body is shared by the threads: a static variable in a section of its own.

    With checks, unused bytes lie before it, so that an access past the end of another variable is in none.
    """
    s = source.syntax
    for i in range(s.size):
        if s[i] in ("threadgroup", "constant") and source.in_body[i] and (first := _declares(s, i)) is not None:
            is_local, is_alone = s[i] == "threadgroup", s[first - 1] == ")"
            start = f"{'ANYMETAL_ZONE ' * (is_local and not is_alone)}static {'ANYMETAL_LOCAL ' * is_local}"
            yield source.insert(first, start)
            last = next((k for k in s.top(i, s.size) if s[k] == ";"), i)
            commas = [k for k in s.top(i, last) if s[k] == ","] if is_local and not is_alone else []
            name = next((k for k in s.top(i, last) if s[k + 1] in ("[", "=", "{", ",", ";") and s.words[k].is_name), i)
            for comma in commas:
                yield source.edit(comma, comma, f"; {start}{' '.join(s.texts(first, name))}")


def shared_references(source: Source) -> Iterator[Edit]:
    """``threadgroup float x[8];`` in a body is a reference: only kernels that are no templates may have it."""
    s = source.syntax
    for i in range(s.size):
        if s[i] != "threadgroup" or not source.in_body[i] or (first := _declares(s, i)) is None or s[first - 1] == ")":
            continue
        last = next((k for k in s.top(i, s.size) if s[k] == ";"), i)
        name = next((k for k in s.top(i, last) if s[k + 1] in ("[", "=", ",", ";") and s.words[k].is_name), i)
        kind = " ".join(s[k] for k in range(first, name) if k not in (i, *_alignments(s, first, name)))
        made = list[str]()
        for at in (name, *(k + 1 for k in s.top(name, last) if s[k] == ",")):
            end = next(k for k in s.top(at, last + 1) if s[k] in ("=", ",", ";"))
            size = " ".join(s.text[s.words[at].end : s.words[end].at].split())
            made.append(f"ANYMETAL_SHARED({s[at]}, {kind} {size.replace('[', '[(').replace(']', ')]')});")
        yield source.remove(first, last, " ".join(made))


def _alignments(s: Syntax, first: int, end: int) -> set[int]:
    """Return the tokens of ``alignas(...)`` and attributes of a declaration."""
    starts = [k for k in range(first, end) if s[k] in ("alignas", "__attribute__")]
    return {k for start in starts for k in range(start, s.partner[start + 1] + 1)}


NO_TYPE = frozenset(("return", "static", "constexpr", "const", "device", "constant", "threadgroup", "extern", "using",
                     "typedef", "goto", "delete", "throw", "case", "default", "else", "do"))  # fmt: skip


def private_variables(source: Source) -> Iterator[Edit]:
    """``float x[8], y;`` in a body have no value: checks record what of them nothing wrote yet."""
    s = source.syntax
    for one in source.bodies:
        if "constexpr" in s.texts(one.first, one.opening):  # has no variable with a destructor
            continue
        uses, lists = Uses.of(s, one), dict[int, bool]()
        for i in range(one.opening + 1, one.last):
            if s[i - 1] in ("{", "}", ";") and s.words[i].is_name and s[i] not in NO_TYPE:
                opening = source.around[i]
                while opening >= 0 and s[opening] != "{":
                    opening = source.around[opening]
                if opening not in lists:
                    lists[opening] = _opens_list(s, opening)
                if lists[opening]:
                    continue
                marks, last, kind, is_array = _uninitialized(s, i, uses)
                if is_array:
                    yield source.insert(i, f"ANYMETAL_ALIGNED({kind}) ")
                elif LONE.search(kind):
                    for k, mark in enumerate(marks):
                        name = re.split(r"[(,]", mark)[1]
                        if edits := _component_uses(source, last, name):
                            marks[k] = f"ANYMETAL_COMPONENTS({name})"
                            yield from edits
                if marks:
                    yield source.append(last, "".join(f" {mark}" for mark in marks))


class Uses(NamedTuple):
    """Where a body last uses each name as an argument or by its address, and returns it, and has a lambda."""

    arguments: Mapping[str, int]
    returned: Mapping[str, int]
    captured: int

    @classmethod
    def of(cls, s: Syntax, one: Declaration) -> Uses:
        """Read the body of a function."""
        body = range(one.opening, one.last)
        return cls(
            {s[k]: k for k in body if s[k - 1] in ("(", ",", "&") and s[k + 1] in (")", ",")},
            {s[k]: k for k in body if (s[k - 1], s[k + 1]) == ("return", ";")},
            max((k for k in body if s[k] == "[" and s[k + 1] == "&"), default=-1),
        )


def _uninitialized(s: Syntax, first: int, uses: Uses) -> tuple[list[str], int, str, bool]:
    """Return marks of the variables without a value that a statement declares, its last token, type, and if arrays.

    A number that a lambda or an argument may refer to is marked as an array is: the compiler takes it for set.
    """
    name = end = first
    while s.words[end].is_name or s[end] in ("::", "<"):
        name, end = end, s.behind(end)
    last = next((k for k in s.top(end, s.size) if s[k] in (";", "}")), end)
    is_class = s[first] in CLASSES and name == first + 1  # of which no variable is declared
    if is_class or not (s.words[name].is_name and (s.words[name - 1].is_name or s[name - 1] == ">") and s[last] == ";"):
        return [], last, "", False
    parts = [name, *(k + 1 for k in s.top(end, last) if s[k] == ",")]
    ends = [*(k - 1 for k in parts[1:]), last]
    is_plain = [
        {"=", "(", "{"}.isdisjoint(s[k] for k in s.top(part, stop)) for part, stop in zip(parts, ends, strict=True)
    ]
    unset = [
        k
        for k, plain in zip(parts, is_plain, strict=True)
        if plain and k > first and s.words[k].is_name and s[k + 1] in ("[", ",", ";") and not s.is_attribute(k + 1)
    ]
    used = {s[k] for k in parts if max(uses.arguments.get(s[k], -1), uses.captured) >= last}
    returned = {s[k] for k in parts if uses.returned.get(s[k], -1) >= last}
    marks = [
        f"ANYMETAL_UNSET{'' if s[k + 1] == '[' or s[k] in used else '_ONE'}({s[k]}, {int(s[k] in returned)})"
        for k in unset
    ]
    is_array = any(s[k + 1] == "[" and not s.is_attribute(k + 1) for k in parts)
    return marks, last, " ".join(s.texts(first, name)), is_array


def _component_uses(source: Source, last: int, name: str) -> list[Edit] | None:
    """Return the edits for the uses of a vector up to the end of its block; None if it has another name, or
    another variable has its name.

    A function of the source may set an argument.
    """
    s, edits, places = source.syntax, list[Edit](), source.places.get(name, [])
    end_of_block = s.partner[source.around[last]]
    for i in places[bisect.bisect_left(places, last) : bisect.bisect_left(places, end_of_block)]:
        if s[i - 1] in (".", "::") or s[i - 2] + s[i - 1] == "->":
            continue
        opening = source.around[i]
        is_inside = opening > last
        is_bound = s[i - 1] == "=" and s[i - 3] == "&"  # to a reference
        is_only_named = is_inside and s[opening - 1] in ("decltype", "sizeof")
        if _follows_type(s, i) or is_bound or is_only_named or s[i - 1] in ("&", ">"):
            return None
        is_argument = is_inside and s[i - 1] in ("(", ",") and s[i + 1] in (",", ")")
        if is_argument and s[opening - 1] in source.setting:
            edits.append(source.edit(i, i, f"ANYMETAL_SET({name}, 15)"))
            continue
        end, bits = i + 1, 15
        if s[end] == "." and set(s[end + 1]) <= COMPONENTS:
            bits, end = sum({1 << "xyzwrgba".index(c) % 4 for c in s[end + 1]}), end + 2
        elif s[end] == "[":
            end = s.partner[end] + 1
        does = "SET" if s[end] == "=" and s[end + 1] != "=" else "USED"
        if s[i + 1] == "[":
            edits += (source.append(i + 1, f"ANYMETAL_{does}_AT({name}, "), source.insert(end - 1, ")"))
        else:
            edits.append(source.edit(i, i, f"ANYMETAL_{does}({name}, {bits})"))
    return edits


def lifetimes(source: Source) -> Iterator[Edit]:
    """``p = &x`` and ``return a`` keep the address of a variable of a thread: checks record when its block ends."""
    s = source.syntax
    for one in source.bodies:
        if "constexpr" in s.texts(one.first, one.opening):  # has no calls of other functions
            continue
        returns_reference, marked = s[one.parameters - 2] == "&", set[int]()
        declared, declaring = dict[str, list[int]](), -1
        for k in range(one.parameters, one.last):
            if s[k] == ";":
                declaring = -1
            if not s.words[k].is_name or s[k + 1] not in DECLARED or s[around := source.around[k]] not in ("{", "("):
                continue
            if (s[k - 1] == "," and declaring == around) or _is_private(s, k):
                declared.setdefault(s[k], []).append(k)
                declaring = around if around != one.parameters else -1
        for i in range(one.opening + 1, one.last):
            is_address = s[i] == "&"
            name = i + is_address
            is_cast = is_address and s.texts(i - 2, i) == ["*", ")"]
            if not (is_cast or s[i - 1] in BEFORE_ADDRESS) or s[name] not in declared or s[name + 1] == "(":
                continue
            found = next((k for k in reversed(declared[s[name]]) if _is_visible(source, one, k, name)), -1)
            is_array = found > 0 and s[found + 1] == "[" and s[name + 1] not in ("[", ".")
            is_returned = returns_reference and s[i - 1] == "return"
            if found < 0 or found in marked or not (is_address or is_array or is_returned):
                continue
            if not _is_kept(source, one, i, found, declared):
                continue
            marked.add(found)
            text, opening = f' ANYMETAL_LIFE({s[found]}, "{s[found]}")', source.around[found]
            if opening == one.parameters:
                yield source.append(one.opening, text)
            elif s[opening] == "{":
                yield source.append(next(k for k in s.top(found, s.size) if s[k] == ";"), text)
            elif s[body := s.partner[opening] + 1] == "{":  # of a loop
                yield source.append(body, text)
            elif s[body] not in CONTROL:
                yield source.insert(body, f"{{{text} ")
                yield source.append(next(k for k in s.top(body, s.size) if s[k] == ";"), "}")


CONTROL = frozenset(("if", "for", "while", "do", "switch", ";"))
BEFORE_ADDRESS = frozenset(("=", "return", "?", ":", "(", ",", "{"))
DECLARED = frozenset(("=", ";", ",", ")", "[", "{", "(", ":"))
"""What may follow the name of a variable in its declaration."""


def _is_private(s: Syntax, k: int) -> bool:
    """Return whether a name is that of a variable of a thread, or of a parameter, behind its type."""
    if s[k - 1] in BEFORE_EXPRESSION or not (s.words[k - 1].is_name or s[k - 1] in (">", "*")):
        return False
    first = k
    while s[first - 1] not in (";", "{", "}", "(", ")", ",", ""):
        first -= 1
        if s[first] in NOT_PRIVATE:
            return False
    return s.words[first].is_name


NOT_PRIVATE = frozenset((
    "=", "&", "[", "return", "static", "constexpr", "device", "constant", "threadgroup", "extern", "using", "typedef",
    "goto", "case", "else", "do", "?", ":", "+", "-", "/",
))  # fmt: skip


def _is_visible(source: Source, one: Declaration, declared: int, use: int) -> bool:
    """Return whether a declaration is that of a name behind it, but for others between them."""
    s, opening = source.syntax, source.around[declared]
    if opening == one.parameters:
        return True
    end = s.partner[opening]
    if s[opening] == "(":  # of a loop
        end = s.partner[end + 1] if s[end + 1] == "{" else next(k for k in s.top(end, s.size) if s[k] == ";")
    return declared < use < end


def _is_kept(source: Source, one: Declaration, use: int, declared: int, all_declared: Mapping[str, Any]) -> bool:
    """Return whether an address of a variable, which is used at a token, may be kept longer than the variable."""
    s, at = source.syntax, use
    while (opening := source.around[at]) > one.opening:
        before = s[opening - 1]
        is_called = s.words[opening - 1].is_name and before not in BEFORE_EXPRESSION and before not in s.classes
        if s[opening] == "(" and is_called and before not in source.returning:
            return False
        if s[opening] == "{" and before in ("else", "do", ")", "{", "}", ";", ":", "]"):
            break
        if s[opening] == "[":
            return False
        at = opening
    start = at
    while s[start - 1] not in (";", "{", "}", ""):
        start = s.partner[start - 1] if s[start - 1] in (")", "]") else start - 1
    outside = list(s.top(start, at))
    equal = next((k for k in reversed(outside) if s[k] == "=" and s[k - 1] not in "=!<>" and s[k + 1] != "="), None)
    if any(s[k] == "return" for k in outside):
        return True
    first = None if equal is None else _postfix(s, equal - 1)
    if first is not None and declared < first and _is_private(s, first):  # a pointer that begins here
        end, places = s.partner[source.around[first]], source.places[s[first]]
        uses = places[bisect.bisect_right(places, first) : bisect.bisect_left(places, end)]
        return any(
            s[k - 1] in (*BEFORE_ADDRESS, "&")
            and s[k + 1] not in ("[", ".")
            and s.texts(k + 1, k + 3) != ["-", ">"]
            and _is_kept(source, one, k, first, all_declared)
            for k in uses
        )
    if source.around[declared] not in (one.opening, one.parameters):
        return equal is not None or (s[at] in "({" and s.words[at - 1].is_name)
    # A variable of the outermost block ends with the function, as do the other ones.
    if first is None or is_kernel(s, one):
        return False
    is_pointee = s[first - 1] == "*" or {"-", "["} & set(s.texts(first, equal or first))
    return bool(is_pointee) or s[first] not in all_declared


def _opens_list(s: Syntax, opening: int) -> bool:
    """Return whether a brace is that of a class, or of a switch: labels may jump over what it declares."""
    i = opening
    if s[i - 1] == ")" and s[s.partner[i - 1] - 1] == "switch":
        return True
    while s[i - 1] not in ("", ";", "{", "}", ")"):
        i -= 1
    return bool(CLASSES & set(s.texts(i, opening)))


def _declares(s: Syntax, i: int) -> int | None:
    """Return the first token of the statement in which a qualifier declares a variable, or None."""
    first = i
    while s.words[first - 1].is_name and s[first - 1] not in BEFORE_EXPRESSION:
        first -= 1
    while s[first - 1] == ")" and s[s.partner[first - 1] - 1] in ("alignas", "__attribute__"):
        first = s.partner[first - 1] - 1
    if (
        s[first - 1] not in ("{", "}", ";", ")", "]", ":")
        or "static" in s.texts(first, i)
        or "using" in s.texts(first, i)
    ):
        return None
    if s[first - 1] == ")" and s[s.partner[first - 1] - 1] not in ("if", "for", "while"):
        return None
    k = i + 1
    while k < s.size and s[k] not in (";", "=", "[", ",", "{", ")"):
        if s[k] in ("*", "&"):
            return None
        if s[k] == "(" and s[k - 1] not in ("alignas", "decltype", "__attribute__"):
            break
        if s[k] == "<":
            end = s.angle(k)
            if end is None:
                return None
            k = end
        k = s.partner[k] + 1 if s[k] in ("(", "[") and s[k] else k + 1
    is_pointer = s[k] == "(" and s[k + 1] in ("*", "&")  # `threadgroup float (*p)[8]`
    return None if s[k] == ")" or is_pointer else first


def member_spaces(source: Source) -> Iterator[Edit]:
    """``float at() const device``: a member for an address space has an explicit object; those for threads need none.

    Constructors have no object: the one for threads serves all spaces.
    """
    s, known = source.syntax, dict[tuple[object, ...], list[Declaration]]()
    names = dict[int, tuple[set[str], set[str]]]()  # of the data and the functions of a class
    for one in s.declarations:
        if (found := members.owner_of(s, one)) is None:
            continue
        owner, name = found
        words = members.qualifiers(s, one)
        spaces = {s[i] for i in words} & SPACES
        if members.is_constructor(s, one, s.class_name(owner)):
            known.setdefault(_constructor(s, one, owner), []).append(one)
        elif spaces <= {"thread"} and not _copies_memory(s, one):
            yield from (source.edit(i, i) for i in words if s[i] == "thread")
        else:
            if not name:
                name = f"anymetal_unnamed_{owner.opening}"
                yield source.insert(owner.opening, f"{name} ")
            rest = s.texts(one.parameters + 1, s.partner[one.parameters])
            object_ = f"this {' '.join(s[i] for i in words)} {name} &{members.OBJECT}"
            yield source.append(one.parameters, object_ + (", " if rest and rest != ["void"] else ""))
            if _copies_memory(s, one):
                yield from _copy(source, one, owner, name)
            if rest == ["void"]:
                yield source.edit(one.parameters + 1, one.parameters + 1)
            yield from (source.edit(i, i) for i in words)
            if owner.first not in names:
                names[owner.first] = members.members(s, owner)
            yield from (source.edit(i, i, text) for i, text in members.uses(s, one, *names[owner.first]))
    others = {key[0] for key, same in known.items() if s[same[0].last - 1] != "default"}
    for key, same in known.items():
        if source.keeps_spaces and key[0] not in others:  # with one of its own a class is no aggregate in C++20
            yield from (source.remove(one.first, one.last) for one in same)
        else:
            yield from _one_constructor(source, same)


def _copies_memory(s: Syntax, one: Declaration) -> bool:
    """Return whether a member is a defaulted assignment of or to an object outside of thread memory."""
    return s[one.last - 1] == "default" and bool(SPACES - {"thread"} & set(s.texts(one.parameters, one.last)))


def _copy(source: Source, one: Declaration, owner: Declaration, name: str) -> Iterator[Edit]:
    """Yield the edits that give a defaulted assignment a body, which calls that for threads, the one of C++."""
    s, is_declared, first = source.syntax, False, one
    for member in s.members[owner.first]:
        if members.is_function(s, member) and s[members.name_of(s, member) + 1] == "=":
            texts = set(s.texts(member.parameters, member.opening))
            is_declared |= s.class_name(owner) in texts and not SPACES - {"thread"} & texts
            first = min(first, member, key=lambda known: known.first) if _copies_memory(s, member) else first
    if one is first and not is_declared:
        yield source.insert(one.first, f"{name} &operator=(const {name} &) = default; ")
    last = s.partner[one.parameters] - 1
    other = s[last] if s.words[last].is_name else "anymetal_other"
    yield source.append(last, "" if other == s[last] else f" {other}")
    back = "" if "void" in s.texts(one.first, one.parameters) else f" return {members.OBJECT};"
    copy = f"static_cast<{name} &>({members.OBJECT}) = static_cast<const {name} &>({other});"
    yield source.edit(one.last - 2, one.last, f"{{ {copy}{back} }}")


def thread_members(source: Source) -> Iterator[Edit]:
    """``float at() const``: a member without an address space is for objects in thread memory."""
    s = source.syntax
    for one in s.declarations:
        if (found := members.owner_of(s, one)) is None:
            continue
        is_copy = s[members.name_of(s, one)] == "operator" and _copies_memory(s, one)
        if s[one.last - 1] == "default":
            yield from [source.blank(one.last - 2, one.last - 1)] * is_copy  # C++ for OpenCL defaults none
            continue
        words = members.qualifiers(s, one)
        is_free = not {"static", "friend"}.isdisjoint(s.texts(one.first, one.parameters))
        if is_free or members.is_constructor(s, one, s.class_name(found[0])) or SPACES & {s[i] for i in words}:
            continue
        yield source.append(words[-1] if words else s.partner[one.parameters], " thread")


def _constructor(s: Syntax, one: Declaration, owner: Declaration) -> tuple[object, ...]:
    """Return what tells two constructors apart in C++: the head without the space behind it."""
    names = s.texts(one.first, s.partner[one.parameters])
    return (owner.first, *(word for word in names if word not in ("constexpr", "inline", "METAL_FUNC")))


def _one_constructor(source: Source, same: list[Declaration]) -> Iterator[Edit]:
    """Yield the edits that leave one of some constructors for several address spaces, that for threads if it exists.

    If another one does something else, no object of its space may be made.
    """
    s = source.syntax

    def spaces(one: Declaration) -> set[str]:
        return {s[i] for i in members.qualifiers(s, one)} & SPACES

    kept = min(same, key=lambda one: not spaces(one) <= {"thread"})
    for i in members.qualifiers(s, kept):
        yield source.edit(i, i)
    for one in same:
        if one is kept:
            continue
        yield source.remove(one.first, one.last)
        bodies = [[s[i] for i in range(s.partner[c.parameters], c.last) if s[i] not in SPACES] for c in (kept, one)]
        name = s[one.parameters - 1]
        for i in range(s.size) if bodies[0] != bodies[1] else ():
            k = i + 1
            while s[k] in ("const", "constexpr", "metal", "::"):
                k += 1
            if s[i] in spaces(one) and s[k] == name and s[s.behind(k)] not in ("*", "&", "const"):
                raise s.error(
                    i, f"an object of `{name}` in {s[i]} memory, with a constructor that differs from that for thread "
                    "memory, is not supported"
                )  # fmt: skip


def array_parameters(source: Source) -> Iterator[Edit]:
    """``device float x[4]`` as a parameter is a pointer; clang refuses the qualifier of the array."""
    s = source.syntax
    for one in s.declarations:
        if one.parameters < 0:
            continue
        for first, end in s.split(one.parameters):
            plain, _ = s.attributes(first, end)
            if not SPACES & {s[i] for i in plain}:
                continue
            brackets = [i for i in s.top(first, end) if s[i] == "[" and not s.is_attribute(i) and s[i - 1] != ")"]
            if not brackets or not s.words[brackets[0] - 1].is_name:
                continue
            rest = len(brackets) > 1
            yield source.insert(brackets[0] - 1, "(*" if rest else "*")
            yield source.remove(brackets[0], s.partner[brackets[0]], ")" if rest else "")


def bool_vectors(source: Source, *, is_strict: bool = False) -> Iterator[Edit]:
    """``vec<bool, N>`` is a class of the shim, integers in the strict pass; a name for ``vec<T, N>`` may be one."""
    s = source.syntax
    data = _dependent_values(source)
    templates = {"vec"}  # those of aliases, `template <class T> using V = vec<T, N>`, are deduced as vec is
    for i in range(s.size):
        if s[i] not in templates or s[i + 1] != "<":
            continue
        first = i
        while s[first - 1] in ("::", "template", "typename"):  # `typename A<T>::template V<T>`
            first -= 1
            if s[first] == "::" and s[first - 1] == ">":
                first = next((k for k in range(first - 2, 0, -1) if s[k] == "<" and s.angle(k) == first - 1), first)
            first -= s[first] in ("::", "<")
        name = s[first - 2] if s[first - 1] == "=" and s[first - 3] == "using" else ""
        if s[i + 2] == "bool" and is_strict:
            yield source.edit(i + 2, i + 2, "int ")
        elif s[i + 2] == "bool" and s[i] == "vec":
            yield source.edit(i, i, "anymetal_bools<metal::vec")
            yield source.append(s.angle(i + 1) or i, ">")
        elif name and s[first - 4] == ">":
            templates.add(name)
        elif (last := s.angle(i + 1)) is not None and (
            name or s[first - 1] == "typedef" or s[i + 2] == "bool" or (i in data and s[last + 1] not in ("(", "{"))
        ):
            yield source.insert(first, "typename anymetal::storable<")
            yield source.append(last, ">::type")


def integers_for_bools(source: Source) -> Iterator[Edit]:
    """Vectors of bool in the strict pass, which has none."""
    return bool_vectors(source, is_strict=True)


def _dependent_values(source: Source) -> set[int]:
    """Return where ``vec<T, N>`` is the type of a value, and not of a parameter, in a template: T may be ``bool``."""
    s = source.syntax
    members = (i for one in s.declarations if _is_data(s, one) for i in range(one.first, one.last))
    inside = itertools.chain(members, itertools.compress(range(s.size), source.in_body))
    return {i for i in inside if s[i] == "vec" and s[i + 2] in source.parameters and source.is_type(i + 2)}


def _is_data(s: Syntax, one: Declaration) -> bool:
    """Return whether a declaration is that of members with values."""
    is_member = one.kind is Kind.OTHER and one.owner is not None and one.owner.kind is Kind.CLASS and one.parameters < 0
    return is_member and s[one.first] not in NO_DATA


def _follows_type(s: Syntax, i: int) -> bool:
    """Return whether the token before ``i`` makes a type there declare something."""
    before = s.words[i - 1]
    return before.is_name and before.text not in BEFORE_EXPRESSION


def constructors(source: Source) -> Iterator[Edit]:
    """``float4(a, b)`` and ``T(x)`` are calls of a function of the shim: clang's vectors have no constructors."""
    s = source.syntax
    declared = {
        one.parameters - 1
        for one in s.declarations
        if (found := members.owner_of(s, one)) and members.is_constructor(s, one, s.class_name(found[0]))
    }
    for i in source.names:
        first, last = i, i
        if i in declared:  # a class has the name of an alias elsewhere
            continue
        if s[i - 1] == "::" and s[i - 2] == "metal":
            first = i - 2
        if s[i + 1] == "<" and (s[i] == "vec" or s[i] in source.aliases):
            last = s.angle(i + 1) or i
        elif not source.is_type(i):
            continue
        if s[first - 1] in (".", "~", "::", "operator", "struct", "class", "new") or i in source.initializers:
            continue
        if s[first - 1] == ">" and not _is_greater(s, first - 1):
            continue
        if s[last + 1] == "(" and not _follows_type(s, first) and not _is_pointer_to_function(s, last + 1):
            is_dependent = s[i] == "vec" and s[i + 2] in source.parameters
            yield source.insert(first, "anymetal::construct<" + "typename anymetal::storable<" * is_dependent)
            yield source.append(last, ">::type" * is_dependent + ">")
        elif s.words[last + 1].is_name and _is_statement(s, first, source.in_body[first]):
            name = _type_name(s, first, last + 1)
            end = next((k for k in s.top(last, s.size) if s[k] == ";" or s[k] in CLOSING), last)
            for k in (last, *(k for k in s.top(last, end) if s[k] == ",")):  # `float4 v(a, b), w(c);`
                if s[k + 2] == "(" and s[s.partner[k + 2] + 1] in (";", ",") and _are_values(source, k + 2):
                    yield source.append(k + 1, f" = anymetal::construct<{name}>")


def _type_name(s: Syntax, first: int, end: int) -> str:
    """Return the text of the name of a type, for a rewrite that drops the edits in it."""
    return re.sub("vec (< bool , [^<>]* >)", r"anymetal_bools < metal::vec \1 >", " ".join(s.texts(first, end)))


def _is_greater(s: Syntax, i: int) -> bool:
    """Return whether a ``>`` compares, and closes no template arguments."""
    if s[i - 1] == "-":
        return False
    opening = next((k for k in range(i - 1, -1, -1) if s[k] in (";", "{", "}") or (s[k] == "<" and s.angle(k) == i)), 0)
    return s[opening] != "<" or not {"&", "|"}.isdisjoint(s.texts(opening, i))


def truths(source: Source) -> Iterator[Edit]:
    """``float4(x > 0)`` and ``int(b.x)`` have the values 0 and 1: clang's comparisons of vectors have -1 for true."""
    s = source.syntax
    known = _bool_vectors(source)
    returns = {
        i
        for one in source.bodies
        if one.parameters - 1 in known or "auto" in s.texts(one.first, one.parameters)
        for i in range(one.opening, one.last)
        if s[i] == "return"
    }
    arguments = {
        first: end
        for i in range(1, s.size)
        if s[i] == "(" and ((source.in_body[i] and _callee(source, i) in source.setting) or s[i - 1] == "decltype")
        for first, end in s.split(i)
        if _is_truth(source, first, end, known) and _place(s, end - 1) != first
    }  # their type may be deduced, or choose an overload
    is_mixed = any(WIDE.fullmatch(text) for text in s)
    for first, end in arguments.items():
        yield source.append(first - 1, "anymetal::bools(")
        yield source.insert(end, ")")
    for i in range(1, s.size):
        if s[i] == "(" and i > 1 and _is_conversion(source, i) and _is_truth(source, i + 1, s.partner[i], known):
            yield source.append(i, "anymetal::zero_or_one(")
            yield source.insert(s.partner[i], ")")
        elif s[i] == ")" and s.words[i + 1].is_name and _is_conversion(source, i + 1):  # `(ushort4)b`
            last = _chain(s, i + 1)
            last = s.partner[last + 1] if s[last + 1] == "(" else last
            if _is_truth(source, i + 1, last + 1, known):
                yield source.insert(i + 1, "anymetal::zero_or_one(")
                yield source.append(last, ")")
        elif (s[i] == "=" and i - 1 in known and s[i + 1] != "=") or i in returns:  # of half they have vectors of short
            end = next((k for k in s.top(i + 1, s.size) if s[k] in (",", ";") or s[k] in CLOSING), i)
            if _is_truth(source, i + 1, end, known) and _place(s, end - 1) != i + 1:
                yield source.append(i, " anymetal::bools(")
                yield source.insert(end, ")")
        elif s[i] == "(" and is_mixed and not _follows_type(s, i) and _is_operand_of_logic(s, i):
            if _is_truth(source, i + 1, s.partner[i], known):
                yield source.append(i, "anymetal::bools(")
                yield source.insert(s.partner[i], ")")
        elif (s[i] == "." and s[i + 1] in COMPONENTS) or (s[i] == "[" and not s.is_attribute(i)):
            yield from _component(source, i, known)


WIDE = re.compile(r"(char|uchar|short|ushort|half|bfloat|long|ulong)[234]")
"""Vectors whose comparisons are not vectors of int."""


def _is_operand_of_logic(s: Syntax, opening: int) -> bool:
    close = s.partner[opening]
    logic = (["&", "&"], ["|", "|"])
    before, behind = s.texts(opening - 2, opening) in logic, s.texts(close + 1, close + 3) in logic
    starts = before or s[opening - 1] in ("=", "return", "?", *OPENING)
    return (before or behind) and starts and (behind or s[close + 1] in (";", ",", "?", ":", *CLOSING))


def _callee(source: Source, opening: int) -> str:
    """Return the name of the function or the class that a bracket holds the arguments of."""
    s = source.syntax
    first = opening - 1
    if s[first] == ">" and not _is_greater(s, first):
        first = next((k for k in range(first - 1, 0, -1) if s[k] == "<" and s.angle(k) == first), first) - 1
    return s[first]


def _component(source: Source, i: int, known: Mapping[int, bool]) -> Iterator[Edit]:
    """Yield the edits for the use of a component, ``.x`` or ``[0]`` at a token, of a comparison in brackets."""
    s = source.syntax
    last, opening = i + 1 if s[i] == "." else s.partner[i], s.partner[i - 1]
    if s[i - 1] == ")" and not _is_call(s, opening) and _is_truth(source, opening + 1, i, known):
        yield source.insert(opening, "anymetal::bool_component(")
        yield source.append(last, ")")


def _is_call(s: Syntax, opening: int) -> bool:
    """Return whether a bracket holds the arguments of a function."""
    return _follows_type(s, opening) or (s[opening - 1] == ">" and not _is_greater(s, opening - 1))


TRUTHS = frozenset(("isnan", "isinf", "isfinite", "isnormal", "isordered", "isunordered", "signbit"))
"""Functions whose results are vectors of bool."""
COMPONENTS = frozenset("xyzwrgba")
BY_COMPONENT = frozenset((
    "abs", "addsat", "clamp", "clz", "ctz", "hadd", "mad24", "madhi", "madsat", "max", "max3", "median3", "min", "min3",
    "mul24", "mulhi", "popcount", "reverse_bits", "rhadd", "rotate", "select", "subsat",
))  # fmt: skip
"""Functions of the library that return a vector of integers for such vectors."""
QUALIFIERS = frozenset(("const", "volatile", "restrict", "__restrict", "__restrict__"))


def _is_bool_vector(source: Source, last: int) -> bool:
    """Return whether a token ends the name of a type of vectors of bool."""
    s = source.syntax
    return s[last] in source.bools or (s[last] == ">" and s.texts(last - 5, last - 2) == ["vec", "<", "bool"])


def _bool_vectors(source: Source) -> dict[int, bool]:
    """Return the uses of names that are declared as vectors of bool, and as nothing else; True for arrays of them."""
    return _declared(source, lambda i: _is_bool_vector(source, i), lambda first, end: _is_truth(source, first, end, {}))


def _declared(
    source: Source, is_type: Callable[[int], bool], is_value: Callable[[int, int], bool], *, has_pointers: bool = False
) -> dict[int, bool]:
    """Return the uses of names that are declared with a type, or as ``auto`` with a value, and as nothing else.

    True for arrays, and pointers if these are wanted. Names of one function do not matter in another; those of members
    and functions are the same everywhere.
    """
    s, scope = source.syntax, source.scopes
    declared: dict[tuple[int, str], set[bool | None]] = {}
    for i in source.names:
        last = i - 1  # of the type
        while has_pointers and s[last] in QUALIFIERS:
            last -= 1
        is_pointer = has_pointers and s[last] == "*"
        if s[last] not in (">", "&", "*"[:is_pointer]) and not s.words[last].is_name:
            continue
        last -= is_pointer or s[last] == "&"
        while has_pointers and s[last] in QUALIFIERS:
            last -= 1
        is_vector = None
        if s[i - 1] == "auto" and s[i + 1] == "=":
            end = next((k for k in s.top(i, s.size) if s[k] in (";", ",")), i)
            is_vector = is_value(i + 2, end) or None
        elif is_type(last):
            is_vector = True
        elif not (_follows_type(s, i) or (last == i - 2 and source.is_type(last))):
            continue
        row = [i]
        is_built = s[i + 1] == "(" and source.in_body[i] and s[s.partner[i + 1] + 1] in (",", ";")  # `bool2 a(b), c;`
        for k in s.top(i + 1, s.size) if is_vector and (s[i + 1] != "(" or is_built) else ():
            if s[k] == ";" or s[k] in CLOSING:
                break
            if s[k] == "," and s.words[k + 1].is_name and not s.words[k + 2].is_name:
                row.append(k + 1)
        for k in row:
            declared.setdefault((scope[i], s[k]), set()).add(is_vector and (is_pointer or s[k + 1] == "["))
    found = {key: kinds.pop() for key, kinds in declared.items() if len(kinds) == 1}
    known, uses = {name for _, name in found}, dict[int, bool]()
    for i in source.names:
        if s[i] not in known:
            continue
        place = (scope[i], s[i])
        if s[i - 1] == "." or place not in declared:
            place = (-1, s[i])
        if (is_array := found.get(place)) is not None:
            uses[i] = is_array
    return uses


def lanes(source: Source) -> Iterator[Edit]:
    """``a + b`` and ``-a`` of vectors of integers are checked lane by lane; an operand is a variable of such a type, an
    element of a buffer or an array, the result of a function of the source, a construction, or made of such."""
    s = source.syntax
    known = _declared(source, lambda i: _is_integer_vector(s, i), lambda first, end: False, has_pointers=True)
    operators, found = list[tuple[int, int, int]](), dict[int, int]()  # found: precedences
    for i in range(1, s.size - 1) if known or any(_is_integer_vector(s, i) for i in range(s.size)) else ():
        if s[i] not in "+-*/%<>" or not source.in_body[i]:
            continue
        before = s.words[i - 1]
        is_operand = before.is_name or before.text in (")", "]") or before.text[:1].isdigit()
        is_operand = is_operand and before.text not in BEFORE_EXPRESSION
        is_twice = s[i] == s[i + 1] and s.words[i].end == s.words[i + 1].at
        is_second = s[i] == before.text and before.end == s.words[i].at
        if s[i] == "-" and not is_operand and not is_twice and not is_second and _begins_known(s, i + 1, known):
            yield source.edit(i, i, " ANYMETAL_MINUS ")
        is_shift = s[i] in "<>"
        is_cast = before.text == ")" and source.is_type(i - 2) and s.partner[i - 1] == i - 3
        is_operand = is_operand and not (s[i] == "*" and (_is_integer_vector(s, i - 1) or before.text in QUALIFIERS))
        if is_twice != is_shift or is_second or not is_operand or s.texts(i, i + 2) == ["-", ">"] or is_cast:
            continue
        first = i + is_shift + 1 + (s[i + is_shift + 1] == "=")
        precedence = 0 if s[first - 1] == "=" else 3 if s[i] in "*/%" else 2 if s[i] in "+-" else 1
        operators.append((i, first, precedence))
        if _is_known(s, i - 1, known) or _begins_known(s, first, known):
            found[i] = found[first - 1] = precedence
    is_new = True
    while is_new:
        is_new = False
        for i, first, precedence in operators:
            if i not in found and _has_vectors(s, i, first, precedence, found):
                found[i] = found[first - 1] = precedence
                is_new = True
    for i, first, precedence in operators:
        if i not in found:
            continue
        sign = "".join(s.texts(i, first))
        if precedence or len(s[i - 1]) < 2 or s[i - 2] not in (".", ">"):
            yield source.edit(i, first - 1, f" ANYMETAL_LANES({sign}) ")
        elif (start := _place(s, i - 1)) is not None:  # `v.xy += a`: no reference is bound to some components
            end = next(k for k in s.top(first, s.size) if s[k] in (",", ";") or s[k] in CLOSING)
            text = " ".join(s.text[s.words[start].at : s.words[i - 1].end].split())
            yield source.edit(i, first - 1, f" = {text} ANYMETAL_LANES({sign[:-1]}) (")
            yield source.insert(end, ")")


def _has_vectors(s: Syntax, i: int, first: int, precedence: int, found: Mapping[int, int]) -> bool:
    """Return whether an operand of an operator is the result of one of those that are found."""

    def is_inside(opening: int) -> bool:
        return any(k in found for k in s.top(opening + 1, s.partner[opening]))

    start = (i - 1 if s[i - 1][:1].isdigit() else _postfix(s, i - 1)) or i
    if start < i and precedence and (found.get(start - 1, 0) >= precedence or (s[start] == "(" and is_inside(start))):
        return True
    while s[first] and s[first] in "+-~*&!":
        first += 1
    last = s.partner[first] if s[first] == "(" else first
    while s[last + 1] in ("(", "[", ".", "::") or s.texts(last + 1, last + 3) == ["-", ">"]:
        last = s.partner[last + 1] if s[last + 1] in OPENING else last + (3 if s[last + 1] == "-" else 2)
    return found.get(last + 1, -1) > precedence or (last == s.partner[first] and s[first] == "(" and is_inside(first))


def _place(s: Syntax, last: int) -> int | None:
    """Return the first token of ``a[i].b->c``, which ends at a token, if it calls nothing."""
    first = last
    while True:
        if s[first] == "]":
            if {"(", "+", "-", "="} & set(s.texts(s.partner[first], first)):
                return None
            first = s.partner[first] - 1
        elif not s.words[first].is_name:
            return None
        elif s[first - 1] == ".":
            first -= 2
        elif s[first - 1] == ">" and s[first - 2] == "-":
            first -= 3
        else:
            return first


def _is_integer_vector(s: Syntax, last: int) -> bool:
    """Return whether a token ends the name of a type of vectors of integers."""
    alias = s.aliases.get(s[last])
    name = alias[-1] if alias else s[last]
    if name != ">":
        return name.removeprefix("packed_")[:-1] in INTEGERS and name[-1] in "234"
    words = alias or [s[k] for k in range(last - 5, last + 1)]
    return words[-6:-4] == ["vec", "<"] and words[-4] in INTEGERS


INTEGERS = frozenset(("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong"))


def _begins_known(s: Syntax, first: int, known: Mapping[int, bool]) -> bool:
    """Return whether what begins at a token is an operand as in :func:`_is_known`, perhaps with a sign."""
    while s[first] and s[first] in "+-~":
        first += 1
    if s[first] == "*":
        return known.get(first + 1) is True
    end = _chain(s, first)
    return _is_known(s, s.partner[end + 1] if s[end + 1] == "(" else end, known)


def _is_known(s: Syntax, last: int, known: Mapping[int, bool]) -> bool:
    """Return whether an operand that ends at a token is a variable, an element, or some components of one."""
    if s[last - 1] in (".", ">") and len(s[last]) > 1 and set(s[last]) <= COMPONENTS:
        last -= 2 if s[last - 1] == "." else 3
    name = last
    while s[name] in (")", "]"):
        name = s.partner[name] - 1
    if s[last] == ")" and s.partner[last] == name + 1:
        is_pointee = s[name + 2] == "*" and known.get(name + 3) is True and name + 4 == last
        is_of_library = s[name] in BY_COMPONENT and any(_begins_known(s, part, known) for part, _ in s.split(name + 1))
        return _is_integer_vector(s, name) or known.get(name) is False or is_pointee or is_of_library
    is_pointee = s[name - 1] == "*" and not (s.words[name - 2].is_name or s[name - 2] in (")", "]"))
    return known.get(name) == (s[last] == "]" or is_pointee or (s[last + 1] == "-" and s[last + 2] == ">"))


def _is_conversion(source: Source, i: int) -> bool:
    """Return whether a bracket holds what is converted to a type other than a vector of bool."""
    s = source.syntax
    if s[i - 1] == ")":
        first = s.partner[i - 1]
        is_generic = s[i - 2] == ">" and s[first + 1] in ("vec", "metal") and not _is_bool_vector(source, i - 2)
        return is_generic or (i - first == 3 and source.is_type(i - 2) and s[i - 2] not in source.bools)
    if s[i - 1] == ">":
        first = next((j for j in range(i - 2, max(i - 8, 1), -1) if s[j] == "<"), 0)
        return s[first - 1] in ("static_cast", "vec") and "bool" not in s.texts(first, i)
    return source.is_type(i - 1) and s[i - 1] not in source.bools


def _is_truth(source: Source, first: int, end: int, known: Mapping[int, bool]) -> bool:
    """Return whether an expression is a comparison, or made of such and of vectors of bool."""
    s = source.syntax
    if s[end - 2] == "." and set(s[end - 1]) <= COMPONENTS:  # `b.zw`
        end -= 2
    name = s.partner[end - 1] - 1 if s[end - 1] == "]" else end - 1
    is_name = all(s.words[i].is_name or s[i] == "." for i in range(first, name + 1))
    if first <= name and is_name and known.get(name) == (name < end - 1):
        return True
    if s[first] == "(" and s.partner[first] == end - 1:
        return _is_truth(source, first + 1, end - 1, known)
    if (s[first] in TRUTHS or s[first] in source.bools) and s[first + 1] == "(" and s.partner[first + 1] == end - 1:
        return True
    top, i = list[tuple[str, int]](), first  # operators, and where they begin
    while i < end:
        close = s.angle(i) if s[i] == "<" and s.words[i - 1].is_name else None
        if s[i] in ("(", "[", "{"):
            i = s.partner[i] + 1
        elif close is not None and close < end and s[close + 1] in ("(", "::"):
            i = close + 1
        else:
            is_double = s[i] + s[i + 1] in DOUBLE and s.words[i + 1].at == s.words[i].at + 1
            top.append((s[i] + s[i + 1] if is_double else s[i], i))
            i += 1 + is_double
    texts = {text for text, _ in top}
    if texts & {"?", ",", "=", ";"}:
        return False
    if texts & {"&&", "||"}:
        return True
    cuts = [i for text, i in top if text in ("&", "|", "^") and i > first]
    if cuts:
        starts, ends = [first, *(i + 1 for i in cuts)], [*cuts, end]
        return all(_is_truth(source, a, b, known) for a, b in zip(starts, ends, strict=True) if b > a)
    return bool(texts & {"<", ">", "<=", ">=", "==", "!="}) or s[first] == "!"


DOUBLE = frozenset(("<=", ">=", "==", "!=", "<<", ">>", "&&", "||", "->"))
"""Operators of two characters, which are tokens of their own here."""


def _is_pointer_to_function(s: Syntax, opening: int) -> bool:
    close = s.partner[opening]
    return s[opening + 1] in ("*", "&") and s[close + 1] == "(" and s.words[close - 1].is_name


def _is_statement(s: Syntax, i: int, is_in_body: int) -> bool:
    """Return whether a type begins a statement, or outside of functions that of a variable in constant memory."""
    end = i
    while s[i - 1] in ("const", "constant", "thread", "constexpr", "static"):
        i -= 1
    if not is_in_body and "constant" not in s.texts(i, end):
        return False
    return s[i - 1] in ("", "{", "}", ";", ")") or s.texts(i - 2, i) == ["for", "("]


def _are_values(source: Source, opening: int) -> bool:
    """Return whether a bracket holds arguments rather than parameters."""
    s = source.syntax
    first = opening + 1
    if s.partner[opening] == first:
        return False
    return s[first] not in SPACES and not (s.words[first].is_name and s.words[first + 1].is_name)


def casts(source: Source) -> Iterator[Edit]:
    """``(half4)x`` and ``static_cast<half4>(x)`` convert vectors by a function of the shim."""
    s = source.syntax
    for i in range(1, s.size):
        if s[i] == "static_cast" and s[i + 1] == "<":
            end = s.angle(i + 1)
            if end is not None and not {"*", "&"} & set(s.texts(i + 2, end)):
                yield source.edit(i, i, "anymetal::cast")
        elif s[i] == "(":
            yield from _cast(source, i)


def _cast(source: Source, i: int) -> Iterator[Edit]:
    s, close = source.syntax, source.syntax.partner[i]
    first = i + 1
    while s[first] in ("const", "thread"):
        first += 1
    at = first + 2 if s[first] == "metal" and s[first + 1] == "::" else first
    if s[at] == "vec" and s[at + 1] == "<":
        if s.angle(at + 1) != close - 1:
            return
    elif at != close - 1 or not source.is_type(at):
        return
    before, after = s.words[i - 1], s.words[close + 1]
    if (before.is_name and before.text not in BEFORE_EXPRESSION) or before.text in (")", "]", ">"):
        return
    is_operand = after.is_name and after.text not in NO_CAST
    if (
        is_operand
        or after.text in ("(", "-", "*", "&", "!", "~", "::", "+")
        or after.text[:1].isdigit()
        or after.text[:1] == "."
    ):
        yield source.remove(i, close, f"anymetal::castto<{_type_name(s, first, close)}>() ->* ")


def braces(source: Source) -> Iterator[Edit]:
    """``f({a, b})``: a list as an argument converts to a vector, too."""
    s = source.syntax
    around = [-1]
    for i in range(s.size):
        text = s[i]
        if text == "{" and s[i - 1] in ("(", ",") and around[-1] >= 0 and s[around[-1]] == "(":
            close = s.partner[i]
            is_list = s[i + 1] != "." and all(s[k] != ";" for k in s.top(i + 1, close))  # no designators, no statements
            if close > i + 1 and s[close + 1] in (",", ")") and is_list and source.in_body[i]:
                yield source.edit(i, i, "anymetal::braces(")
                yield source.edit(close, close, ")")
        if text and text in "([{":
            around.append(i)
        elif text and text in ")]}":
            around.pop()


def conditionals(source: Source) -> Iterator[Edit]:
    """``c ? x[i] : y``: objects in two address spaces, or in one and none, have no common type; they are copied."""
    s = source.syntax
    for i in range(s.size):
        if s[i] != "?" or _is_place(s, i):
            continue
        depth, colon = 0, i + 1
        while s[colon] and s[colon] not in (";", *CLOSING) and (depth or not _is_colon(s, colon)):
            depth += (s[colon] == "?") - _is_colon(s, colon)
            colon = s.behind(colon)
        if not _is_colon(s, colon):
            continue
        end = next((k for k in s.top(colon + 1, s.size) if s[k] in (";", ",", "?", *CLOSING) or _is_colon(s, k)), i)
        operands = [(i + 1, colon - 1), (colon + 1, end - 1)][: 1 if s[end] == "?" else 2]
        if all(first == last and s[first] not in source.in_memory for first, last in operands):
            continue
        for first, last in operands:
            start = first + (s[first] == "*")
            if s[last] != ")" and s[last] not in NO_OBJECT and (_postfix(s, last) if start <= last else None) == start:
                yield source.insert(first, f"anymetal::{'kept' if source.has_objects else 'loaded'}(")
                yield source.append(last, ")")


NO_OBJECT = frozenset(("true", "false", "nullptr", "this"))
"""Names of values."""


def _is_colon(s: Syntax, i: int) -> bool:
    return s[i] == ":" and ":" not in (s[i - 1], s[i + 1])


def _is_place(s: Syntax, question: int) -> bool:
    """Return whether ``c ? x : y`` initializes a reference, is assigned to, or has its address taken."""
    first = question - 1
    while s[first] not in ("", ";", "{", "}", ",", "(", "[", "=", "?", ":", "return"):
        first = (s.partner[first] if s[first] in CLOSING else first) - 1
    if s[first] == "=":
        return s[first - 2] == "&"
    if s[first] != "(":
        return False
    behind = s.partner[first] + 1
    while s[behind] in (".", "["):
        behind = s.partner[behind] + 1 if s[behind] == "[" else behind + 2
    is_assigned = s[behind] == "=" != s[behind + 1] or (s[behind] in OPERATORS and s[behind + 1] == "=")
    return is_assigned or (s[first - 1] == "&" and not s.words[first - 2].is_name)


OPERATORS = frozenset("+-*/%&|^")


def _chain(s: Syntax, first: int) -> int:
    """Return the last token of ``a.b->c[i]``, or the one before ``first``."""
    if not s.words[first].is_name:
        return first - 1
    last = first
    while s.words[last + 1].is_name or s[last + 1] in (".", "-", ">", "[", "::"):
        last = s.partner[last + 1] if s[last + 1] == "[" else last + 1
    return last


def components(source: Source) -> Iterator[Edit]:
    """``p[i].x`` and ``p->x`` of a vector: the compiler checks its alignment where a reference is bound."""
    s = source.syntax
    for i in range(s.size - 1, 1, -1):  # of `p->a[i].x` the outer one first
        if not (s.words[i].is_name and set(s[i]) <= COMPONENTS and source.in_body[i]):
            continue
        is_arrow = s[i - 2] + s[i - 1] == "->"
        last = i - 3 if is_arrow else i - 2
        if not (is_arrow or (s[i - 1] == "." and s[last] == "]")) or (first := _postfix(s, last)) is None:
            continue
        yield source.insert(first, "ANYMETAL_LVALUE(*" if is_arrow else "ANYMETAL_LVALUE(")
        if is_arrow:
            yield source.edit(i - 2, i - 1, ").")
        else:
            yield source.append(last, ")")


def _postfix(s: Syntax, last: int) -> int | None:
    """Return the first token of ``a.b->c(d)[i]``, None if that is not plain."""
    i = last
    while True:
        if s[i] in (")", "]"):
            i = s.partner[i]
            if s[i - 1] in (")", ">"):
                return None
            if s[i - 1] == "]" or (s.words[i - 1].is_name and s[i - 1] not in BEFORE_EXPRESSION):
                i -= 1
                continue
            return i
        if not s.words[i].is_name or s[i] in ("if", "while", "for", "switch"):
            return None
        if s[i - 1] in (".", "::"):
            i -= 2
        elif s[i - 2] + s[i - 1] == "->":
            i -= 3
        else:
            return i


def strings(source: Source) -> Iterator[Edit]:
    """A string literal, or the name of a function, is in ``constant`` memory, but for one that initializes an array."""
    s = source.syntax
    bare = ("static_assert", "__attribute__", "__attribute")
    within = {k for i in range(s.size) if s[i] in bare for k in range(i, s.partner[i + 1])}
    for i in range(s.size):
        is_first = (s[i].endswith('"') and not s[i - 1].endswith('"')) or s[i] in FUNCTION_NAMES
        if is_first and s[i - 1] != "extern" and (s[i - 2], s[i - 1]) != ("]", "=") and i not in within:
            yield source.insert(i, "(constant char *)")


def array_data(source: Source) -> Iterator[Edit]:
    """``x.data()`` of an array is a pointer in the address space of ``x``, which no member function of C++ returns."""
    s = source.syntax
    calls = [i for i in range(1, s.size - 2) if s[i] == "data" and s[i + 1] == "("]
    if all(s[i - 1] == "." or s[i - 2] + s[i - 1] == "->" for i in calls):  # no class of the source has such a function
        yield from (source.edit(i, i + 2, "anymetal_elements") for i in calls if s[i + 2] == ")")


REWRITES: tuple[Callable[[Source], Iterator[Edit]], ...] = (
    attributes,
    kernel_words,
    threads,
    render_functions,
    large_functions,
    unsupported,
    instantiations,
    function_constants,
    constant_members,
    constant_objects,
    thread_pointees,
    linkage,
    locals_of_threadgroups,
    private_variables,
    lifetimes,
    member_spaces,
    array_parameters,
    bool_vectors,
    truths,
    lanes,
    constructors,
    casts,
    braces,
    conditionals,
    strings,
    array_data,
    components,
)


STRICT = (
    attributes,
    template_kernels,
    program_samplers,
    render_functions,
    unsupported,
    instantiations,
    function_constants,
    thread_members,
    constant_members,
    thread_pointees,
    linkage,
    shared_references,
    array_parameters,
    integers_for_bools,
    constructors,
)
"""The rewrites for the strict pass, whose language knows kernels, the spaces of members, and casts of vectors."""


def strictly_rewritten(source: Source) -> str:
    """Return the text of a source for the strict pass."""
    return applied(source.syntax.text, source.edits(STRICT), source.syntax.places)


def rewritten(source: Source, *more: Edit) -> str:
    """Return the text of a source after all rewrites, and ``more`` edits."""
    return applied(source.syntax.text, [*source.edits(REWRITES), *more], source.syntax.places)


def _order(one: Edit) -> tuple[int, bool, bool, int]:
    """Return what edits are sorted by: of removed ranges with one start the longest is first."""
    return one.start, not one.is_behind, not one.removes, -one.end if one.removes else one.end


def applied(text: str, edits: list[Edit], places: Places | None = None) -> str:
    """Return a text with edits; those inside of a removed range are dropped.

    With the places of the text, what follows an edit has a line of its own, in its old column: the compiler, and the
    line table of what it makes, tell the columns of the source.
    """
    parts, at, gone, moved = list[str](), 0, 0, 0
    for one in sorted(edits, key=_order):
        if one.start < gone:
            continue
        if places and moved and at < one.start and text[at] != "\n":
            parts.append(places.again(at))
            moved = 0
        parts += (text[at : one.start], one.text)
        is_same_line = "\n" not in one.text and "\n" not in text[one.start : one.end]
        moved = (moved if "\n" not in text[at : one.start] else 0) + len(one.text) - (one.end - one.start)
        moved = moved if is_same_line else 1
        at = one.end
        if one.removes:
            gone = one.end
    if places and moved and text[at : at + 1] not in ("", "\n"):
        parts.append(places.again(at))
    return "".join((*parts, text[at:]))
