"""Saving and loading: exact, byte-stable, and strict about the input."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref.arguments.parameters import integer
from mpsref.mps.core import types
from mpsref.mps.core.serialization import SecureCoding, secure_coding
from mpsref.mps.core.types import MPSImageEdgeMode, MPSOffset, MTLRegion


@secure_coding(version=3, arguments=("method",))
class Policy(SecureCoding):
    def __init__(self, method: Any) -> None:
        self.method = integer("method", method, low=0)


@secure_coding(version=1, arguments=("kernel_width", "payload"), properties=("offset", "clip_rect", "edge_mode"))
class Kernel(SecureCoding):
    """A kernel with fixed arguments and properties that are checked when they are set."""

    def __init__(self, kernel_width: Any, payload: Any = None, *, backend: str | None = None) -> None:
        self.kernel_width = integer("kernel_width", kernel_width, low=1)
        self.payload = payload
        self.backend = backend
        self._offset = MPSOffset(0, 0)
        self._clip_rect: MTLRegion | None = None
        self._edge_mode = MPSImageEdgeMode.Zero

    @property
    def offset(self) -> MPSOffset:
        return self._offset

    @offset.setter
    def offset(self, value: Any) -> None:
        self._offset = types.offset("offset", value)

    @property
    def clip_rect(self) -> MTLRegion | None:
        return self._clip_rect

    @clip_rect.setter
    def clip_rect(self, value: Any) -> None:
        self._clip_rect = types.region("clip_rect", value)

    @property
    def edge_mode(self) -> MPSImageEdgeMode:
        return self._edge_mode

    @edge_mode.setter
    def edge_mode(self, value: Any) -> None:
        self._edge_mode = types.edge_mode("edge_mode", value)


@secure_coding(version=2, properties=("zero_pad_size_x",))
class Average(Kernel):
    zero_pad_size_x = 0


class Unregistered(Kernel):
    """A subclass of a user."""


def average() -> Average:
    kernel = Average(3, backend="cpu")
    kernel.offset, kernel.clip_rect, kernel.edge_mode = (-1, 2), ((0, 0, 0), (5, 6, 7)), "clamp"
    kernel.zero_pad_size_x = 4
    return kernel


SAVED: dict[str, Any] = {
    "class": "Average",
    "properties": {
        "clip_rect": [[0, 0, 0], [5, 6, 7]],
        "edge_mode": 1,
        "kernel_width": 3,
        "offset": [-1, 2, 0],
        "payload": None,
        "zero_pad_size_x": 4,
    },
    "version": 2,
}
TEXT = (
    '{"class":"Average","properties":{"clip_rect":[[0,0,0],[5,6,7]],"edge_mode":1,"kernel_width":3,'
    '"offset":[-1,2,0],"payload":null,"zero_pad_size_x":4},"version":2}'
)


def test_what_is_saved_is_plain_and_stable() -> None:
    assert average().to_dict() == SAVED
    assert average().to_json() == TEXT
    assert type(average().to_dict()["properties"]["edge_mode"]) is int


def test_saved_values_are_the_arguments_then_the_properties() -> None:
    values = average().saved_values()
    assert list(values) == ["kernel_width", "payload", "offset", "clip_rect", "edge_mode", "zero_pad_size_x"]
    assert values["offset"] == MPSOffset(-1, 2)


@pytest.mark.parametrize("base", [Average, Kernel, SecureCoding])
def test_what_is_loaded_is_what_was_saved(base: type[Kernel]) -> None:
    for loaded in (base.from_json(TEXT), base.from_dict(SAVED), base.from_dict(average().to_dict())):
        assert type(loaded) is Average
        assert loaded.saved_values() == average().saved_values()
        assert type(loaded.offset) is MPSOffset
        assert loaded.edge_mode is MPSImageEdgeMode.Clamp
        assert loaded.to_json() == TEXT


def test_loading_does_not_depend_on_the_order_or_the_spaces_of_the_text() -> None:
    shuffled = json.dumps({key: SAVED[key] for key in ("version", "properties", "class")}, indent=3)
    assert Average.from_json(shuffled).to_json() == TEXT


def test_loading_leaves_the_input_alone() -> None:
    data = json.loads(TEXT)
    Average.from_dict(data)
    assert data == SAVED


def test_what_belongs_to_the_machine_is_given_when_loading() -> None:
    assert Average.from_json(TEXT).backend is None
    assert Average.from_json(TEXT, backend="metal").backend == "metal"
    with pytest.raises(ValueError, match=r"^Average describes no legal Average: .*'device'"):
        Average.from_json(TEXT, device="gpu")


def test_objects_in_objects() -> None:
    kernel = Kernel(1, (Policy(2**60), Kernel(2)))
    loaded = Kernel.from_json(kernel.to_json())
    policy, inner = loaded.payload
    assert (type(policy), policy.method) == (Policy, 2**60)
    assert (type(inner), inner.kernel_width) == (Kernel, 2)
    assert loaded.to_json() == kernel.to_json()


def bits(value: Any) -> Any:
    """Return a value that differs for 1, True and 1.0, for 0.0 and -0.0, and is equal for NaN."""
    if isinstance(value, tuple):
        return tuple(map(bits, value))
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("d", value)
    return type(value), value


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=12,
)


@given(VALUES)
def test_every_value_comes_back_bit_for_bit(value: Any) -> None:
    text = Kernel(1, value).to_json()
    loaded = Kernel.from_json(text)
    assert bits(loaded.payload) == bits(value)
    assert loaded.to_json() == text
    assert text.isascii()
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


@pytest.mark.parametrize(
    ("value", "saved"),
    [
        (math.nan, {"float": "nan"}),
        (math.inf, {"float": "inf"}),
        (-math.inf, {"float": "-inf"}),
        (np.float32(0.1), 0.10000000149011612),
        (np.float16(np.inf), {"float": "inf"}),
        (np.int8(-3), -3),
        ([1, 2], [1, 2]),
    ],
)
def test_how_special_values_are_saved(value: Any, saved: Any) -> None:
    data = Kernel(1, value).to_dict()["properties"]["payload"]
    assert data == saved
    assert type(data) is type(saved)


@pytest.mark.parametrize(
    "value", [object(), b"x", {1: 2}, {"a": 1}, np.zeros(2), 1j, print, np.longdouble(1), np.True_]
)
def test_what_cannot_be_saved_is_named(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^Kernel\.payload\[1\] is (?s:.*) of type .*, which cannot be saved; it must"):
        Kernel(1, (0, value)).to_dict()


def test_a_subclass_is_saved_and_loaded_only_if_it_is_registered() -> None:
    message = r"^class Unregistered is not registered for saving; decorate it with @secure_coding"
    for save in (Unregistered(1).to_dict, Unregistered(1).to_json, Unregistered(1).saved_values):
        with pytest.raises(ValueError, match=message):
            save()
    with pytest.raises(ValueError, match=message):
        Kernel(1, Unregistered(1)).to_dict()
    with pytest.raises(ValueError, match=r"^Kernel has the class 'Unregistered'; it must be one of Average, Kernel$"):
        Kernel.from_dict({**Kernel(1).to_dict(), "class": "Unregistered"})
    with pytest.raises(ValueError, match=r"^Unregistered has the class 'Kernel'; it must be one of \(none\)$"):
        Unregistered.from_dict(Kernel(1).to_dict())


def test_a_class_loads_itself_and_its_subclasses_only() -> None:
    with pytest.raises(ValueError, match=r"^Average has the class 'Kernel'; it must be one of Average$"):
        Average.from_dict(Kernel(1).to_dict())
    with pytest.raises(ValueError, match=r"^Policy has the class 'Average'; it must be one of Policy$"):
        Policy.from_json(TEXT)


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match=r"^class name 'Kernel' is taken by .*\.Kernel; choose another$"):

        @secure_coding(version=1)
        class Kernel(SecureCoding):
            pass

    assert isinstance(SecureCoding.from_json(TEXT), Average)


def damaged(**changes: Any) -> dict[str, Any]:
    return {**SAVED, **changes}


def without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != key}


def properties(**changes: Any) -> dict[str, Any]:
    return damaged(properties={**SAVED["properties"], **changes})


DAMAGED: list[tuple[Any, str]] = [
    (None, r"^Average is None; it must be a dictionary with the keys class, properties, version$"),
    ([SAVED], r"^Average is \[.*\]; it must be a dictionary"),
    (TEXT, r"^Average is '.*'; it must be a dictionary"),
    *[(without(SAVED, key), f"^Average lacks the key '{key}'; it must have class, properties, v") for key in SAVED],
    (damaged(extra=1), r"^Average has the unknown key 'extra'; it must have class, properties, version$"),
    (damaged(**{"class": "Maximum"}), r"^Average has the class 'Maximum'; it must be one of Average$"),
    (damaged(**{"class": "os.system"}), r"^Average has the class 'os.system'; it must be one of"),
    (damaged(**{"class": ["Average"]}), r"^Average has the class \['Average'\]; it must be one of"),
    *[
        (damaged(version=version), r"^Average has version .* of Average; this mpsref reads version 2$")
        for version in (1, 3, 2.0, True, "2", None)
    ],
    (damaged(properties=[]), r"^Average has properties \[\]; it must be a dictionary$"),
    (properties(stride=1), r"^Average has the unknown property 'stride'; it must have clip_rect, edge_mode, kernel_"),
    (properties(__class__=1), r"^Average has the unknown property '__class__'"),
    (properties(_offset=1), r"^Average has the unknown property '_offset'"),
    (properties(backend="cpu"), r"^Average has the unknown property 'backend'"),
    *[
        (damaged(properties=without(SAVED["properties"], key)), f"^Average lacks the property '{key}'; it must have")
        for key in SAVED["properties"]
    ],
    (
        properties(kernel_width=0),
        r"^Average describes no legal Average: kernel_width is 0; it must be an integer >= 1$",
    ),
    (properties(kernel_width=True), r"^Average describes no legal Average: kernel_width is the bool True"),
    (properties(kernel_width=3.0), r"^Average describes no legal Average: kernel_width is 3.0 of type float"),
    (properties(offset=[0, 0, -1]), r"^Average describes no legal Average: offset\.z is -1; it must be"),
    (properties(offset="xy"), r"^Average describes no legal Average: offset is 'xy' of type str"),
    (properties(clip_rect=[[0, 0, 0]]), r"^Average describes no legal Average: clip_rect is .* of length 1"),
    (properties(edge_mode=2), r"^Average describes no legal Average: edge_mode is 2; it must be one of"),
    (properties(payload={"float": "1.5"}), r"^Average\.payload has the float '1.5'; it must be one of 'nan', 'inf'"),
    (properties(payload={"float": ["nan"]}), r"^Average\.payload has the float \['nan'\]; it must be one of"),
    (
        properties(payload={"float": "nan", "x": 1}),
        r"^Average\.payload has the unknown key 'float'; it must have class",
    ),
    (properties(payload={}), r"^Average\.payload lacks the key 'class'"),
    (properties(payload=[0, [math.inf]]), r"^Average\.payload\[1\]\[0\] is inf; a number that is not finite must be s"),
    (properties(payload=b"x"), r"^Average\.payload is b'x' of type bytes, which is not a saved value$"),
    (properties(payload=Policy(1)), r"^Average\.payload is .* of type Policy, which is not a saved value$"),
    (
        properties(payload={"class": "Policy", "version": 1, "properties": {"method": 1}}),
        r"^Average\.payload has version 1 of Policy; this mpsref reads version 3$",
    ),
    (
        properties(payload=[{"class": "Policy", "version": 3, "properties": {"method": -1}}]),
        r"^Average\.payload\[0\] describes no legal Policy: method is -1; it must be an integer >= 0$",
    ),
]


@pytest.mark.parametrize(("data", "message"), DAMAGED)
def test_damaged_input_is_refused(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Average.from_dict(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"^text is not JSON: "),
        (TEXT[:-1], r"^text is not JSON: "),
        (TEXT + TEXT, r"^text is not JSON: "),
        ("[" * 100_000, r"^text is nested too deeply"),
        (TEXT.replace("null", "[" * 700 + "]" * 700), r"^(data|text) is nested too deeply"),
        (TEXT.replace("null", "NaN"), r"^text has the number NaN, which JSON does not have$"),
        (TEXT.replace("null", "-Infinity"), r"^text has the number -Infinity, which JSON does not have$"),
        (TEXT.replace("null", "1e999"), r"^Average\.payload is inf; a number that is not finite must be saved as"),
        (TEXT.replace('"payload":null', '"offset":[0,0,0]'), r"^text has the key 'offset' twice in one object$"),
        (TEXT.replace('"version":2', '"version":2,"version":2'), r"^text has the key 'version' twice"),
    ],
)
def test_damaged_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Average.from_json(text)


def test_a_bottomless_dictionary_is_refused() -> None:
    payload: list[Any] = []
    payload.append(payload)
    with pytest.raises(ValueError, match=r"^data is nested too deeply"):
        Average.from_dict(properties(payload=payload))


@pytest.mark.parametrize("text", [TEXT.encode(), SAVED, None])
def test_text_must_be_a_str(text: Any) -> None:
    with pytest.raises(TypeError, match=r"^text is of type \w+; it must be a str$"):
        Average.from_json(text)


def test_what_a_setter_would_take_and_nothing_saves_is_refused() -> None:
    """A setter accepts an offset of two numbers, but three are saved: a missing comma is an error."""
    assert '"offset":[-1,2,0]' in TEXT
    with pytest.raises(ValueError, match=r"offset \[-12, 0\]; it must be \[-12, 0, 0\]"):
        Average.from_json(TEXT.replace("[-1,2,0]", "[-12,0]"))


@given(st.data())
def test_cut_or_changed_text_never_does_anything_else(data: st.DataObject) -> None:
    """One character replaced, removed or added: a ValueError, or an object that saves as the changed text."""
    place = data.draw(st.integers(0, len(TEXT) - 1))
    length = data.draw(st.integers(0, 1))
    text = TEXT[:place] + data.draw(st.text(max_size=1)) + TEXT[place + length :]
    try:
        loaded = Average.from_json(text)
    except ValueError:
        return
    assert json.loads(loaded.to_json()) == json.loads(text)
