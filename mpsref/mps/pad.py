"""Padding with Apple's names, and its gradient.

>>> import numpy as np
>>> pad = MPSNNPad((2, 0, 0), (3, 0, 0), edge_mode="clamp")
>>> y, state = pad.encode(np.arange(3, dtype=np.float32).reshape(1, 1, 3, 1), return_state=True)
>>> y.ravel().tolist()
[0.0, 0.0, 0.0, 1.0, 2.0, 2.0, 2.0, 2.0]
>>> MPSNNPadGradient().encode(np.ones_like(y), np.zeros((1, 1, 3, 1), np.float32), state).ravel().tolist()
[3.0, 1.0, 4.0]

Source: ``MPSNNReshape.h`` [doc].
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mpsref.arguments.arrays import Shape
from mpsref.arguments.parameters import integer, number
from mpsref.kernels import Pad
from mpsref.kernels.pad import EDGES
from mpsref.mps.core import types
from mpsref.mps.core.kernel import saved
from mpsref.mps.core.properties import Property, fix
from mpsref.mps.core.types import MPSImageEdgeMode
from mpsref.mps.core.whole_image import WholeImageGradient, WholeImageKernel
from mpsref.registry import Backend

__all__ = ["MPSImageCoordinate", "MPSNNPad", "MPSNNPadGradient"]


class MPSImageCoordinate(NamedTuple):
    """A position in an image, or a size along its axes. Source: ``MPSCoreTypes.h`` [doc]."""

    x: int
    y: int
    channel: int


NONE = MPSImageCoordinate(0, 0, 0)


def coordinate(name: str, value: Any) -> MPSImageCoordinate:
    """Return ``value`` as a coordinate (x, y, channel), each >= 0.

    Raises ``TypeError`` for what is no tuple of integers, ``ValueError`` for another length or a negative number.
    """
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; it must be (x, y, channel)")
    if len(value) != 3:
        raise ValueError(f"{name} is {value!r} of length {len(value)}; it must be (x, y, channel)")
    fields = zip(MPSImageCoordinate._fields, value, strict=True)
    return MPSImageCoordinate(*(integer(f"{name}.{axis}", length, low=0) for axis, length in fields))


def _edge_mode(name: str, value: Any) -> MPSImageEdgeMode:
    return types.edge_mode(name, value, legal=tuple(MPSImageEdgeMode))


def _fills(name: str, value: Any) -> tuple[float, ...] | None:
    return None if value is None else Pad(fill_values=value).fill_values


class Sizes:
    """The padding of each axis."""

    padding_size_before = Property(coordinate, NONE, "Columns, rows and channels before the image.")
    padding_size_after = Property(coordinate, NONE, "Columns, rows and channels behind the image.")

    def _padding(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        before, after = ((y, x, c) for x, y, c in (self.padding_size_before, self.padding_size_after))
        return before, after


@saved()
class MPSNNPad(Sizes, WholeImageKernel):
    """Rows, columns and channels around an image: :class:`mpsref.Pad`.

    ``edge_mode`` is any of the five; ``Constant`` fills with ``fill_value``, or with ``fill_value_array``, a number for
    each channel of the result.
    """

    fixed = tuple(name for name in WholeImageKernel.fixed if name != "edge_mode")
    edge_mode = Property(_edge_mode, MPSImageEdgeMode.Zero, "What the padding is filled with.")
    fill_value = Property(number, 0.0, "What ``Constant`` fills with.")
    fill_value_array = Property(_fills, None, "What ``Constant`` fills each channel with; ``None``: fill_value.")

    def __init__(
        self,
        padding_size_before: tuple[int, int, int] = NONE,
        padding_size_after: tuple[int, int, int] = NONE,
        fill_value_array: Any = None,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel; sizes are (x, y, channel). ``TypeError`` or ``ValueError`` for what is not legal."""
        fix(self, padding_size_before=padding_size_before, padding_size_after=padding_size_after)
        fix(self, fill_value_array=fill_value_array)
        super().__init__(backend=backend, **properties)

    def _function(self) -> Pad:
        return Pad(*self._padding(), EDGES[self.edge_mode], self.fill_value, self.fill_value_array)


@saved()
class MPSNNPadGradient(Sizes, WholeImageGradient):
    """The sum over the copies of each pixel; a state sets the sizes and ``secondary_edge_mode``, the forward mode."""

    forward_class = MPSNNPad
    fixed = tuple(name for name in WholeImageGradient.fixed if name != "secondary_edge_mode")
    secondary_edge_mode = Property(_edge_mode, MPSImageEdgeMode.Zero, "The edge mode of the forward kernel.")

    def __init__(
        self,
        padding_size_before: tuple[int, int, int] = NONE,
        padding_size_after: tuple[int, int, int] = NONE,
        *,
        backend: str | Backend | None = None,
        **properties: Any,
    ) -> None:
        """Make a kernel; errors as in :class:`MPSNNPad`."""
        fix(self, padding_size_before=padding_size_before, padding_size_after=padding_size_after)
        super().__init__(backend=backend, **properties)

    def _function(self, g: Shape, state: Any) -> Pad:
        if state is not None:
            function: Pad = state.record.extras["function"]
            before, after = (MPSImageCoordinate(x, y, c) for y, x, c in (function.before, function.after))
            self._assign(padding_size_before=before, padding_size_after=after)
            self._assign(secondary_edge_mode=state.source.edge_mode)
        return Pad(*self._padding(), EDGES[self.secondary_edge_mode])
