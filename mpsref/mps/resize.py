"""Bilinear resize with Apple's name.

>>> import numpy as np
>>> x = np.array([[3, 4], [6, 10]], np.float32).reshape(1, 2, 2, 1)
>>> MPSNNResizeBilinear(resize_width=3, resize_height=2).encode(x)[0, 0, :, 0].astype(str).tolist()
['3.0', '3.6666667', '4.0']

Source: ``MPSNNResize.h`` [doc]. MPS has no gradient kernel for it.
"""

from __future__ import annotations

from typing import Any

from mpsref.arguments.parameters import flag
from mpsref.kernels import ResizeBilinear
from mpsref.mps.core.kernel import saved
from mpsref.mps.core.properties import Property, at_least, fix
from mpsref.mps.core.whole_image import WholeImageKernel
from mpsref.registry import Backend

__all__ = ["MPSNNResizeBilinear"]


@saved("resize_width", "resize_height", "align_corners")
class MPSNNResizeBilinear(WholeImageKernel):
    """Linear interpolation to any size, up or down: :class:`mpsref.ResizeBilinear`."""

    resize_width = Property(at_least(1), 1, "Width of the result.", read_only=True)
    resize_height = Property(at_least(1), 1, "Height of the result.", read_only=True)
    align_corners = Property(flag, False, "Whether the corners of both images coincide.", read_only=True)

    def __init__(
        self,
        resize_width: int,
        resize_height: int,
        align_corners: bool = False,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel; ``TypeError`` for a size that is no integer, ``ValueError`` for one < 1."""
        fix(self, resize_width=resize_width, resize_height=resize_height, align_corners=align_corners)
        super().__init__(backend=backend, **properties)

    def _function(self) -> ResizeBilinear:
        return ResizeBilinear((self.resize_height, self.resize_width), self.align_corners)
