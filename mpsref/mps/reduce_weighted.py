"""Weighted reductions of the feature channels: two images in, one value for each pixel out.

>>> import numpy as np
>>> x = np.array([[1, 2, 3], [4, 5, 6]], np.float32).reshape(1, 1, 2, 3)
>>> w = np.array([[1, 0, 2], [0, 0, 0]], np.float32).reshape(1, 1, 2, 3)
>>> MPSNNReduceFeatureChannelsAndWeightsSum().encode(x, w).ravel().tolist()
[7.0, 0.0]
>>> MPSNNReduceFeatureChannelsAndWeightsSum(do_weighted_sum_by_non_zero_weights=True).encode(x, w).ravel().tolist()
[3.5, 0.0]

Products and sums are those of :class:`mpsref.Arithmetic` and :class:`mpsref.Reduce` on the kernel's backend, in float32
for float16 images, and rounded once when they are stored.

Source: ``MPSNNReduce.h`` [doc]; the sum over pixels without a weight is 0, the mean divides by the number of channels,
and both images have one shape [choice]. MPS has no gradient kernel for them.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import flag
from mpsref.errors import ShapeError
from mpsref.kernels import Arithmetic, Reduce
from mpsref.mps.core import types
from mpsref.mps.core.clip_regions import Region
from mpsref.mps.core.image_arguments import ImageArgument
from mpsref.mps.core.kernel import MPSCNNBinaryKernel, saved
from mpsref.mps.core.properties import Property, fix
from mpsref.mps.core.types import MTLRegion
from mpsref.mps.core.whole_image import DESTINATION, SOURCE, require_defaults, require_whole, whole
from mpsref.registry import Backend

__all__ = [
    "MPSNNReduceBinary",
    "MPSNNReduceFeatureChannelsAndWeightsMean",
    "MPSNNReduceFeatureChannelsAndWeightsSum",
]

FIXED = (*DESTINATION, *(prefix + name for prefix in MPSCNNBinaryKernel.prefixes for name in SOURCE))
"""The properties that must keep their defaults."""

MULTIPLY = Arithmetic("multiply")
DIVIDE = Arithmetic("divide")


class MPSNNReduceBinary(MPSCNNBinaryKernel):
    """Base class: the primary image times the secondary one, the weights, reduced along the channels.

    The result is (N, H, W, 1), with the size of the parts that are read; both parts must have one shape.
    """

    primary_source_clip_rect = Property(
        types.region,
        None,
        "The part of the primary image that is read, MTLRegion; ``None``: all. It is cut to the image.",
    )
    secondary_source_clip_rect = Property(types.region, None, "The same for the secondary image.")

    def _parts(self, sources: Sequence[ImageArgument]) -> list[Array]:
        """Return what is read of both images; raise ``ShapeError`` unless that has one shape."""
        rects = self.primary_source_clip_rect, self.secondary_source_clip_rect
        x, w = (
            _read(prefix + "source_clip_rect", one, rect)
            for prefix, one, rect in zip(self.prefixes, sources, rects, strict=True)
        )
        if x.shape != w.shape:
            raise ShapeError(
                f"{type(self).__name__} reads {x.shape} of primary_image and {w.shape} of secondary_image; there must "
                "be a weight for each element"
            )
        return [x, w]

    def _result_shape(self, sources: Sequence[ImageArgument]) -> Shape:
        x, _ = self._parts(sources)
        return *x.shape[:3], 1

    def _place(self, sources: Sequence[ImageArgument]) -> tuple[Shape, Any]:
        return self._result_shape(sources), sources[0].array.dtype.newbyteorder("=")

    def _destination_shape(self, sources: Sequence[ImageArgument], size: Any) -> Shape:
        n, *_ = self._result_shape(sources)
        return n, *size, 1

    def _select(self, sources: Sequence[ImageArgument], shape: Shape) -> tuple[list[Array], Region]:
        require_defaults(self, *FIXED)
        require_whole(self, self.destination_name, whole(shape), self._result_shape(sources))
        return self._parts(sources), whole(shape)

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        x, w = (part.astype(np.result_type(part, np.float32), copy=False) for part in parts)
        total = self._reduced(MULTIPLY.forward(x, w, backend=self.backend), w)
        with np.errstate(over="ignore"):  # storing in float16 may overflow to infinity
            destination[region] = total

    @abc.abstractmethod
    def _reduced(self, products: Array, weights: Array) -> Array:
        """Return the result from the products of each element with its weight."""


def _read(name: str, source: ImageArgument, rect: MTLRegion | None) -> Array:
    """Return the part of an image in ``rect``; raise ``ValueError`` where nothing lies in both."""
    if rect is None:
        return source.array
    (x, y, z), (width, height, depth) = rect
    part = source.array[z : z + depth, y : y + height, x : x + width]
    if 0 in part.shape:
        raise ValueError(
            f"{name} is {rect} and {source.name} has shape {source.array.shape}: nothing lies in both; they must "
            "overlap"
        )
    return part


@saved("do_weighted_sum_by_non_zero_weights")
class MPSNNReduceFeatureChannelsAndWeightsSum(MPSNNReduceBinary):
    """The sum of ``x[c] w[c]`` over the channels c of each pixel."""

    do_weighted_sum_by_non_zero_weights = Property(
        flag, False, "Whether a sum is divided by how many of its weights are not 0.", read_only=True
    )

    def __init__(
        self,
        do_weighted_sum_by_non_zero_weights: bool = False,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel; ``TypeError`` for a flag that is no bool."""
        fix(self, do_weighted_sum_by_non_zero_weights=do_weighted_sum_by_non_zero_weights)
        super().__init__(backend=backend, **properties)

    def _reduced(self, products: Array, weights: Array) -> Array:
        total = Reduce("sum", "featurechannels").forward(products, backend=self.backend)
        if not self.do_weighted_sum_by_non_zero_weights:
            return total
        used = np.maximum(np.count_nonzero(weights, axis=3, keepdims=True), 1)  # without any, the sum is 0
        return DIVIDE.forward(total, used.astype(total.dtype), backend=self.backend)


@saved()
class MPSNNReduceFeatureChannelsAndWeightsMean(MPSNNReduceBinary):
    """The sum of ``x[c] w[c]`` over the channels c of each pixel, divided by the number of channels."""

    def _reduced(self, products: Array, weights: Array) -> Array:
        return Reduce("mean", "featurechannels").forward(products, backend=self.backend)
