"""Member functions for objects in one address space, ``float at() const device``, as functions with an explicit object.

That is the only form of C++ (of C++23) in which a member is overloaded on the address space of its object. The object
has a name there, ``OBJECT``, and what a body uses of it says so: :func:`uses` finds these names.
"""

from __future__ import annotations

from collections.abc import Iterator

from .syntax import SPACES, Declaration, Kind, Syntax

OBJECT = "anymetal_object"
NO_DECLARATION = frozenset(("return", "else", "case", "and", "or", "not", "do", "goto", "delete", "throw", "using"))
"""Names at the start of a statement or an operand that are no type."""
QUALIFIERS = SPACES | {"const", "volatile"}
NO_OBJECT = frozenset(("static", "friend", "using", "typedef", "enum", "static_assert", "template"))
"""First words of members that belong to no object, but for templates of functions."""


def qualifiers(s: Syntax, one: Declaration) -> list[int]:
    """Return the words about the object behind the parameters of a member function."""
    found, i = list[int](), s.partner[one.parameters] + 1
    while s[i] in QUALIFIERS or s[i] in ("noexcept", "constexpr"):
        found += [i] if s[i] in QUALIFIERS else []
        i += 1
    return found


def is_function(s: Syntax, one: Declaration) -> bool:
    """Return whether a declaration is that of a function, and not of a pointer to one or a variable with a value."""
    words = {s[i] for i in s.top(one.first, one.parameters)}
    is_other = not {"typedef", "using", "static_assert"}.isdisjoint(words) or s[one.parameters + 1] in ("*", "&")
    return one.parameters >= 0 and not is_other and ("=" not in words or "operator" in words)


def name_of(s: Syntax, one: Declaration) -> int:
    """Return the first token of the name of a function, ``operator`` for operators and conversions."""
    words = s.top(one.first, one.parameters)
    return next((i for i in words if s[i] == "operator"), one.parameters - 1)


def owner_of(s: Syntax, one: Declaration) -> tuple[Declaration, str] | None:
    """Return the class of a member function, and its name where the function is declared; None for anything else."""
    if not is_function(s, one):
        return None
    if one.owner is not None and one.owner.kind is Kind.CLASS:
        return one.owner, s.class_name(one.owner)
    name = name_of(s, one)
    if s[name - 1] != "::":
        return None
    last = first = name - 2
    if s[last] == ">":
        first = next((k for k in range(last, one.first, -1) if s[k] == "<" and s.angle(k) == last), last) - 1
    known = s.classes.get(s[first])
    return (known, "".join(s.texts(first, last + 1))) if known else None


def has_object(s: Syntax, one: Declaration) -> bool:
    """Return whether a function is a member for objects in device, constant or threadgroup memory, no constructor."""
    found = owner_of(s, one)
    if found is None or {s[i] for i in qualifiers(s, one)} & SPACES <= {"thread"}:
        return False
    return not is_constructor(s, one, s.class_name(found[0]))


def is_constructor(s: Syntax, one: Declaration, name: str) -> bool:
    """Return whether a member function of a class with this name is a constructor or the destructor."""
    return s[one.parameters - 1] == name and s[name_of(s, one)] != "operator"


def members(s: Syntax, owner: Declaration, known: frozenset[int] = frozenset()) -> tuple[set[str], set[str]]:
    """Return the names of the data and of the functions that an object of a class has, also from its bases."""
    data, functions, name = set[str](), set[str](), s.class_name(owner)
    for one in s.members.get(owner.first, ()):
        start = s.behind(one.first + 1) if s[one.first] == "template" else one.first
        if "static" in s.texts(start, one.opening) or s[start] in NO_OBJECT:
            continue
        if is_function(s, one):
            functions |= {s[name_of(s, one)]} - {name, "operator"}
        elif one.kind is Kind.CLASS:
            behind = {s[i] for i in range(s.partner[one.opening] + 1, one.last) if s.words[i].is_name}
            if not behind and not s.class_name(one):  # `union { float a; int b; };`
                behind, more = members(s, one)
                functions |= more
            data |= behind
        elif one.kind is Kind.OTHER:
            data |= {s[i] for i in _declared(s, start, one.last)}
    bases = {s[i] for i in s.top(owner.first, owner.opening) if s.words[i].is_name and s[i] != name}
    for base in bases & s.classes.keys():
        other = s.classes[base]
        if other.first not in known | {owner.first}:
            more_data, more = members(s, other, known | {owner.first})
            data, functions = data | more_data, functions | more
    return data, functions


def _declared(s: Syntax, start: int, end: int) -> Iterator[int]:
    """Yield the names of variables that a statement declares, if it declares some."""
    i, words = start, 0
    while s.words[i].is_name or s[i] in ("::", "*", "&") or (s[i] == "<" and s.angle(i)):
        if s[i] in ("alignas", "__attribute__", "decltype"):
            i = s.partner[i + 1] + 1
            words += 1
            continue
        if s[i] in NO_DECLARATION:
            return
        is_last = s.is_attribute(i + 1) or s[i + 1] in ("=", ";", ",", "[", "(", "{", ":")
        if words and s.words[i].is_name and s[i - 1] != "::" and is_last:
            break
        words += s.words[i].is_name
        i = s.behind(i)
    else:
        return
    while i < end:
        if s.words[i].is_name:
            yield i
        comma = next((k for k in s.top(i, end) if s[k] in (",", ";")), end)
        if s[comma] != ",":
            return
        i = comma + 1
        while s[i] in ("*", "&") or s[i] in QUALIFIERS:
            i += 1


def _hidden(s: Syntax, one: Declaration, names: set[str]) -> set[int]:
    """Return the tokens of a function with the name of a member that are something else, a variable or a parameter."""
    end = one.last + 1
    places = [(k, one.parameters, end) for first, stop in s.split(one.parameters) for k in range(first, stop)]
    places = [(k, first, stop) for k, first, stop in places if s[k + 1] in (",", ")", "=", "[")]
    if s[one.first] == "template":
        places += [(k, one.first, end) for k in range(one.first, s.behind(one.first + 1))]
    around = list[int]()
    for i in range(one.opening, one.last):
        if s[i] in ("{", "("):
            around.append(i)
        elif s[i] in ("}", ")"):
            around.pop()
        is_head = s[i] == "(" and s[i - 1] in ("for", "if", "while", "switch")
        is_behind = s[i] == ")" and s[s.partner[i] - 1] in ("for", "if", "while", "switch")
        is_in_head = s[i] == ";" and s[around[-1]] == "("  # `for (...; a & b; ...)`
        if (s[i] in ("{", "}", ";", "else", "do") and not is_in_head) or is_head or is_behind:
            found = list(_declared(s, i + 1, one.last))
        elif s[i] == "(" and s[i - 1] == "]":  # of a lambda expression
            found = [k for k in range(i, s.partner[i]) if s.words[k].is_name and s[k + 1] in (",", ")", "=", "[")]
        elif s[i] == "[" and (s[i - 1] == "auto" or s.texts(i - 2, i - 1) == ["auto"]):
            found = list(range(i, s.partner[i]))
        else:
            continue
        block = next((s.partner[k] for k in reversed(around) if s[k] == "{"), one.last)
        places += [(k, k, block) for k in found]
    return {i for k, first, stop in places if s[k] in names for i in range(first, stop) if s[i] == s[k]}


def uses(s: Syntax, one: Declaration, data: set[str], functions: set[str]) -> Iterator[tuple[int, str]]:
    """Yield the tokens behind the parameters of a function that use its object, with what they become.

    ``data`` and ``functions`` are what :func:`members` returns for its class. A name that may be declared in the
    function is left as it is: the compiler reports it if it is a member.
    """
    hidden = _hidden(s, one, data | functions)
    for i in range(s.partner[one.parameters] + 1, one.last):
        if s[i] == "this":
            yield i, f"(&{OBJECT})"
        elif i in hidden or s[i - 1] in (".", "::") or s[i - 2] + s[i - 1] == "->" or s[i + 1] == "::":
            continue
        elif s[i] in data or (s[i] in functions and s[i + 1] in ("(", "<")) or s[i] == "operator":
            yield i, f"{OBJECT}.{s[i]}"
