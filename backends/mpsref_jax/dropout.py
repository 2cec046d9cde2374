from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from mpsref import Dropout
from mpsref.errors import UnsupportedError
from mpsref_jax.run import Function, pullback


def mask(problem: Any) -> Function:
    raise UnsupportedError("jax.random has other generators than that of the masks, Philox4x32-10")


def forward(problem: Any) -> Function:
    return lambda x, mask: jnp.where(mask, x * problem.spec.scale, 0)


def gradient(problem: Any) -> Function:
    layer = forward(problem)
    return lambda g, mask: pullback(lambda x: layer(x, mask), g, jnp.zeros_like(g))[0]


IMPLEMENTATIONS = {(Dropout, "mask"): mask, (Dropout, "forward"): forward, (Dropout, "gradient"): gradient}
