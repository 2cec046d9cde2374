"""Codecs of the fields of specs and problems: conversion of arguments, and the representation in case strings.

A field is declared with its codec, ``kernel_size: PairLike = parameter(pair("k", low=1))``. The codec checks and
converts an argument, and writes its value as a token of a case string, ``k3x2``. The token patterns of one operation
must differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, field
from typing import Any, NamedTuple

from mpsref.arguments import arrays, parameters

INT = r"(-?\d+)"
FLOAT = r"-?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf|nan)"


class Codec(NamedTuple):
    """The token of a field (an example for messages, a pattern, a parser and a formatter), and its conversion."""

    example: str
    pattern: str
    read: Callable[..., Any]
    """``read(*groups)`` returns the value for the groups of the pattern."""
    write: Callable[[Any], str]
    convert: Callable[[str, Any], Any] | None = None
    """``convert(name, value)`` returns the converted value, or raises an error with the name of the field."""
    length: int = 1
    """Number of axes of the field in a shape."""
    words: tuple[str, ...] = ()
    """The legal values of a field that has a few words."""
    edges: tuple[int | float, ...] = ()
    """The smallest and the largest legal numbers, where there are such."""


def parameter(codec: Codec, default: Any = MISSING, *, kw_only: bool = False) -> Any:
    """Declare a field of a spec or a problem; if ``None`` is the default it is accepted without conversion."""
    return field(default=default, kw_only=kw_only, metadata={"codec": codec})


def pair(code: str, low: int | None = None) -> Codec:
    """Return the codec of two integers (y, x), each at least ``low``; a single integer is used for both.

    >>> pair("k").write((3, 2))
    'k3x2'
    """
    return _integers(code, 2, lambda name, value: parameters.pair(name, value, low), low)


def triple(code: str, low: int | None = None, high: int | None = None) -> Codec:
    """Return the codec of three integers (y, x, channel) in [low, high]: ``ps1x1x0``."""
    return _integers(code, 3, lambda name, value: parameters.triple(name, value, low, high), low, high)


def _integers(code: str, count: int, convert: Callable[[str, Any], Any], *edges: int | None) -> Codec:
    return Codec(
        code + "x".join("3" * count),
        code + "x".join([INT] * count),
        lambda *values: tuple(map(int, values)),
        lambda values: code + "x".join(map(str, values)),
        convert,
        count,
        edges=tuple(edge for edge in edges if edge is not None),
    )


def integer(code: str, low: int | None = None) -> Codec:
    """Return the codec of one integer, at least ``low``: ``g2``."""
    convert = lambda name, value: parameters.integer(name, value, low)  # noqa: E731
    return Codec(
        f"{code}3", code + INT, int, lambda value: f"{code}{value}", convert, edges=() if low is None else (low,)
    )


def unsigned(code: str, bits: int) -> Codec:
    """Return the codec of an unsigned integer of ``bits`` bits."""
    return integer(code)._replace(convert=lambda name, value: parameters.word_of(name, value, bits))


def number(
    code: str, low: float = -math.inf, high: float = math.inf, *, below: bool = False, above: bool = False
) -> Codec:
    """Return the codec of a finite float, in the range of :func:`mpsref.arguments.parameters.number`.

    >>> number("eps").write(1e-05)
    'eps1e-05'
    """
    convert = lambda name, value: parameters.number(name, value, low, high, below=below, above=above)  # noqa: E731
    closed = [edge for edge, is_open in ((low, above), (high, below)) if math.isfinite(edge) and not is_open]
    return _float(code, convert)._replace(edges=tuple(map(float, closed)))


def real(code: str, low: float = -math.inf) -> Codec:
    """Return the codec of a float that may be infinite, at least ``low``."""
    return _float(code, lambda name, value: parameters.real(name, value, low))


def _float(code: str, convert: Callable[[str, Any], float]) -> Codec:
    return Codec(f"{code}0.5", f"{code}({FLOAT})", float, lambda value: f"{code}{float(value)!r}", convert)


def numbers(code: str) -> Codec:
    """Return the codec of a tuple of floats: ``a0.1_0.2``."""
    return Codec(
        f"{code}0.5_0.25",
        rf"{code}({FLOAT}(?:_{FLOAT})*)",
        lambda text: tuple(map(float, text.split("_"))),
        lambda values: code + "_".join(repr(float(value)) for value in values),
    )


def word(*words: str) -> Codec:
    """Return the codec of a str in ``words``."""
    convert = lambda name, value: parameters.choice(name, value, words)  # noqa: E731
    return Codec(words[0], f"({'|'.join(words)})", str, str, convert, words=words)


def enumerated(*words: str) -> Codec:
    """Return the codec of a str in ``words``, or of its index in ``words`` as in Apple's enumerations."""
    return word(*words)._replace(convert=lambda name, value: parameters.named(name, value, words))


def flag(true: str, false: str) -> Codec:
    """Return the codec of a bool, written as the word ``true`` or ``false``."""
    words = (true, false)
    return Codec(
        true,
        f"({'|'.join(words)})",
        lambda text: text == true,
        lambda value: words[not value],
        parameters.flag,
        words=("True", "False"),
    )


def shape(code: str) -> Codec:
    """Return the codec of a shape with one letter of ``code`` per axis: ``n1h5w5c1``."""
    return Codec(
        "".join(f"{letter}{length}" for letter, length in zip(code, (1, 5, 5, 1), strict=False)),
        "".join(letter + INT for letter in code),
        lambda *lengths: tuple(map(int, lengths)),
        lambda lengths: "".join(f"{letter}{length}" for letter, length in zip(code, lengths, strict=True)),
    )


def image_shape() -> Codec:
    """Return the codec of the shape (N, H, W, C) of an image."""
    return shape("nhwc")._replace(convert=arrays.as_shape, length=4)


def dims(code: str) -> Codec:
    """Return the codec of a tuple of integers >= 0 of any length.

    >>> dims("v").write((3, 4, 5))
    'v3x4x5'
    """
    return Codec(
        f"{code}3x4",
        rf"{code}((?:-?\d+(?:x-?\d+)*)?)",
        lambda text: tuple(int(length) for length in text.split("x") if length),
        lambda lengths: code + "x".join(map(str, lengths)),
        lambda name, value: tuple(parameters.integer(f"{name}[{axis}]", n, low=0) for axis, n in enumerate(value)),
    )


def clip(code: str) -> Codec:
    """Return the codec of a clip rectangle ((y0, x0), (height, width)): ``clip0x0+4x4``."""
    return Codec(
        f"{code}0x0+4x4",
        rf"{code}{INT}x{INT}\+{INT}x{INT}",
        lambda y, x, h, w: ((int(y), int(x)), (int(h), int(w))),
        lambda value: "{}{}x{}+{}x{}".format(code, *value[0], *value[1]),
        parameters.clip_rectangle,
    )
