"""Tests of reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.golden_entries import Comparison, Entry
from mpsref.conformance.mutants import of_problem, of_result, of_spec
from mpsref.conformance.properties import Counterparts, adjoint, one_image_at_a_time, repeatable
from mpsref.conformance.runner import agrees, compute
from mpsref.conformance.strategies import pairs
from mpsref.kernels import Reduce
from mpsref.kernels.reduce import (
    AXES,
    FORMULAS,
    OPERATIONS,
    OVER,
    Over,
    ReduceForward,
    ReduceGradient,
    ReduceProblem,
    Reduction,
    is_legal,
)
from mpsref.registry import Backend, Implementation, Problem

# --- strategies -------------------------------------------------------------------------------------------------------

COMBINATIONS: list[tuple[Reduction, Over]] = [
    ("sum", "featurechannels"),
    ("mean", "spatial"),
    *((operation, over) for operation in OPERATIONS for over in OVER if is_legal(operation, over)),
]
"""Those with a parameter or a rule of their own come twice."""

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))


@st.composite
def problems(draw: st.DrawFn, method: str) -> Problem:
    """Draw any legal combination; clips may extend past the image, and always overlap it."""
    operation, over = draw(st.sampled_from(COMBINATIONS)) if method == "forward" else ("mean", "spatial")
    weight = 1.0
    if (operation, over) == ("sum", "featurechannels"):
        weight = draw(st.just(1.0) | st.integers(-16, 16).filter(bool).map(lambda eighths: eighths / 8))
    shape = draw(SHAPES)
    y, x = (draw(st.integers(0, length - 1)) for length in shape[1:3])
    clip = draw(st.none() | (pairs(1, 4) | pairs(1, 10)).map(lambda size: ((y, x), size)))
    spec = Reduce(operation, over, weight, clip)
    problem: Problem = spec.problems[method](spec, shape)
    return problem


# --- properties -------------------------------------------------------------------------------------------------------


def both(problem: ReduceForward | ReduceGradient) -> Counterparts | None:
    """Return the forward and the gradient problem of a spatial mean."""
    if problem.spec.over != "spatial":
        return None
    fields = problem.spec, problem.source_shape
    return Counterparts(ReduceForward(*fields), ReduceGradient(*fields))


def first_of_equals(case: Case, backend: Backend) -> None:
    """The index of equal extrema is that of the first, on images of -1, 0 and 1."""
    of = case.of(ReduceForward)
    signs = np.sign(case.inputs()[0])
    (y, x), (height, width) = of.region
    values = signs[:, y : y + height, x : x + width]
    indices: dict[Reduction, Array] = {"argumentmax": values.argmax(3), "argumentmin": values.argmin(3)}
    for operation, index in indices.items():
        spec = Reduce(operation, "featurechannels", clip=of.spec.clip)
        problem = ReduceForward(spec, signs.shape)
        (found,) = compute(problem, backend, signs)
        if not np.array_equal(found[..., 0], index):
            message = f"first of equals: {operation} is {found.ravel().tolist()} for {values.tolist()}"
            raise Mismatch(message, case=str(replace(case, problem=problem)))


EXTREMA: tuple[Reduction, ...] = ("min", "max", "argumentmin", "argumentmax")


def extrema_of_nan(case: Case, backend: Backend) -> None:
    """An extremum over the same axes, chosen by the case, agrees on NaN and infinities: some cases have a sum."""
    spec = case.of(ReduceForward).spec
    legal = [operation for operation in EXTREMA if is_legal(operation, spec.over)]
    if legal and not backend.fast_math:
        other = Reduce(legal[case.seed % len(legal)], spec.over, clip=spec.clip)
        case = replace(case, problem=replace(case.problem, spec=other), family="nonfinite")
        agrees(case, backend)


# --- mutants ----------------------------------------------------------------------------------------------------------


def _instead(**formulas: Callable[..., Array]) -> Implementation:
    """Compute some of the operations by another formula of (values, axes)."""

    def change(result: Array, problem: ReduceForward, x: Array) -> Array:
        spec, axes = problem.spec, AXES[problem.spec.over]
        values = problem.part(x)
        if spec.operation in formulas:
            found = formulas[spec.operation](values, axes)
        else:
            axis = axes[0] if len(axes) == 1 else axes
            found = FORMULAS[spec.operation](values, axis=axis, keepdims=True) * spec.weight
        return np.asarray(found).reshape(result.shape)

    return of_result(change)


def _last(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return the index of the last of equal extrema."""
    return lambda values, axes: values.shape[3] - 1 - function(values[..., ::-1], axis=3)


def _without_nan(value: float, function: Callable[..., Array]) -> Callable[..., Array]:
    """Reduce with ``value`` in place of NaN."""
    return lambda values, axes: function(
        np.where(np.isnan(values), value, values), axis=axes if len(axes) > 1 else axes[0]
    )


def _clip_at_origin(problem: ReduceProblem) -> ReduceProblem:
    clip = problem.spec.clip
    return replace(problem, spec=replace(problem.spec, clip=clip and ((0, 0), problem.region[1])))


def _mean_of_the_image(result: Array, problem: ReduceProblem, *_: Array) -> Array:
    if problem.spec.operation != "mean":
        return result
    whole = np.prod([problem.source_shape[axis] for axis in AXES[problem.spec.over]])
    return np.asarray(result * problem.count / whole)


def _without_first(values: Array, axes: tuple[int, ...]) -> Array:
    axis = axes[0]
    return values.take(range(1 if values.shape[axis] > 1 else 0, values.shape[axis]), axis)


def _one_pixel(result: Array, problem: ReduceGradient, g: Array) -> Array:
    dx = np.zeros_like(result)
    (y, x), _ = problem.region
    dx[:, y : y + 1, x : x + 1] = g
    return dx


MUTANTS = {
    (Reduce, "forward"): {
        "the weight is ignored": of_spec(weight=lambda spec: 1.0),
        "a mean is not divided": _instead(mean=lambda values, axes: values.sum(axes, keepdims=True)),
        "a mean divides by the size of the whole image": of_result(_mean_of_the_image),
        "minimum and maximum are exchanged": _instead(
            min=lambda values, axes: values.max(axes), max=lambda values, axes: values.min(axes)
        ),
        "the search for the maximum starts from 0": _instead(max=lambda values, axes: values.max(axes, initial=0.0)),
        "the last of equal maxima is taken": _instead(argumentmax=_last(np.argmax)),
        "the last of equal minima is taken": _instead(argumentmin=_last(np.argmin)),
        "NaN is the maximum": _instead(max=lambda values, axes: values.max(axes)),
        "NaN is the minimum": _instead(min=lambda values, axes: values.min(axes)),
        "the index of a maximum is that of NaN": _instead(argumentmax=lambda values, axes: values.argmax(3)),
        "the index of a minimum is that of NaN": _instead(argumentmin=lambda values, axes: values.argmin(3)),
        "NaN counts as an infinity for an index": _instead(
            argumentmax=_without_nan(-np.inf, np.argmax), argumentmin=_without_nan(np.inf, np.argmin)
        ),
        "a maximum of NaN alone is NaN": _instead(max=lambda values, axes: np.fmax.reduce(values, axes[0])),
        "a minimum of NaN alone is NaN": _instead(min=lambda values, axes: np.fmin.reduce(values, axes[0])),
        "a sum ignores NaN": _instead(sum=_without_nan(0, np.sum)),
        "a mean ignores NaN": _instead(mean=_without_nan(0, np.mean)),
        "the search for the maximum starts from the lowest finite number": _instead(
            max=lambda values, axes: values.max(axes, initial=-65504.0)
        ),
        "an index counts from 1": _instead(argumentmax=lambda values, axes: values.argmax(3) + 1),
        "the first element is left out": _instead(
            sum=lambda values, axes: _without_first(values, axes).sum(axes),
            max=lambda values, axes: _without_first(values, axes).max(axes),
            min=lambda values, axes: _without_first(values, axes).min(axes),
        ),
        "the origin of the clip is ignored": of_problem(_clip_at_origin),
    },
    (Reduce, "gradient"): {
        "the gradient is divided by the height alone": of_result(
            lambda result, problem, *_: result * problem.region[1][1]
        ),
        "the gradient is divided by the size of the whole image": of_result(
            lambda result, problem, *_: result * problem.count / np.prod(problem.source_shape[1:3])
        ),
        "pixels outside the clip have a gradient": of_result(
            lambda result, problem, g: np.broadcast_to(g / problem.count, result.shape)
        ),
        "the first pixel has the whole gradient": of_result(_one_pixel),
        "the origin of the clip is ignored": of_problem(_clip_at_origin),
        "pixels outside the clip are 0 times the gradient": of_result(
            lambda result, problem, g: result + 0 * np.broadcast_to(g, result.shape)
        ),
    },
}

# --- golden results ---------------------------------------------------------------------------------------------------


def _golden_spatial_mean(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    y = Reduce("mean", "spatial").forward(entry.image("x"), backend=backend)
    yield Comparison("y", y, entry.expected["y"])


_COMMON = (repeatable, one_image_at_a_time, adjoint(both))

FAMILY = Family(
    "reduce",
    {
        Reduce: KernelTests(
            problems,
            {"forward": (*_COMMON, first_of_equals, extrema_of_nan), "gradient": _COMMON},
            nonfinite=("forward", "gradient"),
        )
    },
    MUTANTS,
    {"MPSNNReductionSpatialMeanNode": _golden_spatial_mean},
)
