"""Strict checks of parameters: what is accepted, what is refused, and what the message says."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest

from mpsref.arguments.parameters import (
    choice,
    clip_rectangle,
    flag,
    integer,
    named,
    number,
    pair,
    real,
    triple,
    word_of,
)
from mpsref.arguments.text import LONGEST, cut, nearest, shown
from mpsref.errors import NotSynchronizedError, OrderError, ShapeError, UnsupportedError
from mpsref.geometry import EDGE_MODES
from mpsref.padding import PaddingMethod

HUGE = 2**62


class Index:
    """Something that is an integer by its own word."""

    def __index__(self) -> int:
        return 7


def kind(value: object) -> str:
    return type(value).__name__


INTEGERS = [
    (3, 3),
    (HUGE, HUGE),
    (-HUGE, -HUGE),
    (np.int8(-3), -3),
    (np.uint64(HUGE), HUGE),
    (np.array(5), 5),
    (PaddingMethod.SizeSame, 16),
    (Index(), 7),
]

NOT_INTEGERS = [
    True,
    False,
    np.True_,
    2.0,
    np.float32(2),
    2 + 0j,
    "2",
    b"2",
    None,
    [2],
    (2,),
    {2},
    np.array([2]),
    object(),
]
NOT_INTEGERS += [float("nan"), float("inf"), np.array(2.0), np.array(True), range(2)]


@pytest.mark.parametrize(("value", "expected"), INTEGERS, ids=kind)
def test_integer_accepts_whole_numbers_of_any_kind_and_returns_plain_ones(value: Any, expected: int) -> None:
    number = integer("offset", value)
    assert number == expected
    assert type(number) is int


@pytest.mark.parametrize("value", NOT_INTEGERS, ids=kind)
@pytest.mark.parametrize(("low", "legal"), [(None, "an integer"), (1, "an integer >= 1")])
def test_integer_refuses_everything_else(value: Any, low: int | None, legal: str) -> None:
    with pytest.raises(TypeError, match=f"^strides is .*{re.escape(repr(value))}.*; it must be {legal}$"):
        integer("strides", value, low)


@pytest.mark.parametrize(("value", "low"), [(0, 1), (-1, 0), (-HUGE, 1), (np.int64(-5), 0), (np.array(0), 1)])
def test_integer_refuses_what_is_too_small(value: Any, low: int) -> None:
    with pytest.raises(ValueError, match=f"^strides is {int(value)}; it must be an integer >= {low}$"):
        integer("strides", value, low)


@pytest.mark.parametrize("value", [HUGE + 1, -HUGE - 1, 2**200, np.uint64(2**64 - 1)])
def test_integer_refuses_what_is_beyond_every_use(value: Any) -> None:
    legal = r"an integer of magnitude <= 2\*\*62"
    with pytest.raises(ValueError, match=f"^offset is {int(value)}; it must be {legal}$"):
        integer("offset", value)


def test_the_bound_itself_is_legal() -> None:
    assert (integer("strides", 1, low=1), integer("offset", -4, low=-4)) == (1, -4)
    with pytest.raises(ValueError, match="offset is -5; it must be an integer >= -4"):
        integer("offset", -5, low=-4)


@pytest.mark.parametrize(
    "value",
    [
        (2, 3),
        [2, 3],
        np.array([2, 3]),
        np.array([2, 3], ">i2"),
        (np.int64(2), np.uint8(3)),
        np.array([9, 2, 9, 3])[1::2],
    ],
    ids=kind,
)
def test_pair_of_two_numbers(value: Any) -> None:
    numbers = pair("kernel_size", value, low=1)
    assert numbers == (2, 3)
    assert [type(number) for number in numbers] == [int, int]


@pytest.mark.parametrize(("value", "expected"), INTEGERS, ids=kind)
def test_pair_of_one_number_stands_for_both_axes(value: Any, expected: int) -> None:
    assert pair("offset", value) == (expected, expected)


@pytest.mark.parametrize("value", [(), (2,), [2, 3, 4], np.array([2]), np.zeros((3, 2), int)], ids=kind)
def test_pair_of_a_wrong_length(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^kernel_size is (?s:.*); it must be .*a pair \(y, x\)") as error:
        pair("kernel_size", value, low=1)
    assert repr(value) in str(error.value)


@pytest.mark.parametrize("value", [v for v in NOT_INTEGERS if not isinstance(v, (list, tuple))], ids=kind)
def test_pair_names_the_entry_that_is_no_integer(value: Any) -> None:
    if not (isinstance(value, np.ndarray) and value.ndim):
        with pytest.raises(TypeError, match=r"^kernel_size is .*; it must be an integer >= 1"):
            pair("kernel_size", value, low=1)
    with pytest.raises(TypeError, match=r"^kernel_size\[0\] is .*; it must be an integer >= 1"):
        pair("kernel_size", (value, 3), low=1)
    with pytest.raises(TypeError, match=r"^kernel_size\[1\] is .*; it must be an integer >= 1"):
        pair("kernel_size", [3, value], low=1)


@pytest.mark.parametrize("value", [np.array([2.0, 3.0]), np.array([True, False]), np.zeros((2, 2), int), "23", {2: 3}])
def test_pair_refuses_other_collections(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^kernel_size(\[0\])? is .*; it must be an integer"):
        pair("kernel_size", value)


def test_pair_checks_the_bound_of_each_entry() -> None:
    with pytest.raises(ValueError, match=r"^strides\[0\] is 0; it must be an integer >= 1$"):
        pair("strides", (0, 1), low=1)
    with pytest.raises(ValueError, match=r"^strides\[1\] is -2; it must be an integer >= 1$"):
        pair("strides", (1, -2), low=1)
    with pytest.raises(ValueError, match=r"^strides is 0; it must be an integer >= 1$"):
        pair("strides", 0, low=1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (((1, 2), (3, 4)), ((1, 2), (3, 4))),
        ([[1, 2], np.array([3, 4])], ((1, 2), (3, 4))),
        ((1, 8), ((1, 1), (8, 8))),
        (((0, 0), (0, HUGE)), ((0, 0), (0, HUGE))),
    ],
)
def test_clip_rectangle(value: Any, expected: object) -> None:
    assert clip_rectangle("clip", value) == expected


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (3, ValueError, r"^clip is 3; it must be \(\(y0, x0\), \(height, width\)\) or None$"),
        ((1, 2, 3, 4), ValueError, r"^clip is \(1, 2, 3, 4\); it must be \(\(y0, x0\)"),
        (((-1, 0), (2, 2)), ValueError, r"^clip origin\[0\] is -1; it must be an integer >= 0$"),
        (((0, 0), (2, -2)), ValueError, r"^clip size\[1\] is -2; it must be an integer >= 0$"),
        (((0, 0), (2, 2.0)), TypeError, r"^clip size\[1\] is 2.0 .*; it must be an integer >= 0$"),
        (((0, True), (2, 2)), TypeError, r"^clip origin\[1\] is the bool True; it must be an integer >= 0$"),
        (((0, 0, 0), (2, 2)), ValueError, r"^clip origin is \(0, 0, 0\); it must be .*a pair \(y, x\)"),
        (((0, 0), None), TypeError, r"^clip size is None .*; it must be an integer >= 0$"),
    ],
)
def test_clip_rectangle_refuses(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        clip_rectangle("clip", value)


def test_choice() -> None:
    for word in EDGE_MODES:
        assert choice("edge_mode", word, EDGE_MODES) == word
    for wrong in ("mirror", "", "ZERO", "zero "):
        with pytest.raises(ValueError, match=f"^edge_mode is '{wrong}'; it must be one of 'zero', 'clamp'$"):
            choice("edge_mode", wrong, EDGE_MODES)


@pytest.mark.parametrize("value", [0, None, True, b"zero", ["zero"], ("zero",), np.array("zero")], ids=kind)
def test_choice_refuses_what_is_no_word(value: Any) -> None:
    with pytest.raises(TypeError, match=f"^edge_mode is {re.escape(repr(value))} of type .*; it must be a str"):
        choice("edge_mode", value, EDGE_MODES)


def test_one_except_clause_of_each_kind_is_enough() -> None:
    assert issubclass(ShapeError, ValueError)
    assert issubclass(UnsupportedError, NotImplementedError)
    assert issubclass(UnsupportedError, ValueError)
    assert issubclass(OrderError, RuntimeError)
    assert issubclass(OrderError, ValueError)
    assert issubclass(NotSynchronizedError, OrderError)


# ---- values in messages ---------------------------------------------------------------------------------------------


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


class Text(str):
    """Not a str for reprlib, which goes by the name of a type."""


LONG = {
    "text": "a" * 10**7,
    "another text": Text("b" * 10**7),
    "bytes": b"c" * 10**7,
    "number": 10**400,
    "more digits than Python prints": 10**10000,
    "list": list(range(10**5)),
    "nested": nested(1000),
    "too deep for repr": nested(10**5),
    "wide and deep": [[[["d" * 10**4] * 100] * 100] * 100] * 100,
    "mapping": dict.fromkeys(range(10**4), "e" * 100),
    "array": np.array([["f" * 10**6] * 10], object),
}
CHECKS = {
    "integer": integer,
    "pair": pair,
    "flag": flag,
    "clip": clip_rectangle,
    "choice": lambda name, value: choice(name, value, ("zero", "clamp")),
    "number": number,
    "real": real,
    "word_of": lambda name, value: word_of(name, value, 64),
    "named": lambda name, value: named(name, value, ("none", "sum")),
    "triple": triple,
}


@pytest.mark.parametrize("value", LONG)
@pytest.mark.parametrize("check", CHECKS)
def test_values_in_messages_are_cut(check: str, value: str) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^parameter") as caught:
        CHECKS[check]("parameter", LONG[value])
    assert len(str(caught.value)) < LONGEST + 200


def test_a_name_too_long_for_a_hint_costs_no_time() -> None:
    began = time.process_time()
    for text in ["a" * 10**6, "Max" * 10**5, "1" * 10**5, "a" * LONGEST]:
        assert nearest(text, ["PoolingMax.forward", "a_longer_name", "1by1"]) == ""
    assert time.process_time() - began < 0.2


def test_what_is_shown_of_a_value() -> None:
    for value in (2, -2.5, "a", b"a", None, True, (1, [2, "b"]), {"c": 1}, PaddingMethod.SizeSame, np.float32(1)):
        assert shown(value) == repr(value) == cut(repr(value))
    assert shown("a" * 1000).startswith("'aaa")
    assert shown("a" * 1000).endswith("aaa'")
    assert shown(nested(1000)) == "[[[[[...]]]]]"
    assert cut("a" * LONGEST) == "a" * LONGEST
    assert len(cut("a" * (LONGEST + 1))) == LONGEST


@pytest.mark.parametrize("check", [number, real])
def test_an_integer_beyond_the_range_of_a_float_is_refused_by_name(check: Any) -> None:
    for value in (10**400, -(10**400)):
        with pytest.raises(ValueError, match=r"^decay is a number of 1329 bits, too large for a float64; it must be"):
            check("decay", value)
