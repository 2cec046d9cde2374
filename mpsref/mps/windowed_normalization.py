"""Spatial, local contrast and cross-channel normalization with Apple's names: kernels, gradients and nodes.

>>> import numpy as np
>>> x = np.array([1, 2, 3, 0, 1], float).reshape(1, 1, 1, 5)
>>> norm = MPSCNNCrossChannelNormalization(3, alpha=3.0, beta=0.5)
>>> y, state = norm.encode(x, return_state=True)
>>> y.ravel().round(4).tolist()
[0.4082, 0.5164, 0.8018, 0.0, 0.7071]
>>> g = np.array([1, 0, 1, 2, 1], float).reshape(1, 1, 1, 5)
>>> MPSCNNCrossChannelNormalizationGradient(3, alpha=3.0, beta=0.5).encode(g, x, state).ravel().round(4).tolist()
[0.3402, -0.2506, 0.0955, 0.603, 0.3536]

A gradient kernel has the parameters of its forward kernel [doc]; a state that recorded others is refused [design
state-of-another-layer].

Source: ``MPSCNNNormalization.h``, ``MPSNNGraphNodes.h`` [doc]. The default kernel size of a node is 5, for
cross-channel normalization [doc], for the others [choice channel-default-size].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from mpsref.arguments.arrays import Array, DType, Shape
from mpsref.arguments.parameters import Pair, integer, real
from mpsref.arguments.text import shown
from mpsref.kernels import CrossChannelNormalization, LocalContrastNormalization, SpatialNormalization
from mpsref.kernels.normalization_windows import WindowedNormalization
from mpsref.mps.core.call import Computation, made, problem_of
from mpsref.mps.core.encode import ImageKernel
from mpsref.mps.core.gradient_kernel import WindowedGradient
from mpsref.mps.core.image_arguments import ImageArgument
from mpsref.mps.core.image_kernels import MPSCNNKernel
from mpsref.mps.core.pixelwise import Pixelwise, at_sources, at_the_source, read
from mpsref.mps.core.properties import Alias, Argument, Property, at_least, constructed, set_read_only
from mpsref.mps.core.types import MPSImageEdgeMode
from mpsref.mps.graph.nodes import CustomPolicy, ForwardKernelNode, GradientKernelNode, MPSNNImageNode, MPSNNStateNode
from mpsref.registry import Backend

SIZE = 5
POWERS = "alpha", "beta", "delta"
CONTRAST = *POWERS, "p0", "pm", "ps"


# --- parameters of kernels and nodes ----------------------------------------------------------------------------------


@constructed(init=False, kw_only=True)
class _Quotient:
    """The parameters of spatial and cross-channel normalization: x / (delta + alpha * mean of squares)**beta."""

    recorded: ClassVar[tuple[str, ...]] = POWERS
    alpha: Property[float] = Property(partial(real, low=0), 1.0, "Weight of the mean of squares, >= 0.")
    beta: Property[float] = Property(real, 5.0, "The exponent.")
    delta: Property[float] = Property(real, 1.0, "The summand of the mean of squares.")


@constructed(init=False, kw_only=True)
class _Contrast:
    """The parameters of local contrast normalization."""

    recorded: ClassVar[tuple[str, ...]] = CONTRAST
    alpha: Property[float] = Property(real, 0.0, "Weight of the variance; any number.")
    beta: Property[float] = Property(real, 0.5, "The exponent.")
    delta: Property[float] = Property(real, 1 / 1024, "The summand of the variance.")
    p0: Property[float] = Property(real, 1.0, "Weight of the mean that is subtracted.")
    pm: Property[float] = Property(real, 0.0, "The summand of the result.")
    ps: Property[float] = Property(real, 1.0, "The factor of the result, before that.")


# --- kernels with windows of pixels -----------------------------------------------------------------------------------


@constructed(init=False)
class _Square(ImageKernel):
    """A kernel with a square window [doc]."""

    accepts_lists = True
    _spec_class: ClassVar[Any]

    kernel_width: Argument[int] = Argument(at_least(1), "Width of the window, >= 1.")
    kernel_height: Argument[int] = Argument(at_least(1), "Height of the window, equal to its width.")

    def _set_arguments(self, **values: int) -> None:
        width, height = (integer(name, value, low=1) for name, value in values.items())
        if width != height:
            raise ValueError(f"kernel_width is {width} and kernel_height {height}; both must be equal")
        set_read_only(self, **{prefix + name: width for prefix in self.prefixes for name in values})

    def _function(self, size: Pair, offset: Pair) -> WindowedNormalization:
        """Return the functional form for a window size and an offset."""
        parameters = [getattr(self, name) for name in self.recorded]
        return made(self._spec_class, size, *parameters, offset)  # type: ignore[no-any-return]

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        placed = super()._place(sources, asked, state)
        name = f"{self.prefixes[-1]}edge_mode"
        value = getattr(self, name)
        if value is not MPSImageEdgeMode.Zero:
            raise ValueError(
                f"{name} is {shown(value)}; Apple documents these kernels with zeros outside the image: set it to "
                f"{MPSImageEdgeMode.Zero!r}, or pad the image"
            )
        return placed


@constructed()
class _WindowedForward(_Square, MPSCNNKernel):
    """A forward kernel with a square window; every property can be given by keyword, or set later."""

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        function = self._function((self.kernel_height, self.kernel_width), (self.offset.y, self.offset.x))
        return Computation(problem_of(function, "forward", shapes[0], size))


class _WindowedGradient(_Square, WindowedGradient):
    """The gradient of such a kernel, with the parameters of the forward kernel."""

    kernel_width = Alias("secondary_kernel_width", "Width of the forward window.")
    kernel_height = Alias("secondary_kernel_height", "Height of the forward window.")

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        """Return the gradient of source pixel ``J(q) = J(0) + q`` at pixel q of the clip; 0 outside the source."""
        g, source = shapes
        rows, columns = self._source_properties(1).windows
        # of the center of the window of gradient pixel 0
        offset = rows.offset - self.primary_offset.y, columns.offset - self.primary_offset.x
        function = self._function((rows.kernel, columns.kernel), offset)
        offsets = self.kernel_offset_y, self.kernel_offset_x
        first = rows.represented_pixel(0, offsets[0]), columns.represented_pixel(0, offsets[1])
        whole = first == (0, 0) and size == source[1:3]
        return Computation(problem_of(function, "gradient", source, g[1:3]), None if whole else first)


@constructed()
class MPSCNNSpatialNormalization(_Quotient, _WindowedForward):
    """Spatial normalization: :class:`mpsref.SpatialNormalization`."""

    _spec_class = SpatialNormalization


@constructed()
class MPSCNNSpatialNormalizationGradient(_Quotient, _WindowedGradient):
    """The gradient of spatial normalization: the derivative; Apple prints another one [choice spatial-gradient]."""

    forward_class, _spec_class = MPSCNNSpatialNormalization, SpatialNormalization


@constructed()
class MPSCNNLocalContrastNormalization(_Contrast, _WindowedForward):
    """Local contrast normalization: :class:`mpsref.LocalContrastNormalization`."""

    _spec_class = LocalContrastNormalization


@constructed()
class MPSCNNLocalContrastNormalizationGradient(_Contrast, _WindowedGradient):
    """Gradient of local contrast normalization: the derivative; Apple prints another [choice contrast-gradient]."""

    forward_class, _spec_class = MPSCNNLocalContrastNormalization, LocalContrastNormalization


# --- kernels with windows of channels ---------------------------------------------------------------------------------


@constructed(init=False)
class _CrossChannel(_Quotient, ImageKernel):
    recorded = ("kernel_size", *POWERS)

    kernel_size: Argument[int] = Argument(at_least(1), "Length of the window in channels.", default=SIZE)

    @property
    def _form(self) -> CrossChannelNormalization:
        return CrossChannelNormalization(self.kernel_size, self.alpha, self.beta, self.delta)


@constructed()
class MPSCNNCrossChannelNormalization(_CrossChannel, Pixelwise):
    """Cross-channel normalization: :class:`mpsref.CrossChannelNormalization`.

    The window is cut to the channels that are read; the edge mode has no effect, outside the image are zeros [choice
    windowed-edge-mode].
    """

    accepts_lists = True
    _clamps = False


@constructed()
class MPSCNNCrossChannelNormalizationGradient(_CrossChannel, WindowedGradient):
    """The gradient of cross-channel normalization: the derivative; Apple omits 1 / N [choice channel-gradient]."""

    accepts_lists = True
    forward_class = MPSCNNCrossChannelNormalization

    def _configuration(self, state: Any, g: Shape, x: Shape) -> Mapping[str, object]:
        self._check_recorded(state, ("kernel_size",))
        return super()._configuration(state, g, x)

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        if at_the_source(self, shapes, size):
            return Computation(problem_of(self._form, "gradient", shapes[1]))
        return Computation(compute=partial(self._shifted, size))

    def _shifted(self, size: Pair, images: Sequence[Array], backend: str | Backend | None) -> Array:
        """Return, at pixel q of the clip, the gradient of source pixel ``secondary_offset + kernel_offset + q``."""
        g, x = images
        offset, primary = self.secondary_offset, self.primary_offset
        at_source = at_sources(g, (offset.y - primary.y, offset.x - primary.x), x.shape[1:3], clamp=False)
        dx = self._form.gradient(np.ascontiguousarray(at_source), x, backend=backend)
        begin = offset.y + self.kernel_offset_y, offset.x + self.kernel_offset_x
        return read(dx, begin, size, clamp=False)


# --- nodes ------------------------------------------------------------------------------------------------------------


class _Windows:
    """The window of a node."""

    sizes: ClassVar[tuple[str, ...]] = ("kernel_width", "kernel_height")
    kernel_width = MPSCNNKernel.kernel_width.replace(default=SIZE, read_only=False)
    kernel_height = MPSCNNKernel.kernel_height.replace(default=SIZE, read_only=False)


class _Channels:
    sizes: ClassVar[tuple[str, ...]] = ("kernel_size_in_feature_channels",)
    _renamed: ClassVar[Mapping[str, str]] = {"kernel_size": "kernel_size_in_feature_channels"}
    kernel_size_in_feature_channels = _CrossChannel.kernel_size.replace(read_only=False)


class MPSCNNNormalizationNode(ForwardKernelNode):
    """Base class of the normalization nodes."""

    _abstract = True
    sizes: ClassVar[tuple[str, ...]]
    custom_policy: ClassVar[CustomPolicy] = "followed"

    def __init__(self, source: MPSNNImageNode, kernel_size: int | None = None, **properties: Any) -> None:
        if kernel_size is not None:
            properties = dict.fromkeys(self.sizes, kernel_size) | properties
        super().__init__(source, **properties)
        self._kernel()  # raises for illegal parameters

    @property
    def gradient_properties(self) -> Sequence[str]:  # type: ignore[override]
        """The properties that its gradient nodes also have."""
        recorded = self.kernel_class.recorded
        return *self.sizes, *(own for name, own in self._shared().items() if name in recorded and own not in self.sizes)


class _OneSize(GradientKernelNode):
    """A gradient node with one size for all axes of the window."""

    _abstract = True
    sizes: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        kernel_size: int = SIZE,
        **properties: Any,
    ) -> None:
        properties = dict.fromkeys(self.sizes, kernel_size) | properties
        super().__init__(source_gradient, source_image, gradient_state, **properties)


class MPSCNNSpatialNormalizationGradientNode(_Windows, _Quotient, _OneSize):
    """The gradient of spatial normalization, with the parameters of the forward node."""

    kernel_class = MPSCNNSpatialNormalizationGradient


class MPSCNNLocalContrastNormalizationGradientNode(_Windows, _Contrast, GradientKernelNode):
    """The gradient of local contrast normalization, with the parameters of the forward node.

    The default of alpha is 0, unlike that of the forward node [doc].
    """

    kernel_class = MPSCNNLocalContrastNormalizationGradient

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        kernel_width: int = SIZE,
        kernel_height: int = SIZE,
        **properties: Any,
    ) -> None:
        properties = {"kernel_width": kernel_width, "kernel_height": kernel_height, **properties}
        super().__init__(source_gradient, source_image, gradient_state, **properties)


class MPSCNNCrossChannelNormalizationGradientNode(_Channels, _Quotient, _OneSize):
    """The gradient of cross-channel normalization, with the parameters of the forward node."""

    kernel_class = MPSCNNCrossChannelNormalizationGradient


class MPSCNNSpatialNormalizationNode(_Windows, _Quotient, MPSCNNNormalizationNode):
    """Spatial normalization."""

    kind, spec_class, kernel_class = "snorm", SpatialNormalization, MPSCNNSpatialNormalization
    gradient_class = MPSCNNSpatialNormalizationGradientNode


class MPSCNNLocalContrastNormalizationNode(_Windows, _Contrast, MPSCNNNormalizationNode):
    """Local contrast normalization; alpha is 1, that of the kernel class is 0 [doc]."""

    kind, spec_class, kernel_class = "lcn", LocalContrastNormalization, MPSCNNLocalContrastNormalization
    gradient_class = MPSCNNLocalContrastNormalizationGradientNode
    alpha = _Contrast.alpha.replace(default=1.0)


class MPSCNNCrossChannelNormalizationNode(_Channels, _Quotient, MPSCNNNormalizationNode):
    """Cross-channel normalization."""

    kind, spec_class, kernel_class = "lrn", CrossChannelNormalization, MPSCNNCrossChannelNormalization
    custom_policy = "refused"
    gradient_class = MPSCNNCrossChannelNormalizationGradientNode
