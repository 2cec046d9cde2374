"""Spatial normalization through ``msl/spatial_normalization.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.normalization_windows import WindowedProblem
from mpsref.kernels.spatial_normalization import SpatialNormalization
from mpsref_metal.normalization_windows import forward_of, gradient_of


def parameters(problem: WindowedProblem) -> Array:
    """Return beta, delta, alpha / N and 2 alpha beta / N."""
    spec = problem.spec
    assert isinstance(spec, SpatialNormalization)
    scale = spec.alpha / spec.taps
    return np.array([spec.beta, spec.delta, scale, 2 * scale * spec.beta], np.float32)


IMPLEMENTATIONS = {
    (SpatialNormalization, "forward"): forward_of("spatial_normalization", parameters),
    (SpatialNormalization, "gradient"): gradient_of("spatial_normalization", parameters, planes=2),
}
