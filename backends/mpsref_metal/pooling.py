"""Max and L2-norm pooling: tables in the layout of ``msl/windows.metal``, and launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from mpsref.arguments.arrays import Array
from mpsref.kernels.pooling import PoolingForward, PoolingGradient
from mpsref.tables import Reads, Touching
from mpsref_metal.launch import Launcher, problem_of, types, width_of

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


class _Gradient(NamedTuple):
    """What both steps of a gradient have in common."""

    launch: Launcher
    files: tuple[str, str]
    problem: PoolingGradient
    images: tuple[Array, Array]
    """g and x."""
    width: int
    known: tuple[str, ...]

    def of_windows(self, function: str, dtype: DTypeLike) -> Array:
        """Run a function that computes a value for each window from x."""
        (windows, axes), (g, x) = _windows(self.problem), self.images
        buffers = [x, *windows, axes, problem_of(x, g.shape, self.width)]
        return self.launch.run(
            self.files, function, buffers, [(g.shape, dtype)], self.known, count=g.size // self.width
        )[0]

    def gather(self, images: list[Array], out: Array) -> None:
        """Run ``gradient`` on these images."""
        windows, axes = _windows(self.problem)
        candidates = [_structs(axis, CANDIDATES) for axis in self.problem.touching()]
        buffers = [*images, *windows, *candidates, axes, problem_of(self.images[0], out.shape, self.width)]
        self.launch.into(self.files, "gradient", buffers, out, self.known, count=out.size // self.width)


def max_gradient(launch: Launcher, problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
    """Run ``selected_taps``, then ``gradient``."""
    width = width_of(out.shape[3], g, x, out)
    rows, columns = (int(axis.count.max()) + 2 for axis in problem.reads())  # the taps before and after are a group
    groups = 1 << max(4, (columns - 1).bit_length())
    tap = np.min_scalar_type(rows * groups - 1)
    known = *types(width, Storage=x, Gradient=g, Tap=tap), f"constant constexpr uint GROUPS = {groups};"
    step = _Gradient(launch, ("windows", "pooling_max"), problem, (g, x), width, known)
    step.gather([g, step.of_windows("selected_taps", tap)], out)


def l2norm_gradient(launch: Launcher, problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
    """Run ``forward``, which computes the norms, then ``gradient``."""
    width = width_of(out.shape[3], g, x, out)
    known = types(width, Storage=x, Gradient=g)
    step = _Gradient(launch, ("windows", "pooling_l2norm"), problem, (g, x), width, known)
    step.gather([g, x, step.of_windows("forward", np.float32)], out)
