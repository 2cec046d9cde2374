"""Concatenation, slice, padding and reshape under test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import repeatable
from mpsref.conformance.runner import compute
from mpsref.conformance.subject import Subject, often, seldom
from mpsref.conformance.subjects.linear import adjoint, one_image_at_a_time
from mpsref.kernels import Concatenation, Pad, Reshape, Slice
from mpsref.kernels.concatenation import ConcatenationForward, ConcatenationGradient, ConcatenationProblem
from mpsref.kernels.pad import EDGES
from mpsref.kernels.reshape import ORDERS
from mpsref.registry import Backend, ImageProblem, Problem, Spec

__all__ = ["SUBJECTS"]

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))


@st.composite
def concatenation(draw: st.DrawFn, method: str) -> Problem:
    """Draw channel counts from 1 to 9, so that every remainder of the alignment occurs."""
    spec = Concatenation(draw(often(4, st.integers(1, 6))))
    batch = draw(SHAPES)[:3]
    channels = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    problem: Problem = spec.problems[method](spec, batch, channels)
    return problem


@st.composite
def slices(draw: st.DrawFn, method: str) -> Problem:
    """Draw boxes inside the image, across its edges and wholly outside."""
    shape = draw(SHAPES)
    offset, size = [], []
    for length in shape[1:3]:
        offset.append(draw(st.integers(0, length - 1) | st.integers(-4, length - 1)))
        size.append(draw(st.none() | st.integers(1, 8)))
    first = draw(st.integers(0, shape[3] - 1))
    y, x = offset
    height, width = size
    spec = Slice((y, x, first), (height, width, draw(st.none() | st.integers(1, shape[3] - first))))
    problem: Problem = spec.problems[method](spec, shape)
    return problem


@st.composite
def padding(draw: st.DrawFn, method: str) -> Problem:
    """Draw all edge modes; padding is often wider than the image, so that it is mirrored several times."""
    shape = draw(SHAPES)
    sizes = st.tuples(st.integers(0, 3), st.integers(0, 3) | st.integers(0, 9), often(0, st.integers(0, 3)))
    before, after = draw(sizes), draw(sizes)
    edges = st.sampled_from(EDGES)
    edge_mode = draw(edges | seldom("constant", edges) if method == "forward" else edges)
    fills = None
    if edge_mode == "constant" and draw(st.booleans()):
        channels = before[2] + shape[3] + after[2]
        fills = tuple(draw(st.lists(st.integers(-8, 8).map(float), min_size=channels, max_size=channels)))
    spec = Pad(before, after, edge_mode, draw(st.sampled_from([-1.5, 0.1])), fills)
    problem: Problem = spec.problems[method](spec, shape)
    return problem


@st.composite
def reshapes(draw: st.DrawFn, method: str) -> Problem:
    """Draw three factors of the number of elements for the new size."""
    n, *lengths = draw(SHAPES)
    elements = int(np.prod(lengths))
    height = draw(st.sampled_from([k for k in range(1, elements + 1) if elements % k == 0]))
    rest = elements // height
    width = draw(st.sampled_from([k for k in range(1, rest + 1) if rest % k == 0]))
    spec = Reshape((height, width, rest // width), draw(st.sampled_from(ORDERS)))
    problem: Problem = spec.problems[method](spec, (n, *lengths))
    return problem


def round_trip(case: Case, backend: Backend) -> None:
    """The slices of a concatenation are what went in."""
    problem = case.problem
    assert isinstance(problem, ConcatenationProblem)
    fields = problem.spec, problem.batch_shape, problem.channels
    forward, gradient = ConcatenationForward(*fields), ConcatenationGradient(*fields)
    if any(backend.why_not(one.operation, one.spec) for one in (forward, gradient)):
        return
    sources = replace(case, problem=forward).inputs()
    slices = compute(gradient, backend, *compute(forward, backend, *sources))
    for k, (source, part) in enumerate(zip(sources, slices, strict=True)):
        if not np.array_equal(source, part):
            raise Mismatch(f"round trip: slice {k} of the concatenation is not source {k}")


def both(problem: Problem) -> tuple[Problem, Problem]:
    """Return the forward and the gradient problem of the same shapes."""
    if isinstance(problem, ConcatenationProblem):
        fields = problem.spec, problem.batch_shape, problem.channels
        return ConcatenationForward(*fields), ConcatenationGradient(*fields)
    assert isinstance(problem, ImageProblem)
    spec = problem.spec
    if isinstance(spec, Pad) and spec.edge_mode == "constant":
        spec = replace(spec, edge_mode="zero")  # linear only where nothing is added
    forward, gradient = (spec.problems[method](spec, problem.source_shape) for method in ("forward", "gradient"))
    return forward, gradient


_EVERY = (repeatable, one_image_at_a_time, adjoint(both))
_CONCATENATION = (*_EVERY, round_trip)

SUBJECTS: Mapping[type[Spec], Subject] = {
    Concatenation: Subject(concatenation, {"forward": _CONCATENATION, "gradient": _CONCATENATION}),
    Slice: Subject(slices, {"forward": _EVERY, "gradient": _EVERY}),
    Pad: Subject(padding, {"forward": _EVERY, "gradient": _EVERY}),
    Reshape: Subject(reshapes, {"forward": _EVERY, "gradient": _EVERY}),
}
