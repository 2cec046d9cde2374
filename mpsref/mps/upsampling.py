"""Upsampling kernels with Apple's names: nearest and bilinear, and their gradients.

>>> import numpy as np
>>> up = MPSCNNUpsamplingBilinear(2, 1, edge_mode="clamp")
>>> y, state = up.encode(np.array([0, 3, 9], np.float32).reshape(1, 1, 3, 1), return_state=True)
>>> y.ravel().tolist()
[0.0, 1.5, 3.0, 6.0, 9.0, 9.0]
>>> g = np.arange(1, 7, dtype=np.float32).reshape(y.shape)
>>> MPSCNNUpsamplingBilinearGradient(2, 1).encode(g, np.zeros((1, 1, 3, 1), np.float32), state).ravel().tolist()
[2.0, 6.0, 13.0]

The result is the scale factors times as large as the source; ``padding`` decides nothing.

Source: ``MPSCNNUpsampling.h`` [doc]; integer factors only, and that the gradient, unlike Apple's, has ``align_corners``
[choice].
"""

from __future__ import annotations

import abc
from typing import Any

from mpsref.arguments.arrays import Shape
from mpsref.arguments.parameters import flag
from mpsref.kernels import UpsamplingBilinear, UpsamplingNearest
from mpsref.kernels.upsampling import Upsampling
from mpsref.mps.core import types
from mpsref.mps.core.kernel import saved
from mpsref.mps.core.properties import Alias, Property, at_least, fix
from mpsref.mps.core.types import MPSImageEdgeMode
from mpsref.mps.core.whole_image import WholeImageGradient, WholeImageKernel
from mpsref.registry import Backend

__all__ = [
    "MPSCNNUpsampling",
    "MPSCNNUpsamplingBilinear",
    "MPSCNNUpsamplingBilinearGradient",
    "MPSCNNUpsamplingGradient",
    "MPSCNNUpsamplingNearest",
    "MPSCNNUpsamplingNearestGradient",
]

FACTORS = "integer_scale_factor_x", "integer_scale_factor_y"


class Factors:
    """The scale factors, and which corners coincide; all fixed when the kernel is made."""

    integer_scale_factor_x = Property(at_least(1), 1, "How many columns each column becomes.", read_only=True)
    integer_scale_factor_y = Property(at_least(1), 1, "How many rows each row becomes.", read_only=True)
    scale_factor_x = Alias("integer_scale_factor_x", "How many columns each column becomes, as a float.", float)
    scale_factor_y = Alias("integer_scale_factor_y", "How many rows each row becomes, as a float.", float)
    align_corners = Property(flag, False, "Whether the corners of both images coincide.", read_only=True)

    @property
    def _scale(self) -> tuple[int, int]:
        return self.integer_scale_factor_y, self.integer_scale_factor_x


def _bilinear(factors: Factors, edge_mode: MPSImageEdgeMode) -> UpsamplingBilinear:
    return UpsamplingBilinear(
        factors._scale, factors.align_corners, "clamp" if edge_mode is MPSImageEdgeMode.Clamp else "zero"
    )


class MPSCNNUpsampling(Factors, WholeImageKernel):
    """Base class of the upsampling kernels, (N, H, W, C) to (N, sy H, sx W, C)."""

    def __init__(
        self,
        integer_scale_factor_x: int,
        integer_scale_factor_y: int,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel; ``TypeError`` for a factor that is no integer (2.0 is none), ``ValueError`` for one < 1."""
        fix(self, integer_scale_factor_x=integer_scale_factor_x, integer_scale_factor_y=integer_scale_factor_y)
        super().__init__(backend=backend, **properties)


@saved(*FACTORS)
class MPSCNNUpsamplingNearest(MPSCNNUpsampling):
    """Each pixel becomes a block: :class:`mpsref.UpsamplingNearest`."""

    def _function(self) -> UpsamplingNearest:
        return UpsamplingNearest(self._scale)


@saved(*FACTORS, "align_corners")
class MPSCNNUpsamplingBilinear(MPSCNNUpsampling):
    """Linear interpolation: :class:`mpsref.UpsamplingBilinear`. ``edge_mode`` says what lies behind the last pixel."""

    fixed = tuple(name for name in MPSCNNUpsampling.fixed if name != "edge_mode")

    def __init__(
        self,
        integer_scale_factor_x: int,
        integer_scale_factor_y: int,
        align_corners: bool = False,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel; errors as in :class:`MPSCNNUpsampling`; ``align_corners`` must be a bool."""
        fix(self, align_corners=align_corners)
        super().__init__(integer_scale_factor_x, integer_scale_factor_y, backend=backend, **properties)

    def _function(self) -> UpsamplingBilinear:
        return _bilinear(self, self.edge_mode)


class MPSCNNUpsamplingGradient(Factors, WholeImageGradient):
    """Base class of the upsampling gradients; of the source image only the size counts."""

    def __init__(
        self,
        integer_scale_factor_x: int,
        integer_scale_factor_y: int,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel with the factors of the forward kernel; errors as in :class:`MPSCNNUpsampling`."""
        fix(self, integer_scale_factor_x=integer_scale_factor_x, integer_scale_factor_y=integer_scale_factor_y)
        super().__init__(backend=backend, **properties)

    def _function(self, g: Shape, state: Any) -> Upsampling:
        if state is not None:
            self._take_over(state)
        function = self._own_function()
        if state is not None and function != state.record.extras["function"]:
            raise ValueError(
                f"the gradient kernel is that of {function!r}; gradient_state was left by "
                f"{state.record.extras['function']!r}: make the gradient kernel with the same factors and corners"
            )
        return function

    def _take_over(self, state: Any) -> None:
        """Set the properties that the state determines."""

    @abc.abstractmethod
    def _own_function(self) -> Upsampling:
        """Return the functional form of the properties as they are set."""


@saved(*FACTORS)
class MPSCNNUpsamplingNearestGradient(MPSCNNUpsamplingGradient):
    """The sum over the block of each pixel."""

    forward_class = MPSCNNUpsamplingNearest

    def _own_function(self) -> UpsamplingNearest:
        return UpsamplingNearest(self._scale)


@saved(*FACTORS, "align_corners")
class MPSCNNUpsamplingBilinearGradient(MPSCNNUpsamplingGradient):
    """The adjoint of bilinear upsampling; ``secondary_edge_mode`` is the forward edge mode, set by a state."""

    forward_class = MPSCNNUpsamplingBilinear
    fixed = tuple(name for name in MPSCNNUpsamplingGradient.fixed if name != "secondary_edge_mode")

    def __init__(
        self,
        integer_scale_factor_x: int,
        integer_scale_factor_y: int,
        align_corners: bool = False,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel with the numbers of the forward kernel; errors as in :class:`MPSCNNUpsamplingBilinear`."""
        fix(self, align_corners=align_corners)
        super().__init__(integer_scale_factor_x, integer_scale_factor_y, backend=backend, **properties)

    def _take_over(self, state: Any) -> None:
        self._assign(secondary_edge_mode=types.edge_mode("edge_mode", state.source.edge_mode))

    def _own_function(self) -> UpsamplingBilinear:
        return _bilinear(self, self.secondary_edge_mode)
