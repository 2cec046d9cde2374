"""Max pooling, with dilation: the largest value of each window, and the gradient, which goes to its position.

Forward   ``y[a, b] = max over the taps of window (a, b) of V``
Gradient  ``dx[pixel that the selected tap of (a, b) reads] += g[p0 + (a, b)]``

``V`` is what a tap reads: the pixel, and outside the image 0 with edge mode "zero", or the nearest pixel with "clamp"
[doc]. The maximum skips NaN, and of NaN alone it is -inf [choice max-nan]. The selected tap is the first in
raster order whose value equals it [choice max-tie; Apple documents that which of equal maxima is taken may vary with
the hardware]. With "zero" an outside tap can be selected, and of NaN alone none is: then no pixel gets the gradient of
that window [math]. Pixels that no window selects get exactly 0.

Source: MPSCNNPoolingMax, MPSCNNDilatedPoolingMax and their gradients in ``MPSCNNPooling.h`` [doc].
"""

from __future__ import annotations

import numpy as np

from mpsref import codecs
from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import Pair, PairLike, pair
from mpsref.codecs import parameter
from mpsref.kernels.pooling import (
    Pooling,
    PoolingForward,
    PoolingGradient,
    blocks,
    count_of_windows,
    windows_of_row,
)
from mpsref.kernels.reduce import first_of, greatest
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
    problem: PoolingForward | PoolingGradient, x: Array, a: int, columns: range
) -> tuple[Array, Array, tuple[Array, Array]]:
    """Return the values (N, taps, B, C) of windows (a, b), and for the first largest numbers the tap and its pixel.

    ``columns`` are the B windows. The row or the column of a tap outside the image is -1. Of NaN alone the tap, its row
    and its column are -1.
    """
    values, rows, pixels = windows_of_row(problem, x, a, columns)
    selected = first_tap(values)
    p, q = np.divmod(selected, len(pixels))
    there = selected >= 0
    return (
        values,
        selected,
        (
            np.where(there, rows[p], -1),
            np.where(there, pixels[q, np.arange(len(columns))[:, None]], -1),
        ),
    )


def first_tap(values: Array) -> Array:
    """Return the first tap (N, ...) of the largest number of a window (N, taps, ...); -1 if all are NaN."""
    return first_of(values, greatest(values, axis=1, keepdims=True), axis=1)


@operation(PoolingMax, problem=PoolingForward, bound=selected)
def forward(problem: PoolingForward, x: Array) -> Array:
    """y[a, b] = the value of the selected tap, -inf if there is none."""
    y = np.zeros(problem.result_shapes[0], x.dtype)
    rows, columns = map(range, problem.output_size)
    for a, part in blocks(problem, rows, columns):
        values, tap, _ = select(problem, x, a, part)
        largest = np.take_along_axis(values, tap[:, None], axis=1)[:, 0]
        y[:, a, part.start : part.stop] = np.where(tap >= 0, largest, -np.inf)
    return y


def gradient_bound(problem: PoolingGradient, g: Array, x: Array) -> ErrorBound:
    """Sum of |g| over the windows that select the pixel, and m = number of windows that read it + 4."""
    magnitude = gradient(problem, np.abs(g), x)
    return ErrorBound.of_terms(magnitude, count_of_windows(problem) + 4, magnitude <= 2.0**24)


@operation(PoolingMax, problem=PoolingGradient, bound=gradient_bound)
def gradient(problem: PoolingGradient, g: Array, x: Array) -> Array:
    """dx[pixel of the selected tap] += g[p0 + (a, b)]: the adjoint of the forward pass."""
    dx = np.zeros(problem.source_shape, g.dtype)
    n, _, c = np.ogrid[: x.shape[0], :1, : x.shape[3]]
    p0y, p0x = problem.primary_offset
    for a, part in blocks(problem, *problem.included):
        _, _, (row, column) = select(problem, x, a, part)
        of_windows = g[:, p0y + a, p0x + part.start : p0x + part.stop]
        np.add.at(dx, (n, row, column, c), np.where((row >= 0) & (column >= 0), of_windows, 0))
    return problem.place(dx)
