"""Tests of instance and group normalization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias, cast

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case
from mpsref.conformance.family import KernelTests
from mpsref.conformance.mutants import (
    MutantTable,
    computed,
    correct,
    correct_results,
    of_problem,
    of_results,
)
from mpsref.conformance.properties import (
    EquivalentProblem,
    equivalent,
    near,
    one_image_at_a_time,
    repeatable,
    with_limits,
)
from mpsref.conformance.strategies import seldom
from mpsref.kernels import GroupNormalization, InstanceNormalization
from mpsref.kernels.group_normalization import (
    ALL_VALUES,
    GroupsProblem,
    NormalizationForward,
    NormalizationGradient,
    statistics,
)
from mpsref.kernels.normalization import FLT_MIN
from mpsref.registry import Backend, Implementation, Problem, Spec

NormalizationProblem: TypeAlias = NormalizationForward | NormalizationGradient

# --- strategies -------------------------------------------------------------------------------------------------------

_FLAG = st.booleans()


def _epsilons(method: str) -> st.SearchStrategy[float]:
    """Draw epsilon. With a tiny one, the gradient of a constant group is as large as rounding makes it."""
    return st.sampled_from([1e-5, 1e-3, 0.5, 3.0, *([FLT_MIN] if method == "forward" else [])])


@st.composite
def problems(draw: st.DrawFn, kind: type[Spec], method: str) -> Problem:
    """Draw a problem of either kernel: from one pixel on, with and without parameters."""
    n, height, width = draw(st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)))
    epsilon = draw(_epsilons(method))
    spec: Spec
    if kind is InstanceNormalization:
        spec, channels = InstanceNormalization(epsilon), draw(st.integers(1, 9))
    else:
        groups = draw(st.integers(1, 4))
        spec, channels = GroupNormalization(groups, epsilon), groups * draw(st.integers(1, 4))
    flags = {"scaled": draw(seldom(True, _FLAG))} | (
        {"shifted": draw(seldom(True, _FLAG))} if method == "forward" else {}
    )
    problem: Problem = kind.problems[method](spec, (n, height, width, channels), **flags)
    return problem


# --- properties -------------------------------------------------------------------------------------------------------


def _with_x(problem: Problem, inputs: tuple[Array, ...], change: Callable[[Array], Array]) -> tuple[Array, ...]:
    """Return the inputs with another x."""
    arrays = zip(problem.input_shapes, inputs, strict=True)
    return tuple(change(array).astype(array.dtype) if name == "x" else array for name, array in arrays)


def shift_invariant(case: Case, backend: Backend) -> None:
    """A constant added to the image changes nothing. The image is in eighths, so that the addition is exact."""
    eighths = _with_x(case.problem, case.inputs(), lambda x: np.clip(np.round(x * 8) / 8, -60, 60))
    moved = _with_x(case.problem, eighths, lambda x: x + x.dtype.type(128))
    both = zip(with_limits(case.problem, backend, eighths), with_limits(case.problem, backend, moved), strict=True)
    for (first, limit), (second, other) in both:
        near("shift invariant", first, second, limit + other)


@equivalent
def scale_invariant(problem: GroupsProblem, *inputs: Array) -> EquivalentProblem:
    """An image four times as large has the same result, with epsilon 16 times as large."""
    spec = cast(GroupNormalization, problem.spec)
    larger = replace(problem, spec=replace(spec, epsilon=16 * spec.epsilon))
    return EquivalentProblem(larger, _with_x(problem, inputs, lambda x: 4 * x))


def means_are_beta(case: Case, backend: Backend) -> None:
    """Without gamma and beta, each group of the result has the mean 0."""
    problem = replace(case.of(NormalizationForward), scaled=False, shifted=False)
    ((y, limit),) = with_limits(problem, backend, case.inputs()[:1])
    _sums_vanish("means are beta", problem, y, limit)


def gradients_sum_to_0(case: Case, backend: Backend) -> None:
    """dx sums to 0 over each group: a constant added to x changes nothing."""
    problem = case.of(GroupsProblem)
    (dx, limit), *_ = with_limits(problem, backend, case.inputs())
    _sums_vanish("gradients sum to 0", problem, dx, limit)


def _sums_vanish(name: str, problem: GroupsProblem, values: Array, limit: Array) -> None:
    """Require sums over groups that are 0 within the bounds of their terms."""
    total, allowed = (
        array.astype(np.float64).reshape(problem.grouped_shape).sum(ALL_VALUES) for array in (values, limit)
    )
    near(name, total, np.zeros_like(total), allowed + 1e-12 * np.abs(values.astype(np.float64)).max(initial=0))


def gradients_along_x(case: Case, backend: Backend) -> None:
    """dx * xhat sums to ``r * epsilon / (variance + epsilon) * sum(h * xhat)``: to 0, but for epsilon."""
    problem = case.of(NormalizationGradient)
    inputs = case.inputs()
    g, x, *vectors = (array.astype(np.float64) for array in inputs)
    (dx, limit), *_ = with_limits(problem, backend, inputs)
    centred, deviation = statistics(problem, x)
    xhat, h = centred / deviation, (g * problem.parameters(tuple(vectors), float)).reshape(centred.shape)
    total = (dx.astype(np.float64).reshape(xhat.shape) * xhat).sum(ALL_VALUES, keepdims=True)
    due = (h * xhat).sum(ALL_VALUES, keepdims=True) * problem.spec.epsilon / deviation**3
    allowed = (limit.reshape(xhat.shape) * np.abs(xhat)).sum(ALL_VALUES, keepdims=True)
    terms = np.abs(h * xhat).sum(ALL_VALUES, keepdims=True) / deviation
    near("gradients along x", total, due, allowed + 1e-12 * terms)


@equivalent
def instance_is_group(problem: GroupsProblem, *inputs: Array) -> EquivalentProblem:
    """Instance normalization is group normalization with a group for each channel."""
    spec = GroupNormalization(problem.source_shape[3], problem.spec.epsilon)
    return EquivalentProblem(replace(problem, spec=spec), inputs)


# --- mutants ----------------------------------------------------------------------------------------------------------

Deviation = Callable[[GroupsProblem, Array, Array], Array]
"""``deviation(problem, grouped, mean) -> sqrt(variance + epsilon)``, of (N, H, W, groups, channels of a group)."""


def _variance(grouped: Array, mean: Array) -> Array:
    return np.asarray(((grouped - mean) ** 2).mean(ALL_VALUES, keepdims=True))


def _mean(problem: GroupsProblem, grouped: Array) -> Array:
    return np.asarray(grouped.mean(ALL_VALUES, keepdims=True))


def _deviation(problem: GroupsProblem, grouped: Array, mean: Array) -> Array:
    return np.asarray(np.sqrt(_variance(grouped, mean) + problem.spec.epsilon))


def _changed(
    mean: Callable[[GroupsProblem, Array], Array] = _mean,
    deviation: Deviation = _deviation,
    dx: Callable[..., Array] = lambda h, a, b, xhat, s, gamma: (h - a - xhat * b) / s,
) -> Implementation:
    """Return the operation with another mean or deviation, or another gradient.

    ``dx(h, mean of h, mean of h xhat, xhat, deviation, gamma)``, all of (N, H, W, groups, channels of a group).
    """

    def formula(problem: NormalizationProblem, *inputs: Array) -> Array | tuple[Array, ...]:
        *g, x = (array for array in inputs if array.ndim == 4)
        vectors = tuple(array for array in inputs if array.ndim == 1)
        grouped = x.reshape(problem.grouped_shape)
        m = mean(problem, grouped)
        s = deviation(problem, grouped, m)
        xhat = (grouped - m) / s
        if isinstance(problem, NormalizationForward):
            gamma, beta = problem.parameters(vectors, float)
            return np.asarray(gamma * xhat.reshape(x.shape) + beta)
        gamma = np.broadcast_to(problem.parameters(vectors, float), x.shape).reshape(xhat.shape)
        h = g[0].reshape(xhat.shape) * gamma
        a, b = (values.mean(ALL_VALUES, keepdims=True) for values in (h, h * xhat))
        of_x = dx(h, a, b, xhat, s, gamma).reshape(x.shape)
        return of_x, (g[0] * xhat.reshape(x.shape)).sum((1, 2)), g[0].sum((1, 2))

    return computed(formula)


def _unbiased(problem: GroupsProblem, grouped: Array, mean: Array) -> Array:
    count = problem.count
    return np.sqrt(_variance(grouped, mean) * (count / max(1, count - 1)) + problem.spec.epsilon)


def _sums_of_squares(problem: GroupsProblem, grouped: Array, mean: Array) -> Array:
    """Compute the mean of squares minus the squared mean in float32, which cancels where the deviation is small."""
    narrow = grouped.astype(np.float32)
    squares, m = (values.mean(ALL_VALUES, keepdims=True, dtype=np.float32) for values in (narrow**2, narrow))
    return np.asarray(np.sqrt(np.maximum(squares - m * m, 0) + problem.spec.epsilon))


def _but_last_row(grouped: Array) -> Array:
    return grouped[:, : max(1, grouped.shape[1] - 1)]


_STATISTICS: MutantTable = {
    "the variance is unbiased": _changed(deviation=_unbiased),
    "epsilon is outside the root": _changed(
        deviation=lambda problem, x, mean: np.sqrt(_variance(x, mean)) + problem.spec.epsilon
    ),
    "epsilon is ignored": _changed(deviation=lambda problem, x, mean: np.sqrt(_variance(x, mean))),
    "the variance is computed from sums of squares in float32": _changed(deviation=_sums_of_squares),
    "statistics are over the batch": _changed(
        mean=lambda problem, x: x.mean((0, *ALL_VALUES), keepdims=True),
        deviation=lambda problem, x, mean: np.sqrt(
            ((x - mean) ** 2).mean((0, *ALL_VALUES), keepdims=True) + problem.spec.epsilon
        ),
    ),
    "all images have the statistics of the first": _changed(
        mean=lambda problem, x: _mean(problem, x[:1]),
        deviation=lambda problem, x, mean: _deviation(problem, x[:1], mean),
    ),
    "the last row of pixels does not count": _changed(
        mean=lambda problem, x: _mean(problem, _but_last_row(x)),
        deviation=lambda problem, x, mean: _deviation(problem, _but_last_row(x), mean),
    ),
}


def _vectors(change: Callable[[Array, Array], tuple[Array, Array]]) -> Implementation:
    """Return forward with other vectors: ``change(gamma, beta)``."""

    def formula(problem: NormalizationForward, x: Array, *vectors: Array) -> Array:
        return correct(replace(problem, scaled=True, shifted=True), x, *change(*problem.parameters(vectors, float)))

    return computed(formula)


_FORWARD: MutantTable = {
    "gamma is ignored": _vectors(lambda gamma, beta: (np.ones_like(gamma), beta)),
    "beta is ignored": _vectors(lambda gamma, beta: (gamma, np.zeros_like(beta))),
    "gamma of the next channel is taken": _vectors(lambda gamma, beta: (np.roll(gamma, 1), beta)),
    "beta is scaled by gamma": _vectors(lambda gamma, beta: (gamma, gamma * beta)),
}


def _divided(values: Array, gamma: Array) -> Array:
    return np.divide(values, gamma, out=np.zeros_like(values), where=gamma != 0)


_GRADIENT: MutantTable = {
    "the term of the variance is missing": _changed(dx=lambda h, a, b, xhat, s, gamma: (h - a) / s),
    "gamma is left out": _changed(dx=lambda h, a, b, xhat, s, gamma: _divided((h - a - xhat * b) / s, gamma)),
    "dgamma is summed over the batch": of_results(
        lambda results, *_: (results[0], 0 * results[1] + results[1].sum(axis=0), results[2])
    ),
}


def _interleaved(problem: GroupsProblem, *inputs: Array) -> tuple[Array, ...]:
    """Compute with channel c in group c % groups."""
    groups, channels = problem.groups, problem.source_shape[3]
    order = np.arange(channels).reshape(channels // groups, groups).T.ravel()
    back = np.argsort(order)
    results = correct_results(problem, *(array[..., order] for array in inputs))
    return tuple(result[..., back] for result in results)


_GROUPS: MutantTable = {
    "channel k belongs to group k % G": computed(_interleaved),
    "every channel is a group": of_problem(
        lambda problem: replace(problem, spec=replace(problem.spec, groups=problem.source_shape[3]))
    ),
    "groups is taken for the channels of a group": of_problem(
        lambda problem: replace(
            problem, spec=replace(problem.spec, groups=problem.source_shape[3] // problem.spec.groups)
        )
    ),
}

MUTANTS = {
    (InstanceNormalization, "forward"): {**_STATISTICS, **_FORWARD},
    (InstanceNormalization, "gradient"): {**_STATISTICS, **_GRADIENT},
    (GroupNormalization, "forward"): {**_STATISTICS, **_FORWARD, **_GROUPS},
    (GroupNormalization, "gradient"): {**_STATISTICS, **_GRADIENT, **_GROUPS},
}

_BOTH = (repeatable, one_image_at_a_time, shift_invariant)
_OF_FORWARD = (*_BOTH, scale_invariant, means_are_beta)
_OF_GRADIENT = (*_BOTH, gradients_sum_to_0, gradients_along_x)

KERNELS = {
    InstanceNormalization: KernelTests(
        partial(problems, InstanceNormalization),
        {"forward": (*_OF_FORWARD, instance_is_group), "gradient": (*_OF_GRADIENT, instance_is_group)},
    ),
    GroupNormalization: KernelTests(
        partial(problems, GroupNormalization), {"forward": _OF_FORWARD, "gradient": _OF_GRADIENT}
    ),
}
