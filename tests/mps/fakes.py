"""Minimal kernels, which inherit everything but their arithmetic from the base classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpsref import mps
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair
from mpsref.mps import MPSCNNBinaryKernel, MPSCNNKernel, MPSCNNMultiaryKernel
from mpsref.mps.core.call import Computation
from mpsref.mps.core.gradient_kernel import WindowedGradient
from mpsref.mps.core.kernel import saved
from mpsref.mps.core.properties import Property, at_least

NAMES = {name: getattr(mps, name) for name in mps.__all__}
"""Names for the evaluation of a ``repr``."""


def shifted(part: Array, offset: Any, size: tuple[int, int]) -> Array:
    """result = the pixels starting at ``offset``, zeros outside the image."""
    result = np.zeros((part.shape[0], *size, part.shape[3]), part.dtype)
    for y in range(size[0]):
        for x in range(size[1]):
            if 0 <= offset.y + y < part.shape[1] and 0 <= offset.x + x < part.shape[2]:
                result[:, y, x] = part[:, offset.y + y, offset.x + x]
    return result


@saved()
class Shift(MPSCNNKernel):
    """result = source, times ``factor``."""

    factor = Property(at_least(1), 1, "What pixels are multiplied by.")

    def _extras(self) -> Mapping[str, Any]:
        return {"factor": self.factor}

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        return Computation(compute=lambda parts, _: shifted(parts[0], self.offset, size) * self.factor)


@saved()
class Difference(MPSCNNBinaryKernel):
    """result = primary - secondary."""

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        offsets = self.primary_offset, self.secondary_offset
        return Computation(
            compute=lambda parts, _: np.subtract(*(shifted(*of, size) for of in zip(parts, offsets, strict=True)))
        )


@saved("source_count")
class Sum(MPSCNNMultiaryKernel):
    """result = the sum of the sources, the k-th one times 10**k."""

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        return Computation(
            compute=lambda parts, _: sum(shifted(part, self.offset[k], size) * 10**k for k, part in enumerate(parts))
        )


@saved()
class ShiftGradient(WindowedGradient):
    """The gradient of :class:`Shift`, as a kernel without a source size: form (C) of a window of one pixel."""

    forward_class = Shift
    factor = Property(at_least(1), 1, "What pixels are multiplied by.")

    def _configuration(self, state: Any, g: Shape, x: Shape) -> Mapping[str, Any]:
        return {**super()._configuration(state, g, x), **state.record.extras}

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        effective = self.primary_offset._replace(
            x=self.primary_offset.x + self.kernel_offset_x, y=self.primary_offset.y + self.kernel_offset_y
        )
        return Computation(compute=lambda parts, _: shifted(parts[0], effective, size) * self.factor)
