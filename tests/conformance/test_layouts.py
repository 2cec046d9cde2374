"""Layouts of inputs in memory: what they are, and how a check draws them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import Backend
from mpsref.arguments.layouts import LAYOUTS, arranged
from mpsref.conformance import check, checker
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.guards import GuardedArray
from mpsref.conformance.runner import references, run_case

GRADIENT = operation_named("InstanceNormalization.gradient")
DTYPES = Backend.dtypes


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (6,), (2, 3)])
def test_values_stay_and_strides_change(layout: str, shape: tuple[int, ...]) -> None:
    values = np.arange(float(np.prod(shape)), dtype=np.float32).reshape(shape)
    array = arranged(values, layout)
    assert np.array_equal(array, values)
    order, _, way = layout.partition("-")
    assert array.flags.c_contiguous == (way in ("", "offset") and (order == "nhwc" or len(shape) != 4))
    if order == "nchw" and len(shape) == 4:
        assert array.transpose(0, 3, 1, 2).flags.c_contiguous == (way in ("", "offset"))
    if layout.endswith("-reversed"):
        assert min(array.strides) < 0


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


@pytest.mark.parametrize(("layouts", "error"), [(["nchw"], TypeError), (("hwcn",), ValueError)])
def test_layouts_of_a_backend_are_checked(layouts: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="layouts"):
        Backend("b", {}, layouts=layouts)
