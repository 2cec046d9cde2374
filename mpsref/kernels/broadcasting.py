"""Two images of different sizes, element by element: strides of 0 and 1 in place of automatic broadcasting.

On each axis (y, x, channel) an operand with stride t and offset o gives ``operand[o + t * i]`` to result element i:
stride 1 walks along the axis, stride 0 repeats element o. The length of the result: with both strides
1, the common length that the operands have left after their offsets; with one stride 1, the length that this operand
has left; with both strides 0, 1.
A length of 1 is not repeated by itself, and images of the batch always pair up.

Source: the strides of MPSCNNBinaryKernel in ``MPSCNNKernel.h`` and ``MPSCNNMath.h`` [doc]; lengths [design
arithmetic-lengths].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from anymetal.fork_safe import cached_property
from mpsref import codecs
from mpsref.arguments.arrays import Array, ImageShape, Shape
from mpsref.arguments.parameters import Triple
from mpsref.backend import BackendLike
from mpsref.codecs import parameter
from mpsref.errors import ShapeError
from mpsref.operations import ImageProblem, Spec
from mpsref.registry import call

AXES = ("H", "W", "C")


class Operand(NamedTuple):
    """Strides and offset of one operand."""

    strides: Triple
    offset: Triple

    def left(self, shape: Shape) -> list[int]:
        """Return the number of elements of an operand of ``shape`` after the offset, for y, x and channel."""
        return [length - o for length, o in zip(shape[1:], self.offset, strict=True)]

    def part(self, image: Array) -> Array:
        """Return the elements of ``image`` that are read, in the length 1 where one is repeated."""
        index = (slice(o, None if t else o + 1) for t, o in zip(self.strides, self.offset, strict=True))
        return image[(slice(None), *index)]


class Broadcasting(Spec):
    """A spec with ``primary_strides``, ``primary_offset`` and the two of the secondary operand: (y, x, c) each."""

    @cached_property
    def operands(self) -> tuple[Operand, Operand]:
        """Strides and offsets of the primary and the secondary operand."""
        known = vars(self)
        primary, secondary = (
            Operand(known[f"{name}_strides"], known[f"{name}_offset"]) for name in ("primary", "secondary")
        )
        return primary, secondary

    def forward(self, x: ArrayLike, y: ArrayLike, *, out: Array | None = None, backend: BackendLike = None) -> Array:
        """Combine two images.

        Parameters
        ----------
        x, y : array_like, shape (N, H, W, C)
            The operands, of shapes that fit the strides and offsets.

        Returns
        -------
        ndarray
            Of the shape :meth:`result_shape` and the dtype of ``x``.
        """
        return call(self, "forward", (x, y), out=out, backend=backend)

    def result_shape(self, x: Shape, y: Shape) -> ImageShape:
        """Return the shape of the result for operands of the shapes ``x`` and ``y``; ``ShapeError`` if they do not fit.

        >>> from mpsref.kernels.arithmetic import Arithmetic
        >>> Arithmetic("add", secondary_strides=(0, 0, 1)).result_shape((2, 5, 4, 3), (2, 1, 1, 3))
        (2, 5, 4, 3)
        """
        kind = type(self).__name__
        if x[0] != y[0]:
            raise ShapeError(
                f"{kind}: x has {x[0]} and y {y[0]} images (axis N); both must have as many: a batch is never broadcast"
            )
        primary, secondary = self.operands
        lengths = []
        for axis, a, b, s, t in zip(
            AXES, primary.left(x), secondary.left(y), primary.strides, secondary.strides, strict=True
        ):
            for name, left, shape, one in (("primary", a, x, primary), ("secondary", b, y, secondary)):
                if left < 1:
                    raise ShapeError(
                        f"{kind}: {name}_offset is {one.offset} and the {name} operand has shape {tuple(shape)}; on "
                        f"axis {axis} the offset must be smaller than the length"
                    )
            if s and t and a != b:
                raise ShapeError(
                    f"{kind}: on axis {axis} x has {a} and y {b} elements behind their offsets; both must be equal "
                    "where both strides are 1: give the shorter one stride 0 to repeat one element"
                )
            lengths.append(a if s else b if t else 1)
        height, width, channels = lengths
        return x[0], height, width, channels


_nhwc = codecs.image_shape()
_SECONDARY = _nhwc._replace(
    example=f"y{_nhwc.example}", pattern=f"y{_nhwc.pattern}", write=lambda shape: f"y{_nhwc.write(shape)}"
)


class BroadcastProblem(ImageProblem):
    """A problem with a primary operand x, of ``source_shape``, and a secondary one y, by default of the same shape."""

    spec: Broadcasting
    secondary_shape: ImageShape = parameter(_SECONDARY, default=None)

    def _check(self) -> None:
        self._fill(secondary_shape=lambda: self.source_shape)
        _ = self.shape  # raises ShapeError for operands that do not fit

    @cached_property
    def shape(self) -> ImageShape:
        """The shape of the result of x and y, and of the gradient of that."""
        return self.spec.result_shape(self.source_shape, self.secondary_shape)

    def spread_one(self, k: int, image: Array) -> Array:
        """Return operand k, 0 for x and 1 for y, as a view of the result's shape."""
        return np.broadcast_to(self.spec.operands[k].part(image), self.shape)

    def spread(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return both operands as views of the result's shape."""
        return self.spread_one(0, x), self.spread_one(1, y)
