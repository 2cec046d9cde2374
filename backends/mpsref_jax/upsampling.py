"""Upsampling by ``jax.image``, whose positions are shifted by half a pixel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mpsref import UpsamplingBilinear, UpsamplingNearest
from mpsref.errors import UnsupportedError
from mpsref_jax.run import Function, pullback


def forward(problem: Any) -> Function:
    spec, shape = problem.spec, problem.large_shape
    if isinstance(spec, UpsamplingNearest):
        return lambda x: jax.image.resize(x, shape, "nearest")
    if not spec.align_corners:
        raise UnsupportedError("without aligned corners jax.image shifts the positions by half a pixel; MPS does not")
    if any(axis.numerator == 0 < axis.outputs - 1 for axis in problem.axes):
        raise UnsupportedError("with aligned corners jax.image has no scale from one pixel to several")
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
