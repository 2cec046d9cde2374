"""Softmax and log-softmax under test."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import batch_in_pieces, repeatable, same
from mpsref.conformance.runner import compute, expected
from mpsref.conformance.subject import Subject
from mpsref.kernels import TERMS, LogSoftMax, SoftMax
from mpsref.registry import Backend, Problem, Spec

__all__ = ["SUBJECTS", "problems"]


def problems(spec_type: type[Spec], method: str) -> st.SearchStrategy[Problem]:
    """Draw problems of one operation; some pixels have more channels than a vector of the machine has lanes."""
    several = st.integers(2, 9)
    channels = several | several | st.integers(1, 70) | st.integers(1, 3)  # the gradient of a single one is 0
    shapes = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), channels)
    return st.builds(spec_type.problems[method], st.just(spec_type()), shapes)


def _adds_up(name: str, terms: Array, expected_sum: Array | float, limit: Array) -> None:
    """Require of each pixel that its ``terms`` sum to a number within the sum of what each of them may be off."""
    with np.errstate(invalid="ignore"):
        wrong = ~(abs(terms.sum(3) - expected_sum) <= limit.sum(3) + 1e-12 * abs(terms).sum(3))
    if wrong.any():
        n, y, x = (int(k) for k in np.argwhere(wrong)[0])
        raise Mismatch(f"{name}: the sum at pixel {(n, y, x)} is {terms.sum(3)[n, y, x]:.9g}")


def sums_to_one(case: Case, backend: Backend) -> None:
    """The channels of a pixel sum to 1; those of log-softmax after exp."""
    (y,) = compute(case.problem, backend, *case.inputs())
    reference, terms = expected(case)[0]
    limit = comparator.bound(y, reference, terms)
    if isinstance(case.problem.spec, LogSoftMax):
        powers = np.exp(y.astype(np.float64))
        _adds_up("exp sums to one", powers, 1.0, powers * np.expm1(limit))
    else:
        _adds_up("sums to one", y.astype(np.float64), 1.0, limit)


def gradients_sum_to_zero(case: Case, backend: Backend) -> None:
    """Adding a constant to a pixel changes nothing, so its gradients sum to 0; they do as far as y sums to 1."""
    g, y = (array.astype(np.float64) for array in case.inputs())
    (dx,) = compute(case.problem, backend, *case.inputs())
    reference, terms = expected(case)[0]
    limit = comparator.bound(dx, reference, terms)
    if isinstance(case.problem.spec, LogSoftMax):
        lost = g.sum(3) * (1 - np.exp(y).sum(3))
    else:
        lost = (g * y).sum(3) * (1 - y.sum(3))
    _adds_up("gradients sum to zero", dx.astype(np.float64), lost, limit)


def shift_invariant(case: Case, backend: Backend) -> None:
    """The same number added to all channels of a pixel changes nothing, however large: here without any rounding."""
    (x,) = case.inputs()
    shift = x.dtype.type(64 if x.dtype == np.float16 else 2**16)
    x = np.round(16 * np.fmod(x, 8)) / x.dtype.type(16)
    (first,), (second,) = compute(case.problem, backend, x), compute(case.problem, backend, x + shift)
    same("shift invariant", first, second, TERMS[case.problem.operation](case.problem, x.astype(np.float64)))


_PROPERTIES = {
    "forward": (repeatable, batch_in_pieces, sums_to_one, shift_invariant),
    "gradient": (repeatable, batch_in_pieces, gradients_sum_to_zero),
}

SUBJECTS: dict[type[Spec], Subject] = {
    spec_type: Subject(partial(problems, spec_type), _PROPERTIES, {"forward": frozenset({"0 / 0 is NaN"})})
    for spec_type in (SoftMax, LogSoftMax)
}
