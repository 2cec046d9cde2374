"""Layouts of inputs in memory: what they are, and how a check draws them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import Backend
from mpsref.arguments.layouts import LAYOUTS, arranged, repeated, repeats, way_of
from mpsref.conformance import check, checker
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.guards import GuardedArray
from mpsref.conformance.runner import references, run_case
from mpsref.conformance.tally import LAYOUT, added, possible_layouts, tally, unreached
from mpsref_torch import CONTIGUOUS

GRADIENT = operation_named("InstanceNormalization.gradient")
DTYPES = Backend.dtypes
ODD = "InstanceNormalization.gradient:n1h2w3c2,eps1e-05,float32,memory=nchw-odd+nchw+nchw,seed=1"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (6,), (2, 3)])
def test_values_stay_and_strides_change(layout: str, shape: tuple[int, ...]) -> None:
    values = np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape)
    array = arranged(values, layout)
    order, _, way = layout.partition("-")
    if repeats(layout, len(shape)):
        assert {k for k, stride in enumerate(array.strides) if stride == 0} == {*repeats(layout, len(shape))}
        assert np.array_equal(array, repeated(array, layout))
        assert {*array.ravel().tolist()} <= {*values.ravel().tolist()}
        return
    assert np.array_equal(array, values)
    whole = way in ("", "offset", "odd")  # without an axis of length 1
    transposed = order == "ncwh" and len(shape) == 2
    assert array.flags.c_contiguous == (whole and (order == "nhwc" or len(shape) != 4) and not transposed)
    if transposed:
        assert array.T.flags.c_contiguous == whole
    if order == "nchw" and len(shape) == 4:
        assert array.transpose(0, 3, 1, 2).flags.c_contiguous == whole
    if layout.endswith("-reversed"):
        assert min(array.strides) < 0


def test_an_axis_of_length_1_has_a_stride_of_its_own() -> None:
    values = np.arange(6.0).reshape(1, 2, 1, 3)
    array = arranged(values, "nchw-odd")
    assert np.array_equal(array, values)
    assert [stride // 8 for stride in array.strides] == [7, 1, 7, 2]
    assert [stride // 8 for stride in arranged(np.ones((1, 1, 2, 3)), "ncwh").strides] == [6, 1, 1, 2]


def test_repeated_elements_are_legal() -> None:
    """A gradient is 0 near the kink of a neuron: in all pixels that share it."""
    text = "BatchNormalization.gradient:n1h5w6c2,eps0.5,neuron:absolute,float32,hard,memory=nhwc-expanded+nhwc,seed=3"
    g, *_ = Case.parse(text).inputs()
    plain, *_ = Case.parse(text.replace("memory=nhwc-expanded+nhwc,", "")).inputs()
    assert (plain == 0).any()
    zero = (plain == 0).any(axis=(0, 1, 2))
    assert not g[..., zero].any()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_guards_surround_every_layout(layout: str) -> None:
    values = np.ones((1, 2, 3, 2), np.float32)
    guarded = GuardedArray("x", values.shape, values.dtype, values, layout)
    guarded.check()
    assert guarded.array.strides == arranged(values, layout).strides
    guarded.array[0, 1, 2, 1] = 7
    with pytest.raises(Mismatch, match="the input x was changed"):
        guarded.check()


def test_a_write_between_the_elements_is_detected() -> None:
    guarded = GuardedArray("x", (1, 2, 2, 1), np.dtype(np.float32), np.ones((1, 2, 2, 1)), "nhwc-gap")
    assert np.isnan(np.lib.stride_tricks.as_strided(guarded.array, (1, 2, 3, 1), guarded.array.strides)[0, 0, 2, 0])
    np.lib.stride_tricks.as_strided(guarded.array, (1, 2, 3, 1), guarded.array.strides)[0, 0, 2, 0] = 1
    with pytest.raises(Mismatch, match="was changed"):
        guarded.check()


def test_case_strings_name_layouts() -> None:
    text = "InstanceNormalization.gradient:n1h2w3c2,eps1e-05,unscaled,float32,memory=nchw+nhwc-gap,seed=7"
    case = Case.parse(text)
    assert str(case) == text
    g, x = case.inputs()
    assert g.transpose(0, 3, 1, 2).flags.c_contiguous
    assert not x.flags.c_contiguous
    plain = Case(case.problem, seed=7)
    assert "memory" not in str(plain)
    for array, other in zip((g, x), plain.inputs(), strict=True):
        assert np.array_equal(array, other)


def test_plain_layouts_are_not_written() -> None:
    problem = Case.parse("SoftMax.gradient:n1h2w2c3,float32,seed=1").problem
    assert Case(problem, layouts=("nhwc", "nhwc")) == Case(problem)


def test_wrong_layouts_are_refused() -> None:
    with pytest.raises(ValueError, match="layouts"):
        Case(Case.parse("SoftMax.gradient:n1h2w2c3,float32,seed=1").problem, layouts=("nchw", "hwcn"))


def test_a_case_of_another_problem_has_as_many_layouts_as_inputs() -> None:
    case = Case.parse("SoftMax.gradient:n1h2w2c3,float32,memory=nhwc+nchw,seed=1")
    forward = Case.parse("SoftMax.forward:n1h2w2c3,float32,seed=1").problem
    assert replace(case, problem=forward).layouts == ()
    assert Case(case.problem, layouts=("nchw",)).layouts == ("nchw", "nchw")


def test_backends_without_layouts_draw_the_same_cases() -> None:
    plain = list(checker.random_cases(GRADIENT, DTYPES, 40, 5))
    assert plain == list(checker.random_cases(GRADIENT, DTYPES, 40, 5, ()))
    assert not any(case.layouts for case in plain)


def test_each_input_has_a_layout_of_its_own() -> None:
    drawn = list(checker.random_cases(GRADIENT, DTYPES, 60, 0, ("nchw", "nhwc", "nchw-gap")))
    seen = {case.layouts[:2] for case in drawn}
    assert {("nchw", "nhwc-gap"), ("nhwc-gap", "nchw")}.isdisjoint(seen)
    assert {("nchw", "nchw"), ()} <= seen
    assert any(len(set(pair)) == 2 for pair in seen if pair)
    assert all(Case.parse(str(case)) == case for case in drawn)


def recording(layouts: tuple[str, ...], seen: list[bool]) -> Backend:
    def run(problem: Any, *inputs: Any, out: Any) -> None:
        seen.append(all(array.flags.c_contiguous for array in inputs))
        for target, result in zip(out, references(problem, *inputs), strict=True):
            target[...] = result

    return Backend("recording", {GRADIENT: run}, layouts=layouts)


@pytest.mark.parametrize(("layouts", "strided"), [((), False), (("nchw", "nhwc-reversed"), True)])
def test_strides_reach_only_backends_that_want_them(layouts: tuple[str, ...], strided: bool) -> None:
    seen: list[bool] = []
    backend = recording(layouts, seen)
    assert check([backend], [GRADIENT], number=12).ok
    assert all(seen) != strided
    seen.clear()
    g, x = np.ones((2, 1, 3, 3, 4), np.float32).transpose(0, 1, 3, 4, 2)
    mpsref.InstanceNormalization().gradient(g, x, backend=backend)
    mpsref.InstanceNormalization().gradient(g.astype(">f4"), x, backend=backend)
    assert seen == [not strided] * 2


def nhwc_read_as_nchw(problem: Any, g: Any, x: Any, *gamma: Any, out: Any) -> None:
    """PyTorch 2.13 for a batch of 1: the memory of a channels_last gradient is read as if it were contiguous."""
    if len(g) == 1 and g.flags.c_contiguous:
        g = g.reshape(g.shape[0], g.shape[3], *g.shape[1:3]).transpose(0, 2, 3, 1)
    for target, result in zip(out, references(problem, g, x, *gamma), strict=True):
        target[...] = result


def test_a_mistake_in_one_layout_is_found_and_shrunk() -> None:
    wrong = Backend("wrong", {GRADIENT: nhwc_read_as_nchw}, layouts=("nchw", "nhwc"))
    report = check([wrong], [GRADIENT])
    smallest = Case.parse(report.failures[-1].case)
    assert not report.failures[-1].layer
    assert smallest.layouts in ((), ("nhwc", "nchw"), ("nhwc", "nchw", "nchw"))
    assert run_case(smallest, wrong).status == "failed"
    assert np.prod(smallest.problem.source_shape) <= 4


def wrong_where(is_wrong: Any) -> Backend:
    def run(problem: Any, *inputs: Any, out: Any) -> None:
        for target, result in zip(out, references(problem, *inputs), strict=True):
            target[...] = result + bool(is_wrong(*inputs))

    return Backend("wrong", {GRADIENT: run}, layouts=CONTIGUOUS)


def whole(array: Any) -> bool:
    return bool(array.flags.c_contiguous)


MISTAKES = {
    "the batch stride is not H W C": lambda g, *_: len(g) == 1 and whole(g[0]) and g.strides[0] != g[0].nbytes,
    "a strided parameter beside NHWC": lambda g, x, *gamma: whole(x) and any(one.strides[0] == 8 for one in gamma),
    "rows are the innermost axis": lambda g, x, *_: min(x.shape[1:]) > 1 and x.strides[1] == x.itemsize,
    "g repeats a pixel": lambda g, *_: g[..., 0].size > 1 and g.strides[1] == g.strides[2] == 0,
    "a parameter repeats an element": lambda g, x, *gamma: any(one.strides[0] == 0 for one in gamma),
    "x begins inside its memory": lambda g, x, *_: x.ctypes.data % 8,
}


@pytest.mark.parametrize("seed", [0, 1, 90417])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_found_whatever_the_seed(mistake: str, seed: int) -> None:
    report = check([wrong_where(MISTAKES[mistake])], [GRADIENT], number=1, seed=seed)
    assert report.failures
    assert all("memory=" in failure.case for failure in report.failures)


def test_the_report_says_which_layouts_no_case_had() -> None:
    (row,) = check([wrong_where(lambda *_: False)], [GRADIENT]).rows
    counts = row.tried[LAYOUT]
    # Wide cases of equal values have a layout of their own.
    assert {*counts} - {"nhwc-expanded"} == {*CONTIGUOUS, *(f"vector{way_of(layout)}" for layout in CONTIGUOUS)}
    assert min(counts.values()) > 0
    problem = Case.parse(ODD).problem
    assert not [text for text in unreached(problem, row.tried) if text.startswith(LAYOUT)]
    none = added([possible_layouts(GRADIENT, CONTIGUOUS), tally(Case.parse(ODD))])
    missing = [text for text in unreached(problem, none) if text.startswith(LAYOUT)]
    assert f"{LAYOUT} nchw-odd" not in missing
    assert f"{LAYOUT} ncwh" in missing


@pytest.mark.parametrize(("layouts", "error"), [(["nchw"], TypeError), (("hwcn",), ValueError)])
def test_layouts_of_a_backend_are_checked(layouts: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="layouts"):
        Backend("b", {}, layouts=layouts)
