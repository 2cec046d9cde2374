"""Bilinear resize of a box of an image; 0 is read beside the image.

For a box from q0 to q1 on an axis of L pixels, 0 and 1 being its first and its last pixel, output i reads the position
``p = q0 (L - 1) + i (q1 - q0) (L - 1) / (O - 1)``, or the middle of the box where O = 1: ``y[i] = (1 - f) x[j0] +
f x[j0 + 1]`` with ``j0 + f = p``. Where p lies before pixel 0 or behind pixel L - 1, the result is 0. Positions are
computed without rounding. MPS has no gradient kernel for it.

Source: MPSNNCropAndResizeBilinear in ``MPSNNResize.h`` [doc]; positions and zeros are those of TensorFlow's
``crop_and_resize`` [choice].
"""

from __future__ import annotations

import math
from dataclasses import field
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

from mpsref import codecs
from mpsref.arguments.parameters import number
from mpsref.kernels.interpolation import Sampling
from mpsref.kernels.resize import Resize, ResizeProblem, forward, terms
from mpsref.operations import Declaration, Formula, OperationKey

Box = tuple[float, float, float, float]


class CropAndResizeForward(ResizeProblem):
    """``forward`` of crop and resize: y from the box of x."""

    spec: CropAndResizeBilinear

    @cached_property
    def axes(self) -> tuple[Sampling, Sampling]:
        """How y and x are sampled."""
        y0, x0, y1, x1 = map(Fraction, self.spec.box)
        (height, width), (rows, columns) = self.source_shape[1:3], self.spec.sizes
        return _sampling(height, rows, y0, y1), _sampling(width, columns, x0, x1)


def _sampling(length: int, outputs: int, low: Fraction, high: Fraction) -> Sampling:
    start, step = (low + high) / 2 * (length - 1), Fraction(0)
    if outputs > 1:
        start, step = low * (length - 1), (high - low) * (length - 1) / (outputs - 1)
    common = math.lcm(start.denominator, step.denominator)
    return Sampling(length, outputs, int(step * common), common, start=int(start * common), bounded=True)


def _box(name: str, value: Any) -> Box:
    """Check a box: four numbers, the second corner not before the first one."""
    if not isinstance(value, (tuple, list)) or len(value) != 4:
        raise ValueError(f"{name} is {value!r}; it must be four numbers (y0, x0, y1, x1)")
    y0, x0, y1, x1 = (number(f"{name}[{k}]", one) for k, one in enumerate(value))
    if y1 < y0 or x1 < x0:
        raise ValueError(f"{name} is {value!r}; it must be (y0, x0, y1, x1) with y0 <= y1 and x0 <= x1")
    return y0, x0, y1, x1


class CropAndResizeBilinear(Resize):
    """Bilinear resize of ``box`` (y0, x0, y1, x1) to ``size`` (height, width); one integer stands for both.

    >>> import numpy as np
    >>> x = np.array([1, 2, 4], np.float32).reshape(1, 1, 3, 1)
    >>> CropAndResizeBilinear((1, 4), (0, 0.25, 1, 1.75)).forward(x).ravel().tolist()
    [1.5, 3.0, 0.0, 0.0]
    """

    box: Box = field(default=(0.0, 0.0, 1.0, 1.0), metadata={"codec": codecs.numbers("box")})

    problems: ClassVar = {"forward": CropAndResizeForward}

    def __post_init__(self) -> None:
        """Check both."""
        super().__post_init__()
        object.__setattr__(self, "box", _box("box", self.box))


SPECS = (CropAndResizeBilinear,)
REFERENCE: dict[OperationKey, Formula] = {(CropAndResizeBilinear, "forward"): forward}
TERMS: dict[OperationKey, Formula] = {(CropAndResizeBilinear, "forward"): terms}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
