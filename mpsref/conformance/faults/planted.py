"""What a planted fault is, and what they are made of: an honest result, and one mistake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mpsref import kernels, registry
from mpsref.arguments.arrays import Array
from mpsref.registry import Backend, Operation, Problem, Spec

__all__ = ["Fault", "Formula", "honest", "honest_results", "of_problem", "of_result", "of_results", "with_spec"]

Formula = Callable[..., Array]
"""``formula(problem, *inputs) -> result``, float64 in and out, as the reference's."""


@dataclass(frozen=True)
class Fault:
    """One mistake in one operation."""

    name: str
    """What is wrong, in a few words."""
    operation: Operation
    run: Callable[..., None]
    """The implementation: ``run(problem, *inputs, out)``."""

    @property
    def backend(self) -> Backend:
        """The backend that makes this mistake, and is right in all else."""
        right = registry.get_backend("reference").implementations
        return Backend(f"fault: {self.name}", {**right, self.operation: self.run})


def honest_results(problem: Problem, *inputs: Array) -> tuple[Array, ...]:
    """Return all results that the reference computes, in float64."""
    exact = (array.astype(np.float64) if array.dtype.kind == "f" else array for array in inputs)
    results = kernels.REFERENCE[problem.operation](problem, *exact)
    return results if isinstance(results, tuple) else (results,)


def honest(problem: Problem, *inputs: Array) -> Array:
    """Return the one result that the reference computes, in float64."""
    (result,) = honest_results(problem, *inputs)
    return result


def of_problem(change: Callable[[Any], Any]) -> Callable[..., None]:
    """Solve another problem than the one that was asked: ``change(problem)``."""
    return _computed(lambda problem, *inputs: honest_results(change(problem), *inputs))


def of_result(change: Callable[..., Array | None]) -> Callable[..., None]:
    """Spoil the (first) honest result: ``change(result, problem, *inputs)`` returns another, or changes it in place."""

    def compute(problem: Problem, *inputs: Array) -> tuple[Array, ...]:
        first, *others = honest_results(problem, *inputs)
        changed = change(first, problem, *inputs)
        return (first if changed is None else changed, *others)

    return _computed(compute)


def of_results(change: Callable[..., tuple[Array, ...]]) -> Callable[..., None]:
    """Spoil several honest results: ``change(results, problem, *inputs)`` returns others."""
    return _computed(lambda problem, *inputs: change(honest_results(problem, *inputs), problem, *inputs))


def _computed(formula: Callable[..., tuple[Array, ...]]) -> Callable[..., None]:
    """Return the implementation that stores what ``formula(problem, *inputs)`` returns."""

    def run(problem: Problem, *inputs: Array, out: Array | tuple[Array, ...]) -> None:
        targets = out if isinstance(out, tuple) else (out,)
        with np.errstate(invalid="ignore", over="ignore"):
            for target, result in zip(targets, formula(problem, *inputs), strict=True):
                target[...] = result

    return run


def with_spec(**changes: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a change of a problem that sets fields of its spec: each is computed from the spec."""

    def change(problem: Any) -> Any:
        spec: Spec = problem.spec
        return replace(problem, spec=replace(spec, **{name: value(spec) for name, value in changes.items()}))

    return change
