"""Slice: a box cut out of an image, zeros where it reaches beyond; and the adjoint, which puts it back.

Forward   ``out[n, i, j, c] = x[n, i + oy, j + ox, c + oc]``, 0 outside the image
Gradient  ``dx[n, i + oy, j + ox, c + oc] = g[n, i, j, c]``, 0 elsewhere

Source: MPSNNSlice in ``MPSNNSlice.h`` [doc]; a channel offset that is no multiple of 4 [choice]. MPS declares no
gradient; the adjoint is that of the formula [math].
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np

from mpsref import codecs, operations, registry
from mpsref.arguments.arrays import Array, ImageShape, Shape, as_image, as_shape, is_shape
from mpsref.arguments.parameters import Triple, integer, triple
from mpsref.errors import ShapeError
from mpsref.kernels.movement import Gather, bit_exact, index
from mpsref.kernels.posing import posed
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import Declaration, Formula, OperationKey

Size: TypeAlias = tuple[int | None, int | None, int | None]
"""Height, width, channels; ``None`` is "to the end"."""

_END = r"(-?\d+|end)"
_SIZE = codecs.Codec(
    "size3x3xend",
    f"size{_END}x{_END}x{_END}",
    lambda *words: tuple(None if word == "end" else int(word) for word in words),
    lambda size: "size" + "x".join("end" if length is None else str(length) for length in size),
)


class SliceProblem(operations.ImageProblem):
    """A call of a slice: the shape of the image that is cut."""

    spec: Slice

    def __post_init__(self) -> None:
        """Check that the slice has a size, and that its channels exist."""
        super().__post_init__()
        _ = self.part_shape

    @cached_property
    def part_shape(self) -> ImageShape:
        """The shape of the slice."""
        n, *lengths = self.source_shape
        spec, found = self.spec, []
        for axis, length, offset, size in zip("HWC", lengths, spec.offset, spec.size, strict=True):
            taken = length - offset if size is None else size
            if taken < 1 or (axis == "C" and offset + taken > length):
                raise ShapeError(
                    f"Slice: on axis {axis} the offset is {offset}, the size {'to the end' if size is None else size} "
                    f"and the image has length {length}; the slice must have a size >= 1"
                    + (", and its channels must exist" if axis == "C" else ": choose a smaller offset or name a size")
                )
            found.append(taken)
        height, width, channels = found
        return n, height, width, channels


class SliceForward(SliceProblem):
    """``forward`` of a slice."""

    method: ClassVar[str] = "forward"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The image x."""
        return {"x": self.source_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The slice."""
        return (self.part_shape,)

    def gather(self) -> Gather:
        """Return what each element of the slice reads."""
        return self._gather

    @cached_property
    def _gather(self) -> Gather:
        lengths = zip(self.part_shape[1:], self.spec.offset, self.source_shape[1:], strict=True)
        y, x, c = (index(np.arange(n) + offset, length) for n, offset, length in lengths)
        return y, x, c


class SliceGradient(SliceProblem):
    """``gradient`` of a slice."""

    method: ClassVar[str] = "gradient"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient g."""
        return {"g": self.part_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image dx."""
        return (self.source_shape,)

    def gather(self) -> Gather:
        """Return what each element of dx reads of g."""
        return self._gather

    @cached_property
    def _gather(self) -> Gather:
        lengths = zip(self.source_shape[1:], self.spec.offset, self.part_shape[1:], strict=True)
        y, x, c = (index(np.arange(n) - offset, length) for n, offset, length in lengths)
        return y, x, c


class Slice(operations.Spec):
    """A box of an image: ``offset`` and ``size`` are (y, x, channel); a size of ``None`` is "to the end".

    >>> import numpy as np
    >>> x = np.arange(12, dtype=np.float32).reshape(1, 2, 3, 2)
    >>> Slice(offset=(0, 1, 1), size=(1, 3, None)).forward(x).ravel().tolist()
    [3.0, 5.0, 0.0]
    """

    offset: Triple = field(default=(0, 0, 0), metadata={"codec": codecs.triple("o")})
    size: Size = field(default=(None, None, None), metadata={"codec": _SIZE})

    problems: ClassVar = {"forward": SliceForward, "gradient": SliceGradient}

    def __post_init__(self) -> None:
        """Check offset and size."""
        object.__setattr__(self, "offset", triple("offset", self.offset))
        integer("offset[2]", self.offset[2], low=0)
        if not isinstance(self.size, (tuple, list)) or len(self.size) != 3:
            raise TypeError(f"size is {self.size!r}; it must be a tuple (height, width, channels), each >= 1 or None")
        sizes = (None if n is None else integer(f"size[{axis}]", n, low=1) for axis, n in enumerate(self.size))
        object.__setattr__(self, "size", tuple(sizes))

    def forward(self, x: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return the slice of the image ``x`` (N, H, W, C), in its dtype.

        Raises ``ShapeError`` for channels that do not exist, ``ValueError`` or ``TypeError`` for what does not fit.
        """
        x = as_image("x", x)
        return registry.run_one(posed(SliceForward, self, x.shape), x, out=out, backend=backend)

    def gradient(self, g: Any, x_or_shape: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return ``g`` at its place in an image of zeros of the shape of x; errors as in :meth:`forward`."""
        g = as_image("g", g)
        given = x_or_shape if is_shape(x_or_shape) else as_image("x", x_or_shape).shape
        problem = posed(SliceGradient, self, as_shape("x_or_shape", given))
        if g.shape != problem.part_shape:
            raise ShapeError(
                f"g has shape {g.shape}; the slice of an image {problem.source_shape} has {problem.part_shape}"
            )
        return registry.run_one(problem, g, out=out, backend=backend)


def _overlap(problem: SliceProblem) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the part of the slice that lies inside the image, and the part of the image that it is."""
    inside, of_image = [slice(None)], [slice(None)]
    for offset, size, length in zip(problem.spec.offset, problem.part_shape[1:], problem.source_shape[1:], strict=True):
        begin, end = max(0, -offset), max(0, min(size, length - offset))
        begin = min(begin, end)
        inside.append(slice(begin, end))
        of_image.append(slice(begin + offset, end + offset) if begin < end else slice(0, 0))
    return tuple(inside), tuple(of_image)


def forward(problem: SliceForward, x: Array) -> Array:
    """out[i] = x[i + o] inside the image."""
    out = np.zeros(problem.part_shape, x.dtype)
    inside, of_image = _overlap(problem)
    out[inside] = x[of_image]
    return out


def gradient(problem: SliceGradient, g: Array) -> Array:
    """dx[i + o] = g[i]: the forward pass with the arrow reversed."""
    dx = np.zeros(problem.source_shape, g.dtype)
    inside, of_image = _overlap(problem)
    dx[of_image] = g[inside]
    return dx


def terms(problem: SliceProblem, values: Array) -> ErrorBound:
    """Nothing is rounded."""
    return bit_exact(REFERENCE[problem.operation](problem, values))


SPECS = (Slice,)
REFERENCE: dict[OperationKey, Formula] = {(Slice, "forward"): forward, (Slice, "gradient"): gradient}
TERMS: dict[OperationKey, Formula] = {(Slice, "forward"): terms, (Slice, "gradient"): terms}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
