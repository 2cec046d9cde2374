"""Bilinear resize to any size, up or down, without antialiasing.

``y[i] = (1 - f) x[j0] + f x[j0 + 1]`` on each axis, with ``j0 + f = p``, ``p = i L / O``, or with ``align_corners``
``p = i (L - 1) / (O - 1)`` (0 where O = 1); behind the last pixel the last pixel is read. MPS has no gradient kernel
for it.

Source: MPSNNResizeBilinear in ``MPSNNResize.h``; sizes, aligned corners [doc]; positions without alignment and the rule
at the edge [choice].
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar, NoReturn

from mpsref import codecs, operations, registry
from mpsref.arguments.arrays import Array, ImageShape, Shape, as_image
from mpsref.arguments.parameters import Pair, PairLike, flag, pair
from mpsref.errors import NoGradientError
from mpsref.kernels.interpolation import Sampling, sampled
from mpsref.kernels.reference import ErrorBound
from mpsref.kernels.upsampling import bilinear_terms
from mpsref.operations import Declaration, Formula, OperationKey


class ResizeProblem(operations.ImageProblem):
    """``forward`` of a resize: y from x, or from a part of it."""

    method: ClassVar[str] = "forward"
    spec: Resize

    @property
    def large_shape(self) -> ImageShape:
        """The shape of the result, which may also be smaller."""
        n, _, _, c = self.source_shape
        return n, *self.spec.sizes, c

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The image x."""
        return {"x": self.source_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image y."""
        return (self.large_shape,)

    @property
    def axes(self) -> tuple[Sampling, Sampling]:
        """How y and x are sampled."""
        raise NotImplementedError


class ResizeForward(ResizeProblem):
    """``forward`` of a resize of the whole image."""

    spec: ResizeBilinear

    @cached_property
    def axes(self) -> tuple[Sampling, Sampling]:
        """How y and x are sampled."""
        y, x = (
            _sampling(length, outputs, self.spec.align_corners)
            for length, outputs in zip(self.source_shape[1:3], self.spec.sizes, strict=True)
        )
        return y, x


def _sampling(length: int, outputs: int, aligned: bool) -> Sampling:
    if aligned:
        return Sampling(length, outputs, length - 1 if outputs > 1 else 0, max(1, outputs - 1))
    return Sampling(length, outputs, length, outputs)


class Resize(operations.Spec):
    """What kernels have in common whose results have a ``size``."""

    size: PairLike = field(metadata={"codec": codecs.pair("size")})

    def __post_init__(self) -> None:
        """Check the size."""
        object.__setattr__(self, "size", pair("size", self.size, low=1))

    @property
    def sizes(self) -> Pair:
        """The size as a pair."""
        return pair("size", self.size)

    def forward(self, x: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return the image ``x`` (N, H, W, C) in the size of the spec, in its dtype.

        Raises ``ValueError`` or ``TypeError`` for what does not fit.
        """
        x = as_image("x", x)
        return registry.run_one(self.problems["forward"](self, x.shape), x, out=out, backend=backend)

    def gradient(self, *_: Any, **__: Any) -> NoReturn:
        """Raise ``NoGradientError``: MPS has no gradient kernel for it."""
        raise NoGradientError(
            f"{type(self).__name__} has no gradient kernel in MPS; use UpsamplingBilinear, which has one, for integer "
            "factors"
        )


class ResizeBilinear(Resize):
    """Bilinear resize to ``size`` (height, width); one integer stands for both.

    >>> import numpy as np
    >>> x = np.array([3, 6], np.float32).reshape(1, 1, 2, 1)
    >>> ResizeBilinear((1, 3)).forward(x).ravel().tolist()
    [3.0, 5.0, 6.0]
    """

    align_corners: bool = field(default=False, metadata={"codec": codecs.flag("aligned", "free")})

    problems: ClassVar = {"forward": ResizeForward}

    def __post_init__(self) -> None:
        """Check both."""
        super().__post_init__()
        object.__setattr__(self, "align_corners", flag("align_corners", self.align_corners))


def forward(problem: ResizeProblem, x: Array) -> Array:
    """y = My x Mx^T, one axis after the other."""
    y, x_axis = problem.axes
    return sampled(2, x_axis, sampled(1, y, x))


def terms(problem: ResizeProblem, x: Array) -> ErrorBound:
    """Sum of |x| over the (up to) four neighbours, and m = 20."""
    return bilinear_terms(problem.axes, x)


SPECS = (ResizeBilinear,)
REFERENCE: dict[OperationKey, Formula] = {(ResizeBilinear, "forward"): forward}
TERMS: dict[OperationKey, Formula] = {(ResizeBilinear, "forward"): terms}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
