"""Arithmetic nodes and their gradients. Source: ``MPSNNGraphNodes.h`` [doc]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from mpsref import registry
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import flag, integer, number
from mpsref.errors import UnsupportedError
from mpsref.kernels import Arithmetic, Compare
from mpsref.kernels.arithmetic import ArithmeticForward, ArithmeticGradient, Name
from mpsref.kernels.posing import posed
from mpsref.mps.arithmetic import MPSNNComparisonType
from mpsref.mps.core.properties import Property, fix
from mpsref.mps.core.types import MPSOffset, member, offset
from mpsref.mps.graph.nodes import (
    Bound,
    BoundState,
    Call,
    MPSNNBinaryGradientStateNode,
    MPSNNFilterNode,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
    MPSNNStateNode,
    Step,
)
from mpsref.registry import Operation, OperationKey, Spec


class MPSNNArithmeticGradientStateNode(MPSNNBinaryGradientStateNode):
    """The state of an arithmetic node."""


def _scale(default: float, doc: str) -> Property[float]:
    return Property(number, default, doc)


def _stride(doc: str) -> Property[int]:
    return Property(_zero_or_one, 1, doc)


def _zero_or_one(name: str, value: Any) -> int:
    stride = integer(name, value, low=0)
    if stride > 1:
        raise ValueError(f"{name} is {stride}; it must be 0, to repeat one element, or 1")
    return stride


def _bound(name: str, value: Any) -> float:
    """Check a bound of the result; an infinity is none."""
    return value if isinstance(value, float) and math.isinf(value) else number(name, value)


class _Scaled:
    """Scales, bias and clamp."""

    primary_scale = _scale(1.0, "The factor of the primary source.")
    secondary_scale = _scale(1.0, "The factor of the secondary source.")
    bias = _scale(0.0, "What is added.")
    minimum_value = Property(_bound, -math.inf, "The least value of the result.")
    maximum_value = Property(_bound, math.inf, "The largest value of the result.")
    secondary_stride_in_pixels_x = _stride("0 repeats one column of the secondary source.")
    secondary_stride_in_pixels_y = _stride("0 repeats one row of the secondary source.")
    secondary_stride_in_feature_channels = _stride("0 repeats one channel of the secondary source.")

    @property
    def _bounds(self) -> dict[str, Any]:
        return {"minimum_value": self.minimum_value, "maximum_value": self.maximum_value}


class MPSNNBinaryArithmeticNode(_Scaled, MPSNNFilterNode):
    """Base of the arithmetic nodes: ``(left, right)``, or a list of both."""

    state_class: ClassVar[type[MPSNNStateNode] | None] = MPSNNArithmeticGradientStateNode
    operation: ClassVar[Name] = "add"
    _abstract = True
    spec_class: ClassVar[type[Spec] | None] = Arithmetic
    gradient_class: ClassVar[type[MPSNNArithmeticGradientNode] | None] = None
    _inserted = False  # whether a training graph made it, to add up gradients

    primary_stride_in_pixels_x = _stride("0 repeats one column of the primary source.")
    primary_stride_in_pixels_y = _stride("0 repeats one row of the primary source.")
    primary_stride_in_feature_channels = _stride("0 repeats one channel of the primary source.")
    primary_offset = Property(offset, MPSOffset(0, 0, 0), "The first pixel of the primary source that is read.")
    secondary_offset = Property(offset, MPSOffset(0, 0, 0), "The first pixel of the secondary source that is read.")
    primary_source_feature_channel_offset = Property(integer, 0, "The first channel that is read, >= 0.")
    secondary_source_feature_channel_offset = Property(integer, 0, "The first channel that is read, >= 0.")

    def __init__(
        self,
        left: MPSNNImageNode | Sequence[MPSNNImageNode],
        right: MPSNNImageNode | None = None,
        **properties: Any,
    ) -> None:
        """Make a node; every property can be given by keyword, or set later."""
        sources: list[Any] | tuple[Any, ...]
        sources = [left, right] if right is not None else left if isinstance(left, (list, tuple)) else [left]
        if len(sources) != 2:
            raise ValueError(f"{type(self).__name__} has {len(sources)} sources; it must have 2: left and right")
        super().__init__(sources, **properties)
        self._spec()  # errors belong here

    def _spec(self) -> Arithmetic:
        values: dict[str, Any] = {}
        for side in ("primary", "secondary"):
            pixel, name = getattr(self, f"{side}_offset"), f"{side}_source_feature_channel_offset"
            values[f"{side}_scale"] = getattr(self, f"{side}_scale")
            values[f"{side}_offset"] = pixel.y, pixel.x, getattr(self, name)
            values[f"{side}_strides"] = (
                getattr(self, f"{side}_stride_in_pixels_y"),
                getattr(self, f"{side}_stride_in_pixels_x"),
                getattr(self, f"{side}_stride_in_feature_channels"),
            )
        return Arithmetic(self.operation, bias=self.bias, **self._bounds, **values)

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        spec = self._spec()
        x, y = shapes
        return Bound(spec, ArithmeticForward(spec, x, y).shape)  # type: ignore[arg-type]  # as_shape checks them

    def _compute(self, call: Call, *images: Array) -> Array:
        if call.trains and call.spec.clamps:
            call.state["sources"] = images
        spec: Arithmetic = call.spec
        return spec.forward(*images, backend=call.backend)

    _differentiable: ClassVar[Sequence[int]] = (0, 1)

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        second = source_index == 1
        p, q = self.primary_scale, self.secondary_scale
        own = p if self.operation == "multiply" or not second else -q if self.operation == "subtract" else q
        seen = "primary" if second == (self.operation == "multiply") else "secondary"  # of source_image
        strides = {
            name: getattr(self, name.replace("secondary", seen))
            for name in vars(_Scaled)
            if name.startswith("secondary_stride")
        }
        image = self.source_images[1 - source_index if self.operation == "multiply" else source_index]
        assert self.gradient_class is not None
        return self.gradient_class(
            source_gradient, image, self._state, second, primary_scale=own, secondary_scale=q, **strides
        )


class MPSNNArithmeticGradientNode(_Scaled, MPSNNGradientFilterNode):
    """Base of the arithmetic gradient nodes, each for one operand: the primary or the secondary one."""

    _abstract = True

    is_secondary_source_filter = Property(flag, False, "Which operand it is the gradient of.", read_only=True)

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        is_secondary_source_filter: bool,
        **properties: Any,
    ) -> None:
        """Make a node; a product's ``source_image`` is the other operand, otherwise it is the operand itself."""
        fix(self, is_secondary_source_filter=is_secondary_source_filter)
        if isinstance(self, MPSNNSubtractionGradientNode) and is_secondary_source_filter:
            properties.setdefault("primary_scale", -1.0)
        index = int(self.is_secondary_source_filter)
        super().__init__(source_gradient, source_image, gradient_state, source_index=index, **properties)

    def _operations(self, step: Step) -> Sequence[OperationKey]:
        last = [] if self._is_plain else [Operation(Arithmetic, "forward")]
        return [*super()._operations(step), *last]

    @property
    def _is_plain(self) -> bool:
        """Whether nothing is added to the gradient, and no bound cuts it."""
        return (self.bias, self.minimum_value, self.maximum_value) == (0.0, -math.inf, math.inf)

    def _compute(self, call: Call, *images: Array) -> Array:
        g, *others = images
        shapes: Any = call.forward_shapes
        spec, wanted = self._derivative(call.spec), "secondary" if self.is_secondary_source_filter else "primary"
        problem = posed(ArithmeticGradient, spec, shapes[0], shapes[1], wanted)
        operands = [call.state["sources"][k] for k in problem.reads] if call.spec.clamps else others
        result = registry.run_one(problem, g, *operands, backend=call.backend)
        if self._is_plain:
            return result
        last = Arithmetic("add", secondary_scale=0.0, bias=self.bias, **self._bounds)
        return last.forward(result, np.zeros_like(result), backend=call.backend)

    def _derivative(self, spec: Arithmetic) -> Arithmetic:
        """Return the function whose gradient has the scales of this node: usually that of the forward pass."""
        second = self.is_secondary_source_filter
        p, q = spec.primary_scale, spec.secondary_scale
        if spec.operation == "multiply":
            if self.primary_scale * self.secondary_scale == p * q:
                return spec
            changed = replace(spec, primary_scale=self.primary_scale, secondary_scale=self.secondary_scale)
        else:
            sign = -1.0 if spec.operation == "subtract" and second else 1.0
            if self.primary_scale == (sign * q if second else p):
                return spec
            own = sign * self.primary_scale
            changed = replace(spec, secondary_scale=own) if second else replace(spec, primary_scale=own)
        if spec.clamps:
            raise UnsupportedError(
                f"{self.name}: the forward node clamps its result, so the scales of its gradient must be those of its "
                "derivative; take the node that gradient_filters_with_source makes"
            )
        return changed


class MPSNNAdditionGradientNode(MPSNNArithmeticGradientNode):
    """The gradient of a sum for one operand."""

    reads_pixels = False


class MPSNNSubtractionGradientNode(MPSNNArithmeticGradientNode):
    """The gradient of a difference for one operand."""

    reads_pixels = False


class MPSNNMultiplicationGradientNode(MPSNNArithmeticGradientNode):
    """The gradient of a product for one operand; it reads the other."""

    def _image_shape(self, state: BoundState) -> Shape:
        return state.source_shapes[1 - self.source_index]


class MPSNNAdditionNode(MPSNNBinaryArithmeticNode):
    """The sum of two images."""

    kind = "add"
    operation = "add"
    gradient_class = MPSNNAdditionGradientNode


class MPSNNSubtractionNode(MPSNNBinaryArithmeticNode):
    """The difference of two images."""

    kind = "sub"
    operation = "subtract"
    gradient_class = MPSNNSubtractionGradientNode


class MPSNNMultiplicationNode(MPSNNBinaryArithmeticNode):
    """The product of two images."""

    kind = "mul"
    operation = "multiply"
    gradient_class = MPSNNMultiplicationGradientNode


class MPSNNDivisionNode(MPSNNBinaryArithmeticNode):
    """The quotient of two images; MPS has no gradient of it."""

    kind = "div"
    operation = "divide"
    state_class = None
    _differentiable = ()


class MPSNNComparisonNode(MPSNNBinaryArithmeticNode):
    """1 where a comparison of two images holds, 0 elsewhere; scales, bias and bounds have no effect [doc]."""

    kind = "cmp"
    spec_class = Compare
    state_class = None
    _differentiable = ()
    comparison_type: Property[Any] = Property(
        lambda name, value: member(name, value, MPSNNComparisonType), MPSNNComparisonType.Equal, "Which comparison."
    )
    threshold = Property(number, 0.0, "How far apart values may be that count as equal.")

    def _spec(self) -> Any:
        common = super()._spec()
        names = ("primary_strides", "secondary_strides", "primary_offset", "secondary_offset")
        placed = {name: getattr(common, name) for name in names}
        return Compare(self.comparison_type.name.lower(), self.threshold, **placed)

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        spec = self._spec()
        return Bound(spec, spec.problems["forward"](spec, *shapes).result_shapes[0])

    def _compute(self, call: Call, *images: Array) -> Array:
        return call.spec.forward(*images, backend=call.backend)  # type: ignore[no-any-return]
