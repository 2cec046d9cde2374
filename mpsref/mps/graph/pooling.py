"""Pooling nodes and their gradients. Source: ``MPSNNGraphNodes.h`` [doc]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from mpsref import mps
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import integer
from mpsref.kernels import PoolingAverage, PoolingL2Norm, PoolingMax
from mpsref.kernels.pooling import Pooling
from mpsref.mps.core.padding import MPSNNPadding
from mpsref.mps.core.properties import Property, at_least, fix
from mpsref.mps.core.types import MPSImageEdgeMode
from mpsref.mps.graph.nodes import (
    Bound,
    BoundState,
    Call,
    MPSNNFilterNode,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
    MPSNNStateNode,
)
from mpsref.mps.pooling import MPSCNNPooling


def _fixed(doc: str) -> Property[int]:
    return Property(at_least(1), 1, doc, read_only=True)


class _Windows:
    """The windows of a pooling node, forward or gradient."""

    kernel_width = _fixed("Width of the window in pixels.")
    kernel_height = _fixed("Height of the window in pixels.")
    stride_in_pixels_x = _fixed("Distance of two windows in x.")
    stride_in_pixels_y = _fixed("Distance of two windows in y.")


class _Dilated:
    dilation_rate_x = _fixed("Distance of two taps in x.")
    dilation_rate_y = _fixed("Distance of two taps in y.")


class MPSCNNPoolingNode(_Windows, MPSNNFilterNode):
    """Base of the pooling nodes.

    Windows are given in full, or as a ``filter_size`` and a ``stride``, which is the filter size if left out, for both
    axes. Outside the image windows read its edge: the edge mode is Clamp [doc].
    """

    _abstract = True
    kernel_class: ClassVar[type[MPSCNNPooling]]
    gradient_class: ClassVar[type[MPSCNNPoolingGradientNode]]
    _differentiable = (0,)

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
        """Make a node; ``(source, size)`` is the same as ``filter_size=size``. Errors as in the kernel class."""
        if kernel_width is not None and kernel_height is None and filter_size is None:
            kernel_width, filter_size = None, kernel_width
        if filter_size is not None:
            if (kernel_width, kernel_height, stride_in_pixels_x, stride_in_pixels_y) != (None,) * 4:
                raise TypeError("filter_size and the windows in full are both given; pass one of them")
            kernel_width = kernel_height = integer("filter_size", filter_size, low=1)
            stride_in_pixels_x = stride_in_pixels_y = (
                kernel_width if stride is None else integer("stride", stride, low=1)
            )
        elif stride is not None:
            raise TypeError("stride belongs to filter_size; with kernel_width pass stride_in_pixels_x and _y")
        given = {
            "kernel_width": kernel_width,
            "kernel_height": kernel_height,
            "stride_in_pixels_x": stride_in_pixels_x,
            "stride_in_pixels_y": stride_in_pixels_y,
        }
        missing = [name for name, value in given.items() if value is None]
        if missing:
            raise TypeError(f"{type(self).__name__} lacks {', '.join(missing)}; pass them all, or filter_size")
        fix(self, **given)
        super().__init__((source,), **properties)

    @property
    def parameters(self) -> dict[str, int]:
        """What the kernel is made with."""
        names = [name for kind in (_Windows, _Dilated) for name in vars(kind) if hasattr(self, name)]
        return {name: getattr(self, name) for name in names if not name.startswith("_")}

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        kernel = self.kernel_class(
            **self.parameters, edge_mode=MPSImageEdgeMode.Clamp, padding=self.padding_policy, backend="reference"
        )
        shape = kernel.infer_padding(*shapes)
        return Bound(kernel._function(kernel._source_properties(0)), shape)

    def _compute(self, call: Call, *images: Array) -> Array:
        spec: Pooling = call.spec
        return spec.forward(images[0], call.result_shape[1:3], backend=call.backend)

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        return self.gradient_class(
            source_gradient, self.source_images[0], self._state, **self.parameters, padding_policy=self.padding_policy
        )


class MPSCNNPoolingGradientNode(_Windows, MPSNNGradientFilterNode):
    """Base of the pooling gradient nodes; offset and edge mode come from the forward pass, with the state."""

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
        """Make a node with the numbers of the forward node; the padding policy is kept, and not used [choice]."""
        fix(self, kernel_width=kernel_width, kernel_height=kernel_height)
        fix(self, stride_in_pixels_x=stride_in_pixels_x, stride_in_pixels_y=stride_in_pixels_y)
        given: Mapping[str, Any] = {} if padding_policy is None else {"padding_policy": padding_policy}
        super().__init__(source_gradient, source_image, gradient_state, **given, **properties)

    def _spec(self, spec: Pooling) -> Pooling:
        """Return the forward function with the windows of this node."""
        windows: dict[str, Any] = {
            "kernel_size": (self.kernel_height, self.kernel_width),
            "strides": (self.stride_in_pixels_y, self.stride_in_pixels_x),
        }
        if isinstance(self, _Dilated):
            windows["dilations"] = self.dilation_rate_y, self.dilation_rate_x
        if all(getattr(spec, name) == value for name, value in windows.items()):
            return spec
        return replace(spec, **windows)

    def _compute(self, call: Call, *images: Array) -> Array:
        g, *x = images
        source = x[0] if self.reads_pixels else call.forward_shapes[0]
        return self._spec(call.spec).gradient(g, source, backend=call.backend)


class MPSCNNPoolingMaxGradientNode(MPSCNNPoolingGradientNode):
    """The gradient of max pooling."""


class MPSCNNPoolingL2NormGradientNode(MPSCNNPoolingGradientNode):
    """The gradient of L2-norm pooling."""


class MPSCNNPoolingAverageGradientNode(MPSCNNPoolingGradientNode):
    """The gradient of average pooling; of the forward image it needs only the size [doc]."""

    reads_pixels = False


class MPSCNNDilatedPoolingMaxGradientNode(_Dilated, MPSCNNPoolingGradientNode):
    """The gradient of dilated max pooling."""

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
        """Make a node with the numbers of the forward node."""
        fix(self, dilation_rate_x=dilation_rate_x, dilation_rate_y=dilation_rate_y)
        windows = kernel_width, kernel_height, stride_in_pixels_x, stride_in_pixels_y
        super().__init__(source_gradient, source_image, gradient_state, *windows, **properties)


class MPSCNNPoolingMaxNode(MPSCNNPoolingNode):
    """Max pooling.

    >>> node = MPSCNNPoolingMaxNode(MPSNNImageNode(), filter_size=2)
    >>> node.kernel_width, node.stride_in_pixels_y
    (2, 2)
    """

    kind = "pmax"
    spec_class = PoolingMax
    kernel_class = mps.MPSCNNPoolingMax
    gradient_class = MPSCNNPoolingMaxGradientNode


class MPSCNNPoolingAverageNode(MPSCNNPoolingNode):
    """Average pooling."""

    kind = "pavg"
    spec_class = PoolingAverage
    kernel_class = mps.MPSCNNPoolingAverage
    gradient_class = MPSCNNPoolingAverageGradientNode


class MPSCNNPoolingL2NormNode(MPSCNNPoolingNode):
    """L2-norm pooling."""

    kind = "pl2"
    spec_class = PoolingL2Norm
    kernel_class = mps.MPSCNNPoolingL2Norm
    gradient_class = MPSCNNPoolingL2NormGradientNode


class MPSCNNDilatedPoolingMaxNode(_Dilated, MPSCNNPoolingNode):
    """Dilated max pooling; ``filter_size`` alone is kernel size, stride and dilation [doc]."""

    kind = "pdil"
    spec_class = PoolingMax
    kernel_class = mps.MPSCNNDilatedPoolingMax
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
        **properties: Any,
    ) -> None:
        """Make a node; ``(source, size)`` is the same as ``filter_size=size``. Errors as in the kernel class."""
        short = filter_size if filter_size is not None else kernel_width if kernel_height is None else None
        rates = [short if rate is None else rate for rate in (dilation_rate_x, dilation_rate_y)]
        if None in rates:
            raise TypeError(f"{type(self).__name__} lacks a dilation_rate_x or _y; pass both, or filter_size")
        fix(self, dilation_rate_x=rates[0], dilation_rate_y=rates[1])
        windows = kernel_width, kernel_height, stride_in_pixels_x, stride_in_pixels_y
        super().__init__(source, *windows, filter_size=filter_size, stride=stride, **properties)
