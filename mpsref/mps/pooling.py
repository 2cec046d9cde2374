"""Pooling with Apple's names: max, average and L2 norm, dilated max; kernels, their gradients, and nodes of graphs.

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

Source: ``MPSCNNPooling.h``, ``MPSNNGraphNodes.h`` [doc].
"""

from __future__ import annotations

import abc
import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Any

from mpsref.arguments.arrays import AXIS_LIMIT, Shape
from mpsref.arguments.parameters import Pair, integer
from mpsref.geometry import Window
from mpsref.kernels import PoolingAverage, PoolingL2Norm, PoolingMax
from mpsref.kernels.pooling import Pooling
from mpsref.mps.core import types
from mpsref.mps.core.call import Computation, problem_of
from mpsref.mps.core.encode import ImageKernel
from mpsref.mps.core.gradient_kernel import WindowedGradient
from mpsref.mps.core.image_kernels import MPSCNNKernel
from mpsref.mps.core.padding import MPSNNPadding
from mpsref.mps.core.properties import Alias, Argument, Property, at_least, constructed, set_read_only
from mpsref.mps.core.state import SourceProperties
from mpsref.mps.core.types import MPSImageEdgeMode
from mpsref.mps.graph.nodes import ForwardKernelNode, GradientKernelNode, MPSNNImageNode, MPSNNStateNode
from mpsref.registry import Backend

SIZE = ("kernel_width", "kernel_height")
STRIDES = ("stride_in_pixels_x", "stride_in_pixels_y")


# --- base classes of kernels and gradients ----------------------------------------------------------------------------


@constructed()
class _Pooling(ImageKernel):
    """A forward or a gradient kernel; in the latter both sources have the windows of the forward kernel."""

    kernel_width: Argument[int] = Argument(at_least(1), "Width of the window in pixels, >= 1.")
    kernel_height: Argument[int] = Argument(at_least(1), "Height of the window in pixels, >= 1.")
    stride_in_pixels_x: Argument[int] = Argument(at_least(1), "Distance of two windows in x, >= 1.", default=1)
    stride_in_pixels_y: Argument[int] = Argument(at_least(1), "Distance of two windows in y, >= 1.", default=1)

    def _set_arguments(self, **values: int) -> None:
        for name, value in values.items():
            integer(name, value, low=1)  # with the name of the argument, also for a gradient kernel
            set_read_only(self, **{prefix + name: value for prefix in self.prefixes})

    @abc.abstractmethod
    def _function(self, source: SourceProperties) -> Pooling:
        """Return the functional form, for the properties of the image that is pooled."""


@functools.lru_cache(maxsize=1024)
def _spec(kind: type[Pooling], source: SourceProperties, **options: Pair) -> Pooling:
    return kind(
        kernel_size=(source.kernel_height, source.kernel_width),
        strides=(source.stride_in_pixels_y, source.stride_in_pixels_x),
        offset=(source.offset.y, source.offset.x),
        edge_mode="clamp" if source.edge_mode is MPSImageEdgeMode.Clamp else "zero",
        **options,
    )


class _Max(_Pooling):
    def _function(self, source: SourceProperties) -> Pooling:
        return _spec(PoolingMax, source, dilations=(source.dilation_rate_y, source.dilation_rate_x))


class _L2Norm(_Pooling):
    def _function(self, source: SourceProperties) -> Pooling:
        return _spec(PoolingL2Norm, source)


@constructed(init=False, kw_only=True)
class _Average(_Pooling):
    zero_pad_size_x: Property[int] = Property(at_least(0), 0, "Width in x of a zero pad that counts, for ``Clamp``.")
    zero_pad_size_y: Property[int] = Property(at_least(0), 0, "Width in y of a zero pad that counts, for ``Clamp``.")

    def _function(self, source: SourceProperties) -> Pooling:
        return _spec(PoolingAverage, source, zero_pad_size=(self.zero_pad_size_y, self.zero_pad_size_x))


class _DilatedMax(_Pooling):
    _function = _Max._function

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
        self._set_arguments(dilation_rate_x=dilation_rate_x, dilation_rate_y=dilation_rate_y)
        strides = stride_in_pixels_x, stride_in_pixels_y
        super().__init__(kernel_width, kernel_height, *strides, backend=backend, **properties)


# --- forward kernels --------------------------------------------------------------------------------------------------


@constructed()
class MPSCNNPooling(_Pooling, MPSCNNKernel):
    """Base class of the pooling kernels, (N, H, W, C) to (N, OH, OW, C); channels are independent."""

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        return Computation(problem_of(self._function(self._source_properties(0)), "forward", shapes[0], size))


class MPSCNNPoolingMax(_Max, MPSCNNPooling):
    """Max pooling: :class:`mpsref.PoolingMax`."""


class MPSCNNPoolingL2Norm(_L2Norm, MPSCNNPooling):
    """L2-norm pooling: :class:`mpsref.PoolingL2Norm`."""


class MPSCNNPoolingAverage(_Average, MPSCNNPooling):
    """Average pooling: :class:`mpsref.PoolingAverage`. With edge mode ``Clamp``, windows shrink at the edges."""

    recorded = "zero_pad_size_x", "zero_pad_size_y"


class MPSCNNDilatedPoolingMax(_DilatedMax, MPSCNNPooling):
    """Max pooling whose taps are ``dilation_rate_x`` and ``dilation_rate_y`` pixels apart."""


# --- gradient kernels -------------------------------------------------------------------------------------------------


def _source_size(name: str, value: object) -> types.MTLSize | None:
    """Check a size; ``None`` for that without limits."""
    size = None if value is None else types.size(name, value)
    return None if size == types.UNLIMITED else size


@constructed()
class MPSCNNPoolingGradient(_Pooling, WindowedGradient):
    """Base class of the pooling gradients, from g (N, OH, OW, C) and the source (N, H, W, C) to (N, H, W, C).

    ``source_size`` is the size of the region of the source gradient that is read, from ``primary_offset`` on; ``None``
    is the rest of it.

    Notes
    -----
    With kernel offsets of 0, the default, the first pixel of the clip rectangle is that of the gradient for the first
    source pixel of the first window: pixel ``max(0, o - c)`` for a window of ``c = floor(K / 2)`` pixels before its
    center at ``o = secondary_offset`` [doc: ``MPSCNNPooling.h``]. Another kernel offset is added to that position
    [choice pooling-kernel-offset; the formula of ``MPSCNNGradientKernel`` with no exception for pooling has
    ``ko + o - ev`` in place of ``ko + max(0, o - c)``, with ``ev = 1`` for an even window]. A state sets them so that
    destination pixel and source pixel are the same: ``clip origin - max(0, o - c)``, which is 0 in a pass without clip
    whose first window starts at or before pixel 0.

    Examples
    --------
    The windows {-1, 0} and {1, 2}; with the formula of other gradient kernels the result would be [0, 0.5, 5, 5].

    >>> import numpy as np
    >>> gradient = MPSCNNPoolingAverageGradient(2, 1, 2, 1, kernel_offset_x=0)
    >>> g, x = np.array([1, 10], np.float32).reshape(1, 1, 2, 1), np.zeros((1, 1, 4, 1), np.float32)
    >>> gradient.encode(g, x, None, np.zeros_like(x)).ravel().tolist()
    [0.5, 5.0, 5.0, 0.0]
    """

    has_source_size = True

    _: KW_ONLY
    source_size: Property[types.MTLSize | None] = Property(
        _source_size,
        None,
        "Size of the region of the source gradient that is read, MTLSize, without its depth. ``None``: the rest, as is "
        "a size of NSUIntegerMax.",
    )
    kernel_offset_x = Property(integer, 0, "Shift of the destination in x; see the notes of the class.")
    kernel_offset_y = Property(integer, 0, "Shift of the destination in y; see the notes of the class.")
    kernel_width = Alias("secondary_kernel_width", "Width of the forward window.")
    kernel_height = Alias("secondary_kernel_height", "Height of the forward window.")
    stride_in_pixels_x = Alias("secondary_stride_in_pixels_x", "Distance of two forward windows in x.")
    stride_in_pixels_y = Alias("secondary_stride_in_pixels_y", "Distance of two forward windows in y.")

    def _configuration(self, state: Any, g: Shape, x: Shape) -> Mapping[str, object]:
        record = state.record
        return {**super()._configuration(state, g, x), "source_size": record.clip_rect.size, **record.extras}

    _offset_from = operator.methodcaller("pooling_kernel_offset")

    def _source_size(self) -> Pair | None:
        if self.source_size is None:
            return None
        return min(self.source_size.height, AXIS_LIMIT), min(self.source_size.width, AXIS_LIMIT)

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        """Return the gradient of source pixel ``J(q) = J(0) + q`` at pixel q of the clip; 0 outside the source."""
        g, source = shapes
        function, corner = self._function(self._source_properties(1)), (self.primary_offset.y, self.primary_offset.x)
        windows, kernel_offsets = self._source_properties(1).windows, (self.kernel_offset_y, self.kernel_offset_x)
        (y, y0, y1), (x, x0, x1) = map(_source_pixels, windows, kernel_offsets, size, source[1:3])
        whole = (y, x, *size) == (0, 0, *source[1:3])
        first, clip = (None, None) if whole else ((y, x), ((y0, x0), (y1 - y0, x1 - x0)))
        problem = problem_of(function, "gradient", source, g[1:3], corner, self._source_size(), None, clip)
        return Computation(problem, first)


@functools.lru_cache(maxsize=4096)
def _source_pixels(window: Window, kernel_offset: int, n: int, length: int) -> tuple[int, int, int]:
    """Return J(0), and the source pixels [begin, end) that the n pixels of the clip represent."""
    first = window.represented_pixel(0, window.pooling_kernel_offset() + kernel_offset)
    begin = max(0, first)
    return first, begin, max(begin, min(first + n, length))


class MPSCNNPoolingMaxGradient(_Max, MPSCNNPoolingGradient):
    """The gradient of max pooling; that of a window is added to the first of its largest pixels in raster order."""

    forward_class = MPSCNNPoolingMax


class MPSCNNPoolingL2NormGradient(_L2Norm, MPSCNNPoolingGradient):
    """The gradient of L2-norm pooling."""

    forward_class = MPSCNNPoolingL2Norm


class MPSCNNPoolingAverageGradient(_Average, MPSCNNPoolingGradient):
    """The gradient of average pooling. Of the source image only the size is used, not the pixels [doc]."""

    forward_class = MPSCNNPoolingAverage


class MPSCNNDilatedPoolingMaxGradient(_DilatedMax, MPSCNNPoolingGradient):
    """The gradient of dilated max pooling."""

    forward_class = MPSCNNDilatedPoolingMax
    dilation_rate_x = Alias("secondary_dilation_rate_x", "Distance of two forward taps in x.")
    dilation_rate_y = Alias("secondary_dilation_rate_y", "Distance of two forward taps in y.")


# --- nodes of graphs --------------------------------------------------------------------------------------------------


@constructed(init=False)
class _Windows:
    """The windows of a node."""

    kernel_width: Argument[int] = Argument(MPSCNNKernel.kernel_width)
    kernel_height: Argument[int] = Argument(MPSCNNKernel.kernel_height)
    stride_in_pixels_x: Argument[int] = Argument(MPSCNNKernel.stride_in_pixels_x)
    stride_in_pixels_y: Argument[int] = Argument(MPSCNNKernel.stride_in_pixels_y)


@constructed(init=False)
class _Dilated:
    dilation_rate_x: Argument[int] = Argument(MPSCNNKernel.dilation_rate_x)
    dilation_rate_y: Argument[int] = Argument(MPSCNNKernel.dilation_rate_y)


class MPSCNNPoolingNode(_Windows, ForwardKernelNode):
    """Base class of the pooling nodes; the edge mode is ``Clamp`` [doc]."""

    _abstract = True
    custom_policy, _settings = "followed", {"edge_mode": MPSImageEdgeMode.Clamp}
    gradient_properties = ("padding_policy",)

    def __init__(
        self,
        source: MPSNNImageNode,
        kernel_width: int | None = None,
        kernel_height: int | None = None,
        stride_in_pixels_x: int | None = None,
        stride_in_pixels_y: int | None = None,
        *,
        filter_size: int | None = None,
        stride: int | None = None,
        **properties: Any,
    ) -> None:
        if kernel_width is not None and kernel_height is None and filter_size is None:
            kernel_width, filter_size = None, kernel_width
        windows = kernel_width, kernel_height, stride_in_pixels_x, stride_in_pixels_y
        given = dict(zip((*SIZE, *STRIDES), windows, strict=True))
        if filter_size is not None:
            if any(value is not None for value in windows):
                raise TypeError("filter_size and the windows in full are both given; pass one of them")
            size = integer("filter_size", filter_size, low=1)
            step = size if stride is None else integer("stride", stride, low=1)
            given.update(dict.fromkeys(SIZE, size) | dict.fromkeys(STRIDES, step))
        elif stride is not None:
            raise TypeError("stride belongs to filter_size; with kernel_width pass stride_in_pixels_x and _y")
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise TypeError(f"{type(self).__name__} lacks {', '.join(missing)}; pass them all, or filter_size")
        set_read_only(self, **given)
        super().__init__(source, **properties)


class MPSCNNPoolingGradientNode(_Windows, GradientKernelNode):
    """Base class of the pooling gradient nodes.

    Offset and edge mode are those of the forward pass; a ``padding_policy`` has no effect [design objects-options].
    """

    _abstract = True

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        kernel_width: int,
        kernel_height: int,
        stride_in_pixels_x: int,
        stride_in_pixels_y: int,
        padding_policy: MPSNNPadding | None = None,
        **properties: Any,
    ) -> None:
        if padding_policy is not None:
            properties["padding_policy"] = padding_policy
        windows = kernel_width, kernel_height, stride_in_pixels_x, stride_in_pixels_y
        set_read_only(self, **dict(zip((*SIZE, *STRIDES), windows, strict=True)))
        super().__init__(source_gradient, source_image, gradient_state, **properties)


class MPSCNNPoolingMaxGradientNode(MPSCNNPoolingGradientNode):
    """The gradient of max pooling."""

    kernel_class = MPSCNNPoolingMaxGradient


class MPSCNNPoolingL2NormGradientNode(MPSCNNPoolingGradientNode):
    """The gradient of L2-norm pooling."""

    kernel_class = MPSCNNPoolingL2NormGradient


class MPSCNNPoolingAverageGradientNode(MPSCNNPoolingGradientNode):
    """The gradient of average pooling; of the forward image it reads only the size [doc]."""

    kernel_class, reads_pixels = MPSCNNPoolingAverageGradient, False


class MPSCNNDilatedPoolingMaxGradientNode(_Dilated, MPSCNNPoolingGradientNode):
    """The gradient of dilated max pooling."""

    kernel_class = MPSCNNDilatedPoolingMaxGradient

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        kernel_width: int,
        kernel_height: int,
        stride_in_pixels_x: int,
        stride_in_pixels_y: int,
        dilation_rate_x: int,
        dilation_rate_y: int,
        **properties: Any,
    ) -> None:
        set_read_only(self, dilation_rate_x=dilation_rate_x, dilation_rate_y=dilation_rate_y)
        windows = kernel_width, kernel_height, stride_in_pixels_x, stride_in_pixels_y
        super().__init__(source_gradient, source_image, gradient_state, *windows, **properties)


class MPSCNNPoolingMaxNode(MPSCNNPoolingNode):
    """Max pooling.

    >>> node = MPSCNNPoolingMaxNode(MPSNNImageNode(), filter_size=2)
    >>> node.kernel_width, node.stride_in_pixels_y
    (2, 2)
    """

    kind, spec_class, kernel_class = "pmax", PoolingMax, MPSCNNPoolingMax
    gradient_class = MPSCNNPoolingMaxGradientNode


class MPSCNNPoolingAverageNode(MPSCNNPoolingNode):
    """Average pooling."""

    kind, spec_class, kernel_class = "pavg", PoolingAverage, MPSCNNPoolingAverage
    gradient_class = MPSCNNPoolingAverageGradientNode


class MPSCNNPoolingL2NormNode(MPSCNNPoolingNode):
    """L2-norm pooling."""

    kind, spec_class, kernel_class = "pl2", PoolingL2Norm, MPSCNNPoolingL2Norm
    gradient_class = MPSCNNPoolingL2NormGradientNode


class MPSCNNDilatedPoolingMaxNode(_Dilated, MPSCNNPoolingNode):
    """Dilated max pooling; a ``filter_size`` is also the default of ``stride`` and ``dilation_rate`` [doc]."""

    kind, spec_class, kernel_class = "pdil", PoolingMax, MPSCNNDilatedPoolingMax
    gradient_class = MPSCNNDilatedPoolingMaxGradientNode

    def __init__(
        self,
        source: MPSNNImageNode,
        kernel_width: int | None = None,
        kernel_height: int | None = None,
        stride_in_pixels_x: int | None = None,
        stride_in_pixels_y: int | None = None,
        dilation_rate_x: int | None = None,
        dilation_rate_y: int | None = None,
        *,
        filter_size: int | None = None,
        stride: int | None = None,
        dilation_rate: int | None = None,
        **properties: Any,
    ) -> None:
        short = filter_size if filter_size is not None else kernel_width if kernel_height is None else None
        if dilation_rate is not None:
            if short is None or dilation_rate_x is not None or dilation_rate_y is not None:
                raise TypeError("dilation_rate belongs to filter_size; with kernel_width pass dilation_rate_x and _y")
            short = dilation_rate
        rates = [short if rate is None else rate for rate in (dilation_rate_x, dilation_rate_y)]
        if any(rate is None for rate in rates):
            raise TypeError(f"{type(self).__name__} lacks a dilation_rate_x or _y; pass both, or filter_size")
        set_read_only(self, dilation_rate_x=rates[0], dilation_rate_y=rates[1])
        windows = kernel_width, kernel_height, stride_in_pixels_x, stride_in_pixels_y
        super().__init__(source, *windows, filter_size=filter_size, stride=stride, **properties)
