"""Padding: rows, columns and channels around an image, filled by one of five rules; and its gradient.

Forward   ``out[i] = x[map(i - before)]`` on each of the three axes, or the fill value where the map has no value
Gradient  ``dx[j] = sum over i with map(i - before) = j of g[i]``

============== ================================================================================================
zero           0 outside the image
constant       ``fill_value`` outside, or ``fill_values[c]`` for channel c of the result
clamp          ``clip(k, 0, L - 1)``
mirror         about the centre of the edge pixel: ``t = k mod 2(L-1)``, ``t`` if ``t < L`` else ``2(L-1) - t``
mirrorwithedge about the edge's border: ``t = k mod 2L``, ``t`` if ``t < L`` else ``2L - 1 - t``
============== ================================================================================================

All axes have the same rule, channels included.

Source: MPSNNPad and MPSNNPadGradient in ``MPSNNReshape.h`` [doc]; mirroring more than once [math].
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from mpsref import codecs
from mpsref.arguments.arrays import AXIS_LIMIT, Array, ImageShape
from mpsref.arguments.parameters import Triple, number
from mpsref.arguments.text import shown
from mpsref.codecs import parameter
from mpsref.errors import ShapeError
from mpsref.kernels.movement import Gather, Readers, index, readers
from mpsref.kernels.one_image import ReadsShape
from mpsref.kernels.reference import ErrorBound, selected
from mpsref.operations import ImageProblem, cached_in_problem, operation, shape_only

Edge: TypeAlias = Literal["zero", "clamp", "mirror", "mirrorwithedge", "constant"]

EDGES: tuple[Edge, ...] = get_args(Edge)
"""In the order of MPSImageEdgeMode."""


def _fill_values(name: str, values: object) -> tuple[float, ...]:
    if not isinstance(values, (tuple, list)) and not (isinstance(values, np.ndarray) and values.ndim == 1):
        raise TypeError(f"{name} is {shown(values)}; it must be a tuple with a number for each channel, or None")
    if len(values) > AXIS_LIMIT:
        raise ValueError(f"{name} has {len(values)} numbers; an image has at most {AXIS_LIMIT} channels")
    return tuple(number(f"{name}[{c}]", value) for c, value in enumerate(values))


class Pad(ReadsShape):
    """Elements around an image: (N, H, W, C) to (N, H', W', C'), each longer by ``before`` and ``after``.

    Parameters
    ----------
    before, after : tuple of int
        Elements (y, x, channel) before and after the image, >= 0.
    edge_mode : {"zero", "clamp", "mirror", "mirrorwithedge", "constant"}
        How they are filled.
    fill_value : float
        What "constant" fills with.
    fill_values : sequence of float, optional
        A number for each channel of the result, in place of ``fill_value``.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(3, dtype=np.float32).reshape(1, 1, 3, 1)
    >>> Pad((0, 2, 0), (0, 3, 0), "clamp").forward(x).ravel().tolist()
    [0.0, 0.0, 0.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    >>> Pad((0, 4, 0), (0, 1, 0), "mirror").forward(x).ravel().tolist()
    [0.0, 1.0, 2.0, 1.0, 0.0, 1.0, 2.0, 1.0]
    """

    before: Triple = parameter(codecs.triple("before", low=0), default=(0, 0, 0))
    after: Triple = parameter(codecs.triple("after", low=0), default=(0, 0, 0))
    edge_mode: Edge = parameter(codecs.word(*EDGES), default="zero")
    fill_value: float = parameter(codecs.number("fill"), default=0.0)
    fill_values: tuple[float, ...] | None = parameter(
        codecs.numbers("fills")._replace(convert=_fill_values), default=None
    )

    def fills(self, channels: int) -> Array:
        """Return the values outside the image, one for each channel of the result, float64."""
        if self.edge_mode == "constant" and self.fill_values is not None:
            return np.array(self.fill_values[:channels])
        return np.full(channels, self.fill_value if self.edge_mode == "constant" else 0.0)


class PadProblem(ImageProblem):
    """A call of padding: the shape of the image without it."""

    spec: Pad

    def _check(self) -> None:
        fills = self.spec.fill_values
        if fills is not None and len(fills) < self.padded_shape[3]:
            raise ShapeError(
                f"fill_values has {len(fills)} numbers; the padded image has {self.padded_shape[3]} channels and needs "
                "one for each"
            )

    @property
    def padded_shape(self) -> ImageShape:
        """The shape with the padding."""
        n, *lengths = self.source_shape
        height, width, channels = (
            a + length + b for a, length, b in zip(self.spec.before, lengths, self.spec.after, strict=True)
        )
        return n, height, width, channels

    @cached_in_problem
    def gather(self) -> Gather:
        """Return what each element of the padded image reads of the image, -1 where it is filled."""
        y, x, c = (
            index(_mapped(self.spec.edge_mode, np.arange(padded) - before, length), length)
            for before, padded, length in zip(
                self.spec.before, self.padded_shape[1:], self.source_shape[1:], strict=True
            )
        )
        return y, x, c


def _mapped(edge_mode: Edge, k: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """Return the vector of ``map(k)``; indices outside the image stay where they are in modes that fill."""
    if edge_mode == "clamp":
        return np.asarray(np.clip(k, 0, length - 1))
    if edge_mode == "mirror":
        t = k % max(1, 2 * (length - 1))
        return np.where(t < length, t, 2 * (length - 1) - t)
    if edge_mode == "mirrorwithedge":
        t = k % (2 * length)
        return np.where(t < length, t, 2 * length - 1 - t)
    return k


class PadForward(PadProblem, method="forward", inputs={"x": "n h w c"}, results={"y": "padded_shape"}):
    """``forward`` of padding."""

    def fills(self, dtype: np.dtype[Any]) -> Array:
        """Return the fill value of each channel of the result, rounded to the dtype of the image."""
        return self.spec.fills(self.padded_shape[3]).astype(dtype)


class PadGradient(
    PadProblem, method="gradient", inputs={"g": "padded_shape", "x": shape_only()}, results={"dx": "n h w c"}
):
    """``gradient`` of padding."""

    @cached_in_problem
    def readers(self) -> tuple[Readers, Readers, Readers]:
        """Return, for y, x and channel, the elements of the padded image that are copies of each element."""
        y, x, c = (readers(read, length) for read, length in zip(self.gather(), self.source_shape[1:], strict=True))
        return y, x, c


def mapped(edge_mode: Edge, k: int, length: int) -> int | None:
    """Return the element that position ``k`` of an axis reads, or ``None`` where it is filled."""
    if 0 <= k < length:
        return k
    if edge_mode in ("zero", "constant"):
        return None
    if edge_mode == "clamp" or length == 1:
        return 0 if k < 0 else length - 1
    step = 1 if edge_mode == "mirrorwithedge" else 0  # of the reflection at -1/2, or at 0
    while not 0 <= k < length:
        k = -step - k if k < 0 else 2 * (length - 1) + step - k
    return k


@cached_in_problem
def _copies(problem: PadProblem) -> list[tuple[int, Array, Array]]:
    """Return for each axis its padded length, and i and map(i - before) of the elements that are read of the image."""
    found = []
    for before, padded, length in zip(
        problem.spec.before, problem.padded_shape[1:], problem.source_shape[1:], strict=True
    ):
        i = np.arange(padded)
        j = i - before
        for k in (*range(before), *range(before + length, padded)):
            read = mapped(problem.spec.edge_mode, k - before, length)
            j[k] = -1 if read is None else read
        found.append((padded, i[j >= 0], j[j >= 0]))
    return found


@operation(Pad, problem=PadForward, bound=selected)
def forward(problem: PadForward, x: Array) -> Array:
    """out[i] = x[map(i - before)] on one axis after the other; positions outside on any axis are filled."""
    outside = np.zeros((1, 1, 1, 1), bool)
    for axis, (padded, i, j) in enumerate(_copies(problem), start=1):
        wider = np.zeros((*x.shape[:axis], padded, *x.shape[axis + 1 :]), x.dtype)
        np.moveaxis(wider, axis, 0)[i] = np.moveaxis(x, axis, 0)[j]
        x = wider
        nowhere = np.isin(np.arange(padded), i, invert=True)
        outside = outside | nowhere.reshape([-1 if k == axis else 1 for k in range(4)])
    return np.where(outside, problem.spec.fills(x.shape[3]), x)


def gradient_bound(problem: PadGradient, g: Array) -> ErrorBound:
    """Sum of |g| over the copies of each element, and m = number of copies + 4."""
    magnitude = gradient(problem, np.abs(g))
    y, x, c = (np.diff(table.start) for table in problem.readers())
    count = np.multiply.outer(np.multiply.outer(y, x), c)[None]
    return ErrorBound.of_terms(magnitude, count + 4, magnitude <= 2.0**24)


@operation(Pad, problem=PadGradient, bound=gradient_bound)
def gradient(problem: PadGradient, g: Array) -> Array:
    """dx[map(i - before)] += g[i] on one axis after the other: the adjoint of the forward pass."""
    for axis, (_, i, j) in enumerate(_copies(problem), start=1):
        narrower = np.zeros((*g.shape[:axis], problem.source_shape[axis], *g.shape[axis + 1 :]), g.dtype)
        np.add.at(np.moveaxis(narrower, axis, 0), j, np.moveaxis(g, axis, 0)[i])
        g = narrower
    return g
