"""Labels as a state: they go in with the weights, and the loss image comes out.

>>> labels = MPSCNNLossLabels((1, 1, 1), np.zeros((2, 4, 4, 3), np.float32))
>>> labels
<MPSCNNLossLabels: labels (2, 4, 4, 3), loss image (2, 1, 1, 1)>

Source: ``MPSCNNLossLabels`` in ``MPSCNNLoss.h`` [doc]; one object for a whole batch [choice].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array, ImageShape
from mpsref.errors import ShapeError
from mpsref.mps.core import image_arguments, types
from mpsref.mps.core.command_buffer import SynchronizedState
from mpsref.mps.core.state import MPSState
from mpsref.mps.core.types import MTLSize
from mpsref.mps.loss_descriptor import MPSCNNLossDataDescriptor

__all__ = ["MPSCNNLossLabels"]


class MPSCNNLossLabels(MPSState, SynchronizedState):
    """Labels and weights (N, H, W, C) of a batch, and the loss image (N, 1, 1, 1) or (N, H, W, C).

    All accessors raise ``NotSynchronizedError`` unless :meth:`synchronize` has completed since a loss was encoded.
    """

    def __init__(self, loss_image_size: Any, labels: Any = None, weights: Any = None) -> None:
        """Make labels in one of Apple's three ways.

        With a labels descriptor alone, the loss image has the size (1, 1, 1). With a size (width, height, channels),
        labels and weights are descriptors, whose data are copied, or images, whose pixels are read when a loss runs.
        Raises ``TypeError`` for a mixture, ``ShapeError`` for weights that are not like the labels.
        """
        if isinstance(loss_image_size, MPSCNNLossDataDescriptor):
            if labels is not None or weights is not None:
                raise TypeError("a labels descriptor as the first argument stands alone; pass a loss_image_size first")
            loss_image_size, labels = MTLSize(1, 1, 1), loss_image_size
        self._size = types.size("loss_image_size", loss_image_size)
        if labels is None:
            raise TypeError("labels is None; it must be an MPSCNNLossDataDescriptor or an image")
        if weights is not None and isinstance(labels, MPSCNNLossDataDescriptor) != isinstance(
            weights, MPSCNNLossDataDescriptor
        ):
            raise TypeError(
                f"labels is of type {type(labels).__name__} and weights of type {type(weights).__name__}; both must be "
                "descriptors, or both images"
            )
        self._labels, self._weights = _image("labels", labels), None if weights is None else _image("weights", weights)
        shape = self._array("labels").shape
        if weights is not None and self._array("weights").shape[:3] != shape[:3]:
            raise ShapeError(
                f"weights has shape {self._array('weights').shape} and labels {shape}; N, H and W must be equal"
            )
        width, height, channels = self._size
        if (height, width) not in ((1, 1), shape[1:3]):
            raise ShapeError(
                f"loss_image_size is {tuple(self._size)}; width and height must be 1 or those of the labels, "
                f"{shape[2], shape[1]}"
            )
        self._loss = np.zeros((shape[0], height, width, channels), np.float32)

    @property
    def loss_image_size(self) -> MTLSize:
        """(width, height, channels) of the loss image."""
        return self._size

    @property
    def loss_image(self) -> Array:
        """The loss image, read-only; zeros before the first loss."""
        self.check_readable("loss_image")
        view = self._loss.view()
        view.setflags(write=False)
        return view

    @property
    def labels_image(self) -> Any:
        """The labels, as the image that was passed in, or an array."""
        self.check_readable("labels_image")
        return self._labels

    @property
    def weights_image(self) -> Any:
        """The weights, as the image that was passed in, or an array; ``None`` without weights."""
        self.check_readable("weights_image")
        return self._weights

    def device_read(self) -> tuple[Array, Array | None]:
        """Return labels and weights (N, H, W, C) as a kernel that is encoded now reads them."""
        return self._array("labels"), None if self._weights is None else self._array("weights")

    def check_loss_shape(self, shape: ImageShape, reduction: str) -> None:
        """Raise ``ShapeError`` unless the loss image of a kernel has the size that was named.

        Source: the size of the source image or 1 x 1 x 1 [doc]; which of them, by the reduction [choice].
        """
        if shape != (shape[0], self._size.height, self._size.width, self._size.depth):
            _, height, width, channels = shape
            raise ShapeError(
                f"loss_image_size is {tuple(self._size)}; with the reduction {reduction!r} it must be "
                f"{(width, height, channels)} (width, height, channels)"
            )

    def device_write(self, loss: Array) -> None:
        """Write the loss image: what a kernel that is encoded now has computed."""
        self._loss = loss
        self.written()

    def _array(self, name: str) -> Array:
        return image_arguments.source(name, self._labels if name == "labels" else self._weights).array

    def __repr__(self) -> str:
        weights = "" if self._weights is None else ", weights"
        return f"<{type(self).__name__}: labels {self._array('labels').shape}{weights}, loss image {self._loss.shape}>"


def _image(name: str, value: Any) -> Any:
    """Return an array of a descriptor's data, or the image itself."""
    if isinstance(value, MPSCNNLossDataDescriptor):
        return value.array
    image_arguments.source(name, value)  # which refuses what is no image
    return value
