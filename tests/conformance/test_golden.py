"""The comparison with golden results, with mutants that disagree, and its table."""

from collections import Counter
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from mpsref import PoolingAverage, PoolingMax
from mpsref.arguments.arrays import Array
from mpsref.conformance import families, golden, mutants
from mpsref.conformance.golden_entries import Entry, Tolerance, Values
from mpsref.registry import Backend, Implementation, Spec
from tests.conftest import AVAILABLE as BACKENDS

ENTRIES = golden.load()
ADAPTERS = families.golden_adapters()
IMPLEMENTED = [entry for entry in ENTRIES if not set(entry.kernels).isdisjoint(ADAPTERS)]
CORNER = "pool-average-k2-default-edge-dest2"


def mutant(name: str = "mutant", **changes: Any) -> Backend:
    """Average and max pooling whose spec has ``changes``, as far as it has such fields."""

    def of(spec_type: type[Spec]) -> Implementation:
        own = changes.keys() & {field.name for field in fields(spec_type)}
        return mutants.of_problem(lambda p: replace(p, spec=replace(p.spec, **{k: changes[k] for k in own})))

    return Backend(name, {(spec_type, "forward"): of(spec_type) for spec_type in (PoolingAverage, PoolingMax)})


def constant(value: float, name: str = "mutant") -> Backend:
    """Average pooling with a constant result."""

    def forward(problem: Any, x: Array, out: Array) -> None:
        out.fill(value)

    return Backend(name, {(PoolingAverage, "forward"): forward})


def with_expected(entry: Entry, *values: float) -> Entry:
    array = np.array(values, np.float64).reshape(entry.expected["y"].array.shape)
    return replace(entry, expected={"y": Values(array, np.ones(array.shape, bool))})


def adapt(monkeypatch: pytest.MonkeyPatch, **adapters: Any) -> None:
    """Replace adapters by name; ``None`` removes one."""
    changed = {name: adapter for name, adapter in {**ADAPTERS, **adapters}.items() if adapter is not None}
    monkeypatch.setattr(families, "golden_adapters", lambda: changed)


# The comparison


def check(result: golden.Result) -> None:
    """Require that a result agrees, or disagrees as it is known to."""
    entry = result.entry
    assert not result.unexpected, result.reason
    if result.status == "not implemented yet" and not result.backend.startswith("reference"):
        return
    if entry.absent or result.reason == "every value is NaN or infinite, and fast math has neither":
        expected = "not applicable"
    else:
        expected = "disagree" if entry.id in golden.KNOWN_DIFFERENCES else "agree"
    assert result.status == expected, result.reason
    assert (result.worst is None) == (result.status == "not applicable"), result.reason


@pytest.mark.parametrize("entry", IMPLEMENTED, ids=lambda entry: entry.id)
def test_entries_of_the_kernels_that_exist(entry: Entry) -> None:
    check(golden.compare(entry, "reference"))


@pytest.mark.slow  # `mpsref golden`, which the main job runs, compares them, too
def test_all_entries_on_the_other_backends() -> None:
    names = [name for name in BACKENDS if name != "reference"]
    results = golden.run(names)
    assert len(results) == len(ENTRIES) * len(names)
    for result in results:
        check(result)


def test_the_implemented_entries_are_at_least_these() -> None:
    """A change that silently disables an entry fails here."""
    assert {entry.id for entry in IMPLEMENTED} >= {
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
    ("fields", "detected_by"),
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
def test_mutants_disagree(fields: dict[str, Any], detected_by: str) -> None:
    result = golden.compare(golden.by_id(detected_by), mutant(**fields))
    assert (result.status, result.unexpected) == ("disagree", True)


def test_a_disagreement_says_where() -> None:
    result = golden.compare(golden.by_id(CORNER), mutant(edge_mode="clamp"))
    assert result.reason == "y[0, 0, 0, 0] is 1 here, 0.25 on the hardware: inf times the tolerance"


def test_tolerance_is_a_limit() -> None:
    entry = replace(with_expected(golden.by_id(CORNER), 8, 8, 8, 8), tolerance=Tolerance(0.25, 0.125))
    inside, outside = (golden.compare(entry, constant(value)) for value in (9.25, 9.375))
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
    entry = replace(with_expected(golden.by_id(CORNER), *[expected] * 4), tolerance=Tolerance(1, 1))
    assert golden.compare(entry, constant(got)).status == status


def test_metal_skips_nan_and_infinity_alone() -> None:
    entry = golden.by_id(CORNER)
    metal = replace(constant(0), fast_math=True)
    nothing = golden.compare(with_expected(entry, np.nan, np.inf, -np.inf, np.nan), metal)
    assert (nothing.status, nothing.worst) == ("not applicable", None)
    right, wrong = (with_expected(entry, np.nan, np.inf, -np.inf, value) for value in (0.0, 1.0))
    assert golden.compare(right, metal).status == "agree"
    assert golden.compare(wrong, metal).status == "disagree"
    assert golden.compare(right, constant(0)).status == "disagree"


def test_values_that_are_not_given_are_skipped() -> None:
    entry = with_expected(golden.by_id(CORNER), 7, 7, 7, 0)
    given = np.array([0, 0, 0, 1], bool).reshape(1, 2, 2, 1)
    entry = replace(entry, expected={"y": Values(entry.expected["y"].array, given)})
    assert golden.compare(entry, constant(0)).status == "agree"
    assert golden.compare(entry, constant(7)).status == "disagree"


def test_another_shape_disagrees() -> None:
    entry = golden.by_id(CORNER)
    wider = replace(entry, parameters={**entry.parameters, "output_size": (2, 3)})
    result = golden.compare(wider, "reference")
    assert (result.status, result.unexpected) == ("disagree", True)
    assert result.reason == "y has shape (1, 2, 3, 1) here, (1, 2, 2, 1) on the hardware"


# Known differences, and what cannot be run


def test_known_differences_are_entries() -> None:
    assert set(golden.KNOWN_DIFFERENCES) <= {entry.id for entry in ENTRIES}
    assert len(golden.KNOWN_DIFFERENCES) == 10


def test_a_listed_entry_that_disagrees_is_excused_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(golden.KNOWN_DIFFERENCES, CORNER, "known reason")
    entry = replace(golden.by_id(CORNER), tolerance=Tolerance(1e-6, 0))
    result = golden.compare(entry, mutant(edge_mode="clamp"))
    assert (result.status, result.reason, result.unexpected) == ("disagree", "known reason", False)
    for broken in (constant(np.nan), constant(np.inf)):
        result = golden.compare(entry, broken)
        assert (result.status, result.unexpected) == ("disagree", True)
        assert "on the hardware" in result.reason


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_listed_entry_that_agrees_is_unexpected(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(golden.KNOWN_DIFFERENCES, CORNER, "known reason")
    result = golden.compare(golden.by_id(CORNER), backend)
    assert (result.status, result.unexpected) == ("agree", True)
    assert "take it off the list" in result.reason


def test_every_entry_has_a_counterpart() -> None:
    assert {kernel for entry in ENTRIES for kernel in entry.kernels} <= set(ADAPTERS)


def test_what_has_no_counterpart_is_not_implemented_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    adapt(monkeypatch, MPSCNNConvolutionTransposeNode=None)
    result = golden.compare(golden.by_id("size-convolution-transpose-k3-s1-metaltensors"), "reference")
    assert (result.status, result.unexpected) == ("not implemented yet", False)
    assert result.reason.startswith("MPSCNNConvolutionTransposeNode has no counterpart")


def test_an_entry_of_two_kernels_names_the_one_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    adapt(monkeypatch, MPSCNNPoolingMax=None)
    result = golden.compare(golden.by_id("relation-caffe2-pool"), "reference")
    assert result.status == "agree"
    assert result.reason == "only in part: MPSCNNPoolingMax has no counterpart here yet"
    monkeypatch.undo()
    average_alone = Backend("half", {(PoolingAverage, "forward"): mutant().implementations[PoolingAverage, "forward"]})
    result = golden.compare(golden.by_id("relation-caffe2-pool"), average_alone)
    assert result.status == "agree"
    assert result.reason == "only in part: backend 'half' does not implement PoolingMax.forward"


def test_an_entry_of_two_kernels_runs_both(monkeypatch: pytest.MonkeyPatch) -> None:
    average = ADAPTERS["MPSCNNPoolingAverage"]
    adapt(monkeypatch, MPSCNNPoolingMax=lambda entry, _: average(entry, constant(1)))
    assert golden.compare(golden.by_id("relation-caffe2-pool"), "reference").status == "disagree"


def test_a_backend_without_the_operation_has_not_implemented_it() -> None:
    result = golden.compare(golden.by_id(CORNER), Backend("empty", {}))
    assert result.status == "not implemented yet"
    assert result.reason == "backend 'empty' does not implement PoolingAverage.forward"


def test_a_backend_without_the_dtype_and_an_entry_without_its_data_do_not_apply() -> None:
    narrow = replace(constant(0), dtypes=("float32",))
    result = golden.compare(golden.by_id("pool-average-k10-s2-valid-webml"), narrow)
    assert (result.status, result.reason) == ("not applicable", "backend 'mutant' takes float32, not float16")
    result = golden.compare(golden.by_id("resize-bilinear-aligned-mse"), "reference")
    assert (result.status, result.worst) == ("not applicable", None)


# The whole run and its table


def test_summary_counts_each_entry_once() -> None:
    rows = golden.summary(golden.run(["reference", "reference:input-dtype"]))
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
    entry = golden.by_id(CORNER)
    agrees, lacks, wrong = (
        golden.compare(entry, backend) for backend in ("reference", Backend("empty", {}), constant(1, "wrong"))
    )
    (row,) = golden.summary([agrees, lacks])
    assert (row.counts["agree"], sum(row.counts.values()), row.reasons) == (1, 1, ())
    (row,) = golden.summary([agrees, lacks, wrong])
    assert (row.counts["disagree"], sum(row.counts.values())) == (1, 1)
    assert row.reasons == (f"{CORNER} (wrong): {wrong.reason}",)
    assert golden.unexpected([agrees, lacks, wrong]) == [wrong]
