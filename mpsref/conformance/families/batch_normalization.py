"""Tests of batch normalization: batches in chunks, invariances, exact cases, sums that vanish."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator, runner
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.families import neuron
from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.golden_entries import Comparison, Entry
from mpsref.conformance.layer import Layer
from mpsref.conformance.mutants import (
    LAYOUT_MUTANTS,
    MutantTable,
    computed,
    correct,
    correct_results,
    of_results,
    of_spec,
)
from mpsref.conformance.properties import EquivalentProblem, equivalent, near, one_image_at_a_time, repeatable, same
from mpsref.conformance.runner import compute, expected
from mpsref.kernels import Neuron
from mpsref.kernels.batch_normalization import (
    BatchNormalization,
    BatchProblem,
    Gradient,
    Inputs,
    Reduction,
    Scaled,
    Statistics,
    StatisticsGradient,
    merged,
    statistics,
)
from mpsref.kernels.neuron import slope, value
from mpsref.kernels.normalization import FLT_MIN
from mpsref.registry import Backend, Implementation, Problem

# --- strategies -------------------------------------------------------------------------------------------------------

BENT = ("none", "relu", "linear", "hardsigmoid", "absolute", "prelu", "relun")
"""Neurons whose slope is constant between kinks: away from these, a gradient has the bound of its sums."""
SMOOTH = ("sigmoid", "tanh", "softplus", "softsign", "elu", "gelu")


def _specs(method: str, channels: int) -> st.SearchStrategy[BatchNormalization]:
    kinds = (*BENT, "relu", *(SMOOTH if method == "forward" else ()))
    neurons = st.sampled_from(kinds).flatmap(lambda kind: neuron.specs(kind, channels))
    given = st.none() if method == "statistics" else st.none() | neurons
    return st.builds(BatchNormalization, st.sampled_from([1e-3, 1e-5, FLT_MIN, 0.5, 2.0]), given)


def problems(method: str) -> st.SearchStrategy[Problem]:
    """Draw problems of one operation; a few have enough pixels for a backend to sum them in several chunks."""
    small = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
    few = st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.integers(1, 9))
    large = st.tuples(st.integers(1, 2), st.integers(1, 40), st.integers(1, 40), st.integers(1, 6))
    call: dict[str, st.SearchStrategy[int]] = {}
    if method != "forward":
        call["count"] = st.sampled_from([0, 0, 1, 2, 7, 100, 5000])
    if method != "statistics":
        call |= {"gamma": st.booleans(), "beta": st.booleans()}
    kind = BatchNormalization.problems[method]
    return (small | small | few | large).flatmap(
        lambda shape: st.builds(kind, _specs(method, shape[3]), st.just(shape), **call)
    )


# --- properties -------------------------------------------------------------------------------------------------------


def _of_image(problem: Reduction, count: int) -> Reduction:
    """Return the problem of a single image, after ``count`` pixels."""
    _, height, width, channels = problem.source_shape
    return replace(problem, source_shape=(1, height, width, channels), count=count)


def _able(problem: Problem, backend: Backend, *methods: str) -> bool:
    """Whether the backend has the other operations of a property."""
    return not any(backend.why_not((type(problem.spec), method), problem.spec) for method in methods)


def batch_in_any_order(case: Case, backend: Backend) -> None:
    """The images one by one, the last one first, each with the sums so far, have the result of the batch."""
    problem = case.of(Reduction)
    pictures, vectors = _split(problem, case.inputs())
    whole = compute(problem, backend, *pictures, *vectors)
    done, others = problem.count, vectors[: len(vectors) - 2] if problem.count else vectors
    sums = vectors[len(others) :]
    n, height, width, _ = problem.source_shape
    for k in reversed(range(n)):
        one = _of_image(problem, done)
        sums = compute(one, backend, *(picture[k : k + 1] for picture in pictures), *others, *sums)
        done += height * width
    for name, first, second, (_, terms) in zip(("first", "second"), whole, sums, expected(case), strict=True):
        # Each call rounds once more, which the bound of one call does not allow for.
        same(f"batch in any order, {name} sum", first, second, terms.times(n))


def _split(problem: BatchProblem, inputs: tuple[Array, ...]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    return inputs[: len(problem.image_names)], inputs[len(problem.image_names) :]


def constant_channels(case: Case, backend: Backend) -> None:
    """Where all pixels are equal, they are the mean, and m2 is exactly 0, however large they are."""
    problem = case.of(Statistics)
    pixel = case.inputs()[0][:1, :1, :1]
    x = np.broadcast_to(pixel, problem.source_shape)
    mean, m2 = compute(replace(problem, count=0), backend, np.ascontiguousarray(x))
    if (mean != pixel.ravel()).any() or m2.any():
        raise Mismatch(f"constant channels: mean is {mean.tolist()} for {pixel.ravel().tolist()}, m2 {m2.tolist()}")


def shifted_pixels(case: Case, backend: Backend) -> None:
    """A large number added to every pixel is added to the mean, and does not change m2."""
    problem = case.of(Statistics)
    step, shift = (2.0**-2, 2.0**8) if case.dtype == "float16" else (2.0**-6, 2.0**13)
    (x, *_) = case.inputs()
    x = (np.round(np.clip(x.astype(np.float64), -32, 32) / step) * step).astype(case.dtype)  # the sum is exact
    fresh = replace(problem, count=0)
    (mean, m2), moved = compute(fresh, backend, x), compute(fresh, backend, (x + x.dtype.type(shift)))
    terms = runner.terms(fresh, x.astype(np.float64) + shift)
    same("shifted pixels, mean", (mean.astype(np.float64) + shift).astype(mean.dtype), moved[0], terms[0])
    same("shifted pixels, m2", m2, moved[1], terms[1])


def scaled_pixels(case: Case, backend: Backend) -> None:
    """Pixels twice as large have twice the mean and four times m2."""
    problem = case.of(Statistics)
    x, *state = case.inputs()
    (mean, m2), twice = (
        compute(problem, backend, x, *state),
        compute(problem, backend, 2 * x, *(factor * array for factor, array in zip((2, 4), state, strict=False))),
    )
    for name, factor, one, two, (_, terms) in zip(
        ("mean", "m2"), (2, 4), (mean, m2), twice, expected(case), strict=True
    ):
        same(f"scaled pixels, {name}", factor * one, two, terms.times(factor))


@equivalent
def scale_invariance(
    problem: BatchProblem, x: Array, mean: Array, variance: Array, *others: Array
) -> EquivalentProblem:
    """Twice the pixels and the mean, four times variance and epsilon: the same result."""
    larger = replace(problem, spec=replace(problem.spec, epsilon=4 * problem.spec.epsilon))
    return EquivalentProblem(larger, [2 * x, 2 * mean, 4 * variance, *others])


def linear_in_g(case: Case, backend: Backend) -> None:
    """Twice the source gradient, and twice the sums, give twice the result."""
    problem = case.of(BatchProblem)
    inputs = dict(zip(problem.input_shapes, case.inputs(), strict=True))
    doubled = {name: 2 * array if name in ("g", "dbeta", "dgamma") else array for name, array in inputs.items()}
    once, twice = (compute(problem, backend, *read.values()) for read in (inputs, doubled))
    for one, two, (_, terms) in zip(once, twice, expected(case), strict=True):
        same("linear in g", 2 * one, two, terms.times(2))


class _Step(NamedTuple):
    """A training step without a neuron on float32 images, in four calls, with the bounds of each result."""

    problem: Gradient
    inputs: Inputs
    """Of the gradient, in float64."""
    r: Array
    scale: Array
    """gamma * r."""
    dx: Array
    limit: Array
    """Bound of each element of dx for these inputs."""
    of_mean: Array
    of_variance: Array
    of_dbeta: Array
    of_dgamma: Array


def _step(case: Case, backend: Backend, g: Array, x: Array) -> _Step:
    """Run statistics, statistics gradient and gradient on ``backend``."""
    problem = case.of(Gradient)
    spec = replace(problem.spec, neuron=None)
    n = x[..., 0].size
    whole = replace(problem, spec=spec, source_shape=x.shape, beta=False, count=n)
    gamma = [array for name, array in zip(problem.input_shapes, case.inputs(), strict=True) if name == "gamma"]
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
    """The gradients of the pixels of a channel sum to 0; times xhat, to the ratio of epsilon to variance + epsilon.

    A constant added to all pixels changes nothing, and a factor changes the result only because of epsilon.
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
    ratio = step.problem.spec.epsilon * r**2
    gamma = np.ones_like(r) if given.gamma is None else given.gamma
    off = abs((step.dx * xhat).sum(axes) - gamma * r * given.dgamma * ratio)
    missing = step.of_dgamma + abs(given.dbeta) * r * step.of_mean
    missing += abs(given.dgamma) * r**2 * (step.of_variance + step.of_mean**2)
    _small("the sum of dx * xhat", off, (step.limit * abs(xhat)).sum(axes) + step.scale * missing)


def _small(name: str, off: Array, limit: Array) -> None:
    limit = limit * (1 + 1e-9) + 1e-9 * np.finfo(np.float32).tiny  # the float64 sums themselves
    near(f"sums vanish: {name}", off, np.zeros_like(off), limit)


def closed_form(case: Case, backend: Backend) -> None:
    """On pixels whose statistics are exact, the two passes agree with the closed form of the gradient.

    Half of the pixels are an integer plus 1, and half are that integer minus 1: it is the mean, the variance is 1.
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
    near("closed form", step.dx, expected_dx, limit)


# --- mutants: given statistics ----------------------------------------------------------------------------------------

Step: TypeAlias = Callable[..., Array]
"""``step(problem, inputs)`` computes an array."""

OfXhat: TypeAlias = Callable[[Scaled, Inputs, Array], Array]
"""``step(problem, inputs, xhat)`` computes an array."""

AXES = (0, 1, 2)


def _given(problem: BatchProblem, inputs: tuple[Array, ...]) -> Inputs:
    """Return the inputs; gamma is 1 and beta is 0 where they are left out."""
    given = problem.named(inputs)
    gamma = np.ones(problem.channels) if given.gamma is None else given.gamma
    return given._replace(gamma=gamma, beta=np.zeros(problem.channels) if given.beta is None else given.beta)


def _reading(**changes: Step) -> Implementation:
    """Compute on other inputs: ``changes`` maps names of inputs to functions of the problem and all inputs."""

    def formula(problem: Scaled, *inputs: Array) -> tuple[Array, ...]:
        given = _given(problem, inputs)
        others = {name: change(problem, given) for name, change in changes.items()}
        named = zip(problem.input_shapes, inputs, strict=True)
        return correct_results(problem, *(others.get(name, array) for name, array in named))

    return computed(formula)


def _formula(step: Step) -> Implementation:
    """Compute ``step(problem, inputs)``."""
    return computed(lambda problem, *inputs: step(problem, _given(problem, inputs)))


def _root(problem: Scaled, given: Inputs) -> Array:
    return np.asarray(1 / np.sqrt(given.variance + problem.spec.epsilon))


def _epsilon_outside(problem: Scaled, given: Inputs) -> Array:
    return np.asarray(1 / (np.sqrt(given.variance) + problem.spec.epsilon))


def _xhat(problem: Scaled, given: Inputs, root: Step = _root) -> Array:
    return np.asarray((given.x - given.mean) * root(problem, given))


def _activated(problem: Scaled, z: Array) -> Array:
    return z if problem.spec.neuron is None else value(problem.spec.neuron, z)


_GIVEN_STATISTICS: MutantTable = {
    "epsilon is ignored": of_spec(epsilon=lambda spec: 0.0),
    "the mean of the next channel is taken": _reading(mean=lambda p, given: np.roll(given.mean, 1)),
}

# --- mutants: statistics ----------------------------------------------------------------------------------------------


Moments: TypeAlias = tuple[Array, Array]


def _statistics(
    own: Callable[[Array, Array, Array], Moments] = lambda pixels, mean, m2: (mean, m2),
    merge: Callable[..., Moments] = lambda b, mean, m2, n, m, s: merged(n, m, s, b, mean, m2),
) -> Implementation:
    """Compute other statistics of one call, ``own(pixels, mean, m2)``, or merge them in another way with earlier ones.

    ``merge(b, mean, m2, n, earlier mean, earlier m2)``: b pixels now, n earlier.
    """

    def formula(problem: Statistics, x: Array, *state: Array) -> Moments:
        moments = own(x.reshape(-1, problem.channels), *statistics(replace(problem, count=0), x))
        return merge(problem.pixels, *moments, problem.count, *state) if state else moments

    return computed(formula)


def _in_float32(pixels: Array, mean: Array, m2: Array) -> tuple[Array, Array]:
    x, n = pixels.astype(np.float32), np.float32(len(pixels))
    total, squares = x.sum(0), (x * x).sum(0)
    return (total / n).astype(np.float64), np.maximum(squares - total * total / n, 0).astype(np.float64)


_STATISTICS: MutantTable = {
    "the variance is unbiased": _statistics(lambda p, mean, m2: (mean, m2 * len(p) / max(len(p) - 1, 1))),
    "m2 is not centred": _statistics(lambda p, mean, m2: (mean, (p**2).sum(0))),
    "the variance is computed from sums of squares in float32": _statistics(_in_float32),
    "the earlier sums are ignored": _statistics(merge=lambda b, mean, m2, n, *before: (mean, m2)),
    "the distance of two means is not added to m2": _statistics(
        merge=lambda b, mean, m2, n, m, s: (merged(n, m, s, b, mean, m2)[0], m2 + s)
    ),
    "the distance of two means is weighted by b": _statistics(
        merge=lambda b, mean, m2, n, m, s: (merged(n, m, s, b, mean, m2)[0], m2 + s + (mean - m) ** 2 * b)
    ),
    "the mean of two means is not weighted": _statistics(
        merge=lambda b, mean, m2, n, m, s: ((mean + m) / 2, merged(n, m, s, b, mean, m2)[1])
    ),
    "each call counts as one pixel more": _statistics(
        merge=lambda b, mean, m2, n, m, s: merged(n + 1, m, s, b, mean, m2)
    ),
}

# --- mutants: forward -------------------------------------------------------------------------------------------------


def _of_xhat(formula: OfXhat) -> Implementation:
    return _formula(lambda p, given: formula(p, given, _xhat(p, given)))


def _fused(problem: Scaled, given: Inputs) -> Array:
    """One multiplication and one addition, in float32, which cancel where the mean is far from 0."""
    factor = (given.gamma * _root(problem, given)).astype(np.float32)
    offset = (given.beta - given.mean * factor).astype(np.float32)
    return _activated(problem, (given.x.astype(np.float32) * factor + offset).astype(np.float64))


_FORWARD: MutantTable = {
    "epsilon is outside the root": _formula(
        lambda p, given: _activated(p, given.gamma * _xhat(p, given, _epsilon_outside) + given.beta)
    ),
    "gamma is ignored": _reading(gamma=lambda p, given: np.ones_like(given.gamma)),
    "beta is ignored": _reading(beta=lambda p, given: 0 * given.beta),
    "beta is added before gamma": _of_xhat(lambda p, given, x: _activated(p, given.gamma * (x + given.beta))),
    "the neuron is left out": of_spec(neuron=lambda spec: None),
    "the neuron comes before gamma and beta": _of_xhat(lambda p, given, x: given.gamma * _activated(p, x) + given.beta),
    "mean and factor are fused in float32": _formula(_fused),
}

# --- mutants: the two gradients ---------------------------------------------------------------------------------------


def _slope_at(at: OfXhat) -> Step:
    """Return g times the slope of the neuron at ``at(problem, inputs, xhat)``."""

    def step(p: Scaled, given: Inputs) -> Array:
        z = at(p, given, _xhat(p, given))
        return np.asarray(given.g if p.spec.neuron is None else given.g * slope(p.spec.neuron, z))

    return step


_dz = _slope_at(lambda p, given, x: given.gamma * x + given.beta)

_WRONG_DZ: Mapping[str, Step] = {
    "the slope of the neuron is left out": lambda p, given: given.g,
    "the slope of the neuron is taken at xhat": _slope_at(lambda p, given, x: x),
    "the slope of the neuron is taken before beta": _slope_at(lambda p, given, x: given.gamma * x),
    "the slope of the neuron is taken at y": _slope_at(lambda p, given, x: _activated(p, given.gamma * x + given.beta)),
}


def _sums(product: Callable[[StatisticsGradient, Inputs, Array], tuple[Array, Array]]) -> Implementation:
    """Return the sums over all pixels of ``product(problem, inputs, dz)``, added to the earlier ones."""

    def formula(problem: StatisticsGradient, *inputs: Array) -> tuple[Array, ...]:
        given = _given(problem, inputs)
        first, second = (terms.sum(AXES) for terms in product(problem, given, _dz(problem, given)))
        return (first + given.dbeta, second + given.dgamma) if problem.count else (first, second)

    return computed(formula)


def _sums_of_dz(dz: Step) -> Implementation:
    return _sums(lambda p, given, _: (dz(p, given), dz(p, given) * _xhat(p, given)))


def _without_earlier(results: tuple[Array, ...], problem: StatisticsGradient, *inputs: Array) -> tuple[Array, ...]:
    earlier = inputs[-2:] if problem.count else (0, 0)
    return tuple(result - before for result, before in zip(results, earlier, strict=True))


_STATISTICS_GRADIENT: MutantTable = {
    **{name: _sums_of_dz(dz) for name, dz in _WRONG_DZ.items()},
    "epsilon is outside the root": _sums(lambda p, given, dz: (dz, dz * _xhat(p, given, _epsilon_outside))),
    "dgamma is multiplied by gamma": _sums(lambda p, given, dz: (dz, dz * _xhat(p, given) * given.gamma)),
    "dbeta and dgamma are exchanged": _sums(lambda p, given, dz: (dz * _xhat(p, given), dz)),
    "the last image is left out of dgamma": _sums(
        lambda p, given, dz: (dz, (dz * _xhat(p, given))[: max(1, len(dz) - 1)])
    ),
    "the earlier sums are ignored": of_results(_without_earlier),
}


def _dx(
    dz: Step = _dz,
    of_mean: float = 1,
    of_variance: float = 1,
    n: Callable[[Gradient], int] = lambda p: p.count,
    root: Step = _root,
) -> Implementation:
    """Compute dx with other factors of its terms, another n, another root, or another dz."""

    def step(p: Gradient, given: Inputs) -> Array:
        h, xhat = dz(p, given), _xhat(p, given, root)
        if p.count:
            h = h - (of_mean * given.dbeta + of_variance * xhat * given.dgamma) / n(p)
        return np.asarray(given.gamma * root(p, given) * h)

    return _formula(step)


def _with_terms_of_batch(problem: Gradient, *inputs: Array) -> Array:
    if problem.count:
        return correct(problem, *inputs)
    given = _given(problem, inputs)
    dz, xhat = _dz(problem, given), _xhat(problem, given)
    return np.asarray(given.gamma * _root(problem, given) * (dz - dz.mean(AXES) - xhat * (dz * xhat).mean(AXES)))


_GRADIENT: MutantTable = {
    **{name: _dx(dz=dz) for name, dz in _WRONG_DZ.items()},
    "the term of the mean is missing": _dx(of_mean=0),
    "the term of the variance is missing": _dx(of_variance=0),
    "the term of the variance has the other sign": _dx(of_variance=-1),
    "the terms are not divided by n": _dx(n=lambda p: 1),
    "n is the number of pixels of this call": _dx(n=lambda p: p.pixels),
    "n is one less": _dx(n=lambda p: max(p.count - 1, 1)),
    "epsilon is outside the root": _dx(root=_epsilon_outside),
    "gamma is left out": _reading(gamma=lambda p, given: np.ones_like(given.gamma)),
    "dbeta and dgamma are exchanged": _reading(
        dbeta=lambda p, given: given.dgamma, dgamma=lambda p, given: given.dbeta
    ),
    "the sums of these images are taken": _reading(dbeta=lambda p, given: _dz(p, given).sum(AXES)),
    "frozen statistics have the terms of the batch": computed(_with_terms_of_batch),
}

MUTANTS = {
    (BatchNormalization, "statistics"): _STATISTICS,
    (BatchNormalization, "forward"): {**_GIVEN_STATISTICS, **_FORWARD},
    (BatchNormalization, "statistics_gradient"): {**_GIVEN_STATISTICS, **_STATISTICS_GRADIENT},
    (BatchNormalization, "gradient"): {**_GIVEN_STATISTICS, **_GRADIENT},
}

# --- golden results ---------------------------------------------------------------------------------------------------


def _golden_inference(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare the forward pass with the statistics of the entry."""
    norm = BatchNormalization(entry.parameters["epsilon"])
    given = (entry.inputs[name].array for name in ("mean", "variance", "gamma", "beta"))
    yield Comparison("y", norm.forward(entry.image("x"), *given, backend=backend), entry.expected["y"])


def _golden_matrix(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare a matrix, as an image, with its own statistics where the kernel computed them."""
    norm, x = BatchNormalization(entry.parameters["epsilon"]), entry.image("x")
    given = {name: entry.inputs[name].array for name in ("mean", "variance", "gamma", "beta") if name in entry.inputs}
    if entry.parameters.get("compute_statistics"):
        seen = norm.statistics(x, backend=backend)
        given |= {"mean": seen.mean, "variance": np.asarray(seen.variance)}
        for name in ("mean", "variance"):
            yield Comparison(name, given[name], entry.expected[name])
    yield Comparison("y", norm.forward(x, **given, backend=backend), entry.expected["y"])


# --- layers -----------------------------------------------------------------------------------------------------------


class BatchLayer(Layer):
    """A layer in training: the sums that its gradient receives are over all pixels of the batch."""

    @classmethod
    def read(  # type: ignore[override]
        cls, *, parameters: dict[str, Any], call: dict[str, Any] | None = None, **row: Any
    ) -> Self:
        """Return the layer of a row; it has gamma and beta unless ``call`` excludes them."""
        if "neuron" in parameters:
            parameters = {**parameters, "neuron": Neuron(**parameters["neuron"])}
        return super().read(parameters=parameters, call={"gamma": True, "beta": True, **(call or {})}, **row)

    def problem(self, method: str) -> Problem:
        """Return the problem of one of the operations."""
        kind = self.spec.problems[method]
        known: dict[str, Any] = {} if method == "statistics" else dict(self.call)
        if method == "gradient":
            known["count"] = math.prod(self.source_shape[:3])
        problem: Problem = kind(self.spec, self.source_shape, **known)
        return problem


FAMILY = Family(
    "batch_normalization",
    {
        BatchNormalization: KernelTests(
            problems,
            {
                "statistics": (repeatable, batch_in_any_order, constant_channels, shifted_pixels, scaled_pixels),
                "forward": (repeatable, one_image_at_a_time, scale_invariance),
                "statistics_gradient": (repeatable, batch_in_any_order, linear_in_g),
                "gradient": (repeatable, one_image_at_a_time, linear_in_g, sums_vanish, closed_form),
            },
            dict.fromkeys(("statistics", "statistics_gradient"), LAYOUT_MUTANTS),
        )
    },
    MUTANTS,
    {
        "MPSCNNBatchNormalization": _golden_inference,
        "MPSCNNBatchNormalizationNode": _golden_inference,
        "MPSMatrixBatchNormalization": _golden_matrix,
    },
    {BatchNormalization: ("statistics", "forward", "statistics_gradient", "gradient")},
    layer=BatchLayer.read,
)
