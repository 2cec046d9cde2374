"""Local contrast normalization through ``msl/local_contrast_normalization.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.local_contrast_normalization import LocalContrastNormalization
from mpsref.kernels.normalization_windows import WindowedProblem
from mpsref_metal.normalization_windows import forward_of, gradient_of


def parameters(problem: WindowedProblem) -> Array:
    """Return alpha, beta, delta, p0, pm, ps, N, 1 / N and 1 / width of the window.

    Windows taller than the image have rows of zeros: the last value is 0, so that distances are from 0. The variance of
    a window of one pixel is 0: alpha is 0, so that the gradient has no terms that cancel.
    """
    spec = problem.spec
    assert isinstance(spec, LocalContrastNormalization)
    tall, wide = (window.kernel for window in spec.windows)
    per_column = 1 / wide if tall <= problem.source_shape[1] else 0
    alpha = spec.alpha if spec.taps > 1 else 0
    factors = alpha, spec.beta, spec.delta, spec.p0, spec.pm, spec.ps
    return np.array([*factors, spec.taps, 1 / spec.taps, per_column], np.float32)


IMPLEMENTATIONS = {
    (LocalContrastNormalization, "forward"): forward_of("local_contrast_normalization", parameters, in_strips=True),
    (LocalContrastNormalization, "gradient"): gradient_of(
        "local_contrast_normalization", parameters, 3, in_strips=True
    ),
}
