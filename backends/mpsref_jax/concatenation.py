from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from mpsref import Concatenation
from mpsref_jax.run import Function, JaxArray, pullback


def forward(problem: Any) -> Function:
    """Return the concatenation of sources whose channels are padded to a multiple."""
    rests = [problem.spec.aligned(c) - c for c in problem.channels]

    def concatenate(*images: JaxArray) -> JaxArray:
        whole = [jnp.pad(x, ((0, 0),) * 3 + ((0, rest),)) for x, rest in zip(images, rests, strict=True)]
        return jnp.concatenate(whole, axis=3)

    return concatenate


def gradient(problem: Any) -> Function:
    layer = forward(problem)

    def gradients(g: JaxArray) -> Any:
        found = pullback(layer, g, *map(jnp.zeros, problem.source_shapes))
        return found if len(found) > 1 else found[0]

    return gradients


IMPLEMENTATIONS = {(Concatenation, "forward"): forward, (Concatenation, "gradient"): gradient}
