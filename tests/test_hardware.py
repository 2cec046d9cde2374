"""The published hardware results: the file, its reader, and the comparison, with planted disagreements."""

import json
from collections import Counter
from dataclasses import fields, replace
from importlib import resources
from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import PoolingAverage, PoolingMax, kernels
from mpsref.conformance import hardware, hardware_adapters, hardware_entries
from mpsref.conformance.hardware import KNOWN_DIFFERENCES
from mpsref.conformance.hardware_adapters import over_windows, pooling_cases
from mpsref.conformance.hardware_entries import Entry, Tolerance, Values
from mpsref.images import Array
from mpsref.registry import Backend

BACKENDS = [info.name for info in mpsref.backends() if info.available]
ENTRIES = hardware.load()
ALIVE = [entry for entry in ENTRIES if not set(entry.kernels).isdisjoint(hardware.ADAPTERS)]
CORNER = "pool-average-k2-default-edge-dest2"


def planted(name: str = "planted", **fault: Any) -> Backend:
    """Average and max pooling whose spec is changed by ``fault``, where it has such a parameter, before it runs."""

    def forward(problem: Any, x: Array, out: Array) -> None:
        known = {field.name for field in fields(problem.spec)}
        wrong = replace(problem, spec=replace(problem.spec, **{k: v for k, v in fault.items() if k in known}))
        out[...] = kernels.REFERENCE[problem.operation](wrong, x.astype(np.float64))

    return Backend(name, {(spec, "forward"): forward for spec in (PoolingAverage, PoolingMax)})


def answering(value: float, name: str = "planted") -> Backend:
    """Average pooling with one answer to everything."""

    def forward(problem: Any, x: Array, out: Array) -> None:
        out.fill(value)

    return Backend(name, {(PoolingAverage, "forward"): forward})


def with_expected(entry: Entry, *values: float) -> Entry:
    array = np.array(values, np.float64).reshape(entry.expected["y"].array.shape)
    return replace(entry, expected={"y": Values(array, np.ones(array.shape, bool))})


# The file


def test_every_entry_is_there() -> None:
    assert Counter(entry.kind for entry in ENTRIES) == {"measured": 56, "asserted": 98, "relation": 16}
    assert Counter(entry.direction for entry in ENTRIES) == {"forward": 131, "gradient": 33, "size": 5, "property": 1}
    kernels = Counter(kernel for entry in ENTRIES for kernel in entry.kernels)
    assert (kernels["MPSCNNPoolingAverage"], kernels["MPSCNNPoolingMax"], kernels["MPSCNNConvolution"]) == (8, 5, 15)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_entry_is_complete(entry: Entry) -> None:
    assert entry.note.endswith(".")
    assert entry.source.repository.count("/") == 1
    assert entry.source.note
    if entry.kind == "relation":
        assert entry.relation
        assert entry.choices
        assert not entry.expected
    else:
        assert entry.origin
        assert any(values.given.any() for values in entry.expected.values())
        assert entry.tolerance.of == "element"


def test_file_is_small() -> None:
    text = resources.files("mpsref.conformance").joinpath("hardware.json").read_text("utf-8")
    assert len(text) < 250_000
    assert sum(line.startswith('{"id": ') for line in text.splitlines()) == len(ENTRIES)


def test_by_id_names_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="'pool-average-k4'"):
        hardware.by_id("pool-average-k4")


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
    (entry,) = hardware.parse(json.dumps(document(**changes)))
    return entry


def test_null_is_not_given_and_words_are_numbers() -> None:
    values = parsed(expected={"y": [[None, "NaN"], ["Infinity", "-Infinity"]]}).expected["y"]
    assert values.given.tolist() == [[False, True], [True, True]]
    np.testing.assert_array_equal(values.array, [[0, np.nan], [np.inf, -np.inf]])


def test_cycle_fills_the_shape_in_c_order() -> None:
    x = hardware.by_id("pool-average-k10-s2-valid-webml").image("x")
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
        ({"expected": {"y": [[1, 2], [3]]}}, "expected y is no regular array"),
        ({"expected": {"y": ["many"]}}, "expected y is no regular array"),
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
            hardware.parse(json.dumps({**once, "entries": entries}))
    with pytest.raises(ValueError, match=r"unknown fields \['more'\]"):
        hardware.parse(json.dumps({**once, "more": []}))


# Relations


def test_cases_stay_in_their_ranges_and_repeat() -> None:
    entry = hardware.by_id("relation-pytorch-conv2d")
    first, again = ([(case, draw((3,)).tolist()) for case, draw in entry.cases()] for _ in range(2))
    assert first == again
    assert len(first) == hardware_entries.RELATION_CASES
    assert all(1 <= case["n"] <= 10 and 1 <= case["h"] <= 300 for case, _ in first)
    assert all(0 <= value < 1 for _, values in first for value in values)
    assert len({case["w"] for case, _ in first}) > 10


def test_cases_of_a_list_take_every_choice() -> None:
    cases = [case for case, _ in hardware.by_id("relation-caffe2-pool").cases()]
    assert {case["kernel"] for case in cases} == {1, 3, 5, "image"}
    assert {(case["pad_top"], case["pad_bottom"]) for case in cases} >= {("none", "half"), ("half", "none")}


def test_cases_of_a_range_take_both_ends() -> None:
    entry = replace(hardware.by_id("relation-caffe2-pool"), choices={"n": {"from": 1, "to": 2}})
    assert {case["n"] for case, _ in entry.cases()} == {1, 2}


def test_pooling_cases_differ_between_axes_and_sides() -> None:
    cases = list(pooling_cases(hardware.by_id("relation-caffe2-pool")))
    assert any(strides[0] != strides[1] for _, strides, _, _ in cases)
    assert any(pads[0] != pads[2] for _, _, pads, _ in cases)
    assert any(kernel == (8, 13) for kernel, *_ in cases)
    assert all(x.shape[1:] == (8, 13, 8) for *_, x in cases)


def test_pooling_cases_in_words_of_pytorch() -> None:
    cases = list(pooling_cases(hardware.by_id("relation-pytorch-max-pool")))
    assert {(kernel, strides, *pads, x.shape) for kernel, strides, pads, x in cases} == {
        ((2, 2), (2, 2), 0, 0, 0, 0, (1, 4, 4, 3)),
        ((2, 2), (2, 2), 1, 1, 1, 1, (1, 4, 4, 3)),
        ((3, 3), (2, 2), 0, 0, 1, 1, (1, 55, 55, 96)),  # sizes rounded up: room for one more window
    }


def test_pooling_cases_without_a_size() -> None:
    cases = list(pooling_cases(hardware.by_id("relation-bnns-pool-offset")))
    assert {(kernel, strides, *pads, x.shape) for kernel, strides, pads, x in cases} == {
        ((2, 2), (2, 2), 0, 0, 0, 0, (1, 8, 12, 4))
    }


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("name", "words"), [("avg", {"count_include_pad": False}), ("max", {})])
def test_pooling_on_the_cpu_is_that_of_pytorch(name: str, words: dict[str, Any], stride: int) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 8, 13, 3))
    function = {"avg": np.mean, "max": np.max}[name]
    ours = over_windows(function, x, (5, 3), (stride, stride), [2, 1, 2, 1])
    source = torch.tensor(x.transpose(0, 3, 1, 2))
    theirs = getattr(torch.nn.functional, f"{name}_pool2d")(source, (5, 3), stride, (2, 1), **words)
    np.testing.assert_allclose(ours, theirs.numpy().transpose(0, 2, 3, 1), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("length", [6, 7, 8, 55])
def test_room_at_the_end_is_the_ceil_mode_of_pytorch(length: int) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((1, length, length, 2))
    words = {"kernel": 3, "stride": 2, "pad": 0, "ceil_mode": True}
    ours = over_windows(np.max, x, *hardware_adapters._in_words_of_pytorch(words))
    theirs = torch.nn.functional.max_pool2d(torch.tensor(x.transpose(0, 3, 1, 2)), 3, 2, ceil_mode=True)
    np.testing.assert_array_equal(ours, theirs.numpy().transpose(0, 2, 3, 1))


def test_means_of_uneven_padding() -> None:
    x = np.arange(1.0, 7.0).reshape(1, 1, 6, 1)
    means = over_windows(np.mean, x, (1, 3), (1, 2), [0, 1, 0, 0])
    assert means[0, 0, :, 0].tolist() == [1.5, 3, 5]


# The comparison


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("entry", ALIVE, ids=lambda entry: entry.id)
def test_entries_of_the_kernels_that_exist(entry: Entry, backend: str) -> None:
    result = hardware.compare(entry, backend)
    assert not result.unexpected, result.reason
    if result.status == "not implemented yet" and not backend.startswith("reference"):
        pytest.skip(result.reason)
    assert result.status in ("agree", "disagree"), result.reason
    assert result.worst is not None


def test_the_living_entries_are_at_least_these() -> None:
    """A change that silently turns an entry off is seen here."""
    assert {entry.id for entry in ALIVE} >= {
        "pool-average-k10-s2-valid-webml",
        "pool-average-k2-default-edge-4x4",
        "pool-average-k2-default-edge-dest2",
        "pool-average-k2-default-edge-dest3",
        "pool-average-k3-zero-zp0",
        "pool-average-k3-zero-zp1",
        "pool-max-k20-s20-valid-webml",
        "pool-max-k3-zero",
        "relation-bnns-pool-offset",
        "relation-caffe2-pool",
        "relation-pytorch-global-average",
        "relation-pytorch-max-pool",
    }


@pytest.mark.parametrize(
    ("fault", "caught_by"),
    [
        ({"edge_mode": "clamp"}, CORNER),
        ({"edge_mode": "clamp", "zero_pad_size": (0, 0)}, "pool-average-k3-zero-zp1"),
        ({"edge_mode": "zero"}, "relation-caffe2-pool"),
        ({"zero_pad_size": (2, 2)}, "relation-caffe2-pool"),
        ({"offset": (1, 1)}, "pool-average-k2-default-edge-4x4"),
        ({"offset": (0, 0)}, "relation-pytorch-global-average"),
        ({"strides": (1, 1)}, "relation-caffe2-pool"),
        ({"kernel_size": (2, 2)}, "pool-max-k3-zero"),
        ({"offset": (1, 1)}, "pool-max-k3-zero"),
        ({"kernel_size": (1, 1)}, "pool-max-k20-s20-valid-webml"),
        ({"offset": (0, 0)}, "relation-bnns-pool-offset"),
        ({"strides": (1, 1)}, "relation-bnns-pool-offset"),
        ({"kernel_size": (1, 1)}, "relation-pytorch-max-pool"),
        ({"offset": (0, 1)}, "relation-pytorch-max-pool"),
    ],
    ids=str,
)
def test_planted_faults_disagree(fault: dict[str, Any], caught_by: str) -> None:
    result = hardware.compare(hardware.by_id(caught_by), planted(**fault))
    assert (result.status, result.unexpected) == ("disagree", True)


def test_a_disagreement_says_where() -> None:
    result = hardware.compare(hardware.by_id(CORNER), planted(edge_mode="clamp"))
    assert result.reason == "y[0, 0, 0, 0] is 1 here, 0.25 on the hardware: inf times the tolerance"


def test_tolerance_is_a_limit() -> None:
    entry = replace(with_expected(hardware.by_id(CORNER), 8, 8, 8, 8), tolerance=Tolerance(0.25, 0.125))
    inside, outside = (hardware.compare(entry, answering(value)) for value in (9.25, 9.375))
    assert (inside.status, inside.worst) == ("agree", 1)
    assert (outside.status, outside.worst) == ("disagree", 1.1)


def test_tolerance_of_the_largest_value() -> None:
    element, largest = Tolerance(0.5, 0.25), Tolerance(0.5, 0.25, "largest")
    values = np.array([2.0, -8.0])
    assert element.limit(values).tolist() == [1, 2.5]
    assert np.broadcast_to(largest.limit(values), 2).tolist() == [2.5, 2.5]


@pytest.mark.parametrize(
    ("expected", "got", "status"),
    [
        (np.nan, np.nan, "agree"),
        (np.inf, np.inf, "agree"),
        (np.inf, -np.inf, "disagree"),
        (np.inf, 1.0, "disagree"),
        (np.nan, 1.0, "disagree"),
        (1.0, np.nan, "disagree"),
        (1.0, np.inf, "disagree"),
    ],
)
def test_nan_and_infinity(expected: float, got: float, status: str) -> None:
    entry = replace(with_expected(hardware.by_id(CORNER), *[expected] * 4), tolerance=Tolerance(1, 1))
    assert hardware.compare(entry, answering(got)).status == status


def test_metal_skips_nan_and_infinity_alone() -> None:
    entry = hardware.by_id(CORNER)
    metal = replace(answering(0), fast_math=True)
    nothing = hardware.compare(with_expected(entry, np.nan, np.inf, -np.inf, np.nan), metal)
    assert (nothing.status, nothing.worst) == ("not applicable", None)
    right, wrong = (with_expected(entry, np.nan, np.inf, -np.inf, value) for value in (0.0, 1.0))
    assert hardware.compare(right, metal).status == "agree"
    assert hardware.compare(wrong, metal).status == "disagree"
    assert hardware.compare(right, answering(0)).status == "disagree"


def test_values_that_are_not_given_are_skipped() -> None:
    entry = with_expected(hardware.by_id(CORNER), 7, 7, 7, 0)
    given = np.array([0, 0, 0, 1], bool).reshape(1, 2, 2, 1)
    entry = replace(entry, expected={"y": Values(entry.expected["y"].array, given)})
    assert hardware.compare(entry, answering(0)).status == "agree"
    assert hardware.compare(entry, answering(7)).status == "disagree"


def test_another_shape_disagrees() -> None:
    entry = hardware.by_id(CORNER)
    wider = replace(entry, parameters={**entry.parameters, "output_size": (2, 3)})
    result = hardware.compare(wider, "reference")
    assert (result.status, result.unexpected) == ("disagree", True)
    assert result.reason == "y has shape (1, 2, 3, 1) here, (1, 2, 2, 1) on the hardware"


# Known differences, and what cannot be run


def test_known_differences_are_entries() -> None:
    assert set(KNOWN_DIFFERENCES) <= {entry.id for entry in ENTRIES}
    assert len(KNOWN_DIFFERENCES) == 9
    assert all(hardware.by_id(id).tolerance.absolute > 0 for id in KNOWN_DIFFERENCES)


def test_a_listed_entry_that_disagrees_is_excused_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KNOWN_DIFFERENCES, CORNER, "planted reason")
    entry = replace(hardware.by_id(CORNER), tolerance=Tolerance(1e-6, 0))
    result = hardware.compare(entry, planted(edge_mode="clamp"))
    assert (result.status, result.reason, result.unexpected) == ("disagree", "planted reason", False)
    for broken in (answering(np.nan), answering(np.inf)):
        result = hardware.compare(entry, broken)
        assert (result.status, result.unexpected) == ("disagree", True)
        assert "on the hardware" in result.reason


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_listed_entry_that_agrees_is_unexpected(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KNOWN_DIFFERENCES, CORNER, "planted reason")
    result = hardware.compare(hardware.by_id(CORNER), backend)
    assert (result.status, result.unexpected) == ("agree", True)
    assert "take it off the list" in result.reason


def test_what_has_no_counterpart_is_not_implemented_yet() -> None:
    result = hardware.compare(hardware.by_id("image-fresh-zeros"), "reference")
    assert (result.status, result.unexpected) == ("not implemented yet", False)
    assert result.reason.startswith("MPSImage has no counterpart")


def test_an_entry_of_two_kernels_names_the_one_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(hardware.ADAPTERS, "MPSCNNPoolingMax")
    result = hardware.compare(hardware.by_id("relation-caffe2-pool"), "reference")
    assert result.status == "agree"
    assert result.reason == "only in part: MPSCNNPoolingMax has no counterpart here yet"
    monkeypatch.undo()
    average_alone = Backend("half", {(PoolingAverage, "forward"): planted().implementations[PoolingAverage, "forward"]})
    result = hardware.compare(hardware.by_id("relation-caffe2-pool"), average_alone)
    assert result.status == "agree"
    assert result.reason == "only in part: backend 'half' does not implement PoolingMax.forward"


def test_an_entry_of_two_kernels_runs_both(monkeypatch: pytest.MonkeyPatch) -> None:
    average = hardware.ADAPTERS["MPSCNNPoolingAverage"]
    monkeypatch.setitem(hardware.ADAPTERS, "MPSCNNPoolingMax", lambda entry, _: average(entry, answering(1)))
    assert hardware.compare(hardware.by_id("relation-caffe2-pool"), "reference").status == "disagree"


def test_a_backend_without_the_operation_has_not_implemented_it() -> None:
    result = hardware.compare(hardware.by_id(CORNER), Backend("empty", {}))
    assert result.status == "not implemented yet"
    assert result.reason == "backend 'empty' does not implement PoolingAverage.forward"


def test_a_backend_without_the_dtype_and_an_entry_without_its_data_do_not_apply() -> None:
    narrow = replace(answering(0), dtypes=("float32",))
    result = hardware.compare(hardware.by_id("pool-average-k10-s2-valid-webml"), narrow)
    assert (result.status, result.reason) == ("not applicable", "backend 'planted' takes float32, not float16")
    result = hardware.compare(hardware.by_id("resize-bilinear-aligned-mse"), "reference")
    assert (result.status, result.worst) == ("not applicable", None)


# The whole run and its table


def test_run_finds_nothing_unexpected() -> None:
    results = hardware.run(BACKENDS)
    assert len(results) == len(ENTRIES) * len(BACKENDS)
    assert not hardware.unexpected(results)


def test_summary_counts_each_entry_once() -> None:
    rows = hardware.summary(hardware.run(["reference", "reference:input-dtype"]))
    by_kind = Counter[str]()
    for row in rows:
        by_kind[row.kind] += sum(row.counts.values())
    assert by_kind == {"measured": 56, "asserted": 98, "relation": 16}
    (measured,) = (row for row in rows if (row.kernel, row.kind) == ("MPSCNNPoolingAverage", "measured"))
    assert measured.counts == {"agree": 5, "disagree": 0, "not implemented yet": 0, "not applicable": 0}
    assert [(row.kernel, row.kind) for row in rows][:2] == [
        ("MPSCNNBatchNormalization", "measured"),
        ("MPSCNNBatchNormalization", "asserted"),
    ]


def test_summary_shows_a_disagreement_of_one_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = hardware.by_id(CORNER)
    agrees, lacks, wrong = (
        hardware.compare(entry, backend) for backend in ("reference", Backend("empty", {}), answering(1, "wrong"))
    )
    (row,) = hardware.summary([agrees, lacks])
    assert (row.counts["agree"], sum(row.counts.values()), row.reasons) == (1, 1, ())
    (row,) = hardware.summary([agrees, lacks, wrong])
    assert (row.counts["disagree"], sum(row.counts.values())) == (1, 1)
    assert row.reasons == (f"{CORNER} (wrong): {wrong.reason}",)
    assert hardware.unexpected([agrees, lacks, wrong]) == [wrong]
