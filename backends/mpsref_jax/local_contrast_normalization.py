"""Local contrast normalization, from the windows of ``lax.conv_general_dilated_patches``."""

from __future__ import annotations

from typing import Any

from jax import lax

from mpsref import LocalContrastNormalization
from mpsref_jax.run import Function, JaxArray, pullback
from mpsref_jax.spatial_normalization import centres, padded
from mpsref_jax.windows import DIMENSIONS


def forward(problem: Any) -> Function:
    spec, kernel = problem.spec, [window.kernel for window in problem.spec.windows]

    def normalize(x: JaxArray) -> JaxArray:
        image = padded(problem, x)
        taps = lax.conv_general_dilated_patches(image, kernel, (1, 1), "VALID", dimension_numbers=DIMENSIONS)
        taps = taps.reshape(*taps.shape[:3], x.shape[3], -1)
        base = spec.delta + spec.alpha * taps.var(axis=-1)
        return spec.pm + spec.ps * (centres(problem, image) - spec.p0 * taps.mean(axis=-1)) * base**-spec.beta

    return normalize


def gradient(problem: Any) -> Function:
    layer = forward(problem)
    return lambda g, x: pullback(layer, g, x)[0]


IMPLEMENTATIONS = {
    (LocalContrastNormalization, "forward"): forward,
    (LocalContrastNormalization, "gradient"): gradient,
}
