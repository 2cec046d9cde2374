"""Arithmetic of two images with Apple's names: add, subtract, multiply, divide, compare.

>>> import numpy as np
>>> image, gates = np.ones((1, 2, 2, 3), np.float32), np.array([1, 2, 3], np.float32).reshape(1, 1, 1, 3)
>>> scale = MPSCNNMultiply(secondary_stride_in_pixels_x=0, secondary_stride_in_pixels_y=0)
>>> y, state = scale.encode(image, gates, return_state=True)
>>> y[0, 1, 1].tolist()
[1.0, 2.0, 3.0]

The result is as large as the operands that walk along; ``padding`` decides nothing. Offsets, strides of 0 and channel
offsets apply to each operand; other parts of images are not supported.

Source: ``MPSCNNMath.h`` [doc]; sizes, channel offsets that are no multiple of 4 [choice].
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import integer, number
from mpsref.kernels import Arithmetic, Compare
from mpsref.kernels.arithmetic import Name
from mpsref.kernels.broadcasting import Broadcasting
from mpsref.kernels.compare import COMPARISONS
from mpsref.mps.core import types
from mpsref.mps.core.clip_regions import Region, count
from mpsref.mps.core.image_arguments import ImageArgument
from mpsref.mps.core.kernel import MPSCNNBinaryKernel, saved
from mpsref.mps.core.properties import Property, at_least, fix
from mpsref.mps.core.state import ForwardRecord, MPSNNBinaryGradientState
from mpsref.mps.core.types import MPSOffset
from mpsref.mps.core.whole_image import DESTINATION, require_defaults, require_whole, whole
from mpsref.registry import Backend

__all__ = [
    "ClampMask",
    "MPSCNNAdd",
    "MPSCNNArithmetic",
    "MPSCNNArithmeticGradientState",
    "MPSCNNDivide",
    "MPSCNNMultiply",
    "MPSCNNSubtract",
    "MPSNNCompare",
    "MPSNNComparisonType",
]


class MPSNNComparisonType(types.Enumeration):
    """How :class:`MPSNNCompare` compares. Source: ``MPSCNNMath.h`` [doc]."""

    Equal = 0
    NotEqual = 1
    Less = 2
    LessOrEqual = 3
    Greater = 4
    GreaterOrEqual = 5


def stride(name: str, value: Any) -> int:
    """Check a stride: 1 walks along an axis, 0 repeats one element."""
    step = integer(name, value, low=0)
    if step > 1:
        raise ValueError(f"{name} is {step}; it must be 1, or 0 to repeat one element")
    return step


def forward_offset(name: str, value: Any) -> MPSOffset:
    """Check the offset of an operand: x and y >= 0, and z = 0."""
    offset = types.offset(name, value)
    for axis, length in zip("xy", offset, strict=False):
        integer(f"{name}.{axis}", length, low=0)
    if offset.z:
        raise ValueError(f"{name}.z is {offset.z}; it must be 0: all images of a batch take part")
    return offset


class Bound(Property[float]):
    """One end of a clamp, which may be infinite and must not pass the other."""

    def accepted(self, instance: Any, value: Any) -> float:
        """Check that the lower bound stays below the upper one."""
        bound = float(value) if value in (math.inf, -math.inf) else number(self.name, value)
        ends = {name: vars(instance).get(name) for name in ("minimum_value", "maximum_value")} | {self.name: bound}
        low, high = ends["minimum_value"], ends["maximum_value"]
        if low is not None and high is not None and low > high:
            raise ValueError(f"{self.name} is {bound}; minimum_value {low} must be <= maximum_value {high}")
        return bound


class ClampMask:
    """Where a clamp let a result through: 1.0 inside the bounds, 0.0 on and outside them; read-only."""

    def __init__(self, array: Array) -> None:
        """Keep the array."""
        array.flags.writeable = False
        self.array = array

    def __eq__(self, other: object) -> bool:
        return np.array_equal(self.array, other.array) if isinstance(other, ClampMask) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


class MPSCNNArithmeticGradientState(MPSNNBinaryGradientState):
    """What an arithmetic kernel leaves for its gradients: sizes, strides, offsets, and the mask of the clamp."""

    __slots__ = ()

    @property
    def mask(self) -> Array | None:
        """1 where a result lay strictly inside the bounds, else 0, in the shape of the result; ``None``: no clamp."""
        mask: ClampMask | None = self.record.extras["mask"]
        return None if mask is None else mask.array

    @property
    def function(self) -> Broadcasting:
        """The functional form of the forward kernel."""
        function: Broadcasting = self.record.extras["function"]
        return function


FIXED = (
    *DESTINATION,
    *(
        prefix + name
        for prefix in ("primary_", "secondary_")
        for name in ("edge_mode", "source_feature_channel_max_count")
    ),
)
"""The properties that must keep their defaults."""


class MPSCNNArithmetic(MPSCNNBinaryKernel):
    """Base class of the kernels on two images; every property can be given by keyword, or set later."""

    state_class = MPSCNNArithmeticGradientState

    primary_scale = Property(number, 1.0, "What the primary image is multiplied by.")
    secondary_scale = Property(number, 1.0, "What the secondary image is multiplied by.")
    bias = Property(number, 0.0, "What is added.")
    minimum_value = Bound(number, -math.inf, "The smallest result.")
    maximum_value = Bound(number, math.inf, "The largest result.")
    primary_offset = Property(forward_offset, MPSOffset(0, 0, 0), "The first primary pixel, MPSOffset; x, y >= 0.")
    secondary_offset = Property(forward_offset, MPSOffset(0, 0, 0), "The first secondary pixel, MPSOffset; x, y >= 0.")
    primary_source_feature_channel_offset = Property(at_least(0), 0, "The first primary channel that is read.")
    secondary_source_feature_channel_offset = Property(at_least(0), 0, "The first secondary channel that is read.")
    primary_stride_in_pixels_x = Property(stride, 1, "0 repeats one primary column.")
    primary_stride_in_pixels_y = Property(stride, 1, "0 repeats one primary row.")
    primary_stride_in_feature_channels = Property(stride, 1, "0 repeats one primary channel.")
    secondary_stride_in_pixels_x = Property(stride, 1, "0 repeats one secondary column.")
    secondary_stride_in_pixels_y = Property(stride, 1, "0 repeats one secondary row.")
    secondary_stride_in_feature_channels = Property(stride, 1, "0 repeats one secondary channel.")

    @abc.abstractmethod
    def _function(self) -> Broadcasting:
        """Return the functional form."""

    def _operands(self) -> dict[str, tuple[int, int, int]]:
        """Return the strides and offsets as the functional form takes them: (y, x, channel)."""
        found = {}
        for one in ("primary", "secondary"):
            strides = f"{one}_stride_in_pixels_y", f"{one}_stride_in_pixels_x", f"{one}_stride_in_feature_channels"
            y, x, channel = (vars(self)[name] for name in strides)
            offset = vars(self)[f"{one}_offset"]
            found[f"{one}_strides"] = y, x, channel
            found[f"{one}_offset"] = offset.y, offset.x, vars(self)[f"{one}_source_feature_channel_offset"]
        return found

    def _result_shape(self, sources: Sequence[ImageArgument]) -> Shape:
        return self._function().result_shape(sources[0].array.shape, sources[1].array.shape)

    def _place(self, sources: Sequence[ImageArgument]) -> tuple[Shape, Any]:
        return self._result_shape(sources), sources[0].array.dtype.newbyteorder("=")

    def _destination_shape(self, sources: Sequence[ImageArgument], size: Any) -> Shape:
        n, *_, channels = self._result_shape(sources)
        return n, *size, channels

    def _run(
        self, sources: Sequence[ImageArgument], given: ImageArgument | None, shape: Shape, dtype: Any
    ) -> tuple[Array, Region]:
        require_defaults(self, *FIXED)
        require_whole(self, self.destination_name, whole(shape), self._result_shape(sources))
        return super()._run(sources, given, shape, dtype)

    def _channels_written(self, read: Sequence[slice]) -> int:
        left = [count(channels) for channels in read]
        walks = self.primary_stride_in_feature_channels, self.secondary_stride_in_feature_channels
        return max((length for length, walk in zip(left, walks, strict=True) if walk), default=1)

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        """The channels before the offsets have been cut off already."""
        function: Any = self._function()
        behind = {name: (*getattr(function, name)[:2], 0) for name in ("primary_offset", "secondary_offset")}
        replace(function, **behind).forward(*parts, out=destination[region], backend=self.backend)

    def _extras(self) -> Mapping[str, Any]:
        return {"function": self._function(), "mask": None}

    def _record(self, sources: Sequence[ImageArgument], shape: Shape, region: Region) -> ForwardRecord:
        record, function = super()._record(sources, shape, region), self._function()
        if not isinstance(function, Arithmetic) or not function.clamps:
            return record
        x, y = (source.array for source in sources)
        wide = np.result_type(x, y, np.float32)
        free = replace(function, minimum_value=-math.inf, maximum_value=math.inf)
        r = free.forward(x.astype(wide), y.astype(wide), backend=self.backend)
        mask = (wide.type(function.minimum_value) < r) & (r < wide.type(function.maximum_value))
        return replace(record, extras={**record.extras, "mask": ClampMask(mask.astype(np.float32))})


@functools.lru_cache(maxsize=1024)
def _arithmetic(operation: Name, *options: tuple[str, Any]) -> Arithmetic:
    return Arithmetic(operation, **dict(options))


class _FourOperations(MPSCNNArithmetic):
    operation: Name

    def _function(self) -> Arithmetic:
        names = "primary_scale", "secondary_scale", "bias", "minimum_value", "maximum_value"
        numbers = {name: vars(self)[name] for name in names}
        return _arithmetic(self.operation, *(numbers | self._operands()).items())


@saved()
class MPSCNNAdd(_FourOperations):
    """``clamp((primary_scale x + secondary_scale y) + bias)``: :class:`mpsref.Arithmetic`."""

    operation = "add"


@saved()
class MPSCNNSubtract(_FourOperations):
    """``clamp((primary_scale x - secondary_scale y) + bias)``."""

    operation = "subtract"


@saved()
class MPSCNNMultiply(_FourOperations):
    """``clamp((primary_scale x) (secondary_scale y) + bias)``."""

    operation = "multiply"


@saved()
class MPSCNNDivide(_FourOperations):
    """``clamp((primary_scale x) / (secondary_scale y) + bias)``; MPS has no gradient for it."""

    operation = "divide"


def _threshold(name: str, value: Any) -> float:
    return math.inf if value == math.inf else number(name, value, low=0)


@saved()
class MPSNNCompare(MPSCNNArithmetic):
    """1 where a comparison holds, else 0: :class:`mpsref.Compare`. Scales, bias and clamp are not used [doc].

    ``threshold`` >= 0 counts for ``Equal`` and ``NotEqual``. MPS has no gradient for it.
    """

    comparison_type = Property(
        lambda name, value: types.member(name, value, MPSNNComparisonType),
        MPSNNComparisonType.Equal,
        "How x and y are compared, MPSNNComparisonType.",
    )
    threshold = Property(_threshold, 0.0, "How far apart equal numbers may be.")

    def __init__(
        self,
        comparison_type: Any = MPSNNComparisonType.Equal,
        threshold: float = 0.0,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel; ``ValueError`` for a threshold that is negative or NaN."""
        fix(self, comparison_type=comparison_type, threshold=threshold)
        super().__init__(backend=backend, **properties)

    def _function(self) -> Compare:
        return Compare(COMPARISONS[self.comparison_type], self.threshold, **self._operands())
