from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from mpsref import Arithmetic
from mpsref_jax.run import Function, JaxArray, pullback

NAMES: Mapping[str, Function] = {
    "add": jnp.add,
    "subtract": jnp.subtract,
    "multiply": jnp.multiply,
    "divide": jnp.divide,
}


def forward(problem: Any) -> Function:
    spec, combine = problem.spec, NAMES[problem.spec.operation]

    def arithmetic(x: JaxArray, y: JaxArray) -> JaxArray:
        first, second = (operand.part(image) for operand, image in zip(spec.operands, (x, y), strict=True))
        r = combine(spec.primary_scale * first, spec.secondary_scale * second) + spec.bias
        return jnp.clip(r, spec.minimum_value, spec.maximum_value) if spec.clamps else r

    return arithmetic


def gradient(problem: Any) -> Function:
    layer, shapes = forward(problem), (problem.source_shape, problem.secondary_shape)

    def gradients(g: JaxArray, *operands: JaxArray) -> Any:
        given = dict(zip(problem.reads, operands, strict=True))
        found = pullback(layer, g, *(given[k] if k in given else jnp.zeros(shapes[k]) for k in (0, 1)))
        return tuple(found[k] for k in problem.of) if len(problem.of) > 1 else found[problem.of[0]]

    return gradients


IMPLEMENTATIONS = {(Arithmetic, "forward"): forward, (Arithmetic, "gradient"): gradient}
