"""Case strings both ways, and what is wrong with one that cannot be read."""

from __future__ import annotations

import dataclasses
import random
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import PoolingAverage, ShapeError, UnsupportedError, registry
from mpsref.arguments import arrays
from mpsref.conformance import checker
from mpsref.conformance.case import DATA_FAMILIES, Case, operation_named, operations
from mpsref.registry import Operation
from tests import examples

GRADIENT = PoolingAverage.problems["gradient"]
FORWARD = PoolingAverage.problems["forward"]

EVERYTHING = Case(
    GRADIENT(
        PoolingAverage((3, 2), (2, 1), (1, -4), "clamp", (1, 0)),
        (2, 7, 6, 3),
        (4, 5),
        (-1, 2),
        (3, 0),
        (0, -6),
        ((1, 2), (30, 4)),
    ),
    "float16",
    "hard",
    7,
)
EXAMPLES = {
    "PoolingAverage.gradient:n2h7w6c3,k3x2,s2x1,o1x-4,clamp,zp1x0,g4x5,p-1x2,size3x0,ko0x-6,clip1x2+30x4,float16,"
    "hard,seed=7": EVERYTHING,
    "PoolingAverage.gradient:n2h7w6c3,k3x2,s2x1,o1x0,clamp,zp1x0,float32,seed=7": Case(
        GRADIENT(PoolingAverage((3, 2), (2, 1), (1, 0), "clamp", (1, 0)), (2, 7, 6, 3)), seed=7
    ),
    "PoolingAverage.forward:n0h1w1c1,k1x1,float64,seed=0": Case(FORWARD(PoolingAverage(1), (0, 1, 1, 1)), "float64"),
    f"PoolingAverage.forward:n1h5w5c1,k{2**62}x1,o-3x{-(2**62)},out2x3,float32,exact,seed=0": Case(
        FORWARD(PoolingAverage((2**62, 1), 1, (-3, -(2**62))), (1, 5, 5, 1), (2, 3)), family="exact"
    ),
}


@pytest.mark.parametrize(("text", "case"), EXAMPLES.items())
def test_examples(text: str, case: Case) -> None:
    assert str(case) == text
    assert Case.parse(text) == case
    assert hash(Case.parse(text)) == hash(case)


@pytest.mark.parametrize("operation", list(operations()), ids=str)
@examples(8)
@given(data=st.data())
def test_printing_and_parsing_are_inverse(operation: Operation, data: st.DataObject) -> None:
    case = data.draw(checker.cases(operation, ("float16", "float32")))
    text = str(case)
    assert Case.parse(text) == case
    assert text.startswith(f"{operation}:")
    assert " " not in text, "it goes through a shell and through filters in one piece"


def test_words_may_come_in_any_order() -> None:
    name, _, rest = str(EVERYTHING).partition(":")
    words = rest.split(",")
    random.Random(0).shuffle(words)
    assert Case.parse(f" {name}:{','.join(words)}\n") == EVERYTHING


def test_what_is_so_anyway_is_left_out() -> None:
    plain = Case(FORWARD(PoolingAverage(3), (1, 5, 6, 1), (5, 6)))  # the default output size, written out
    assert str(plain) == "PoolingAverage.forward:n1h5w6c1,k3x3,float32,seed=0"
    other = Case(FORWARD(PoolingAverage(3), (1, 5, 6, 1), (5, 5)))
    assert str(other) == "PoolingAverage.forward:n1h5w6c1,k3x3,out5x5,float32,seed=0"
    assert Case.parse("PoolingAverage.forward:k3x3,n1h5w6c1") == plain


def test_different_cases_print_differently() -> None:
    problem, texts = EVERYTHING.problem, {str(EVERYTHING)}
    others: dict[str, Any] = {"clip": ((0, 0), (9, 9)), "edge_mode": "zero"}
    for thing in (problem, problem.spec):
        for field in dataclasses.fields(thing):
            if field.name not in ("spec", "source_shape"):
                changed: Any = dataclasses.replace(thing, **{field.name: others.get(field.name, (9, 9))})
                changed = changed if thing is problem else dataclasses.replace(problem, spec=changed)
                texts.add(str(dataclasses.replace(EVERYTHING, problem=changed)))
    assert len(texts) == 1 + 5 + 5


START = "PoolingAverage.gradient:n1h5w5c1,k3x3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"case '' has no ':'; a case is 'Operation.method:token,token,...'"),
        ("PoolingAverage.gradient", r"has no ':'"),
        (
            "PoolingAverage:n1h5w5c1,k3x3",
            r"unknown operation 'PoolingAverage': did you mean PoolingAverage.forward\?; `mpsref kernels` lists all",
        ),
        ("poolingaverage.forward:n1h5w5c1,k3x3", r"unknown operation 'poolingaverage.forward'"),
        ("PoolingAverage.forward :n1h5w5c1,k3x3", r"unknown operation 'PoolingAverage.forward '"),
        ("PoolingAverage.gradient:", r"cannot read ''; tokens of this operation look like n1h5w5c1, g3x3, p3x3"),
        ("PoolingAverage.gradient:k3x3", r"lacks source_shape \(n1h5w5c1\)"),
        ("PoolingAverage.gradient:n1h5w5c1", r"lacks kernel_size \(k3x3\)"),
        (f"{START},", r"cannot read ''"),
        (f"{START}, s1x1", r"cannot read ' s1x1'"),
        (f"{START},s1", r"cannot read 's1'"),
        (f"{START},s1x1x1", r"cannot read 's1x1x1'"),
        (f"{START},s1.0x1", r"cannot read 's1.0x1'"),
        (f"{START},sx1", r"cannot read 'sx1'"),
        (f"{START},S1x1", r"cannot read 'S1x1'"),
        (f"{START},d2x2", r"cannot read 'd2x2'"),
        (f"{START},out3x3", r"cannot read 'out3x3'"),
        (f"{START},mirror", r"cannot read 'mirror'"),
        (f"{START},int32", r"cannot read 'int32'"),
        (f"{START},seed=-1", r"cannot read 'seed=-1'"),
        (f"{START},seed=", r"cannot read 'seed='"),
        (f"{START},clip0x0", r"cannot read 'clip0x0'; .*clip0x0\+4x4"),
        (f"{START},clip0x0+1", r"cannot read 'clip0x0\+1'"),
        (f"{START},k2x2", r"names kernel_size twice, the second time with 'k2x2'"),
        (f"{START},float32,float32", r"names dtype twice"),
        (f"{START},zero,clamp", r"names edge_mode twice, the second time with 'clamp'"),
        (f"{START},exact,real", r"names family twice"),
        ("PoolingAverage.forward:n1h5w5c1,k3x3,ko1x1", r"cannot read 'ko1x1'"),
        ("PoolingAverage.forward:n1h5w5,k3x3", r"cannot read 'n1h5w5'"),
        ("PoolingAverage.forward:n1h5w5c1,k0x3", r"kernel_size\[0\] is 0; it must be an integer >= 1"),
        (f"{START},s1x-1", r"strides\[1\] is -1"),
        (f"{START},zp-1x0", r"zero_pad_size\[0\] is -1"),
        (f"{START},g0x1", r"gradient_size\[0\] is 0"),
        (f"{START},size-1x1", r"source_size\[0\] is -1"),
        (f"{START},clip-1x0+2x2", r"clip origin\[0\] is -1"),
        (f"{START},o5x0", r"offset is \(5, 0\): the first window's centre lies behind an image"),
        (f"{START},s{'1' * 5000}x1", r"digits"),
    ],
)
def test_malformed_strings(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Case.parse(text)


@pytest.mark.parametrize("text", ["n1h0w5c1", "n-1h5w5c1", f"n1h5w{2**31}c1"])
def test_impossible_images(text: str) -> None:
    with pytest.raises((ShapeError, ValueError), match="source_shape"):
        Case.parse(f"PoolingAverage.forward:{text},k3x3")


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"dtype": "int8"}, ValueError, "dtype is 'int8'; it must be one of 'float16', 'float32', 'float64'"),
        ({"dtype": np.float32}, TypeError, "dtype is .*it must be a str"),
        ({"family": "ones"}, ValueError, "family is 'ones'; it must be one of 'exact', 'real', 'hard'"),
        ({"seed": -1}, ValueError, "seed is -1; it must be an integer >= 0"),
        ({"seed": 1.0}, TypeError, "seed is 1.0 of type float"),
    ],
)
def test_bad_data(words: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Case(EVERYTHING.problem, **words)


@pytest.mark.parametrize("operation", list(operations()), ids=str)
def test_inputs_fit_the_problem_and_come_again(operation: Operation) -> None:
    _, case = next(checker.layer_cases(operation))
    case = dataclasses.replace(case, dtype="float16", family="real", seed=5)
    inputs, again = case.inputs(), Case.parse(str(case)).inputs()
    shapes, dtypes = case.problem.input_shapes, case.problem.input_dtypes(np.dtype("float16"))
    assert [array.shape for array in inputs] == list(shapes.values())
    assert [array.dtype for array in inputs] == [dtypes[name] for name in shapes]
    for first, second in zip(inputs, again, strict=True):
        assert np.array_equal(first, second)
    assert len({array.tobytes() for array in inputs}) == len(inputs), "each input has values of its own"
    for family in DATA_FAMILIES:
        others = dataclasses.replace(case, family=family, seed=6).inputs()
        pairs = zip(inputs, others, strict=True)
        assert not any(np.array_equal(*pair) for pair in pairs if pair[0].size > 4)


def test_operation_named() -> None:
    for operation in operations():
        assert operation_named(str(operation)) == operation
    with pytest.raises(ValueError, match="unknown operation 'nothing'; `mpsref kernels` lists all"):
        operation_named("nothing")


@examples(300)
@given(at=st.integers(0, 200), remove=st.integers(0, 3), insert=st.text("0123456789-x,:+=.knhwcspgozi ", max_size=3))
def test_a_damaged_string_is_a_case_or_a_value_error(at: int, remove: int, insert: str) -> None:
    text = str(EVERYTHING)
    at %= len(text)
    damaged = text[:at] + insert + text[at + remove :]
    try:
        case = Case.parse(damaged)
    except ValueError:  # of any other kind it would be a crash
        return
    assert Case.parse(str(case)) == case


def test_a_case_beyond_the_memory_is_refused_with_its_bytes(monkeypatch):
    """Before anything is allocated, also in a check; the smallest of these needs 40 GB."""
    monkeypatch.setattr(arrays, "available_memory", lambda: 2**35)
    for text in (
        "PoolingAverage.forward:n1h46341w46341c1,k3x3,s2x2,float32",
        "SoftMax.gradient:n1h46341w46341c1,float16",
        "PoolingAverage.gradient:n1h40000w40000c1,k1x1,float32",
    ):
        case = Case.parse(text)
        message = rf"^case {re.escape(str(case))} needs at least {case.nbytes()} bytes for its .*, and {2**35} are"
        with pytest.raises(UnsupportedError, match=message):
            case.inputs()
        outcome = checker.outcome_of(case, registry.get_backend("reference"))
        assert outcome.status == "unsupported"
        assert re.match(message, outcome.message)


def test_the_bytes_of_a_case():
    """An input of 4 x 4 pixels and a result of 2 x 2, each twice as float16 and twice as float64."""
    assert Case.parse("PoolingAverage.forward:n1h4w4c1,k2x2,s2x2,float16").nbytes() == (16 + 4) * 20
    assert 2**28 < arrays.available_memory() <= arrays.machine_memory()
