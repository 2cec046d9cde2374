"""Reductions: sum, mean, minimum, maximum or the index of an extremum along one of the axes; and the spatial mean.

=============== ============================= ============
over            one value for each            result
=============== ============================= ============
row             row (and channel)             (N, H, 1, C)
column          column (and channel)          (N, 1, W, C)
featurechannels pixel                         (N, H, W, 1)
spatial         channel, the mean alone       (N, 1, 1, C)
=============== ============================= ============

A sum over channels is multiplied by ``weight``; a mean divides by the number of elements read; of equal extrema the
lowest index counts [obs reduction-tie]. Extrema skip NaN: of NaN alone a maximum is -inf, a minimum +inf, and the index
-1 [obs reduction-nan]. With a ``clip`` only that part of the image is read, and H and W are its size.

Only the spatial mean has a gradient: ``dx[n, h, w, c] = g[n, 0, 0, c] / (H W)`` inside the clip, 0 outside [math].

Source: the classes of ``MPSNNReduce.h``, and MPSNNReductionSpatialMeanNode in ``MPSNNGraphNodes.h`` [doc].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from mpsref import codecs
from mpsref.arguments.arrays import Array, ImageShape
from mpsref.arguments.parameters import Clip, Pair, Triple
from mpsref.codecs import parameter
from mpsref.errors import NoGradientError
from mpsref.geometry import clip
from mpsref.kernels.one_image import ReadsShape
from mpsref.kernels.reference import ErrorBound, selected
from mpsref.operations import ImageProblem, operation, shape_only

Reduction: TypeAlias = Literal["sum", "mean", "min", "max", "argumentmin", "argumentmax"]
OPERATIONS: tuple[Reduction, ...] = get_args(Reduction)

Over: TypeAlias = Literal["row", "column", "featurechannels", "spatial"]
OVER: tuple[Over, ...] = get_args(Over)

AXES: dict[Over, tuple[int, ...]] = {"row": (2,), "column": (1,), "featurechannels": (3,), "spatial": (1, 2)}


def is_legal(operation: Reduction, over: Over) -> bool:
    """Whether MPS has this reduction along these axes.

    >>> is_legal("argumentmax", "row"), is_legal("mean", "spatial")
    (False, True)
    """
    if over == "spatial":
        return operation == "mean"
    return over == "featurechannels" or not operation.startswith("argument")


class Reduce(ReadsShape):
    """Reduction of an image: length 1 on the reduced axes; an index is a float.

    Only the spatial mean has a gradient; that of others raises ``NoGradientError``.

    Parameters
    ----------
    operation : {"sum", "mean", "min", "max", "argumentmin", "argumentmax"}
        The reduction.
    over : {"row", "column", "featurechannels", "spatial"}
        What is reduced to one element; an index only along "featurechannels", "spatial" only the mean.
    weight : float
        Factor of a sum over "featurechannels".
    clip : ((y0, x0), (height, width)), optional
        The part of the image that is read; default: all of it.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(1, 13, dtype=np.float32).reshape(1, 2, 3, 2)
    >>> Reduce("sum", "row").forward(x)[0, :, 0].tolist()
    [[9.0, 12.0], [27.0, 30.0]]
    >>> Reduce("argumentmax", "featurechannels").forward(x).ravel().tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    >>> Reduce("mean", "spatial").forward(x).ravel().tolist()
    [6.0, 7.0]
    """

    operation: Reduction = parameter(codecs.word(*OPERATIONS))
    over: Over = parameter(codecs.word(*OVER))
    weight: float = parameter(codecs.number("weight"), default=1.0)
    clip: Clip | None = parameter(codecs.clip("clip"), default=None)

    def _check(self) -> None:
        if not is_legal(self.operation, self.over):
            legal = [word for word in OVER if is_legal(self.operation, word)]
            raise ValueError(f"operation is {self.operation!r} and over is {self.over!r}; it must be one of {legal}")
        if self.weight != 1 and (self.operation, self.over) != ("sum", "featurechannels"):
            raise ValueError(
                f"weight is {self.weight}; it must be 1 but for the sum over 'featurechannels', where this is the "
                f"{self.operation} over {self.over!r}"
            )


class ReduceProblem(ImageProblem):
    """A call of a reduction: the shape of the image."""

    spec: Reduce

    def _check(self) -> None:
        if 0 in self.region[1]:
            raise ValueError(
                f"clip is {self.spec.clip} and the image has shape {self.source_shape}: nothing lies in both; the clip "
                "must overlap the image"
            )

    @property
    def region(self) -> tuple[Pair, Pair]:
        """Return the part of the image that is read: its origin (y, x) and its size (height, width)."""
        origin, size = self.spec.clip or ((0, 0), (None, None))
        (y, height), (x, width) = (clip(*axis) for axis in zip(origin, size, self.source_shape[1:3], strict=True))
        return (y, x), (height, width)

    @property
    def clipped_shape(self) -> ImageShape:
        """The shape of the part that is read."""
        (height, width) = self.region[1]
        return self.source_shape[0], height, width, self.source_shape[3]

    @property
    def reduced_shape(self) -> ImageShape:
        """The shape of the result of ``forward``."""
        axes = AXES[self.spec.over]
        n, height, width, c = (1 if axis in axes else length for axis, length in enumerate(self.clipped_shape))
        return n, height, width, c

    @property
    def count(self) -> int:
        """Number of elements that one result reduces."""
        return int(np.prod([self.clipped_shape[axis] for axis in AXES[self.spec.over]]))

    @property
    def kept(self) -> Triple:
        """For y, x and channel 1 where the axis stays, 0 where it is reduced."""
        y, x, c = (int(axis not in AXES[self.spec.over]) for axis in (1, 2, 3))
        return y, x, c

    @property
    def scale(self) -> float:
        """What a sum is multiplied by."""
        return 1 / self.count if self.spec.operation == "mean" else self.spec.weight

    def part(self, image: Array) -> Array:
        """Return the part of an image of the source's shape that is read."""
        (y, x), (height, width) = self.region
        return image[:, y : y + height, x : x + width]


class ReduceForward(ReduceProblem, method="forward", inputs={"x": "n h w c"}, results={"y": "reduced_shape"}):
    """``forward`` of a reduction."""

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Make equal values frequent where the result is an index; of several equal ones negative zeros.

        Of every second pixel zeros of both signs are the extrema.
        """
        x, operation = drawn["x"], self.spec.operation
        if operation.startswith("argument"):
            x = np.round(np.clip(x, -2, 2))
            beyond = -np.abs(x) if operation == "argumentmax" else np.abs(x)
            is_second = (np.add.outer(np.arange(x.shape[1]), np.arange(x.shape[2])) % 2 == 1)[None, :, :, None]
            return {"x": np.where(is_second & (x != 0), beyond, x)}
        is_equal = operation in ("min", "max") and x.size > 1 and bool((x == x.flat[0]).all())
        return {"x": np.full_like(x, -0.0)} if is_equal else drawn


class ReduceGradient(
    ReduceProblem, method="gradient", inputs={"g": "reduced_shape", "x": shape_only()}, results={"dx": "n h w c"}
):
    """``gradient`` of the spatial mean."""

    def _check(self) -> None:
        if self.spec.over != "spatial":
            raise NoGradientError(
                f"{self.spec!r} has no gradient kernel in MPS; the mean over the spatial axes has one, and a sum is "
                'the gradient of an Arithmetic("add") with strides of 0'
            )
        super()._check()


def _least(values: Array, **axis: Any) -> Array:
    return np.asarray(np.fmin.reduce(values, initial=np.inf, **axis))


def greatest(values: Array, **axis: Any) -> Array:
    """Return the largest number; -inf if all are NaN."""
    return np.asarray(np.fmax.reduce(values, initial=-np.inf, **axis))


def first_of(values: Array, found: Array, **axis: Any) -> Array:
    """Return the lowest index of a value that was found; -1 if all are NaN."""
    same = values == found
    return np.where(same.any(**axis), same.argmax(**axis), -1)


FORMULAS: dict[Reduction, Callable[..., Array]] = {
    "sum": np.sum,
    "mean": np.mean,
    "min": _least,
    "max": greatest,
    "argumentmin": lambda values, **axis: first_of(values, _least(values, **axis), **axis),
    "argumentmax": lambda values, **axis: first_of(values, greatest(values, **axis), **axis),
}
"""Of values, with the arguments ``axis`` and ``keepdims=True``."""


def _dyadic(problem: ReduceProblem) -> bool:
    """Whether the factor of a sum is a multiple of 1/256 (a power of two, for a mean): integers then stay exact."""
    is_mean = problem.spec.operation == "mean"
    return problem.count & (problem.count - 1) == 0 if is_mean else (256 * problem.spec.weight).is_integer()


def forward_bound(problem: ReduceForward, x: Array) -> ErrorBound:
    """Extrema: nothing is rounded. Sums and means: sum of |terms|, and m = number of terms + 4."""
    if problem.spec.operation not in ("sum", "mean"):
        return selected(problem)[0]
    magnitude = forward(problem, np.abs(x)) * np.sign(problem.spec.weight)
    return ErrorBound.of_terms(magnitude, np.float64(problem.count + 4), _dyadic(problem) & (magnitude <= 2.0**16))


@operation(Reduce, problem=ReduceForward, bound=forward_bound)
def forward(problem: ReduceForward, x: Array) -> Array:
    """The reduction of the part that is read."""
    spec = problem.spec
    axes = AXES[spec.over]
    axis = axes[0] if len(axes) == 1 else axes
    return np.asarray(FORMULAS[spec.operation](problem.part(x), axis=axis, keepdims=True) * spec.weight)


def gradient_bound(problem: ReduceGradient, g: Array) -> ErrorBound:
    """|g| / (H W), and m = 5: a factor and its product."""
    return ErrorBound.of_terms(gradient(problem, np.abs(g)), np.float64(5), _dyadic(problem))


@operation(Reduce, problem=ReduceGradient, bound=gradient_bound)
def gradient(problem: ReduceGradient, g: Array) -> Array:
    """dx = g / (H W) where the mean was taken."""
    dx = np.zeros(problem.source_shape, g.dtype)
    problem.part(dx)[...] = g / problem.count
    return dx
