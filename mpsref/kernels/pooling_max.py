"""Max pooling, with dilation: the largest value of each window, and the gradient, which goes to its position.

Forward   ``y[a, b] = max over the taps of window (a, b) of V``
Gradient  ``dx[pixel that the selected tap of (a, b) reads] += g[p0 + (a, b)]``

``V`` is what a tap reads: the pixel, and outside the image 0 with edge mode "zero", or the nearest pixel with "clamp"
[doc]. The selected tap is the first in raster order whose value equals the maximum, as in ``numpy.argmax``; the first
NaN is larger than everything [choice max-nan, max-tie; Apple documents that which of equal maxima is taken may vary
with the hardware]. With "zero" an outside tap can be selected: then no pixel gets the gradient of that window [math].
Pixels that no window selects get exactly 0.

Source: MPSCNNPoolingMax, MPSCNNDilatedPoolingMax and their gradients in ``MPSCNNPooling.h`` [doc].
"""

from __future__ import annotations

import numpy as np

from mpsref import codecs
from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import Pair, PairLike, pair
from mpsref.codecs import parameter
from mpsref.kernels.pooling import Pooling, PoolingForward, PoolingGradient, count_of_windows, window_of
from mpsref.kernels.reference import ErrorBound, selected
from mpsref.operations import operation


class PoolingMax(Pooling):
    """Max pooling; with ``dilations`` other than 1 it is MPSCNNDilatedPoolingMax.

    Parameters
    ----------
    dilations : int or pair of int
        Distance (y, x) of two taps, >= 1.

    Examples
    --------
    >>> import numpy as np
    >>> pool = PoolingMax(kernel_size=(1, 3), edge_mode="clamp")
    >>> x = np.array([-1, -2, -3], np.float32).reshape(1, 1, 3, 1)
    >>> pool.forward(x).ravel().tolist()
    [-1.0, -1.0, -2.0]
    >>> g = np.array([1, 10, 100], np.float32).reshape(1, 1, 3, 1)
    >>> pool.gradient(g, x).ravel().tolist()
    [11.0, 100.0, 0.0]
    """

    dilations: PairLike = parameter(codecs.pair("d", low=1), default=(1, 1))

    framework_padding = "lowest"

    @property
    def dilation(self) -> Pair:
        """The dilations as a pair."""
        return pair("dilations", self.dilations)


def select(
    problem: PoolingForward | PoolingGradient, x: Array, a: int, b: int
) -> tuple[Array, tuple[Array, Array, Array]]:
    """Return the largest value (N, C) of window (a, b), and of its first tap: row, column, and whether it is inside."""
    values, (rows, _), (columns, _) = window_of(problem, x, a, b)
    selected = values.argmax(axis=1)  # the first maximum, or the first NaN
    y, x_ = rows[selected // columns.size], columns[selected % columns.size]
    n, c = selected.shape
    return values[np.arange(n)[:, None], selected, np.arange(c)], (y, x_, (y >= 0) & (x_ >= 0))


@operation(PoolingMax, problem=PoolingForward, bound=selected)
def forward(problem: PoolingForward, x: Array) -> Array:
    """y[a, b] = the value of the selected tap."""
    y = np.zeros(problem.result_shapes[0], x.dtype)
    for a, b in np.ndindex(*problem.output_size):
        y[:, a, b], _ = select(problem, x, a, b)
    return y


def gradient_bound(problem: PoolingGradient, g: Array, x: Array) -> ErrorBound:
    """Sum of |g| over the windows that select the pixel, and m = number of windows that read it + 4."""
    magnitude = gradient(problem, np.abs(g), x)
    return ErrorBound.of_terms(magnitude, count_of_windows(problem) + 4, magnitude <= 2.0**24)


@operation(PoolingMax, problem=PoolingGradient, bound=gradient_bound)
def gradient(problem: PoolingGradient, g: Array, x: Array) -> Array:
    """dx[pixel of the selected tap] += g[p0 + (a, b)]: the adjoint of the forward pass."""
    dx = np.zeros(problem.source_shape, g.dtype)
    n, _, _, c = problem.source_shape
    every = tuple(np.ogrid[:n, :c])
    for a, b, of_window in problem.counted(g):
        _, (y, x_, inside) = select(problem, x, a, b)
        dx[every[0], y, x_, every[1]] += np.where(inside, of_window, 0)
    return problem.place(dx)
