"""Max and L2-norm pooling: tables in the layout of ``msl/windows.metal``, and launches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.pooling import PoolingForward, PoolingGradient
from mpsref.tables import Reads, Touching
from mpsref_metal.launch import Launcher

WINDOW = np.dtype([("before", "f4"), ("first", "i4"), ("count", "i4"), ("after", "f4")])
CANDIDATES = np.dtype([("pixel", "i4"), ("first", "i4"), ("count", "i4")])


def _structs(table: Reads | Touching, dtype: np.dtype[np.void]) -> Array:
    """Return the columns of a table as an array of structs."""
    assert dtype.names is not None
    columns = {name: getattr(table, name) for name in dtype.names}
    structs = np.empty(len(table.first), dtype)
    for name, column in columns.items():
        structs[name] = column
    return structs


def _windows(problem: PoolingForward | PoolingGradient) -> tuple[list[Array], Array]:
    """Return the windows of both axes, and the values common to all windows of an axis."""
    reads = problem.reads()
    axes = np.array([[axis.step, axis.low, axis.high] for axis in reads], np.int32)
    return [_structs(axis, WINDOW) for axis in reads], axes


def forward_of(family: str) -> Callable[..., None]:
    """Return the implementation of ``forward`` with ``msl/FAMILY.metal``."""

    def forward(launch: Launcher, problem: PoolingForward, x: Array, out: Array) -> None:
        windows, axes = _windows(problem)
        launch(("windows", family), "forward", [x], [*windows, axes], out)

    return forward


def gradient_of(family: str) -> Callable[..., None]:
    """Return the implementation of ``gradient`` with ``msl/FAMILY.metal``."""

    def gradient(launch: Launcher, problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
        windows, axes = _windows(problem)
        candidates = [_structs(axis, CANDIDATES) for axis in problem.touching()]
        launch(("windows", family), "gradient", [g, x], [*windows, *candidates, axes], out)

    return gradient
