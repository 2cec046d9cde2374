"""Gradient states: records of a forward kernel and its images, which configure the gradient kernel.

A state is a snapshot: later changes of the kernel have no effect on it, and it may be used twice. It is made by
``encode(..., return_state=True)``.

>>> import numpy as np
>>> from mpsref import mps
>>> pool = mps.MPSCNNPoolingAverage(3, 3, 2, 2)
>>> y, state = pool.encode(np.ones((1, 5, 7, 1), np.float32), return_state=True)
>>> state
<MPSNNGradientState: MPSCNNPoolingAverage, (1, 5, 7, 1) -> (1, 3, 4, 1)>
>>> state.source.offset, state.source_width, state.source_height
(MPSOffset(x=0, y=0, z=0), 7, 5)

Source: ``MPSState.h``, ``MPSNNGradientState.h`` [doc]. More is recorded than offset, edge mode, kernel size and
source size [choice].
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from mpsref.arguments.arrays import Shape
from mpsref.errors import ShapeError
from mpsref.geometry import Window
from mpsref.mps.core.types import MPSImageEdgeMode, MPSOffset, MTLRegion


class SourceProperties(NamedTuple):
    """The properties that a kernel has for one source image, under their names without a prefix."""

    offset: MPSOffset
    edge_mode: MPSImageEdgeMode
    kernel_width: int
    kernel_height: int
    stride_in_pixels_x: int
    stride_in_pixels_y: int
    dilation_rate_x: int
    dilation_rate_y: int
    source_feature_channel_offset: int
    source_feature_channel_max_count: int | None

    @property
    def windows(self) -> tuple[Window, Window]:
        """The window of the y axis and that of the x axis."""
        return _windows(self)

    @property
    def geometry(self) -> tuple[int, ...]:
        """Kernel size, strides and dilations, which are the same in a gradient kernel."""
        return self[2:8]


@functools.lru_cache(maxsize=1024)
def _windows(source: SourceProperties) -> tuple[Window, Window]:
    return (
        Window(source.kernel_height, source.stride_in_pixels_y, source.dilation_rate_y, source.offset.y),
        Window(source.kernel_width, source.stride_in_pixels_x, source.dilation_rate_x, source.offset.x),
    )


@dataclass(frozen=True)
class ForwardRecord:
    """The properties of a forward kernel when it ran, and its images.

    Of each source, ``source_feature_channel_max_count`` is the number of channels that were read. ``clip_rect`` is cut
    to the destination. ``extras`` are properties of the kernel's family, such as ``zero_pad_size_x``.
    """

    kernel_class: type[Any]
    sources: tuple[SourceProperties, ...]
    source_shapes: tuple[Shape, ...]
    destination_shape: Shape
    clip_rect: MTLRegion
    destination_feature_channel_offset: int
    destination_feature_channels: int
    extras: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the extras read-only."""
        object.__setattr__(self, "extras", MappingProxyType(dict(self.extras)))


class MPSState:
    """Base class of the states, results of kernels in addition to images. Source: ``MPSState.h`` [doc]."""

    __slots__ = ()


class RecordedState(MPSState):
    """A state with a :class:`ForwardRecord`, which an encode with the state as ``destination_state`` replaces."""

    __slots__ = ("_record",)

    def __init__(self, record: ForwardRecord) -> None:
        """Make the state of one forward pass."""
        self._record = record

    @property
    def record(self) -> ForwardRecord:
        """The forward kernel and its images, unchangeable."""
        return self._record

    def _refresh(self, record: ForwardRecord) -> None:
        self._record = record

    def __eq__(self, other: object) -> bool:
        return self._record == other._record if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # an encode may renew the record

    def __repr__(self) -> str:
        shapes = ", ".join(str(shape) for shape in self._record.source_shapes)
        kernel = self._record.kernel_class.__name__
        return f"<{type(self).__name__}: {kernel}, {shapes} -> {self._record.destination_shape}>"


class MPSNNGradientState(RecordedState):
    """The state of a kernel with one source, for its gradient kernel. Source: ``MPSNNGradientState.h`` [doc]."""

    __slots__ = ()

    @property
    def source(self) -> SourceProperties:
        """The properties of the forward kernel for its source image."""
        return self._record.sources[0]

    @property
    def source_width(self) -> int:
        """Width of the forward source image in pixels. Source: ``MPSImageSizeEncodingState`` [doc]."""
        return self._record.source_shapes[0][2]

    @property
    def source_height(self) -> int:
        """Height of the forward source image in pixels. Source: ``MPSImageSizeEncodingState`` [doc]."""
        return self._record.source_shapes[0][1]

    def primary_origin(self, gradient_shape: Shape) -> tuple[MPSOffset, int]:
        """Return the origin of the forward results in a source gradient of this shape: (offset, channel offset).

        On each axis the source gradient has the length of the forward destination, then the origin is that of the
        forward clip, or the length of the forward clip, then the origin is 0. Raises ``ShapeError`` for any other size.
        Source: the two rules of ``MPSCNNPooling.h`` and ``MPSCNNConvolution.h`` [doc] as one [choice].
        """
        record = self._record
        (x, y, z), (width, height, depth) = record.clip_rect
        origins = z, y, x, record.destination_feature_channel_offset
        parts = depth, height, width, record.destination_feature_channels
        found = []
        axes = zip("NHWC", gradient_shape, record.destination_shape, origins, parts, strict=True)
        for axis, length, whole, origin, part in axes:
            if length not in (whole, part):
                raise ShapeError(
                    f"source_gradient has shape {tuple(gradient_shape)}; its {axis} must be {whole}, as in the forward "
                    f"destination, or {part}, as in the part of it that the forward kernel wrote"
                )
            found.append(origin if length == whole else 0)
        n, row, column, channel = found
        return MPSOffset(column, row, n), channel


class MPSNNBinaryGradientState(RecordedState):
    """The state of a kernel with two sources, for its gradient kernels. Source: ``MPSNNGradientState.h`` [doc]."""

    __slots__ = ()

    @property
    def primary(self) -> SourceProperties:
        """The properties of the forward kernel for its primary image."""
        return self._record.sources[0]

    @property
    def secondary(self) -> SourceProperties:
        """The properties of the forward kernel for its secondary image."""
        return self._record.sources[1]


class MPSNNMultiaryGradientState(RecordedState):
    """The state of a kernel with any number of sources; no public gradient kernel reads it [doc]."""

    __slots__ = ()


def one_state(name: str, value: Any, images: int) -> Any:
    """Return the state of a whole batch: ``value``, or the object that a list contains once for each image.

    Raises ``ValueError`` for a list of another length or of several objects.
    """
    if not isinstance(value, (list, tuple)):
        return value
    if not value or len(value) != images or any(one is not value[0] for one in value):
        raise ValueError(
            f"{name} is a list of {len(value)} with {len({id(one) for one in value})} different object(s); it must "
            f"name one and the same state for each of {images} image(s)"
        )
    return value[0]
