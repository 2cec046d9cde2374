"""What must hold of a kernel beside agreement with the reference, for kernels of any kind.

Each is ``property(case, backend)`` and raises :class:`Mismatch`. Values that two runs of a backend give for the same
quantity may differ by twice the bound of one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.runner import compute, expected
from mpsref.kernels import ErrorBound
from mpsref.registry import Backend, ImageProblem

__all__ = ["batch_in_pieces", "repeatable", "same"]


def same(name: str, first: Array, second: Array, terms: ErrorBound) -> None:
    """Require that two results of a backend for the same thing agree within twice the bound."""
    if first.shape != second.shape:
        raise Mismatch(f"{name}: shapes {first.shape} and {second.shape} differ")
    limit = 2 * comparator.bound(first, second.astype(np.float64), terms)
    with np.errstate(invalid="ignore"):
        near = (first == second) | (np.abs(first.astype(np.float64) - second) <= limit)
    if not near.all():
        index = tuple(int(k) for k in np.argwhere(~near)[0])
        raise Mismatch(
            f"{name}: {first[index]} and {second[index]} differ at {list(index)} by more than rounding", index
        )


def repeatable(case: Case, backend: Backend) -> None:
    """The same call gives the same bits."""
    inputs = case.inputs()
    runs = [compute(case.problem, backend, *inputs) for _ in range(2)]
    for first, second in zip(*runs, strict=True):
        if first.tobytes() != second.tobytes():
            raise Mismatch("repeatable: two runs on the same input gave different bits")


def batch_in_pieces(case: Case, backend: Backend) -> None:
    """The images of a batch do not influence each other: one at a time they give the same."""
    inputs = case.inputs()
    assert isinstance(case.problem, ImageProblem)
    n, height, width, c = case.problem.source_shape
    if n < 2:
        return
    piece = replace(case.problem, source_shape=(1, height, width, c))
    (whole,) = compute(case.problem, backend, *inputs)
    parts = [compute(piece, backend, *(array[k : k + 1] for array in inputs))[0] for k in range(n)]
    same("batch in pieces", whole, np.concatenate(parts), expected(case)[0][1])
