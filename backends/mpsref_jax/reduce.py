from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from mpsref import Reduce
from mpsref.kernels.reduce import AXES
from mpsref_jax.run import Function, JaxArray, pullback

NAMES = {"sum": "sum", "mean": "mean", "min": "min", "max": "max", "argumentmin": "argmin", "argumentmax": "argmax"}


def forward(problem: Any) -> Function:
    spec, reduction = problem.spec, getattr(jnp, NAMES[problem.spec.operation])
    axes = AXES[spec.over]

    def reduce(x: JaxArray) -> JaxArray:
        found = reduction(problem.part(x), axes if len(axes) > 1 else axes[0], keepdims=True)
        return found.astype(x.dtype) * spec.weight

    return reduce


def gradient(problem: Any) -> Function:
    layer = forward(problem)
    return lambda g: pullback(layer, g, jnp.zeros(problem.source_shape))[0]


IMPLEMENTATIONS = {(Reduce, "forward"): forward, (Reduce, "gradient"): gradient}
