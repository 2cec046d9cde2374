"""Max and L2-norm pooling: tables in the layout of ``msl/windows.metal``, and launches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from mpsref.arguments.arrays import Array
from mpsref.kernels.pooling import PoolingForward, PoolingGradient
from mpsref.operations import cached_in_problem
from mpsref.tables import Reads, Touching
from mpsref_metal.launch import Launcher, packs_together, shapes_of, short_sums, types, width_of

WINDOW = np.dtype([("before", "f4"), ("first", "i4"), ("count", "i4"), ("after", "f4")])
CANDIDATES = np.dtype([("pixel", "i4"), ("first", "i4"), ("count", "i4"), ("start", "i4")])

MAX = "windows", "pooling_max"

CHEAPER = 2
"""Maxima within rows, then over rows, replace maxima of windows if they reduce the number of reads by this factor."""


def _structs(table: Reads) -> Array:
    """Return the columns of a table as an array of structs."""
    structs = np.empty(len(table.first), WINDOW)
    structs["before"], structs["first"], structs["count"] = table.before, table.first, table.count
    structs["after"] = table.after
    return structs


def _windows(reads: tuple[Reads, Reads]) -> tuple[list[Array], Array]:
    """Return the windows of both axes, and the values common to all windows of an axis."""
    axes = np.array([[axis.step, axis.low, axis.high] for axis in reads], np.int32)
    return [_structs(axis) for axis in reads], axes


def forward_of(family: str) -> Callable[..., None]:
    """Return the implementation of ``forward`` with ``msl/FAMILY.metal``."""

    def forward(launch: Launcher, problem: PoolingForward, x: Array, out: Array) -> None:
        launch(("windows", family), "forward", [x], _tables(problem), out, _terms(problem))

    return forward


def max_forward(launch: Launcher, problem: PoolingForward, x: Array, out: Array) -> None:
    """Run ``forward`` once, or for large windows that overlap within rows first, then over rows."""
    reads = problem.reads()
    if _is_cheaper_in_two(reads, x.shape[1]):
        x, reads = _within_rows(launch, x, reads[1], _terms(problem)), (reads[0], _single(len(reads[1].first)))
        windows, axes = _windows(reads)
        launch(MAX, "forward", [x], [*windows, axes], out, _terms(problem))
    else:
        launch(MAX, "forward", [x], _tables(problem), out, _terms(problem))


def _is_cheaper_in_two(reads: tuple[Reads, Reads], height: int) -> bool:
    """Return whether maxima within rows of an image, then over rows, read far fewer pixels than maxima of windows."""
    down, across = (int(axis.count.max()) for axis in reads)
    outputs = len(reads[0].first)
    in_two = height * (across + 2) + outputs * down  # 2: the maxima of rows are written and read
    return outputs * down * across > CHEAPER * in_two


def _within_rows(launch: Launcher, x: Array, columns: Reads, terms: int) -> Array:
    """Return the maxima of the windows of every row of x."""
    n, height, _, channels = x.shape
    windows, axes = _windows((_single(height), columns))
    within = launch.empty((n, height, len(columns.first), channels))
    launch(MAX, "forward", [x], [*windows, axes], within, terms)
    return within


def _single(length: int) -> Reads:
    """Return the reads of windows of one pixel each."""
    zeros, pixels = np.zeros(length, np.int64), np.arange(length, dtype=np.int32)
    return Reads(zeros, pixels, np.ones(length, np.int32), zeros, 1, -1, -1)


def _itself(length: int) -> Touching:
    """Return, for pixels that only their own window reads, these windows."""
    pixels = np.arange(length, dtype=np.int32)
    return Touching(pixels, pixels, np.ones(length, np.int32))


@cached_in_problem
def _tables(problem: PoolingForward) -> list[Array]:
    """Return the windows of both axes, and the values common to all windows of an axis."""
    windows, axes = _windows(problem.reads())
    return [*windows, axes]


@cached_in_problem
def _terms(problem: PoolingForward | PoolingGradient) -> int:
    """Return the maximum number of pixels of a window, and of windows that read a pixel."""
    of_windows = math.prod(int(axis.count.max()) + 2 for axis in problem.reads())
    if isinstance(problem, PoolingForward):
        return of_windows
    return max(of_windows, math.prod(int(axis.count.max()) for axis in problem.touching()))


class _Gradient(NamedTuple):
    """What both steps of a gradient have in common."""

    launch: Launcher
    files: tuple[str, str]
    images: tuple[Array, Array]
    """g and x."""
    reads: tuple[Reads, Reads]
    touching: tuple[Touching, Touching]
    width: int
    together: int
    constants: tuple[str, ...]
    stored: dict[str, np.dtype[Any]]
    """The types of other images by their names in MSL."""

    @property
    def known(self) -> tuple[str, ...]:
        """The lines of MSL before the prelude."""
        g, x = self.images
        return (*types(self.width, Storage=x, Gradient=g, **self.stored), *self.constants)

    def of_windows(self, function: str, dtype: DTypeLike) -> Array:
        """Run a function that computes a value for each window from x."""
        (windows, axes), (g, x) = _windows(self.reads), self.images
        buffers = [x, *windows, axes, shapes_of(x, g.shape, self.width, self.together)]
        count = g.size // self.width // self.together
        return self.launch.run(self.files, function, buffers, [(g.shape, dtype)], self.known, count)[0]

    def gather(self, images: list[Array], of_pairs: Callable[[Reads, Array, Array], Array], out: Array) -> None:
        """Run ``gradient`` on these images and on ``of_pairs(reads, windows, pixels)`` for each axis."""
        candidates, tables = [], []
        for reads, touching in zip(self.reads, self.touching, strict=True):
            structs = np.empty(len(touching.pixel), CANDIDATES)
            structs["pixel"], structs["first"], structs["count"] = touching.pixel, touching.first, touching.count
            end = np.cumsum(touching.count)
            structs["start"] = end - touching.count
            windows = np.arange(end[-1]) - np.repeat(structs["start"] - touching.first, touching.count)
            candidates.append(structs)
            table = of_pairs(reads, windows, np.repeat(touching.pixel, touching.count))
            tables.append(table if table.size else np.zeros(1, table.dtype))
        buffers = [*images, *candidates, *tables, shapes_of(self.images[0], out.shape, self.width, self.together)]
        count = out.size // self.width // self.together
        self.launch.into(self.files, "gradient", buffers, out, self.known, count)


def _tap_of(reads: Reads, windows: Array, pixels: Array) -> tuple[Array, Array]:
    """Return, for pairs of a window and a pixel, the tap of the run that reads the pixel, and whether there is one."""
    tap, rest = np.divmod(pixels.astype(np.int64) - reads.first[windows], reads.step)
    return tap, (rest == 0) & (tap >= 0) & (tap < reads.count[windows])


def first_groups(reads: Reads, windows: Array, pixels: Array) -> Array:
    """Return, for pairs of a window and a pixel, the first group of taps that reads the pixel, or -1."""
    tap, inside = _tap_of(reads, windows, pixels)
    leading = (reads.before[windows] > 0).astype(np.int64)
    behind = np.where((reads.after[windows] > 0) & (pixels == reads.high), leading + reads.count[windows], -1)
    group = np.where(inside, leading + tap, behind)
    return np.where((leading > 0) & (pixels == reads.low), 0, group).astype(np.int32)


def times_reading(reads: Reads, windows: Array, pixels: Array) -> Array:
    """Return, for pairs of a window and a pixel, how many taps of the window read the pixel, float32."""
    _, inside = _tap_of(reads, windows, pixels)
    before = np.where(pixels == reads.low, reads.before[windows], 0)
    after = np.where(pixels == reads.high, reads.after[windows], 0)
    return (before + inside + after).astype(np.float32)


def max_gradient(launch: Launcher, problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
    """Run ``selected_taps``, then ``gradient``; for large windows that overlap over rows first, then within rows.

    The selected tap of a window is in the first row with the maximum, where it is that of the window within the row.
    """
    reads, touching, terms = problem.reads(), problem.touching(), _terms(problem)
    width, height = width_of(out.shape[3], g, x, out), x.shape[1]
    together = launch.gpu.together_of(min(g.size, out.size), out.shape[3], width, terms)
    rows, columns = (int(axis.count.max()) + 2 for axis in reads)  # the taps before and after are a group
    groups = 1 << max(4, (columns - 1).bit_length())
    tap = np.min_scalar_type(rows * groups - 1)
    constants = (
        *short_sums(terms),
        *packs_together(together),
        f"constant constexpr uint GROUPS = {groups};",
    )
    step = _Gradient(launch, MAX, (g, x), reads, touching, width, together, constants, {"Tap": tap})
    if _is_cheaper_in_two(reads, height) and np.array_equal(touching[0].pixel, np.arange(height)):
        within, outputs = _within_rows(launch, x, reads[1], terms), g.shape[2]
        over_rows = step._replace(
            images=(g, within), reads=(reads[0], _single(outputs)), touching=(touching[0], _itself(outputs))
        )
        of_rows = launch.empty(within.shape)
        over_rows.gather([g, over_rows.of_windows("selected_taps", tap)], first_groups, of_rows)
        g = of_rows
        step = step._replace(images=(g, x), reads=(_single(height), reads[1]), touching=(_itself(height), touching[1]))
    step.gather([g, step.of_windows("selected_taps", tap)], first_groups, out)


def l2norm_gradient(launch: Launcher, problem: PoolingGradient, g: Array, x: Array, out: Array) -> None:
    """Run ``reciprocals``, which computes those of the norms, then ``gradient``."""
    width = width_of(out.shape[3], g, x, out)
    files, constants = ("windows", "pooling_l2norm"), short_sums(_terms(problem))
    step = _Gradient(launch, files, (g, x), problem.reads(), problem.touching(), width, 1, constants, {})
    step.gather([g, x, step.of_windows("reciprocals", np.float32)], times_reading, out)
