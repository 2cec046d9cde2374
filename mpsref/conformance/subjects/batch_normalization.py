"""Batch normalization under test: batches in pieces, invariances, exact cases, and sums that must vanish."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from mpsref import kernels
from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator, runner
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import repeatable, same
from mpsref.conformance.runner import compute, expected
from mpsref.conformance.subject import Subject
from mpsref.conformance.subjects import neuron
from mpsref.kernels.batch_normalization import BatchNormalization
from mpsref.kernels.batch_normalization_problems import (
    BatchProblem,
    Gradient,
    Inputs,
    Reduction,
    Statistics,
    StatisticsGradient,
)
from mpsref.kernels.normalization import FLT_MIN
from mpsref.registry import Backend, Problem, Spec

__all__ = ["SUBJECTS", "problems"]

BENT = ("none", "relu", "linear", "hardsigmoid", "absolute", "prelu", "relun")
"""Neurons whose slope is constant between kinks: a gradient has the bound of its sums, away from these."""
SMOOTH = ("sigmoid", "tanh", "softplus", "softsign", "elu", "gelu")


def _specs(method: str, channels: int) -> st.SearchStrategy[BatchNormalization]:
    kinds = (*BENT, "relu", *(SMOOTH if method == "forward" else ()))
    neurons = st.sampled_from(kinds).flatmap(lambda kind: neuron.specs(kind, channels))
    given = st.none() if method == "statistics" else st.none() | neurons
    return st.builds(BatchNormalization, st.sampled_from([1e-3, 1e-5, FLT_MIN, 0.5, 2.0]), given)


def problems(method: str) -> st.SearchStrategy[Problem]:
    """Draw problems of one operation; few of them have so many pixels that a backend adds them up in several parts."""
    small = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
    few = st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.integers(1, 9))
    large = st.tuples(st.integers(1, 2), st.integers(1, 40), st.integers(1, 40), st.integers(1, 6))
    call: dict[str, st.SearchStrategy[Any]] = {}
    if method != "forward":
        call["count"] = st.sampled_from([0, 0, 1, 2, 7, 100, 5000])
    if method != "statistics":
        call |= {"gamma": st.booleans(), "beta": st.booleans()}
    kind = BatchNormalization.problems[method]
    return (small | small | few | large).flatmap(
        lambda shape: st.builds(kind, _specs(method, shape[3]), st.just(shape), **call)
    )


def _with_shape(problem: Any, images: int, **changes: Any) -> Any:
    """Return the problem with another number of images."""
    return replace(problem, source_shape=(images, *problem.source_shape[1:]), **changes)


def _able(problem: Problem, backend: Backend, *methods: str) -> bool:
    """Whether the backend has the other operations that a property needs."""
    return not any(backend.why_not((type(problem.spec), method), problem.spec) for method in methods)


def batch_in_any_order(case: Case, backend: Backend) -> None:
    """The images one by one, the last one first, each with the sums so far, give what the batch gives."""
    problem = case.problem
    assert isinstance(problem, Reduction)
    pictures, vectors = _split(problem, case.inputs())
    whole = compute(problem, backend, *pictures, *vectors)
    done, others = problem.count, vectors[: len(vectors) - 2] if problem.count else vectors
    sums = vectors[len(others) :]
    n, height, width, _ = problem.source_shape
    for k in reversed(range(n)):
        one = _with_shape(problem, 1, count=done)
        sums = compute(one, backend, *(picture[k : k + 1] for picture in pictures), *others, *sums)
        done += height * width
    for name, first, second, (_, terms) in zip(("first", "second"), whole, sums, expected(case), strict=True):
        # Each call has rounded once more than the one call, which the terms of one call do not have.
        same(f"batch in any order, {name} sum", first, second, terms._replace(magnitude=terms.magnitude * n))


def _split(problem: BatchProblem, inputs: tuple[Array, ...]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    return inputs[: len(problem.pictures)], inputs[len(problem.pictures) :]


def images_one_by_one(case: Case, backend: Backend) -> None:
    """With statistics that are given, images do not influence each other."""
    problem = case.problem
    assert isinstance(problem, BatchProblem)
    pictures, vectors = _split(problem, case.inputs())
    (whole,) = compute(problem, backend, *pictures, *vectors)
    one = _with_shape(problem, 1)
    parts = [
        compute(one, backend, *(picture[k : k + 1] for picture in pictures), *vectors)[0]
        for k in range(problem.source_shape[0])
    ]
    same("images one by one", whole, np.concatenate(parts), expected(case)[0][1])


def constant_channels(case: Case, backend: Backend) -> None:
    """Where all pixels are equal, they are the mean, and m2 is 0: exactly, however large they are."""
    problem = case.problem
    assert isinstance(problem, Statistics)
    pixel = case.inputs()[0][:1, :1, :1]
    x = np.broadcast_to(pixel, problem.source_shape)
    mean, m2 = compute(replace(problem, count=0), backend, np.ascontiguousarray(x))
    if (mean != pixel.ravel()).any() or m2.any():
        raise Mismatch(f"constant channels: mean is {mean.tolist()} for {pixel.ravel().tolist()}, m2 {m2.tolist()}")


def shifted_pixels(case: Case, backend: Backend) -> None:
    """A large number added to every pixel is added to the mean, and leaves m2 alone."""
    problem = case.problem
    assert isinstance(problem, Statistics)
    step, shift = (2.0**-2, 2.0**8) if case.dtype == "float16" else (2.0**-6, 2.0**13)
    (x, *_) = case.inputs()
    x = (np.round(np.clip(x.astype(np.float64), -32, 32) / step) * step).astype(case.dtype)  # the sum is exact
    plain = replace(problem, count=0)
    (mean, m2), moved = compute(plain, backend, x), compute(plain, backend, (x + x.dtype.type(shift)))
    terms = kernels.TERMS[plain.operation](plain, x.astype(np.float64) + shift)
    same("shifted pixels, mean", (mean.astype(np.float64) + shift).astype(mean.dtype), moved[0], terms[0])
    same("shifted pixels, m2", m2, moved[1], terms[1])


def scaled_pixels(case: Case, backend: Backend) -> None:
    """Pixels twice as large have twice the mean and four times m2."""
    problem = case.problem
    assert isinstance(problem, Statistics)
    x, *state = case.inputs()
    (mean, m2), twice = (
        compute(problem, backend, x, *state),
        compute(problem, backend, 2 * x, *(factor * array for factor, array in zip((2, 4), state, strict=False))),
    )
    for name, factor, one, two, (_, terms) in zip(
        ("mean", "m2"), (2, 4), (mean, m2), twice, expected(case), strict=True
    ):
        same(f"scaled pixels, {name}", factor * one, two, terms._replace(magnitude=factor * terms.magnitude))


def scale_invariance(case: Case, backend: Backend) -> None:
    """Twice the pixels and the mean, four times variance and epsilon: the same result."""
    problem = case.problem
    assert isinstance(problem, BatchProblem)
    x, mean, variance, *others = case.inputs()
    larger = replace(problem, spec=replace(problem.spec, epsilon=4 * problem.spec.epsilon))
    (one,) = compute(problem, backend, x, mean, variance, *others)
    (two,) = compute(larger, backend, 2 * x, 2 * mean, 4 * variance, *others)
    same("scale invariance", one, two, expected(case)[0][1])


def linear_in_g(case: Case, backend: Backend) -> None:
    """Twice the source gradient, and twice the sums, give twice the result."""
    problem = case.problem
    assert isinstance(problem, BatchProblem)
    inputs = dict(zip(problem.input_shapes, case.inputs(), strict=True))
    doubled = {name: 2 * array if name in ("g", "dbeta", "dgamma") else array for name, array in inputs.items()}
    once, twice = (compute(problem, backend, *read.values()) for read in (inputs, doubled))
    for one, two, (_, terms) in zip(once, twice, expected(case), strict=True):
        with np.errstate(over="ignore"):  # of float16, as in the second run
            doubled_result = 2 * one
        same("linear in g", doubled_result, two, terms._replace(magnitude=2 * terms.magnitude))


class _Step(NamedTuple):
    """A training step without a neuron on float32 images, in four calls; bounds of each result go with it."""

    problem: Gradient
    inputs: Inputs
    """Of the gradient, in float64."""
    r: Array
    scale: Array
    """gamma * r."""
    dx: Array
    limit: Array
    """Bound of each element of dx, for the inputs as they are."""
    of_mean: Array
    of_variance: Array
    of_dbeta: Array
    of_dgamma: Array


def _step(case: Case, backend: Backend, g: Array, x: Array) -> _Step:
    """Run statistics, statistics gradient and gradient on ``backend``."""
    assert isinstance(case.problem, Gradient)
    spec = replace(case.problem.spec, neuron=None)
    n = x[..., 0].size
    whole = replace(case.problem, spec=spec, source_shape=x.shape, beta=False, count=n)
    gamma = [array for name, array in zip(case.problem.input_shapes, case.inputs(), strict=True) if name == "gamma"]
    statistics, sums = Statistics(spec, x.shape), StatisticsGradient(spec, x.shape)
    (mean, m2), of_statistics = _with_bounds(statistics, backend, x)
    variance = m2 / np.float32(n)
    (dbeta, dgamma), of_sums = _with_bounds(sums, backend, g, x, mean, variance)
    inputs = (g, x, mean, variance, *gamma, dbeta, dgamma)
    (dx,), (limit,) = _with_bounds(whole, backend, *inputs)
    given = whole.named(array.astype(np.float64) for array in inputs)
    r = 1 / np.sqrt(given.variance + spec.epsilon)
    of_variance = of_statistics[1] / n + 2.0**-24 * given.variance
    scale = r * (1 if given.gamma is None else abs(given.gamma))
    return _Step(whole, given, r, scale, dx.astype(np.float64), limit, of_statistics[0], of_variance, *of_sums)


def _with_bounds(problem: Problem, backend: Backend, *inputs: Array) -> tuple[tuple[Array, ...], list[Array]]:
    results = compute(problem, backend, *inputs)
    each = zip(results, runner.terms(problem, *inputs), strict=True)
    return results, [comparator.bound(result, result.astype(np.float64), one) for result, one in each]


def sums_vanish(case: Case, backend: Backend) -> None:
    """The gradients of a channel's pixels sum to 0; multiplied by xhat, to the share of epsilon in the variance.

    A shift of all pixels changes nothing, and a scale of all pixels only as much as epsilon matters.
    """
    if not _able(case.problem, backend, "statistics", "statistics_gradient"):
        return
    g, x = (array.astype(np.float32) for array in case.inputs()[:2])
    step = _step(case, backend, g, x)
    given, r, axes = step.inputs, step.r, (0, 1, 2)
    off = abs(step.dx.sum(axes))
    limit = step.limit.sum(axes) + step.scale * (step.of_dbeta + abs(given.dgamma) * r * step.of_mean)
    _small("the sum of dx", off, limit)
    xhat = (given.x - given.mean) * r
    share = step.problem.spec.epsilon * r**2
    gamma = np.ones_like(r) if given.gamma is None else given.gamma
    off = abs((step.dx * xhat).sum(axes) - gamma * r * given.dgamma * share)
    missing = step.of_dgamma + abs(given.dbeta) * r * step.of_mean
    missing += abs(given.dgamma) * r**2 * (step.of_variance + step.of_mean**2)
    _small("the sum of dx * xhat", off, (step.limit * abs(xhat)).sum(axes) + step.scale * missing)


def _small(name: str, off: Array, limit: Array) -> None:
    limit = limit * (1 + 1e-9) + 1e-9 * np.finfo(np.float32).tiny  # the float64 sums themselves
    if not (off <= limit).all():
        channel = int(np.argmax(~(off <= limit)))
        raise Mismatch(
            f"sums vanish: {name} in channel {channel} is off by {off[channel]:.3g}; it may be by {limit[channel]:.3g}"
        )


def closed_form(case: Case, backend: Backend) -> None:
    """On pixels whose statistics are exact, the two passes give the closed form of the gradient.

    Half of the pixels are one more than an integer, and half are one less: mean that integer, variance 1.
    """
    if not _able(case.problem, backend, "statistics", "statistics_gradient"):
        return
    g, x = (array.astype(np.float32) for array in case.inputs()[:2])
    sign = np.where(x < 0, -1, 1).astype(np.float32)
    centre = np.round(np.clip(x[:1, :1, :1], -63, 63))
    step = _step(case, backend, np.concatenate([g, -2 * g]), np.concatenate([centre + sign, centre - sign]))
    given, n = step.inputs, step.problem.count
    xhat = (given.x - centre) / np.sqrt(1 + step.problem.spec.epsilon)
    mean_of_g, mean_of_product = given.g.mean((0, 1, 2)), (given.g * xhat).mean((0, 1, 2))
    gamma = np.ones_like(step.r) if given.gamma is None else given.gamma
    expected_dx = gamma / np.sqrt(1 + step.problem.spec.epsilon) * (given.g - mean_of_g - xhat * mean_of_product)
    limit = step.limit + step.scale * (step.of_dbeta + abs(xhat) * step.of_dgamma) / n
    off = abs(step.dx - expected_dx)
    if not (off <= limit).all():
        index = tuple(int(k) for k in np.argwhere(~(off <= limit))[0])
        raise Mismatch(
            f"closed form: dx is {step.dx[index]:.9g}, not {expected_dx[index]:.9g}, at {list(index)}", index
        )


REDUCTION = frozenset({"height and width are swapped", "channels-first code on channels-last memory"})

SUBJECTS: dict[type[Spec], Subject] = {
    BatchNormalization: Subject(
        problems,
        {
            "statistics": (repeatable, batch_in_any_order, constant_channels, shifted_pixels, scaled_pixels),
            "forward": (repeatable, images_one_by_one, scale_invariance),
            "statistics_gradient": (repeatable, batch_in_any_order, linear_in_g),
            "gradient": (repeatable, images_one_by_one, linear_in_g, sums_vanish, closed_form),
        },
        {"statistics": REDUCTION, "statistics_gradient": REDUCTION},
    )
}
