"""Planted faults of the reductions: along which axis, what is counted, which of equal elements, the clip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import Fault, of_problem, of_result, with_spec
from mpsref.kernels import Reduce
from mpsref.kernels.reduce import AXES, FORMULAS, ReduceForward, ReduceGradient
from mpsref.registry import Operation

__all__ = ["faults"]

Table = dict[str, Callable[..., None]]


def _of_part(formula: Callable[..., Array]) -> Callable[..., None]:
    """Compute ``formula(problem, part, axes)``, in the shape of the result."""

    def change(result: Array, problem: ReduceForward, x: Array) -> Array:
        part = problem.part(x.astype(np.float64))
        return np.asarray(formula(problem, part, AXES[problem.spec.over])).reshape(result.shape)

    return of_result(change)


def _instead(**words: Callable[..., Array]) -> Callable[..., None]:
    """Compute some of the operations by another formula of (part, axes)."""

    def formula(problem: ReduceForward, part: Array, axes: tuple[int, ...]) -> Array:
        spec = problem.spec
        if spec.operation in words:
            return words[spec.operation](part, axes)
        axis = axes[0] if len(axes) == 1 else axes
        return FORMULAS[spec.operation](part, axis=axis, keepdims=True) * spec.weight

    return _of_part(formula)


def _last(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return the last of equal extrema, not the first."""
    return lambda part, axes: part.shape[3] - 1 - function(part[..., ::-1], axis=3)


def _clip_moved(problem: Any) -> Any:
    """The origin of the clip is ignored, not its size."""
    clip = problem.spec.clip
    return replace(problem, spec=replace(problem.spec, clip=clip and ((0, 0), problem.region[1])))


def _mean_of_the_image(result: Array, problem: Any, *_: Array) -> Array:
    """A mean divides by the number of elements of the whole image."""
    if problem.spec.operation != "mean":
        return result
    whole = np.prod([problem.source_shape[axis] for axis in AXES[problem.spec.over]])
    return np.asarray(result * problem.count / whole)


def _without_first(part: Array, axes: tuple[int, ...]) -> Array:
    """The first element along the axis does not count, as if the search had begun with the second."""
    axis = axes[0]
    return part.take(range(1 if part.shape[axis] > 1 else 0, part.shape[axis]), axis)


def _forward() -> Table:
    return {
        "the weight is ignored": of_problem(with_spec(weight=lambda spec: 1.0)),
        "a mean is not divided": _instead(mean=lambda part, axes: part.sum(axes, keepdims=True)),
        "a sum is divided": _instead(sum=lambda part, axes: part.mean(axes, keepdims=True)),
        "a mean divides by the size of the whole image": of_result(_mean_of_the_image),
        "minimum and maximum are exchanged": _instead(
            min=lambda part, axes: part.max(axes), max=lambda part, axes: part.min(axes)
        ),
        "the search for the maximum starts from 0": _instead(max=lambda part, axes: part.max(axes, initial=0.0)),
        "the search for the minimum starts from 0": _instead(min=lambda part, axes: part.min(axes, initial=0.0)),
        "the largest magnitude is taken": _instead(max=lambda part, axes: np.abs(part).max(axes)),
        "the last of equal maxima is taken": _instead(argumentmax=_last(np.argmax)),
        "the last of equal minima is taken": _instead(argumentmin=_last(np.argmin)),
        "an index counts from 1": _instead(argumentmax=lambda part, axes: part.argmax(3) + 1),
        "the value stands for its index": _instead(argumentmin=lambda part, axes: part.min(3)),
        "the first element is left out": _instead(
            sum=lambda part, axes: _without_first(part, axes).sum(axes),
            max=lambda part, axes: _without_first(part, axes).max(axes),
            min=lambda part, axes: _without_first(part, axes).min(axes),
        ),
        "the origin of the clip is ignored": of_problem(_clip_moved),
    }


def _scaled(factor: Callable[[Any], float]) -> Callable[..., None]:
    return of_result(lambda result, problem, *_: result * factor(problem))


def _everywhere(result: Array, problem: ReduceGradient, g: Array) -> Array:
    """Pixels outside the clip get their share too."""
    return np.broadcast_to(g.astype(np.float64) / problem.count, result.shape)


def _one_pixel(result: Array, problem: ReduceGradient, g: Array) -> Array:
    """The first pixel gets all."""
    dx = np.zeros_like(result)
    (y, x), _ = problem.region
    dx[:, y : y + 1, x : x + 1] = g
    return dx


def _gradient() -> Table:
    return {
        "the gradient is not divided": _scaled(lambda problem: problem.count),
        "it is divided by the height alone": _scaled(lambda problem: problem.region[1][1]),
        "it is divided by the width alone": _scaled(lambda problem: problem.region[1][0]),
        "it is divided by the size of the whole image": _scaled(
            lambda problem: problem.count / (problem.source_shape[1] * problem.source_shape[2])
        ),
        "pixels outside the clip get a share": of_result(_everywhere),
        "the first pixel gets all": of_result(_one_pixel),
        "the origin of the clip is ignored": of_problem(_clip_moved),
        "channels are mixed": of_result(lambda result, *_: np.roll(result, 1, axis=3)),
    }


def faults() -> Iterator[Fault]:
    """Yield the faults of the reductions, beside those that every kernel can have."""
    for method, table in {"forward": _forward(), "gradient": _gradient()}.items():
        for name, run in table.items():
            yield Fault(name, Operation(Reduce, method), run)
