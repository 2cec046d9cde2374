"""Upsampling, bilinear resize and crop under test."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from hypothesis import strategies as st

from mpsref.conformance import comparator
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import repeatable
from mpsref.conformance.runner import compute, expected
from mpsref.conformance.subject import Subject, pairs
from mpsref.conformance.subjects.linear import adjoint, one_image_at_a_time
from mpsref.geometry import EDGE_MODES
from mpsref.kernels import CropAndResizeBilinear, ResizeBilinear, UpsamplingBilinear, UpsamplingNearest
from mpsref.kernels.crop_and_resize import Box, CropAndResizeForward
from mpsref.kernels.resize import ResizeForward
from mpsref.kernels.upsampling import Upsampling, UpsamplingProblem
from mpsref.registry import Backend, Problem, Spec

__all__ = ["SUBJECTS"]

SHAPES = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
BILINEAR = {"align_corners": st.booleans(), "edge_mode": st.sampled_from(EDGE_MODES)}


def upsampling(spec_type: type[Upsampling], method: str) -> st.SearchStrategy[Problem]:
    """Draw factors from 1 to 5, powers of two more often: then nothing is rounded."""
    scales = pairs(1, 5) | st.tuples(*[st.sampled_from([1, 2, 4])] * 2)
    options = BILINEAR if spec_type is UpsamplingBilinear else {}
    return st.builds(spec_type.problems[method], st.builds(spec_type, scales, **options), SHAPES)


def resizes(method: str) -> st.SearchStrategy[Problem]:
    """Draw sizes smaller and larger than the image."""
    return st.builds(ResizeForward, st.builds(ResizeBilinear, pairs(1, 12), BILINEAR["align_corners"]), SHAPES)


def boxes() -> st.SearchStrategy[Box]:
    """Draw boxes inside an image, across its edges and beside it; corners in eighths, or any numbers."""
    coordinate = st.integers(-6, 14).map(lambda eighths: eighths / 8) | st.floats(-0.75, 1.75, width=32)
    axis = st.tuples(coordinate, coordinate).map(sorted)
    return st.tuples(axis, axis).map(lambda axes: (axes[0][0], axes[1][0], axes[0][1], axes[1][1]))


def crops(method: str) -> st.SearchStrategy[Problem]:
    """Draw boxes, and sizes smaller and larger than they are."""
    sizes = pairs(1, 12) | pairs(1, 3)  # a single output has a rule of its own
    return st.builds(CropAndResizeForward, st.builds(CropAndResizeBilinear, sizes, boxes()), SHAPES)


def both(problem: Problem) -> tuple[Problem, Problem]:
    """Return the forward and the gradient problem of the same shapes."""
    assert isinstance(problem, UpsamplingProblem)
    problems = problem.spec.problems
    forward, gradient = (problems[method](problem.spec, problem.source_shape) for method in ("forward", "gradient"))
    return forward, gradient


def factor_1_is_a_copy(case: Case, backend: Backend) -> None:
    """Both directions of a factor of 1 are the identity."""
    problem = case.problem
    assert isinstance(problem, UpsamplingProblem)
    if problem.spec.factors != (1, 1):
        return
    (image,), (result,) = case.inputs(), compute(problem, backend, *case.inputs())
    if not np.array_equal(image, result):
        raise Mismatch("factor 1 is a copy: the result is not the image")


def the_total_stays(case: Case, backend: Backend) -> None:
    """Weights of an output add up to 1, but for zeros outside: the gradient hands out all of g."""
    problem = case.problem
    assert isinstance(problem, UpsamplingProblem)
    spec = problem.spec
    if isinstance(spec, UpsamplingBilinear) and spec.edge_mode == "zero" and not spec.align_corners:
        return
    (g,), (dx,) = case.inputs(), compute(problem, backend, *case.inputs())
    ((reference, terms),) = expected(case)
    with np.errstate(invalid="ignore"):  # a wrong result may be anything
        limit = comparator.bound(dx, reference, terms).sum((1, 2)) + 1e-12 * np.abs(g.astype(np.float64)).sum((1, 2))
        missing = np.abs(dx.sum((1, 2), np.float64) - g.sum((1, 2), np.float64))
    if not (missing <= limit).all():
        raise Mismatch(f"the total stays: sums of dx and g differ by {missing.max():.3g}, not by {limit.max():.3g}")


_FORWARD = (repeatable, one_image_at_a_time, adjoint(both), factor_1_is_a_copy)
_GRADIENT = (*_FORWARD, the_total_stays)

SUBJECTS: Mapping[type[Spec], Subject] = {
    UpsamplingNearest: Subject(partial(upsampling, UpsamplingNearest), {"forward": _FORWARD, "gradient": _GRADIENT}),
    UpsamplingBilinear: Subject(partial(upsampling, UpsamplingBilinear), {"forward": _FORWARD, "gradient": _GRADIENT}),
    ResizeBilinear: Subject(resizes, {"forward": (repeatable, one_image_at_a_time)}),
    CropAndResizeBilinear: Subject(crops, {"forward": (repeatable, one_image_at_a_time)}),
}
