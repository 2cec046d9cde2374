from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from mpsref import Slice
from mpsref_jax.run import Function, pullback


def forward(problem: Any) -> Function:
    """Return the slice as a padding that may be negative."""
    axes = zip(problem.spec.offset, problem.part_shape[1:], problem.source_shape[1:], strict=True)
    edges = [(-offset, offset + size - length, 0) for offset, size, length in axes]
    return lambda x: lax.pad(x, 0.0, ((0, 0, 0), *edges))


def gradient(problem: Any) -> Function:
    layer = forward(problem)
    return lambda g: pullback(layer, g, jnp.zeros(problem.source_shape))[0]


IMPLEMENTATIONS = {(Slice, "forward"): forward, (Slice, "gradient"): gradient}
