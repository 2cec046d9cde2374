"""Arithmetic of two images with Apple's names: add, subtract, multiply, divide, compare; gradients and nodes.

>>> import numpy as np
>>> image, gates = np.ones((1, 2, 2, 3), np.float32), np.array([1, 2, 3], np.float32).reshape(1, 1, 1, 3)
>>> scale = MPSCNNMultiply(secondary_stride_in_pixels_x=0, secondary_stride_in_pixels_y=0)
>>> y, state = scale.encode(image, gates, return_state=True)
>>> y[0, 1, 1].tolist()
[1.0, 2.0, 3.0]

There is one gradient kernel for each operand:

>>> x, y = (np.array(row, np.float32).reshape(1, 2, 2, 1) for row in ([0, 1, 2, 3], [4, 5, 6, 7]))
>>> multiply = MPSCNNMultiply()
>>> r, state = multiply.encode(x, y, return_state=True)
>>> g = np.array([-6, -4, 8, 2], np.float32).reshape(r.shape)
>>> MPSCNNMultiplyGradient.from_forward(multiply, False).encode(g, y, state).ravel().tolist()
[-24.0, -20.0, 48.0, 14.0]
>>> MPSCNNMultiplyGradient.from_forward(multiply, True).encode(g, x, state).ravel().astype(int).tolist()
[0, -4, 16, 6]

The result has the size of the operands with stride 1; ``padding`` decides nothing. Offsets, strides of 0 and channel
offsets apply to each operand; other regions of images are not supported.

Source: ``MPSCNNMath.h``, ``MPSNNGraphNodes.h`` [doc]; sizes, channel offsets that are no multiple of 4, the mask of the
clamp in gradients, and gradients without a state [choice arithmetic-mask].
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from mpsref import registry
from mpsref.arguments.arrays import Array, Shape, as_shape, filled
from mpsref.arguments.parameters import Pair, flag, integer, number, real
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.kernels import Arithmetic, Compare
from mpsref.kernels.arithmetic import ArithmeticGradient, Name, Wanted
from mpsref.kernels.broadcasting import Broadcasting, Operand
from mpsref.kernels.compare import COMPARISONS
from mpsref.mps.core import types
from mpsref.mps.core.call import Computation
from mpsref.mps.core.image_arguments import ImageArgument
from mpsref.mps.core.image_kernels import MPSCNNBinaryKernel
from mpsref.mps.core.properties import Alias, Argument, Property, at_least, constructed, set_read_only
from mpsref.mps.core.state import ForwardRecord, MPSNNBinaryGradientState
from mpsref.mps.core.types import MPSOffset
from mpsref.mps.core.whole_image import DESTINATION, WholeImage, WholeImageGradient
from mpsref.mps.graph.nodes import (
    ForwardKernelNode,
    MPSNNBinaryGradientStateNode,
    MPSNNFilterNode,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
    MPSNNStateNode,
    Step,
    StepCall,
    image_node,
)
from mpsref.registry import Backend, Spec


class MPSNNComparisonType(types.Enumeration):
    """How :class:`MPSNNCompare` compares. Source: ``MPSCNNMath.h`` [doc]."""

    Equal = 0
    NotEqual = 1
    Less = 2
    LessOrEqual = 3
    Greater = 4
    GreaterOrEqual = 5


def stride(name: str, value: object) -> int:
    """Check a stride: 1, or 0 to repeat one element."""
    step = integer(name, value, low=0)
    if step > 1:
        raise ValueError(f"{name} is {step}; it must be 1, or 0 to repeat one element")
    return step


def forward_offset(name: str, value: object) -> MPSOffset:
    """Check the offset of an operand: x and y >= 0, and z = 0."""
    offset = types.offset(name, value)
    for axis, length in zip("xy", offset, strict=False):
        integer(f"{name}.{axis}", length, low=0)
    if offset.z:
        raise ValueError(f"{name}.z is {offset.z}; it must be 0: all images of a batch take part")
    return offset


class ClampBound(Property[float]):
    """One bound of a clamp, which may be infinite."""

    def accepted(self, instance: object, value: object) -> float:
        """Check a number or an infinity; ``ValueError`` if the lower bound is above the upper one."""
        bound = real(self.name, value)
        ends = {name: vars(instance).get(name) for name in ("minimum_value", "maximum_value")} | {self.name: bound}
        low, high = ends["minimum_value"], ends["maximum_value"]
        if low is not None and high is not None and low > high:
            raise ValueError(f"{self.name} is {bound}; minimum_value {low} must be <= maximum_value {high}")
        return bound


SIDES = "primary", "secondary"
STRIDES = "stride_in_pixels_y", "stride_in_pixels_x", "stride_in_feature_channels"


@constructed(init=False, kw_only=True)
class _Scaled:
    """Scales, bias, clamp and the strides of the secondary image: properties of kernels and nodes."""

    primary_scale: Property[float] = Property(number, 1.0, "The factor of the primary image.")
    secondary_scale: Property[float] = Property(number, 1.0, "The factor of the secondary image.")
    bias: Property[float] = Property(number, 0.0, "The number that is added.")
    minimum_value: ClampBound = ClampBound(number, -math.inf, "The smallest result.")
    maximum_value: ClampBound = ClampBound(number, math.inf, "The largest result.")
    secondary_stride_in_pixels_x: Property[int] = Property(stride, 1, "0 repeats one secondary column.")
    secondary_stride_in_pixels_y: Property[int] = Property(stride, 1, "0 repeats one secondary row.")
    secondary_stride_in_feature_channels: Property[int] = Property(stride, 1, "0 repeats one secondary channel.")

    @property
    def _finishes(self) -> bool:
        """Whether a bias is added or the result is clamped."""
        return (self.bias, self.minimum_value, self.maximum_value) != (0.0, -math.inf, math.inf)

    def _derivative(self, product: bool, own: int, operands: Sequence[Operand]) -> Arithmetic:
        """Return the function whose gradient for operand ``own`` has these scales."""
        p, q = self.primary_scale, self.secondary_scale
        first, second = operands
        return _arithmetic(
            "multiply" if product else "add",
            *((q, p) if product and own else (p, q if product else p)),
            primary_strides=first.strides,
            secondary_strides=second.strides,
            primary_offset=first.offset,
            secondary_offset=second.offset,
        )

    def _with_bias(self, gradient: Array, backend: str | Backend | None) -> Array:
        """Return a gradient with the bias, clamped."""
        if not self._finishes:
            return gradient
        low, high = self.minimum_value, self.maximum_value
        last = _arithmetic("add", 1.0, 0.0, self.bias, minimum_value=low, maximum_value=high)
        return last.forward(gradient, filled(0, gradient), backend=backend)


def scale_of_gradient(of: _Scaled | Arithmetic, operation: Name, secondary: bool) -> float:
    """Return the factor of g in the gradient for one operand; a product also has the factor of the other one."""
    if operation == "multiply" or not secondary:
        return of.primary_scale
    return -of.secondary_scale if operation == "subtract" else of.secondary_scale


class _Operands(_Scaled):
    """In addition, strides and offsets of both images."""

    primary_offset = Property(forward_offset, MPSOffset(0, 0, 0), "The first primary pixel, MPSOffset; x, y >= 0.")
    secondary_offset = Property(forward_offset, MPSOffset(0, 0, 0), "The first secondary pixel, MPSOffset; x, y >= 0.")
    primary_source_feature_channel_offset = Property(at_least(0), 0, "The first primary channel that is read.")
    secondary_source_feature_channel_offset = Property(at_least(0), 0, "The first secondary channel that is read.")
    primary_stride_in_pixels_x = Property(stride, 1, "0 repeats one primary column.")
    primary_stride_in_pixels_y = Property(stride, 1, "0 repeats one primary row.")
    primary_stride_in_feature_channels = Property(stride, 1, "0 repeats one primary channel.")

    def _operands(self) -> dict[str, tuple[int, int, int]]:
        """Return the strides and offsets of the functional form: (y, x, channel)."""
        found: dict[str, tuple[int, int, int]] = {}
        for side, read in _READERS.items():
            *strides, offset, channel = read(vars(self))
            found |= {f"{side}_strides": tuple(strides), f"{side}_offset": (offset.y, offset.x, channel)}
        return found

    def _of_derivative(self, operation: Name, secondary: bool) -> dict[str, Any]:
        """Return scales and strides of the gradient for one operand; the secondary ones are those of its image."""
        product = operation == "multiply"
        read = "secondary" if secondary != product else "primary"
        scales = {"primary_scale": scale_of_gradient(self, operation, secondary)}
        scales |= {"secondary_scale": self.secondary_scale} if product else {}
        return scales | {f"secondary_{name}": getattr(self, f"{read}_{name}") for name in STRIDES}


_READERS = {
    side: operator.itemgetter(*(f"{side}_{name}" for name in (*STRIDES, "offset", "source_feature_channel_offset")))
    for side in SIDES
}
_arithmetic = functools.lru_cache(maxsize=1024)(Arithmetic)


class _FourOperations(_Operands):
    operation: ClassVar[Name]

    def _function(self) -> Arithmetic:
        names = "primary_scale", "secondary_scale", "bias", "minimum_value", "maximum_value"
        numbers = {name: vars(self)[name] for name in names}
        return _arithmetic(self.operation, **numbers, **self._operands())


def _threshold(name: str, value: object) -> float:
    return math.inf if value == math.inf else number(name, value, low=0)


@constructed(init=False)
class _Comparison(_Operands):
    comparison_type: Argument[MPSNNComparisonType | int | str] = Argument(
        functools.partial(types.member, kind=MPSNNComparisonType),
        "How x and y are compared, MPSNNComparisonType.",
        default=MPSNNComparisonType.Equal,
        read_only=False,
    )
    threshold: Argument[float] = Argument(
        _threshold, "The largest distance of equal numbers, >= 0.", default=0.0, read_only=False
    )

    def _function(self) -> Compare:
        kind = self.comparison_type
        assert isinstance(kind, MPSNNComparisonType)  # since it was checked
        return Compare(COMPARISONS[kind], self.threshold, **self._operands())


# --- forward kernels --------------------------------------------------------------------------------------------------


class ClampMask:
    """The mask of a clamp: 1.0 inside the bounds, 0.0 on and outside them; read-only."""

    def __init__(self, array: Array) -> None:
        """Keep the array."""
        array.flags.writeable = False
        self.array = array

    def __eq__(self, other: object) -> bool:
        return np.array_equal(self.array, other.array) if isinstance(other, ClampMask) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, images: slice) -> ClampMask:
        return ClampMask(self.array[images])


class MPSCNNArithmeticGradientState(MPSNNBinaryGradientState):
    """The state of an arithmetic kernel: sizes, strides, offsets, and the mask of the clamp."""

    __slots__ = ()

    @property
    def mask(self) -> Array | None:
        """1 where a result is strictly inside the bounds, else 0, in the shape of the result; ``None``: no clamp."""
        mask: ClampMask | None = self.record.extras["mask"]
        return None if mask is None else mask.array

    function: Alias[Broadcasting] = Alias(
        "record.extras", "The functional form of the forward kernel.", operator.itemgetter("function")
    )


class MPSCNNArithmetic(_Operands, WholeImage, MPSCNNBinaryKernel):
    """Base class of the kernels on two images; every property can be given by keyword, or set later."""

    state_class = MPSCNNArithmeticGradientState
    recorded, _mask = ("_function", "_mask"), None
    fixed = (
        *DESTINATION,
        *(f"{side}_{name}" for side in SIDES for name in ("edge_mode", "source_feature_channel_max_count")),
    )

    def _completed(self, record: ForwardRecord, sources: Sequence[ImageArgument], *operands: Any) -> ForwardRecord:
        function = self._function()
        if not isinstance(function, Arithmetic) or not function.clamps:
            return record
        x, y = (source.array for source in sources)
        wide = np.result_type(x, y, np.float32)
        free = replace(function, minimum_value=-math.inf, maximum_value=math.inf)
        r = free.forward(x.astype(wide), y.astype(wide), backend=self.backend)
        mask = (wide.type(function.minimum_value) < r) & (r < wide.type(function.maximum_value))
        return replace(record, extras={**record.extras, "mask": ClampMask(mask.astype(np.float32))})


class MPSCNNAdd(_FourOperations, MPSCNNArithmetic):
    """``clamp((primary_scale x + secondary_scale y) + bias)``: :class:`mpsref.Arithmetic`."""

    operation = "add"


class MPSCNNSubtract(_FourOperations, MPSCNNArithmetic):
    """``clamp((primary_scale x - secondary_scale y) + bias)``."""

    operation = "subtract"


class MPSCNNMultiply(_FourOperations, MPSCNNArithmetic):
    """``clamp((primary_scale x) (secondary_scale y) + bias)``."""

    operation = "multiply"


class MPSCNNDivide(_FourOperations, MPSCNNArithmetic):
    """``clamp((primary_scale x) / (secondary_scale y) + bias)``; MPS has no gradient for it."""

    operation = "divide"


@constructed()
class MPSNNCompare(_Comparison, MPSCNNArithmetic):
    """1 where a comparison holds, else 0: :class:`mpsref.Compare`. Scales, bias and clamp are not used [doc].

    MPS has no gradient for it.
    """


# --- gradient kernels -------------------------------------------------------------------------------------------------


@constructed()
class MPSCNNArithmeticGradient(_Scaled, WholeImageGradient):
    """Base class of the gradients for one operand, ``clamp(R(P g m [Q B(source_image)]) + bias)``.

    ``source_image`` is the operand whose gradient is computed, or for a multiplication the other one. The secondary
    strides are the forward strides of that image. A ``gradient_state`` sets them, and has the mask m and the offsets.
    Without a state there is no mask and no offset, and the gradient of a product has the size of g. The derivative has
    a ``bias`` of 0.
    """

    state_class = MPSCNNArithmeticGradientState  # type: ignore[assignment]  # a state of two sources
    operation: ClassVar[Literal["add", "multiply"]]

    is_secondary_source_filter: Argument[bool] = Argument(
        flag, "Whether it is the gradient for the secondary operand.", default=False
    )

    def _set_arguments(self, **values: Any) -> None:
        if not hasattr(type(self), "operation"):
            raise TypeError(f"{type(self).__name__} is a base class; use the gradient of an operation")
        super()._set_arguments(**values)

    @classmethod
    def from_forward(cls, kernel: MPSCNNArithmetic, is_secondary_source_filter: bool) -> Self:
        """Return the gradient of a forward kernel for one operand, with the scales and strides of the derivative.

        Parameters
        ----------
        kernel : MPSCNNArithmetic
            The forward kernel.
        is_secondary_source_filter : bool
            Whether it is the gradient for the secondary operand.

        Raises
        ------
        TypeError
            For a kernel of another operation.
        """
        if not isinstance(kernel, cls.forward_class) or not isinstance(kernel, _FourOperations):
            raise TypeError(
                f"kernel is of type {type(kernel).__name__}; {cls.__name__} is the gradient of "
                f"{cls.forward_class.__name__}"
            )
        secondary = flag("is_secondary_source_filter", is_secondary_source_filter)
        return cls(secondary, **kernel._of_derivative(kernel.operation, secondary), backend=kernel.backend)

    @property
    def _passed(self) -> int:
        """The number of the operand that is the source image."""
        own = int(self.is_secondary_source_filter)
        return 1 - own if self.operation == "multiply" else own

    def _configuration(self, state: Any, g: Shape, x: Shape) -> Mapping[str, object]:
        """Return the strides of the source image."""
        expected = state.record.source_shapes[self._passed]
        if x != expected:
            raise ShapeError(f"source_image has shape {x}; that of the forward pass was {expected}")
        strides = state.function.operands[self._passed].strides
        return {f"secondary_{name}": step for name, step in zip(STRIDES, strides, strict=True)}

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        g, source = shapes
        own, state = int(self.is_secondary_source_filter), self._state
        operands, both = [Operand((1, 1, 1), (0, 0, 0))] * 2, [g, g]
        if state is None:
            strides = (getattr(self, f"secondary_{name}") for name in STRIDES)
            operands[self._passed], both[self._passed] = operands[self._passed]._replace(strides=tuple(strides)), source
        else:
            operands, both = list(state.function.operands), list(state.record.source_shapes)
        function = self._derivative(self.operation == "multiply", own, operands)
        wanted: Wanted = "secondary" if own else "primary"
        x_shape, y_shape = (as_shape("shape", shape) for shape in both)
        mask, finishes = None if state is None else state.mask, self._finishes
        problem = ArithmeticGradient(function, x_shape, y_shape, wanted)
        if mask is None and not finishes:
            return Computation(problem)

        def masked(images: Sequence[Array], backend: str | Backend | None) -> Array:
            """Apply the mask to g, compute the gradient, then add the bias and clamp, in float32 at least."""
            g, *others = images[: len(problem.input_shapes)]
            if mask is not None:
                g = np.where(mask, g, g.dtype.type(0))
            wide = np.result_type(g, np.float32) if finishes else g.dtype
            return self._with_bias(
                registry.run_one(problem, g.astype(wide, copy=False), *others, backend=backend), backend
            )

        return Computation(problem, compute=masked)


class MPSCNNAddGradient(MPSCNNArithmeticGradient):
    """``R(P g m)``; only the size of ``source_image``, the operand, is read."""

    operation = "add"
    forward_class = MPSCNNAdd


class _ScaleOfDifference(Property[float]):
    def initial(self, instance: object) -> float:
        """Return -1 for the secondary operand."""
        return -self.default if vars(instance)["is_secondary_source_filter"] else self.default


class MPSCNNSubtractGradient(MPSCNNArithmeticGradient):
    """``R(P g m)``, with a ``primary_scale`` of -1 by default for the secondary operand."""

    operation = "add"
    forward_class = MPSCNNSubtract
    primary_scale = _ScaleOfDifference(number, 1.0, "The factor of the source gradient.")


class MPSCNNMultiplyGradient(MPSCNNArithmeticGradient):
    """``R(P g m Q B(source_image))``; ``source_image`` is the other operand."""

    operation = "multiply"
    forward_class = MPSCNNMultiply


# --- nodes ------------------------------------------------------------------------------------------------------------


class MPSNNArithmeticGradientStateNode(MPSNNBinaryGradientStateNode):
    """The state of an arithmetic node."""


class MPSNNBinaryArithmeticNode(_Operands, ForwardKernelNode):
    """Base class of the arithmetic nodes."""

    state_class: ClassVar[type[MPSNNStateNode] | None] = MPSNNArithmeticGradientStateNode
    _abstract = True
    _differentiable: ClassVar[Sequence[int]] = (0, 1)
    spec_class: ClassVar[type[Spec] | None] = Arithmetic

    def __init__(
        self,
        left_source: MPSNNImageNode | Sequence[MPSNNImageNode],
        right_source: MPSNNImageNode | None = None,
        **properties: Any,
    ) -> None:
        if right_source is not None:
            sources: Sequence[MPSNNImageNode] = image_node("left_source", left_source), right_source
        else:
            sources = left_source if isinstance(left_source, Sequence) else [left_source]
        if len(sources) != 2:
            raise ValueError(
                f"{type(self).__name__} has {len(sources)} sources; it must have 2: left_source and right_source"
            )
        MPSNNFilterNode.__init__(self, sources, **properties)
        self._kernel()._function()  # raises for illegal parameters

    def _compute(self, step: StepCall, *images: Array) -> Array | None:
        if self.state_class is not None and step.call.spec.clamps:
            step.state["sources"] = images  # for the mask of the clamp
        return super()._compute(step, *images)

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        second, operation = source_index == 1, self.kernel_class.operation
        image = self.source_images[1 - source_index if operation == "multiply" else source_index]
        gradient: Any = self.gradient_class
        made: MPSNNGradientFilterNode = gradient(
            source_gradient, image, self._state, second, **self._of_derivative(operation, second)
        )
        return made


class MPSNNArithmeticGradientNode(_Scaled, MPSNNGradientFilterNode):
    """Base class of the arithmetic gradient nodes, each for one operand.

    ``source_image`` is the operand whose gradient is computed; for a product it is the other operand.
    """

    _abstract = True

    is_secondary_source_filter = MPSCNNArithmeticGradient.is_secondary_source_filter.replace()

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        is_secondary_source_filter: bool,
        **properties: Any,
    ) -> None:
        set_read_only(self, is_secondary_source_filter=is_secondary_source_filter)
        index = int(self.is_secondary_source_filter)
        super().__init__(source_gradient, source_image, gradient_state, source_index=index, **properties)
        self._image_index = 1 - index if self._reads_other else index

    _reads_other: ClassVar[bool] = False
    """Whether the source image is the other operand."""

    def _methods(self, step: Step) -> Sequence[str]:
        return [*self._called, *["forward"] * self._finishes]

    def _compute(self, step: StepCall, *images: Array) -> Array:
        g, *others = images
        spec, own = step.call.spec, int(self.is_secondary_source_filter)
        # the shape suffices for an operand that is not read
        operands: list[Array | Shape] = [*step.call.record.source_shapes]
        if spec.clamps:
            self._check_scales(spec)
            operands = [*step.state["sources"]]
        else:
            spec = self._derivative(spec.operation == "multiply", own, spec.operands)
            if others:
                operands[1 - own] = others[0]
        wanted = "secondary" if own else "primary"
        result = registry.call(spec, "gradient", (g, *operands), backend=step.backend, wanted=wanted)
        return self._with_bias(result, step.backend)

    def _check_scales(self, spec: Arithmetic) -> None:
        """Raise ``UnsupportedError`` unless the scales are those of the derivative of a function with a clamp."""
        own, expected = self.primary_scale, scale_of_gradient(spec, spec.operation, self.is_secondary_source_filter)
        if spec.operation == "multiply":
            own, expected = own * self.secondary_scale, expected * spec.secondary_scale
        if own != expected:
            raise UnsupportedError(
                f"{self.name}: the forward node clamps its result, so the scales of its gradient must be those of its "
                "derivative; take the node that gradient_filters_with_source makes"
            )


class MPSNNAdditionGradientNode(MPSNNArithmeticGradientNode):
    """The gradient of a sum for one operand."""

    reads_pixels = False


class MPSNNSubtractionGradientNode(MPSNNArithmeticGradientNode):
    """The gradient of a difference for one operand."""

    reads_pixels = False
    primary_scale = MPSCNNSubtractGradient.primary_scale


class MPSNNMultiplicationGradientNode(MPSNNArithmeticGradientNode):
    """The gradient of a product for one operand; it reads the other one."""

    _reads_other = True


class MPSNNAdditionNode(MPSNNBinaryArithmeticNode):
    """The sum of two images."""

    kind, kernel_class, gradient_class = "add", MPSCNNAdd, MPSNNAdditionGradientNode


class MPSNNSubtractionNode(MPSNNBinaryArithmeticNode):
    """The difference of two images."""

    kind, kernel_class, gradient_class = "sub", MPSCNNSubtract, MPSNNSubtractionGradientNode


class MPSNNMultiplicationNode(MPSNNBinaryArithmeticNode):
    """The product of two images."""

    kind, kernel_class, gradient_class = "mul", MPSCNNMultiply, MPSNNMultiplicationGradientNode


class MPSNNDivisionNode(MPSNNBinaryArithmeticNode):
    """The quotient of two images; MPS has no gradient of it."""

    kind, kernel_class, state_class = "div", MPSCNNDivide, None
    _differentiable = ()


class MPSNNComparisonNode(_Comparison, MPSNNBinaryArithmeticNode):
    """1 where a comparison of two images holds, 0 elsewhere; scales, bias and bounds have no effect [doc]."""

    kind, kernel_class, spec_class, state_class = "cmp", MPSNNCompare, Compare, None
    _differentiable = ()
