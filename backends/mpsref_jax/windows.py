"""How JAX computes kernels with windows: with its own padding, or without on a grown image."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from mpsref import frameworks
from mpsref.errors import UnsupportedError
from mpsref.frameworks import Selection
from mpsref.operations import Problem, planned
from mpsref_jax.run import Function, JaxArray, pullback

DIMENSIONS = ("NHWC", "HWIO", "NHWC")


class Way(NamedTuple):
    """Arguments of JAX's function on the spatial axes, and the image that it reads."""

    keywords: dict[str, Any]
    image: Selection | None

    def source(self, x: JaxArray) -> JaxArray:
        """Return the image that JAX's function reads."""
        if self.image is None:
            return x
        rows_columns = self.image.rows, self.image.columns
        for axis, indices, length in zip((1, 2), rows_columns, self.image.lengths, strict=True):
            x = jnp.take(x, np.where(indices < 0, length, indices), axis, mode="fill", fill_value=0.0)
        return x


@planned
def way(problem: Problem) -> Way:
    """Return how JAX computes a problem with windows."""
    try:
        return Way(frameworks.jax(problem).keywords, None)
    except UnsupportedError:
        return Way(frameworks.jax(frameworks.without_padding(problem)).keywords, frameworks.grown(problem))


def windows_of(problem: Problem, start: float, combine: Function) -> Function:
    """Return the reduction of all windows of a pooling problem."""
    found = way(problem)
    keywords = {name: (1, *pair, 1) for name, pair in found.keywords.items() if name != "padding"}
    padding = ((0, 0), *found.keywords["padding"], (0, 0))
    return lambda x: lax.reduce_window(found.source(x), start, combine, padding=padding, **keywords)


def convolution(problem: Problem) -> Function:
    """Return the convolution of a problem as a function of image and OHWI weights."""
    found = way(problem)

    def convolve(x: JaxArray, weights: JaxArray) -> JaxArray:
        hwio = frameworks.weights_to(weights, "HWIO")
        return lax.conv_general_dilated(found.source(x), hwio, dimension_numbers=DIMENSIONS, **found.keywords)

    return convolve


def pooling_gradient(problem: Any, pool: Any) -> Function:
    """Return the gradient of pooling as a function of g, and of x if it is read; ``pool(problem)`` is the layer."""
    simple = frameworks.canonical(problem)
    if simple is None:
        return lambda g, *x: jnp.zeros(problem.source_shape, g.dtype)
    layer = pool(simple)

    def gradient(g: JaxArray, *x: JaxArray) -> JaxArray:
        source = x[0] if x else jnp.zeros(problem.source_shape, g.dtype)
        return placed(problem, pullback(layer, frameworks.counted(problem, g), source)[0])

    return gradient


def placed(problem: Any, full: JaxArray) -> JaxArray:
    """Return the gradient of the source image, moved and clipped as the problem wants it."""
    if problem.kernel_offset is None and problem.clip is None:
        return full
    pixels = np.arange(1, 1 + full[0, :, :, 0].size, dtype=np.float64).reshape(1, *full.shape[1:3], 1)
    moved = problem.place(pixels).astype(np.int64)[0, :, :, 0]
    flat = full.reshape(full.shape[0], -1, full.shape[3])
    return jnp.take(flat, np.where(moved, moved - 1, pixels.size), 1, mode="fill", fill_value=0.0)
