"""Upsampling with Apple's names, nearest and bilinear: kernels, their gradients, and nodes of graphs.

>>> import numpy as np
>>> up = MPSCNNUpsamplingBilinear(2, 1, edge_mode="clamp")
>>> y, state = up.encode(np.array([0, 3, 9], np.float32).reshape(1, 1, 3, 1), return_state=True)
>>> y.ravel().tolist()
[0.0, 1.5, 3.0, 6.0, 9.0, 9.0]
>>> g = np.arange(1, 7, dtype=np.float32).reshape(y.shape)
>>> MPSCNNUpsamplingBilinearGradient(2, 1).encode(g, np.zeros((1, 1, 3, 1), np.float32), state).ravel().tolist()
[2.0, 6.0, 13.0]

The result is the scale factors times as large as the source; ``padding`` has no effect.

Source: ``MPSCNNUpsampling.h``, ``MPSNNGraphNodes.h`` [doc]; integer factors only, and that the gradient, unlike
Apple's, has ``align_corners`` [choice upsampling-aligned-gradient].
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

from mpsref.arguments.arrays import Shape
from mpsref.arguments.parameters import Pair, flag
from mpsref.kernels import UpsamplingBilinear, UpsamplingNearest
from mpsref.kernels.upsampling import Upsampling
from mpsref.mps.core.call import Computation, made, problem_of
from mpsref.mps.core.properties import Alias, Argument, Property, at_least, constructed
from mpsref.mps.core.types import MPSImageEdgeMode
from mpsref.mps.core.whole_image import WholeImageGradient, WholeImageKernel
from mpsref.mps.graph.nodes import ForwardKernelNode, GradientKernelNode


@constructed(init=False)
class _Factors:
    """The parameters of kernels and nodes, which are set when they are made."""

    integer_scale_factor_x: Argument[int] = Argument(at_least(1), "Result columns for each column, >= 1.")
    integer_scale_factor_y: Argument[int] = Argument(at_least(1), "Result rows for each row, >= 1.")
    scale_factor_x = Alias("integer_scale_factor_x", "Result columns for each column; a float as a property.", float)
    scale_factor_y = Alias("integer_scale_factor_y", "Result rows for each row; a float as a property.", float)
    align_corners = Property(flag, False, "Whether the corners of both images coincide.", read_only=True)


class _Nearest(_Factors):
    def _spec(self, edge_mode: MPSImageEdgeMode) -> Upsampling:
        return made(UpsamplingNearest, (self.integer_scale_factor_y, self.integer_scale_factor_x))  # type: ignore[no-any-return]


@constructed(init=False)
class _Bilinear(_Factors):
    align_corners: Argument[bool] = Argument(flag, "Whether the corners of both images coincide.", default=False)

    def _spec(self, edge_mode: MPSImageEdgeMode) -> Upsampling:
        scale = self.integer_scale_factor_y, self.integer_scale_factor_x
        mode = "clamp" if edge_mode is MPSImageEdgeMode.Clamp else "zero"
        return made(UpsamplingBilinear, scale, self.align_corners, mode)  # type: ignore[no-any-return]


# --- kernels ----------------------------------------------------------------------------------------------------------


@constructed()
class MPSCNNUpsampling(_Factors, WholeImageKernel):
    """Base class of the upsampling kernels, (N, H, W, C) to (N, sy H, sx W, C)."""

    @abc.abstractmethod
    def _spec(self, edge_mode: MPSImageEdgeMode) -> Upsampling:
        """Return the functional form."""

    def _function(self) -> Upsampling:
        return self._spec(self.edge_mode)


class MPSCNNUpsamplingNearest(_Nearest, MPSCNNUpsampling):
    """Each pixel becomes a block: :class:`mpsref.UpsamplingNearest`."""


@constructed()
class MPSCNNUpsamplingBilinear(_Bilinear, MPSCNNUpsampling):
    """Linear interpolation: :class:`mpsref.UpsamplingBilinear`. ``edge_mode`` is what follows the last pixel."""

    fixed = tuple(name for name in MPSCNNUpsampling.fixed if name != "edge_mode")


@constructed()
class MPSCNNUpsamplingGradient(_Factors, WholeImageGradient):
    """Base class of the upsampling gradients; of the source image only the size is used."""

    @abc.abstractmethod
    def _spec(self, edge_mode: MPSImageEdgeMode) -> Upsampling:
        """Return the functional form."""

    def _configuration(self, state: Any, g: Shape, x: Shape) -> Mapping[str, object]:
        known, mode = super()._configuration(state, g, x), state.source.edge_mode
        function, forward = self._spec(mode), state.record.extras["function"]
        if function != forward:
            raise ValueError(
                f"the gradient is that of {function!r}; gradient_state was left by {forward!r}: make the gradient with "
                "the same factors and corners"
            )
        return {**known, "secondary_edge_mode": mode}

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        return Computation(problem_of(self._spec(self.secondary_edge_mode), "gradient", shapes[1]))


class MPSCNNUpsamplingNearestGradient(_Nearest, MPSCNNUpsamplingGradient):
    """The gradient of nearest upsampling: the sum over the block of each pixel."""

    forward_class = MPSCNNUpsamplingNearest


@constructed()
class MPSCNNUpsamplingBilinearGradient(_Bilinear, MPSCNNUpsamplingGradient):
    """The adjoint of bilinear upsampling; ``secondary_edge_mode`` is the forward edge mode, set by a state."""

    forward_class = MPSCNNUpsamplingBilinear
    fixed = tuple(name for name in MPSCNNUpsamplingGradient.fixed if name != "secondary_edge_mode")


# --- nodes of graphs: a padding policy has no effect [doc], and outside the image are zeros ---------------------------


@constructed(init=False)
class _GradientNode(_Factors, GradientKernelNode):
    reads_pixels = False
    integer_scale_factor_x: Argument[int] = Argument(_Factors.integer_scale_factor_x, alias="scale_factor_x")
    integer_scale_factor_y: Argument[int] = Argument(_Factors.integer_scale_factor_y, alias="scale_factor_y")


@constructed()
class MPSCNNUpsamplingNearestGradientNode(_GradientNode, _Nearest):
    """The gradient of nearest upsampling, with the factors of the forward node."""

    kernel_class = MPSCNNUpsamplingNearestGradient


@constructed()
class MPSCNNUpsamplingBilinearGradientNode(_GradientNode, _Bilinear):
    """The gradient of bilinear upsampling, with the factors of the forward node."""

    kernel_class = MPSCNNUpsamplingBilinearGradient


@constructed()
class MPSCNNUpsamplingNearestNode(_Nearest, ForwardKernelNode):
    """Nearest upsampling."""

    kind, spec_class, kernel_class = "near", UpsamplingNearest, MPSCNNUpsamplingNearest
    custom_policy = "ignored"
    gradient_class = MPSCNNUpsamplingNearestGradientNode


@constructed()
class MPSCNNUpsamplingBilinearNode(_Bilinear, ForwardKernelNode):
    """Bilinear upsampling."""

    kind, spec_class, kernel_class = "bilin", UpsamplingBilinear, MPSCNNUpsamplingBilinear
    custom_policy = "ignored"
    gradient_class = MPSCNNUpsamplingBilinearGradientNode
