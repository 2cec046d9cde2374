"""Local contrast normalization through ``msl/local_contrast_normalization.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.local_contrast_normalization import LocalContrastNormalization
from mpsref.kernels.normalization_windows import WindowedProblem
from mpsref_metal.normalization_windows import forward_of, gradient_of


def parameters(problem: WindowedProblem) -> Array:
    """Return alpha, beta, delta, p0, pm, ps and N."""
    spec = problem.spec
    assert isinstance(spec, LocalContrastNormalization)
    return np.array([spec.alpha, spec.beta, spec.delta, spec.p0, spec.pm, spec.ps, spec.taps], np.float32)


IMPLEMENTATIONS = {
    (LocalContrastNormalization, "forward"): forward_of("local_contrast_normalization", parameters),
    (LocalContrastNormalization, "gradient"): gradient_of("local_contrast_normalization", parameters, planes=3),
}
