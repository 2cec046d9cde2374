"""Bilinear resize with Apple's names, of whole images and of boxes. MPS has no gradient kernels for them.

>>> import numpy as np
>>> x = np.array([[3, 4], [6, 10]], np.float32).reshape(1, 2, 2, 1)
>>> MPSNNResizeBilinear(resize_width=3, resize_height=2).encode(x)[0, 0, :, 0].astype(str).tolist()
['3.0', '3.6666667', '4.0']
>>> x = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
>>> quarters = [((0, 0), (0.5, 0.5)), ((0.5, 0.5), (0.5, 0.5))]
>>> MPSNNCropAndResizeBilinear(resize_width=2, resize_height=2, regions=quarters).encode(x)[..., 0].tolist()
[[[0.0, 1.0], [3.0, 4.0]], [[4.0, 5.0], [7.0, 8.0]]]

Source: ``MPSNNResize.h`` [doc].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from mpsref.arguments.arrays import Shape
from mpsref.arguments.parameters import Pair, flag
from mpsref.kernels import CropAndResizeBilinear, ResizeBilinear
from mpsref.mps.core import types
from mpsref.mps.core.call import Computation, problem_of
from mpsref.mps.core.properties import Alias, Argument, at_least, constructed, instance_of
from mpsref.mps.core.types import MPSRegion
from mpsref.mps.core.whole_image import WholeImageKernel


@constructed(init=False)
class _Resize(WholeImageKernel):
    resize_width: Argument[int] = Argument(at_least(1), "Width of the result, >= 1.")
    resize_height: Argument[int] = Argument(at_least(1), "Height of the result, >= 1.")


@constructed()
class MPSNNResizeBilinear(_Resize):
    """Linear interpolation to any size, up or down: :class:`mpsref.ResizeBilinear`."""

    align_corners: Argument[bool] = Argument(flag, "Whether the corners of both images coincide.", default=False)

    def _function(self) -> ResizeBilinear:
        return ResizeBilinear((self.resize_height, self.resize_width), self.align_corners)


def _regions(name: str, value: object) -> tuple[MPSRegion, ...]:
    """Check a list of boxes."""
    boxes = instance_of(name, value, (list, tuple), "a list of boxes, MPSRegion")
    if not boxes:
        raise ValueError(f"{name} is empty; it must name at least one box")
    return tuple(types.box(f"{name}[{k}]", region) for k, region in enumerate(boxes))


@constructed()
class MPSNNCropAndResizeBilinear(_Resize):
    """Linear interpolation of boxes to one size: :class:`mpsref.CropAndResizeBilinear`.

    The result has an image for each image and box: first all boxes of the first image [choice crop-boxes].
    """

    regions: Argument[Sequence[MPSRegion | tuple[tuple[float, ...], tuple[float, ...]]]] = Argument(
        _regions,
        "The boxes: 0 is the first pixel of an axis, 1 the last one, and outside the image is 0; z and depth have no "
        "effect [design objects-options].",
    )

    number_of_regions: ClassVar[Alias[int]] = Alias("regions", "The number of boxes.", len)

    def _function(self) -> tuple[CropAndResizeBilinear, ...]:
        size = self.resize_height, self.resize_width
        return tuple(
            CropAndResizeBilinear(size, (y, x, y + height, x + width)) for (x, y, _), (width, height, _) in self.regions
        )

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        (n, _, _, channels), step = shapes[0], self.number_of_regions
        problems = [problem_of(function, "forward", *shapes) for function in self._function()]
        return Computation(
            each=[(problem, slice(k, None, step)) for k, problem in enumerate(problems)],
            shape=(n * step, self.resize_height, self.resize_width, channels),
        )
