"""Functions shared by the kernels with a window on each axis: pooling and convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from mpsref.arguments.arrays import Shape
from mpsref.arguments.parameters import Pair
from mpsref.errors import ShapeError
from mpsref.geometry import Window

Windows: TypeAlias = tuple[Window, Window]
"""The window of the y axis and that of the x axis."""

Padding: TypeAlias = Literal["zero", "lowest", "counted", "none"]
"""What frameworks put around the image of a kernel: zeros, the lowest number, zeros that N may count, or nothing."""


def default_size(windows: Windows, shape: Shape) -> Pair:
    """Return the output size up to the last window whose centre lies before the end of an image of ``shape``.

    >>> default_size((Window(3, 2), Window(3, 2)), (1, 5, 4, 1))
    (3, 2)
    """
    height, width = (window.default_outputs(length) for window, length in zip(windows, shape[1:3], strict=True))
    if min(height, width) < 1:
        raise ShapeError(
            f"offset is {tuple(window.offset for window in windows)}: the first window's centre lies behind an image "
            f"of shape {shape}, and the default output size would be {height, width}; name one (each >= 1), or use a "
            "smaller offset"
        )
    return height, width


def described(windows: Windows, index: Sequence[int], shape: Shape) -> str:
    """Describe the window of an output element: its position, and its pixels inside the image of ``shape``.

    >>> described((Window(3, 2), Window(3, 2)), (0, 0, 1, 0), (1, 5, 4, 1))
    'window (0, 1), rows 0..1, columns 1..3'
    """
    places = []
    for window, i, length in zip(windows, index[1:3], shape[1:3], strict=True):
        pixels = window.inside(i, length)
        inside = range(pixels.start, pixels.stop, pixels.step)
        places.append(f"{inside[0]}..{inside[-1]}" if inside else "none")
    return f"window ({index[1]}, {index[2]}), rows {places[0]}, columns {places[1]}"
