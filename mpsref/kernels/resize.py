"""Resize to any size, up or down, without antialiasing: of MPS, bilinear, and of MPSGraph, bilinear and nearest.

Linear ``y[i] = (1 - f) x[j0] + f x[j0 + 1]`` on each axis, with ``j0 + f = p``; outside the image the nearest pixel is
read. Nearest ``y[i] = x[j]``, where j is p rounded by one of six rules and clamped to the image.

=============================== =================================================================================
``p = i L / O``                 MPS, and MPSGraph without ``center_result``: the top left corners coincide
``p = (i + 1/2) L / O - 1/2``   MPSGraph with ``center_result``: the centres of pixels
``p = i (L - 1) / (O - 1)``     ``align_corners``, which decides alone: the corner pixels coincide; 0 where O = 1
``p = (i - offset) / scale``    MPSGraph with ``scale_offset``, which decides alone
=============================== =================================================================================

The gradient is the adjoint [math]; MPS has no gradient kernel for it, MPSGraph has.

Source: MPSNNResizeBilinear in ``MPSNNResize.h``; sizes, aligned corners [doc]; positions without alignment and the rule
at the edge [obs resize-positions]. ``resizeBilinear...`` and ``resizeNearest...`` of ``MPSGraphResizeOps.h``; positions
and rules [doc]; positions are not rounded before a rule is applied [choice mpsgraph-resize-positions], a nearest pixel
is clamped to the image [choice mpsgraph-resize-clamp], and a single output with aligned corners is at pixel 0 [choice
mpsgraph-resize-one].
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any, NoReturn

from anymetal.fork_safe import cached_property
from mpsref import codecs
from mpsref.arguments.arrays import ImageShape
from mpsref.arguments.parameters import Pair, PairLike, number, pair
from mpsref.arguments.text import shown
from mpsref.codecs import parameter
from mpsref.errors import NoGradientError
from mpsref.geometry import by_axis
from mpsref.kernels.interpolation import ROUNDINGS, Rounding, Sampling, sampling_at
from mpsref.kernels.one_image import OneImage, ReadsShape
from mpsref.kernels.upsampling import SampledProblem, forward, forward_bound, gradient, gradient_bound
from mpsref.operations import operation, shape_only


class Resize(OneImage):
    """Base of the kernels whose results have a ``size`` that is a parameter: (N, height, width, C)."""

    size: PairLike = parameter(codecs.pair("size", low=1))

    @property
    def sizes(self) -> Pair:
        """The size as a pair."""
        return pair("size", self.size)


class ForwardOnly(Resize):
    """Base of those without a gradient."""

    def gradient(self, *_: Any, **__: Any) -> NoReturn:
        """Raise ``NoGradientError``: MPS has no gradient kernel for it."""
        raise NoGradientError(
            f"{type(self).__name__} has no gradient kernel in MPS; use GraphResizeBilinear of MPSGraph, or for integer "
            "factors UpsamplingBilinear, which have one"
        )


class ResizeProblem(SampledProblem, method="forward", inputs={"x": "n h w c"}, results={"y": "large_shape"}):
    """``forward`` of a resize: y from x, or from a part of it."""

    spec: Resize

    @property
    def large_shape(self) -> ImageShape:
        """The shape of the result, which may also be smaller."""
        n, _, _, c = self.source_shape
        return n, *self.spec.sizes, c


class ResizeBilinear(ForwardOnly):
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


def _sampling(length: int, outputs: int, aligned: bool, centered: bool = False, **options: Any) -> Sampling:
    if aligned:
        return sampling_at(length, outputs, Fraction(0), Fraction(length - 1, max(1, outputs - 1)), **options)
    step = Fraction(length, outputs)
    return sampling_at(length, outputs, (step - 1) / 2 if centered else Fraction(0), step, **options)


ScaleOffset = tuple[float, float, float, float]


def _scale_offset(name: str, value: object) -> ScaleOffset:
    """Check the two scales, > 0, and the two offsets."""
    if not isinstance(value, (tuple, list)) or len(value) != 4:
        raise ValueError(
            f"{name} is {shown(value)}; it must be four numbers (scale_y, scale_x, offset_y, offset_x), or None"
        )
    sy, sx = (number(f"{name}[{k}]", value[k], 0, above=True) for k in (0, 1))
    oy, ox = (number(f"{name}[{k}]", value[k]) for k in (2, 3))
    return sy, sx, oy, ox


class GraphResize(Resize, ReadsShape):
    """Base of MPSGraph's resizes.

    Parameters
    ----------
    size : int or pair of int
        Size (height, width) of the result, >= 1.
    center_result : bool
        Whether the centres of pixels count, not their top left corners.
    align_corners : bool
        Whether the corner pixels of both images coincide; ``center_result`` does not count then.
    scale_offset : tuple of float, optional
        (scale_y, scale_x, offset_y, offset_x), scales > 0, for results at ``pixel * scale + offset``; the two flags do
        not count then.
    """

    center_result: bool = parameter(codecs.flag("centered", "cornered"), default=True)
    align_corners: bool = parameter(codecs.flag("aligned", "free"), default=False)
    scale_offset: ScaleOffset | None = parameter(codecs.numbers("at")._replace(convert=_scale_offset), default=None)

    def sampling(self, shape: ImageShape) -> tuple[Sampling, Sampling]:
        """Return how y and x of an image of ``shape`` are sampled."""
        lengths, rounding = shape[1:3], getattr(self, "rounding", None)
        if self.scale_offset is None:
            flags = partial(_sampling, aligned=self.align_corners, centered=self.center_result, rounding=rounding)
            return by_axis(flags, lengths, self.sizes)
        scales, offsets = map(Fraction, self.scale_offset[:2]), map(Fraction, self.scale_offset[2:])
        return by_axis(
            lambda length, outputs, scale, offset: sampling_at(
                length, outputs, -offset / scale, 1 / scale, rounding=rounding
            ),
            lengths,
            self.sizes,
            tuple(scales),
            tuple(offsets),
        )


class GraphResizeForward(ResizeProblem):
    """``forward`` of a resize of MPSGraph: y from x."""

    spec: GraphResize

    @cached_property
    def axes(self) -> tuple[Sampling, Sampling]:
        """How y and x are sampled."""
        return self.spec.sampling(self.source_shape)


class GraphResizeGradient(
    GraphResizeForward, method="gradient", inputs={"g": "large_shape", "x": shape_only()}, results={"dx": "n h w c"}
):
    """``gradient`` of a resize of MPSGraph: dx from g."""


class GraphResizeBilinear(GraphResize):
    """MPSGraph's bilinear resize: (N, H, W, C) to (N, height, width, C), and its gradient.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([0, 4], np.float32).reshape(1, 1, 2, 1)
    >>> GraphResizeBilinear((1, 4)).forward(x).ravel().tolist()
    [0.0, 1.0, 3.0, 4.0]
    >>> GraphResizeBilinear((1, 4)).gradient(np.ones((1, 1, 4, 1), np.float32), x).ravel().tolist()
    [2.0, 2.0]
    """


class GraphResizeNearest(GraphResize):
    """MPSGraph's resize that copies pixels: (N, H, W, C) to (N, height, width, C), and its gradient.

    Parameters
    ----------
    rounding : {"round_prefer_ceil", "round_prefer_floor", "ceil", "floor", "round_to_even", "round_to_odd"}
        How positions are rounded to pixels; or its number in MPSGraphResizeNearestRoundingMode.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(20, dtype=np.float32).reshape(1, 1, 20, 1)
    >>> GraphResizeNearest((1, 11)).forward(x).ravel().tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 11.0, 13.0, 15.0, 17.0, 19.0]
    >>> GraphResizeNearest((1, 3), rounding="floor").gradient(np.ones((1, 1, 3, 1)), (1, 1, 5, 1)).ravel().tolist()
    [1.0, 0.0, 1.0, 1.0, 0.0]
    """

    rounding: Rounding = parameter(codecs.enumerated(*ROUNDINGS), default="round_prefer_ceil")


operation(ResizeBilinear, problem=ResizeForward, bound=forward_bound)(forward)
operation(GraphResizeBilinear, GraphResizeNearest, problem=GraphResizeForward, bound=forward_bound)(forward)
operation(GraphResizeBilinear, GraphResizeNearest, problem=GraphResizeGradient, bound=gradient_bound)(gradient)
