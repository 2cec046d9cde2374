"""The error bounds of all operations on fixed cases: a bound that becomes looser or tighter is changed on purpose.

``python -m tests.kernels.test_error_bounds`` writes the bounds again, after a change of a formula; with names of
kernels those of these kernels.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from mpsref import BatchNormalization, Neuron
from mpsref.arguments.arrays import Array
from mpsref.conformance import checker, comparator
from mpsref.conformance.case import Case, operations
from mpsref.conformance.runner import expected
from mpsref.kernels.loss import _exact

FILE = Path(__file__).with_suffix(".json")
CASES = 12
"""Of each operation."""


def bounds(case: Case) -> list[list[float]]:
    """Return for each result the sum of the bounds, that of their logarithms, and where equality is demanded."""
    found = []
    for reference, terms in expected(case):
        dtype = np.dtype("float32")
        limit = comparator.bound(reference.astype(dtype), reference, terms)
        limit = limit[np.isfinite(limit)]
        exact: Array = np.broadcast_to(terms.exact, reference.shape)
        positive = limit[limit > 0]
        found.append([float(f"{value:.7g}") for value in (limit.sum(), np.log2(positive).sum(), exact.sum())])
    return found


def write(kernels: list[str]) -> None:
    """Write the bounds of the first random cases of each operation, or of those of some kernels."""
    table = {}
    for operation in operations():
        if kernels and operation.spec_type.__name__ not in kernels:
            table |= {text: bound for text, bound in TABLE.items() if text.partition(":")[0] == str(operation)}
            continue
        for case in list(checker.random_cases(operation, ("float32",), 60, 0))[: 5 * CASES : 5]:
            table[str(case)] = bounds(case)
    FILE.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in table.items()) + "\n}\n")


TABLE: dict[str, list[list[float]]] = json.loads(FILE.read_text()) if FILE.exists() else {}


def test_every_operation_has_cases() -> None:
    assert {text.partition(":")[0] for text in TABLE} == set(map(str, operations()))


@pytest.mark.parametrize("operation", list(map(str, operations())))
def test_bounds(operation: str) -> None:
    for text, wanted in TABLE.items():
        if text.partition(":")[0] == operation:
            with np.errstate(all="ignore"):
                assert np.allclose(bounds(Case.parse(text)), wanted, rtol=1e-4, atol=1e-30), text


@pytest.mark.parametrize(("y", "exact"), [(45.0, True), (45.5, False)])
def test_a_loss_is_exact_below_a_limit(y: float, exact: bool) -> None:
    """Multiples of 2**-13 up to 2**11 have 24 bits: 45**2 = 2025, 45.5**2 = 2070.25."""
    problem = Case.parse("Loss.forward:n1h1w1c1,meansquarederror,float32").problem
    one = np.ones((1, 1, 1, 1))
    assert _exact(problem, one * y**2).item() is exact


@pytest.mark.parametrize(("weight", "exact"), [("0.5", True), ("0.00390625", True), ("0.001953125", False)])
def test_a_sum_is_exact_for_weights_of_eight_bits(weight: str, exact: bool) -> None:
    case = Case.parse(f"Reduce.forward:n1h1w1c4,sum,featurechannels,weight{weight},float32,exact")
    ((_, terms),) = expected(case)
    assert np.all(terms.exact) == exact


def test_a_channel_of_equal_pixels_must_be_exact() -> None:
    shape = 2, 3, 4, 5
    problem = BatchNormalization.problems["statistics"](BatchNormalization(), shape, 0)
    x = np.random.default_rng(1).standard_normal(shape)
    x[..., 2] = 5
    for bound in problem.operation.error_bound(problem, x):
        assert (bound.limit > 0).tolist() == [True, True, False, True, True]
    counted = BatchNormalization.problems["statistics"](BatchNormalization(), shape, 4)
    for bound in counted.operation.error_bound(counted, x, np.full(5, 5.0), np.zeros(5)):
        assert (bound.limit > 0).tolist() == [True, True, False, True, True]


@pytest.mark.parametrize(("x", "kept"), [(-1e-6, 0.0), (0.0, 0.0), (1e-6, 0.0), (-0.1, 1.0), (0.1, 1.0)])
def test_gradients_are_0_on_both_sides_of_a_kink(x: float, kept: float) -> None:
    """One side of the kink of ReLU within the rounding error is enough."""
    norm = BatchNormalization(0.0, Neuron("relu"))
    problem = norm.problems["gradient"](norm, (1, 1, 1, 1))
    one = np.ones(1, np.float32)
    drawn = {"g": one.reshape(1, 1, 1, 1), "x": np.full((1, 1, 1, 1), x, np.float32), "mean": 0 * one, "variance": one}
    drawn |= {name: one for name in problem.input_shapes if name in ("dbeta", "dgamma")}
    assert problem.legal(drawn)["g"].item() == kept


if __name__ == "__main__":
    write(sys.argv[1:])
