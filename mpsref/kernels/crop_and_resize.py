"""Bilinear resize of a box of an image; zeros outside the image.

For a box from q0 to q1 on an axis of L pixels, 0 and 1 being its first and its last pixel, output i reads the position
``p = q0 (L - 1) + i (q1 - q0) (L - 1) / (O - 1)``, or the middle of the box where O = 1: ``y[i] = (1 - f) x[j0] +
f x[j0 + 1]`` with ``j0 + f = p``. Where p lies before pixel 0 or behind pixel L - 1, the result is 0. Positions are
computed without rounding. MPS has no gradient kernel for it.

Source: MPSNNCropAndResizeBilinear in ``MPSNNResize.h`` [doc]; positions and zeros are those of TensorFlow's
``crop_and_resize`` [choice crop-boxes].
"""

from __future__ import annotations

from fractions import Fraction

from anymetal.fork_safe import cached_property
from mpsref import codecs
from mpsref.arguments.parameters import number
from mpsref.arguments.text import shown
from mpsref.codecs import parameter
from mpsref.kernels.interpolation import Sampling, sampling_at
from mpsref.kernels.resize import ForwardOnly, ResizeProblem
from mpsref.kernels.upsampling import forward, forward_bound
from mpsref.operations import operation

Box = tuple[float, float, float, float]


def _box(name: str, value: object) -> Box:
    """Check a box: four numbers, the second corner not before the first one."""
    if not isinstance(value, (tuple, list)) or len(value) != 4:
        raise ValueError(f"{name} is {shown(value)}; it must be four numbers (y0, x0, y1, x1)")
    y0, x0, y1, x1 = (number(f"{name}[{k}]", one) for k, one in enumerate(value))
    if y1 < y0 or x1 < x0:
        raise ValueError(f"{name} is {shown(value)}; it must be (y0, x0, y1, x1) with y0 <= y1 and x0 <= x1")
    return y0, x0, y1, x1


class CropAndResizeBilinear(ForwardOnly):
    """Bilinear resize of a box of the image.

    Parameters
    ----------
    size : int or pair of int
        Size (height, width) of the result, >= 1.
    box : tuple of float
        Corners (y0, x0, y1, x1), y0 <= y1 and x0 <= x1; 0 is the first pixel of an axis and 1 the last.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([1, 2, 4], np.float32).reshape(1, 1, 3, 1)
    >>> CropAndResizeBilinear((1, 4), (0, 0.25, 1, 1.75)).forward(x).ravel().tolist()
    [1.5, 3.0, 0.0, 0.0]
    """

    box: Box = parameter(codecs.numbers("box")._replace(convert=_box), default=(0.0, 0.0, 1.0, 1.0))


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
    return sampling_at(length, outputs, start, step, bounded=True)


operation(CropAndResizeBilinear, problem=CropAndResizeForward, bound=forward_bound)(forward)
