"""Average pooling through ``msl/pooling_average.metal``."""

from __future__ import annotations

import math

import numpy as np

from mpsref import PoolingAverage
from mpsref.arguments.arrays import Array
from mpsref.kernels.pooling_average import AverageForward, AverageGradient
from mpsref_metal.launch import Launcher


def average(launch: Launcher, problem: AverageForward | AverageGradient, source: Array, out: Array) -> None:
    """Run ``forward`` (y from x) or ``gradient`` (dx from g): the same gather with different tables."""
    terms = math.prod(int(axis.count.max()) for axis in problem.runs())
    runs = [np.stack([axis.first, axis.count], axis=1) for axis in problem.runs()]
    factors = [inverse.astype(np.float32) for inverse in problem.reciprocals()]
    launch(("pooling_average",), problem.method, [source], [*runs, *factors], out, terms, groups=True)


IMPLEMENTATIONS = {(PoolingAverage, "forward"): average, (PoolingAverage, "gradient"): average}
