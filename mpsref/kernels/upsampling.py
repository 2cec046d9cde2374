"""Upsampling by integer factors, nearest or bilinear, and its gradient, the exact adjoint.

Nearest   ``y[i] = x[i // s]`` on each axis; ``dx[j] = sum of g[s j + r]`` for ``0 <= r < s``
Bilinear  ``y[i] = (1 - f) x[j0] + f x[j0 + 1]`` with ``j0 + f = p``; ``dx[j] = sum over i of g[i] dy[i]/dx[j]``

``O = s L``. The position is ``p = i / s``: there is no shift by half a pixel, the top left pixels coincide and the last
s - 1 outputs lie beyond the last pixel, where they fade to 0 with edge mode "zero" and hold the last pixel with
"clamp". With ``align_corners``, ``p = i (L - 1) / (O - 1)``, the corners of both images coincide.

Source: MPSCNNUpsamplingNearest, MPSCNNUpsamplingBilinear and their gradients in ``MPSCNNUpsampling.h``; sizes, nearest,
aligned corners [doc]; positions without alignment and edge mode "zero" [obs]; "clamp", and that the gradient knows
``align_corners``, for which Apple's has no argument [choice]; the adjoint [math].
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mpsref import codecs, operations, registry
from mpsref.arguments.arrays import Array, ImageShape, Shape, as_image, as_shape, is_shape
from mpsref.arguments.parameters import Pair, PairLike, choice, flag, pair
from mpsref.errors import ShapeError
from mpsref.geometry import EDGE_MODES, EdgeMode
from mpsref.kernels.interpolation import Sampling, sampled, spread_back
from mpsref.kernels.movement import bit_exact
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import Declaration, Formula, OperationKey


class Upsampling(operations.Spec):
    """Parameters of both kinds of upsampling: the integer ``scale`` (y, x); one integer stands for both axes."""

    scale: PairLike = field(metadata={"codec": codecs.pair("s")})

    def __post_init__(self) -> None:
        """Check the scale."""
        object.__setattr__(self, "scale", pair("scale", self.scale, low=1))

    @property
    def factors(self) -> Pair:
        """The scale as a pair."""
        return pair("scale", self.scale)

    def sampling(self, length: int, s: int) -> Sampling:
        """Return how an axis of ``length`` pixels is sampled with the factor s."""
        raise NotImplementedError

    def forward(self, x: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return the image ``x`` (N, H, W, C) as (N, sy H, sx W, C), in its dtype.

        Raises ``ValueError`` or ``TypeError`` for what does not fit.
        """
        x = as_image("x", x)
        return registry.run_one(self.problems["forward"](self, x.shape), x, out=out, backend=backend)

    def gradient(self, g: Any, x_or_shape: Any = None, *, out: Any = None, backend: Any = None) -> Array:
        """Return dL/dx from ``g`` = dL/dy (N, sy H, sx W, C), in the dtype of g.

        Of the source image only the shape is read; ``None`` means that it follows from g. Raises ``ShapeError`` for a g
        whose height or width is not the scale times that of the source.
        """
        g = as_image("g", g)
        if x_or_shape is None:
            n, height, width, c = g.shape
            (sy, sx) = self.factors
            shape = n, height // sy or 1, width // sx or 1, c
        else:
            given = x_or_shape if is_shape(x_or_shape) else as_image("x", x_or_shape).shape
            shape = as_shape("x_or_shape", given)
        problem = self.problems["gradient"](self, shape)
        if g.shape != problem.large_shape:
            raise ShapeError(
                f"{type(self).__name__}: g has shape {g.shape}; with scale {self.factors} and a source of shape "
                f"{problem.source_shape} it must have {problem.large_shape}: on each axis, scale times the length"
            )
        return registry.run_one(problem, g, out=out, backend=backend)


class UpsamplingProblem(operations.ImageProblem):
    """A call of upsampling: the shape of the small image."""

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
        y, x = (
            self.spec.sampling(length, s) for length, s in zip(self.source_shape[1:3], self.spec.factors, strict=True)
        )
        return y, x

    def where(self, index: tuple[int, ...]) -> str:
        """Describe the pixels that an element is made of."""
        tables = (axis.forward() if self.method == "forward" else axis.gradient() for axis in self.axes)
        rows, columns = (
            [int(table.first[k]) + t for t in range(table.number[k])]
            for table, k in zip(tables, index[1:3], strict=True)
        )
        return f"reads rows {rows}, columns {columns}"


class UpsamplingForward(UpsamplingProblem):
    """``forward`` of upsampling: y from x."""

    method: ClassVar[str] = "forward"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The small image x."""
        return {"x": self.source_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The large image y."""
        return (self.large_shape,)


class UpsamplingGradient(UpsamplingProblem):
    """``gradient`` of upsampling: dx from g."""

    method: ClassVar[str] = "gradient"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient g."""
        return {"g": self.large_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The small image dx."""
        return (self.source_shape,)


PROBLEMS = {"forward": UpsamplingForward, "gradient": UpsamplingGradient}


class UpsamplingNearest(Upsampling):
    """Upsampling that repeats each pixel in a block of (sy, sx).

    >>> import numpy as np
    >>> up = UpsamplingNearest(2)
    >>> up.forward(np.array([[1, 2], [3, 4]], np.float32)[None, ..., None])[0, :, :, 0].tolist()
    [[1.0, 1.0, 2.0, 2.0], [1.0, 1.0, 2.0, 2.0], [3.0, 3.0, 4.0, 4.0], [3.0, 3.0, 4.0, 4.0]]
    >>> up.gradient(np.ones((1, 4, 4, 1), np.float32))[0, :, :, 0].tolist()
    [[4.0, 4.0], [4.0, 4.0]]
    """

    problems: ClassVar = PROBLEMS

    def sampling(self, length: int, s: int) -> Sampling:
        """Return the sampling that takes the pixel ``i // s``."""
        return Sampling(length, s * length, 1, s, nearest=True)


class UpsamplingBilinear(Upsampling):
    """Upsampling that interpolates linearly along y and x.

    >>> import numpy as np
    >>> row = np.array([0, 3, 9], np.float32).reshape(1, 1, 3, 1)
    >>> UpsamplingBilinear((1, 2)).forward(row).ravel().tolist()
    [0.0, 1.5, 3.0, 6.0, 9.0, 4.5]
    >>> UpsamplingBilinear((1, 2), edge_mode="clamp").forward(row).ravel().tolist()
    [0.0, 1.5, 3.0, 6.0, 9.0, 9.0]
    """

    align_corners: bool = field(default=False, metadata={"codec": codecs.flag("aligned", "free")})
    edge_mode: EdgeMode = field(default="zero", metadata={"codec": codecs.word(*EDGE_MODES)})

    problems: ClassVar = PROBLEMS

    def __post_init__(self) -> None:
        """Check every parameter."""
        super().__post_init__()
        object.__setattr__(self, "align_corners", flag("align_corners", self.align_corners))
        object.__setattr__(self, "edge_mode", choice("edge_mode", self.edge_mode, EDGE_MODES))

    def sampling(self, length: int, s: int) -> Sampling:
        """Return the sampling at ``i / s``, or with aligned corners at ``i (L - 1) / (O - 1)``."""
        outputs = s * length
        if self.align_corners:
            return Sampling(length, outputs, length - 1 if outputs > 1 else 0, max(1, outputs - 1), self.edge_mode)
        return Sampling(length, outputs, 1, s, self.edge_mode)


def forward(problem: UpsamplingForward, x: Array) -> Array:
    """y = My x Mx^T, one axis after the other."""
    y, x_axis = problem.axes
    return sampled(2, x_axis, sampled(1, y, x))


def gradient(problem: UpsamplingGradient, g: Array) -> Array:
    """dx = My^T g Mx: the forward pass with the arrow reversed."""
    y, x_axis = problem.axes
    return spread_back(1, y, spread_back(2, x_axis, g))


def forward_terms(problem: UpsamplingForward, x: Array) -> ErrorBound:
    """Nearest: nothing is rounded. Bilinear: sum of |x| over the (up to) four neighbours, and m = 20."""
    if isinstance(problem.spec, UpsamplingNearest):
        return bit_exact(np.empty(problem.large_shape))
    return bilinear_terms(problem.axes, x)


def bilinear_terms(axes: tuple[Sampling, Sampling], x: Array) -> ErrorBound:
    """Sum of |x| over the neighbours, without the weights, whose errors are absolute; m = 20.

    Weights that are dyadic leave nothing to round where the pixels are small integers.
    """
    magnitude = np.abs(x)
    for axis, sampling in enumerate(axes, start=1):
        magnitude = _unweighted(axis, sampling.forward(), magnitude)
    finest = min(axes[0].denominator * axes[1].denominator, 2**60)  # a larger one is as fine
    return ErrorBound(magnitude, np.float64(20), _dyadic(axes) & (magnitude * finest <= 2.0**24))


def gradient_terms(problem: UpsamplingGradient, g: Array) -> ErrorBound:
    """Sum of |g| over the contributors, and m = their number T + 4 for nearest, T + 16 for bilinear."""
    magnitude, counts = np.abs(g), []
    for axis, sampling in enumerate(problem.axes, start=1):
        table = sampling.gradient()
        magnitude = _unweighted(axis, table, magnitude)
        counts.append(table.number)
    count = np.multiply.outer(*counts)[None, :, :, None]
    nearest = isinstance(problem.spec, UpsamplingNearest)
    finest = 1 if nearest else problem.axes[0].denominator * problem.axes[1].denominator
    exact = (nearest or _dyadic(problem.axes)) & (magnitude * finest <= 2.0**24)
    return ErrorBound(magnitude, count + (4 if nearest else 16), exact)


def _unweighted(axis: int, table: Any, values: Array) -> Array:
    """Sum the runs of a table along an axis, without their weights."""
    sums = np.concatenate([np.zeros_like(values.take([0], axis)), np.cumsum(values, axis)], axis)
    return np.asarray(sums.take(table.first + table.number, axis) - sums.take(table.first, axis))


def _dyadic(axes: tuple[Sampling, Sampling]) -> bool:
    """Whether the denominators are powers of two, and so all weights finite binary fractions."""
    return all(axis.denominator & (axis.denominator - 1) == 0 for axis in axes)


SPECS = (UpsamplingNearest, UpsamplingBilinear)
REFERENCE: dict[OperationKey, Formula] = {
    (UpsamplingNearest, "forward"): forward,
    (UpsamplingNearest, "gradient"): gradient,
    (UpsamplingBilinear, "forward"): forward,
    (UpsamplingBilinear, "gradient"): gradient,
}
TERMS: dict[OperationKey, Formula] = {
    (UpsamplingNearest, "forward"): forward_terms,
    (UpsamplingNearest, "gradient"): gradient_terms,
    (UpsamplingBilinear, "forward"): forward_terms,
    (UpsamplingBilinear, "gradient"): gradient_terms,
}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
