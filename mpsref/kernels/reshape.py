"""Reshape: the numbers of each image in the same order, as another height, width and number of channels.

Forward   ``y = x.reshape(N, H', W', C')`` of the C-ordered (N, H, W, C): channels fastest, then x, then y
Gradient  ``dx = g.reshape(N, H, W, C)``

So a reshape to one pixel followed by a 1 x 1 fully connected layer is a fully connected layer with a window of H x W,
whose weights are stored in this order. Apple documents no order; ``element_order="CHW"``, x fastest, then y, then
channels, is there for experiments.

Source: MPSNNReshape and MPSNNReshapeGradient in ``MPSNNReshape.h`` [doc]; the order of the elements [choice
reshape-order].
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

from mpsref import codecs
from mpsref.arguments.arrays import Array, ImageShape
from mpsref.arguments.parameters import Triple
from mpsref.codecs import parameter
from mpsref.errors import ShapeError
from mpsref.kernels.one_image import ReadsShape
from mpsref.kernels.reference import selected
from mpsref.operations import ImageProblem, operation, shape_only

ElementOrder: TypeAlias = Literal["HWC", "CHW"]

ORDERS: tuple[ElementOrder, ...] = get_args(ElementOrder)


class Reshape(ReadsShape):
    """Another size for the same elements: (N, H, W, C) to (N, height, width, channels).

    Parameters
    ----------
    size : tuple of int
        Size (height, width, channels) of the result, each >= 1.
    element_order : {"HWC", "CHW"}
        The order in which the elements of an image are read and written.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(1, 13, dtype=np.float32).reshape(1, 2, 3, 2)
    >>> Reshape((3, 1, 4)).forward(x)[0, :, 0].tolist()
    [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0]]
    """

    size: Triple = parameter(codecs.triple("size", low=1))
    element_order: ElementOrder = parameter(codecs.word(*ORDERS), default="HWC")


class ReshapeProblem(ImageProblem):
    """A call of a reshape: the shape before it."""

    spec: Reshape

    def _check(self) -> None:
        before, after = (math.prod(lengths) for lengths in (self.source_shape[1:], self.spec.size))
        if before != after:
            raise ShapeError(
                f"Reshape: an image of {self.source_shape[1:]} has {before} elements and size {self.spec.size} has "
                f"{after}; height * width * channels must stay the same"
            )

    @property
    def shape(self) -> ImageShape:
        """The shape after it."""
        return self.source_shape[0], *self.spec.size


class ReshapeForward(ReshapeProblem, method="forward", inputs={"x": "n h w c"}, results={"y": "shape"}):
    """``forward`` of a reshape."""


class ReshapeGradient(
    ReshapeProblem, method="gradient", inputs={"g": "shape", "x": shape_only()}, results={"dx": "n h w c"}
):
    """``gradient`` of a reshape."""


@operation(Reshape, problem=ReshapeGradient, bound=selected)
@operation(Reshape, problem=ReshapeForward, bound=selected)
def reshape(problem: ReshapeProblem, values: Array) -> Array:
    """The same elements in the same order; forward and gradient are one formula."""
    (shape,) = problem.result_shapes
    if problem.spec.element_order == "HWC":
        return values.reshape(shape)
    n, height, width, channels = shape
    return values.transpose(0, 3, 1, 2).reshape(n, channels, height, width).transpose(0, 2, 3, 1)
