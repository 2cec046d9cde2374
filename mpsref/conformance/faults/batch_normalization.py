"""Planted faults in batch normalization: what is summed, what is divided by, where the neuron's slope is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import Fault, honest_results, of_problem, of_results, with_spec
from mpsref.kernels.batch_normalization import BatchNormalization
from mpsref.kernels.batch_normalization_formulas import merged, statistics
from mpsref.kernels.batch_normalization_problems import BatchProblem, Inputs
from mpsref.kernels.neuron import slope, value
from mpsref.registry import Operation

__all__ = ["faults"]

Table = dict[str, Callable[..., None]]
Step = Callable[[Any, Inputs], Array]

AXES = (0, 1, 2)


def _given(problem: BatchProblem, inputs: tuple[Array, ...]) -> Inputs:
    """Return the inputs in float64; gamma and beta are 1 and 0 where they are left out."""
    given = problem.named(array.astype(np.float64) for array in inputs)
    gamma = np.ones(problem.channels) if given.gamma is None else given.gamma
    return given._replace(gamma=gamma, beta=np.zeros(problem.channels) if given.beta is None else given.beta)


def _reading(**changes: Callable[[Any, Inputs], Array]) -> Callable[..., None]:
    """Compute honestly on other inputs: each of ``changes`` returns what is read in place of the one of its name."""

    def compute(_: Any, problem: Any, *inputs: Array) -> tuple[Array, ...]:
        given = _given(problem, inputs)
        others = {name: change(problem, given) for name, change in changes.items()}
        named = zip(problem.input_shapes, inputs, strict=True)
        return honest_results(problem, *(others.get(name, array) for name, array in named))

    return of_results(compute)


def _root(problem: Any, given: Inputs) -> Array:
    return np.asarray(1 / np.sqrt(given.variance + problem.spec.epsilon))


def _epsilon_outside(problem: Any, given: Inputs) -> Array:
    return np.asarray(1 / (np.sqrt(given.variance) + problem.spec.epsilon))


def _no_root(problem: Any, given: Inputs) -> Array:
    return np.asarray(1 / (given.variance + problem.spec.epsilon))


def _after_neuron(problem: Any, z: Array) -> Array:
    return z if problem.spec.neuron is None else value(problem.spec.neuron, z)


def _slope_at(problem: Any, at: Array) -> Array:
    return np.ones_like(at) if problem.spec.neuron is None else slope(problem.spec.neuron, at)


ELSEWHERE: Mapping[str, Callable[..., None]] = {
    "epsilon is ignored": of_problem(with_spec(epsilon=lambda spec: 0.0)),
    "epsilon counts twice": of_problem(with_spec(epsilon=lambda spec: 2 * spec.epsilon)),
    "the mean of the next channel is taken": _reading(mean=lambda p, given: np.roll(given.mean, 1)),
    "the variance of the next channel is taken": _reading(variance=lambda p, given: np.roll(given.variance, 1)),
    "the statistics of these images are taken, not those given": _reading(
        mean=lambda p, given: given.x.mean(AXES), variance=lambda p, given: given.x.var(AXES) + 2.0**-9
    ),
    "the mean is not subtracted": _reading(mean=lambda p, given: 0 * given.mean),
    "the deviation is taken for the variance": _reading(variance=lambda p, given: np.sqrt(given.variance)),
}
"""Wrong statistics: faults of every operation that is given some."""


# --- statistics -------------------------------------------------------------------------------------------------------


def _of_statistics(change: Callable[..., tuple[Array, Array]]) -> Callable[..., None]:
    """Return the fault ``change(b, mean, m2, n, mean_before, m2_before, pixels)``: b pixels now, n before."""

    def compute(_: Any, problem: Any, x: Array, *state: Array) -> tuple[Array, ...]:
        x, state = x.astype(np.float64), tuple(array.astype(np.float64) for array in state)
        mean, m2 = statistics(replace(problem, count=0), x)
        before = state or (np.zeros_like(mean), np.zeros_like(m2))
        return change(problem.pixels, mean, m2, problem.count, *before, x.reshape(-1, problem.channels))

    return of_results(compute)


def _own(change: Callable[..., tuple[Array, Array]]) -> Callable[..., None]:
    """Return a fault in the statistics of one call, ``change(pixels, mean, m2)``, which are then merged rightly."""

    def compute(b: int, mean: Array, m2: Array, n: int, before: Array, m2_before: Array, pixels: Array) -> Any:
        wrong = change(pixels, mean, m2)
        return merged(n, before, m2_before, b, *wrong) if n else wrong

    return _of_statistics(compute)


def _merging(change: Callable[..., tuple[Array, Array]]) -> Callable[..., None]:
    """Return a fault in what is made of the statistics of one call and of those before."""

    def compute(b: int, mean: Array, m2: Array, n: int, before: Array, m2_before: Array, pixels: Array) -> Any:
        return change(b, mean, m2, n, before, m2_before) if n else (mean, m2)

    return _of_statistics(compute)


def _in_float32(pixels: Array, mean: Array, m2: Array) -> tuple[Array, Array]:
    x, n = pixels.astype(np.float32), np.float32(len(pixels))
    with np.errstate(over="ignore"):
        total, squares = x.sum(0), (x * x).sum(0)
        return (total / n).astype(np.float64), np.maximum(squares - total * total / n, 0).astype(np.float64)


def _statistics() -> Table:
    return {
        "the variance is unbiased": _own(lambda p, mean, m2: (mean, m2 * len(p) / max(len(p) - 1, 1))),
        "m2 is divided by n": _own(lambda p, mean, m2: (mean, m2 / len(p))),
        "m2 is its root": _own(lambda p, mean, m2: (mean, np.sqrt(m2))),
        "m2 is not centred": _own(lambda p, mean, m2: (mean, (p**2).sum(0))),
        "m2 is centred at the first pixel": _own(lambda p, mean, m2: (mean, ((p - p[0]) ** 2).sum(0))),
        "m2 sums distances, not their squares": _own(lambda p, mean, m2: (mean, abs(p - mean).sum(0))),
        "sums of x and of its square in float32": _own(_in_float32),
        "the first pixel is left out": _own(lambda p, mean, m2: (p[1:].sum(0) / len(p), m2)),
        "the last pixel counts twice": _own(lambda p, mean, m2: ((p.sum(0) + p[-1]) / len(p), m2)),
        "m2 of the next channel is taken": _own(lambda p, mean, m2: (mean, np.roll(m2, 1))),
        "the earlier sums are ignored": _merging(lambda b, mean, m2, n, *before: (mean, m2)),
        "the earlier m2 is ignored": _merging(lambda b, mean, m2, n, m, s: (merged(n, m, s, b, mean, m2)[0], m2)),
        "the distance of two means adds nothing to m2": _merging(
            lambda b, mean, m2, n, m, s: (merged(n, m, s, b, mean, m2)[0], m2 + s)
        ),
        "the distance of two means is weighted by b": _merging(
            lambda b, mean, m2, n, m, s: (merged(n, m, s, b, mean, m2)[0], m2 + s + (mean - m) ** 2 * b)
        ),
        "the mean of two means is not weighted": _merging(
            lambda b, mean, m2, n, m, s: ((mean + m) / 2, merged(n, m, s, b, mean, m2)[1])
        ),
        "each call counts as one pixel more": _merging(lambda b, mean, m2, n, m, s: merged(n + 1, m, s, b, mean, m2)),
    }


# --- forward ----------------------------------------------------------------------------------------------------------


def _formula(step: Step) -> Callable[..., None]:
    """Return the operation that computes ``step(problem, inputs)``, in float64."""
    return of_results(lambda _, problem, *inputs: (step(problem, _given(problem, inputs)),))


def _xhat(problem: Any, given: Inputs, root: Step = _root) -> Array:
    return np.asarray((given.x - given.mean) * root(problem, given))


def _folded(problem: Any, given: Inputs) -> Array:
    """One multiplication and one addition, in float32: what is left of a mean far from 0 has few digits."""
    factor = (given.gamma * _root(problem, given)).astype(np.float32)
    offset = (given.beta - given.mean * factor).astype(np.float32)
    return _after_neuron(problem, (given.x.astype(np.float32) * factor + offset).astype(np.float64))


def _forward() -> Table:
    def normalized(change: Callable[[Any, Inputs, Array], Array]) -> Callable[..., None]:
        return _formula(lambda p, given: change(p, given, _xhat(p, given)))

    def rooted(root: Step) -> Callable[..., None]:
        return _formula(lambda p, given: _after_neuron(p, given.gamma * _xhat(p, given, root) + given.beta))

    return {
        "epsilon is outside the root": rooted(_epsilon_outside),
        "the root is forgotten": rooted(_no_root),
        "the variance is not divided by": rooted(lambda p, given: np.ones_like(given.variance)),
        "gamma is ignored": _reading(gamma=lambda p, given: np.ones_like(given.gamma)),
        "beta is ignored": _reading(beta=lambda p, given: 0 * given.beta),
        "gamma and beta are exchanged": _reading(gamma=lambda p, given: given.beta, beta=lambda p, given: given.gamma),
        "gamma of the next channel is taken": _reading(gamma=lambda p, given: np.roll(given.gamma, 1)),
        "beta is added before gamma": normalized(lambda p, given, x: _after_neuron(p, given.gamma * (x + given.beta))),
        "the neuron is forgotten": of_problem(with_spec(neuron=lambda spec: None)),
        "the neuron comes before gamma and beta": normalized(
            lambda p, given, x: given.gamma * _after_neuron(p, x) + given.beta
        ),
        "the neuron is applied twice": normalized(
            lambda p, given, x: _after_neuron(p, _after_neuron(p, given.gamma * x + given.beta))
        ),
        "mean and factor are folded in float32": _formula(_folded),
    }


# --- the two gradients ------------------------------------------------------------------------------------------------


def _places(at: Callable[[Any, Inputs, Array], Array]) -> Step:
    """Return g' with the neuron's slope taken at ``at(problem, inputs, xhat)``."""
    return lambda p, given: given.g * _slope_at(p, at(p, given, _xhat(p, given)))


WRONG_SLOPES: Mapping[str, Step] = {
    "the neuron's slope is forgotten": lambda p, given: given.g,
    "the neuron's slope is taken at xhat": _places(lambda p, given, x: x),
    "the neuron's slope is taken at x": _places(lambda p, given, x: given.x),
    "the neuron's slope is taken before beta": _places(lambda p, given, x: given.gamma * x),
    "the neuron's slope is taken at y": _places(lambda p, given, x: _after_neuron(p, given.gamma * x + given.beta)),
}

_upstream = _places(lambda p, given, x: given.gamma * x + given.beta)


def _sums_of(product: Callable[[Any, Inputs, Array], tuple[Array, Array]]) -> Callable[..., None]:
    """Return the sums over all pixels of ``product(problem, inputs, g')``, added to those before."""

    def compute(_: Any, problem: Any, *inputs: Array) -> tuple[Array, ...]:
        given = _given(problem, inputs)
        first, second = (terms.sum(AXES) for terms in product(problem, given, _upstream(problem, given)))
        return (first + given.dbeta, second + given.dgamma) if problem.count else (first, second)

    return of_results(compute)


def _statistics_gradient() -> Table:
    def upstream(step: Step) -> Callable[..., None]:
        return _sums_of(lambda p, given, g: (step(p, given), step(p, given) * _xhat(p, given)))

    def rooted(root: Step) -> Callable[..., None]:
        return _sums_of(lambda p, given, g: (g, g * _xhat(p, given, root)))

    return {
        **{name: upstream(step) for name, step in WRONG_SLOPES.items()},
        "epsilon is outside the root": rooted(_epsilon_outside),
        "the root is forgotten": rooted(_no_root),
        "the pixels are centred but not scaled": rooted(lambda p, given: np.ones_like(given.variance)),
        "dgamma is multiplied by gamma": _sums_of(lambda p, given, g: (g, g * _xhat(p, given) * given.gamma)),
        "the sums are divided by n": _sums_of(lambda p, given, g: (g / p.pixels, g * _xhat(p, given) / p.pixels)),
        "dbeta and dgamma are exchanged": _sums_of(lambda p, given, g: (g * _xhat(p, given), g)),
        "dgamma is the gradient for the variance": _sums_of(
            lambda p, given, g: (g, -0.5 * g * _xhat(p, given) * _root(p, given) ** 2)
        ),
        "the last image is left out of dgamma": _sums_of(
            lambda p, given, g: (g, (g * _xhat(p, given))[: max(1, len(g) - 1)])
        ),
        "the earlier sums are ignored": of_results(
            lambda results, p, *inputs: tuple(
                result - earlier for result, earlier in zip(results, inputs[-2:] if p.count else (0, 0), strict=True)
            )
        ),
        "the earlier sums count twice": of_results(
            lambda results, p, *inputs: tuple(
                result + earlier for result, earlier in zip(results, inputs[-2:] if p.count else (0, 0), strict=True)
            )
        ),
    }


def _dx(
    p: Any,
    given: Inputs,
    *,
    g: Step = _upstream,
    of_mean: float = 1,
    of_variance: float = 1,
    n: Any = None,
    root: Step = _root,
) -> Array:
    """Return dx with factors at its terms, another n, another root, or another g'."""
    dz, xhat = g(p, given), _xhat(p, given, root)
    if p.count:
        count = p.count if n is None else n(p)
        dz = dz - of_mean * given.dbeta / count - of_variance * xhat * given.dgamma / count
    return np.asarray(given.gamma * root(p, given) * dz)


def _gradient() -> Table:
    def changed(**how: Any) -> Callable[..., None]:
        return _formula(lambda p, given: _dx(p, given, **how))

    return {
        **{name: changed(g=step) for name, step in WRONG_SLOPES.items()},
        "the term of the mean is missing": changed(of_mean=0),
        "the term of the variance is missing": changed(of_variance=0),
        "both terms of the statistics are missing": changed(of_mean=0, of_variance=0),
        "the term of the variance has the other sign": changed(of_variance=-1),
        "the terms are not divided by n": changed(n=lambda p: 1),
        "n is the number of pixels of this call": changed(n=lambda p: p.pixels),
        "n is one less": changed(n=lambda p: max(p.count - 1, 1)),
        "epsilon is outside the root": changed(root=_epsilon_outside),
        "the root is forgotten": changed(root=_no_root),
        "gamma is forgotten": _reading(gamma=lambda p, given: np.ones_like(given.gamma)),
        "dbeta and dgamma are exchanged": _reading(
            dbeta=lambda p, given: given.dgamma, dgamma=lambda p, given: given.dbeta
        ),
        "the sums are those of the next channel": _reading(dbeta=lambda p, given: np.roll(given.dbeta, 1)),
        "the sums of these images are taken, not those given": _reading(
            dbeta=lambda p, given: _upstream(p, given).sum(AXES)
        ),
        "frozen statistics get the terms of the batch": _formula(_never_frozen),
    }


def _never_frozen(p: Any, given: Inputs) -> Array:
    if p.count:
        return _dx(p, given)
    g, xhat = _upstream(p, given), _xhat(p, given)
    return np.asarray(given.gamma * _root(p, given) * (g - g.mean(AXES) - xhat * (g * xhat).mean(AXES)))


def faults() -> Iterator[Fault]:
    """Yield the faults of the four operations, beside those that every kernel can have."""
    tables: dict[str, Table] = {
        "statistics": _statistics(),
        "forward": {**ELSEWHERE, **_forward()},
        "statistics_gradient": {**ELSEWHERE, **_statistics_gradient()},
        "gradient": {**ELSEWHERE, **_gradient()},
    }
    for method, table in tables.items():
        for name, run in table.items():
            yield Fault(name, Operation(BatchNormalization, method), run)
