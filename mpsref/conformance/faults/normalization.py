"""Planted faults of instance and group normalization, and the list of those of the other normalizations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults import normalization_channels, normalization_windows
from mpsref.conformance.faults.planted import Fault, honest_results, of_problem, of_results, with_spec
from mpsref.kernels import GroupNormalization, InstanceNormalization
from mpsref.kernels.group_normalization import ALL_VALUES, GroupsProblem
from mpsref.registry import Operation

__all__ = ["faults"]

Table = dict[str, Callable[..., None]]

Deviation = Callable[[Any, Array, Array], Array]
"""``deviation(problem, grouped, mean) -> sqrt(variance + epsilon)``, of (N, H, W, groups, channels of a group)."""


def variance_of(grouped: Array, mean: Array) -> Array:
    """Return the biased variance of each group."""
    return np.asarray(((grouped - mean) ** 2).mean(ALL_VALUES, keepdims=True))


def honest_mean(problem: Any, grouped: Array) -> Array:
    """Return the mean of each group."""
    return np.asarray(grouped.mean(ALL_VALUES, keepdims=True))


def honest_deviation(problem: Any, grouped: Array, mean: Array) -> Array:
    """Return the square root of variance + epsilon."""
    return np.asarray(np.sqrt(variance_of(grouped, mean) + problem.spec.epsilon))


def by_formula(mean: Callable[[Any, Array], Array] = honest_mean, deviation: Deviation = honest_deviation) -> Any:
    """Return an implementation with another mean or deviation, in which all else is right."""

    def run(problem: Any, *inputs: Array, out: Any) -> None:
        *g, x = (array.astype(np.float64) for array in inputs if array.ndim == 4)
        vectors = tuple(array.astype(np.float64) for array in inputs if array.ndim == 1)
        grouped = x.reshape(problem.grouped_shape)
        m = mean(problem, grouped)
        with np.errstate(all="ignore"):
            s = deviation(problem, grouped, m)
            xhat = (grouped - m) / s
            if not g:
                gamma, beta = problem.parameters(vectors, float)
                out[...] = gamma * xhat.reshape(x.shape) + beta
                return
            dx, dgamma, dbeta = out
            h = (g[0] * problem.parameters(vectors, float)).reshape(xhat.shape)
            a, b = (values.mean(ALL_VALUES, keepdims=True) for values in (h, h * xhat))
            dx[...] = ((h - a - xhat * b) / s).reshape(x.shape)
            dgamma[...], dbeta[...] = (g[0] * xhat.reshape(x.shape)).sum((1, 2)), g[0].sum((1, 2))

    return run


def unbiased(problem: GroupsProblem, grouped: Array, mean: Array) -> Array:
    """Divide by M - 1."""
    count = problem.count
    return np.sqrt(variance_of(grouped, mean) * (count / max(1, count - 1)) + problem.spec.epsilon)


def sums_of_squares(problem: GroupsProblem, grouped: Array, mean: Array) -> Array:
    """Take the mean of squares less the squared mean, in float32: nothing is left of a small deviation."""
    narrow = grouped.astype(np.float32)
    squares, m = ((values).mean(ALL_VALUES, keepdims=True, dtype=np.float32) for values in (narrow**2, narrow))
    return np.asarray(np.sqrt(np.maximum(squares - m * m, 0) + problem.spec.epsilon))


def statistics_faults() -> Table:
    """What can be wrong with the statistics, forward and gradient."""
    return {
        "the variance is unbiased": by_formula(deviation=unbiased),
        "epsilon outside the root": by_formula(
            deviation=lambda problem, x, mean: np.sqrt(variance_of(x, mean)) + problem.spec.epsilon
        ),
        "epsilon is left out": by_formula(deviation=lambda problem, x, mean: np.sqrt(variance_of(x, mean))),
        "no root of the variance": by_formula(
            deviation=lambda problem, x, mean: variance_of(x, mean) + problem.spec.epsilon
        ),
        "the mean square in place of the variance": by_formula(
            deviation=lambda problem, x, mean: np.sqrt((x**2).mean(ALL_VALUES, keepdims=True) + problem.spec.epsilon)
        ),
        "the variance from sums of squares in float32": by_formula(deviation=sums_of_squares),
        "the mean is not subtracted": by_formula(mean=lambda problem, x: np.zeros_like(honest_mean(problem, x))),
        "statistics over the batch": by_formula(
            mean=lambda problem, x: x.mean((0, *ALL_VALUES), keepdims=True),
            deviation=lambda problem, x, mean: np.sqrt(
                ((x - mean) ** 2).mean((0, *ALL_VALUES), keepdims=True) + problem.spec.epsilon
            ),
        ),
        "statistics of the first image for all": by_formula(
            mean=lambda problem, x: honest_mean(problem, x[:1]),
            deviation=lambda problem, x, mean: honest_deviation(problem, x[:1], mean),
        ),
        "the last row of pixels does not count": by_formula(
            mean=lambda problem, x: honest_mean(problem, x[:, : max(1, x.shape[1] - 1)]),
            deviation=lambda problem, x, mean: honest_deviation(problem, x[:, : max(1, x.shape[1] - 1)], mean),
        ),
    }


def forward_faults() -> Table:
    """What can be wrong with gamma and beta."""
    return {
        "gamma is ignored": _with_vectors(lambda gamma, beta: (np.ones_like(gamma), beta)),
        "beta is ignored": _with_vectors(lambda gamma, beta: (gamma, np.zeros_like(beta))),
        "gamma of the next channel is taken": _with_vectors(lambda gamma, beta: (np.roll(gamma, 1), beta)),
        "beta is scaled by gamma": _with_vectors(lambda gamma, beta: (gamma, gamma * beta)),
    }


def _with_vectors(change: Callable[[Array, Array], tuple[Array, Array]]) -> Callable[..., None]:
    def run(problem: Any, x: Array, *vectors: Array, out: Array) -> None:
        gamma, beta = (vector.astype(np.float64) for vector in problem.parameters(vectors, float))
        whole = replace(problem, scaled=True, shifted=True)
        with np.errstate(over="ignore"):
            out[...] = honest_results(whole, x, *change(gamma, beta))[0]

    return run


def _dx(change: Callable[..., Array]) -> Callable[..., None]:
    """Return the gradient with ``change(h, mean of h, mean of h xhat, xhat, deviation, gamma)`` for dx."""

    def run(problem: Any, *inputs: Array, out: tuple[Array, Array, Array]) -> None:
        g, x, *vectors = (array.astype(np.float64) for array in inputs)
        grouped = x.reshape(problem.grouped_shape)
        mean = honest_mean(problem, grouped)
        s = honest_deviation(problem, grouped, mean)
        gamma = np.broadcast_to(problem.parameters(tuple(vectors), float), x.shape).reshape(grouped.shape)
        xhat, h = (grouped - mean) / s, g.reshape(grouped.shape) * gamma
        a, b = (values.mean(ALL_VALUES, keepdims=True) for values in (h, h * xhat))
        results = honest_results(problem, *inputs)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for target, result in zip(out, (change(h, a, b, xhat, s, gamma), *results[1:]), strict=True):
                target[...] = result.reshape(target.shape)

    return run


def gradient_faults() -> Table:
    """What can be wrong with the gradient alone."""
    return {
        "the mean's term is missing": _dx(lambda h, a, b, xhat, s, gamma: (h - xhat * b) / s),
        "the variance's term is missing": _dx(lambda h, a, b, xhat, s, gamma: (h - a) / s),
        "both terms are missing": _dx(lambda h, a, b, xhat, s, gamma: h / s),
        "1 / M is missing in the variance's term": _dx(
            lambda h, a, b, xhat, s, gamma: (h - a - xhat * b * (xhat.size // b.size)) / s
        ),
        "the variance's term has the wrong sign": _dx(lambda h, a, b, xhat, s, gamma: (h - a + xhat * b) / s),
        "gamma is forgotten": _dx(lambda h, a, b, xhat, s, gamma: _divided((h - a - xhat * b) / s, gamma)),
        "r once more": _dx(lambda h, a, b, xhat, s, gamma: (h - a - xhat * b) / s**2),
        "dgamma and dbeta are exchanged": of_results(lambda results, *_: (results[0], results[2], results[1])),
        "dgamma is summed over the batch": of_results(
            lambda results, *_: (results[0], 0 * results[1] + results[1].sum(axis=0), results[2])
        ),
        "dbeta is a mean": of_results(
            lambda results, problem, *_: (
                *results[:2], results[2] / (problem.source_shape[1] * problem.source_shape[2])
            )
        ),
        "dbeta is scaled by gamma": of_results(
            lambda results, problem, g, x, *vectors: (*results[:2], results[2] * problem.parameters(vectors, float))
        ),
        "dgamma is of pixels that are not centred": of_results(
            lambda results, problem, g, x, *_: (
                results[0], (g.astype(np.float64) * x.astype(np.float64)).sum((1, 2)), results[2]
            )
        ),
    }  # fmt: skip


def _divided(values: Array, gamma: Array) -> Array:
    return np.divide(values, gamma, out=np.zeros_like(values), where=gamma != 0)


def groups_faults() -> Table:
    """What can be wrong with the groups; instance normalization has none."""

    def interleaved(problem: Any, *inputs: Array, out: Any) -> None:
        """Channel c in group c % groups."""
        groups, channels = problem.groups, problem.source_shape[3]
        order = np.arange(channels).reshape(channels // groups, groups).T.ravel()
        results = honest_results(problem, *(array[..., order] for array in inputs))
        with np.errstate(over="ignore"):
            for target, result in zip(out if isinstance(out, tuple) else (out,), results, strict=True):
                target[..., order] = result

    return {
        "channels are dealt out to the groups": interleaved,
        "all channels are one group": of_problem(with_spec(groups=lambda spec: 1)),
        "every channel is a group": of_problem(
            lambda problem: replace(problem, spec=replace(problem.spec, groups=problem.source_shape[3]))
        ),
        "groups is taken for the channels of a group": of_problem(
            lambda problem: replace(
                problem, spec=replace(problem.spec, groups=problem.source_shape[3] // problem.spec.groups)
            )
        ),
    }


def faults() -> Iterator[Fault]:
    """Yield the faults of all normalizations but batch normalization."""
    for spec_type in (InstanceNormalization, GroupNormalization):
        groups = groups_faults() if spec_type is GroupNormalization else {}
        for method, own in (("forward", forward_faults()), ("gradient", gradient_faults())):
            for name, run in {**statistics_faults(), **own, **groups}.items():
                yield Fault(name, Operation(spec_type, method), run)
    yield from normalization_windows.faults()
    yield from normalization_channels.faults()
