"""Reshape with Apple's names, and its gradient.

>>> import numpy as np
>>> x = np.arange(1, 13, dtype=np.float32).reshape(1, 2, 3, 2)
>>> y, state = MPSNNReshape().encode(
...     x, reshaped_width=1, reshaped_height=3, reshaped_feature_channels=4, return_state=True
... )
>>> y[0, :, 0].tolist()
[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0]]
>>> MPSNNReshapeGradient().encode(y, x, state).shape
(1, 2, 3, 2)

Source: ``MPSNNReshape.h`` [doc]; the order of the elements [choice].
"""

from __future__ import annotations

from typing import Any

from mpsref.arguments.arrays import Shape
from mpsref.arguments.parameters import choice, integer
from mpsref.kernels import Reshape
from mpsref.kernels.reshape import ORDERS
from mpsref.mps.core import image_arguments
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.core.kernel import saved
from mpsref.mps.core.properties import Property
from mpsref.mps.core.whole_image import WholeImageGradient, WholeImageKernel

__all__ = ["MPSNNReshape", "MPSNNReshapeGradient"]


def _order(name: str, value: Any) -> str:
    return choice(name, value, ORDERS)


@saved()
class MPSNNReshape(WholeImageKernel):
    """The same elements in another shape, which each ``encode`` names: :class:`mpsref.Reshape`."""

    element_order = Property(_order, "HWC", 'Which elements are neighbours: "HWC", channels first; or "CHW".')

    _size: tuple[int, int, int]

    def encode(  # type: ignore[override]  # Apple's selector, too, has the size among its arguments
        self,
        source_image: Any,
        destination_image: Any = None,
        *,
        reshaped_width: int,
        reshaped_height: int,
        reshaped_feature_channels: int,
        return_state: bool = False,
        destination_state: Any = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Any:
        """Return ``source_image`` (N, H, W, C) in the new shape; all else as in :meth:`MPSCNNKernel.encode`.

        Raises ``ShapeError`` unless both shapes have as many elements.
        """
        source = image_arguments.source("source_image", source_image)
        sizes = {"height": reshaped_height, "width": reshaped_width, "feature_channels": reshaped_feature_channels}
        height, width, channels = (integer(f"reshaped_{name}", value, low=1) for name, value in sizes.items())
        sized = self.copy()
        sized._size = height, width, channels
        return sized._encode((source,), destination_image, None, return_state, destination_state, command_buffer)

    encode_batch = encode  # type: ignore[assignment]  # as above

    def _function(self) -> Reshape:
        return Reshape(self._size, choice("element_order", self.element_order, ORDERS))  # type: ignore[arg-type]


@saved()
class MPSNNReshapeGradient(WholeImageGradient):
    """The source gradient in the shape of the source image; a state sets the order of the elements."""

    forward_class = MPSNNReshape
    element_order = Property(_order, "HWC", "As in the forward kernel.")

    def _function(self, g: Shape, state: Any) -> Reshape:
        if state is not None:
            function: Reshape = state.record.extras["function"]
            self._assign(element_order=function.element_order)
            return function
        _, height, width, channels = g
        return Reshape((height, width, channels), self.element_order)  # type: ignore[arg-type]
