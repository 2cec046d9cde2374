"""Values in messages: their repr, cut to a length that a message can hold."""

from __future__ import annotations

import reprlib
from typing import Any

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


def cut(text: Any) -> str:
    """Return a text, such as the message of another library, without its middle where it is too long."""
    text = str(text)
    half = LONGEST // 2
    return text if len(text) <= LONGEST else f"{text[: half - 3]}...{text[-half:]}"
