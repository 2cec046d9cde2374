"""Image arguments of kernels: arrays, images or batches of images; results are of the same kind.

Kernels compute on arrays (N, H, W, C).
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from mpsref.arguments import arrays
from mpsref.arguments.arrays import DTYPES, Array
from mpsref.errors import ShapeError
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_not_a_command_buffer
from mpsref.mps.core.image import MPSImage, MPSImageBatch, is_batch, pixels

ImageLike: TypeAlias = ArrayLike | MPSImage | Sequence[MPSImage]
"""An array (N, H, W, C), an image or a batch of images; some kernels accept a list of arrays."""

ImageResult: TypeAlias = Any
"""An array, :class:`MPSImage` or :class:`MPSImageBatch`, of the kind of the first source image.

It is not a union, since callers then would have to narrow the type of each result.
"""

Encoded: TypeAlias = Any
"""An :data:`ImageResult`, or with ``return_state=True`` a tuple (image, state)."""


class ImageArgument(NamedTuple):
    """An image as it was passed, and its pixels."""

    name: str
    value: ImageLike
    array: Array
    """(N, H, W, C); the pixels of a batch of images are a copy."""


_array_of = operator.attrgetter("_array")
_DTYPES = frozenset(map(np.dtype, DTYPES))


def is_list_of_arrays(value: object) -> TypeGuard[Sequence[Array]]:
    """Return whether ``value`` is a list of arrays, not a batch of image objects or nested lists of numbers."""
    if not isinstance(value, (list, tuple)) or is_batch(value):
        return False
    return all(len(getattr(array, "shape", ())) == 4 for array in value)


def _lengths(value: ImageLike) -> list[int] | None:
    """Return the number of images of each array of a list; ``None`` for other images."""
    return [array.shape[0] for array in value] if is_list_of_arrays(value) else None


def check_pairs_of_lists(g: ImageArgument, x: ImageArgument) -> None:
    """Raise ``ShapeError`` unless two images are no lists of arrays, or lists with equal numbers of images."""
    if _lengths(g.value) != _lengths(x.value):
        raise ShapeError(
            f"{g.name} has {_lengths(g.value) or 'no'} parts and {x.name} {_lengths(x.value) or 'no'} parts; "
            "both must be arrays, or lists with equal numbers of images"
        )


def source(
    name: str, value: ImageLike, lists: bool = False, command_buffer: MPSCommandBuffer | None = None
) -> ImageArgument:
    """Check a source image: an :class:`MPSImage`, a batch, or an array; with ``lists`` also a list of arrays.

    The arrays of a list are concatenated; their images must have one size. Raises ``TypeError`` for another dtype than
    float16, float32 or, in an array, float64 (supported by the reference backend only), ``ShapeError`` for another
    shape than (N, H, W, C), and ``OrderError`` for a temporary image that kernels on ``command_buffer`` may not use.
    """
    if type(value) is np.ndarray:
        return ImageArgument(name, value, arrays.as_image(name, value))
    if isinstance(value, (MPSImage, list, tuple)):
        if lists and value and is_list_of_arrays(value):
            images = [arrays.as_image(f"{name}[{k}]", image) for k, image in enumerate(value)]
            sizes = {image.shape[1:] for image in images}
            if len(sizes) > 1:
                raise ShapeError(f"{name} is a list of images with (H, W, C) of {sorted(sizes)}; all must be equal")
            return ImageArgument(name, value, arrays.concatenated(images))
        return ImageArgument(name, value, pixels(name, value, command_buffer))
    check_not_a_command_buffer(name, value)
    return ImageArgument(name, value, arrays.as_image(name, value))


def destination(
    name: str,
    value: ImageLike | None,
    sources: Sequence[ImageArgument],
    command_buffer: MPSCommandBuffer | None = None,
) -> ImageArgument:
    """Check an image that is written in place: an :class:`MPSImage`, a batch, or a NumPy array.

    Raises ``TypeError`` or ``ShapeError`` for another type, dtype or rank, and ``ValueError`` for an image that is
    read-only or shares memory with a source, since kernels do not run in place [doc], or if a source is a list of
    arrays; ``OrderError`` for a temporary image as :func:`source`.
    """
    if sources and is_list_of_arrays(sources[-1].value):
        raise ValueError(f"{name} is given and {sources[-1].name} is a list; pass one array, or no destination")
    if type(value) is np.ndarray:
        given = ImageArgument(name, value, value)
    elif isinstance(value, MPSImage) or is_batch(value):
        given = ImageArgument(name, value, pixels(name, value, command_buffer))
    elif arrays.is_array(value):
        given = ImageArgument(name, value, arrays.as_array(name, value))
    else:
        raise TypeError(
            f"{name} is of type {type(value).__name__}; it is written in place, so it must be an MPSImage, a batch of "
            "them or a NumPy array"
        )
    if given.array.ndim != 4:
        raise ShapeError(f"{name} has shape {given.array.shape}; it must have the four axes (N, H, W, C)")
    if given.array.dtype.newbyteorder("=") not in _DTYPES:
        raise TypeError(f"{name} has dtype {given.array.dtype}; it must be one of {', '.join(DTYPES)}")
    others: list[tuple[str, Array]] = []
    for source_name, form, array in sources:
        if isinstance(form, (list, tuple)) and is_batch(form):
            others += zip(itertools.repeat(source_name), map(_array_of, form))
        else:
            others.append((source_name, array))
    written = [*map(_array_of, value)] if isinstance(value, (list, tuple)) else [given.array]
    for k, memory in enumerate(written):
        arrays.check_written(name, memory, others, "image")
        for before in written[:k]:
            if type(memory) is not np.ndarray or type(before) is not np.ndarray or np.may_share_memory(memory, before):
                arrays.check_apart(f"image {k} of {name}", memory, "another image of the batch", before)
    return given


def written(given: ImageArgument) -> ImageResult:
    """Return the destination image of the caller, after its pixels were written."""
    if is_batch(given.value):
        MPSImageBatch(given.value).write_array(given.array)
    return given.value


def in_form_of(value: ImageLike, array: Array) -> ImageResult:
    """Return a new result of the kind of ``value``; for a list of arrays, one for each."""
    if isinstance(value, MPSImage):
        return MPSImage._of(array)
    if not isinstance(value, (list, tuple)):
        return array
    lengths = _lengths(value)
    if lengths is not None:
        return [array[end - length : end] for end, length in zip(itertools.accumulate(lengths), lengths, strict=True)]
    return MPSImageBatch.from_array(array, copy=False) if is_batch(value) else array


def as_image(argument: ImageArgument) -> MPSImage:
    """Return a source as an :class:`MPSImage`, for custom policies and callbacks."""
    if isinstance(argument.value, MPSImage):
        return argument.value
    return MPSImage(arrays.native(argument.array, argument.name), copy=False)


PLURALS = {
    name: f"{name}s"
    for name in (
        "source_image",
        "source_gradient",
        "primary_image",
        "secondary_image",
        "destination_image",
        "destination_gradient",
        "gradient_state",
        "destination_state",
        "convolution_gradient_state",
        "source_state",
    )
}
"""The names of arguments of encodes, and those of the same arguments of the methods for batches."""


def batch_form(encode: Callable[..., ImageResult]) -> Callable[..., ImageResult]:
    """Return the method for batches: ``encode`` with Apple's names, such as ``source_images``; both are legal."""
    signature = inspect.signature(encode)
    names = {PLURALS[name]: name for name in signature.parameters if name in PLURALS}

    @functools.wraps(encode)
    def encode_batch(*arguments: Any, **keywords: Any) -> ImageResult:
        for plural in names.keys() & keywords.keys():
            if names[plural] in keywords:
                raise TypeError(f"{plural} and {names[plural]} are both given; they are the same: pass one of them")
            keywords[names[plural]] = keywords.pop(plural)
        return encode(*arguments, **keywords)

    encode_batch.__name__ = "encode_batch"
    encode_batch.__qualname__ = encode.__qualname__.replace("encode", "encode_batch")
    parameters = [one.replace(name=PLURALS.get(one.name, one.name)) for one in signature.parameters.values()]
    encode_batch.aliases = frozenset(names.values())  # type: ignore[attr-defined]
    encode_batch.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    encode_batch.__doc__ = "Encode a batch: as ``encode``, with the argument names of Apple's methods for batches."
    return encode_batch


def count_reads(arguments: Iterable[ImageArgument]) -> None:
    """Count a read of each temporary image."""
    for _, value, _ in arguments:
        if type(value) is not np.ndarray and isinstance(value, (MPSImage, list, tuple)):
            for image in value if is_batch(value) else (value,):
                if isinstance(image, MPSImage):
                    image._count_read()
