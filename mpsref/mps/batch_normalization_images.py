"""Images that batch normalization takes: whole ones, one array or a list of arrays that mean the images in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.mps.core import image_arguments
from mpsref.mps.core.image_arguments import ImageArgument

__all__ = ["Parts", "check_channels", "check_pairs", "destinations", "is_list_of_arrays", "parts_of", "refuse", "store"]

Parts = list[ImageArgument]


def parts_of(name: str, value: Any) -> Parts:
    """Return the images of a batch as one operand, or for a list of arrays (N, H, W, C) as one for each of them.

    Sizes and numbers of images may differ. Raises ``TypeError`` or ``ShapeError`` as for a single image.
    """
    if is_list_of_arrays(value):
        return [image_arguments.source(f"{name}[{k}]", one) for k, one in enumerate(value)]
    return [image_arguments.source(name, value)]


def is_list_of_arrays(value: Any) -> bool:
    """Tell a list of arrays, also an empty one, from a batch of image objects and from nested lists of numbers."""
    if not isinstance(value, (list, tuple)) or image_arguments.is_batch(value):
        return False
    return all(len(getattr(one, "shape", ())) == 4 for one in value)


def check_channels(parts: Parts, channels: int) -> None:
    """Raise ``ShapeError`` for an image whose channels are not those that the parameters are for."""
    for one in parts:
        if one.array.shape[3] != channels:
            raise ShapeError(
                f"{one.name} has {one.array.shape[3]} channels; number_of_feature_channels of the data source is "
                f"{channels}: both must be equal"
            )


def check_pairs(gradients: Parts, sources: Parts) -> None:
    """Raise ``ShapeError`` unless each source gradient has the shape of its source image."""
    if len(gradients) != len(sources):
        raise ShapeError(
            f"source_gradient has {len(gradients)} parts and source_image {len(sources)}; both must have as many"
        )
    for g, x in zip(gradients, sources, strict=True):
        if g.array.shape != x.array.shape:
            raise ShapeError(f"{g.name} has shape {g.array.shape} and {x.name} {x.array.shape}; both must be equal")


def store(
    compute: Callable[..., Array], pictures: Sequence[Array], given: ImageArgument | None, dtype: Any = None
) -> Array:
    """Return ``compute(*pictures, out=...)``, in the ``given`` destination or in a new image.

    Images of several dtypes are computed on in the widest, and rounded once more when they are stored.
    """
    wanted = np.dtype(dtype or pictures[0].dtype).newbyteorder("=") if given is None else given.array.dtype
    wide = np.result_type(wanted, *pictures).newbyteorder("=")
    if given is not None and wanted == wide and wanted.isnative:
        return compute(*pictures, out=given.array)
    result = compute(*(picture.astype(wide, copy=False) for picture in pictures))
    if given is None:
        with np.errstate(over="ignore"):  # storing in float16 may overflow to infinity
            return result.astype(wanted, copy=False)
    with np.errstate(over="ignore"):
        given.array[...] = result
    return given.array


def destinations(name: str, value: Any, sources: Sequence[Parts]) -> list[ImageArgument | None]:
    """Return a destination for each part of the last of ``sources``, whose shape it must have; or ``None`` for each."""
    parts = sources[-1]
    if value is None or not parts:
        return [None] * len(parts)
    single = not is_list_of_arrays(value)
    names, values = ([name], [value]) if single else ([f"{name}[{k}]" for k in range(len(value))], list(value))
    if len(values) != len(parts):
        raise ShapeError(f"{name} has {len(values)} parts and {parts[0].name} {len(parts)}; both must have as many")
    given: list[ImageArgument | None] = []
    for key, one, part in zip(names, values, parts, strict=True):
        target = image_arguments.destination(key, one, [source for each in sources for source in each])
        if target.array.shape != part.array.shape:
            raise ShapeError(f"{key} has shape {target.array.shape}; the result has shape {part.array.shape}")
        given.append(target)
    return given


def refuse(kernel: Any, method: str, reason: str) -> UnsupportedError:
    """Return the error for a call that Apple's header marks as unavailable."""
    return UnsupportedError(f"{type(kernel).__name__}.{method} is unavailable: {reason}")
