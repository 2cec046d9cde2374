"""Instance, group, spatial, local contrast and cross-channel normalization under test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator, runner
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import batch_in_pieces, repeatable, same
from mpsref.conformance.runner import compute, expected
from mpsref.conformance.subject import Subject, pairs, seldom
from mpsref.kernels import (
    CrossChannelNormalization,
    GroupNormalization,
    InstanceNormalization,
    LocalContrastNormalization,
    SpatialNormalization,
)
from mpsref.kernels.group_normalization import ALL_VALUES, GroupsProblem, statistics
from mpsref.kernels.normalization import FLT_MIN
from mpsref.kernels.normalization_windows import WindowedForward
from mpsref.registry import Backend, Problem, Spec

__all__ = ["SUBJECTS"]

FLAG = st.booleans()

# --- problems ---------------------------------------------------------------------------------------------------------


def epsilons(method: str) -> st.SearchStrategy[float]:
    """Draw epsilon. The gradient of a constant group is as large as rounding makes it if epsilon is tiny."""
    return st.sampled_from([1e-5, 1e-3, 0.5, 3.0, *([FLT_MIN] if method == "forward" else [])])


@st.composite
def grouped(draw: st.DrawFn, kind: type[Spec], method: str) -> Problem:
    """Draw a problem of instance or group normalization: from one pixel on, with and without parameters."""
    n, height, width = draw(st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)))
    epsilon = draw(epsilons(method))
    spec: Spec
    if kind is InstanceNormalization:
        spec, channels = InstanceNormalization(epsilon), draw(st.integers(1, 9))
    else:
        groups = draw(st.integers(1, 4))
        spec, channels = GroupNormalization(groups, epsilon), groups * draw(st.integers(1, 4))
    flags = {"scaled": draw(seldom(True, FLAG))} | (
        {"shifted": draw(seldom(True, FLAG))} if method == "forward" else {}
    )
    problem: Problem = kind.problems[method](spec, (n, height, width, channels), **flags)
    return problem


QUARTERS = st.sampled_from([0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0])
SLOPES: dict[str, st.SearchStrategy[float]] = {
    "alpha": st.sampled_from([0.0, 0.1, 1.0, 4.0]) | st.sampled_from([1.0, 4.0]),
    "beta": QUARTERS | st.sampled_from([0.3, -1.25]),
    "delta": st.sampled_from([0.125, 1.0, 2.0]),
}
"""Parameters whose base is far from 0, and whose powers stay in range."""


def windowed(kind: type[Spec], method: str) -> st.SearchStrategy[Problem]:
    """Draw a problem of spatial or local contrast normalization: windows partly and wholly outside, odd and even."""
    own = {name: st.sampled_from([0.0, 1.0, 0.5, -2.0]) for name in ("p0", "pm")} | {"ps": st.sampled_from([1.0, -2.0])}
    specs = st.builds(
        kind,
        kernel_size=pairs(1, 5),
        offset=seldom((0, 0), pairs(-3, 4)) | pairs(-1, 1),
        **SLOPES,
        **(own if kind is LocalContrastNormalization else {}),
    )
    shapes = st.tuples(st.integers(1, 2), st.integers(1, 8), st.integers(1, 8), st.integers(1, 6))
    return st.builds(kind.problems[method], specs, shapes, pairs(1, 8))


def along_channels(method: str) -> st.SearchStrategy[Problem]:
    """Draw a problem of cross-channel normalization: windows up to twice as large as the image has channels."""
    specs = st.builds(CrossChannelNormalization, kernel_size=st.integers(1, 7) | st.integers(1, 24), **SLOPES)
    shapes = st.tuples(st.integers(1, 2), st.integers(1, 5), st.integers(1, 5), st.integers(1, 12))
    return st.builds(CrossChannelNormalization.problems[method], specs, shapes)


# --- properties -------------------------------------------------------------------------------------------------------


def outcomes(problem: Problem, backend: Backend, inputs: tuple[Array, ...]) -> list[tuple[Array, Array]]:
    """Return every result, and how far each of its elements may be from the reference on these inputs."""
    results = compute(problem, backend, *inputs)
    references, terms = runner.references(problem, *inputs), runner.terms(problem, *inputs)
    with np.errstate(invalid="ignore"):  # a NaN is for the caller to find
        return [(each[0], comparator.bound(*each)) for each in zip(results, references, terms, strict=True)]


def near(name: str, first: Array, second: Array, limit: Array) -> None:
    """Require that two quantities differ by no more than ``limit``."""
    with np.errstate(invalid="ignore"):  # infinities, where float16 ends
        distance = np.abs(first.astype(np.float64) - second)
    wrong = ~((first == second) | (distance <= limit))
    if wrong.any():
        at = tuple(int(k) for k in np.argwhere(wrong)[0])
        raise Mismatch(f"{name}: they differ by {distance[at]:.3g} at {list(at)}, and by {limit[at]:.3g} at most", at)


def with_input(case: Case, name: str, change: Callable[[Array], Array]) -> tuple[Array, ...]:
    """Return the inputs of a case with one of them changed."""
    arrays = zip(case.problem.input_shapes, case.inputs(), strict=True)
    return tuple(change(array).astype(array.dtype) if known == name else array for known, array in arrays)


def images_by_themselves(case: Case, backend: Backend) -> None:
    """One image at a time gives the same results, parameter gradients included."""
    problem = case.problem
    assert isinstance(problem, GroupsProblem)
    inputs, n = case.inputs(), problem.source_shape[0]
    if n < 2:
        return
    piece = replace(problem, source_shape=(1, *problem.source_shape[1:]))
    parts = [
        compute(piece, backend, *(array[k : k + 1] if array.ndim == 4 else array for array in inputs)) for k in range(n)
    ]
    together = [np.concatenate(results) for results in zip(*parts, strict=True)]
    for whole, joined, (_, terms) in zip(compute(problem, backend, *inputs), together, expected(case), strict=True):
        same("images by themselves", whole, joined, terms)


def a_shift_changes_nothing(case: Case, backend: Backend) -> None:
    """Images that are larger by the same number everywhere give the same; in eighths, so that the sum is exact."""
    eighths = with_input(case, "x", lambda x: np.clip(np.round(x * 8) / 8, -60, 60))
    moved = tuple(
        array + array.dtype.type(128) if name == "x" else array
        for name, array in zip(case.problem.input_shapes, eighths, strict=True)
    )
    both = zip(outcomes(case.problem, backend, eighths), outcomes(case.problem, backend, moved), strict=True)
    for (first, limit), (second, other) in both:
        near("a shift changes nothing", first, second, limit + other)


def a_scale_changes_nothing(case: Case, backend: Backend) -> None:
    """Images four times as large give the same, with epsilon 16 times as large."""
    problem: Any = case.problem
    larger = replace(problem, spec=replace(problem.spec, epsilon=16 * problem.spec.epsilon))
    enlarged = with_input(case, "x", lambda x: 4 * x)
    (first,), (second,) = compute(problem, backend, *case.inputs()), compute(larger, backend, *enlarged)
    same("a scale changes nothing", first, second, expected(case)[0][1])


def means_are_beta(case: Case, backend: Backend) -> None:
    """Without gamma and beta, each group of the result has the mean 0."""
    problem: Any = replace(case.problem, scaled=False, shifted=False)  # type: ignore[call-arg]
    ((y, limit),) = outcomes(problem, backend, case.inputs()[:1])
    sums_vanish("means are beta", problem, y, limit)


def gradients_sum_to_0(case: Case, backend: Backend) -> None:
    """dx sums to 0 over each group: a shift of x changes nothing."""
    problem = case.problem
    assert isinstance(problem, GroupsProblem)
    (dx, limit), *_ = outcomes(problem, backend, case.inputs())
    sums_vanish("gradients sum to 0", problem, dx, limit)


def sums_vanish(name: str, problem: GroupsProblem, values: Array, limit: Array) -> None:
    """Require sums over groups that are 0 within the bounds of their terms."""
    total, allowed = (
        array.astype(np.float64).reshape(problem.grouped_shape).sum(ALL_VALUES) for array in (values, limit)
    )
    near(name, total, np.zeros_like(total), allowed + 1e-12 * np.abs(values.astype(np.float64)).max(initial=0))


def gradients_along_x(case: Case, backend: Backend) -> None:
    """dx * xhat sums to ``r * epsilon / (variance + epsilon) * sum(h * xhat)``: nothing, but for epsilon."""
    problem: Any = case.problem
    inputs = case.inputs()
    g, x, *vectors = (array.astype(np.float64) for array in inputs)
    (dx, limit), *_ = outcomes(problem, backend, inputs)
    centred, deviation = statistics(problem, x)
    xhat, h = centred / deviation, (g * problem.parameters(tuple(vectors), float)).reshape(centred.shape)
    total = (dx.astype(np.float64).reshape(xhat.shape) * xhat).sum(ALL_VALUES, keepdims=True)
    due = (h * xhat).sum(ALL_VALUES, keepdims=True) * problem.spec.epsilon / deviation**3
    allowed = (limit.reshape(xhat.shape) * np.abs(xhat)).sum(ALL_VALUES, keepdims=True)
    terms = np.abs(h * xhat).sum(ALL_VALUES, keepdims=True) / deviation
    near("gradients along x", total, due, allowed + 1e-12 * terms)


def an_instance_is_a_group(case: Case, backend: Backend) -> None:
    """Instance normalization is group normalization with a group for each channel."""
    problem: Any = case.problem
    spec = GroupNormalization(problem.source_shape[3], problem.spec.epsilon)
    if backend.why_not((GroupNormalization, problem.method), spec):
        return
    inputs = case.inputs()
    both = compute(problem, backend, *inputs), compute(replace(problem, spec=spec), backend, *inputs)
    for first, second, (_, terms) in zip(*both, expected(case), strict=True):
        same("an instance is a group", first, second, terms)


def an_offset_is_a_part(case: Case, backend: Backend) -> None:
    """With an offset of (1, 1) more, outputs are those of the next pixels."""
    problem: Any = case.problem
    oy, ox = problem.spec.offset
    moved = replace(problem, spec=replace(problem.spec, offset=(oy + 1, ox + 1)))
    larger = replace(problem, output_size=tuple(n + 1 for n in problem.output_size))
    (x,) = case.inputs()
    ((whole, limit),), (part,) = outcomes(larger, backend, (x,)), compute(moved, backend, x)
    near("an offset is a part", whole[:, 1:, 1:], part, 2 * limit[:, 1:, 1:])


def zeros_around_change_nothing(case: Case, backend: Backend) -> None:
    """One more row and column of zeros in front is undone by an offset of (1, 1) more; the gradient has them too."""
    problem: Any = case.problem
    n, height, width, channels = problem.source_shape
    oy, ox = problem.spec.offset
    spec = replace(problem.spec, offset=(oy + 1, ox + 1))
    moved = replace(problem, spec=spec, source_shape=(n, height + 1, width + 1, channels))
    *g, x = case.inputs()
    (first,) = compute(problem, backend, *g, x)
    (second,) = compute(moved, backend, *g, np.pad(x, ((0, 0), (1, 0), (1, 0), (0, 0))))
    second = second if isinstance(problem, WindowedForward) else second[:, 1:, 1:]
    same("zeros around change nothing", first, second, expected(case)[0][1])


def linear_in_g(case: Case, backend: Backend) -> None:
    """The gradients from every second pixel of g, and from the others, add up to that from all of them."""
    g, *others = case.inputs()
    even = (np.indices(g.shape[1:3]).sum(axis=0) % 2 == 0)[None, :, :, None]
    ((whole, limit),) = outcomes(case.problem, backend, (g, *others))
    ((first, one),), ((second, other),) = (
        outcomes(case.problem, backend, (g * mask, *others)) for mask in (even, ~even)
    )
    if all(np.isfinite(result).all() for result in (whole, first, second)):  # nothing is beyond the end of float16
        near("linear in g", whole, first.astype(np.float64) + second, limit + one + other)


def odd_in_x(case: Case, backend: Backend) -> None:
    """The negative image gives the negative result, but for what is added to it."""
    problem: Any = case.problem
    if getattr(problem.spec, "pm", 0):
        return
    (x,) = case.inputs()
    (first,), (second,) = compute(problem, backend, x), compute(problem, backend, -x)
    same("odd in x", first, -second, expected(case)[0][1])


def pixels_by_themselves(case: Case, backend: Backend) -> None:
    """All pixels of the batch in one row give the same."""
    problem: Any = case.problem
    row = 1, 1, -1, problem.source_shape[3]
    inputs = case.inputs()
    flat = replace(problem, source_shape=inputs[0].reshape(row).shape)
    (first,), (second,) = compute(problem, backend, *inputs), compute(flat, backend, *(a.reshape(row) for a in inputs))
    same("pixels by themselves", first, second.reshape(first.shape), expected(case)[0][1])


def odd_windows_are_symmetric(case: Case, backend: Backend) -> None:
    """With an odd window, reversing the channels reverses the result."""
    problem: Any = case.problem
    if problem.spec.kernel_size % 2 == 0:
        return
    inputs = case.inputs()
    (first,) = compute(problem, backend, *inputs)
    (second,) = compute(problem, backend, *(np.ascontiguousarray(array[..., ::-1]) for array in inputs))
    same("odd windows are symmetric", first, second[..., ::-1], expected(case)[0][1])


# --- the table --------------------------------------------------------------------------------------------------------

GROUPED = (repeatable, images_by_themselves, a_shift_changes_nothing)
GROUPED_FORWARD = (*GROUPED, a_scale_changes_nothing, means_are_beta)
GROUPED_GRADIENT = (*GROUPED, gradients_sum_to_0, gradients_along_x)
WINDOWED = (repeatable, batch_in_pieces, zeros_around_change_nothing)
CHANNELS = (repeatable, batch_in_pieces, pixels_by_themselves, odd_windows_are_symmetric)

SUBJECTS: Mapping[type[Spec], Subject] = {
    InstanceNormalization: Subject(
        partial(grouped, InstanceNormalization),
        {
            "forward": (*GROUPED_FORWARD, an_instance_is_a_group),
            "gradient": (*GROUPED_GRADIENT, an_instance_is_a_group),
        },
    ),
    GroupNormalization: Subject(
        partial(grouped, GroupNormalization), {"forward": GROUPED_FORWARD, "gradient": GROUPED_GRADIENT}
    ),
    **{
        kind: Subject(
            partial(windowed, kind),
            {"forward": (*WINDOWED, an_offset_is_a_part, odd_in_x), "gradient": (*WINDOWED, linear_in_g)},
        )
        for kind in (SpatialNormalization, LocalContrastNormalization)
    },
    CrossChannelNormalization: Subject(
        along_channels, {"forward": (*CHANNELS, odd_in_x), "gradient": (*CHANNELS, linear_in_g)}
    ),
}
