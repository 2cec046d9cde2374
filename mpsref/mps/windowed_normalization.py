"""Spatial, local contrast and cross-channel normalization with Apple's names, and their gradients.

>>> import numpy as np
>>> x = np.array([1, 2, 3, 0, 1], float).reshape(1, 1, 1, 5)
>>> norm = MPSCNNCrossChannelNormalization(3, alpha=3.0, beta=0.5)
>>> y, state = norm.encode(x, return_state=True)
>>> y.ravel().round(4).tolist()
[0.4082, 0.5164, 0.8018, 0.0, 0.7071]
>>> g = np.array([1, 0, 1, 2, 1], float).reshape(1, 1, 1, 5)
>>> MPSCNNCrossChannelNormalizationGradient(3, alpha=3.0, beta=0.5).encode(g, x, state).ravel().round(4).tolist()
[0.3402, -0.2506, 0.0955, 0.603, 0.3536]

A gradient kernel has the parameters of its forward kernel [doc]; a state that recorded others is refused [choice].

Source: ``MPSCNNNormalization.h`` [doc].
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair, integer
from mpsref.errors import ShapeError
from mpsref.kernels import CrossChannelNormalization, LocalContrastNormalization, SpatialNormalization
from mpsref.kernels.normalization import real
from mpsref.kernels.normalization_windows import WindowedNormalization
from mpsref.mps.core.clip_regions import Region, count
from mpsref.mps.core.image_arguments import ImageArgument
from mpsref.mps.core.image_lists import ForwardOfLists, GradientOfLists
from mpsref.mps.core.kernel import ImageKernel, saved
from mpsref.mps.core.pixelwise import at_sources, read
from mpsref.mps.core.properties import Alias, Property, at_least, fix
from mpsref.mps.core.types import MPSImageEdgeMode
from mpsref.registry import Backend

__all__ = [
    "MPSCNNCrossChannelNormalization",
    "MPSCNNCrossChannelNormalizationGradient",
    "MPSCNNLocalContrastNormalization",
    "MPSCNNLocalContrastNormalizationGradient",
    "MPSCNNSpatialNormalization",
    "MPSCNNSpatialNormalizationGradient",
]


def _not_negative(name: str, value: Any) -> float:
    return real(name, value, low=0)


class Parameters(ImageKernel):
    """What the forward and the gradient kernel of a family share; not a class of Apple's."""

    parameters: tuple[str, ...] = ("alpha", "beta", "delta")

    def _extras(self) -> Mapping[str, Any]:
        return {name: getattr(self, name) for name in self.parameters}


class Quotient(Parameters):
    """The parameters of spatial and cross-channel normalization: x / (delta + alpha * mean of squares)**beta."""

    alpha = Property(_not_negative, 1.0, "Weight of the mean of squares, >= 0.")
    beta = Property(real, 5.0, "The exponent.")
    delta = Property(real, 1.0, "What is added to the mean of squares.")


class Gradient(Parameters, GradientOfLists):
    """What the gradient kernels share."""

    def _check_state(self, state: Any) -> None:
        super()._check_state(state)
        for name, own in self._extras().items():
            recorded = state.record.extras[name]
            if own != recorded:
                raise ValueError(
                    f"{name} is {own!r}; that of the forward kernel in gradient_state is {recorded!r}: set all "
                    "parameters of the gradient kernel to those of the forward kernel"
                )

    def _channels_written(self, read: Sequence[slice]) -> int:
        g, x = (count(channels) for channels in read)
        if g != x:
            raise ShapeError(
                f"{g} channels are read of source_gradient and {x} of source_image; both must be equal: set the "
                "primary_ and secondary_source_feature_channel_offset and _max_count"
            )
        return x


# --- windows of pixels ------------------------------------------------------------------------------------------------


def _check_zero_edges(name: str, value: MPSImageEdgeMode) -> None:
    if value is not MPSImageEdgeMode.Zero:
        raise ValueError(
            f"{name} is {value!r}; Apple documents these kernels with zeros outside the image: set it to "
            f"{MPSImageEdgeMode.Zero!r}, or pad the image"
        )


def _square(kernel_width: Any, kernel_height: Any) -> int:
    """Return the side of a window. Source: both sides must be equal "for now" [doc]; unequal ones raise [choice]."""
    width, height = (
        integer(name, value, low=1)
        for name, value in (("kernel_width", kernel_width), ("kernel_height", kernel_height))
    )
    if width != height:
        raise ValueError(f"kernel_width is {width} and kernel_height {height}; both must be equal")
    return width


class Spatial(Quotient):
    """Which function spatial normalization computes."""

    def _function(self, size: Pair, offset: Pair) -> WindowedNormalization:
        return SpatialNormalization(size, self.alpha, self.beta, self.delta, offset)


class LocalContrast(Parameters):
    """Which function local contrast normalization computes, and its parameters."""

    parameters = ("alpha", "beta", "delta", "p0", "pm", "ps")

    alpha = Property(real, 0.0, "Weight of the variance; any number.")
    beta = Property(real, 0.5, "The exponent.")
    delta = Property(real, 1 / 1024, "What is added to the variance.")
    p0 = Property(real, 1.0, "Weight of the mean that is subtracted.")
    pm = Property(real, 0.0, "What is added to the result.")
    ps = Property(real, 1.0, "What the result is multiplied by, before that.")

    def _function(self, size: Pair, offset: Pair) -> WindowedNormalization:
        parameters = self.alpha, self.beta, self.delta, self.p0, self.pm, self.ps
        return LocalContrastNormalization(size, *parameters, offset)


class WindowedForward(Parameters, ForwardOfLists):
    """A forward kernel with a square window; every property can be given by keyword, or set later."""

    def __init__(
        self, kernel_width: int, kernel_height: int, *, backend: str | Backend | None = None, **properties: Any
    ) -> None:
        """Make a kernel; raises ``TypeError`` for what is no number, ``ValueError`` for one that is not legal."""
        side = _square(kernel_width, kernel_height)
        fix(self, kernel_width=side, kernel_height=side)
        super().__init__(backend=backend, **properties)

    @abc.abstractmethod
    def _function(self, size: Pair, offset: Pair) -> WindowedNormalization:
        """Return the functional form for a window size and an offset."""

    def _select(self, sources: Sequence[ImageArgument], shape: Shape) -> tuple[list[Array], Region]:
        _check_zero_edges("edge_mode", self.edge_mode)
        return super()._select(sources, shape)

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        function = self._function((self.kernel_height, self.kernel_width), (self.offset.y, self.offset.x))
        function.forward(parts[0], region.size, out=destination[region], backend=self.backend)


class WindowedGradient(Gradient):
    """The gradient of such a kernel, with the numbers of the forward kernel."""

    kernel_width = Alias("secondary_kernel_width", "Width of the forward window.")
    kernel_height = Alias("secondary_kernel_height", "Height of the forward window.")

    def __init__(
        self, kernel_width: int, kernel_height: int, *, backend: str | Backend | None = None, **properties: Any
    ) -> None:
        """Make a kernel; errors as for the forward kernel."""
        side = _square(kernel_width, kernel_height)
        for name in ("kernel_width", "kernel_height"):
            fix(self, **{f"primary_{name}": side, f"secondary_{name}": side})
        super().__init__(backend=backend, **properties)

    @abc.abstractmethod
    def _function(self, size: Pair, offset: Pair) -> WindowedNormalization:
        """Return the functional form for a window size and an offset."""

    def _select(self, sources: Sequence[ImageArgument], shape: Shape) -> tuple[list[Array], Region]:
        _check_zero_edges("secondary_edge_mode", self.secondary_edge_mode)
        return super()._select(sources, shape)

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        """Write the gradient of source pixel ``J(q) = J(0) + q`` to pixel q of the clip; 0 where there is none."""
        g, x = parts
        y, x_ = windows = self._source_properties(1).windows
        offset = y.offset - self.primary_offset.y, x_.offset - self.primary_offset.x  # the centre of gradient pixel 0
        function = self._function((y.kernel, x_.kernel), offset)
        first: Pair = (
            windows[0].represented_pixel(0, self.kernel_offset_y),
            windows[1].represented_pixel(0, self.kernel_offset_x),
        )
        if first == (0, 0) and region.size == x.shape[1:3]:
            function.gradient(g, x, out=destination[region], backend=self.backend)
        else:
            destination[region] = read(function.gradient(g, x, backend=self.backend), first, region.size, clamp=False)


@saved("kernel_width", "kernel_height")
class MPSCNNSpatialNormalization(Spatial, WindowedForward):
    """Spatial normalization: :class:`mpsref.SpatialNormalization`."""


@saved("kernel_width", "kernel_height")
class MPSCNNSpatialNormalizationGradient(Spatial, WindowedGradient):
    """The gradient of spatial normalization: its exact derivative, where Apple prints another expression [choice]."""

    forward_class = MPSCNNSpatialNormalization


@saved("kernel_width", "kernel_height")
class MPSCNNLocalContrastNormalization(LocalContrast, WindowedForward):
    """Local contrast normalization: :class:`mpsref.LocalContrastNormalization`."""


@saved("kernel_width", "kernel_height")
class MPSCNNLocalContrastNormalizationGradient(LocalContrast, WindowedGradient):
    """The gradient of local contrast normalization: its exact derivative, where Apple prints another one [choice]."""

    forward_class = MPSCNNLocalContrastNormalization


# --- windows of channels ----------------------------------------------------------------------------------------------


class CrossChannel(Quotient):
    """Which function cross-channel normalization computes."""

    parameters = ("kernel_size", *Quotient.parameters)

    kernel_size = Property(at_least(1), 5, "How many channels the window has.", read_only=True)

    def __init__(self, kernel_size: int = 5, *, backend: str | Backend | None = None, **properties: Any) -> None:
        """Make a kernel; raises ``TypeError`` for what is no number, ``ValueError`` for one that is not legal."""
        fix(self, kernel_size=kernel_size)
        super().__init__(backend=backend, **properties)

    @property
    def _function(self) -> CrossChannelNormalization:
        return CrossChannelNormalization(self.kernel_size, self.alpha, self.beta, self.delta)


@saved("kernel_size")
class MPSCNNCrossChannelNormalization(CrossChannel, ForwardOfLists):
    """Cross-channel normalization: :class:`mpsref.CrossChannelNormalization`.

    Its window is among the channels that are read; the edge mode has no effect, outside the image are zeros [choice].
    """

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        x = read(parts[0], (self.offset.y, self.offset.x), region.size, clamp=False)
        self._function.forward(x, out=destination[region], backend=self.backend)


@saved("kernel_size")
class MPSCNNCrossChannelNormalizationGradient(CrossChannel, Gradient):
    """The gradient of cross-channel normalization: its exact derivative; Apple prints it without 1 / N [choice]."""

    forward_class = MPSCNNCrossChannelNormalization

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        """Write, to pixel q of the clip, the gradient of source pixel ``secondary_offset + kernel_offset + q``."""
        g, x = parts
        offset, primary = self.secondary_offset, self.primary_offset
        placed = at_sources(g, (offset.y - primary.y, offset.x - primary.x), x.shape[1:3], clamp=False)
        dx = self._function.gradient(np.ascontiguousarray(placed), x, backend=self.backend)
        begin = offset.y + self.kernel_offset_y, offset.x + self.kernel_offset_x
        destination[region] = read(dx, begin, region.size, clamp=False)
