"""A box cut out of an image, with Apple's name.

>>> import numpy as np
>>> x = np.arange(12, dtype=np.float32).reshape(1, 2, 3, 2)
>>> MPSNNSlice(offset_y=1, offset_x=1, feature_channel_offset=1).encode(x).ravel().tolist()
[9.0, 11.0]

Source: ``MPSNNSlice.h`` [doc], whose kernel takes its size from the clip rectangle; here it has arguments for it
[choice]. MPS declares no gradient for it.
"""

from __future__ import annotations

from typing import Any

from mpsref.arguments.parameters import integer
from mpsref.kernels import Slice
from mpsref.mps.core.kernel import saved
from mpsref.mps.core.properties import Property, at_least, fix, optional
from mpsref.mps.core.whole_image import WholeImageKernel
from mpsref.registry import Backend

__all__ = ["MPSNNSlice"]


@saved()
class MPSNNSlice(WholeImageKernel):
    """The box from the offsets on, zeros where it reaches beyond the image: :class:`mpsref.Slice`.

    ``None`` for a size means "to the end". Every number can be set later.
    """

    offset_y = Property(integer, 0, "The first row; any integer.")
    offset_x = Property(integer, 0, "The first column; any integer.")
    feature_channel_offset = Property(at_least(0), 0, "The first channel.")
    height = Property(optional(at_least(1)), None, "How many rows; ``None``: to the end.")
    width = Property(optional(at_least(1)), None, "How many columns; ``None``: to the end.")
    feature_channels = Property(optional(at_least(1)), None, "How many channels; ``None``: to the end.")

    def __init__(
        self,
        offset_y: int = 0,
        offset_x: int = 0,
        feature_channel_offset: int = 0,
        height: int | None = None,
        width: int | None = None,
        feature_channels: int | None = None,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel; ``TypeError`` for what is no integer, ``ValueError`` for a size < 1."""
        fix(self, offset_y=offset_y, offset_x=offset_x, feature_channel_offset=feature_channel_offset)
        fix(self, height=height, width=width, feature_channels=feature_channels)
        super().__init__(backend=backend, **properties)

    def _function(self) -> Slice:
        return Slice(
            (self.offset_y, self.offset_x, self.feature_channel_offset),
            (self.height, self.width, self.feature_channels),
        )
