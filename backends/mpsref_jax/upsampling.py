"""Upsampling by ``jax.image`` where its positions agree; it shifts those of unaligned corners by half a pixel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mpsref import UpsamplingBilinear, UpsamplingNearest
from mpsref_jax.interpolation import sampled
from mpsref_jax.run import Function, pullback


def forward(problem: Any) -> Function:
    spec, shape = problem.spec, problem.large_shape
    if isinstance(spec, UpsamplingNearest):
        return lambda x: jax.image.resize(x, shape, "nearest")
    if not spec.align_corners or any(axis.length == 1 for axis in problem.axes):
        return sampled(problem.axes)
    scale = np.array([axis.denominator / max(axis.numerator, 1) for axis in problem.axes], np.float32)
    shift = 0.5 - 0.5 * scale
    return lambda x: jax.image.scale_and_translate(x, shape, (1, 2), scale, shift, "linear", antialias=False)


def gradient(problem: Any) -> Function:
    layer = forward(problem)
    return lambda g: pullback(layer, g, jnp.zeros(problem.source_shape))[0]


IMPLEMENTATIONS = {
    (kind, method): function
    for kind in (UpsamplingNearest, UpsamplingBilinear)
    for method, function in (("forward", forward), ("gradient", gradient))
}
