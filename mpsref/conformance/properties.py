"""Properties of kernels of any kind, in addition to agreement with the reference.

Each is ``property(case, backend)`` and raises :class:`Mismatch`. Values that two runs of a backend give for the same
quantity may differ by twice the bound of one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator, runner
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.data import INTEGERS
from mpsref.conformance.runner import InapplicableError, NotJudgedError, Property, compute, expected
from mpsref.kernels.reference import ErrorBound
from mpsref.registry import Backend, Problem

MANY_IMAGES = 1024
"""Larger batches are not computed one image at a time: a framework takes a minute for 32,770 calls."""


def same(name: str, first: Array, second: Array, terms: ErrorBound) -> None:
    """Require that two results of a backend for the same thing agree within twice the bound."""
    if first.shape != second.shape:
        raise Mismatch(f"{name}: shapes {first.shape} and {second.shape} differ")
    limit = 2 * comparator.bound(first, second.astype(np.float64), terms)
    with np.errstate(invalid="ignore"):
        near = (first == second) | (np.abs(first.astype(np.float64) - second) <= limit)
    if not near.all():
        index = tuple(int(k) for k in np.argwhere(~near)[0])
        raise Mismatch(
            f"{name}: the result is {first[index]} at {list(index)}, and {second[index]} if computed in the other way; "
            f"of {near.size} elements {np.count_nonzero(~near)} differ by more than rounding",
            index,
        )


def near(name: str, first: Array, second: Array, limit: Array) -> None:
    """Require that two quantities differ by no more than ``limit``."""
    with np.errstate(invalid="ignore"):
        distance = np.abs(first.astype(np.float64) - second)
        wrong = ~((first == second) | (distance <= limit))
    if wrong.any():
        at = tuple(int(k) for k in np.argwhere(wrong)[0])
        raise Mismatch(f"{name}: they differ by {distance[at]:.3g} at {list(at)}, and by {limit[at]:.3g} at most", at)


class EquivalentProblem(NamedTuple):
    """Another problem that must have the same results."""

    problem: Problem
    inputs: Sequence[Array]
    back: Callable[[tuple[Array, ...]], Sequence[Array]] = lambda results: results
    """Returns the results of the case, or the first of them, from those of the other problem."""


def equivalent(restate: Callable[..., EquivalentProblem | None]) -> Property:
    """Return the property that another problem has the same results.

    ``restate(problem, *inputs)`` returns that problem, or ``None`` where it makes no statement.
    """

    @functools.wraps(restate)
    def check(case: Case, backend: Backend) -> None:
        other = restate(case.problem, *case.inputs())
        if other is None or backend.why_not(other.problem.operation, other.problem.spec):
            return
        results = compute(case.problem, backend, *case.inputs())
        again = other.back(compute(other.problem, backend, *other.inputs))
        for one, two, (_, terms) in zip(results, again, expected(case), strict=False):
            same(restate.__name__.replace("_", " "), one, two, terms)

    return check


def repeatable(case: Case, backend: Backend) -> None:
    """The same call gives the same bits."""
    inputs = case.inputs()
    runs = [compute(case.problem, backend, *inputs) for _ in range(2)]
    for first, second in zip(*runs, strict=True):
        if first.tobytes() != second.tobytes():
            raise Mismatch("repeatable: two runs on the same input gave different bits")


class Counterparts(NamedTuple):
    """The forward and the gradient problem of the same shapes, and the parts of the results and of g that belong."""

    forward: Problem
    gradient: Problem
    of_y: Callable[[Array], Array] = lambda y: y
    of_g: Callable[[Array], Array] = lambda g: g


def adjoint(counterparts: Callable[[Any], Counterparts | None], each: bool = False) -> Property:
    """Return the property ``<A x, g> = <x, A^T g>``: the gradient is the adjoint of the forward pass.

    With several sources the right side is the sum over them, or with ``each`` (the kernel is linear in each of them by
    itself) holds for every one. Where nothing need be rounded, as on integers, both sides are equal. There are
    none of a problem that is not linear.
    """

    def check(case: Case, backend: Backend) -> None:
        """The gradient is the adjoint of the forward pass: with any g, <A x, g> = <x, A^T g>."""
        found = counterparts(case.problem)
        if found is None or any(backend.why_not(problem.operation, problem.spec) for problem in found[:2]):
            return
        forward, gradient, of_y, of_g = found
        g, *sources = replace(case, problem=gradient, seed=case.seed + 1).inputs()
        sources = sources or list(replace(case, problem=forward).inputs())
        exact = case.family in INTEGERS
        ((y, y_limit),) = with_limits(forward, backend, sources, exact)
        inputs = [g, *sources][: len(gradient.input_shapes)]
        back = with_limits(gradient, backend, inputs, exact)
        calls = (forward, sources, [(y, y_limit)]), (gradient, inputs, back)
        y, y_limit, g = of_y(y), of_y(y_limit), of_g(g)
        left, slack = _inner(y, g), _inner(y_limit, np.abs(g))
        rights = [(_inner(dx, x), _inner(limit, np.abs(x))) for x, (dx, limit) in zip(sources, back, strict=True)]
        if not each:
            rights = [(sum(value for value, _ in rights), sum(limit for _, limit in rights))]
        for right, limit in rights:
            allowed = slack + limit
            if not exact:
                allowed += 1e-12 * _inner(np.abs(y), np.abs(g))  # the float64 sums themselves
            if not abs(left - right) <= allowed:
                judge_itself(case.problem, *calls)
                raise Mismatch(
                    f"adjoint: <A x, g> = {left:.9g}, <x, A^T g> = {right:.9g}; they may differ by {allowed:.3g}"
                )

    return check


Judged: TypeAlias = tuple[Problem, Sequence[Array], Sequence[tuple[Array, Array]]]
"""A problem that a property ran, its inputs, and its first results, each with its largest legal error."""


def judge_itself(problem: Problem, *calls: Judged) -> None:
    """Raise :class:`NotJudgedError` if other operations differ from the reference and that of the problem does not.

    Parameters
    ----------
    problem : Problem
        The problem of the case whose property failed.
    *calls : Judged
        All calls of the property.
    """
    wrong = []
    for one, inputs, results in calls:
        for (result, limit), reference in zip(results, runner.references(one, *inputs), strict=False):
            with np.errstate(invalid="ignore"):
                if not (np.abs(result - reference) <= limit).all():
                    wrong.append(one.operation)
    if wrong and problem.operation not in wrong:
        raise NotJudgedError(f"the adjoint of {wrong[0]} by {problem.operation}: {wrong[0]} is wrong")


def _inner(a: Array, b: Array) -> float:
    return float(np.sum(a.astype(np.float64) * b.astype(np.float64)))


def with_limits(
    problem: Problem, backend: Backend, inputs: Sequence[Array], exact: bool = False
) -> list[tuple[Array, Array]]:
    """Return each result, and the largest legal error of each of its elements.

    Raises :class:`InapplicableError` if correct results may be infinite because they exceed the range of their dtype.
    """
    references, terms = runner.references(problem, *inputs), runner.terms(problem, *inputs)
    found = []
    for result, reference, known in zip(compute(problem, backend, *inputs), references, terms, strict=True):
        with np.errstate(over="ignore", invalid="ignore"):  # wrong results may be infinite or NaN
            limit = comparator.bound(result, reference, known)
            if result.dtype.kind == "f" and np.any(np.abs(reference) + limit > np.finfo(result.dtype).max):
                raise InapplicableError
            stored = np.abs(reference.astype(result.dtype).astype(np.float64) - reference)
        found.append((result, np.where(np.logical_and(exact, known.exact), stored, limit)))
    return found


def one_image_at_a_time(case: Case, backend: Backend) -> None:
    """The images of a batch are independent: one at a time they have the same results."""
    problem, n = case.problem, case.problem.result_shapes[0][0]
    if not 2 <= n <= MANY_IMAGES:
        return
    inputs = case.inputs()
    known = ((field.name, getattr(problem, field.name)) for field in fields(problem))
    shapes: dict[str, Any] = {name: (1, *shape[1:]) for name, shape in known if name.endswith("_shape")}
    single = replace(problem, **shapes)
    wholes = compute(problem, backend, *inputs)
    shared = [array.shape == shape for array, shape in zip(inputs, single.input_shapes.values(), strict=True)]
    singles = [
        compute(single, backend, *(x if one else x[k : k + 1] for x, one in zip(inputs, shared, strict=True)))
        for k in range(n)
    ]
    for whole, images, (_, terms) in zip(wholes, zip(*singles, strict=True), expected(case), strict=True):
        same("one image at a time", whole, np.concatenate(images), terms)
