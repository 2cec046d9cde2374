"""The pooling kernels under test: random problems that shrink to small ones, and their properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import batch_in_pieces, repeatable, same
from mpsref.conformance.runner import compute, expected
from mpsref.conformance.subject import Subject, often, pairs, seldom
from mpsref.geometry import EDGE_MODES
from mpsref.kernels import PoolingAverage, PoolingL2Norm, PoolingMax
from mpsref.kernels.pooling import Pooling, PoolingForward, PoolingGradient
from mpsref.registry import Backend, Problem, Spec

__all__ = ["SUBJECTS", "problems", "specs"]


def specs(spec_type: type[Pooling]) -> st.SearchStrategy[Pooling]:
    """Draw parameters: windows from one pixel to larger than the image, partly and wholly outside it."""
    own = {"zero_pad_size": pairs(0, 3), "dilations": often((1, 1), pairs(1, 4))}
    return st.builds(
        spec_type,
        kernel_size=pairs(1, 5) | pairs(1, 16),
        strides=pairs(1, 4),
        offset=pairs(0, 1) | pairs(-3, 3) | seldom((1, 1), pairs(-6, 9)),
        edge_mode=st.sampled_from(EDGE_MODES),
        **{field.name: own[field.name] for field in fields(spec_type) if field.name in own},
    )


def problems(spec_type: type[Pooling], method: str) -> st.SearchStrategy[Problem]:
    """Draw problems of one operation of a pooling kernel."""
    shapes = st.tuples(st.integers(1, 3), st.integers(1, 12), st.integers(1, 12), st.integers(1, 9))
    sizes = pairs(1, 9)
    if method == "forward":
        call: dict[str, st.SearchStrategy[Any]] = {"output_size": sizes}
    else:
        call = {
            "gradient_size": sizes,
            "primary_offset": seldom((0, 0), pairs(-2, 3)),
            "source_size": often(None, pairs(1, 9) | pairs(0, 9)),
            "kernel_offset": seldom(None, pairs(-3, 3)),
            "clip": seldom(None, st.tuples(pairs(0, 4), pairs(1, 13) | pairs(0, 13))),
        }
    return st.builds(spec_type.problems[method], specs(spec_type), shapes, **call)


def adjoint(case: Case, backend: Backend) -> None:
    """<A x, g> = <x, A^T g> for a linear kernel: the gradient is the forward pass with the arrow reversed."""
    problem = case.problem
    both = ((type(problem.spec), method) for method in ("forward", "gradient"))
    if any(backend.why_not(operation, problem.spec) for operation in both):
        return
    if isinstance(problem, PoolingGradient):
        problem = replace(problem, kernel_offset=None, clip=None)
        (py, px), (rows, columns) = problem.primary_offset, problem.included
        if not rows or not columns:
            return
        forward = problem.spec.problems["forward"](problem.spec, problem.source_shape, (rows.stop, columns.stop))
        used = rows.start, rows.stop, columns.start, columns.stop
        pixels = py + rows.start, py + rows.stop, px + columns.start, px + columns.stop
    else:
        assert isinstance(problem, PoolingForward)
        forward, used = problem, (0, problem.output_size[0], 0, problem.output_size[1])
        problem = problem.spec.problems["gradient"](problem.spec, problem.source_shape, problem.output_size)
        pixels = used
    cases = [replace(case, problem=forward), replace(case, problem=problem, seed=case.seed + 1)]
    (x,), (g,) = (each.inputs() for each in cases)
    (y,), (dx,) = compute(forward, backend, x), compute(problem, backend, g)
    (y_bound,), (dx_bound,) = (
        [comparator.bound(result, reference, terms) for reference, terms in expected(each)]
        for each, result in zip(cases, (y, dx), strict=True)
    )
    y, x, dx, g = (array.astype(np.float64) for array in (_part(y, used), x, dx, _part(g, pixels)))
    left, right = float(np.sum(y * g)), float(np.sum(dx * x))
    limit = float(np.sum(_part(y_bound, used) * np.abs(g)) + np.sum(dx_bound * np.abs(x)))
    limit += 1e-12 * float(np.sum(np.abs(dx * x)))  # the float64 sums themselves
    if not abs(left - right) <= limit:
        raise Mismatch(f"adjoint: <A x, g> = {left:.9g}, <x, A^T g> = {right:.9g}; they may differ by {limit:.3g}")


def _part(image: Array, bounds: tuple[int, int, int, int]) -> Array:
    y0, y1, x0, x1 = bounds
    return image[:, y0:y1, x0:x1]


def clip_is_a_part(case: Case, backend: Backend) -> None:
    """With canonical alignment a clip gives that part of the whole gradient, and zeros outside."""
    problem = case.problem
    assert isinstance(problem, PoolingGradient)
    if problem.clip is None:
        return
    inputs = case.inputs()
    whole = replace(case, problem=replace(problem, kernel_offset=None, clip=None))
    (full,) = compute(whole.problem, backend, *inputs)
    (part,) = compute(replace(problem, kernel_offset=None), backend, *inputs)
    (y0, x0), (height, width) = problem.clip
    masked = np.zeros_like(full)
    masked[:, y0 : y0 + height, x0 : x0 + width] = full[:, y0 : y0 + height, x0 : x0 + width]
    same("clip is a part", part, masked, expected(whole)[0][1])


def joint_shift(case: Case, backend: Backend) -> None:
    """Effective offset: (p0 - 1, ko + s, o - s) is the same gradient, as long as the same pixels count."""
    problem = case.problem
    assert isinstance(problem, PoolingGradient)
    (sy, oy), (sx, ox) = ((window.stride, window.offset) for window in problem.spec.windows)
    start = replace(problem, primary_offset=(0, 0))
    ko, size = problem.kernel_offset, problem.source_size
    shifted = replace(
        start,
        spec=replace(problem.spec, offset=(oy - sy, ox - sx)),
        primary_offset=(-1, -1),
        kernel_offset=ko and (ko[0] + sy, ko[1] + sx),
        source_size=size and (size[0] + 1, size[1] + 1),
    )
    inputs = case.inputs()
    (first,), (second,) = compute(start, backend, *inputs), compute(shifted, backend, *inputs)
    same("joint shift", first, second, expected(replace(case, problem=start))[0][1])


def translation(case: Case, backend: Backend) -> None:
    """With zeros around the image, one more zero row and column in front is undone by an offset of one more."""
    problem = case.problem
    assert isinstance(problem, PoolingForward)
    if problem.spec.edge_mode != "zero":
        return
    n, height, width, c = problem.source_shape
    oy, ox = (window.offset for window in problem.spec.windows)
    moved = replace(
        problem,
        spec=replace(problem.spec, offset=(oy + 1, ox + 1)),
        source_shape=(n, height + 1, width + 1, c),
    )
    (x,) = case.inputs()
    (first,) = compute(problem, backend, x)
    (second,) = compute(moved, backend, np.pad(x, ((0, 0), (1, 0), (1, 0), (0, 0))))
    same("translation", first, second, expected(case)[0][1])


def all_is_given_back(case: Case, backend: Backend) -> None:
    """With "clamp" every window of max pooling selects a pixel: dx sums to what the included g sum to."""
    problem = case.problem
    assert isinstance(problem, PoolingGradient)
    if problem.spec.edge_mode == "zero":
        return
    problem = replace(problem, kernel_offset=None, clip=None)
    (py, px), (rows, columns) = problem.primary_offset, problem.included
    g, x = case.inputs()
    (dx,) = compute(problem, backend, g, x)
    ((reference, terms),) = expected(replace(case, problem=problem))
    limit = comparator.bound(dx, reference, terms).sum((1, 2))
    given = _part(g, (py + rows.start, py + rows.stop, px + columns.start, px + columns.stop)).sum((1, 2), np.float64)
    missing = np.abs(dx.sum((1, 2), np.float64) - given)
    if not (missing <= limit).all():
        raise Mismatch(f"all is given back: sums of dx and g differ by {missing.max():.3g}, not by {limit.max():.3g}")


_FORWARD = (repeatable, batch_in_pieces, translation)
_GRADIENT = (repeatable, batch_in_pieces, clip_is_a_part, joint_shift)

SUBJECTS: Mapping[type[Spec], Subject] = {
    PoolingAverage: Subject(
        partial(problems, PoolingAverage), {"forward": (*_FORWARD, adjoint), "gradient": (*_GRADIENT, adjoint)}
    ),
    PoolingMax: Subject(
        partial(problems, PoolingMax), {"forward": _FORWARD, "gradient": (*_GRADIENT, all_is_given_back)}
    ),
    PoolingL2Norm: Subject(partial(problems, PoolingL2Norm), {"forward": _FORWARD, "gradient": _GRADIENT}),
}
