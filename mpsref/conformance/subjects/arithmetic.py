"""Arithmetic and comparison under test: all 64 combinations of strides, and that stride 0 is plain repetition."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import ImageShape, as_shape
from mpsref.conformance.case import Case
from mpsref.conformance.properties import repeatable, same
from mpsref.conformance.runner import compute, expected
from mpsref.conformance.subject import Subject, often, seldom
from mpsref.conformance.subjects.linear import adjoint, one_image_at_a_time
from mpsref.kernels import Arithmetic, Compare
from mpsref.kernels.arithmetic import NAMES, WANTED, ArithmeticForward, ArithmeticGradient, fold
from mpsref.kernels.broadcasting import BroadcastProblem, Triple
from mpsref.kernels.compare import COMPARISONS, CompareForward
from mpsref.registry import Backend, Problem, Spec

__all__ = ["SUBJECTS", "operands"]

PLAIN: dict[str, Triple] = {"primary_strides": (1, 1, 1), "secondary_strides": (1, 1, 1)}
SCALES = st.integers(-16, 16).filter(bool).map(lambda eighths: eighths / 8)
BIT = st.integers(0, 1)


@st.composite
def operands(draw: st.DrawFn) -> tuple[dict[str, Triple], ImageShape, ImageShape]:
    """Draw strides and offsets, and the shapes of two operands that they fit."""
    size = draw(st.tuples(*[st.integers(1, 7)] * 3))
    n = draw(st.integers(1, 3))
    fields: dict[str, Triple] = {}
    shapes = []
    for name in ("primary", "secondary"):
        strides = draw(seldom((1, 1, 1), st.tuples(BIT, BIT, BIT)) | st.tuples(BIT, BIT, BIT))
        behind = draw(seldom((0, 0, 0), st.tuples(*[st.integers(0, 2)] * 3)))
        more = draw(st.tuples(*[st.integers(0, 2)] * 3))
        fields |= {f"{name}_strides": strides, f"{name}_offset": behind}
        shapes.append(
            [n, *(o + (length if t else 1 + k) for o, length, t, k in zip(behind, size, strides, more, strict=True))]
        )
    x, y = (as_shape("shape", tuple(shape)) for shape in shapes)
    return fields, x, y


BOUNDS = st.tuples(st.integers(-12, 4), st.integers(0, 16), st.sampled_from([0.25, 2.0])).map(
    lambda drawn: (drawn[0] * drawn[2], (drawn[0] + drawn[1]) * drawn[2])
)
"""Small ones, and some that sums and products of integers keep within."""


@st.composite
def arithmetic(draw: st.DrawFn, method: str) -> Problem:
    """Draw a problem of one method; scales, bias and bounds are multiples of 1/8."""
    fields, x, y = draw(operands())
    names = [name for name in NAMES if method == "forward" or name != "divide"]
    low, high = draw(st.just((-math.inf, math.inf)) | BOUNDS | BOUNDS)
    spec = Arithmetic(
        draw(st.sampled_from(names)),
        draw(often(1.0, SCALES)),
        draw(often(1.0, SCALES)),
        draw(st.just(0.0) | SCALES),
        **fields,
        minimum_value=draw(st.sampled_from([low, low, -math.inf])),
        maximum_value=draw(st.sampled_from([high, high, math.inf])),
    )
    if method == "forward":
        return ArithmeticForward(spec, x, y)
    return ArithmeticGradient(spec, x, y, draw(seldom("both", st.sampled_from(WANTED))))


@st.composite
def compare(draw: st.DrawFn, method: str) -> Problem:
    """Draw a comparison; thresholds are multiples of 1/4, as the operands are."""
    fields, x, y = draw(operands())
    spec = Compare(draw(st.sampled_from(COMPARISONS)), draw(st.sampled_from([0.0, 0.25, 0.5, 2.0])), **fields)
    return CompareForward(spec, x, y)


def as_plain(problem: BroadcastProblem) -> BroadcastProblem:
    """Return the problem whose operands are spread out to the shape of the result before."""
    offsets: dict[str, Any] = {"primary_offset": (0, 0, 0), "secondary_offset": (0, 0, 0)}
    spec = replace(problem.spec, **PLAIN, **offsets)
    return replace(problem, spec=spec, source_shape=problem.shape, secondary_shape=problem.shape)


def stride_0_repeats(case: Case, backend: Backend) -> None:
    """An operand that is spread out before gives the same result; its gradient, summed up afterwards, the same too."""
    problem = case.problem
    assert isinstance(problem, BroadcastProblem)
    if isinstance(problem, ArithmeticGradient) and case.dtype == "float16":
        return  # what is summed up afterwards would have been rounded before
    inputs = [
        np.ascontiguousarray(image if name == "g" else problem.spread_one("xy".index(name), image))
        for name, image in zip(problem.input_shapes, case.inputs(), strict=True)
    ]
    wholes, apart = compute(problem, backend, *case.inputs()), compute(as_plain(problem), backend, *inputs)
    if isinstance(problem, ArithmeticGradient):
        apart = tuple(
            fold(problem.spec.operands[k], shape, terms.astype(np.float64)).astype(terms.dtype)
            for k, shape, terms in zip(problem.of, problem.result_shapes, apart, strict=True)
        )
    for whole, part, (_, terms) in zip(wholes, apart, expected(case), strict=True):
        same("stride 0 repeats", whole, part, terms)


def linear_in_both(problem: Problem) -> tuple[Problem, Problem] | None:
    """Return the counterparts of sums and differences without a bias."""
    return _counterparts(problem, ("add", "subtract"))


def linear_in_each(problem: Problem) -> tuple[Problem, Problem] | None:
    """Return the counterparts of products without a bias."""
    return _counterparts(problem, ("multiply",))


def _counterparts(problem: Problem, names: tuple[str, ...]) -> tuple[Problem, Problem] | None:
    assert isinstance(problem, (ArithmeticForward, ArithmeticGradient))
    if problem.spec.operation not in names or problem.spec.clamps:
        return None
    spec = replace(problem.spec, bias=0.0)
    shapes = problem.source_shape, problem.secondary_shape
    return ArithmeticForward(spec, *shapes), ArithmeticGradient(spec, *shapes)


_ARITHMETIC = (
    repeatable,
    one_image_at_a_time,
    stride_0_repeats,
    adjoint(linear_in_both),
    adjoint(linear_in_each, each=True),
)

IMMUNE = {"forward": frozenset({"accumulation in float16"})}
"""A comparison gives 0 or 1, in any precision."""

SUBJECTS: Mapping[type[Spec], Subject] = {
    Arithmetic: Subject(arithmetic, {"forward": _ARITHMETIC, "gradient": _ARITHMETIC}),
    Compare: Subject(compare, {"forward": (repeatable, one_image_at_a_time, stride_0_repeats)}, IMMUNE),
}
