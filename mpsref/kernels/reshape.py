"""Reshape: the numbers of each image in the same order, as another height, width and number of channels.

Forward   ``y = x.reshape(N, H', W', C')`` of the C-ordered (N, H, W, C): channels fastest, then x, then y
Gradient  ``dx = g.reshape(N, H, W, C)``

So a reshape to one pixel followed by a 1 x 1 fully connected layer is a fully connected layer with a window of H x W,
whose weights are stored in this order. Apple documents no order; ``element_order="CHW"``, x fastest, then y, then
channels, is there for experiments.

Source: MPSNNReshape and MPSNNReshapeGradient in ``MPSNNReshape.h`` [doc]; the order of the elements [choice].
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from mpsref import codecs, operations, registry
from mpsref.arguments.arrays import Array, ImageShape, Shape, as_image, as_shape, is_shape
from mpsref.arguments.parameters import Triple, choice, triple
from mpsref.errors import ShapeError
from mpsref.kernels.movement import bit_exact
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import Declaration, Formula, OperationKey

ElementOrder: TypeAlias = Literal["HWC", "CHW"]

ORDERS: tuple[ElementOrder, ...] = get_args(ElementOrder)


class ReshapeProblem(operations.ImageProblem):
    """A call of a reshape: the shape before it."""

    spec: Reshape

    def __post_init__(self) -> None:
        """Check that both shapes hold as many elements."""
        super().__post_init__()
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


class ReshapeForward(ReshapeProblem):
    """``forward`` of a reshape."""

    method: ClassVar[str] = "forward"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The image x."""
        return {"x": self.source_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image y."""
        return (self.shape,)


class ReshapeGradient(ReshapeProblem):
    """``gradient`` of a reshape."""

    method: ClassVar[str] = "gradient"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient g."""
        return {"g": self.shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image dx."""
        return (self.source_shape,)


class Reshape(operations.Spec):
    """Another ``size`` (height, width, channels) for the same elements.

    >>> import numpy as np
    >>> x = np.arange(1, 13, dtype=np.float32).reshape(1, 2, 3, 2)
    >>> Reshape((3, 1, 4)).forward(x)[0, :, 0].tolist()
    [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0]]
    """

    size: Triple = field(metadata={"codec": codecs.triple("size")})
    element_order: ElementOrder = field(default="HWC", metadata={"codec": codecs.word(*ORDERS)})

    problems: ClassVar = {"forward": ReshapeForward, "gradient": ReshapeGradient}

    def __post_init__(self) -> None:
        """Check both."""
        object.__setattr__(self, "size", triple("size", self.size, low=1))
        object.__setattr__(self, "element_order", choice("element_order", self.element_order, ORDERS))

    def forward(self, x: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return the image ``x`` (N, H, W, C) as (N, H', W', C'), in its dtype; ``ShapeError`` if it does not fit."""
        x = as_image("x", x)
        return registry.run_one(ReshapeForward(self, x.shape), x, out=out, backend=backend)

    def gradient(self, g: Any, x_or_shape: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return ``g`` in the shape of the source, which may be given by its shape; ``ShapeError`` if they differ."""
        g = as_image("g", g)
        given = x_or_shape if is_shape(x_or_shape) else as_image("x", x_or_shape).shape
        problem = ReshapeGradient(self, as_shape("x_or_shape", given))
        if g.shape != problem.shape:
            raise ShapeError(f"g has shape {g.shape}; the result of the forward pass had {problem.shape}")
        return registry.run_one(problem, g, out=out, backend=backend)


def reshape(problem: ReshapeProblem, values: Array) -> Array:
    """The same elements in the same order; forward and gradient are one formula."""
    (shape,) = problem.result_shapes
    if problem.spec.element_order == "HWC":
        return values.reshape(shape)
    n, height, width, channels = shape
    return values.transpose(0, 3, 1, 2).reshape(n, channels, height, width).transpose(0, 2, 3, 1)


def terms(problem: ReshapeProblem, values: Array) -> ErrorBound:
    """Nothing is rounded."""
    return bit_exact(reshape(problem, values))


SPECS = (Reshape,)
REFERENCE: dict[OperationKey, Formula] = {(Reshape, "forward"): reshape, (Reshape, "gradient"): reshape}
TERMS: dict[OperationKey, Formula] = {(Reshape, "forward"): terms, (Reshape, "gradient"): terms}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
