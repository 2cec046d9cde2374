from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from mpsref import Pad
from mpsref_jax.run import Function, JaxArray, pullback

MODES = {"clamp": "edge", "mirror": "reflect", "mirrorwithedge": "symmetric"}


def forward(problem: Any) -> Function:
    spec = problem.spec
    widths = ((0, 0), *zip(spec.before, spec.after, strict=True))
    if spec.edge_mode in MODES:
        return lambda x: jnp.pad(x, widths, mode=MODES[spec.edge_mode])
    fills = spec.fills(problem.padded_shape[3]).astype(np.float32)

    def pad(x: JaxArray) -> JaxArray:
        if spec.fill_values is None:
            return jnp.pad(x, widths, constant_values=fills[0])
        return jnp.where(jnp.pad(jnp.ones(x.shape, bool), widths), jnp.pad(x, widths), fills)

    return pad


def gradient(problem: Any) -> Function:
    layer = forward(problem)
    return lambda g: pullback(layer, g, jnp.zeros(problem.source_shape))[0]


IMPLEMENTATIONS = {(Pad, "forward"): forward, (Pad, "gradient"): gradient}
