"""Concatenation of images along their channels, each padded to a multiple of four; and its gradient, the slices.

Forward   ``out[..., off_k + c] = x_k[..., c]`` for ``c < C_k``, 0 in the channels that pad a source;
          ``off_k`` is the sum over the sources before k of C rounded up to a multiple of ``channel_alignment``
Gradient  ``dx_k[..., c] = g[..., off_k + c]``; the gradient in padding channels is ignored

MPS stores channels in groups of four and pads every source, including the last one, and the weights of the next layer
have the same gaps. ``channel_alignment=1`` is the concatenation of other frameworks; both agree for sources whose
channels are a multiple of four.

Source: MPSNNConcatenationNode in ``MPSNNGraphNodes.h``; the padding [doc], its zeros [obs concatenation-padding], 0 in
all of them [choice concatenation-padding].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from anymetal.fork_safe import cached_property
from mpsref import codecs
from mpsref.arguments.arrays import Array, Shape, as_image, as_shape, is_shape
from mpsref.backend import BackendLike
from mpsref.codecs import parameter
from mpsref.errors import ShapeError
from mpsref.kernels.reference import selected
from mpsref.operations import Argument, Problem, Spec, operation
from mpsref.registry import call


class Concatenation(Spec):
    """Concatenation along channels.

    Parameters
    ----------
    channel_alignment : int
        Each source occupies a multiple of this number of channels in the result, >= 1.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = (np.array(row, np.float32).reshape(1, 1, 1, -1) for row in ([1, 2, 3], [4, 5, 6, 7, 8]))
    >>> Concatenation().forward([x, y]).ravel().tolist()
    [1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.0, 0.0, 0.0]
    >>> Concatenation(channel_alignment=1).forward([x, y]).ravel().tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    """

    channel_alignment: int = parameter(codecs.integer("align", low=1), default=4)

    def aligned(self, channels: int) -> int:
        """Return the number of channels that a source occupies in the result."""
        return -(-channels // self.channel_alignment) * self.channel_alignment

    def forward(self, xs: Sequence[ArrayLike], *, out: Array | None = None, backend: BackendLike = None) -> Array:
        """Concatenate images.

        Parameters
        ----------
        xs : sequence of array_like, each of shape (N, H, W, C_k)
            Source images, at least one.

        Returns
        -------
        ndarray, shape (N, H, W, C)
            In the dtype of the first image.

        Raises
        ------
        ShapeError
            If N, H or W differ.
        """
        return call(self, "forward", tuple(_sequence("xs", xs)), out=out, backend=backend)

    def gradient(
        self, g: ArrayLike, xs_or_shapes: Sequence[ArrayLike | Shape], *, out: Any = None, backend: BackendLike = None
    ) -> list[Array]:
        """Compute the gradient for each source image.

        Parameters
        ----------
        g : array_like, shape (N, H, W, C)
            Source gradient.
        xs_or_shapes : sequence of array_like or shapes
            Source images of the forward pass, of which only the shapes count.

        Returns
        -------
        list of ndarray
            In the shapes of the sources and the dtype of ``g``.
        """
        given = (g, *_sequence("xs_or_shapes", xs_or_shapes))
        results: Any = call(self, "gradient", given, out=out, backend=backend)
        return list(results) if isinstance(results, tuple) else [results]


def _sequence(name: str, value: object) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be a list or tuple of images")
    return value


class ConcatenationProblem(Problem):
    """A call of concatenation: the size (N, H, W) that all sources have, and the channels of each."""

    spec: Concatenation
    batch_shape: tuple[int, int, int] = parameter(codecs.shape("nhw"))
    channels: tuple[int, ...] = parameter(codecs.dims("c"))

    def _check(self) -> None:
        if not self.channels:
            raise ValueError("there are no images to concatenate; pass one at least")
        for k, c in enumerate(self.channels):
            as_shape(f"x[{k}].shape", (*self.batch_shape, c))

    @property
    def source_shapes(self) -> list[Shape]:
        """The shape of each source."""
        return [(*self.batch_shape, c) for c in self.channels]

    @cached_property
    def joined_shape(self) -> Shape:
        """The shape of the concatenated image."""
        return (*self.batch_shape, sum(self.spec.aligned(c) for c in self.channels))

    @cached_property
    def offsets(self) -> list[int]:
        """The first channel of each source."""
        return [sum(self.spec.aligned(c) for c in self.channels[:k]) for k in range(len(self.channels))]


class ConcatenationForward(ConcatenationProblem, method="forward", results={"y": "joined_shape"}):
    """``forward`` of concatenation: one image from several."""

    @property
    def arguments(self) -> dict[str, Argument]:
        """An image for each source."""
        return {f"x{k}": Argument("") for k in range(len(self.channels))}

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The sources."""
        return {f"x{k}": shape for k, shape in enumerate(self.source_shapes)}

    @classmethod
    def from_call(cls, spec: Any, given: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Self, dict[int, Array]]:
        images = {k: as_image(f"x[{k}]", x) for k, x in enumerate(given)}
        return cls(spec, *_common([image.shape for image in images.values()])), images


class ConcatenationGradient(ConcatenationProblem, method="gradient", inputs={"g": "joined_shape"}):
    """``gradient`` of concatenation: several images from one."""

    @property
    def result_shapes(self) -> tuple[Shape, ...]:
        """The gradient of each source."""
        return tuple(self.source_shapes)

    def result_dtypes(self, *inputs: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
        """The dtype of the source gradient, for all results."""
        return (inputs[0],) * len(self.channels)

    @classmethod
    def from_call(cls, spec: Any, given: tuple[Any, ...], options: Mapping[str, Any]) -> tuple[Self, dict[int, Array]]:
        g = as_image("g", given[0])
        sources = enumerate(given[1:])
        shapes = [as_shape(f"x[{k}]", x if is_shape(x) else as_image(f"x[{k}]", x).shape) for k, x in sources]
        problem = cls(spec, *_common(shapes))
        if g.shape != problem.joined_shape:
            raise ShapeError(
                f"g has shape {g.shape}; the concatenation of images with {', '.join(map(str, problem.channels))} "
                f"channels has {problem.joined_shape}: each takes a multiple of {spec.channel_alignment} channels"
            )
        return problem, {0: g}


def _common(shapes: Sequence[Shape]) -> tuple[tuple[int, int, int], tuple[int, ...]]:
    """Return the common (N, H, W), and the channels of each."""
    for k, shape in enumerate(shapes):
        for axis, name in enumerate("NHW"):
            if shape[axis] != shapes[0][axis]:
                raise ShapeError(
                    f"Concatenation: on axis {name} x[0] has length {shapes[0][axis]} and x[{k}] {shape[axis]}; all "
                    "images must have the same N, H and W"
                )
    n, height, width = shapes[0][:3] if shapes else (0, 0, 0)
    return (n, height, width), tuple(shape[3] for shape in shapes)


@operation(Concatenation, problem=ConcatenationForward, bound=selected)
def forward(problem: ConcatenationForward, *xs: Array) -> Array:
    """out[..., off_k + c] = x_k[..., c]."""
    out = np.zeros(problem.joined_shape, xs[0].dtype)
    for offset, x in zip(problem.offsets, xs, strict=True):
        out[..., offset : offset + x.shape[3]] = x
    return out


@operation(Concatenation, problem=ConcatenationGradient, bound=selected)
def gradient(problem: ConcatenationGradient, g: Array) -> tuple[Array, ...]:
    """dx_k[..., c] = g[..., off_k + c]."""
    return tuple(g[..., o : o + c] for o, c in zip(problem.offsets, problem.channels, strict=True))
