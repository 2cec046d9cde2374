"""Upsampling by integer factors, nearest or bilinear, and its gradient, the exact adjoint.

Nearest   ``y[i] = x[i // s]`` on each axis; ``dx[j] = sum of g[s j + r]`` for ``0 <= r < s``
Bilinear  ``y[i] = (1 - f) x[j0] + f x[j0 + 1]`` with ``j0 + f = p``; ``dx[j] = sum over i of g[i] dy[i]/dx[j]``

``O = s L``. The position is ``p = i / s``: there is no shift by half a pixel, the top left pixels coincide and the last
s - 1 outputs lie beyond the last pixel, where they fade to 0 with edge mode "zero" and hold the last pixel with
"clamp". With ``align_corners``, ``p = i (L - 1) / (O - 1)``, the corners of both images coincide.

Source: MPSCNNUpsamplingNearest, MPSCNNUpsamplingBilinear and their gradients in ``MPSCNNUpsampling.h``; sizes, nearest,
aligned corners [doc]; positions without alignment and edge mode "zero" [obs upsampling-positions]; "clamp", and that
the gradient has ``align_corners``, for which Apple's has no argument [choice upsampling-aligned-gradient]; the adjoint
[math].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from anymetal.fork_safe import cached_property
from mpsref import codecs
from mpsref.arguments.arrays import Array, ImageShape, Shape, as_image
from mpsref.arguments.parameters import Pair, PairLike, pair
from mpsref.backend import BackendLike
from mpsref.codecs import parameter
from mpsref.geometry import EDGE_MODES, EdgeMode, by_axis
from mpsref.kernels.interpolation import Sampling, WeightTable, sampled, spread_back
from mpsref.kernels.one_image import OneImage
from mpsref.kernels.reference import ErrorBound, functions, gamma, selected
from mpsref.operations import ImageProblem, operation, shape_only
from mpsref.registry import call


class Upsampling(OneImage):
    """Parameters of both kinds of upsampling: the integer ``scale`` (y, x); one integer stands for both axes."""

    scale: PairLike = parameter(codecs.pair("s", low=1))

    @property
    def factors(self) -> Pair:
        """The scale as a pair."""
        return pair("scale", self.scale)

    def sampling(self, length: int, s: int) -> Sampling:
        """Return how an axis of ``length`` pixels is sampled with the factor s."""
        raise NotImplementedError

    def gradient(
        self,
        g: ArrayLike,
        x_or_shape: ArrayLike | Shape | None = None,
        *,
        out: Array | None = None,
        backend: BackendLike = None,
    ) -> Array:
        """Compute dL/dx from the source gradient dL/dy.

        Parameters
        ----------
        g : array_like, shape (N, sy * H, sx * W, C)
            Source gradient.
        x_or_shape : array_like, shape (N, H, W, C), or its shape, optional
            Source image of the forward pass, of which only the shape counts; by default it follows from ``g``.

        Raises
        ------
        ShapeError
            If the height or width of ``g`` is not the scale times that of the source.
        """
        if x_or_shape is None:
            g = as_image("g", g)
            n, height, width, c = g.shape
            sy, sx = self.factors
            x_or_shape = n, height // sy or 1, width // sx or 1, c
        return call(self, "gradient", (g, x_or_shape), out=out, backend=backend)


class SampledProblem(ImageProblem):
    """A call of a kernel that samples images: the shape of the source, which is the small image in upsampling."""

    @property
    def large_shape(self) -> ImageShape:
        """The shape of the result of the forward pass."""
        raise NotImplementedError

    @property
    def axes(self) -> tuple[Sampling, Sampling]:
        """How y and x are sampled."""
        raise NotImplementedError

    def where(self, index: tuple[int, ...]) -> str:
        """Describe the pixels that determine an element."""
        tables = (axis.forward() if self.method == "forward" else axis.gradient() for axis in self.axes)
        rows, columns = (
            [int(table.first[k]) + t for t in range(table.number[k])]
            for table, k in zip(tables, index[1:3], strict=True)
        )
        return f"reads rows {rows}, columns {columns}"


class UpsamplingProblem(SampledProblem):
    """A call of upsampling."""

    spec: Upsampling

    @property
    def large_shape(self) -> ImageShape:
        """The shape of the large image."""
        n, height, width, c = self.source_shape
        sy, sx = self.spec.factors
        return n, sy * height, sx * width, c

    @cached_property
    def axes(self) -> tuple[Sampling, Sampling]:
        """How y and x are sampled."""
        return by_axis(self.spec.sampling, self.source_shape[1:3], self.spec.factors)

    def shape_hint(self, name: str, shape: Shape) -> str:
        return f": on each axis, scale {self.spec.factors} times the length"


class UpsamplingForward(UpsamplingProblem, method="forward", inputs={"x": "n h w c"}, results={"y": "large_shape"}):
    """``forward`` of upsampling: y from x."""


class UpsamplingGradient(
    UpsamplingProblem, method="gradient", inputs={"g": "large_shape", "x": shape_only()}, results={"dx": "n h w c"}
):
    """``gradient`` of upsampling: dx from g."""


class UpsamplingNearest(Upsampling):
    """Upsampling that repeats each pixel in a block of (sy, sx): (N, H, W, C) to (N, sy * H, sx * W, C).

    Parameters
    ----------
    scale : int or pair of int
        Factors (sy, sx), >= 1.

    Examples
    --------
    >>> import numpy as np
    >>> up = UpsamplingNearest(2)
    >>> up.forward(np.array([[1, 2], [3, 4]], np.float32)[None, ..., None])[0, :, :, 0].tolist()
    [[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0], [3.0, 3.0, 4.0, 4.0], [3.0, 3.0, 4.0, 4.0]]
    >>> up.gradient(np.ones((1, 4, 4, 1), np.float32))[0, :, :, 0].tolist()
    [[4.0, 4.0], [4.0, 4.0]]
    """

    def sampling(self, length: int, s: int) -> Sampling:
        """Return the sampling that takes the pixel ``i // s``."""
        return Sampling(length, s * length, 1, s, rounding="floor")


class UpsamplingBilinear(Upsampling):
    """Upsampling that interpolates linearly along y and x: (N, H, W, C) to (N, sy * H, sx * W, C).

    Parameters
    ----------
    scale : int or pair of int
        Factors (sy, sx), >= 1.
    align_corners : bool
        Whether the corner pixels of both images coincide.
    edge_mode : {"zero", "clamp"}
        What is read behind the last pixel.

    Examples
    --------
    >>> import numpy as np
    >>> row = np.array([0, 3, 9], np.float32).reshape(1, 1, 3, 1)
    >>> UpsamplingBilinear((1, 2)).forward(row).ravel().tolist()
    [0.0, 1.5, 3.0, 6.0, 9.0, 4.5]
    >>> UpsamplingBilinear((1, 2), edge_mode="clamp").forward(row).ravel().tolist()
    [0.0, 1.5, 3.0, 6.0, 9.0, 9.0]
    """

    align_corners: bool = parameter(codecs.flag("aligned", "free"), default=False)
    edge_mode: EdgeMode = parameter(codecs.word(*EDGE_MODES), default="zero")

    def sampling(self, length: int, s: int) -> Sampling:
        """Return the sampling at ``i / s``, or with aligned corners at ``i (L - 1) / (O - 1)``."""
        outputs = s * length
        if self.align_corners:
            return Sampling(length, outputs, length - 1 if outputs > 1 else 0, max(1, outputs - 1), self.edge_mode)
        return Sampling(length, outputs, 1, s, self.edge_mode)


def matrix(table: WeightTable, length: int) -> Array:
    """Return the weights of a table as a matrix, (outputs, length)."""
    matrix = np.zeros((len(table.number), length))
    output, element, weights = table.entries()
    matrix[output, element] = weights
    return matrix


def _dyadic(axes: tuple[Sampling, Sampling]) -> bool:
    """Whether the denominators are powers of two, and so all weights finite binary fractions."""
    return all(axis.denominator & (axis.denominator - 1) == 0 for axis in axes)


def bilinear_bound(
    axes: tuple[Sampling, Sampling], tables: Sequence[WeightTable], values: Array, terms: Any = 0
) -> ErrorBound:
    """Absolute errors of the weights, and for both axes a product and a sum; of ``terms``, as many sums in all.

    A weight that is not 1 has the error of a quotient, or of its difference from 1. Weights that are dyadic leave
    nothing to round where the pixels are small integers.
    """
    y, x = (matrix(table, length) for table, length in zip(tables, values.shape[1:3], strict=True))

    def summed(rows: Array, columns: Array) -> Array:
        return np.asarray(np.einsum("ay,nyxc,bx->nabc", rows, np.abs(values), columns, optimize=True))

    size, unweighted = summed(y, x), summed(y > 0, x > 0)
    of_weights = summed((y > 0) & (y < 1), x) + summed(y, (x > 0) & (x < 1))
    finest = min(axes[0].denominator * axes[1].denominator, 2**60)  # a larger denominator gives no better bound
    m, weight = np.float64(4) + terms, functions().quotient
    return ErrorBound(
        gamma(m) * size + gamma(weight) * of_weights, _dyadic(axes) & (unweighted * finest <= 2.0**24), m + weight
    )


def forward_bound(problem: SampledProblem, x: Array) -> ErrorBound:
    """Nearest: nothing is rounded."""
    if problem.axes[0].rounding:
        return selected(problem)[0]
    return bilinear_bound(problem.axes, [axis.forward() for axis in problem.axes], x)


@operation(UpsamplingNearest, UpsamplingBilinear, problem=UpsamplingForward, bound=forward_bound)
def forward(problem: SampledProblem, x: Array) -> Array:
    """y = My x Mx^T, one axis after the other."""
    y, x_axis = problem.axes
    return sampled(2, x_axis, sampled(1, y, x))


def gradient_bound(problem: SampledProblem, g: Array) -> ErrorBound:
    """Nearest: the sum of |g| over the T contributors, and m = T + 4. Bilinear: as in the forward pass."""
    tables = [axis.gradient() for axis in problem.axes]
    count = np.multiply.outer(*(table.number for table in tables))[None, :, :, None]
    if not problem.axes[0].rounding:
        return bilinear_bound(problem.axes, tables, g, count)
    magnitude = gradient(problem, np.abs(g))
    return ErrorBound.of_terms(magnitude, count + 4, magnitude <= 2.0**24)


@operation(UpsamplingNearest, UpsamplingBilinear, problem=UpsamplingGradient, bound=gradient_bound)
def gradient(problem: SampledProblem, g: Array) -> Array:
    """dx = My^T g Mx: the adjoint of the forward pass."""
    y, x_axis = problem.axes
    return spread_back(1, y, spread_back(2, x_axis, g))
