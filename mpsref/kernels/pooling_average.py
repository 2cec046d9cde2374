"""Average pooling: the mean over each window, and its gradient.

Forward   ``y[a, b] = (sum of x over the taps of window (a, b) inside the image) / N(a, b)``, 0 where N = 0
Gradient  ``dx[j] = sum over the windows (a, b) with a tap at j of g[p0 + (a, b)] / N(a, b)``

``N(a, b) = Ny(a) * Nx(b)`` counts, with edge mode "zero", all taps; with "clamp", those inside the image and inside a
zero pad of ``zero_pad_size`` around it: there the window shrinks. It depends only on the geometry, so the gradient
needs only the size of the source image. Pixels that no window reads get exactly 0.

Source: MPSCNNPoolingAverage, MPSCNNPoolingAverageGradient in ``MPSCNNPooling.h``; formulas, N and the zero rule [doc].
"""

from __future__ import annotations

import numpy as np

from mpsref import codecs
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair, PairLike, pair
from mpsref.codecs import parameter
from mpsref.geometry import by_axis
from mpsref.kernels.pooling import Pooling, PoolingForward, PoolingGradient
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import operation
from mpsref.tables import reciprocals


class PoolingAverage(Pooling):
    """Average pooling.

    Parameters
    ----------
    zero_pad_size : int or pair of int
        Width (y, x) of the zero pad around the image that counts in N with edge mode "clamp"; ignored with "zero".

    Examples
    --------
    >>> import numpy as np
    >>> pool = PoolingAverage(kernel_size=3, strides=2, edge_mode="clamp")
    >>> x = np.arange(1, 17, dtype=np.float32).reshape(1, 4, 4, 1)
    >>> pool.forward(x)[0, :, :, 0].tolist()
    [[3.5, 5.0], [9.5, 11.0]]
    >>> g = np.array([36, 72, 108, 144], np.float32).reshape(1, 2, 2, 1)
    >>> pool.gradient(g, x.shape)[0, 0, :, 0].tolist()
    [9.0, 21.0, 12.0, 12.0]
    """

    zero_pad_size: PairLike = parameter(codecs.pair("zp", low=0), default=(0, 0))

    reads_source = False
    framework_padding = "counted"

    @property
    def zero_pad(self) -> Pair:
        """The zero pad size as a pair."""
        return pair("zero_pad_size", self.zero_pad_size)

    def divisor(self, axis: int, i: int, shape: Shape) -> int:
        """Return N of window i on an axis (0: y, 1: x) of an image of ``shape``."""
        return self.windows[axis].divisor(i, shape[1 + axis], self.edge_mode, self.zero_pad[axis])

    def reciprocals(self, first: Pair, count: Pair, shape: Shape) -> tuple[Array, Array]:
        """Return 1/N of the windows ``first ... first + count - 1``, for y and for x, on an image of ``shape``."""
        modes = self.edge_mode, self.edge_mode
        return by_axis(reciprocals, self.windows, first, count, shape[1:3], modes, self.zero_pad)


class AverageForward(PoolingForward):
    """``forward`` of average pooling."""

    spec: PoolingAverage

    def reciprocals(self) -> tuple[Array, Array]:
        """Return 1/Ny and 1/Nx of every window, float64; 0 where N is 0."""
        return self.spec.reciprocals((0, 0), self.output_size, self.source_shape)


class AverageGradient(PoolingGradient):
    """``gradient`` of average pooling."""

    spec: PoolingAverage

    def reciprocals(self) -> tuple[Array, Array]:
        """Return 1/Ny and 1/Nx of the windows of every gradient pixel, float64; 0 where N is 0."""
        first = -self.primary_offset[0], -self.primary_offset[1]
        return self.spec.reciprocals(first, self.gradient_size, self.source_shape)


def windows(problem: AverageForward | AverageGradient, axis: int, indices: range) -> list[tuple[int, slice, int]]:
    """Return of each window on one axis: its number i, its pixels inside the image, and N(i)."""
    spec, length = problem.spec, problem.source_shape[1 + axis]
    window, zero_pad = spec.windows[axis], spec.zero_pad[axis]
    return [(i, window.inside(i, length), window.divisor(i, length, spec.edge_mode, zero_pad)) for i in indices]


def bound(problem: AverageForward | AverageGradient, values: Array) -> ErrorBound:
    """Sum of |terms|, and m = number of terms + 4: additions, two factors 1/N, their products [design error-bounds].

    Integers give an exact result where every N is a power of two: then all partial sums are multiples of 1 / max N.
    """
    magnitude = problem.operation.formula(problem, np.abs(values))
    counts, dyadic = [], []
    for runs, inverse in zip(problem.runs(), problem.reciprocals(), strict=True):
        counts.append(runs.count)
        inexact = np.concatenate([[0], np.cumsum(np.frexp(inverse)[0] % 0.5 != 0)])  # windows whose N is no power of 2
        windows = runs.first if isinstance(problem, AverageGradient) else np.arange(len(runs.first))
        width = runs.count if isinstance(problem, AverageGradient) else 1
        dyadic.append(inexact[windows + width] == inexact[windows])
    count, exact = (np.multiply.outer(*axes)[None, :, :, None] for axes in (counts, dyadic))
    finest = np.prod([inverse[inverse > 0].min(initial=1.0) for inverse in problem.reciprocals()])
    return ErrorBound.of_terms(magnitude, count + 4, exact & (magnitude <= 2.0**24 * finest))


@operation(PoolingAverage, problem=AverageForward, bound=bound)
def forward(problem: AverageForward, x: Array) -> Array:
    """y[a, b] = sum of the pixels inside the image / N(a, b)."""
    y = np.zeros(problem.result_shapes[0], x.dtype)
    vertical, horizontal = (windows(problem, axis, range(problem.output_size[axis])) for axis in (0, 1))
    for a, rows, ny in vertical:
        of_rows = x[:, rows].sum(axis=1)
        for b, columns, nx in horizontal:
            if ny * nx:
                y[:, a, b] = of_rows[:, columns].sum(axis=1) / (ny * nx)
    return y


@operation(PoolingAverage, problem=AverageGradient, bound=bound)
def gradient(problem: AverageGradient, g: Array) -> Array:
    """dx[pixels inside the image] += g[p0 + (a, b)] / N(a, b): the adjoint of the forward pass."""
    dx = np.zeros(problem.result_shapes[0], g.dtype)
    py, px = problem.primary_offset
    vertical, horizontal = (windows(problem, axis, problem.included[axis]) for axis in (0, 1))
    for a, rows, ny in vertical:
        of_row = np.zeros_like(dx[:, 0])
        for b, columns, nx in horizontal:
            if ny * nx:
                of_row[:, columns] += g[:, py + a, px + b, None] / (ny * nx)
        dx[:, rows] += of_row[:, None]
    return problem.place(dx)
