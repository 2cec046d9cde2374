"""Normalization over spatial windows, from the sums of ``lax.reduce_window``."""

from __future__ import annotations

from typing import Any

from jax import lax

from mpsref import SpatialNormalization
from mpsref_jax.run import Function, JaxArray, pullback


def padded(problem: Any, x: JaxArray) -> JaxArray:
    """Return the image that the windows read, without padding."""
    edges = [
        (w.center - w.offset, w.offset + outputs + w.kernel - 1 - w.center - length, 0)
        for w, outputs, length in zip(problem.spec.windows, problem.output_size, problem.source_shape[1:3], strict=True)
    ]
    return lax.pad(x, 0.0, ((0, 0, 0), *edges, (0, 0, 0)))


def centres(problem: Any, image: JaxArray) -> JaxArray:
    """Return the pixels at the centres of the windows of a padded image."""
    (y, x), (height, width) = (w.center for w in problem.spec.windows), problem.output_size
    return image[:, y : y + height, x : x + width]


def forward(problem: Any) -> Function:
    spec, kernel = problem.spec, [window.kernel for window in problem.spec.windows]

    def normalize(x: JaxArray) -> JaxArray:
        image = padded(problem, x)
        squares = lax.reduce_window(image * image, 0.0, lax.add, (1, *kernel, 1), (1, 1, 1, 1), "VALID")
        return centres(problem, image) * (spec.delta + spec.alpha / spec.taps * squares) ** -spec.beta

    return normalize


def gradient(problem: Any) -> Function:
    layer = forward(problem)
    return lambda g, x: pullback(layer, g, x)[0]


IMPLEMENTATIONS = {(SpatialNormalization, "forward"): forward, (SpatialNormalization, "gradient"): gradient}
