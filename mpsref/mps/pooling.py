"""Pooling kernels with Apple's names: max, average and L2 norm, dilated max, and their gradients.

>>> import numpy as np
>>> pool = MPSCNNPoolingAverage(3, 3, 2, 2, edge_mode="clamp")
>>> x = np.arange(1, 17, dtype=np.float32).reshape(1, 4, 4, 1)
>>> y, state = pool.encode(x, destination_size=(2, 2), return_state=True)
>>> y[0, :, :, 0].tolist()
[[3.5, 5.0], [9.5, 11.0]]
>>> gradient = MPSCNNPoolingAverageGradient(3, 3, 2, 2)
>>> g = np.array([36, 72, 108, 144], np.float32).reshape(1, 2, 2, 1)
>>> gradient.encode(g, x, state)[0, 0, :, 0].tolist()
[9.0, 21.0, 12.0, 12.0]
>>> gradient.secondary_edge_mode
MPSImageEdgeMode.Clamp

Source: ``MPSCNNPooling.h`` [doc].
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair, integer
from mpsref.errors import ShapeError
from mpsref.geometry import Window
from mpsref.kernels import PoolingAverage, PoolingL2Norm, PoolingMax
from mpsref.kernels.pooling import Pooling
from mpsref.mps.core import types
from mpsref.mps.core.clip_regions import Region, count
from mpsref.mps.core.gradient_kernel import MPSCNNGradientKernel
from mpsref.mps.core.kernel import MPSCNNKernel, saved
from mpsref.mps.core.properties import Alias, Property, at_least, fix, optional
from mpsref.mps.core.state import SourceProperties
from mpsref.registry import Backend, Problem

__all__ = [
    "MPSCNNDilatedPoolingMax",
    "MPSCNNDilatedPoolingMaxGradient",
    "MPSCNNPooling",
    "MPSCNNPoolingAverage",
    "MPSCNNPoolingAverageGradient",
    "MPSCNNPoolingGradient",
    "MPSCNNPoolingL2Norm",
    "MPSCNNPoolingL2NormGradient",
    "MPSCNNPoolingMax",
    "MPSCNNPoolingMaxGradient",
]

SIZE = ("kernel_width", "kernel_height")
STRIDES = ("stride_in_pixels_x", "stride_in_pixels_y")
DILATIONS = ("dilation_rate_x", "dilation_rate_y")


class Family(abc.ABC):
    """What the forward and the gradient kernel of a family share: which function they compute."""

    repeats = True

    @abc.abstractmethod
    def _function(self, source: SourceProperties) -> Pooling:
        """Return the functional form, for the properties of the image that is pooled."""


class Max(Family):
    """The largest value of each window."""

    def _function(self, source: SourceProperties) -> Pooling:
        return _spec(PoolingMax, source, ("dilations", (source.dilation_rate_y, source.dilation_rate_x)))


class L2Norm(Family):
    """The root of the sum of squares of each window."""

    def _function(self, source: SourceProperties) -> Pooling:
        return _spec(PoolingL2Norm, source)


class Average(Family):
    """The mean of each window."""

    zero_pad_size_x = Property(at_least(0), 0, "Width of a ring of zeros that counts, with edge mode ``Clamp``, in x.")
    zero_pad_size_y = Property(at_least(0), 0, "Width of a ring of zeros that counts, with edge mode ``Clamp``, in y.")

    def _function(self, source: SourceProperties) -> Pooling:
        return _spec(PoolingAverage, source, ("zero_pad_size", (self.zero_pad_size_y, self.zero_pad_size_x)))


@functools.lru_cache(maxsize=1024)
def _spec(kind: type[Pooling], source: SourceProperties, *options: tuple[str, Any]) -> Pooling:
    return kind(
        kernel_size=(source.kernel_height, source.kernel_width),
        strides=(source.stride_in_pixels_y, source.stride_in_pixels_x),
        offset=(source.offset.y, source.offset.x),
        edge_mode="clamp" if source.edge_mode is types.MPSImageEdgeMode.Clamp else "zero",
        **dict(options),
    )


class MPSCNNPooling(Family, MPSCNNKernel):
    """Base class of the pooling kernels, (N, H, W, C) to (N, OH, OW, C); each channel by itself.

    Kernel size and strides are in pixels, >= 1. Every other property can be given by keyword, or set later.
    """

    def __init__(
        self,
        kernel_width: int,
        kernel_height: int,
        stride_in_pixels_x: int = 1,
        stride_in_pixels_y: int = 1,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel; raises ``TypeError`` for what is no integer, ``ValueError`` for one that is too small."""
        fix(self, kernel_width=kernel_width, kernel_height=kernel_height)
        fix(self, stride_in_pixels_x=stride_in_pixels_x, stride_in_pixels_y=stride_in_pixels_y)
        super().__init__(backend=backend, **properties)

    def _whole_problem(self, shapes: Sequence[Shape], size: Pair) -> tuple[Problem, Sequence[int]]:
        function = self._function(self._source_properties(0))
        return function.problems["forward"](function, shapes[0], size), (0,)

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        function = self._function(self._source_properties(0))
        function.forward(parts[0], region.size, out=destination[region], backend=self.backend)


@saved(*SIZE, *STRIDES)
class MPSCNNPoolingMax(Max, MPSCNNPooling):
    """Max pooling: :class:`mpsref.PoolingMax`."""


@saved(*SIZE, *STRIDES)
class MPSCNNPoolingL2Norm(L2Norm, MPSCNNPooling):
    """L2-norm pooling: :class:`mpsref.PoolingL2Norm`."""


@saved(*SIZE, *STRIDES)
class MPSCNNPoolingAverage(Average, MPSCNNPooling):
    """Average pooling: :class:`mpsref.PoolingAverage`. ``Clamp`` means that windows shrink at the edges."""

    def _extras(self) -> Mapping[str, Any]:
        return {"zero_pad_size_x": self.zero_pad_size_x, "zero_pad_size_y": self.zero_pad_size_y}


@saved(*SIZE, *DILATIONS, *STRIDES)
class MPSCNNDilatedPoolingMax(Max, MPSCNNPooling):
    """Max pooling with a distance of ``dilation_rate_x`` and ``dilation_rate_y`` pixels between the taps."""

    def __init__(
        self,
        kernel_width: int,
        kernel_height: int,
        dilation_rate_x: int,
        dilation_rate_y: int,
        stride_in_pixels_x: int = 1,
        stride_in_pixels_y: int = 1,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel; errors as in :class:`MPSCNNPooling`."""
        fix(self, dilation_rate_x=dilation_rate_x, dilation_rate_y=dilation_rate_y)
        strides = stride_in_pixels_x, stride_in_pixels_y
        super().__init__(kernel_width, kernel_height, *strides, backend=backend, **properties)


class MPSCNNPoolingGradient(Family, MPSCNNGradientKernel):
    """Base class of the pooling gradients, from g (N, OH, OW, C) and the source (N, H, W, C) to (N, H, W, C).

    ``source_size`` says how many gradient pixels count, from ``primary_offset`` on; ``None`` is the rest of them. A
    ``kernel_offset_x`` or ``_y`` of ``None`` puts the first pixel of the first window that lies inside the source
    at the first pixel of the clip rectangle [doc], an integer any other [choice].
    """

    has_source_size = True

    source_size = Property(
        optional(types.size), None, "How many gradient pixels count, MTLSize; depth is not used. ``None``: the rest."
    )
    kernel_offset_x = Property(optional(integer), None, "As in every gradient kernel; ``None``: as the class says.")
    kernel_offset_y = Property(optional(integer), None, "As in every gradient kernel; ``None``: as the class says.")
    kernel_width = Alias("secondary_kernel_width", "Width of the forward window.")
    kernel_height = Alias("secondary_kernel_height", "Height of the forward window.")
    stride_in_pixels_x = Alias("secondary_stride_in_pixels_x", "Distance of two forward windows in x.")
    stride_in_pixels_y = Alias("secondary_stride_in_pixels_y", "Distance of two forward windows in y.")

    def __init__(
        self,
        kernel_width: int,
        kernel_height: int,
        stride_in_pixels_x: int = 1,
        stride_in_pixels_y: int = 1,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel with the numbers of the forward kernel; errors as in :class:`MPSCNNPooling`."""
        _fix_both(self, kernel_width=kernel_width, kernel_height=kernel_height)
        _fix_both(self, stride_in_pixels_x=stride_in_pixels_x, stride_in_pixels_y=stride_in_pixels_y)
        super().__init__(backend=backend, **properties)

    def _channels_written(self, read: Sequence[slice]) -> int:
        g, x = (count(channels) for channels in read)
        if g != x:
            raise ShapeError(
                f"{g} channels are read of source_gradient and {x} of source_image; both must be equal: set the "
                "primary_ and secondary_source_feature_channel_offset and _max_count"
            )
        return x

    def _family_configuration(self, state: Any) -> Mapping[str, Any]:
        return {"source_size": state.record.clip_rect.size, **state.record.extras}

    def _represented(self, size: Pair, source: Shape) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Return, for y and x, J(0) and the range of source pixels that a clip of ``size`` represents."""
        windows, kernel_offsets = self._source_properties(1).windows, (self.kernel_offset_y, self.kernel_offset_x)
        y, x = map(_source_pixels, windows, kernel_offsets, size, source[1:3])
        return y, x

    def _source_size(self) -> Pair | None:
        return None if self.source_size is None else (self.source_size.height, self.source_size.width)

    def _whole_problem(self, shapes: Sequence[Shape], size: Pair) -> tuple[Problem, Sequence[int]] | None:
        g, source = shapes
        (first_y, _, _), (first_x, _, _) = self._represented(size, source)
        if (first_y, first_x, *size) != (0, 0, *source[1:3]):
            return None
        function, corner = self._function(self._source_properties(1)), (self.primary_offset.y, self.primary_offset.x)
        problem = function.problems["gradient"](function, source, g[1:3], corner, self._source_size())
        return problem, (0, 1) if function.reads_source else (0,)

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        """Write the gradient of source pixel ``J(q) = J(0) + q`` to pixel q of the clip; 0 where there is none."""
        g, x = parts
        function = self._function(self._source_properties(1))
        source = x if function.reads_source else x.shape
        target, arguments = destination[region], (g, source, self.primary_offset[1::-1], self._source_size())
        (first_y, y0, y1), (first_x, x0, x1) = self._represented(region.size, x.shape)
        if (first_y, first_x, *region.size) == (0, 0, *x.shape[1:3]):
            function.gradient(*arguments, out=target, backend=self.backend)
            return
        clip = (y0, x0), (y1 - y0, x1 - x0)
        whole = function.gradient(*arguments, clip=clip, backend=self.backend)
        target[...] = 0
        target[:, y0 - first_y : y1 - first_y, x0 - first_x : x1 - first_x] = whole[:, y0:y1, x0:x1]


@functools.lru_cache(maxsize=4096)
def _source_pixels(window: Window, kernel_offset: int | None, n: int, length: int) -> tuple[int, int, int]:
    """Return J(0), and the source pixels [begin, end) that the n pixels of the clip represent."""
    offset = window.pooling_kernel_offset() if kernel_offset is None else kernel_offset
    first = window.represented_pixel(0, offset)
    begin = max(0, first)
    return first, begin, max(begin, min(first + n, length))


def _fix_both(kernel: MPSCNNPoolingGradient, **values: int) -> None:
    """Fix properties of the primary and of the secondary image."""
    for name, value in values.items():
        integer(name, value, low=1)  # an error is to name the argument
        fix(kernel, **{f"primary_{name}": value, f"secondary_{name}": value})


@saved(*SIZE, *STRIDES)
class MPSCNNPoolingMaxGradient(Max, MPSCNNPoolingGradient):
    """The gradient of max pooling: each window's goes to the first of its largest pixels in raster order."""

    forward_class = MPSCNNPoolingMax


@saved(*SIZE, *STRIDES)
class MPSCNNPoolingL2NormGradient(L2Norm, MPSCNNPoolingGradient):
    """The gradient of L2-norm pooling."""

    forward_class = MPSCNNPoolingL2Norm


@saved(*SIZE, *STRIDES)
class MPSCNNPoolingAverageGradient(Average, MPSCNNPoolingGradient):
    """The gradient of average pooling. Of the source image only the size counts, not the pixels [doc]."""

    forward_class = MPSCNNPoolingAverage


@saved(*SIZE, *DILATIONS, *STRIDES)
class MPSCNNDilatedPoolingMaxGradient(Max, MPSCNNPoolingGradient):
    """The gradient of dilated max pooling."""

    forward_class = MPSCNNDilatedPoolingMax
    dilation_rate_x = Alias("secondary_dilation_rate_x", "Distance of two forward taps in x.")
    dilation_rate_y = Alias("secondary_dilation_rate_y", "Distance of two forward taps in y.")

    def __init__(
        self,
        kernel_width: int,
        kernel_height: int,
        dilation_rate_x: int,
        dilation_rate_y: int,
        stride_in_pixels_x: int = 1,
        stride_in_pixels_y: int = 1,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel with the numbers of the forward kernel; errors as in :class:`MPSCNNPooling`."""
        _fix_both(self, dilation_rate_x=dilation_rate_x, dilation_rate_y=dilation_rate_y)
        strides = stride_in_pixels_x, stride_in_pixels_y
        super().__init__(kernel_width, kernel_height, *strides, backend=backend, **properties)
