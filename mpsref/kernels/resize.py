"""Bilinear resize to any size, up or down, without antialiasing.

``y[i] = (1 - f) x[j0] + f x[j0 + 1]`` on each axis, with ``j0 + f = p``, ``p = i L / O``, or with ``align_corners``
``p = i (L - 1) / (O - 1)`` (0 where O = 1); behind the last pixel the last pixel is read. MPS has no gradient kernel
for it.

Source: MPSNNResizeBilinear in ``MPSNNResize.h``; sizes, aligned corners [doc]; positions without alignment and the rule
at the edge [obs resize-positions].
"""

from __future__ import annotations

from functools import partial
from typing import Any, NoReturn

from anymetal.fork_safe import cached_property
from mpsref import codecs
from mpsref.arguments.arrays import Array, ImageShape
from mpsref.arguments.parameters import Pair, PairLike, pair
from mpsref.codecs import parameter
from mpsref.errors import NoGradientError
from mpsref.geometry import by_axis
from mpsref.kernels.interpolation import Sampling, sampled
from mpsref.kernels.one_image import OneImage
from mpsref.kernels.reference import ErrorBound
from mpsref.kernels.upsampling import bilinear_bound
from mpsref.operations import ImageProblem, operation


class Resize(OneImage):
    """Base of the kernels whose results have a ``size`` that is a parameter: (N, height, width, C)."""

    size: PairLike = parameter(codecs.pair("size", low=1))

    @property
    def sizes(self) -> Pair:
        """The size as a pair."""
        return pair("size", self.size)

    def gradient(self, *_: Any, **__: Any) -> NoReturn:
        """Raise ``NoGradientError``: MPS has no gradient kernel for it."""
        raise NoGradientError(
            f"{type(self).__name__} has no gradient kernel in MPS; use UpsamplingBilinear, which has one, for integer "
            "factors"
        )


class ResizeProblem(ImageProblem, method="forward", inputs={"x": "n h w c"}, results={"y": "large_shape"}):
    """``forward`` of a resize: y from x, or from a part of it."""

    spec: Resize

    @property
    def large_shape(self) -> ImageShape:
        """The shape of the result, which may also be smaller."""
        n, _, _, c = self.source_shape
        return n, *self.spec.sizes, c

    @property
    def axes(self) -> tuple[Sampling, Sampling]:
        """How y and x are sampled."""
        raise NotImplementedError


class ResizeBilinear(Resize):
    """Bilinear resize to any size.

    Parameters
    ----------
    size : int or pair of int
        Size (height, width) of the result, >= 1.
    align_corners : bool
        Whether the corner pixels of both images coincide.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([3, 6], np.float32).reshape(1, 1, 2, 1)
    >>> ResizeBilinear((1, 3)).forward(x).ravel().tolist()
    [3.0, 5.0, 6.0]
    """

    align_corners: bool = parameter(codecs.flag("aligned", "free"), default=False)


class ResizeForward(ResizeProblem):
    """``forward`` of a resize of the whole image."""

    spec: ResizeBilinear

    @cached_property
    def axes(self) -> tuple[Sampling, Sampling]:
        """How y and x are sampled."""
        return by_axis(partial(_sampling, aligned=self.spec.align_corners), self.source_shape[1:3], self.spec.sizes)


def _sampling(length: int, outputs: int, aligned: bool) -> Sampling:
    if aligned:
        return Sampling(length, outputs, length - 1 if outputs > 1 else 0, max(1, outputs - 1))
    return Sampling(length, outputs, length, outputs)


def bound(problem: ResizeProblem, x: Array) -> ErrorBound:
    """As for upsampling."""
    return bilinear_bound(problem.axes, [axis.forward() for axis in problem.axes], x)


@operation(ResizeBilinear, problem=ResizeForward, bound=bound)
def forward(problem: ResizeProblem, x: Array) -> Array:
    """y = My x Mx^T, one axis after the other."""
    y, x_axis = problem.axes
    return sampled(2, x_axis, sampled(1, y, x))
