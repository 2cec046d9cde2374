"""Tests of losses: every type, reduction and combination of inputs, sums of elements, chains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.golden_entries import Comparison, Entry
from mpsref.conformance.mutants import MutantTable, computed, correct, of_problem, of_result, of_spec, with_spec
from mpsref.conformance.properties import EquivalentProblem, equivalent, near, one_image_at_a_time, repeatable
from mpsref.conformance.runner import agrees, compute, expected
from mpsref.conformance.strategies import often, seldom
from mpsref.kernels.loss import (
    LOGITS,
    LOSS_TYPES,
    REDUCTIONS,
    Loss,
    LossForward,
    LossGradient,
    LossProblem,
    log_softmax,
    weighted,
)
from mpsref.registry import Backend, Implementation, Problem

# --- strategies -------------------------------------------------------------------------------------------------------


@cache  # Hypothesis examines every new strategy
def specs(loss_type: str) -> st.SearchStrategy[Loss]:
    """Draw parameters of one type; weights and deltas are exact in float32 more often than not."""
    reductions = ("sum",) if loss_type == "cosinedistance" else REDUCTIONS
    return st.builds(
        Loss,
        st.just(loss_type),
        st.sampled_from(reductions),
        st.booleans(),
        weight=seldom(1.0, st.sampled_from([0.5, -2.0, 0.3, 3.0])),
        label_smoothing=st.sampled_from([0.0, 0.25, 0.1]) if loss_type in LOGITS else st.just(0.0),
        number_of_classes=st.integers(1, 6) if loss_type == "softmaxcrossentropy" else st.just(1),
        epsilon=st.sampled_from([1e-7, 2.0**-6]) if loss_type == "log" else st.just(1e-7),
        delta=st.sampled_from([1.0, 0.5, 2.5, 0.125]) if loss_type == "huber" else st.just(1.0),
    )


def problems(method: str) -> st.SearchStrategy[Problem]:
    """Draw problems of one operation."""

    shape = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 6))

    def of(loss: Loss) -> st.SearchStrategy[Problem]:
        weighted = st.just(False) if loss.type == "cosinedistance" else st.booleans()
        chained = {} if method == "forward" else {"chained": st.booleans()}

        def on(size: tuple[int, int, int, int]) -> st.SearchStrategy[Problem]:
            labels = often(size[3], st.integers(size[3], size[3] + 4))
            return st.builds(Loss.problems[method], st.just(loss), st.just(size), labels, weighted, **chained)

        return shape.flatmap(on)

    return st.sampled_from(LOSS_TYPES).flatmap(specs).flatmap(of)


# --- properties -------------------------------------------------------------------------------------------------------

PANEL = tuple(
    Loss(
        loss_type,
        reduction,
        reduce_across_batch=(row + column) % 2 == 1,
        weight=0.5,
        label_smoothing=0.25 if loss_type in LOGITS else 0.0,
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
    """Two losses of the panel, chosen by the case, agree on its shapes: a check has all types and reductions."""
    problem = case.of(LossProblem)
    for loss in (PANEL[(2 * case.seed + k) % len(PANEL)] for k in range(2)):
        weighted = problem.weighted and loss.type != "cosinedistance"
        other = replace(case, problem=replace(problem, spec=loss, weighted=weighted))
        agrees(other, backend)


def images_apart(case: Case, backend: Backend) -> None:
    """The images are independent, unless the reduction is across the batch."""
    if not case.of(LossProblem).spec.reduce_across_batch:
        one_image_at_a_time(case, backend)


def sum_of_elements(case: Case, backend: Backend) -> None:
    """A reduction divides the sum of the results of the reduction "none"."""
    problem = case.of(LossForward)
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
    near("sum of elements", image, total, limit)


def reduction_is_ignored(case: Case, backend: Backend) -> None:
    """Without a source gradient every reduction has the gradient of the sum, to the bit."""
    problem = case.of(LossGradient)
    if problem.chained:
        return
    summed = replace(problem, spec=replace(problem.spec, reduction="sum", reduce_across_batch=False))
    inputs = case.inputs()
    (own,), (of_sum,) = compute(problem, backend, *inputs), compute(summed, backend, *inputs)
    if own.tobytes() != of_sum.tobytes():
        raise Mismatch(f"reduction is ignored: the gradient with {problem.spec.reduction!r} is not that of 'sum'")


@equivalent
def ones_change_nothing(problem: LossGradient, *inputs: Array) -> EquivalentProblem | None:
    """A source gradient of ones gives the gradient without one."""
    if problem.chained:
        return None
    return EquivalentProblem(replace(problem, chained=True), [np.ones(problem.loss_shape, inputs[0].dtype), *inputs])


# --- mutants ----------------------------------------------------------------------------------------------------------


def _named(problem: LossProblem, inputs: tuple[Array, ...]) -> dict[str, Array]:
    return dict(zip(problem.input_shapes, inputs, strict=True))


def _solved(problem: LossProblem, arrays: Mapping[str, Array]) -> Array:
    """Return the result of the reference for these arrays; the problem is changed to one that has them."""
    fields: dict[str, Any] = {"weighted": "weights" in arrays, "label_channels": arrays["t"].shape[3]}
    if isinstance(problem, LossGradient):
        fields["chained"] = "g" in arrays
    other = replace(problem, **fields)
    return correct(other, *(arrays[name] for name in other.input_shapes))


def _filled_up(values: Array, problem: LossProblem) -> Array:
    """Return the values with zeros in the channels that only the labels have."""
    return np.pad(values, ((0, 0), (0, 0), (0, 0), (0, problem.result_shapes[0][3] - values.shape[3])))


def _of_inputs(change: Callable[[dict[str, Array], LossProblem], dict[str, Array]]) -> Implementation:
    """Compute on other inputs: ``change(arrays by name, problem)``."""

    def formula(problem: LossProblem, *inputs: Array) -> Array:
        return _filled_up(_solved(problem, change(_named(problem, inputs), problem)), problem)

    return computed(formula)


def _without(name: str) -> Implementation:
    return _of_inputs(lambda arrays, problem: {key: a for key, a in arrays.items() if key != name})


def _changed(name: str, change: Callable[[Array, LossProblem], Array]) -> Implementation:
    return _of_inputs(
        lambda arrays, problem: arrays | ({name: change(arrays[name], problem)} if name in arrays else {})
    )


def _of_type(loss_type: str, element: Callable[[Loss, Array, Array], Array]) -> Implementation:
    """Compute another ``element(spec, y, smoothed labels)`` for one type of loss; the others are correct."""

    def formula(problem: LossProblem, *inputs: Array) -> Array:
        arrays = _named(problem, inputs)
        if problem.spec.type != loss_type:
            return _solved(problem, arrays)
        y, spec = arrays["y"], problem.spec
        t = arrays["t"][..., : y.shape[3]]
        if spec.label_smoothing > 0:
            a, b = spec.smoothing
            t = a * t + b
        values = weighted(problem, element(spec, y, t), arrays.get("weights"))
        if isinstance(problem, LossForward) and spec.reduction != "none":
            values = problem.loss_image(values.sum(axis=(1, 2, 3)), arrays.get("weights"))
        if isinstance(problem, LossGradient) and "g" in arrays:
            values = problem.source_gradient(arrays["g"]) * values
        return _filled_up(values, problem)

    return computed(formula)


def _of_reduction(change: Callable[[Loss], str]) -> Implementation:
    def of_loss(spec: Loss) -> str:
        return spec.reduction if spec.reduction == "none" or spec.type == "cosinedistance" else change(spec)

    return of_spec(reduction=of_loss)


def _softmax_of_image(spec: Loss, y: Array, t: Array) -> Array:
    return -t * log_softmax(y.reshape(len(y), -1)).reshape(y.shape)


def _huber_without_half(spec: Loss, y: Array, t: Array) -> Array:
    distance = np.abs(y - t)
    linear = 0.5 * spec.delta**2 + spec.delta * (distance - spec.delta)
    return np.asarray(np.where(distance <= spec.delta, distance**2, linear))


def _mean_gradient(result: Array, problem: LossProblem, *inputs: Array) -> Array:
    elements = result[0, ..., : problem.source_shape[3]].size
    return result / elements if problem.spec.reduction == "mean" else result


_DERIVATIVE_OF_LABELS: MutantTable = {
    "the weight is ignored": of_spec(weight=lambda s: 1.0),
    "the weights image is ignored": _without("weights"),
    "the weights of the first image hold for all": _changed("weights", lambda w, p: np.repeat(w[:1], len(w), axis=0)),
    "labels are read as if they had no further channels": _changed("t", lambda t, p: np.resize(t, p.source_shape)),
    "labels are not smoothed": of_spec(label_smoothing=lambda s: 0.0),
    "epsilon is ignored": of_spec(epsilon=lambda s: 0.0),
    "delta is 1": of_spec(delta=lambda s: 1.0),
}
"""Those that also the derivative by the labels shows."""

_SHARED: MutantTable = {
    **_DERIVATIVE_OF_LABELS,
    "smoothing assumes one class": of_spec(number_of_classes=lambda s: 1),
}

_CHAINS: MutantTable = {
    "the source gradient is ignored": _without("g"),
    "across the batch each image has its own source gradient": of_spec(reduce_across_batch=lambda s: False),
    "the source gradient of image 0 holds for all": of_problem(
        lambda p: p if p.spec.reduction == "none" else with_spec(reduce_across_batch=lambda s: True)(p)
    ),
    "the gradient is that of the mean": of_result(_mean_gradient),
}

MUTANTS = {
    (Loss, "forward"): {
        **_SHARED,
        "the mean is a sum": _of_reduction(lambda s: "sum" if s.reduction == "mean" else s.reduction),
        "weights of 0 count too": _of_reduction(
            lambda s: (
                "mean" if s.reduction == "sumbynonzeroweights" and s.type != "softmaxcrossentropy" else s.reduction
            )
        ),
        "the reduction across the batch is ignored": of_spec(reduce_across_batch=lambda s: False),
        "the mean of softmax is over channels too": of_result(
            lambda image, p, *_: (
                image / p.source_shape[3]
                if (p.spec.type, p.spec.reduction) == ("softmaxcrossentropy", "mean")
                else image
            )
        ),
        "the loss across the batch is written to all images": of_result(
            lambda image, p, *_: (
                np.repeat(image[:1], len(image), axis=0)
                if p.spec.reduce_across_batch and p.spec.reduction != "none"
                else image
            )
        ),
        "hinge labels are not mapped to -1 and 1": _of_type("hinge", lambda s, y, t: np.maximum(1 - t * y, 0)),
        "the quadratic part of Huber is not halved": _of_type("huber", _huber_without_half),
        "the squared error is halved": _of_type("meansquarederror", lambda s, y, t: 0.5 * (y - t) ** 2),
        "softmax runs over the whole image": _of_type("softmaxcrossentropy", _softmax_of_image),
        "softmax cross entropy takes y for its log-softmax": _of_type("softmaxcrossentropy", lambda s, y, t: -t * y),
        "the logarithm of sigmoid cross entropy is missing": _of_type(
            "sigmoidcrossentropy", lambda s, y, t: np.maximum(y, 0) - y * t
        ),
        "cosine distance is not subtracted from 1": of_result(
            lambda image, p, *_: image - p.spec.weight if p.spec.type == "cosinedistance" else image
        ),
        "log ignores the term of 1 - t": _of_type("log", lambda s, y, t: -t * np.log(y + s.epsilon)),
        "the term log t of the divergence is missing": _of_type("kullbackleiblerdivergence", lambda s, y, t: -t * y),
        "the logarithm has base 2": _of_type("categoricalcrossentropy", lambda s, y, t: -t * np.log2(y)),
        "the absolute value of the error is not taken": _of_type("meanabsoluteerror", lambda s, y, t: y - t),
    },
    (Loss, "gradient"): {
        **_SHARED,
        **_CHAINS,
        "the gradient of softmax is y - t": _of_type("softmaxcrossentropy", lambda s, y, t: y - t),
        "softmax is multiplied by the sum of the labels": _of_type(
            "softmaxcrossentropy",
            lambda s, y, t: np.exp(log_softmax(y)) * t.sum(axis=-1, keepdims=True) - t,
        ),
        "the gradient of sigmoid cross entropy is y - t": _of_type("sigmoidcrossentropy", lambda s, y, t: y - t),
        "the sign of 0 is 1": _of_type("meanabsoluteerror", lambda s, y, t: np.where(y >= t, 1.0, -1.0)),
        "the factor 2 of the squared error is missing": _of_type("meansquarederror", lambda s, y, t: y - t),
        "the gradient of the divergence is -t / y": _of_type("kullbackleiblerdivergence", lambda s, y, t: -t / y),
        "the slope of Huber has no sign": _of_type(
            "huber", lambda s, y, t: np.where(np.abs(y - t) <= s.delta, y - t, s.delta)
        ),
        "hinge has a slope at its kink": _of_type(
            "hinge", lambda s, y, t: np.where(1 + (1 - 2 * t) * y >= 0, 1 - 2 * t, 0)
        ),
        "categorical cross entropy is not divided by y": _of_type("categoricalcrossentropy", lambda s, y, t: -t),
        "the gradient of cosine distance has the other sign": _of_type("cosinedistance", lambda s, y, t: t),
        "log ignores the term of 1 - t": _of_type("log", lambda s, y, t: -t / (y + s.epsilon)),
    },
    (Loss, "gradient_labels"): {
        **_DERIVATIVE_OF_LABELS,
        **_CHAINS,
        "the slope of smoothing is left out": of_result(
            lambda dt, p, *_: dt / (1 - p.spec.label_smoothing) if p.spec.label_smoothing else dt
        ),
        "channels beyond the predictions repeat them": of_result(
            lambda dt, p, *_: dt[..., np.arange(dt.shape[3]) % p.source_shape[3]]
        ),
        "the term 1 of the divergence is missing": _of_type("kullbackleiblerdivergence", lambda s, y, t: np.log(t) - y),
        "the factor 2 of hinge is missing": _of_type("hinge", lambda s, y, t: np.where(1 + (1 - 2 * t) * y > 0, -y, 0)),
        "sigmoid cross entropy takes the sigmoid": _of_type(
            "sigmoidcrossentropy", lambda s, y, t: -1 / (1 + np.exp(-y))
        ),
        "softmax cross entropy takes the logits": _of_type("softmaxcrossentropy", lambda s, y, t: -y),
        "log ignores the term of 1 - t": _of_type("log", lambda s, y, t: -np.log(y + s.epsilon)),
    },
}

# --- golden results ---------------------------------------------------------------------------------------------------


def _golden_loss(entry: Entry) -> Loss:
    names = {"loss_type": "type", "reduction_type": "reduction"}
    parameters: dict[str, Any] = {
        names.get(name, name): value.lower() if isinstance(value, str) else value
        for name, value in entry.parameters.items()
    }
    return Loss(**parameters)


def _golden_forward(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    loss = _golden_loss(entry).forward(entry.image("y"), entry.image("labels"), backend=backend)
    yield Comparison("loss", loss, entry.expected["loss"])


def _golden_node(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare the result image of the node: the gradient."""
    gradient = _golden_loss(entry).gradient(None, entry.image("y"), entry.image("labels"), backend=backend)
    yield Comparison("result_image", gradient, entry.expected["result_image"])


_GRADIENT = (repeatable, every_type, images_apart, reduction_is_ignored, ones_change_nothing)

FAMILY = Family(
    "loss",
    {
        Loss: KernelTests(
            problems,
            {
                "forward": (repeatable, every_type, images_apart, sum_of_elements),
                "gradient": _GRADIENT,
                "gradient_labels": _GRADIENT,
            },
        )
    },
    MUTANTS,
    {"MPSNNForwardLoss": _golden_forward, "MPSCNNLossNode": _golden_node},
)
