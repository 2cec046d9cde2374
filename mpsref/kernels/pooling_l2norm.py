"""L2-norm pooling: the root of the sum of squares of each window, and its gradient.

Forward   ``y[a, b] = sqrt(sum over the taps of window (a, b) of V**2)``
Gradient  ``dx[j] = sum over the windows (a, b) of g[p0 + (a, b)] * taps of (a, b) that read j * x[j] / y[a, b]``

``V`` is what a tap reads: the pixel, and outside the image 0 with edge mode "zero", the nearest pixel with "clamp",
once for each tap that is clamped to it [choice l2-clamp-gradient: Apple's printed derivative counts only taps at the
pixel itself]. A window whose norm is 0 contributes 0, the zero subgradient [choice l2-zero: Apple's formula is 0/0
there]. The gradient works from the source image and computes the norm again [doc], never from a result that was rounded
to storage [choice l2-gradient-norm].

Source: MPSCNNPoolingL2Norm, MPSCNNPoolingL2NormGradient in ``MPSCNNPooling.h`` [doc].
"""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.pooling import Pooling, PoolingForward, PoolingGradient, count_of_windows, taps
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import operation


class PoolingL2Norm(Pooling):
    """L2-norm pooling.

    Examples
    --------
    >>> import numpy as np
    >>> pool = PoolingL2Norm(kernel_size=(1, 2), strides=(1, 2), offset=(0, 1))
    >>> x = np.array([3, 4, 0, 0, 5, 12], np.float32).reshape(1, 1, 6, 1)
    >>> pool.forward(x).ravel().tolist()
    [5.0, 0.0, 13.0]
    >>> g = np.array([1, 10, 13], np.float32).reshape(1, 1, 3, 1)
    >>> [round(v, 6) for v in pool.gradient(g, x).ravel().tolist()]
    [0.6, 0.8, 0.0, 0.0, 5.0, 12.0]
    """

    framework_padding = "none"


def norm(values: Array, times: Array) -> Array:
    """Return the root of the sum of squares (N, C) of ``values`` (N, taps, C), each counted ``times`` times."""
    root: Array = np.sqrt((values**2 * times[:, None]).sum(axis=1))
    return root


def forward_bound(problem: PoolingForward, x: Array) -> ErrorBound:
    """The norm itself, and m = M / 2 + 8: the root halves the error of a sum of M squares; 3 ulp for the root."""
    height, width = (window.kernel for window in problem.spec.windows)
    return ErrorBound.of_terms(forward(problem, x), np.asarray(-(-height * width // 2) + 8.0))


@operation(PoolingL2Norm, problem=PoolingForward, bound=forward_bound)
def forward(problem: PoolingForward, x: Array) -> Array:
    """y[a, b] = the root of the sum of squares."""
    y = np.zeros(problem.result_shapes[0], x.dtype)
    for a, b in np.ndindex(*problem.output_size):
        values, _, _, times = taps(problem, x, a, b)
        y[:, a, b] = norm(values, times)
    return y


def gradient_bound(problem: PoolingGradient, g: Array, x: Array) -> ErrorBound:
    """Sum of |terms|, and m = number of windows + M / 2 + 16: as above, 3 ulp for the division, and the products."""
    height, width = (window.kernel for window in problem.spec.windows)
    return ErrorBound.of_terms(
        gradient(problem, np.abs(g), np.abs(x)), count_of_windows(problem) + -(-height * width // 2) + 16.0
    )


@operation(PoolingL2Norm, problem=PoolingGradient, bound=gradient_bound)
def gradient(problem: PoolingGradient, g: Array, x: Array) -> Array:
    """dx[j] += g[p0 + (a, b)] * taps that read j * x[j] / y[a, b]: the adjoint of the forward pass."""
    dx = np.zeros(problem.source_shape, g.dtype)
    for a, b, of_window in problem.counted(g):
        values, rows, columns, times = taps(problem, x, a, b)
        y = norm(values, times)
        with np.errstate(invalid="ignore"):
            slope = np.divide(values, y[:, None], out=np.zeros_like(values), where=(y != 0)[:, None])
        share = of_window[:, None] * times[:, None] * slope
        inside = (rows >= 0) & (columns >= 0)
        # Not +=, which would add one share of several to a pixel that occurs several times.
        np.add.at(dx, (slice(None), rows[inside], columns[inside]), share[:, inside])  # type: ignore[arg-type]
    return problem.place(dx)
