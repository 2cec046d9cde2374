"""A problem with windows in any position, as a problem without padding on a larger or smaller image.

Frameworks place windows by symmetric or named paddings; a kernel of mpsref places them by an offset and an output
size. :func:`with_explicit_padding` returns the image that holds exactly the taps of all windows, zeros or copies of
the edge pixels included. A framework computes on this image without padding; the adjoint of the copy brings a gradient
back:

>>> import numpy as np
>>> from mpsref import PoolingMax
>>> problem = PoolingMax.problems["forward"](PoolingMax((1, 2), offset=(0, 0)), (1, 1, 3, 1), (1, 4))
>>> image = with_explicit_padding(problem)
>>> x = np.array([-1.0, -2.0, -3.0]).reshape(1, 1, 3, 1)
>>> image.copy(x).ravel().tolist()
[0.0, -1.0, -2.0, -3.0, 0.0]
>>> image.adjoint(np.ones((1, 1, 5, 1))).ravel().tolist()
[1.0, 1.0, 1.0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair
from mpsref.errors import UnsupportedError
from mpsref.geometry import EdgeMode
from mpsref.kernels import ConvolutionTranspose
from mpsref.kernels.convolution import WeightedProblem
from mpsref.kernels.pooling import PoolingGradient
from mpsref.kernels.windows import Padding, Windows
from mpsref.operations import Problem

AnyProblem = TypeVar("AnyProblem", bound=Problem)
AnyPoolingGradient = TypeVar("AnyPoolingGradient", bound=PoolingGradient)

Indices: TypeAlias = npt.NDArray[np.int64]


class Sliding(NamedTuple):
    """The windows of a problem, forward or gradient, on both axes."""

    windows: Windows
    outputs: Pair
    """Number of windows (y, x)."""
    lengths: Pair
    """Size of the source image."""
    edge_mode: EdgeMode | Literal["lowest"]
    padding: Padding
    """That of frameworks."""

    @classmethod
    def of(cls, problem: Problem) -> Sliding:
        """Return the windows of a problem of pooling or convolution.

        Raises
        ------
        UnsupportedError
            If the kernel has no windows on the source image.
        ValueError
            For a pooling gradient that is not :func:`canonical`.
        """
        if isinstance(problem, PoolingGradient) and canonical(problem) != problem:
            raise ValueError(f"{problem} has offsets, sizes or a clip of its own; pass canonical(problem)")
        call: Any = problem
        if not hasattr(call.spec, "framework_padding"):
            raise UnsupportedError(f"{problem.operation} has no windows on its source; only pooling and convolution do")
        lengths, spec = call.source_shape[1:3], call.spec
        return cls(spec.windows, call.result_size, lengths, spec.edge_mode, spec.framework_padding)

    def outside(self) -> bool:
        """Return whether a tap of a window lies outside the image."""
        return any(
            window.start(0) < 0 or window.tap(count - 1, window.kernel - 1) >= length
            for window, count, length in zip(self.windows, self.outputs, self.lengths, strict=True)
        )


def canonical(problem: AnyPoolingGradient) -> AnyPoolingGradient | None:
    """Return the gradient problem without primary offset, source size, kernel offset and clip.

    The windows that count are renumbered from 0 by a larger offset; :func:`counted` returns their part of the source
    gradient, and ``problem.place`` moves the result to where kernel offset and clip put it.

    Parameters
    ----------
    problem : PoolingGradient
        A gradient problem of a pooling kernel.

    Returns
    -------
    PoolingGradient or None
        A problem on the same source image; ``None`` if no window counts, and the result is zero everywhere.

    Examples
    --------
    >>> from mpsref import PoolingAverage
    >>> spec = PoolingAverage((1, 2), strides=(1, 2), offset=(0, 1))
    >>> problem = spec.problems["gradient"](spec, (1, 1, 8, 1), (1, 5), primary_offset=(0, -1), source_size=(1, 3))
    >>> simple = canonical(problem)
    >>> simple.spec.offset, simple.gradient_size
    ((0, 3), (1, 2))
    """
    rows, columns = problem.included
    if not rows or not columns:
        return None
    (y, x) = (
        window.offset + window.stride * counts.start
        for window, counts in zip(problem.spec.windows, (rows, columns), strict=True)
    )
    return replace(
        problem,
        spec=replace(problem.spec, offset=(y, x)),
        gradient_size=(len(rows), len(columns)),
        primary_offset=(0, 0),
        source_size=None,
        kernel_offset=None,
        clip=None,
    )


def counted(problem: PoolingGradient, g: Array) -> Array:
    """Return the pixels of the source gradient that count, (N, h, w, C): a view, for the :func:`canonical` problem."""
    (py, px), (rows, columns) = problem.primary_offset, problem.included
    return g[:, py + rows.start : py + rows.stop, px + columns.start : px + columns.stop]


@dataclass(frozen=True, eq=False)
class Selection:
    """Rows and columns of an image: a copy of them, and its adjoint.

    Parameters
    ----------
    rows, columns : ndarray of int
        The row and column of the image that each one of the copy has; -1 for one that is filled.
    lengths : pair of int
        Height and width of the image.
    """

    rows: Indices
    columns: Indices
    lengths: Pair

    @property
    def size(self) -> Pair:
        """Height and width of the copy."""
        return len(self.rows), len(self.columns)

    @property
    def _axes(self) -> list[tuple[int, Indices, int]]:
        """Axis, indices and length of each axis that is not copied as it is."""
        axes = zip((1, 2), (self.rows, self.columns), self.lengths, strict=True)
        return [(k, i, n) for k, i, n in axes if not np.array_equal(i, np.arange(n))]

    def copy(self, image: Array, fill: Any = 0.0) -> Array:
        """Return the rows and columns of ``image`` (N, H, W, C), in its order in memory.

        Parameters
        ----------
        image : ndarray, shape (N, H, W, C)
            The image.
        fill : float or ndarray of shape (C,), optional
            What the rows and columns that are not of the image hold.
        """
        for axis, indices, _ in self._axes:
            order = sorted(range(4), key=lambda k: -abs(image.strides[k]))
            taken = np.take(image.transpose(order), np.maximum(indices, 0), order.index(axis))
            image = taken.transpose(np.argsort(order))
            np.moveaxis(image, axis, 0)[indices < 0] = fill
        return image

    def adjoint(self, gradient: Array) -> Array:
        """Return the gradient for the image from that for the copy; a pixel that was copied twice gets a sum.

        Parameters
        ----------
        gradient : ndarray, shape (N, h, w, C)
            The gradient for the copy.

        Returns
        -------
        ndarray, shape (N, H, W, C)
            float32, or float64 for a float64 gradient.
        """
        for axis, indices, length in self._axes:
            shape = (*gradient.shape[:axis], length, *gradient.shape[axis + 1 :])
            summed = np.zeros(shape, np.promote_types(gradient.dtype, np.float32))
            inside = indices >= 0
            np.add.at(np.moveaxis(summed, axis, 0), indices[inside], np.moveaxis(gradient, axis, 0)[inside])
            gradient = summed
        return gradient


def without_padding(problem: AnyProblem) -> AnyProblem:
    """Return the problem on the image of :func:`with_explicit_padding`: the same windows, none of which leaves it.

    Average pooling divides by the whole window there.

    Parameters
    ----------
    problem : Problem
        As for :func:`with_explicit_padding`.

    Returns
    -------
    Problem
        A problem that every framework has words for, with padding 0.
    """
    image, spec, sliding = with_explicit_padding(problem), problem.spec, Sliding.of(problem)
    changed: dict[str, Any] = {"offset": tuple(window.center for window in sliding.windows), "edge_mode": "zero"}
    if sliding.padding == "counted":
        changed["zero_pad_size"] = 0
    n, *_, c = problem.source_shape  # type: ignore[attr-defined]
    changes: dict[str, Any] = {"spec": replace(spec, **changed), "source_shape": (n, *image.size, c)}
    return replace(problem, **changes)


def _selection(first: Sequence[int], sizes: Sequence[int], lengths: Pair, edge_mode: EdgeMode = "zero") -> Selection:
    rows, columns = (
        np.clip(found, 0, length - 1) if edge_mode == "clamp" else np.where((found >= 0) & (found < length), found, -1)
        for found, length in (
            (begin + np.arange(size), length) for begin, size, length in zip(first, sizes, lengths, strict=True)
        )
    )
    return Selection(rows, columns, lengths)


def with_explicit_padding(problem: Problem) -> Selection:
    """Return the image that holds the taps of all windows of a problem and nothing else.

    On this image the problem has no padding: window i begins at pixel ``stride * i``, and the last window ends with the
    image. Taps outside the source are zeros, or with edge mode "clamp" copies of the nearest pixel. For average pooling
    they are zeros in both modes: its framework call computes sums, which the caller divides by N with
    ``problem.reciprocals()``.

    Parameters
    ----------
    problem : Problem
        A problem of pooling or convolution; gradients of pooling as :func:`canonical` returns them.

    Returns
    -------
    Selection
        ``copy`` of the source is the image; ``adjoint`` brings its gradient back to the source.

    Raises
    ------
    UnsupportedError
        For max pooling of MPSGraph with taps outside the image.
    """
    sliding = Sliding.of(problem)
    if sliding.edge_mode == "lowest" and sliding.outside():
        raise UnsupportedError(
            "taps lie outside the image, where MPSGraph's max pooling reads nothing: no image has that"
        )
    edge_mode: EdgeMode = "clamp" if sliding.edge_mode == "clamp" and sliding.padding != "counted" else "zero"
    first = [window.start(0) for window in sliding.windows]
    sizes = [
        (count - 1) * window.stride + window.extent
        for window, count in zip(sliding.windows, sliding.outputs, strict=True)
    ]
    return _selection(first, sizes, sliding.lengths, edge_mode)


def unpadded(problem: WeightedProblem) -> Selection:
    """Return the result of a transposed convolution as part of the one without padding.

    Without padding and output padding a framework returns every pixel that a tap reaches, ``(L - 1) * s + K`` on each
    axis. ``copy`` cuts the result of mpsref out of it, with zeros where no tap reaches (a bias has to be the ``fill``);
    ``adjoint`` puts a source gradient into the place of the whole.

    Parameters
    ----------
    problem : WeightedProblem
        A problem of :class:`mpsref.ConvolutionTranspose`.

    Returns
    -------
    Selection
        The rows and columns of the whole.
    """
    spec = problem.spec
    if not isinstance(spec, ConvolutionTranspose):
        raise TypeError(f"problem is one of {type(spec).__name__}; it must be one of ConvolutionTranspose")
    strides: Any = spec.strides
    height, width = ((n - 1) * s + k for n, s, k in zip(problem.source_shape[1:3], strides, spec.size, strict=True))
    return _selection(transposed_padding(spec), problem.result_size, (height, width))


def transposed_padding(spec: ConvolutionTranspose) -> Pair:
    """Return how many rows and columns of the whole result come before the first; negative: zeros in front of it."""
    y, x = (e - k // 2 + k - 1 for e, k in zip(spec.effective_offsets, spec.size, strict=True))
    return y, x


def divided(problem: Problem, image: Array) -> Array:
    """Divide an image of windows of average pooling by N: sums of windows, or their gradient.

    Parameters
    ----------
    problem : Problem
        ``forward`` or canonical ``gradient`` of :class:`mpsref.PoolingAverage`.
    image : ndarray, shape (N, OH, OW, C)
        A value for each window.

    Returns
    -------
    ndarray
        0 where N is 0; float32, or float64 for a float64 image.
    """
    y, x = problem.reciprocals()  # type: ignore[attr-defined]
    factors = np.multiply.outer(y, x)[None, :, :, None]
    return np.asarray(image * factors.astype(np.promote_types(image.dtype, np.float32)))


def extended(image: Array, size: Shape) -> Array:
    """Return ``image`` (N, h, w, C) with zeros behind it, up to ``size``; the inverse of a crop, and its adjoint."""
    if image.shape[1:3] == tuple(size):
        return image
    result = np.zeros_like(image, shape=(image.shape[0], *size, image.shape[3]))
    result[:, : image.shape[1], : image.shape[2]] = image
    return result
