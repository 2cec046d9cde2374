from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from mpsref import Compare
from mpsref_jax.run import Function, JaxArray

NAMES = {
    "less": jnp.less,
    "lessorequal": jnp.less_equal,
    "greater": jnp.greater,
    "greaterorequal": jnp.greater_equal,
}


def forward(problem: Any) -> Function:
    spec = problem.spec

    def compare(x: JaxArray, y: JaxArray) -> JaxArray:
        first, second = (operand.part(image) for operand, image in zip(spec.operands, (x, y), strict=True))
        if spec.comparison_type in NAMES:
            return NAMES[spec.comparison_type](first, second).astype(x.dtype)
        equal = jnp.abs(first - second) <= spec.threshold
        return (equal if spec.comparison_type == "equal" else ~equal).astype(x.dtype)

    return compare


IMPLEMENTATIONS = {(Compare, "forward"): forward}
