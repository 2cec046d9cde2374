"""The golden results: the file, and its reader."""

import json
from collections import Counter
from dataclasses import replace
from importlib import resources
from typing import Any

import numpy as np
import pytest

from mpsref.conformance import golden, golden_entries
from mpsref.conformance.golden_entries import Entry

ENTRIES = golden.load()


# The file


def test_every_entry_is_there() -> None:
    assert Counter(entry.kind for entry in ENTRIES) == {"measured": 56, "asserted": 98, "relation": 16}
    assert Counter(entry.direction for entry in ENTRIES) == {"forward": 131, "gradient": 33, "size": 5, "property": 1}
    kernels = Counter(kernel for entry in ENTRIES for kernel in entry.kernels)
    assert (kernels["MPSCNNPoolingAverage"], kernels["MPSCNNPoolingMax"], kernels["MPSCNNConvolution"]) == (8, 5, 15)


def test_every_entry_is_complete() -> None:
    for entry in ENTRIES:
        assert entry.note.endswith("."), entry.id
        assert entry.source.repository.count("/") == 1, entry.id
        assert entry.source.note, entry.id
        if entry.kind == "relation":
            assert entry.relation, entry.id
            assert entry.choices, entry.id
            assert not entry.expected, entry.id
        else:
            assert entry.origin, entry.id
            assert any(values.given.any() for values in entry.expected.values()), entry.id
            assert entry.tolerance.of == "element", entry.id


def test_file_is_small() -> None:
    text = resources.files("mpsref.conformance").joinpath("golden.json").read_text("utf-8")
    assert len(text) < 250_000
    assert sum(line.startswith('{"id": ') for line in text.splitlines()) == len(ENTRIES)


def test_by_id_names_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="'pool-average-k4'"):
        golden.by_id("pool-average-k4")


# The reader


def document(**changes: Any) -> dict[str, Any]:
    entry = {
        "id": "a",
        "kernels": ["MPSCNNPoolingAverage"],
        "direction": "forward",
        "kind": "measured",
        "dtype": "float32",
        "parameters": {"kernel_size": 1, "output_size": [1, 3]},
        "inputs": {"x": [[[[1], [2], [3]]]]},
        "expected": {"y": [[[[1], [None], ["-Infinity"]]]]},
        "origin": "printed",
        "tolerance": {"absolute": 0, "relative": 0},
        "device": None,
        "source": "s",
        "note": "A note.",
    }
    entry.update(changes)
    source = {"repository": "a/b", "paths": ["c"], "note": "A source."}
    return {"sources": {"s": source}, "entries": [{k: v for k, v in entry.items() if v != "left out"}]}


def parsed(**changes: Any) -> Entry:
    (entry,) = golden_entries.parse(json.dumps(document(**changes)))
    return entry


def test_null_is_not_given_and_words_are_numbers() -> None:
    values = parsed(expected={"y": [[None, "NaN"], ["Infinity", "-Infinity"]]}).expected["y"]
    assert values.given.tolist() == [[False, True], [True, True]]
    np.testing.assert_array_equal(values.array, [[0, np.nan], [np.inf, -np.inf]])


def test_cycle_fills_the_shape_in_c_order() -> None:
    x = golden.by_id("pool-average-k10-s2-valid-webml").image("x")
    assert x.shape == (1, 200, 180, 1)
    assert x.dtype == np.float16
    np.testing.assert_array_equal(x[0, :, :, 0], np.broadcast_to(np.arange(180) % 2, (200, 180)))


def test_unknown_dtype_runs_in_float32() -> None:
    assert parsed(dtype=None).image("x").dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extra": 1}, r"entry 'a': unknown fields \['extra'\], missing \[\]"),
        ({"note": "left out"}, r"missing \['note'\]"),
        ({"relation": "y = x"}, r"unknown fields \['relation'\]"),
        ({"kind": "relation"}, r"unknown fields \['expected', 'inputs', 'origin'\], missing \['choices'"),
        ({"kind": "guessed"}, "kind is 'guessed'.*'measured', 'asserted', 'relation'"),
        ({"direction": "sideways"}, "direction is 'sideways'"),
        ({"dtype": "float64"}, "dtype is 'float64'"),
        ({"origin": "heard"}, "origin is 'heard'"),
        ({"source": "elsewhere"}, "source is 'elsewhere'"),
        ({"tolerance": {"absolute": 0}}, r"tolerance: .*missing \['relative'\]"),
        ({"tolerance": {"absolute": 0, "relative": 0, "of": "all"}}, "tolerance of is 'all'"),
        ({"expected": {"y": [[1, 2], [3]]}}, "expected y is not a regular array"),
        ({"expected": {"y": ["many"]}}, "expected y is not a regular array"),
        ({"inputs": {"x": {"shape": [2], "rule": "k"}}}, r"inputs x: unknown fields \['rule'\], missing \['cycle'\]"),
    ],
)
def test_reader_is_strict(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parsed(**changes)


def test_reader_wants_sorted_entries_and_each_once() -> None:
    once = document()
    for ids in (["b", "a"], ["a", "a"]):
        entries = [{**once["entries"][0], "id": id} for id in ids]
        with pytest.raises(ValueError, match="not sorted by id"):
            golden_entries.parse(json.dumps({**once, "entries": entries}))
    with pytest.raises(ValueError, match=r"unknown fields \['more'\]"):
        golden_entries.parse(json.dumps({**once, "more": []}))


# Relations


def test_cases_stay_in_their_ranges_and_repeat() -> None:
    entry = golden.by_id("relation-pytorch-conv2d")
    first, again = ([(case, draw((3,)).tolist()) for case, draw in entry.cases()] for _ in range(2))
    assert first == again
    assert len(first) == golden_entries.RELATION_CASES
    assert all(1 <= case["n"] <= 10 and 1 <= case["h"] <= 300 for case, _ in first)
    assert all(0 <= value < 1 for _, values in first for value in values)
    assert len({case["w"] for case, _ in first}) > 10


def test_cases_of_a_list_take_every_choice() -> None:
    cases = [case for case, _ in golden.by_id("relation-caffe2-pool").cases()]
    assert {case["kernel"] for case in cases} == {1, 3, 5, "image"}
    assert {(case["pad_top"], case["pad_bottom"]) for case in cases} >= {("none", "half"), ("half", "none")}


def test_cases_of_a_range_take_both_ends() -> None:
    entry = replace(golden.by_id("relation-caffe2-pool"), choices={"n": {"from": 1, "to": 2}})
    assert {case["n"] for case, _ in entry.cases()} == {1, 2}
