"""Average pooling through ``msl/pooling_average.metal``."""

from __future__ import annotations

import math

import numpy as np

from mpsref import PoolingAverage
from mpsref.arguments.arrays import Array
from mpsref.kernels.pooling_average import AverageForward, AverageGradient
from mpsref.operations import cached_in_problem
from mpsref_metal.launch import Launcher, Tables


def average(launch: Launcher, problem: AverageForward | AverageGradient, source: Array, out: Array) -> None:
    """Run ``forward`` (y from x) or ``gradient`` (dx from g): the same gather with different tables."""
    tables, terms = _tables(problem)
    launch(("pooling_average",), problem.method, [source], tables, out, terms, groups=True)


@cached_in_problem
def _tables(problem: AverageForward | AverageGradient) -> tuple[Tables, int]:
    """Return runs and factors of both axes, and the largest number of terms of a result."""
    axes = problem.runs()
    runs = [np.stack([axis.first, axis.count], axis=1) for axis in axes]
    factors = [inverse.astype(np.float32) for inverse in problem.reciprocals()]
    return Tables([*runs, *factors]), math.prod(int(axis.count.max()) for axis in axes)


IMPLEMENTATIONS = {(PoolingAverage, "forward"): average, (PoolingAverage, "gradient"): average}
