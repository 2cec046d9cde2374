"""Enumerations and descriptors of MPSGraph, and what its layouts and padding styles mean: one table for each.

Along an axis of L pixels, with kernel K, stride s, dilation d and ``E = (K - 1) d + 1``:

================ ============================================== ==================================
style            padding before, after                          windows
================ ============================================== ==================================
EXPLICIT         as given                                       ``floor((L + both - E) / s) + 1``
TF_VALID         0, 0                                           ``floor((L - E) / s) + 1``
TF_SAME          T // 2, T - T // 2, with T below               ``O = ceil(L / s)``
ONNX_SAME_LOWER  T - T // 2, T // 2                             ``O = ceil(L / s)``
================ ============================================== ==================================

``T = max((O - 1) s + E - L, 0)``. With another style than EXPLICIT the paddings of the descriptor are ignored [doc].
The ceil mode of pooling rounds ``/ s`` up, and leaves out a last window that begins behind the image and its padding
before [choice mpsgraph-ceil-mode].

In Apple's header the comments of the styles are shifted by one constant, "ONNX_SAME_LOWER" stands at TF_VALID; the
names and values are right. The header writes the extent of a dilated kernel as ``(d - 1) K + 1``, which is wrong.

Source: ``MPSGraphCore.h``, ``MPSGraphConvolutionOps.h``, ``MPSGraphPoolingOps.h``, ``MPSGraphResizeOps.h``,
``MPSGraphLossOps.h``; enumerations and the styles by name [doc], the formulas [math].
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar, dataclass_transform

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair, flag, integer
from mpsref.arguments.text import Suggesting, near, shown
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.geometry import Window, ceil_div

AnyEnum = TypeVar("AnyEnum", bound=IntEnum)
AnyClass = TypeVar("AnyClass", bound=type)


class PaddingStyle(IntEnum, metaclass=Suggesting):
    """MPSGraphPaddingStyle."""

    EXPLICIT = 0
    TF_VALID = 1
    TF_SAME = 2
    EXPLICIT_OFFSET = 3
    ONNX_SAME_LOWER = 4


class TensorNamedDataLayout(IntEnum, metaclass=Suggesting):
    """MPSGraphTensorNamedDataLayout: the axes of a tensor in order, of images or of weights."""

    NCHW = 0
    NHWC = 1
    OIHW = 2
    HWIO = 3
    CHW = 4
    HWC = 5
    HW = 6
    NCDHW = 7
    NDHWC = 8
    OIDHW = 9
    DHWIO = 10


class PoolingReturnIndicesMode(IntEnum, metaclass=Suggesting):
    """MPSGraphPoolingReturnIndicesMode: over how many innermost axes, or in the window, an index counts."""

    NONE = 0
    GLOBAL_FLATTEN_1D = 1
    GLOBAL_FLATTEN_2D = 2
    GLOBAL_FLATTEN_3D = 3
    GLOBAL_FLATTEN_4D = 4
    LOCAL_FLATTEN_1D = 5
    LOCAL_FLATTEN_2D = 6
    LOCAL_FLATTEN_3D = 7
    LOCAL_FLATTEN_4D = 8


class ResizeMode(IntEnum, metaclass=Suggesting):
    """MPSGraphResizeMode."""

    NEAREST = 0
    BILINEAR = 1


class ResizeNearestRoundingMode(IntEnum, metaclass=Suggesting):
    """MPSGraphResizeNearestRoundingMode: how the position of a result becomes that of a pixel."""

    ROUND_PREFER_CEIL = 0
    ROUND_PREFER_FLOOR = 1
    CEIL = 2
    FLOOR = 3
    ROUND_TO_EVEN = 4
    ROUND_TO_ODD = 5


class LossReductionType(IntEnum, metaclass=Suggesting):
    """MPSGraphLossReductionType; AXIS is Apple's other name of NONE."""

    NONE = 0
    AXIS = 0
    SUM = 1
    MEAN = 2


def member(name: str, value: object, kind: type[AnyEnum], legal: Collection[AnyEnum] = ()) -> AnyEnum:
    """Return a member of an enumeration, by itself, by its name in any case and with any underscores, or by its value.

    >>> member("padding_style", "tf_same", PaddingStyle), member("mode", "GlobalFlatten2D", PoolingReturnIndicesMode)
    (<PaddingStyle.TF_SAME: 2>, <PoolingReturnIndicesMode.GLOBAL_FLATTEN_2D: 2>)
    """
    found: AnyEnum | None = None
    if isinstance(value, str):
        word = value.replace("_", "").upper()
        found = next((one for key, one in kind.__members__.items() if key.replace("_", "") == word), None)
    elif type(value) is kind or (type(value) is not bool and not isinstance(value, Enum) and value in {*kind}):
        found = kind(value)  # type: ignore[arg-type]
    if found is None or (legal and found not in legal):
        words = ", ".join(f"{one.name} ({one.value})" for one in legal or kind)
        raise ValueError(f"{name} is {shown(value)}; it must be one of {words}, of {kind.__name__}")
    return found


Style: TypeAlias = PaddingStyle | str | int
Layout: TypeAlias = TensorNamedDataLayout | str | int
Indices: TypeAlias = PoolingReturnIndicesMode | str | int

# --- layouts ----------------------------------------------------------------------------------------------------------

IMAGES = (TensorNamedDataLayout.NHWC, TensorNamedDataLayout.NCHW)
WEIGHTS = (TensorNamedDataLayout.HWIO, TensorNamedDataLayout.OIHW)
RESIZED = (*IMAGES, TensorNamedDataLayout.CHW, TensorNamedDataLayout.HWC, TensorNamedDataLayout.HW)


def _axes(layout: Layout) -> str:
    return member("layout", layout, TensorNamedDataLayout).name


def arranged(name: str, array: Array, layout: Layout, wanted: str) -> Array:
    """Return a view of an array of a layout with its axes in another order; axes that the layout lacks have length 1.

    >>> arranged("source", np.zeros((3, 5, 7)), TensorNamedDataLayout.CHW, "NHWC").shape
    (1, 5, 7, 3)
    """
    axes = _axes(layout)
    if array.ndim != len(axes):
        raise ShapeError(f"{name} has shape {array.shape}; with the layout {axes} it must have rank {len(axes)}")
    moved = array.transpose([axes.index(axis) for axis in wanted if axis in axes])
    return np.expand_dims(moved, [k for k, axis in enumerate(wanted) if axis not in axes])


def given_back(array: Array, wanted: str, layout: Layout) -> Array:
    """Undo :func:`arranged`."""
    axes = _axes(layout)
    return array.squeeze(tuple(k for k, axis in enumerate(wanted) if axis not in axes)).transpose(
        np.argsort([axes.index(axis) for axis in wanted if axis in axes])
    )


def shape_in(name: str, shape: object, layout: Layout, wanted: str) -> Shape:
    """Return the lengths of a shape that a user gave for a layout, in another order.

    >>> shape_in("output_shape", (1, 8, 6, 5), TensorNamedDataLayout.NCHW, "NHWC")
    (1, 6, 5, 8)
    """
    axes = _axes(layout)
    if not isinstance(shape, (tuple, list, np.ndarray)) or len(shape) != len(axes):
        raise ShapeError(f"{name} is {shown(shape)}; with the layout {axes} it must be {len(axes)} integers")
    lengths = [integer(f"{name}[{k}]", length, low=0) for k, length in enumerate(shape)]
    return tuple(lengths[axes.index(axis)] for axis in wanted)


# --- descriptors ------------------------------------------------------------------------------------------------------

OF_PYTORCH = {
    "count_include_pad": "include_zero_pad_to_average",
    "kernel_size": "kernel_width and kernel_height",
    "stride": "stride_in_x and stride_in_y",
    "padding": "padding_left, padding_right, padding_top, padding_bottom and padding_style",
    "dilation": "dilation_rate_in_x and dilation_rate_in_y",
    "return_indices": "return_indices_mode, of max_pooling_2d_return_indices",
}
"""The properties that words of PyTorch stand for."""

STYLES = tuple(style for style in PaddingStyle if style is not PaddingStyle.EXPLICIT_OFFSET)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def descriptor(kind: AnyClass) -> AnyClass:
    """Make a class a frozen descriptor, with keywords alone, whose values are checked by their names."""
    made: Any = dataclass(frozen=True, kw_only=True)(kind)
    initialize, names = made.__init__, [one.name for one in fields(made)]

    def __init__(self: Any, **given: Any) -> None:
        for name in given:
            if name not in names:
                meant = f": MPSGraph has {OF_PYTORCH[name]}" if name in OF_PYTORCH else near(name, names)
                raise TypeError(f"{kind.__name__} has no property {name!r}{meant}; its properties: {', '.join(names)}")
        initialize(self, **{name: _checked(name, value) for name, value in given.items()})

    made.__init__ = __init__
    return made  # type: ignore[no-any-return]


def _checked(name: str, value: Any) -> Any:
    """Return the value of a property of a descriptor; what is legal follows from the name."""
    if name == "padding_style":
        if member(name, value, PaddingStyle) is PaddingStyle.EXPLICIT_OFFSET:
            raise UnsupportedError(
                "padding_style is EXPLICIT_OFFSET, which Apple documents for the stencil operation alone; it must be "
                f"one of {', '.join(style.name for style in STYLES)}"
            )
        return member(name, value, PaddingStyle)
    if name.endswith("_layout"):
        return member(name, value, TensorNamedDataLayout, IMAGES if name == "data_layout" else WEIGHTS)
    if name == "return_indices_mode":
        return member(name, value, PoolingReturnIndicesMode)
    if name in ("ceil_mode", "include_zero_pad_to_average"):
        return flag(name, value)
    return integer(name, value, low=0 if name.startswith("padding") else 1)


@dataclass(frozen=True, kw_only=True)
class _Sliding:
    """What all descriptors have: lengths in pixels, X before Y."""

    stride_in_x: int
    stride_in_y: int
    dilation_rate_in_x: int = 1
    dilation_rate_in_y: int = 1
    padding_left: int = 0
    padding_right: int = 0
    padding_top: int = 0
    padding_bottom: int = 0
    padding_style: Style = PaddingStyle.EXPLICIT
    data_layout: Layout


@descriptor
class Convolution2DOpDescriptor(_Sliding):
    """MPSGraphConvolution2DOpDescriptor, also of the transposed convolution.

    Lengths are pixels, X before Y. An enumeration may be given by its member, name or value.

    Examples
    --------
    >>> Convolution2DOpDescriptor(stride_in_x=1, stride_in_y=2, padding_style="TF_SAME",
    ...                           data_layout="NHWC", weights_layout="HWIO").padding_style
    <PaddingStyle.TF_SAME: 2>
    """

    groups: int = 1
    weights_layout: Layout


@descriptor
class DepthwiseConvolution2DOpDescriptor(_Sliding):
    """MPSGraphDepthwiseConvolution2DOpDescriptor: the properties of a convolution but for the groups.

    Examples
    --------
    >>> DepthwiseConvolution2DOpDescriptor(data_layout="NCHW", weights_layout="OIHW").stride_in_x
    1
    """

    stride_in_x: int = 1
    stride_in_y: int = 1
    weights_layout: Layout


@descriptor
class Pooling2DOpDescriptor(_Sliding):
    """MPSGraphPooling2DOpDescriptor.

    ``include_zero_pad_to_average`` is off by default, where PyTorch's ``count_include_pad`` is on.

    Examples
    --------
    >>> Pooling2DOpDescriptor(kernel_width=2, kernel_height=2, stride_in_x=2, stride_in_y=2, data_layout="NHWC",
    ...                       count_include_pad=True)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    TypeError: Pooling2DOpDescriptor has no property 'count_include_pad': MPSGraph has include_zero_pad_to_average; ...
    """

    kernel_width: int
    kernel_height: int
    ceil_mode: bool = False
    include_zero_pad_to_average: bool = False
    return_indices_mode: Indices = PoolingReturnIndicesMode.NONE


def described(name: str, value: object, kind: type[Any]) -> None:
    """Raise ``TypeError`` unless a value is a descriptor of a kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}; it must be a {kind.__name__}")


def strides(of: _Sliding) -> Pair:
    """Return the strides (y, x) of a descriptor."""
    return of.stride_in_y, of.stride_in_x


def dilations(of: _Sliding) -> Pair:
    """Return the dilation rates (y, x) of a descriptor."""
    return of.dilation_rate_in_y, of.dilation_rate_in_x


@lru_cache(maxsize=1024)
def placed(of: _Sliding, size: Pair, kernel: Pair) -> tuple[Pair, Pair, Pair]:
    """Return the padding before an image of a size, that after it, and the number of windows, (y, x) each.

    The padding after is negative where windows do not reach the end of the image, and larger than that of the
    descriptor where ceil mode has a window more.
    """
    ceil = getattr(of, "ceil_mode", False)
    explicit = (of.padding_top, of.padding_bottom), (of.padding_left, of.padding_right)
    axes = []
    for name, length, window, given in zip(
        ("height", "width"), size, map(Window, kernel, strides(of), dilations(of)), explicit, strict=True
    ):
        before, after = given if of.padding_style == PaddingStyle.EXPLICIT else (0, 0)
        if of.padding_style in (PaddingStyle.TF_SAME, PaddingStyle.ONNX_SAME_LOWER):
            outputs = ceil_div(length, window.stride)
            both = max((outputs - 1) * window.stride + window.extent - length, 0)
            before = both // 2 if of.padding_style == PaddingStyle.TF_SAME else both - both // 2
        else:
            room = length + before + after - window.extent
            outputs = (ceil_div(room, window.stride) if ceil else room // window.stride) + 1
            outputs -= ceil and (outputs - 1) * window.stride >= length + before
        if outputs < 1:
            raise ShapeError(
                f"no window fits: the {name} of the source is {length}, with padding {before} and {after}, and that of "
                f"the dilated kernel {window.extent}; it must be <= {length + before + after}"
            )
        axes.append((before, (outputs - 1) * window.stride + window.extent - length - before, outputs))
    (top, bottom, rows), (left, right, columns) = axes
    return (top, left), (bottom, right), (rows, columns)
