from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax

from mpsref import PoolingMax
from mpsref_jax.run import Function
from mpsref_jax.windows import pooling_gradient, windows_of


def forward(problem: Any) -> Function:
    return windows_of(problem, -np.inf, lax.max)


def gradient(problem: Any) -> Function:
    return pooling_gradient(problem, forward)


IMPLEMENTATIONS = {(PoolingMax, "forward"): forward, (PoolingMax, "gradient"): gradient}
