"""Image arguments: arrays, images or batches of them; results are of the same kind.

Kernels compute on arrays (N, H, W, C).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from mpsref.arguments import arrays
from mpsref.arguments.arrays import DTYPES, Array
from mpsref.errors import ShapeError
from mpsref.mps.core.image import MPSImage, MPSImageBatch, pixels

ImageLike: TypeAlias = ArrayLike | MPSImage | Sequence[MPSImage]
"""Images: an array (N, H, W, C), an image object or a batch of them; some kernels take a list of arrays."""


class ImageArgument(NamedTuple):
    """An image as it was passed, and its pixels."""

    name: str
    value: Any
    array: Array
    """(N, H, W, C); the pixels of a batch of images are a copy."""

    @property
    def memory(self) -> list[Array]:
        """The arrays that hold the pixels."""
        return [image.array for image in self.value] if is_batch(self.value) else [self.array]


def is_batch(value: Any) -> bool:
    """Return whether ``value`` is a batch, a sequence of single images."""
    return isinstance(value, (list, tuple)) and any(isinstance(image, MPSImage) for image in value)


def source(name: str, value: Any) -> ImageArgument:
    """Return a source image as an argument: an :class:`MPSImage`, a batch, or anything array-like.

    Raises ``TypeError`` for another dtype than float16, float32 or, in an array, float64 (for the reference alone),
    ``ShapeError`` for another shape than (N, H, W, C).
    """
    if isinstance(value, (MPSImage, list, tuple)):
        return ImageArgument(name, value, pixels(name, value))
    return ImageArgument(name, value, arrays.as_image(name, value))


def destination(name: str, value: Any, sources: Sequence[ImageArgument]) -> ImageArgument:
    """Return an image that is written in place as an argument: an :class:`MPSImage`, a batch, or a NumPy array.

    Raises ``TypeError`` or ``ShapeError`` for another kind, dtype or rank, ``ValueError`` for one that is read-only or
    shares memory with a source: kernels are out-of-place [doc].
    """
    if not (isinstance(value, (MPSImage, np.ndarray)) or is_batch(value)):
        raise TypeError(
            f"{name} is of type {type(value).__name__}; it is written in place, so it must be an MPSImage, a batch of "
            "them or a NumPy array"
        )
    given = ImageArgument(name, value, value if isinstance(value, np.ndarray) else pixels(name, value))
    if given.array.ndim != 4:
        raise ShapeError(f"{name} has shape {given.array.shape}; it must have the four axes (N, H, W, C)")
    if given.array.dtype.newbyteorder("=").name not in DTYPES:
        raise TypeError(f"{name} has dtype {given.array.dtype}; it must be one of {', '.join(DTYPES)}")
    for memory in given.memory:
        if not memory.flags.writeable:
            raise ValueError(f"{name} is read-only; pass an image that may be written")
        for one in sources:
            if any(np.shares_memory(memory, other) for other in one.memory):
                raise ValueError(f"{name} shares memory with {one.name}; kernels are out-of-place: pass another image")
    return given


def written(given: ImageArgument) -> Any:
    """Return a destination as it was passed, with its pixels written."""
    if is_batch(given.value):
        MPSImageBatch(given.value).write_array(given.array)
    return given.value


def like(value: Any, array: Array) -> Any:
    """Return a new result as an object of the kind of ``value``."""
    if isinstance(value, MPSImage):
        return MPSImage(array, copy=False)
    return MPSImageBatch.from_array(array, copy=False) if is_batch(value) else array


def as_image(argument: ImageArgument) -> MPSImage:
    """Return a source as one image, for custom policies and callbacks."""
    return (
        argument.value if isinstance(argument.value, MPSImage) else MPSImage(arrays.native(argument.array), copy=False)
    )
