"""Nearest and bilinear resize to any size, and the gradients.

Result i of O is sampled at a position on L pixels:

============= ========================================================================================================
center_result ``(i + 1/2) L / O - 1/2``: the centres of pixels, as OpenCV, TensorFlow 2 and PyTorch do
no flag       ``i L / O``: the top left corners
align_corners ``i (L - 1) / (O - 1)``, 0 where O = 1 [choice mpsgraph-resize-one]; center_result is ignored
scale_offset  ``(i - offset) / scale``
============= ========================================================================================================

Bilinear takes the two neighbours, clamped to the image, without antialiasing; nearest takes the position rounded by one
of six rules, and clamped [choice mpsgraph-resize-clamp]. Positions are exact fractions of integers, never rounded
before a rule [choice mpsgraph-resize-positions]. :func:`resize` with NEAREST rounds as ROUND_PREFER_CEIL does [doc],
which is not PyTorch's "nearest"; that is FLOOR without center_result.

The gradient is the adjoint [math]; of the input only the shape counts [obs
mpsgraph-resize-input]. Pixels that nothing reads get 0.

Source: ``MPSGraphResizeOps.h``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import Pair, flag, integer
from mpsref.arguments.text import shown
from mpsref.backend import BackendLike
from mpsref.errors import ShapeError
from mpsref.kernels import GraphResizeBilinear, GraphResizeNearest
from mpsref.kernels.interpolation import ROUNDINGS
from mpsref.mpsgraph.descriptors import (
    RESIZED,
    ResizeMode,
    ResizeNearestRoundingMode,
    TensorNamedDataLayout,
    arranged,
    given_back,
    member,
)
from mpsref.mpsgraph.function import Tensor, function

HEADER = "MPSGraphResizeOps.h"

Layout = TensorNamedDataLayout | str | int
Rounding = ResizeNearestRoundingMode | str | int
PREFER_CEIL = ResizeNearestRoundingMode.ROUND_PREFER_CEIL


def _kernel(size: Pair, rounding: Rounding | None, center: object, align: object, scale_offset: object) -> Any:
    """Return the kernel; the flags may be left out where ``scale_offset`` decides."""
    if scale_offset is None:
        if center is None or align is None:
            raise TypeError("center_result or align_corners is missing; give both, or scale_offset")
        where: dict[str, Any] = {
            "center_result": flag("center_result", center),
            "align_corners": flag("align_corners", align),
        }
    else:
        values = np.asarray(scale_offset)
        if values.shape != (4,) or values.dtype.kind not in "fiu":
            raise ValueError(f"scale_offset is {shown(scale_offset)}; it must be [scaleY, scaleX, offsetY, offsetX]")
        where = {"scale_offset": tuple(map(float, values))}
    if rounding is None:
        return GraphResizeBilinear(size, **where)
    mode = member("nearest_rounding_mode", rounding, ResizeNearestRoundingMode)
    return GraphResizeNearest(size, **where, rounding=ROUNDINGS[mode])


def _size(size: object) -> Pair:
    if not isinstance(size, (tuple, list, np.ndarray)) or len(size) != 2:
        raise ShapeError(f"size is {shown(size)}; it must be [height, width]")
    return integer("size[0]", size[0], low=1), integer("size[1]", size[1], low=1)


def _forward(
    images: Array, size: object, rounding: Rounding | None, layout: object, backend: BackendLike, *at: object
) -> Array:
    axes = member("layout", layout, TensorNamedDataLayout, RESIZED)
    kernel = _kernel(_size(size), rounding, *at)
    return given_back(kernel.forward(arranged("images", images, axes, "NHWC"), backend=backend), "NHWC", axes)


def _gradient(
    gradient: Array, like: Array, rounding: Rounding | None, layout: object, backend: BackendLike, *at: object
) -> Array:
    axes = member("layout", layout, TensorNamedDataLayout, RESIZED)
    g, shape = arranged("gradient", gradient, axes, "NHWC"), arranged("input", like, axes, "NHWC").shape
    if (g.shape[0], g.shape[3]) != (shape[0], shape[3]):
        raise ShapeError(
            f"gradient has shape {gradient.shape} and input {like.shape}; but for H and W they must be equal"
        )
    kernel = _kernel((g.shape[1], g.shape[2]), rounding, *at)
    return given_back(kernel.gradient(g, shape, backend=backend), "NHWC", axes)


@function("resizeTensor:size:mode:centerResult:alignCorners:layout:name:", "11.0", HEADER, "images")
def resize(
    images: Tensor,
    size: Sequence[int],
    mode: ResizeMode | str | int,
    center_result: bool,
    align_corners: bool,
    layout: Layout,
    *,
    backend: BackendLike = None,
) -> Array:
    """Resize images.

    Parameters
    ----------
    mode : ResizeMode, or its name or value
        NEAREST or BILINEAR.

    Returns
    -------
    ndarray, in the layout
        Of the height and width ``size``.

    Examples
    --------
    >>> import numpy as np
    >>> resize(np.float32([[0, 4]]), (1, 4), "bilinear", True, False, "HW").tolist()
    [[0.0, 1.0, 3.0, 4.0]]
    """
    return _forward(
        images,
        size,
        PREFER_CEIL if member("mode", mode, ResizeMode) == ResizeMode.NEAREST else None,
        layout,
        backend,
        center_result,
        align_corners,
        None,
    )


@function(
    "resizeWithGradientTensor:input:mode:centerResult:alignCorners:layout:name:",
    "11.0",
    HEADER,
    "gradient",
    "input",
    tag="math",
)
def resize_gradient(
    gradient: Tensor,
    input: Tensor,
    mode: ResizeMode | str | int,
    center_result: bool,
    align_corners: bool,
    layout: Layout,
    *,
    backend: BackendLike = None,
) -> Array:
    """Compute the gradient of :func:`resize`: its adjoint.

    Parameters
    ----------
    mode : ResizeMode, or its name or value
        NEAREST or BILINEAR.

    Returns
    -------
    ndarray, in the layout
        Of the shape of ``input``.

    Examples
    --------
    >>> import numpy as np
    >>> g, like = np.float32([[1, 10, 100, 1000]]), np.zeros((1, 2), np.float32)
    >>> resize_gradient(g, like, "nearest", True, False, "HW").tolist()
    [[11.0, 1100.0]]
    """
    return _gradient(
        gradient,
        input,
        PREFER_CEIL if member("mode", mode, ResizeMode) == ResizeMode.NEAREST else None,
        layout,
        backend,
        center_result,
        align_corners,
        None,
    )


@function(
    "resizeNearestWithTensor:sizeTensor:nearestRoundingMode:centerResult:alignCorners:layout:name:",
    "13.0",
    HEADER,
    "images",
)
def resize_nearest(
    images: Tensor,
    size: Sequence[int],
    nearest_rounding_mode: Rounding,
    center_result: bool | None = None,
    align_corners: bool | None = None,
    layout: Layout | None = None,
    *,
    scale_offset: Sequence[float] | None = None,
    backend: BackendLike = None,
) -> Array:
    """Resize images to the nearest pixels.

    Returns
    -------
    ndarray, in the layout
        Of the height and width ``size``.

    Examples
    --------
    >>> import numpy as np
    >>> row = np.float32([[0, 1, 2, 3, 4, 5]])
    >>> resize_nearest(row, (1, 3), "round_prefer_ceil", True, False, "HW").tolist()
    [[1.0, 3.0, 5.0]]
    >>> resize_nearest(row, (1, 3), "round_to_even", True, False, "HW").tolist()
    [[0.0, 2.0, 4.0]]
    """
    return _forward(images, size, nearest_rounding_mode, layout, backend, center_result, align_corners, scale_offset)


@function(
    "resizeNearestWithGradientTensor:input:nearestRoundingMode:centerResult:alignCorners:layout:name:",
    "13.0",
    HEADER,
    "gradient",
    "input",
    tag="math",
)
def resize_nearest_gradient(
    gradient: Tensor,
    input: Tensor,
    nearest_rounding_mode: Rounding,
    center_result: bool | None = None,
    align_corners: bool | None = None,
    layout: Layout | None = None,
    *,
    scale_offset: Sequence[float] | None = None,
    backend: BackendLike = None,
) -> Array:
    """Compute the gradient of :func:`resize_nearest`: its adjoint.

    Returns
    -------
    ndarray, in the layout
        Of the shape of ``input``.

    Examples
    --------
    >>> import numpy as np
    >>> g, like = np.float32([[1, 10, 100]]), np.zeros((1, 6), np.float32)
    >>> resize_nearest_gradient(g, like, "floor", False, False, "HW").tolist()
    [[1.0, 0.0, 10.0, 0.0, 100.0, 0.0]]
    """
    return _gradient(
        gradient, input, nearest_rounding_mode, layout, backend, center_result, align_corners, scale_offset
    )


@function("resizeBilinearWithTensor:sizeTensor:centerResult:alignCorners:layout:name:", "13.0", HEADER, "images")
def resize_bilinear(
    images: Tensor,
    size: Sequence[int],
    center_result: bool | None = None,
    align_corners: bool | None = None,
    layout: Layout | None = None,
    *,
    scale_offset: Sequence[float] | None = None,
    backend: BackendLike = None,
) -> Array:
    """Resize images with bilinear interpolation.

    Returns
    -------
    ndarray, in the layout
        Of the height and width ``size``.

    Examples
    --------
    >>> import numpy as np
    >>> resize_bilinear(np.float32([[0, 4]]), (1, 4), True, False, "HW").tolist()
    [[0.0, 1.0, 3.0, 4.0]]
    >>> resize_bilinear(np.float32([[0, 4]]), (1, 4), layout="HW", scale_offset=[1, 2, 0, 0]).tolist()
    [[0.0, 2.0, 4.0, 4.0]]
    """
    return _forward(images, size, None, layout, backend, center_result, align_corners, scale_offset)


@function(
    "resizeBilinearWithGradientTensor:input:centerResult:alignCorners:layout:name:",
    "13.0",
    HEADER,
    "gradient",
    "input",
    tag="math",
)
def resize_bilinear_gradient(
    gradient: Tensor,
    input: Tensor,
    center_result: bool | None = None,
    align_corners: bool | None = None,
    layout: Layout | None = None,
    *,
    scale_offset: Sequence[float] | None = None,
    backend: BackendLike = None,
) -> Array:
    """Compute the gradient of :func:`resize_bilinear`: its adjoint.

    Returns
    -------
    ndarray, in the layout
        Of the shape of ``input``.

    Examples
    --------
    >>> import numpy as np
    >>> g, like = np.float32([[1, 1, 1, 1]]), np.zeros((1, 2), np.float32)
    >>> resize_bilinear_gradient(g, like, True, False, "HW").tolist()
    [[2.0, 2.0]]
    """
    return _gradient(gradient, input, None, layout, backend, center_result, align_corners, scale_offset)
