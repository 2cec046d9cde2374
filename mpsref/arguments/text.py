"""Values in messages: their repr, cut to a length that a message can hold."""

from __future__ import annotations

import enum
import importlib
import re
import reprlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

LONGEST = 400
"""Most characters of a value in a message."""


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxtuple = self.maxlist = self.maxset = self.maxfrozenset = self.maxdict = self.maxdeque = 8
        self.maxstring = self.maxother = LONGEST

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() < 1000 else f"a number of {x.bit_length()} bits"


_short = _Short()


def shown(value: object) -> str:
    """Return the repr of a value that a user passed, with at most :data:`LONGEST` characters and few levels.

    >>> shown((1, "two"))
    "(1, 'two')"
    >>> shown(10**400), len(shown("a" * 10**6))
    ('a number of 1329 bits', 400)
    """
    return cut(_short.repr(value))


def legible(text: str) -> str:
    r"""Return a text with escapes for what XML, a terminal or UTF-8 cannot hold: controls, surrogates, noncharacters.

    >>> legible("\x1b[31mred\x00 \ud800\ufffe, and the rest")
    '\\x1b[31mred\\x00 \\ud800\\ufffe, and the rest'
    """
    return _ILLEGIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


_ILLEGIBLE = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)


class Suggesting(enum.EnumMeta):
    """The metaclass of enumerations whose errors for a name that is no member suggest one."""

    def __getattr__(cls, name: str) -> NoReturn:
        """Raise ``AttributeError``."""
        raise Missing(f"{cls.__name__} has no member {name!r}", name, cls, lambda: did_you_mean(cls.like(name)))

    def like(cls, name: str) -> str:
        """Return the name of the member that is like a name, or nothing."""
        return nearest(name, cls.__members__)


class Missing(AttributeError):
    """The error for an attribute that does not exist, with a hint that is made when the message is read."""

    def __init__(self, text: str, name: str, obj: object, hint: Callable[[], str]) -> None:
        super().__init__(text, name=name, obj=obj)
        self._hint = hint

    def __str__(self) -> str:
        return f"{self.args[0]}{self._hint()}"

    def __reduce__(self) -> tuple[type[AttributeError], tuple[str]]:
        return AttributeError, (str(self),)


def no_such_name(module: str, name: str, other: str) -> Missing:
    """Return the error for a name that a module lacks; the ``other`` module may have it."""

    def hint() -> str:
        if name in importlib.import_module(other).__all__:
            return f": it is in {other}"
        return near(name, importlib.import_module(module).__all__)

    return Missing(f"module {module!r} has no attribute {name!r}", name, sys.modules[module], hint)


def hinting_at_names(get: Callable[[str], Any], module: str, other: str, prefix: str = "") -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a lazy module from that of its loader, with :func:`no_such_name`."""

    def find(name: str) -> Any:
        try:
            return get(name)
        except AttributeError:
            if name in sys.modules[module].__all__:
                raise
            raise no_such_name(module, name.removeprefix(prefix), other) from None

    return find


def near(name: str, known: Iterable[str]) -> str:
    """Return ": did you mean ...?" with the known name that is like a name, in Swift's spelling too; or nothing.

    >>> near("edgeMode", ["edge_mode", "offset"]), near("PoolingAvg", ["PoolingAverage"]), near("x", ["offset"])
    (': did you mean edge_mode?', ': did you mean PoolingAverage?', '')
    """
    return did_you_mean(nearest(name, known))


def did_you_mean(name: str) -> str:
    """Return the end of a message that suggests a name; nothing for none."""
    return f": did you mean {name}?" if name else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is like a name or that it abbreviates, in Swift's spelling too; or nothing."""
    if len(name) > LONGEST:  # no name is as long: what does not compare takes seconds
        return ""
    from difflib import get_close_matches  # of errors only

    names = {one.lower(): one for one in known if not one.startswith("_")}
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if long := [one for one in names.values() if _abbreviates(_words(name), _words(one))]:
        return min(long, key=len)
    for part in (name.lower(), snake, re.split("_(?:with|to|from)_", snake)[0]):  # a selector begins with the name
        if found := get_close_matches(part, names, 1, 0.75):
            return names[found[0]]
    return ""


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+|\d+[A-Za-z]?", name)]


def _abbreviates(short: list[str], long: list[str]) -> bool:
    """Return whether words are more than half of those of a name, in any order and without some of their letters."""
    left = list(long)
    for word in short:
        found = next((one for one in left if one[0] == word[0] and _in_order(word, one)), "")
        if not found:
            return False
        left.remove(found)
    return 2 * len(short) > len(long)


def _in_order(letters: str, word: str) -> bool:
    rest = iter(word)
    return all(letter in rest for letter in letters)


def cut(text: Any) -> str:
    """Return a text, such as the message of another library, without its middle where it is too long."""
    text = str(text)
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[: half - 3]}...{text[-half:]}"
