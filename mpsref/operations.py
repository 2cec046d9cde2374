"""Operations, and what they are asked to do: specs are parameters without arrays, problems are calls without pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from mpsref import codecs
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, ImageShape, Shape

__all__ = ["ImageProblem", "Operation", "OperationKey", "Problem", "Spec"]


@dataclass(frozen=True)
class Spec:
    """Parameters of a kernel, without arrays. Subclasses are frozen dataclasses that check themselves when made."""

    problems: ClassVar[Mapping[str, type[Any]]] = {}
    """The :class:`Problem` subclass of each operation, by method name."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs: the fields, and nothing that was remembered beside them."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


class Operation(NamedTuple):
    """What backends implement, tests compare and reports list."""

    spec_type: type[Spec]
    method: str

    def __str__(self) -> str:
        return f"{self.spec_type.__name__}.{self.method}"


@dataclass(frozen=True)
class Problem:
    """One call of an operation without its pixels: hashable, comparable, and enough to compute every index."""

    spec: Spec
    method: ClassVar[str]

    __getstate__ = Spec.__getstate__

    @property
    def operation(self) -> Operation:
        """The operation that this is a problem of."""
        return Operation(type(self.spec), self.method)

    @property
    def input_shapes(self) -> Mapping[str, Shape]:
        """Name and shape of each array that the operation reads, in the order of its implementation's arguments."""
        raise NotImplementedError

    @property
    def result_shapes(self) -> tuple[Shape, ...]:
        """Shape of each result."""
        raise NotImplementedError

    @property
    def flops(self) -> int:
        """Multiplications and additions, where they, not the bytes that move, are what the operation costs; else 0."""
        return 0

    def where(self, index: tuple[int, ...]) -> str:
        """Describe one element of the (first) result for a reader: the window or windows that it belongs to."""
        return ""

    def input_dtypes(self, image: np.dtype[Any]) -> Mapping[str, np.dtype[Any]]:
        """Dtype of each input where the images have dtype ``image``: the same, unless a family says otherwise."""
        return dict.fromkeys(self.input_shapes, image)

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Turn arbitrary numbers, an array for each input, into inputs that the operation takes; in the same order."""
        return drawn

    def result_dtypes(self, *inputs: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
        """Dtype of each result: that of the first input, unless a family says otherwise."""
        return (inputs[0],) * len(self.result_shapes)


@dataclass(frozen=True)
class ImageProblem(Problem):
    """A problem whose source is an image (N, H, W, C)."""

    source_shape: ImageShape = field(metadata={"codec": codecs.shape("nhwc")})

    def __post_init__(self) -> None:
        """Check the shape."""
        object.__setattr__(self, "source_shape", arrays.as_shape("x.shape", self.source_shape))


OperationKey: TypeAlias = tuple[type[Any], str]
"""An :class:`Operation`, or the plain tuple that equals it."""
