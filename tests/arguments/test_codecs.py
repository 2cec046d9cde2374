"""Tokens of case strings: what is written is read back, and only whole words match."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import codecs
from mpsref.codecs import Codec

INTEGER = st.integers(-(2**62), 2**62)
FLOAT = st.floats(allow_nan=False)


def through(codec: Codec, value: object) -> object:
    match = re.fullmatch(codec.pattern, codec.write(value))
    assert match, codec.write(value)
    return codec.read(*match.groups())


@pytest.mark.parametrize(
    ("codec", "values"),
    [
        (codecs.pair("k"), st.tuples(INTEGER, INTEGER)),
        (codecs.triple("ps"), st.tuples(INTEGER, INTEGER, INTEGER)),
        (codecs.integer("g"), INTEGER),
        (codecs.number("eps"), FLOAT),
        (codecs.numbers("a"), st.lists(FLOAT, min_size=1).map(tuple)),
        (codecs.word("zero", "clamp"), st.sampled_from(["zero", "clamp"])),
        (codecs.flag("biased", "unbiased"), st.booleans()),
        (codecs.shape("nhwc"), st.tuples(*[st.integers(0, 9)] * 4)),
        (codecs.dims("v"), st.lists(st.integers(0, 9)).map(tuple)),
        (codecs.clip("clip"), st.tuples(st.tuples(INTEGER, INTEGER), st.tuples(INTEGER, INTEGER))),
    ],
    ids=lambda value: value.example if isinstance(value, Codec) else "",
)
def test_round_trip(codec, values):
    @given(values)
    def check(value):
        assert through(codec, value) == value

    check()
    assert re.fullmatch(codec.pattern, codec.example)
    assert "," not in codec.example


def test_nan():
    assert math.isnan(through(codecs.number("eps"), math.nan))


@pytest.mark.parametrize("text", ["k3", "k3x", "k3x2x1", "xk3x2", "k3x2 ", "k3.0x2"])
def test_parts_do_not_match(text):
    assert not re.fullmatch(codecs.pair("k").pattern, text)
