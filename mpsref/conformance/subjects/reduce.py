"""Reductions under test."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import repeatable
from mpsref.conformance.runner import compute
from mpsref.conformance.subject import Subject, pairs
from mpsref.conformance.subjects.linear import adjoint, one_image_at_a_time
from mpsref.kernels import Reduce
from mpsref.kernels.reduce import OPERATIONS, OVER, Over, ReduceForward, ReduceGradient, Reduction, is_legal
from mpsref.registry import Backend, Problem, Spec

__all__ = ["SUBJECTS"]

COMBINATIONS: list[tuple[Reduction, Over]] = [
    ("sum", "featurechannels"),
    ("mean", "spatial"),
    *((operation, over) for operation in OPERATIONS for over in OVER if is_legal(operation, over)),
]
"""Those with a parameter or a rule of their own come twice."""

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))


@st.composite
def reductions(draw: st.DrawFn, method: str) -> Problem:
    """Draw every legal combination; clips reach beyond the image, and always overlap it."""
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


def both(problem: Problem) -> tuple[Problem, Problem] | None:
    """Return the forward and the gradient problem of a spatial mean."""
    assert isinstance(problem, (ReduceForward, ReduceGradient))
    if problem.spec.over != "spatial":
        return None
    return ReduceForward(problem.spec, problem.source_shape), ReduceGradient(problem.spec, problem.source_shape)


def first_of_equals(case: Case, backend: Backend) -> None:
    """Of equal extrema the first has the index, whatever the case reduces: images of -1, 0 and 1 are full of them."""
    assert isinstance(case.problem, ReduceForward)
    signs = np.sign(case.inputs()[0])
    (y, x), (height, width) = case.problem.region
    part = signs[:, y : y + height, x : x + width]
    indices: dict[Reduction, Array] = {"argumentmax": part.argmax(3), "argumentmin": part.argmin(3)}
    for operation, index in indices.items():
        spec = Reduce(operation, "featurechannels", clip=case.problem.spec.clip)
        (found,) = compute(ReduceForward(spec, signs.shape), backend, signs)
        if not np.array_equal(found[..., 0], index):
            raise Mismatch(f"first of equals: {operation} is {found.ravel().tolist()} for {part.tolist()}")


_EVERY = (repeatable, one_image_at_a_time, adjoint(both))

SUBJECTS: Mapping[type[Spec], Subject] = {
    Reduce: Subject(reductions, {"forward": (*_EVERY, first_of_equals), "gradient": _EVERY})
}
