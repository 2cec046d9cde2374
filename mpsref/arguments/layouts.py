"""Layouts of arrays in memory, in which a backend may want its inputs.

A layout is an order of the axes of an image (N, H, W, C), or of weights OHWI, with an optional way to lie in it:

=========== =======================================================================================
nhwc        C order: the layout of all other backends; channels_last in PyTorch
nchw        channels before rows: contiguous in PyTorch
cnhw        the batch is not the outermost axis, as after a transposition of the first two in PyTorch
-offset     begins one element after the begin of its memory
-gap        a part of a larger array: each axis is one element longer; every second element of a vector
-reversed   rows and columns run backwards: negative strides
=========== =======================================================================================

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

ORDERS = {"nhwc": (0, 1, 2, 3), "nchw": (0, 3, 1, 2), "cnhw": (3, 0, 1, 2)}
"""The axes of an image from the outermost in memory to the innermost."""

WAYS = ("", "-offset", "-gap", "-reversed")

PLAIN = "nhwc"

LAYOUTS = tuple(order + way for order in ORDERS for way in WAYS)


def room(layout: str, shape: Shape) -> int:
    """Return how many elements the memory of an array has."""
    if layout.endswith("-gap"):
        return 2 * shape[0] if len(shape) == 1 else math.prod(length + 1 for length in shape)
    return math.prod(shape) + layout.endswith("-offset")


def laid(layout: str, shape: Shape, memory: Array) -> Array:
    """Return an array of ``shape`` in its ``memory``, a vector of :func:`room` elements.

    Arrays that are not of rank 4 have the order of their axes in memory.
    """
    order = ORDERS[layout.partition("-")[0]] if len(shape) == 4 else tuple(range(len(shape)))
    lengths = [shape[axis] for axis in order]
    if layout.endswith("-gap") and len(shape) == 1:
        held = memory[::2]
    elif layout.endswith("-gap"):
        held = memory.reshape([length + 1 for length in lengths])[tuple(slice(length) for length in lengths)]
    else:
        held = memory[layout.endswith("-offset") :].reshape(lengths)
    array = held.transpose(np.argsort(order))
    if layout.endswith("-reversed"):
        axes = (1, 2) if len(shape) == 4 else tuple(range(len(shape)))
        array = np.flip(array, axes)
    return array


def arranged(values: Array, layout: str, fill: Any = np.nan) -> Array:
    """Return a copy of ``values`` in a layout; ``fill`` is between its elements."""
    memory = np.full(room(layout, values.shape), fill if values.dtype.kind == "f" else 0, values.dtype)
    array = laid(layout, values.shape, memory)
    array[...] = values
    return array
