"""Where results of average pooling must be equal: every divisor a power of two, and sums that float32 can hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import PoolingAverage
from mpsref.arguments.arrays import Array
from mpsref.conformance.families import pooling
from mpsref.kernels.pooling_average import AverageForward, AverageGradient
from tests import examples
from tests.kernels import oracle_pooling as oracle


def divisors_of(problem: AverageForward | AverageGradient, axis: int) -> tuple[list[list[int]], list[int]]:
    """Return for each element of an axis the divisors of its windows, and the divisors of all windows."""
    own, length = oracle.axes(problem.spec)[axis], problem.source_shape[1 + axis]
    if isinstance(problem, AverageForward):
        found = [oracle.divisor_of(own, i, length) for i in range(problem.output_size[axis])]
        return [[n] for n in found], found
    first, size = problem.primary_offset[axis], problem.source_size and problem.source_size[axis]
    windows = range(-first, problem.gradient_size[axis] - first)
    counted = [u - first for u in oracle.included(problem.gradient_size[axis], first, size)]
    readers = [[i for i in counted if j in oracle.inside(own, i, length)] for j in range(length)]
    every = [oracle.divisor_of(own, i, length) for i in windows]
    return [[every[i + first] for i in each] for each in readers], every


def is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


@pytest.mark.parametrize("method", ["forward", "gradient"])
def test_equality_is_demanded_where_float32_rounds_nothing(method: str) -> None:
    """Sums of integers over powers of two are multiples of 1 / the largest divisor, and exact up to 2**24 of these."""

    @examples(150)
    @given(problem=pooling.problems(PoolingAverage, method), power=st.integers(0, 26))
    def agree(problem: Any, power: int) -> None:
        if method == "gradient":
            problem = replace(problem, kernel_offset=None, clip=None)
        (shape,) = problem.input_shapes.values()
        source = np.random.default_rng(0).integers(1, 9, shape) * 2.0**power
        bound = problem.operation.error_bound(problem, source)
        (of_rows, rows), (of_columns, columns) = (divisors_of(problem, axis) for axis in (0, 1))
        largest = max([1, *rows]) * max([1, *columns])
        for a, b in np.ndindex(len(of_rows), len(of_columns)):
            exact: Array = np.broadcast_to(bound.exact, bound.limit.shape)[:, a, b]
            if of_rows[a] and of_columns[b]:
                dyadic = all(map(is_power_of_two, [*of_rows[a], *of_columns[b]]))
                assert np.array_equal(exact, dyadic & (bound.magnitude[:, a, b] <= 2.0**24 / largest))

    agree()


@pytest.mark.parametrize("kernel", [1, 2, 4, 8])
def test_the_largest_exact_sum(kernel: int) -> None:
    """One window: a mean of 2**24 / N is a sum of 2**24; of more, float32 does not hold every integer."""
    problem = PoolingAverage.problems["forward"](
        PoolingAverage((1, kernel), 1, (0, kernel // 2)), (1, 1, kernel, 1), (1, 1)
    )
    largest = np.full((1, 1, kernel, 1), 2.0**24 / kernel)
    assert np.all(problem.operation.error_bound(problem, largest).exact)
    assert not np.any(problem.operation.error_bound(problem, largest + 1).exact)
