"""Reductions with Apple's names: along rows, columns or feature channels.

>>> import numpy as np
>>> x = np.arange(1, 13, dtype=np.float32).reshape(1, 2, 3, 2)
>>> MPSNNReduceRowSum().encode(x)[0, :, 0].tolist(), MPSNNReduceColumnSum().encode(x).shape
([[9.0, 12.0], [27.0, 30.0]], (1, 1, 3, 2))
>>> MPSNNReduceFeatureChannelsMax().encode(x)[0, :, :, 0].tolist()
[[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]

Source: ``MPSNNReduce.h`` [doc]. MPS has no gradient kernel for these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import number
from mpsref.kernels import Reduce
from mpsref.kernels import reduce as kernels
from mpsref.mps.core import types
from mpsref.mps.core.clip_regions import Region, count
from mpsref.mps.core.kernel import saved
from mpsref.mps.core.properties import Property
from mpsref.mps.core.whole_image import WholeImageKernel

__all__ = [
    "MPSNNReduceColumnMax",
    "MPSNNReduceColumnMean",
    "MPSNNReduceColumnMin",
    "MPSNNReduceColumnSum",
    "MPSNNReduceFeatureChannelsArgumentMax",
    "MPSNNReduceFeatureChannelsArgumentMin",
    "MPSNNReduceFeatureChannelsMax",
    "MPSNNReduceFeatureChannelsMean",
    "MPSNNReduceFeatureChannelsMin",
    "MPSNNReduceFeatureChannelsSum",
    "MPSNNReduceRowMax",
    "MPSNNReduceRowMean",
    "MPSNNReduceRowMin",
    "MPSNNReduceRowSum",
    "MPSNNReduceUnary",
]


class MPSNNReduceUnary(WholeImageKernel):
    """Base class of the reductions: :class:`mpsref.Reduce` of the part of the image in ``clip_rect_source``.

    The result has the size of that part, and a length of 1 along the axis that is reduced. ``offset`` is ignored [doc].
    """

    fixed = tuple(name for name in WholeImageKernel.fixed if name != "offset")

    clip_rect_source = Property(
        types.region, None, "The part of the source that is read, MTLRegion; ``None``: all. It is cut to the image."
    )


class Reduction(MPSNNReduceUnary):
    """A reduction that the functional form has."""

    operation: ClassVar[kernels.Reduction]
    over: ClassVar[kernels.Over]

    def _weight(self) -> float:
        """Return what the sum is multiplied by."""
        return 1.0

    def _function(self) -> Reduce:
        rect = self.clip_rect_source
        clip = rect and ((rect.origin.y, rect.origin.x), (rect.size.height, rect.size.width))
        return Reduce(self.operation, self.over, self._weight(), clip)

    def _images(self, number: int) -> slice:
        """Return the images of a batch that are read."""
        rect = self.clip_rect_source
        if rect is None:
            return slice(0, number)
        stop = min(number, rect.origin.z + rect.size.depth)
        if rect.origin.z >= stop:
            raise ValueError(
                f"clip_rect_source is {rect} and source_image has {number} images: nothing lies in both; its origin.z "
                "and size.depth must name one of them"
            )
        return slice(rect.origin.z, stop)

    def _result_shape(self, source: Shape) -> Shape:
        n, *lengths = source
        return super()._result_shape((count(self._images(n)), *lengths))

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        (image,) = parts
        super()._compute([image[self._images(len(image))]], destination, region)


class Row(Reduction):
    """One value for each row and channel: (N, H, 1, C)."""

    over = "row"


class Column(Reduction):
    """One value for each column and channel: (N, 1, W, C)."""

    over = "column"


class FeatureChannels(Reduction):
    """One value for each pixel: (N, H, W, 1)."""

    over = "featurechannels"


@saved()
class MPSNNReduceRowMin(Row):
    """The smallest value of each row."""

    operation = "min"


@saved()
class MPSNNReduceRowMax(Row):
    """The largest value of each row."""

    operation = "max"


@saved()
class MPSNNReduceRowMean(Row):
    """The mean of each row."""

    operation = "mean"


@saved()
class MPSNNReduceRowSum(Row):
    """The sum of each row."""

    operation = "sum"


@saved()
class MPSNNReduceColumnMin(Column):
    """The smallest value of each column."""

    operation = "min"


@saved()
class MPSNNReduceColumnMax(Column):
    """The largest value of each column."""

    operation = "max"


@saved()
class MPSNNReduceColumnMean(Column):
    """The mean of each column."""

    operation = "mean"


@saved()
class MPSNNReduceColumnSum(Column):
    """The sum of each column."""

    operation = "sum"


@saved()
class MPSNNReduceFeatureChannelsMin(FeatureChannels):
    """The smallest channel of each pixel."""

    operation = "min"


@saved()
class MPSNNReduceFeatureChannelsMax(FeatureChannels):
    """The largest channel of each pixel."""

    operation = "max"


@saved()
class MPSNNReduceFeatureChannelsMean(FeatureChannels):
    """The mean of the channels of each pixel."""

    operation = "mean"


@saved()
class MPSNNReduceFeatureChannelsSum(FeatureChannels):
    """``weight`` times the sum of the channels of each pixel."""

    operation = "sum"
    weight = Property(number, 1.0, "What the sum is multiplied by.")

    def _weight(self) -> float:
        return self.weight


@saved()
class MPSNNReduceFeatureChannelsArgumentMin(FeatureChannels):
    """The index, as a float, of the smallest channel of each pixel; the lowest of equal ones [choice]."""

    operation = "argumentmin"


@saved()
class MPSNNReduceFeatureChannelsArgumentMax(FeatureChannels):
    """The index, as a float, of the largest channel of each pixel; the lowest of equal ones [choice]."""

    operation = "argumentmax"
