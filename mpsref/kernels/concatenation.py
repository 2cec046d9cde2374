"""Concatenation of images along their channels, each padded to a multiple of four; and its gradient, the slices.

Forward   ``out[..., off_k + c] = x_k[..., c]`` for ``c < C_k``, 0 in the channels that pad a source;
          ``off_k`` is the sum over the sources before k of C rounded up to a multiple of ``channel_alignment``
Gradient  ``dx_k[..., c] = g[..., off_k + c]``; the gradient in padding channels is dropped

MPS stores channels in groups of four and pads every source, the last one too, so that the weights of the next layer
must leave gaps; ``channel_alignment=1`` is the concatenation of other frameworks, and for sources whose channels are a
multiple of four both agree.

Source: MPSNNConcatenationNode in ``MPSNNGraphNodes.h``; the padding [doc], its zeros [obs], 0 in all of them [choice].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mpsref import codecs, operations, registry
from mpsref.arguments.arrays import Array, Shape, as_image, as_shape, is_shape
from mpsref.arguments.parameters import integer
from mpsref.errors import ShapeError
from mpsref.kernels.movement import bit_exact
from mpsref.kernels.posing import posed
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import Declaration, Formula, OperationKey


class ConcatenationProblem(operations.Problem):
    """A call of concatenation: the size (N, H, W) that all sources have, and the channels of each."""

    spec: Concatenation
    batch_shape: tuple[int, int, int] = field(metadata={"codec": codecs.shape("nhw")})
    channels: tuple[int, ...] = field(metadata={"codec": codecs.dims("c")})

    def __post_init__(self) -> None:
        """Check the shapes."""
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
        """Where the channels of each source begin."""
        return [sum(self.spec.aligned(c) for c in self.channels[:k]) for k in range(len(self.channels))]


class ConcatenationForward(ConcatenationProblem):
    """``forward`` of concatenation: one image from several."""

    method: ClassVar[str] = "forward"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The sources."""
        return {f"x{k}": shape for k, shape in enumerate(self.source_shapes)}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The concatenated image."""
        return (self.joined_shape,)


class ConcatenationGradient(ConcatenationProblem):
    """``gradient`` of concatenation: several images from one."""

    method: ClassVar[str] = "gradient"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient."""
        return {"g": self.joined_shape}

    @property
    def result_shapes(self) -> tuple[Shape, ...]:
        """The gradient of each source."""
        return tuple(self.source_shapes)


class Concatenation(operations.Spec):
    """Concatenation along channels; each source takes a multiple of ``channel_alignment`` channels.

    >>> import numpy as np
    >>> x, y = (np.array(row, np.float32).reshape(1, 1, 1, -1) for row in ([1, 2, 3], [4, 5, 6, 7, 8]))
    >>> Concatenation().forward([x, y]).ravel().tolist()
    [1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.0, 0.0, 0.0]
    >>> Concatenation(channel_alignment=1).forward([x, y]).ravel().tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    """

    channel_alignment: int = field(default=4, metadata={"codec": codecs.integer("align")})

    problems: ClassVar = {"forward": ConcatenationForward, "gradient": ConcatenationGradient}

    def __post_init__(self) -> None:
        """Check the alignment."""
        object.__setattr__(self, "channel_alignment", integer("channel_alignment", self.channel_alignment, low=1))

    def aligned(self, channels: int) -> int:
        """Return how many channels a source takes in the result."""
        return -(-channels // self.channel_alignment) * self.channel_alignment

    def forward(self, xs: Sequence[Any], *, out: Any = None, backend: Any = None) -> Array:
        """Return one image from the images ``xs``, each (N, H, W, C_k), in the dtype of the first.

        Raises ``ValueError`` for no image at all, ``ShapeError`` where N, H or W differ, ``TypeError`` for what is no
        sequence of images.
        """
        images = [as_image(f"x[{k}]", x) for k, x in enumerate(_sequence("xs", xs))]
        problem = posed(ConcatenationForward, self, *_shapes([image.shape for image in images]))
        return registry.run_one(problem, *images, out=out, backend=backend)

    def gradient(self, g: Any, xs_or_shapes: Sequence[Any], *, out: Any = None, backend: Any = None) -> list[Array]:
        """Return the gradient of each source from ``g``, in the dtype of g; only the sizes of the sources are read.

        Errors as in :meth:`forward`, and ``ShapeError`` for a g that does not have the shape of the result.
        """
        g = as_image("g", g)
        given = _sequence("xs_or_shapes", xs_or_shapes)
        shapes = [as_shape(f"x[{k}]", x if is_shape(x) else as_image(f"x[{k}]", x).shape) for k, x in enumerate(given)]
        problem = posed(ConcatenationGradient, self, *_shapes(shapes))
        if g.shape != problem.joined_shape:
            raise ShapeError(
                f"g has shape {g.shape}; the concatenation of images with {', '.join(map(str, problem.channels))} "
                f"channels has {problem.joined_shape}: each takes a multiple of {self.channel_alignment} channels"
            )
        results = registry.run(problem, g, out=out, backend=backend)
        return list(results) if isinstance(results, tuple) else [results]


def _sequence(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be a list or tuple of images")
    return value


def _shapes(shapes: Sequence[Shape]) -> tuple[tuple[int, int, int], tuple[int, ...]]:
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


def forward(problem: ConcatenationForward, *xs: Array) -> Array:
    """out[..., off_k + c] = x_k[..., c]."""
    out = np.zeros(problem.joined_shape, xs[0].dtype)
    for offset, x in zip(problem.offsets, xs, strict=True):
        out[..., offset : offset + x.shape[3]] = x
    return out


def gradient(problem: ConcatenationGradient, g: Array) -> tuple[Array, ...]:
    """dx_k[..., c] = g[..., off_k + c]."""
    return tuple(g[..., o : o + c] for o, c in zip(problem.offsets, problem.channels, strict=True))


def forward_terms(problem: ConcatenationForward, *xs: Array) -> ErrorBound:
    """Nothing is rounded."""
    return bit_exact(forward(problem, *xs))


def gradient_terms(problem: ConcatenationGradient, g: Array) -> tuple[ErrorBound, ...]:
    """Nothing is rounded."""
    return tuple(bit_exact(dx) for dx in gradient(problem, g))


SPECS = (Concatenation,)
REFERENCE: dict[OperationKey, Formula] = {(Concatenation, "forward"): forward, (Concatenation, "gradient"): gradient}
TERMS: dict[OperationKey, Formula] = {
    (Concatenation, "forward"): forward_terms,
    (Concatenation, "gradient"): gradient_terms,
}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
