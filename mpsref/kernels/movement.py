"""Tables for kernels that move pixels: for each axis, the source index of each element of the result."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from mpsref.tables import IntVector

Gather: TypeAlias = tuple[IntVector, IntVector, IntVector]
"""For y, x and channel: the source index that each element of the result reads; -1 where it reads none."""


class Readers(NamedTuple):
    """For each element of a source axis, which elements of the result read it: ``order[start[j] : start[j + 1]]``."""

    start: IntVector
    order: IntVector


def index(read: npt.NDArray[Any], length: int) -> IntVector:
    """Return source indices as int32, -1 for those outside ``[0, length)``.

    >>> index(np.array([-3, 0, 1, 2]), 2).tolist()
    [-1, 0, 1, -1]
    """
    return np.where((read >= 0) & (read < length), read, -1).astype(np.int32)


def readers(read: IntVector, length: int) -> Readers:
    """Invert a table of reads: list the readers of each of the ``length`` source elements.

    >>> table = readers(np.array([0, 0, 1, -1], np.int32), 3)
    >>> table.start.tolist(), table.order.tolist()
    ([0, 2, 3, 3], [0, 1, 2])
    """
    order = np.flatnonzero(read >= 0)
    order = order[np.argsort(read[order], kind="stable")]
    start = np.searchsorted(read[order], np.arange(length + 1))
    return Readers(start.astype(np.int32), order.astype(np.int32))
