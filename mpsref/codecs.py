"""How the fields of specs and problems are written in a case string.

A field names its token in its metadata: ``field(metadata={"codec": codecs.pair("k")})`` is written ``k3x2``. Within one
operation each token must be told from the others by its pattern alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Codec", "clip", "dims", "flag", "integer", "number", "numbers", "pair", "shape", "triple", "word"]

INT = r"(-?\d+)"
FLOAT = r"-?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf|nan)"


class Codec(NamedTuple):
    """An example for messages, a pattern that matches a whole word, and functions from and to its text."""

    example: str
    pattern: str
    read: Callable[..., Any]
    """Takes the groups of the pattern."""
    write: Callable[[Any], str]


def _integers(code: str, separator: str, count: int) -> Codec:
    return Codec(
        code + separator.join("3" * count),
        code + separator.join([INT] * count),
        lambda *values: tuple(map(int, values)),
        lambda values: code + separator.join(map(str, values)),
    )


def pair(code: str) -> Codec:
    """Return the token of two integers (y, x).

    >>> pair("k").write((3, 2))
    'k3x2'
    """
    return _integers(code, "x", 2)


def triple(code: str) -> Codec:
    """Return the token of three integers (y, x, c): ``ps1x1x0``."""
    return _integers(code, "x", 3)


def integer(code: str) -> Codec:
    """Return the token of one integer: ``g2``."""
    return Codec(f"{code}3", code + INT, int, lambda value: f"{code}{value}")


def number(code: str) -> Codec:
    """Return the token of a float, written so that it comes back the same.

    >>> number("eps").write(1e-05)
    'eps1e-05'
    """
    return Codec(f"{code}0.5", f"{code}({FLOAT})", float, lambda value: f"{code}{float(value)!r}")


def numbers(code: str) -> Codec:
    """Return the token of a tuple of floats: ``a0.1_0.2``."""
    return Codec(
        f"{code}0.5_0.25",
        rf"{code}({FLOAT}(?:_{FLOAT})*)",
        lambda text: tuple(map(float, text.split("_"))),
        lambda values: code + "_".join(repr(float(value)) for value in values),
    )


def word(*words: str) -> Codec:
    """Return the token of a text that is one of ``words``."""
    return Codec(words[0], f"({'|'.join(words)})", str, str)


def flag(true: str, false: str) -> Codec:
    """Return the token of a truth value: one of two words."""
    return Codec(true, f"({true}|{false})", lambda text: text == true, lambda value: true if value else false)


def shape(code: str) -> Codec:
    """Return the token of a shape with a letter for each axis: ``n1h5w5c1``."""
    return Codec(
        "".join(f"{letter}{length}" for letter, length in zip(code, (1, 5, 5, 1), strict=False)),
        "".join(letter + INT for letter in code),
        lambda *lengths: tuple(map(int, lengths)),
        lambda lengths: "".join(f"{letter}{length}" for letter, length in zip(code, lengths, strict=True)),
    )


def dims(code: str) -> Codec:
    """Return the token of a tuple of integers of any length.

    >>> dims("v").write((3, 4, 5))
    'v3x4x5'
    """
    return Codec(
        f"{code}3x4",
        rf"{code}((?:-?\d+(?:x-?\d+)*)?)",
        lambda text: tuple(int(length) for length in text.split("x") if length),
        lambda lengths: code + "x".join(map(str, lengths)),
    )


def clip(code: str) -> Codec:
    """Return the token of a clip rectangle ((y0, x0), (height, width)): ``clip0x0+4x4``."""
    return Codec(
        f"{code}0x0+4x4",
        rf"{code}{INT}x{INT}\+{INT}x{INT}",
        lambda y, x, h, w: ((int(y), int(x)), (int(h), int(w))),
        lambda value: "{}{}x{}+{}x{}".format(code, *value[0], *value[1]),
    )
