"""The gradients of addition, subtraction and multiplication with Apple's names: one kernel for each operand.

>>> import numpy as np
>>> from mpsref import mps
>>> x, y = (np.array(row, np.float32).reshape(1, 2, 2, 1) for row in ([0, 1, 2, 3], [4, 5, 6, 7]))
>>> multiply = mps.MPSCNNMultiply()
>>> r, state = multiply.encode(x, y, return_state=True)
>>> g = np.array([-6, -4, 8, 2], np.float32).reshape(r.shape)
>>> mps.MPSCNNMultiplyGradient.from_forward(multiply, False).encode(g, y, state).ravel().tolist()
[-24.0, -20.0, 48.0, 14.0]
>>> mps.MPSCNNMultiplyGradient.from_forward(multiply, True).encode(g, x, state).ravel().astype(int).tolist()
[0, -4, 16, 6]

Source: ``MPSCNNMath.h`` [doc]; that the mask of the clamp counts, and what is done without a state [choice].
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, NoReturn, Self

import numpy as np

from mpsref import registry
from mpsref.arguments.arrays import Array, Shape, as_shape
from mpsref.arguments.parameters import flag, number
from mpsref.errors import ShapeError
from mpsref.kernels import Arithmetic
from mpsref.kernels.arithmetic import ArithmeticGradient, Wanted
from mpsref.kernels.broadcasting import Triple
from mpsref.mps.arithmetic import (
    Bound,
    MPSCNNAdd,
    MPSCNNArithmetic,
    MPSCNNArithmeticGradientState,
    MPSCNNMultiply,
    MPSCNNSubtract,
    stride,
)
from mpsref.mps.core.kernel import ImageKernel, saved
from mpsref.mps.core.properties import Property, fix
from mpsref.mps.core.whole_image import WholeImageGradient
from mpsref.registry import Backend, Problem

__all__ = [
    "MPSCNNAddGradient",
    "MPSCNNArithmeticGradient",
    "MPSCNNMultiplyGradient",
    "MPSCNNSubtractGradient",
]

WALK: Triple = (1, 1, 1)
START: Triple = (0, 0, 0)


class MPSCNNArithmeticGradient(WholeImageGradient):
    """Base class of the gradients for one operand, ``clamp(R(P g m [Q B(source_image)]) + bias)``.

    ``source_image`` is the operand whose gradient is computed, or for a multiplication the other one. The secondary
    strides are the forward ones of that image; a ``gradient_state`` sets them, and brings the mask m and the offsets.
    Without a state there is no mask and no offset, and the gradient of a product is as large as g. A true gradient has
    a ``bias`` of 0.
    """

    state_class = MPSCNNArithmeticGradientState  # type: ignore[assignment]  # a state of two sources
    operation: ClassVar[Literal["add", "multiply"]]
    forward_class: ClassVar[type[ImageKernel]]

    is_secondary_source_filter = Property(flag, False, "Whether it is for the secondary operand.", read_only=True)
    primary_scale = Property(number, 1.0, "P, what the source gradient is multiplied by.")
    secondary_scale = Property(number, 1.0, "Q, what the source image of a multiplication is multiplied by.")
    bias = Property(number, 0.0, "What is added to every element of the result.")
    minimum_value = Bound(number, -math.inf, "The smallest result.")
    maximum_value = Bound(number, math.inf, "The largest result.")
    secondary_stride_in_pixels_x = Property(stride, 1, "The forward stride of source_image in x.")
    secondary_stride_in_pixels_y = Property(stride, 1, "The forward stride of source_image in y.")
    secondary_stride_in_feature_channels = Property(stride, 1, "The forward stride of source_image in channels.")

    def __init__(
        self, is_secondary_source_filter: bool = False, *, backend: str | Backend | None = None, **properties: Any
    ) -> None:
        """Make the gradient kernel of one operand; ``TypeError`` unless the argument is a bool."""
        fix(self, is_secondary_source_filter=is_secondary_source_filter)
        super().__init__(backend=backend, **properties)

    @classmethod
    def from_forward(cls, kernel: Any, is_secondary_source_filter: bool) -> Self:
        """Return the gradient of ``kernel`` for one of its operands, with the scales and strides of the derivative.

        Raises ``TypeError`` for a kernel of another operation.
        """
        if not isinstance(kernel, cls.forward_class) or not isinstance(kernel, MPSCNNArithmetic):
            raise TypeError(
                f"kernel is of type {type(kernel).__name__}; {cls.__name__} is the gradient of "
                f"{cls.forward_class.__name__}"
            )
        secondary = flag("is_secondary_source_filter", is_secondary_source_filter)
        p, q = kernel.primary_scale, kernel.secondary_scale
        scales = (p, q) if cls.operation == "multiply" else ((cls._sign() * q if secondary else p), 1.0)
        source = "secondary" if secondary != (cls.operation == "multiply") else "primary"
        strides = {
            f"secondary_{name}": getattr(kernel, f"{source}_{name}")
            for name in ("stride_in_pixels_x", "stride_in_pixels_y", "stride_in_feature_channels")
        }
        return cls(secondary, primary_scale=scales[0], secondary_scale=scales[1], **strides, backend=kernel.backend)

    @classmethod
    def _sign(cls) -> int:
        """Return the sign of the secondary operand in the forward kernel."""
        return 1

    def _problem(self, g: Shape, source: Shape, state: MPSCNNArithmeticGradientState | None) -> ArithmeticGradient:
        """Return what is to be computed; a state sets the strides of the source image."""
        own = int(self.is_secondary_source_filter)
        other = self.operation == "multiply"
        passed = 1 - own if other else own  # which operand the source image is
        strides, offsets, shapes = [WALK, WALK], [START, START], [g, g]
        if state is None:
            strides[passed] = (
                self.secondary_stride_in_pixels_y,
                self.secondary_stride_in_pixels_x,
                self.secondary_stride_in_feature_channels,
            )
            shapes[passed] = source
        else:
            strides, offsets = (list(column) for column in zip(*state.function.operands, strict=True))
            shapes = list(state.record.source_shapes)
            if source != shapes[passed]:
                raise ShapeError(f"source_image has shape {source}; that of the forward pass was {shapes[passed]}")
            y, x, channel = strides[passed]
            self._assign(
                secondary_stride_in_pixels_y=y,
                secondary_stride_in_pixels_x=x,
                secondary_stride_in_feature_channels=channel,
            )
        p, q = self.primary_scale, self.secondary_scale
        function = Arithmetic(
            self.operation,
            *((q, p) if own and other else (p, p) if not other else (p, q)),
            primary_strides=strides[0],
            secondary_strides=strides[1],
            primary_offset=offsets[0],
            secondary_offset=offsets[1],
        )
        wanted: Wanted = "secondary" if own else "primary"
        x_shape, y_shape = (as_shape("shape", shape) for shape in shapes)
        return ArithmeticGradient(function, x_shape, y_shape, wanted)

    def _function(self, g: Shape, state: Any) -> NoReturn:
        raise NotImplementedError("_problem names both operands")

    def _gradient(self, problem: Problem, g: Array, source: Array, state: Any) -> Array:
        """Return the result: a mask selects from g before, bias and clamp come last, in float32 at least."""
        if state is not None and state.mask is not None:
            g = np.where(state.mask, g, g.dtype.type(0))
        finish = self.bias != 0 or (self.minimum_value, self.maximum_value) != (-math.inf, math.inf)
        wide = np.result_type(g, np.float32) if finish else g.dtype
        inputs = (
            (g.astype(wide, copy=False), source) if len(problem.input_shapes) > 1 else (g.astype(wide, copy=False),)
        )
        result = registry.run_one(problem, *inputs, backend=self.backend)
        if finish:
            result = np.clip(result + wide.type(self.bias), self.minimum_value, self.maximum_value)
        with np.errstate(over="ignore"):
            return result.astype(g.dtype.newbyteorder("="), copy=False)


@saved("is_secondary_source_filter")
class MPSCNNAddGradient(MPSCNNArithmeticGradient):
    """``R(P g m)``; of ``source_image``, the operand, only the size counts."""

    operation = "add"
    forward_class = MPSCNNAdd


@saved("is_secondary_source_filter")
class MPSCNNSubtractGradient(MPSCNNArithmeticGradient):
    """``R(P g m)``, with a ``primary_scale`` of -1 by default for the secondary operand: nothing else negates."""

    operation = "add"
    forward_class = MPSCNNSubtract

    def __init__(
        self, is_secondary_source_filter: bool = False, *, backend: str | Backend | None = None, **properties: Any
    ) -> None:
        """Make the gradient kernel of one operand; errors as in :class:`MPSCNNArithmeticGradient`."""
        if flag("is_secondary_source_filter", is_secondary_source_filter):
            properties = {"primary_scale": -1.0} | properties
        super().__init__(is_secondary_source_filter, backend=backend, **properties)

    @classmethod
    def _sign(cls) -> int:
        return -1


@saved("is_secondary_source_filter")
class MPSCNNMultiplyGradient(MPSCNNArithmeticGradient):
    """``R(P g m Q B(source_image))``; ``source_image`` is the other operand."""

    operation = "multiply"
    forward_class = MPSCNNMultiply
