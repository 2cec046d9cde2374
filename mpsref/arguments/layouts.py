"""Layouts of arrays in memory, in which a backend may want its inputs.

A layout is an order of the axes of an image (N, H, W, C), or of weights OHWI, with an optional way to lie in it:

=========== =======================================================================================
nhwc        C order: the layout of all other backends; channels_last in PyTorch
nchw        channels before rows: contiguous in PyTorch
cnhw        the batch is not the outermost axis, as after a transposition of the first two in PyTorch
ncwh        column-first: rows before columns, the innermost, as after a transposition of both in PyTorch; of an
            array of rank 2 or 3 the last axis is the outermost, as in a transposed matrix
-offset     begins one element after the begin of its memory
-gap        a part of a larger array: each axis is one element longer; every second element of a vector
-reversed   rows and columns run backwards: negative strides
-odd        the stride of an axis of length 1 is one that no contiguous array has, as after reshaping
-expanded   rows and columns repeat one pixel: strides of 0, as in the gradient of a mean; a vector one element
-scalar     all elements repeat one: strides of 0, as in the gradient of a sum
=========== =======================================================================================

The last two change the values of an array: those along the axes with a stride of 0 are equal.

>>> import numpy as np
>>> x = arranged(np.arange(8.0).reshape(1, 2, 2, 2), "nchw-gap")
>>> x.ravel().tolist(), [stride // 8 for stride in x.strides]
([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [27, 3, 1, 9])
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array, Shape

ORDERS = {"nhwc": (0, 1, 2, 3), "nchw": (0, 3, 1, 2), "cnhw": (3, 0, 1, 2), "ncwh": (0, 3, 2, 1)}
"""The axes of an image from the outermost in memory to the innermost."""

WAYS = ("", "-offset", "-gap", "-reversed", "-odd", "-expanded", "-scalar")

ODD = 7
"""The stride of an axis of length 1 in elements, which depends neither on other lengths nor on the order."""

PLAIN = "nhwc"

LAYOUTS = tuple(order + way for order in ORDERS for way in WAYS)


def way_of(layout: str) -> str:
    """Return how an array lies in its order: one of :data:`WAYS`."""
    return layout[len(layout.partition("-")[0]) :]


def repeats(layout: str, rank: int) -> tuple[int, ...]:
    """Return the axes along which all elements of an array are one in memory."""
    if way_of(layout) == "-expanded" and rank == 4:
        return 1, 2
    return tuple(range(rank)) if way_of(layout) in ("-expanded", "-scalar") else ()


def repeated(values: Array, layout: str) -> Array:
    """Return ``values`` with equal elements along the axes that a layout repeats: the smallest, or a NaN.

    The smallest, because a gradient that is 0 where rounding determines a result must be 0 along the whole axis.
    """
    axes = repeats(layout, values.ndim)
    if not axes or not values.size:
        return values
    rest = [axis for axis in range(values.ndim) if axis not in axes]
    lined = values.transpose(*rest, *axes).reshape(*(values.shape[axis] for axis in rest), -1)
    at = np.abs(lined).argmin(axis=-1, keepdims=True)  # of a NaN, if there is one
    found = np.take_along_axis(lined, at, -1)[..., 0]
    return np.broadcast_to(np.expand_dims(found, axes), values.shape)


def _order(layout: str, rank: int) -> tuple[int, ...]:
    """Return the axes from the outermost in memory to the innermost."""
    name = layout.partition("-")[0]
    return ORDERS[name] if rank == 4 else tuple(range(rank))[:: -1 if name == "ncwh" else 1]


def room(layout: str, shape: Shape) -> int:
    """Return how many elements the memory of an array has."""
    way, axes = way_of(layout), repeats(layout, len(shape))
    if axes:
        shape = tuple(length for axis, length in enumerate(shape) if axis not in axes)
    if way == "-gap":
        return 2 * shape[0] if len(shape) == 1 else math.prod(length + 1 for length in shape)
    return math.prod(shape) + (way == "-offset")


def laid(layout: str, shape: Shape, memory: Array) -> Array:
    """Return an array of ``shape`` in its ``memory``, a vector of :func:`room` elements.

    Arrays that are not of rank 4 have the order of their axes in memory, or in "ncwh" its reverse.
    """
    way, axes = way_of(layout), repeats(layout, len(shape))
    order = _order(layout, len(shape))
    lengths = [1 if axis in axes else shape[axis] for axis in order]
    if way == "-gap" and len(shape) == 1:
        held = memory[::2]
    elif way == "-gap":
        held = memory.reshape([length + 1 for length in lengths])[tuple(slice(length) for length in lengths)]
    else:
        held = memory[way == "-offset" :].reshape(lengths)
    array = held.transpose(np.argsort(order))
    if way == "-reversed":
        array = np.flip(array, (1, 2) if len(shape) == 4 else tuple(range(len(shape))))
    if way == "-odd" or axes:
        odd = ODD * array.itemsize
        strides = [
            0 if axis in axes else odd if length == 1 and way == "-odd" else stride
            for axis, (length, stride) in enumerate(zip(shape, array.strides, strict=True))
        ]
        array = np.lib.stride_tricks.as_strided(array, shape, strides)
    return array


def effect(layout: str, shape: Shape) -> str:
    """Return the layout that describes an array of this shape: without the words that change nothing.

    >>> effect("nhwc-odd", (1, 2, 3, 4)), effect("nhwc-odd", (2, 2, 3, 4)), effect("nchw-gap", (5,))
    ('nhwc-odd', 'nhwc', 'vector-gap')
    >>> effect("ncwh", (5,)), effect("ncwh", (2, 3))
    ('vector', 'transposed')
    """
    way = way_of(layout)
    way = "" if (way == "-odd" and 1 not in shape) or (way == "-scalar" and math.prod(shape) == 1) else way
    order = layout.partition("-")[0]
    other = "transposed" if order == "ncwh" and len(shape) > 1 else "vector"
    return (order if len(shape) == 4 else other) + way


def arranged(values: Array, layout: str, fill: Any = np.nan) -> Array:
    """Return a copy of ``values`` in a layout; ``fill`` is between its elements."""
    memory = np.full(room(layout, values.shape), fill if values.dtype.kind == "f" else 0, values.dtype)
    array = laid(layout, values.shape, memory)
    array[...] = repeated(values, layout)
    return array
