"""Properties that the normalizations share."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import Restated, restated, with_limits
from mpsref.registry import Backend, Problem


def near(name: str, first: Array, second: Array, limit: Array) -> None:
    """Require that two quantities differ by no more than ``limit``."""
    distance = np.abs(first.astype(np.float64) - second)
    wrong = ~((first == second) | (distance <= limit))
    if wrong.any():
        at = tuple(int(k) for k in np.argwhere(wrong)[0])
        raise Mismatch(f"{name}: they differ by {distance[at]:.3g} at {list(at)}, and by {limit[at]:.3g} at most", at)


def linear_in_g(case: Case, backend: Backend) -> None:
    """The gradients from every second pixel of g, and from the others, add up to that from all of them."""
    g, *others = case.inputs()
    even = (np.indices(g.shape[1:3]).sum(axis=0) % 2 == 0)[None, :, :, None]
    ((whole, limit),) = with_limits(case.problem, backend, (g, *others))
    ((first, one),), ((second, other),) = (
        with_limits(case.problem, backend, (g * mask, *others)) for mask in (even, ~even)
    )
    if all(np.isfinite(result).all() for result in (whole, first, second)):  # no overflow of float16
        near("linear in g", whole, first.astype(np.float64) + second, limit + one + other)


@restated
def odd_in_x(problem: Problem, x: Array) -> Restated | None:
    """The negative image has the negative result, unless a number is added to it."""
    return None if getattr(problem.spec, "pm", 0) else Restated(problem, [-x], lambda results: [-results[0]])
