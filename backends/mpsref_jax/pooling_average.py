from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from mpsref import PoolingAverage
from mpsref_jax.run import Function
from mpsref_jax.windows import pooling_gradient, windows_of


def forward(problem: Any) -> Function:
    sums = windows_of(problem, 0.0, lax.add)
    factors = np.multiply.outer(*problem.reciprocals())[None, :, :, None].astype(np.float32)
    return lambda x: sums(x) * factors


def gradient(problem: Any) -> Function:
    return pooling_gradient(problem, forward)


IMPLEMENTATIONS = {(PoolingAverage, "forward"): forward, (PoolingAverage, "gradient"): gradient}
