"""Crop and bilinear resize with Apple's name.

>>> import numpy as np
>>> x = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
>>> quarters = [((0, 0), (0.5, 0.5)), ((0.5, 0.5), (0.5, 0.5))]
>>> MPSNNCropAndResizeBilinear(resize_width=2, resize_height=2, regions=quarters).encode(x)[..., 0].tolist()
[[[0.0, 1.0], [3.0, 4.0]], [[4.0, 5.0], [7.0, 8.0]]]

Source: ``MPSNNResize.h`` [doc]. MPS has no gradient kernel for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpsref.arguments.arrays import Array, Shape
from mpsref.kernels import CropAndResizeBilinear
from mpsref.mps.core import types
from mpsref.mps.core.clip_regions import Region
from mpsref.mps.core.kernel import saved
from mpsref.mps.core.properties import Property, at_least, fix
from mpsref.mps.core.types import MPSRegion
from mpsref.mps.core.whole_image import WholeImageKernel
from mpsref.registry import Backend

__all__ = ["MPSNNCropAndResizeBilinear"]


def _regions(name: str, value: Any) -> tuple[MPSRegion, ...]:
    """Check a list of boxes."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be a list of boxes, MPSRegion")
    if not value:
        raise ValueError(f"{name} is empty; it must name at least one box")
    return tuple(types.box(f"{name}[{k}]", one) for k, one in enumerate(value))


@saved("resize_width", "resize_height", "regions")
class MPSNNCropAndResizeBilinear(WholeImageKernel):
    """Linear interpolation of boxes to one size: :class:`mpsref.CropAndResizeBilinear`.

    ``regions`` are :class:`MPSRegion`; 0 is the first pixel of an axis, 1 the last one, and beside the image is 0; z
    and depth mean nothing [choice]. The result has an image for each image and box: those of the first image come
    first [choice].
    """

    resize_width = Property(at_least(1), 1, "Width of the result.", read_only=True)
    resize_height = Property(at_least(1), 1, "Height of the result.", read_only=True)
    regions: Property[tuple[MPSRegion, ...]] = Property(
        _regions, (), "The boxes, a tuple of MPSRegion.", read_only=True
    )

    def __init__(
        self,
        resize_width: int,
        resize_height: int,
        regions: Any,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel; ``TypeError`` or ``ValueError`` for a size < 1 and for what is no list of boxes."""
        fix(self, resize_width=resize_width, resize_height=resize_height, regions=regions)
        super().__init__(backend=backend, **properties)

    @property
    def number_of_regions(self) -> int:
        """How many boxes there are."""
        return len(self.regions)

    def _function(self) -> tuple[CropAndResizeBilinear, ...]:
        size = self.resize_height, self.resize_width
        return tuple(
            CropAndResizeBilinear(size, (y, x, y + height, x + width)) for (x, y, _), (width, height, _) in self.regions
        )

    def _result_shape(self, source: Shape) -> Shape:
        n, _, _, channels = source
        return n * self.number_of_regions, self.resize_height, self.resize_width, channels

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        for k, function in enumerate(self._function()):
            function.forward(*parts, out=destination[k :: self.number_of_regions], backend=self.backend)
