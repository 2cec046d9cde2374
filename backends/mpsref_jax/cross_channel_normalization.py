from __future__ import annotations

from typing import Any

from jax import lax

from mpsref import CrossChannelNormalization
from mpsref_jax.run import Function, JaxArray, pullback


def forward(problem: Any) -> Function:
    spec = problem.spec
    size, before = spec.kernel_size, spec.window.center
    padding = ((0, 0), (0, 0), (0, 0), (before, size - 1 - before))

    def normalize(x: JaxArray) -> JaxArray:
        squares = lax.reduce_window(x * x, 0.0, lax.add, (1, 1, 1, size), (1, 1, 1, 1), padding)
        return x * (spec.delta + spec.alpha / size * squares) ** -spec.beta

    return normalize


def gradient(problem: Any) -> Function:
    layer = forward(problem)
    return lambda g, x: pullback(layer, g, x)[0]


IMPLEMENTATIONS = {(CrossChannelNormalization, "forward"): forward, (CrossChannelNormalization, "gradient"): gradient}
