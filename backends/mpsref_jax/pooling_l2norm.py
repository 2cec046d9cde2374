from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from mpsref import PoolingL2Norm
from mpsref_jax.run import Function, JaxArray
from mpsref_jax.windows import pooling_gradient, windows_of


def forward(problem: Any) -> Function:
    squares = windows_of(problem, 0.0, lax.add)

    def pool(x: JaxArray) -> JaxArray:
        total = squares(x * x)
        root = jnp.sqrt(jnp.where(total == 0, 1, total))  # JAX differentiates the root at 0 as infinity
        return jnp.where(total == 0, 0, root)

    return pool


def gradient(problem: Any) -> Function:
    return pooling_gradient(problem, forward)


IMPLEMENTATIONS = {(PoolingL2Norm, "forward"): forward, (PoolingL2Norm, "gradient"): gradient}
