"""Losses under test: every type, reduction and combination of inputs; what reductions and chains have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from mpsref.conformance import comparator, properties
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import repeatable
from mpsref.conformance.runner import agree, compute, expected
from mpsref.conformance.subject import Subject, often, seldom
from mpsref.kernels import Loss
from mpsref.kernels.loss import REDUCTIONS
from mpsref.kernels.loss_formulas import LOSS_TYPES
from mpsref.kernels.loss_problems import LossForward, LossGradient, LossProblem
from mpsref.registry import Backend, Problem, Spec

__all__ = ["SUBJECTS", "problems", "specs"]


SMOOTHED = "softmaxcrossentropy", "sigmoidcrossentropy"
"""The types that smooth their labels."""


def specs(loss_type: str) -> st.SearchStrategy[Loss]:
    """Draw parameters of one type; weights and deltas are exact in float32 more often than not."""
    reductions = ("sum",) if loss_type == "cosinedistance" else REDUCTIONS
    return st.builds(
        Loss,
        st.just(loss_type),
        st.sampled_from(reductions),
        st.booleans(),
        weight=seldom(1.0, st.sampled_from([0.5, -2.0, 0.3, 3.0])),
        label_smoothing=st.sampled_from([0.0, 0.25, 0.1]) if loss_type in SMOOTHED else st.just(0.0),
        number_of_classes=st.integers(1, 6) if loss_type == "softmaxcrossentropy" else st.just(1),
        epsilon=st.sampled_from([1e-7, 2.0**-6]) if loss_type == "log" else st.just(1e-7),
        delta=st.sampled_from([1.0, 0.5, 2.5, 0.125]) if loss_type == "huber" else st.just(1.0),
    )


def problems(method: str) -> st.SearchStrategy[Problem]:
    """Draw problems of one operation."""

    def of(loss: Loss) -> st.SearchStrategy[Problem]:
        shape = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 6))
        weighted = st.just(False) if loss.type == "cosinedistance" else st.booleans()
        chained = {} if method == "forward" else {"chained": st.booleans()}

        def on(size: tuple[int, int, int, int]) -> st.SearchStrategy[Problem]:
            labels = often(size[3], st.integers(size[3], size[3] + 4))
            return st.builds(Loss.problems[method], st.just(loss), st.just(size), labels, weighted, **chained)

        return shape.flatmap(on)

    return st.sampled_from(LOSS_TYPES).flatmap(specs).flatmap(of)


PANEL = tuple(
    Loss(
        loss_type,
        reduction,
        reduce_across_batch=(row + column) % 2 == 1,
        weight=0.5,
        label_smoothing=0.25 if loss_type in SMOOTHED else 0.0,
        number_of_classes=5 if loss_type == "softmaxcrossentropy" else 1,
        epsilon=2.0**-6 if loss_type == "log" else 1e-7,
        delta=0.5 if loss_type == "huber" else 1.0,
    )
    for row, loss_type in enumerate(LOSS_TYPES)
    for column, reduction in enumerate(REDUCTIONS)
    if loss_type != "cosinedistance" or reduction == "sum"
)
"""Every type with every reduction: random cases alone leave some combinations out."""


def every_type(case: Case, backend: Backend) -> None:
    """Agreement for two of the panel, drawn by the case, on its shapes: in a check all types and reductions come."""
    problem = case.problem
    assert isinstance(problem, LossProblem)
    for loss in (PANEL[(2 * case.seed + k) % len(PANEL)] for k in range(2)):
        weighted = problem.weighted and loss.type != "cosinedistance"
        other = replace(case, problem=replace(problem, spec=loss, weighted=weighted))
        agree(other, compute(other.problem, backend, *other.inputs()))


def batch_in_pieces(case: Case, backend: Backend) -> None:
    """Images do not influence each other, unless the reduction runs across the batch."""
    assert isinstance(case.problem, LossProblem)
    if not case.problem.spec.reduce_across_batch:
        properties.batch_in_pieces(case, backend)


def sum_of_elements(case: Case, backend: Backend) -> None:
    """A reduction divides the sum of what the reduction "none" gives."""
    problem = case.problem
    assert isinstance(problem, LossForward)
    if problem.spec.reduction == "none" or problem.spec.type == "cosinedistance" or case.dtype == "float16":
        return
    inputs = case.inputs()
    every = replace(case, problem=replace(problem, spec=replace(problem.spec, reduction="none")))
    (image,), (elements,) = compute(problem, backend, *inputs), compute(every.problem, backend, *inputs)
    ((reference, terms),), ((each, each_terms),) = expected(case), expected(every)
    weights = inputs[2] if problem.weighted else None
    errors = comparator.bound(elements, each, each_terms).sum(axis=(1, 2, 3))
    total = problem.loss_image(elements.sum(axis=(1, 2, 3), dtype=np.float64), weights)
    limit = problem.loss_image(errors, weights) + comparator.bound(image, reference, terms)
    if not (np.abs(image - total) <= limit).all():
        raise Mismatch(f"sum of elements: {image.ravel().tolist()}, the elements give {total.ravel().tolist()}")


def reduction_is_ignored(case: Case, backend: Backend) -> None:
    """Without a source gradient every reduction has the gradient of the sum, to the bit."""
    problem = case.problem
    assert isinstance(problem, LossGradient)
    if problem.chained:
        return
    summed = replace(problem, spec=replace(problem.spec, reduction="sum", reduce_across_batch=False))
    inputs = case.inputs()
    (own,), (of_sum,) = compute(problem, backend, *inputs), compute(summed, backend, *inputs)
    if own.tobytes() != of_sum.tobytes():
        raise Mismatch(f"reduction is ignored: the gradient with {problem.spec.reduction!r} is not that of 'sum'")


def ones_change_nothing(case: Case, backend: Backend) -> None:
    """A source gradient of ones gives the gradient without one."""
    problem = case.problem
    assert isinstance(problem, LossGradient)
    if problem.chained:
        return
    inputs = case.inputs()
    ones = np.ones(problem.spec.loss_shape(problem.source_shape), inputs[0].dtype)
    (own,), (chained,) = (
        compute(problem, backend, *inputs),
        compute(replace(problem, chained=True), backend, ones, *inputs),
    )
    properties.same("ones change nothing", own, chained, expected(case)[0][1])


_GRADIENT = (repeatable, every_type, batch_in_pieces, reduction_is_ignored, ones_change_nothing)

SUBJECTS: Mapping[type[Spec], Subject] = {
    Loss: Subject(
        problems,
        {
            "forward": (repeatable, every_type, batch_in_pieces, sum_of_elements),
            "gradient": _GRADIENT,
            "gradient_labels": _GRADIENT,
        },
    )
}
